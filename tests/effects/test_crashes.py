"""What is left when a process is killed at a certain point, and what the next one makes of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from effect_workers import POINTS, EffectFile, Job, Process, eventually, perform, records

from otel_agentguard.effects.ledger import EffectRecord, State

POLICIES = ["block", "retry", "verify"]

UNTOUCHED = {"before claim"}
NOT_YET = {"after claim", "before effect"}
IN_THE_WINDOW = {"after effect", "before complete"}
RECORDED = {"after complete", "after return"}


def the_record(url: str) -> EffectRecord:
    [record] = records(url)
    return record


def deaths_are_known(url: str) -> bool:
    return url.startswith("sqlite")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("point", POINTS)
def test_a_call_after_a_kill_does_what_its_policy_promises(
    url: str, effects: EffectFile, point: str, policy: str
) -> None:
    assert perform(Job(url, effects, policy, die_at=point)) == {"killed": True}

    answer = perform(Job(url, effects, policy))

    record = the_record(url)
    stuck = policy == "block" and point not in UNTOUCHED | RECORDED
    if stuck:
        assert answer["error"] == "CallBlocked"
        assert record.state is State.UNKNOWN
        assert effects.count() == (point in IN_THE_WINDOW)
        return
    assert record.state is State.SUCCEEDED
    twice = policy == "retry" and point in IN_THE_WINDOW
    assert effects.count() == 1 + twice
    assert effects.count() <= 1 + record.maybe_duplicates
    assert set(effects.keys()) == {record.key}
    found_done = point in RECORDED or (policy == "verify" and point in IN_THE_WINDOW)
    assert answer["outcome"] == ("replayed" if found_done else "executed")
    if policy == "verify" and deaths_are_known(url):
        assert record.maybe_duplicates == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("point", ["after claim", "after effect", "after complete"])
def test_a_blocked_call_stays_blocked_and_a_finished_one_is_replayed(
    url: str, effects: EffectFile, point: str, policy: str
) -> None:
    perform(Job(url, effects, policy, die_at=point))
    first = perform(Job(url, effects, policy))
    before = effects.count()

    second = perform(Job(url, effects, policy))

    assert effects.count() == before
    if "error" in first:
        assert second["error"] == first["error"] == "CallBlocked"
    else:
        assert (second["outcome"], second["value"]) == ("replayed", first["value"])


@pytest.mark.parametrize("second_death", ["before takeover", "after takeover"])
@pytest.mark.parametrize("first_death", ["before effect", "after effect"])
def test_a_kill_in_a_takeover_leaves_no_effect_uncounted(
    url: str, effects: EffectFile, first_death: str, second_death: str
) -> None:
    perform(Job(url, effects, "retry", die_at=first_death))
    assert perform(Job(url, effects, "retry", die_at=second_death)) == {"killed": True}

    answer = perform(Job(url, effects, "retry"))

    record = the_record(url)
    assert answer["outcome"] == "executed"
    assert record.attempt == answer["attempt"] == (3 if second_death == "after takeover" else 2)
    assert record.maybe_duplicates == record.attempt - 1
    assert effects.count() == (2 if first_death == "after effect" else 1)


@pytest.mark.parametrize("first_death", ["before effect", "after effect"])
def test_a_kill_in_a_verification_leaves_it_to_the_next(url: str, effects: EffectFile, first_death: str) -> None:
    perform(Job(url, effects, "verify", die_at=first_death))
    assert perform(Job(url, effects, "verify", die_at="in verify")) == {"killed": True}

    answer = perform(Job(url, effects, "verify"))

    assert answer["outcome"] == ("replayed" if first_death == "after effect" else "executed")
    assert effects.count() == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_kill_in_a_heartbeat_is_a_kill_in_the_body(redis_url: str, effects: EffectFile, policy: str) -> None:
    slow = Job(redis_url, effects, policy, die_at="in heartbeat", in_body=lambda: time.sleep(5))
    assert perform(slow) == {"killed": True}

    answer = perform(Job(redis_url, effects, policy))

    assert answer.get("outcome", answer.get("error")) == ("CallBlocked" if policy == "block" else "executed")
    assert effects.count() == (policy != "block")


def test_a_heartbeat_keeps_a_slow_owner_from_being_robbed(redis_url: str, effects: EffectFile) -> None:
    owner = Process(Job(redis_url, effects, "retry", in_body=lambda: time.sleep(1.2)))
    eventually(lambda: bool(records(redis_url)))

    second = perform(Job(redis_url, effects, "retry"))

    assert second["outcome"] == "waited"
    assert owner.wait()["outcome"] == "executed"
    assert effects.count() == 1


@pytest.mark.parametrize("point", ["before effect", "after effect"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_stopped_owner_is_never_robbed_where_locks_tell(
    locking_url: str, effects: EffectFile, policy: str, point: str
) -> None:
    owner = Process(Job(locking_url, effects, policy, freeze_at=point))
    owner.wait_until_frozen()

    meanwhile = perform(Job(locking_url, effects, policy, wait_s=0.3))
    owner.thaw()

    assert meanwhile["error"] == "EffectInProgress"
    assert owner.wait()["outcome"] == "executed"
    assert effects.count() == 1
    assert the_record(locking_url).maybe_duplicates == 0


@pytest.mark.parametrize("point", ["before effect", "after effect"])
def test_an_owner_that_was_stopped_beyond_its_lease_settles_what_was_called_unknown(
    redis_url: str, effects: EffectFile, point: str
) -> None:
    owner = Process(Job(redis_url, effects, "block", freeze_at=point))
    owner.wait_until_frozen()

    meanwhile = perform(Job(redis_url, effects, "block"))
    unknown = the_record(redis_url).state
    owner.thaw()

    assert meanwhile["error"] == "CallBlocked"
    assert unknown is State.UNKNOWN
    assert owner.wait()["outcome"] == "executed"
    assert the_record(redis_url).state is State.SUCCEEDED
    assert effects.count() == 1


@pytest.mark.parametrize("policy", ["retry", "verify"])
def test_an_owner_that_was_overtaken_learns_it_and_returns_the_result_of_the_winner(
    redis_url: str, effects: EffectFile, policy: str
) -> None:
    owner = Process(Job(redis_url, effects, policy, freeze_at="before effect"))
    owner.wait_until_frozen()

    winner = perform(Job(redis_url, effects, policy))
    owner.thaw()
    latecomer = owner.wait()

    record = the_record(redis_url)
    assert winner["outcome"] == "executed"
    assert (latecomer["outcome"], latecomer["value"]) == ("late", winner["value"])
    assert effects.count() == 2
    assert (record.maybe_duplicates, record.confirmed_duplicates) == (1, 1)


def test_a_verified_effect_of_a_stopped_owner_is_not_repeated(redis_url: str, effects: EffectFile) -> None:
    owner = Process(Job(redis_url, effects, "verify", freeze_at="after effect"))
    owner.wait_until_frozen()

    verifier = perform(Job(redis_url, effects, "verify"))
    owner.thaw()

    assert (verifier["outcome"], verifier["value"]) == ("replayed", "verified")
    assert owner.wait()["outcome"] == "executed"
    assert effects.count() == 1
    assert the_record(redis_url).confirmed_duplicates == 0


def test_a_child_of_the_owner_does_not_vouch_for_it(url: str, effects: EffectFile, tmp_path: Path) -> None:
    pids = tmp_path / "child"

    def fork_and_die() -> None:
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        pids.write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)

    perform(Job(url, effects, "retry", in_body=fork_and_die))

    try:
        answer = perform(Job(url, effects, "retry", wait_s=5))
    finally:
        os.kill(int(pids.read_text()), signal.SIGKILL)

    assert answer["outcome"] == "executed"


def test_a_child_has_claims_of_its_own(url: str, effects: EffectFile) -> None:
    def call_in_child(executor: object) -> None:
        records(url)
        assert perform(Job(url, effects, arguments={"invoice": 8}))["outcome"] == "executed"

    answer = perform(Job(url, effects, hook=call_in_child))

    assert answer["outcome"] == "executed"
    assert effects.count() == 2


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_jump_of_the_clock_robs_nobody(url: str, effects: EffectFile, jump_s: float) -> None:
    owner = Process(Job(url, effects, "retry", in_body=lambda: time.sleep(0.5)))
    eventually(lambda: bool(records(url)))
    real = time.time

    def jump(_: object) -> None:
        time.time = lambda: real() + jump_s

    answer = perform(Job(url, effects, "retry", hook=jump))

    assert answer["outcome"] == "waited"
    assert owner.wait()["outcome"] == "executed"
    assert effects.count() == 1
