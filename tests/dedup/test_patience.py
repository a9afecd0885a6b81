"""A store that is down or slow never holds up a call for longer than was said."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from otel_agentguard.config import Settings
from otel_agentguard.dedup.dedup import Dedup, make_dedup
from otel_agentguard.dedup.patience import MAX_PENDING, Patience
from otel_agentguard.dedup.rules import rule_for
from otel_agentguard.engine import Engine
from otel_agentguard.errors import StoreError
from otel_agentguard.events import Effect
from otel_agentguard.findings import Finding, Kind, Severity
from otel_agentguard.notes import Visit
from otel_agentguard.protocols import RunInfo
from otel_agentguard.stores.notes_memory import MemoryNotes
from otel_agentguard.testing import ManualClock, RecordingSink, tool_call

RUN = RunInfo(run_id="run-2", agent="agent", settings=Settings())
TIMEOUT_S = 0.05


class Hanging:
    """A store that answers when it is let, or never."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.asked = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def hang(*_: object, **__: object) -> Sequence[object]:
            self.asked += 1
            assert self.free.wait(20)
            return []

        return hang


class Down:
    """A store that cannot be reached."""

    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_: object, **__: object) -> Sequence[object]:
            self.asked += 1
            raise StoreError("no route to host")

        return refuse


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    store = Hanging()
    yield store
    store.free.set()


