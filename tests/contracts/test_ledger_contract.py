"""What every ledger promises, over every store."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_agentguard.effects.ledger import (
    TRANSITIONS,
    Claimed,
    ClaimRequest,
    Counts,
    EffectRecord,
    Found,
    Ledger,
    Liveness,
    Move,
    Standing,
    State,
    Verdict,
    transition_for,
)
from otel_agentguard.errors import ConfigError, StoreError
from otel_agentguard.stores import open_ledger

STORES = ["memory", "sqlite", "postgresql", "redis"]


class Place:
    """Somewhere to keep a ledger, opened as often as a test likes, each time as another owner."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[Ledger] = []

    def open(self) -> Ledger:
        if self.url == "memory://" and self._opened:
            return self._opened[0]
        ledger = open_ledger(self.url)
        self._opened.append(ledger)
        return ledger

    def close(self) -> None:
        for ledger in self._opened:
            ledger.claims._running.clear()  # type: ignore[attr-defined]
            ledger.close()


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/agentguard.db"
        case "postgresql":
            url = request.getfixturevalue("postgres_server").url()
        case _:
            url = request.getfixturevalue("redis_server").url() + "?lease_s=0.3"
    here = Place(url)
    yield here
    here.close()


def asked(**given: object) -> ClaimRequest:
    key = uuid.uuid4().hex
    values: dict[str, object] = {
        "key": key,
        "effect": f"e{key[1:]}",
        "arguments": "a" * 32,
        "step": f"step {key}",
        "tool": "charge",
        "run_id": f"run {key}",
    }
    return ClaimRequest(**(values | given))  # type: ignore[arg-type]


def claimed(ledger: Ledger, request: ClaimRequest) -> Claimed:
    claim = ledger.claim(request)
    assert isinstance(claim, Claimed)
    return claim


def leave(ledger: Ledger, claim: Claimed, onlooker: Ledger) -> None:
    """Let the owner of a claim go, as far as its store can tell."""
    ledger.abandon(claim)
    ledger.close()
    deadline = time.monotonic() + 10
    while onlooker.liveness(claim.record) is Liveness.ALIVE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def bring(ledger: Ledger, state: State) -> Claimed:
    """A claim whose record is in `state`."""
    claim = claimed(ledger, asked())
    match state:
        case State.SUCCEEDED:
            ledger.complete(claim, b'"paid"')
        case State.RETRYABLE:
            ledger.release(claim)
        case State.FAILED:
            ledger.fail(claim, '{"name": "CardDeclined"}')
        case State.UNKNOWN:
            ledger.mark_unknown(claim)
    return claim


def again(record: EffectRecord) -> ClaimRequest:
    """The request of a record once more."""
    names = {field.name for field in dataclasses.fields(ClaimRequest)}
    return ClaimRequest(**{name: getattr(record, name) for name in names})


OWN_MOVES: dict[Move, Callable[[Ledger, Claimed], object]] = {
    Move.COMPLETE: lambda ledger, claim: ledger.complete(claim, b"1"),
    Move.FAIL: lambda ledger, claim: ledger.fail(claim, "{}"),
    Move.RELEASE: lambda ledger, claim: ledger.release(claim),
    Move.MARK_UNKNOWN: lambda ledger, claim: ledger.mark_unknown(claim),
}

OTHER_MOVES: dict[Move, Callable[[Ledger, EffectRecord], object]] = {
    Move.CLAIM: lambda ledger, record: ledger.claim(again(record)),
    Move.TAKE_OVER: lambda ledger, record: ledger.claim(again(record), over=record),
    Move.LAPSE: lambda ledger, record: ledger.mark_unknown(Found(record, ledger.liveness(record))),
    Move.RESOLVE_APPLIED: lambda ledger, record: ledger.resolve(record, applied=True, result=b"1"),
    Move.RESOLVE_NOT_APPLIED: lambda ledger, record: ledger.resolve(record, applied=False),
}


def after(ledger: Ledger, record: EffectRecord) -> EffectRecord:
    now = ledger.get(record.key)
    assert now is not None
    return now


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", OWN_MOVES)
def test_an_owner_can_do_what_the_table_says_and_nothing_else(place: Place, state: State, move: Move) -> None:
    ledger = place.open()
    claim = bring(ledger, state)
    before = after(ledger, claim.record)

    OWN_MOVES[move](ledger, claim)

    row = transition_for(move, state)
    now = after(ledger, claim.record)
    if row is None:
        assert now == before
    else:
        assert (now.state, now.attempt, now.owner) == (row.target, before.attempt, before.owner)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", OTHER_MOVES)
