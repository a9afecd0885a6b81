"""Which answers are kept, for how long, and in what form they are given out."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dedup.desk import Desk, make_desk
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.config import Settings
from otel_agentguard.copies import keep
from otel_agentguard.dedup.answers import Answers
from otel_agentguard.dedup.asking import asks_fresh
from otel_agentguard.dedup.resources import Resources
from otel_agentguard.dedup.rules import rule_for
from otel_agentguard.events import Effect, ToolCall
from otel_agentguard.protocols import RunInfo
from otel_agentguard.testing import tool_call
from otel_agentguard.values import ByteBudget


class Counting:
    """A body whose answers are numbered."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count


@pytest.fixture
def body() -> Counting:
    return Counting()


@pytest.mark.parametrize("effect", [one for one in Effect if one not in (Effect.PURE, Effect.READ)])
def test_a_tool_that_is_not_declared_to_only_read_always_runs(desk: Desk, body: Counting, effect: Effect) -> None:
    assert [desk.ask("act", body, effect=effect, ttl_s=60, touches=("x",), cache=True) for _ in range(3)] == [1, 2, 3]


def test_a_pure_tool_runs_once(desk: Desk, body: Counting) -> None:
    assert [desk.ask("sum", body, effect=Effect.PURE) for _ in range(3)] == [1, 1, 1]


def test_nothing_that_is_written_ends_the_answer_of_a_pure_tool(desk: Desk, body: Counting) -> None:
    desk.ask("sum", body, effect=Effect.PURE)

    desk.shell("true; touch /dev/null")

    assert desk.ask("sum", body, effect=Effect.PURE) == 1


def test_a_read_that_says_neither_what_it_reads_nor_for_how_long_always_runs(desk: Desk, body: Counting) -> None:
    assert [desk.ask("clock", body) for _ in range(3)] == [1, 2, 3]
    assert desk.told == {}


def test_an_answer_is_served_until_it_is_too_old(desk: Desk, body: Counting) -> None:
    desk.ask("search", body, ttl_s=60)
    desk.clock.advance(59.9)
    assert desk.ask("search", body, ttl_s=60) == 1

    desk.clock.advance(0.1)

    assert desk.ask("search", body, ttl_s=60) == 2


def test_age_counts_from_when_the_read_began(desk: Desk) -> None:
    def slow() -> str:
        desk.clock.advance(50)
        return "old"

    desk.ask("search", slow, ttl_s=60)
    desk.clock.advance(10)

    assert desk.ask("search", lambda: "new", ttl_s=60) == "new"


def test_a_clock_that_goes_back_ends_answers_with_a_lifetime(desk: Desk, body: Counting) -> None:
    desk.ask("search", body, ttl_s=60)

    desk.clock.advance(-3600)

    assert desk.ask("search", body, ttl_s=60) == 2


def test_a_read_that_only_has_a_lifetime_ends_with_any_write(desk: Desk, body: Counting, tmp_path: Path) -> None:
    desk.ask("search", body, ttl_s=60)

    desk.write(tmp_path / "x", "x")

    assert desk.ask("search", body, ttl_s=60) == 2


def test_a_file_has_both_a_lifetime_and_a_state(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    asked: dict[str, Any] = {"touches": (str(path),), "ttl_s": 60}
    desk.ask("read", path.read_text, **asked)
    path.write_text("two")
    assert desk.ask("read", path.read_text, **asked) == "two"

    desk.clock.advance(60)

    assert desk.ask("read", lambda: "late", **asked) == "late"


def test_cache_false_is_obeyed(desk: Desk, body: Counting) -> None:
    assert [desk.ask("sum", body, effect=Effect.PURE, cache=False) for _ in range(2)] == [1, 2]


def test_a_caller_can_ask_for_a_fresh_answer_which_is_kept_for_others(desk: Desk, body: Counting) -> None:
    desk.ask("sum", body, effect=Effect.PURE)

    assert desk.ask("sum", body, effect=Effect.PURE, fresh=True) == 2
    assert desk.ask("sum", body, effect=Effect.PURE) == 2


def test_the_tools_own_argument_for_a_fresh_answer_is_obeyed(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")

    for _ in range(3):
        desk.ask("read", path.read_text, arguments={"path": "a", "fresh": True}, touches=(str(path),))

    assert desk.executed["read"] == 3


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        ({"fresh": True}, True),
        ({"no_cache": True}, True),
        ({"no-cache": True}, True),
        ({"useCache": False, "use_cache": False}, True),
        ({"fresh": False}, False),
        ({"use_cache": True}, False),
        ({"fresh": 1}, False),
        ({"fresh": "yes"}, False),
        ({"refreshments": True}, False),
        ({}, False),
        (None, False),
    ],
)
def test_what_asks_for_a_fresh_answer(arguments: dict[str, object] | None, asks: bool) -> None:
    assert asks_fresh(arguments) is asks


