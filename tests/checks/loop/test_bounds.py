"""What the state of a run may cost: bounded in bytes, flat in time, gone when the run is over."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterable

import pytest
from loop_runs import TEXT, WORDS, found, read

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.checks.loop.check import LoopRun
from otel_agentguard.checks.loop.past import Past
from otel_agentguard.config import Settings
from otel_agentguard.events import Compaction, Effect, Event, Handoff, Message, ModelCall, Outcome, Turn
from otel_agentguard.fingerprint import digest, text_digest
from otel_agentguard.packed import PackedMap, PackedSet
from otel_agentguard.protocols import RunInfo
from otel_agentguard.testing import tool_call


def chance(seed: int) -> random.Random:
    """A source of chance that is the same each time."""
    return random.Random(seed)  # noqa: S311


def random_events(count: int, *, seed: int = 1, chars: int = 600) -> Iterable[Event]:
    """Events of all kinds, most of them new, with texts of about so many characters."""
    pick = chance(seed)

    def text() -> str:
        return " ".join(f"{pick.choice(WORDS)}{pick.randrange(400)}" for _ in range(chars // 9))

    texts = [text() for _ in range(1000)]
    for _ in range(count):
        kind, agent = pick.random(), f"agent-{pick.randrange(12)}"
        if kind < 0.85:
            failed = pick.random() < 0.2
            arguments = {"query": f"{text()[:60]} {pick.randrange(9999)}", "path": f"src/m_{pick.randrange(5000)}.py"}
            result = pick.choice(texts) if pick.random() < 0.8 else pick.choice(["", "[]", "ok", "no results"])
            outcome = Outcome.FAILED if failed else Outcome.OK
            effect = pick.choice(list(Effect))
            tool = f"tool_{pick.randrange(20)}"
            yield tool_call(tool, arguments, result, agent=agent, effect=effect, outcome=outcome)
        elif kind < 0.93:
            said = pick.choice(texts)
            yield Message(agent=agent, text=said, digest=text_digest(said))
        elif kind < 0.96:
            yield ModelCall(agent=agent, request_digest=digest(pick.random()), answer_digest=digest(1))
        elif kind < 0.98:
            yield Handoff(agent=agent, to="b", text=text(), digest=digest(pick.random()))
        elif kind < 0.99:
            yield Turn(agent="user", text=pick.choice(texts), new_intent=True)
        else:
            yield Compaction()


def run_of(events: Iterable[Event]) -> LoopRun:
    run = LoopCheck().open(RunInfo(run_id="r", agent="a", settings=Settings()))
    for step, event in enumerate(events, 1):
        event.step = step
        run.before(event)
        run.after(event)
    return run


def size_of(value: object, seen: set[int] | None = None) -> int:
    """Bytes of an object and of all that only it holds, settings left out."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (RunInfo, Settings, type)):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(size_of(key, seen) + size_of(held, seen) for key, held in value.items())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return size + sum(size_of(one, seen) for one in value)
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return size + sum(size_of(getattr(value, name), seen) for name in names if hasattr(value, name))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_three_times_as_long_costs_no_more(seed: int) -> None:
    run = run_of(random_events(5000, seed=seed))
    early = size_of(run)
    for step, event in enumerate(random_events(10_000, seed=seed + 10), 5001):
        event.step = step
        run.before(event)
        run.after(event)

    assert size_of(run) < 150_000
    assert size_of(run) < early * 1.3


def test_the_digests_of_a_run_fit_into_64_kilobytes() -> None:
    run = run_of(read(f"{number}.txt", f"{TEXT} {number}") for number in range(10_000))

    assert size_of(run._calls) < 64 * 1024


def test_long_texts_are_not_kept() -> None:
    run = run_of(
        tool_call("look", {"question": f"{word} " * 5000, "n": n}, f"{word} {n} " * 5000, effect=Effect.READ)
        for n, word in enumerate(WORDS * 4)
    )

    assert size_of(run) < 250_000


def test_calls_that_never_end_cost_little() -> None:
    run = LoopCheck().open(RunInfo(run_id="r", agent="a", settings=Settings()))
    for step in range(1, 20_000):
        run.before(read(f"{step}.txt", step=step))

    assert size_of(run) < 100_000


def test_many_agents_and_tools_cost_little() -> None:
    run = run_of(
        tool_call(f"tool-{n}", {"n": n}, f"{WORDS[n % 25]} {n}", agent=f"agent-{n}", effect=Effect.UNKNOWN)
        for n in range(5000)
    )

    assert size_of(run) < 150_000