@pytest.mark.parametrize("alive", [True, False], ids=["owner alive", "owner gone"])
def test_others_can_do_what_the_table_says_and_nothing_else(
    place: Place, state: State, move: Move, *, alive: bool
) -> None:
    owner, other = place.open(), place.open()
    claim = bring(owner, state)
    before = after(other, claim.record)
    if not alive:
        leave(owner, claim, other)

    liveness = other.liveness(before)
    OTHER_MOVES[move](other, before)

    row = transition_for(move, state)
    now = after(other, before)
    if row is None or (row.standing is Standing.HEIR and liveness is Liveness.ALIVE):
        assert now == before
        return
    counted = row.counts is Counts.ALWAYS or (row.counts is Counts.UNLESS_DEAD and liveness is not Liveness.DEAD)
    assert now.state is row.target
    assert now.attempt == before.attempt + row.attempt_up
    assert (now.owner != before.owner) == row.attempt_up
    assert now.maybe_duplicates == counted
    assert len(other.attempts(before.key)) == row.attempt_up


def test_every_move_of_the_table_is_tried_here() -> None:
    assert {row.move for row in TRANSITIONS} == {*OWN_MOVES, *OTHER_MOVES, Move.EXPIRE}


def test_a_claim_is_seen_by_others_as_it_was_made(place: Place) -> None:
    ledger, other = place.open(), place.open()
    request = asked(intent=2, repeat=3, turn=4)

    claim = claimed(ledger, request)

    seen = other.get(request.key)
    assert seen == claim.record
    assert again(claim.record) == request
    assert (claim.record.state, claim.record.attempt) == (State.STARTED, 1)
    assert abs(claim.record.created_s - time.time()) < 5


def test_a_second_claim_finds_the_first(place: Place) -> None:
    ledger, other = place.open(), place.open()
    claim = claimed(ledger, asked())

    found = other.claim(again(claim.record))

    assert found == Found(claim.record, Liveness.ALIVE)


@pytest.mark.parametrize("result", [None, b"null", b'{"a":"\xc3\xa9 \\u0000"}', b'"' + b"x" * 200_000 + b'"'])
def test_a_result_comes_back_as_it_was_given(place: Place, result: bytes | None) -> None:
    ledger = place.open()
    claim = claimed(ledger, asked())

    completion = ledger.complete(claim, result)

    assert completion.verdict is Verdict.RECORDED
    assert after(place.open(), claim.record).result == result


def test_an_error_comes_back_as_it_was_given(place: Place) -> None:
    ledger = place.open()
    claim = claimed(ledger, asked())

    assert ledger.fail(claim, '{"text": "zu teuer, é"}')

    assert after(ledger, claim.record).error == '{"text": "zu teuer, é"}'


def test_completing_twice_is_completing_once(place: Place) -> None:
    ledger = place.open()
    claim = claimed(ledger, asked())

    first = ledger.complete(claim, b"1")
    second = ledger.complete(claim, b"1")

    assert first.verdict is second.verdict is Verdict.RECORDED
    assert after(ledger, claim.record).confirmed_duplicates == 0


def test_a_takeover_begins_a_new_attempt_and_keeps_the_old_one_on_record(place: Place) -> None:
    owner, heir = place.open(), place.open()
    claim = claimed(owner, asked(step="first", run_id="run one", turn=1))
    leave(owner, claim, heir)

    taken = heir.claim(
        dataclasses.replace(again(claim.record), step="second", run_id="run two", turn=5), over=claim.record
    )

    assert isinstance(taken, Claimed)
    assert (taken.record.attempt, taken.record.maybe_duplicates) == (2, 1)
    assert (taken.record.step, taken.record.run_id, taken.record.turn) == ("second", "run two", 5)
    [past] = heir.attempts(claim.record.key)
    assert (past.attempt, past.owner, past.outcome) == (1, claim.record.owner, "unknown")
    assert past.started_s == claim.record.started_s <= past.ended_s


def test_a_run_that_claims_again_keeps_the_step_of_its_first_claim(place: Place) -> None:
    ledger = place.open()
    claim = claimed(ledger, asked(step="first", turn=1))
    ledger.release(claim)

    second = ledger.claim(dataclasses.replace(again(claim.record), step="second", turn=2))

    assert isinstance(second, Claimed)
    assert (second.record.step, second.record.turn) == ("first", 2)
    assert second.record.maybe_duplicates == 0


def test_only_one_of_two_heirs_gets_the_claim(place: Place) -> None:
    owner, heir, rival = place.open(), place.open(), place.open()
    claim = claimed(owner, asked())
    leave(owner, claim, heir)

    first = heir.claim(again(claim.record), over=claim.record)
    second = rival.claim(again(claim.record), over=claim.record)

    assert isinstance(first, Claimed)
    assert isinstance(second, Found)
    assert second.record.owner == first.record.owner