def test_a_call_whose_arguments_are_unknown_always_runs(desk: Desk, body: Counting) -> None:
    rule = rule_for("sum", Effect.PURE)
    assert rule is not None
    for expected in (1, 2):
        call = tool_call("sum", effect=Effect.PURE)
        call.fingerprint = None
        assert desk.answers.answer(desk.run, call, rule, body).value == expected


def test_an_answer_that_was_given_says_that_it_is_one(desk: Desk, body: Counting) -> None:
    rule = rule_for("sum", Effect.PURE)
    assert rule is not None
    first, second = tool_call("sum", effect=Effect.PURE, step=3), tool_call("sum", effect=Effect.PURE, step=4)

    assert desk.answers.answer(desk.run, first, rule, body).note == ""
    note = desk.answers.answer(desk.run, second, rule, body).note

    assert (first.served_from, second.served_from) == (None, "cache")
    assert note.startswith("[agentguard]")
    assert "step 3" in note


def test_what_was_saved_is_told_in_seconds() -> None:
    told: list[tuple[object, ...]] = []
    answers = Answers(tell=lambda *what: told.append(what))
    run, rule = RunInfo(run_id="r", agent="a", settings=Settings()), rule_for("sum", Effect.PURE)
    assert rule is not None

    for _ in range(2):
        answers.answer(run, tool_call("sum"), rule, lambda: 1)

    assert [what for what in told if what[0] == "dedup"] == [("dedup", "sum", "miss"), ("dedup", "sum", "hit")]
    ((_, calls, seconds),) = [what for what in told if what[0] == "saved"]
    assert calls == 0
    assert isinstance(seconds, float)
    assert seconds > 0


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fixed:
    x: int
    name: str = "n"


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "value",
    [
        *("text", b"bytes", 7, 2.5, True, None, 1j, ("a", 1), frozenset({1}), Fixed(1), Pair(1, "b")),
        *(datetime(2024, 1, 2, tzinfo=UTC), Decimal("1.5"), Path("/a"), Effect.READ),
        *([1, "a", None], {"a": [1.5, {"b": True}]}, {1: "int key"}, {"t": (1, 2)}, [float("nan")]),
        *({"big": 2**70}, {"lone": "\ud800"}, Point(1, ["a"]), OrderedDict(a=1), {1, 2}, [Point(1)], bytearray(b"a")),
    ],
)
def test_a_value_is_given_out_as_it_was(value: object) -> None:
    kept = keep(value)
    assert kept is not None

    given = kept.give()

    assert type(given) is type(value)
    assert repr(given) == repr(value)


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1], lambda value: value.append(2)),
        ({"a": [1]}, lambda value: value["a"].append(2)),
        (Point(1), lambda value: value.tags.append("x")),
        (([1],), lambda value: value[0].append(2)),
        ({1, 2}, lambda value: value.add(3)),
        (bytearray(b"a"), lambda value: value.extend(b"b")),
    ],
    ids=["list", "nested", "object", "tuple", "set", "bytearray"],
)
def test_nobody_changes_the_answer_of_another_one(desk: Desk, value: Any, change: Callable[[Any], None]) -> None:
    expected = repr(value)
    first = desk.ask("make", lambda: value, effect=Effect.PURE)
    change(first)
    second = desk.ask("make", lambda: value, effect=Effect.PURE)
    assert repr(second) == expected
    change(second)

    assert repr(desk.ask("make", lambda: value, effect=Effect.PURE)) == expected
    assert desk.executed["make"] == 1


async def _coroutine() -> None: ...


@pytest.mark.parametrize(
    "make",
    [
        lambda: (n for n in (1, 2)),
        lambda: iter([1]),
        lambda: io.StringIO("text"),
        lambda: open(os.devnull),  # noqa: SIM115 - a handle is what is tested
        lambda: threading.Lock(),
        lambda: [threading.Lock()],
        lambda: object(),
        lambda: len,
        lambda: Point,
        lambda: [Point(1, ["x" * 70_000])],
    ],
    ids=["generator", "iterator", "stream", "file", "lock", "nested-lock", "sentinel", "function", "class", "large"],
)
def test_what_no_true_copy_can_be_had_of_is_not_kept(desk: Desk, make: Callable[[], object]) -> None:
    made = [desk.ask("make", make, effect=Effect.PURE) for _ in range(2)]

    assert desk.executed["make"] == 2
    assert desk.told["dedup uncacheable"] == 2
    for one in made:
        if isinstance(one, io.IOBase):
            one.close()


def test_a_coroutine_is_not_kept() -> None:
    pending = _coroutine()
    assert keep(pending) is None
    pending.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text() | st.integers(), parts) | st.tuples(parts),
)


@given(json_values)
def test_any_data_comes_back_equal_and_of_the_same_types(value: object) -> None:
    kept = keep(value)

    assert kept is not None
    assert repr(kept.give()) == repr(value)