def took(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def make(store: Any, failures: list[str] | None = None) -> Dedup:
    told = [] if failures is None else failures
    return make_dedup(
        Settings(),
        store=store,
        key=b"k" * 32,
        timeout_s=TIMEOUT_S,
        failed=lambda where, exc: told.append(where),
    )


def test_an_answer_is_given_as_it_comes() -> None:
    patience = Patience(lambda exc: None)

    assert patience.ask(lambda: 7, 0) == 7
    assert patience.close()


def test_a_late_answer_is_given_up_and_counted(hanging: Hanging) -> None:
    failures: list[BaseException] = []
    patience = Patience(failures.append, timeout_s=TIMEOUT_S)

    seconds = took(lambda: patience.ask(hanging.visits, "default"))

    assert TIMEOUT_S <= seconds < TIMEOUT_S + 1
    assert [str(exc) for exc in failures] == ["the store did not answer within 0.05 s"]


def test_a_store_that_was_late_is_left_alone_and_asked_again_after_a_while() -> None:
    clock = ManualClock()
    patience = Patience(lambda exc: None, now_s=clock)
    store = Down()

    for _ in range(5):
        assert patience.ask(store.visits, "default") == "default"
    assert store.asked == 1
    clock.advance(1.1)
    patience.ask(store.visits, "default")
    assert store.asked == 2
    clock.advance(1.1)
    patience.ask(store.visits, "default")
    assert store.asked == 2
    clock.advance(1.0)

    assert patience.ask(lambda: "back", "default") == "back"
    assert patience.ask(lambda: "again", "default") == "again"


def test_where_no_thread_can_be_started_nothing_is_asked_and_nothing_is_left_behind(
    no_threads: Callable[[], None],
) -> None:
    clock, done = ManualClock(), list[int]()
    failures: list[BaseException] = []
    patience = Patience(failures.append, now_s=clock)

    answers = [patience.ask(lambda: "answer", "default"), asyncio.run(patience.ask_async(lambda: "answer", "default"))]
    taken = patience.later(lambda: done.append(1))
    flushed = patience.flush(0)
    no_threads()
    clock.advance(1.1)

    assert answers == ["default", "default"]
    assert (taken, patience.dropped, flushed) == (False, 1, True)
    assert {str(exc) for exc in failures} == {"the store is not asked: can't start new thread"}
    assert patience.ask(lambda: "back", "default") == "back"
    assert patience.later(lambda: done.append(2))
    assert patience.close()
    assert done == [2]


def test_coroutines_wait_without_holding_up_the_loop(hanging: Hanging) -> None:
    patience = Patience(lambda exc: None, timeout_s=0.2)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async def main() -> object:
        ticking = asyncio.create_task(tick())
        answer = await patience.ask_async(hanging.visits, "default")
        ticking.cancel()
        return answer

    assert asyncio.run(main()) == "default"
    assert ticks > 20


def test_what_is_written_later_waits_in_a_bounded_queue(hanging: Hanging) -> None:
    patience = Patience(lambda exc: None, timeout_s=TIMEOUT_S)
    patience.later(hanging.record)

    taken = [patience.later(lambda: None) for _ in range(MAX_PENDING + 50)]

    assert taken.count(False) >= 50
    assert patience.dropped >= 50


def test_closing_waits_for_what_was_taken_but_not_for_ever(hanging: Hanging) -> None:
    done: list[int] = []
    patience = Patience(lambda exc: None)
    for number in range(5):
        patience.later(lambda number=number: done.append(number))

    assert patience.close(5)
    assert done == [0, 1, 2, 3, 4]
    stuck = Patience(lambda exc: None)
    stuck.later(hanging.record)
    assert took(lambda: stuck.close(0.05)) < 1


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    patience = Patience(lambda exc: None, timeout_s=5)
    patience.ask(lambda: 1, 0)
    child = os.fork()
    if child == 0:
        os._exit(0 if patience.ask(lambda: 1, 0) == 1 else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_with_a_store_that_hangs_calls_go_through_and_only_the_first_one_waits(hanging: Hanging) -> None:
    failures: list[str] = []
    dedup = make(hanging, failures)
    rule = rule_for("search", Effect.READ, ttl_s=60)
    assert rule is not None

    def one(number: int) -> str:
        call = tool_call("search", {"n": number}, effect=Effect.READ, step=number)
        assert dedup.past is not None
        note = dedup.past.note(dedup.past.earlier(RUN, call))
        value = dedup.answers.answer(RUN, call, rule, lambda: "found").value
        dedup.stepped(RUN, call)
        return note + value

    first = took(lambda: one(1))
    others = took(lambda: [one(number) for number in range(2, 50)])

    assert first < TIMEOUT_S + 1
    assert others < 1
    assert failures == ["store"]


def test_a_store_that_is_down_is_counted_each_time_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = RecordingSink()
    engine = Engine(checks=(), sinks=[sink])
    clock = ManualClock()
    patience = Patience(lambda exc: engine.failed("store", exc), now_s=clock)
    store = Down()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            patience.ask(store.visits, None)
            clock.advance(120)

    assert sink.failures == ["store"] * 3
    assert len(caplog.records) == 1
    assert "store" in caplog.text


def test_writing_to_a_store_that_is_down_is_counted_and_the_notes_are_let_go() -> None:
    failures: list[str] = []
    dedup = make(Down(), failures)

    dedup.visit(RUN, "a.py", summary="x")
    dedup.close()

    assert set(failures) == {"store"}
    assert dedup.past is not None
    assert not dedup.past._visits


def test_a_stop_is_marked_later_where_the_store_is_late(hanging: Hanging) -> None:
    class Late(MemoryNotes):
        def put_stop(self, mark: Any) -> None:
            assert hanging.free.wait(20)
            super().put_stop(mark)

    store = Late()
    dedup = make(store)
    assert dedup.marks is not None
    finding = Finding(
        check="loop", kind=Kind.LOOP, severity=Severity.ERROR, step=3, signature=b"s", message="", explanation="again"
    )

    assert took(lambda: dedup.marks.stopped(RUN, finding)) < TIMEOUT_S + 1
    hanging.free.set()
    dedup.close()

    assert [mark.run_id for mark in store.stops("")] == ["run-2"]


def test_what_earlier_sessions_read_is_unknown_while_the_store_hangs(hanging: Hanging) -> None:
    dedup = make(hanging)
    assert dedup.past is not None

    assert list(dedup.past.visits(RUN)) == []
    assert dedup.marks is not None
    assert dedup.marks.find("run-1") is None
    assert dedup.marks.release("run-1") is False
    assert list(dedup.marks.list()) == []


def test_notes_of_a_visit_are_taken_in_order() -> None:
    store = MemoryNotes()
    dedup = make(store)

    dedup.visit(RUN, "/a")
    dedup.visit(RUN, "/b")
    dedup.close()

    assert {type(visit) for visit in store._visits.values()} == {Visit}
    assert len(store._visits) == 2