def test_a_late_completion_is_counted_once_and_not_written(place: Place) -> None:
    owner, heir = place.open(), place.open()
    claim = claimed(owner, asked())
    owner.mark_unknown(claim)
    taken = heir.claim(again(claim.record), over=after(heir, claim.record))
    assert isinstance(taken, Claimed)
    heir.complete(taken, b'"winner"')

    late = owner.complete(claim, b'"late"')
    owner.complete(claim, b'"late"')

    assert late.verdict is Verdict.LATE
    assert late.record is not None
    assert (late.record.result, late.record.confirmed_duplicates) == (b'"winner"', 1)
    assert after(heir, claim.record).confirmed_duplicates == 1
    assert [past.outcome for past in heir.attempts(claim.record.key)] == ["late"]


def test_an_owner_that_comes_back_settles_what_others_called_unknown(place: Place) -> None:
    owner, other = place.open(), place.open()
    claim = claimed(owner, asked())
    owner.abandon(claim)
    owner.close()
    while not other.mark_unknown(Found(claim.record, Liveness.LAPSED)):
        time.sleep(0.02)

    completion = owner.complete(claim, b'"done"')

    assert completion.verdict is Verdict.RECORDED
    assert after(other, claim.record).result == b'"done"'


def test_an_owner_whose_effect_was_judged_not_applied_can_still_report_it(place: Place) -> None:
    owner, other = place.open(), place.open()
    claim = claimed(owner, asked())

    assert other.resolve(claim.record, applied=False, force=True)
    completion = owner.complete(claim, b"1")

    assert completion.verdict is Verdict.RECORDED
    assert isinstance(other.claim(again(claim.record)), Found)


def test_a_forced_resolution_counts_that_the_owner_may_still_do_it(place: Place) -> None:
    owner, other = place.open(), place.open()
    claim = claimed(owner, asked())

    assert not other.resolve(claim.record, applied=False)
    assert other.resolve(claim.record, applied=False, force=True)

    assert after(other, claim.record).maybe_duplicates == 1


def test_a_resolution_of_a_record_that_has_moved_writes_nothing(place: Place) -> None:
    owner, other = place.open(), place.open()
    claim = claimed(owner, asked())
    owner.mark_unknown(claim)
    stale = after(other, claim.record)
    other.claim(again(claim.record), over=stale)

    assert not other.resolve(stale, applied=True, result=b"1")


def test_a_claim_that_this_process_gave_up_is_dead_to_it(place: Place) -> None:
    ledger = place.open()
    claim = claimed(ledger, asked())

    ledger.abandon(claim)

    assert ledger.liveness(claim.record) is Liveness.DEAD
    assert isinstance(ledger.claim(again(claim.record), over=claim.record), Claimed)


def test_a_claim_whose_answer_was_lost_is_granted_when_asked_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = place.open()
    request = asked()
    create = ledger._create  # type: ignore[attr-defined]

    def answer_is_lost(*arguments: object) -> None:
        create(*arguments)
        raise StoreError("the connection broke")

    monkeypatch.setattr(ledger, "_create", answer_is_lost)
    with pytest.raises(StoreError):
        ledger.claim(request)
    monkeypatch.undo()

    claim = claimed(ledger, request)

    assert claim.record.attempt == 1
    assert ledger.complete(claim, b"1").verdict is Verdict.RECORDED


def test_history_gives_the_records_of_one_effect_in_order(place: Place) -> None:
    ledger = place.open()
    effect = uuid.uuid4().hex
    for intent, repeat in [(2, 1), (1, 2), (1, 1)]:
        claimed(ledger, asked(effect=effect, intent=intent, repeat=repeat))

    found = [(record.intent, record.repeat) for record in ledger.history(effect)]

    assert found == [(1, 1), (1, 2), (2, 1)]


def test_list_chooses_by_state_tool_and_run_and_gives_the_last_changed_first(place: Place) -> None:
    ledger = place.open()
    run_id = uuid.uuid4().hex
    first = claimed(ledger, asked(run_id=run_id, tool="mail"))
    second = claimed(ledger, asked(run_id=run_id))
    time.sleep(0.002)
    ledger.mark_unknown(first)

    assert [record.key for record in ledger.list(run_id=run_id)] == [first.record.key, second.record.key]
    assert [record.key for record in ledger.list(run_id=run_id, limit=1)] == [first.record.key]
    assert [record.key for record in ledger.list(run_id=run_id, tool="charge")] == [second.record.key]
    assert [record.key for record in ledger.list(run_id=run_id, state=State.UNKNOWN)] == [first.record.key]