def test_more_agents_than_have_numbers_still_repeat_each_for_itself() -> None:
    others = [read(f"{number}.txt", f"{TEXT} {number}", agent=f"agent-{number}") for number in range(400)]

    findings = found(others, [read("last.txt", TEXT, agent="agent-399") for _ in range(3)])

    assert [seen.step for seen in findings] == [403]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_step_takes_no_longer_at_the_end_of_a_long_run() -> None:
    steps = 100_000 if "AGENTGUARD_SOAK_S" in os.environ else 1_000_000
    run = LoopCheck().open(RunInfo(run_id="r", agent="a", settings=Settings()))
    took: list[float] = []
    for step in range(1, steps + 1):
        call = read(f"{step}.txt", f"{TEXT} {step}", step=step)
        began = time.thread_time()
        run.before(call)
        run.after(call)
        took.append(time.thread_time() - began)

    assert sorted(took[-1000:])[500] < 3 * sorted(took[1000:2000])[500]


def test_a_result_of_a_megabyte_is_taken_in_faster_than_its_words_are_counted() -> None:
    content = "\n".join(f"{WORDS[n % 25]} {n} {WORDS[n % 7]}" for n in range(60_000))
    calls = [read("a.log", f"{n}\n{content}") for n in range(4)] + [read("a.log", {"rows": [content] * 2, "n": 1})] * 1

    began = time.process_time()
    run_of(calls)
    took = time.process_time() - began

    began = time.process_time()
    for _ in calls:
        set(content.split())
    assert took < time.process_time() - began


def test_a_set_tells_new_keys_from_known_ones() -> None:
    packed = PackedSet(1024)
    keys = [chance(1).getrandbits(64), *range(1, 200)]

    assert all(packed.add(key) for key in keys)
    assert not any(packed.add(key) for key in keys)
    assert 7 in packed
    assert 7777 not in packed


def test_a_set_forgets_rather_than_grow() -> None:
    packed = PackedSet(1024)
    pick = chance(2)
    keys = [pick.getrandbits(64) for _ in range(50_000)]

    for key in keys:
        packed.add(key)

    assert packed.size_bytes <= 1024 * 12
    assert sum(key in packed for key in keys[-500:]) > 450
    assert sum(key in packed for key in keys[:40_000]) < 50


def test_a_set_keeps_what_is_used() -> None:
    packed = PackedSet(256)
    pick = chance(3)
    packed.add(42)

    for _ in range(5000):
        packed.add(pick.getrandbits(64))
        packed.add(42)

    assert 42 in packed


def test_a_map_gives_back_what_was_put_last() -> None:
    packed = PackedMap(1024)

    assert packed.put(5, 50) is None
    assert packed.put(5, 51) == 50
    assert packed.put(5, 52, replace=False) == 51
    assert packed.get(5) == 51
    assert packed.get(6) is None


def test_a_map_forgets_rather_than_grow() -> None:
    packed = PackedMap(512, wide=True)
    pick = chance(4)
    keys = [pick.getrandbits(64) for _ in range(20_000)]

    for place, key in enumerate(keys):
        packed.put(key, place << 32)

    assert packed.size_bytes <= 512 * 20
    kept = [(place, packed.get(key)) for place, key in enumerate(keys) if packed.get(key) is not None]
    assert all(value == place << 32 for place, value in kept)
    assert len(kept) >= 256


@pytest.mark.parametrize("max_entries", [8, 64, 512])
def test_a_map_knows_whatever_was_put_lately(max_entries: int) -> None:
    packed = PackedMap(max_entries)
    pick = chance(5)
    keys = [pick.getrandbits(64) for _ in range(2 * max_entries)]
    put: dict[int, int] = {}

    for value in range(20 * max_entries):
        key = pick.choice(keys)
        held = packed.put(key, value)
        assert held == put.get(key) if held is not None else key not in list(put)[-max_entries // 2 :]
        put.pop(key, None)
        put[key] = value


@pytest.mark.parametrize("key", [0, 1, (1 << 64) - 1])
def test_any_number_of_64_bits_is_a_key(key: int) -> None:
    packed = PackedSet(64)

    assert packed.add(key)
    assert not packed.add(key)


def test_the_past_of_a_call_survives_hundreds_of_others() -> None:
    past = Past()
    past.take(1, b"same result....", "ann", 1)
    for number in range(2, 1000):
        past.take(number * 0x9E3779B97F4A7C15 & (1 << 64) - 1, b"other", "bob", number)

    before = past.take(1, b"same result....", "ann", 2000)

    assert before is not None
    assert (before.step, before.count, before.same, before.known) == (1, 1, True, True)
    assert before.who == past.who("ann")


def test_the_past_knows_an_outcome_that_is_not_the_latest() -> None:
    past = Past()
    for step, outcome in enumerate((b"first...", b"second.."), 1):
        past.take(7, outcome, "ann", step)

    before = past.take(7, b"first...", "ann", 3)
    after = past.take(7, b"third...", "ann", 4)

    assert before is not None
    assert after is not None
    assert (before.same, before.known) == (False, True)
    assert (after.same, after.known) == (False, False)


def test_the_past_does_not_mind_more_steps_than_it_can_count() -> None:
    past = Past()
    past.take(7, b"outcome.", "ann", 50_000_000)

    before = past.take(7, b"outcome.", "ann", 50_000_001)

    assert before is not None
    assert before.step == (1 << 21) - 1
