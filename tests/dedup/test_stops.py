"""Stops of other processes, at the entry of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from otel_agentguard.config import Settings
from otel_agentguard.dedup.dedup import Dedup, make_dedup
from otel_agentguard.engine import Engine
from otel_agentguard.errors import RunAborted, StoreError
from otel_agentguard.events import Message, Trigger, Turn
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.guard import Guard
from otel_agentguard.seams.stops import recall_stop, recall_stop_async
from otel_agentguard.stores.notes_memory import MemoryNotes

FINDING = Finding(
    check="loop",
    kind=Kind.LOOP,
    severity=Severity.ERROR,
    step=7,
    signature=b"s" * 16,
    message="",
    explanation="read gave the same result 7 times",
    action=Action.STOP,
)


class Process:
    """A guard on a store that others have opened too."""

    def __init__(self, store: MemoryNotes) -> None:
        self.engine = Engine(checks=())
        self.guard = Guard(self.engine, key=b"k")
        self.dedup: Dedup = make_dedup(Settings(), store=store, timeout_s=10, stop_of=self._stop_of)
        self.guard.dedup = self.dedup
        self.engine._sinks = (self.dedup,)

    def _stop_of(self, run_id: str) -> Finding | None:
        grave = self.engine.grave(run_id)
        return None if grave is None else grave.finding

    def enter(self, run_id: str | None, conversation: str | None = None) -> None:
        recall_stop(self.guard, run_id, conversation)
        run = self.engine.open(run_id, conversation=conversation)
        try:
            self.engine.before(run, Message(text="hello"))
            if run.stopped is not None:
                raise RunAborted(run.stopped, run_id=run.run_id)
        finally:
            self.engine.close(run)

    def stop(self, run_id: str, conversation: str | None = None) -> None:
        run = self.engine.open(run_id, conversation=conversation)
        self.engine.stop(run, FINDING)
        self.engine.close(run)

    def end(self) -> None:
        self.dedup.close()


@pytest.fixture
def store() -> MemoryNotes:
    return MemoryNotes()


@pytest.fixture
def process(store: MemoryNotes) -> Iterator[Process]:
    process = Process(store)
    yield process
    process.end()


@pytest.fixture
def another(store: MemoryNotes) -> Iterator[Process]:
    process = Process(store)
    yield process
    process.end()


def test_a_run_that_another_process_stopped_cannot_be_entered(process: Process, another: Process) -> None:
    process.stop("ticket-42")

    with pytest.raises(RunAborted) as caught:
        another.enter("ticket-42")
    assert caught.value.finding == FINDING


def test_a_conversation_that_another_process_stopped_waits_for_its_user(process: Process, another: Process) -> None:
    process.stop("run-1", conversation="talk")

    with pytest.raises(RunAborted):
        another.enter("run-2", conversation="talk")
    recall_stop(another.guard, "run-3", "talk")
    run = another.engine.open("run-3", conversation="talk")
    another.engine.after(run, Turn(trigger=Trigger.USER, text="go on"))
    assert run.awaits_user is None


def test_a_stop_that_was_released_elsewhere_holds_here_no_longer(process: Process, another: Process) -> None:
    process.stop("ticket-42")
    assert another.dedup.marks is not None
    assert another.dedup.marks.release("ticket-42") is True

    process.enter("ticket-42")


def test_a_stop_that_the_store_was_not_told_of_yet_holds(process: Process, store: MemoryNotes) -> None:
    def down(mark: object) -> None:
        raise StoreError("down")

    put, store.put_stop = store.put_stop, down  # type: ignore[method-assign]
    process.stop("ticket-42")
    store.put_stop = put  # type: ignore[method-assign]

    with pytest.raises(RunAborted):
        process.enter("ticket-42")


def test_a_store_that_is_down_at_the_entry_changes_nothing(process: Process, store: MemoryNotes) -> None:
    def down(*_: object, **__: object) -> None:
        raise StoreError("down")

    store.find_stop = down  # type: ignore[assignment,method-assign]

    process.enter("ticket-42")
    process.stop("ticket-43")
    with pytest.raises(RunAborted):
        process.enter("ticket-43")


def test_coroutines_recall_stops_too(process: Process, another: Process) -> None:
    process.stop("ticket-42")

    asyncio.run(recall_stop_async(another.guard, "ticket-42", None))

    with pytest.raises(RunAborted):
        another.engine.open("ticket-42")


def test_without_a_store_nothing_is_asked() -> None:
    guard = Guard(Engine(checks=()), key=b"k")

    recall_stop(guard, "ticket-42", None)
    guard.dedup = make_dedup(Settings())
    recall_stop(guard, "ticket-42", None)

    guard.engine.close(guard.engine.open("ticket-42"))


def test_a_stop_is_marked_when_it_is_found_and_not_in_observe(process: Process, store: MemoryNotes) -> None:
    run = process.engine.open("ticket-42")

    process.dedup.found(run.info, FINDING, "observe")
    assert store.find_stop("", run_id="ticket-42") is None
    process.dedup.found(run.info, FINDING, "enforce")

    mark = store.find_stop("", run_id="ticket-42")
    assert mark is not None
    assert mark.finding == FINDING