def test_what_is_unsettled_is_counted_by_tool_until_it_is_settled(place: Place) -> None:
    ledger = place.open()
    tool, other = f"mail {uuid.uuid4().hex}", f"charge {uuid.uuid4().hex}"
    claims = [claimed(ledger, asked(tool=name)) for name in (tool, tool, other, other)]
    ledger.complete(claims[3], None)
    for claim in claims[:3]:
        ledger.mark_unknown(claim)
    assert {name: ledger.unsettled().get(name) for name in (tool, other)} == {tool: 2, other: 1}

    ledger.complete(claims[0], b"1")
    for claim in claims[1:3]:
        record = ledger.get(claim.record.key)
        assert record is not None
        assert ledger.resolve(record, applied=claim is claims[1])

    assert not {tool, other} & set(ledger.unsettled())


def test_what_is_unsettled_is_known_to_whoever_opens_the_ledger_next(place: Place) -> None:
    tool = f"mail {uuid.uuid4().hex}"
    first = place.open()
    first.mark_unknown(claimed(first, asked(tool=tool)))

    assert place.open().unsettled()[tool] == 1


def test_an_unknown_effect_that_is_taken_over_is_unsettled_no_more(place: Place) -> None:
    ledger = place.open()
    request = asked(tool=f"mail {uuid.uuid4().hex}")
    ledger.mark_unknown(claimed(ledger, request))
    seen = ledger.get(request.key)

    assert isinstance(ledger.claim(request, over=seen), Claimed)

    assert request.tool not in ledger.unsettled()


def test_only_a_success_can_be_renewed(place: Place) -> None:
    ledger = place.open()
    done, open_ = bring(ledger, State.SUCCEEDED), bring(ledger, State.STARTED)

    assert ledger.renew(done.record.key)
    assert not ledger.renew(open_.record.key)
    assert not ledger.renew("no such key")

    assert after(ledger, done.record).renewed
    assert not after(ledger, open_.record).renewed


@pytest.mark.parametrize("state", State)
def test_only_settled_records_expire(place: Place, state: State) -> None:
    ledger = place.open()
    claim = bring(ledger, state)

    ledger.gc(-1)

    expires = transition_for(Move.EXPIRE, state) is not None
    assert (ledger.get(claim.record.key) is None) == expires


def test_young_records_stay(place: Place) -> None:
    ledger = place.open()
    claim = bring(ledger, State.SUCCEEDED)

    ledger.gc(3600)

    assert ledger.get(claim.record.key) is not None


def test_an_effect_expires_as_a_whole_or_not_at_all(place: Place) -> None:
    ledger = place.open()
    effect = uuid.uuid4().hex
    first = claimed(ledger, asked(effect=effect))
    ledger.complete(first, b"1")
    second = claimed(ledger, asked(effect=effect, intent=2))

    ledger.gc(-1)

    assert [record.intent for record in ledger.history(effect)] == [1, 2]
    ledger.complete(second, b"1")
    assert ledger.gc(-1) >= 2
    assert ledger.history(effect) == []


def test_attempts_go_with_their_record(place: Place) -> None:
    ledger = place.open()
    claim = bring(ledger, State.UNKNOWN)
    taken = ledger.claim(again(claim.record), over=after(ledger, claim.record))
    assert isinstance(taken, Claimed)
    ledger.complete(taken, b"1")

    ledger.gc(-1)

    assert list(ledger.attempts(claim.record.key)) == []


def test_a_completion_whose_record_has_gone_is_called_lost(place: Place) -> None:
    owner, other = place.open(), place.open()
    claim = claimed(owner, asked())
    other.resolve(claim.record, applied=True, force=True)
    other.gc(-1)

    assert owner.complete(claim, b"1").verdict is Verdict.LOST


def test_of_many_threads_one_gets_the_claim(place: Place) -> None:
    ledger = place.open()
    request = asked()
    answers: list[object] = []
    gate = threading.Barrier(8)

    def claim() -> None:
        gate.wait()
        answers.append(ledger.claim(request))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(isinstance(answer, Claimed) for answer in answers) == 1
    assert len(answers) == 8


def test_a_closed_ledger_opens_again_when_it_is_used(place: Place) -> None:
    ledger = place.open()
    claim = bring(ledger, State.SUCCEEDED)

    ledger.close()

    assert ledger.get(claim.record.key) is not None
    assert isinstance(ledger.claim(asked()), Claimed)


def test_the_url_of_a_ledger_tells_no_secret(place: Place) -> None:
    url = place.open().url

    assert "agentguard@" not in url


def test_an_unknown_store_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"no store for 'ftp'; known: memory, postgresql, redis, sqlite"):
        open_ledger("ftp://example.org")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/agentguard.db"])
def test_a_sqlite_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"names no file: sqlite:///agentguard\.db"):
        open_ledger(url)
