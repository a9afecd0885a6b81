"""Waiting for something of the guard never swallows a cancellation, not even one that comes with the answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from otel_agentguard.dedup.flight import Flight, Landing, Outcome
from otel_agentguard.dedup.patience import Patience
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.opening import LateExecutor
from otel_agentguard.stores.memory import MemoryLedger

Wait = tuple[Callable[[], Awaitable[object]], Callable[[], object]]


def for_the_answer_of_an_equal_call() -> Wait:
    flight = Flight(0, ())
    flight.join()
    return lambda: flight.wait_async(10), lambda: flight.land(Outcome(Landing.NOT_SHARED))


def for_a_store() -> Wait:
    answers = threading.Event()
    patience = Patience(lambda exc: None, timeout_s=10)
    return lambda: patience.ask_async(answers.wait, default=False), answers.set


def for_the_ledger() -> Wait:
    answers = threading.Event()

    def opened() -> EffectExecutor:
        answers.wait(10)
        return EffectExecutor(MemoryLedger())

    late = LateExecutor("memory", opened, patience_s=10)
    return late.ready_async, answers.set


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("make", [for_the_answer_of_an_equal_call, for_a_store, for_the_ledger])
async def test_a_cancelled_task_ends_as_cancelled(make: Callable[[], Wait], turns: int) -> None:
    wait, answer = make()

    async def waiting() -> None:
        await wait()

    task = asyncio.create_task(waiting())
    await asyncio.sleep(0.01)
    answer()
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