def test_a_run_keeps_no_more_than_it_may() -> None:
    desk = make_desk()
    desk.answers._max_run_bytes = 100_000

    for number in range(100):
        desk.ask("make", lambda: "x" * 5_000, arguments={"n": number}, effect=Effect.PURE)

    assert 50_000 < desk.answers.budget.used_bytes <= 100_000
    assert desk.answers.budget.dropped > 0


def test_the_least_recently_used_answer_goes_first() -> None:
    desk = make_desk()
    desk.answers._max_run_bytes = 18_000
    make = {"effect": Effect.PURE}
    for number in (1, 2, 3):
        desk.ask("make", lambda: "x" * 4_000, arguments={"n": number}, **make)
    desk.ask("make", lambda: "x" * 4_000, arguments={"n": 1}, **make)
    desk.ask("make", lambda: "x" * 4_000, arguments={"n": 4}, **make)
    assert desk.executed["make"] == 4

    desk.ask("make", lambda: "x", arguments={"n": 1}, **make)
    assert desk.executed["make"] == 4
    desk.ask("make", lambda: "x", arguments={"n": 2}, **make)
    assert desk.executed["make"] == 5


def test_all_runs_together_keep_no_more_than_the_process_may() -> None:
    answers = Answers(budget=ByteBudget(100_000))
    rule = rule_for("make", Effect.PURE)
    assert rule is not None

    for number in range(50):
        run = RunInfo(run_id=str(number), agent="a", settings=Settings())
        answers.answer(run, tool_call("make"), rule, lambda: "x" * 5_000)

    assert answers.budget.used_bytes <= 100_000


def test_what_a_run_kept_is_dropped_with_it(desk: Desk) -> None:
    desk.ask("make", lambda: "x" * 5_000, effect=Effect.PURE)
    assert desk.answers.budget.used_bytes > 5_000

    desk.answers.forget("run-1")

    assert desk.answers.budget.used_bytes == 0


def test_an_answer_too_large_to_keep_is_returned_and_not_kept(desk: Desk) -> None:
    large = "x" * 2_000_000

    assert desk.ask("make", lambda: large, effect=Effect.PURE) is large
    assert desk.ask("make", lambda: large, effect=Effect.PURE) is large
    assert desk.executed["make"] == 2


def test_a_resource_with_a_version_source_is_asked_for_its_version() -> None:
    tags = {"https://example.org/a": '"1"'}
    answers = Answers(resources=Resources({"https": tags.get}))
    run, rule = RunInfo(run_id="r", agent="a", settings=Settings()), rule_for("get", Effect.READ)
    assert rule is not None
    body = Counting()

    def get() -> int:
        call = tool_call("get", effect=Effect.READ)
        call.touches = ("https://example.org/a",)
        return answers.answer(run, call, rule, body).value

    assert [get(), get()] == [1, 1]
    tags["https://example.org/a"] = '"2"'
    assert [get(), get()] == [2, 2]
    del tags["https://example.org/a"]
    assert [get(), get()] == [3, 4]


def test_a_version_source_that_fails_lets_the_call_run_and_is_counted() -> None:
    failures: list[str] = []

    def down(name: str) -> str:
        raise TimeoutError(name)

    answers = Answers(resources=Resources({"https": down}), failed=lambda where, exc: failures.append(where))
    run, rule = RunInfo(run_id="r", agent="a", settings=Settings()), rule_for("get", Effect.READ)
    assert rule is not None
    call = tool_call("get", effect=Effect.READ)
    call.touches = ("https://example.org/a",)

    assert answers.answer(run, call, rule, lambda: "page").value == "page"
    assert failures == ["dedup"]


def test_a_forked_child_goes_on_with_answers_and_locks_of_its_own(desk: Desk) -> None:
    desk.ask("sum", lambda: 1, effect=Effect.PURE)
    desk.answers._lock.acquire()
    desk.answers.budget.lock.acquire()
    child = os.fork()
    if child == 0:
        ok = desk.ask("sum", lambda: 2, effect=Effect.PURE) == 1
        ok = ok and desk.ask("other", lambda: 3, effect=Effect.PURE) == 3
        os._exit(0 if ok else 1)
    desk.answers._lock.release()
    desk.answers.budget.lock.release()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.usefixtures("hurried")
def test_more_writes_than_are_followed_may_begin_in_many_threads_at_once() -> None:
    failures: list[BaseException] = []
    answers = Answers(failed=lambda _, exc: failures.append(exc))
    run = RunInfo(run_id="r", agent="a", settings=Settings())
    kept: list[ToolCall] = []

    def work(_: int) -> None:
        for number in range(500):
            call = tool_call("store", {"n": number}, effect=Effect.WRITE)
            kept.append(call)
            answers.began(run, call)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))

    assert failures == []
