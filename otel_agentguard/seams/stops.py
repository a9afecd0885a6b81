"""Stops of other processes, at the entry of a run."""

from __future__ import annotations

from otel_agentguard.guard import Guard
from otel_agentguard.notes import StopMark
from otel_agentguard.policy import Ladder
from otel_agentguard.runs import Tombstone


def recall_stop(guard: Guard, run_id: str | None, conversation: str | None) -> None:
    """Have the engine know what the store knows of a run that is about to be entered.

    A stop of an earlier process holds here too, and one that was released elsewhere holds no longer. Waits
    for the store no longer than its patience says; one that is down changes nothing.
    """
    marks = None if guard.dedup is None else guard.dedup.marks
    if marks is not None and (run_id is not None or conversation is not None):
        _take(guard, run_id, conversation, *marks.look(run_id, conversation))


async def recall_stop_async(guard: Guard, run_id: str | None, conversation: str | None) -> None:
    """`recall_stop` without blocking the event loop."""
    marks = None if guard.dedup is None else guard.dedup.marks
    if marks is not None and (run_id is not None or conversation is not None):
        _take(guard, run_id, conversation, *await marks.look_async(run_id, conversation))


def _take(guard: Guard, run_id: str | None, conversation: str | None, is_sure: bool, mark: StopMark | None) -> None:
    grave = guard.engine.grave(run_id, conversation)
    if mark is not None and (grave is None or grave.run_id != mark.run_id):
        guard.engine.restore(Tombstone(mark.run_id, mark.conversation, mark.finding, mark.event, Ladder()))
    elif mark is None and is_sure and grave is not None:
        guard.engine.release(grave.run_id)
