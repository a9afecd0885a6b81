"""Callers that are interrupted while the guard itself is busy: nothing of ours stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from otel_agentguard import AgentGuard, Effect, Limits, RunAborted, run, tool
from otel_agentguard.adapters.contract import TEXTS, ModelAnswer, ModelRequest, ToolRequest
from otel_agentguard.adapters.models import ModelSeam
from otel_agentguard.adapters.talk import TalkAnswer, TalkRequest, TalkSeam
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.events import Event, Outcome, ToolCall
from otel_agentguard.findings import Action, Finding
from otel_agentguard.protocols import RunInfo
from otel_agentguard.testing import RecordingSink, finding
from tests.seams.conftest import Spans

Call = Callable[[], Awaitable[Any]]
Body = Callable[[], Coroutine[Any, Any, str]]


async def never_answers(found: Finding, proposed: Action) -> None:
    await asyncio.Event().wait()


async def answers() -> str:
    return "same"


async def waits() -> str:
    return await asyncio.Event().wait() or ""


def declared(body: Body) -> Call:
    @tool
    async def look() -> str:
        return await body()

    return look


def streamed(body: Body) -> Call:
    @tool
    async def pieces() -> Any:
        yield await body()

    async def call() -> None:
        async for _ in pieces():
            pass

    return call


def side_effect(body: Body) -> Call:
    @tool(effect=Effect.SIDE_EFFECT)
    async def mail(*, idempotency_key: str) -> str:
        return await body()

    return mail


def tool_of_a_framework(body: Body) -> Call:
    seam = ToolSeam(RunAborted)
    return lambda: seam.call_async(lambda: ToolRequest(tool="look", arguments={}, call_id=None), TEXTS, body)


def model_of_a_framework(body: Body) -> Call:
    seam = ModelSeam()
    return lambda: seam.call_async(
        lambda: ModelRequest(model="m", messages=["same"]), lambda answer: ModelAnswer(content=answer), lambda _: body()
    )


def model_of_a_client(body: Body) -> Call:
    seam = TalkSeam("client")
    return lambda: seam.call_async(
        lambda: TalkRequest(model="m", messages=["same"]), lambda answer: TalkAnswer(content=answer), lambda _: body()
    )


KINDS = [declared, streamed, side_effect, tool_of_a_framework, model_of_a_framework, model_of_a_client]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
async def test_a_caller_that_gives_up_on_a_callback_is_in_its_own_span_again(
    installing: Callable[..., AgentGuard], spans: Spans, make: Callable[[Body], Call]
) -> None:
    installing(on_finding=never_answers)
    call = make(answers)
    tracer = trace.get_tracer("app")
    calls = 0

    with contextlib.suppress(RunAborted):
        async with run("r"):
            with tracer.start_as_current_span("mine") as mine:
                for _ in range(6):
                    calls += 1
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(0.02):
                            await call()
                    assert trace.get_current_span() is mine

    assert len(spans.all()) == calls + 1
    assert {span.parent.span_id for span in spans.all() if span.parent} == {mine.get_span_context().span_id}


async def test_a_call_whose_caller_gives_up_before_it_begins_was_not_executed(
    installing: Callable[..., AgentGuard], sink: RecordingSink
) -> None:
    installing(on_finding=never_answers, limits=Limits(hint=2, block=3, stop=9))
    ran = 0

    @tool
    async def look() -> str:
        nonlocal ran
        ran += 1
        return "same"

    async with run("r"):
        for _ in range(4):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(0.02):
                    await look()

    outcomes = [event.outcome for event in sink.events if isinstance(event, ToolCall)]
    assert len(outcomes) == 4
    assert outcomes.count(Outcome.OK) == ran
    assert set(outcomes) <= {Outcome.OK, Outcome.NOT_EXECUTED}


def declared_inside_of_a_framework(body: Body) -> Call:
    seam, look = ToolSeam(RunAborted), declared(body)
    return lambda: seam.call_async(lambda: ToolRequest(tool="look", arguments={}, call_id=None), TEXTS, look)


@pytest.mark.parametrize(
    ("make", "outcome"),
    [(declared, Outcome.NOT_EXECUTED), (declared_inside_of_a_framework, Outcome.UNKNOWN)],
    ids=["declared", "declared_inside_of_a_framework"],
)
async def test_a_caller_that_gives_up_on_a_slow_store_is_in_its_own_span_again(
    installing: Callable[..., AgentGuard],
    spans: Spans,
    sink: RecordingSink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Body], Call],
    outcome: Outcome,
) -> None:
    guard = installing(store=f"sqlite:///{tmp_path}/agentguard.db").guard
    assert guard is not None
    assert guard.dedup is not None
    assert guard.dedup.past is not None
    answered = threading.Event()
    monkeypatch.setattr(guard.dedup.past._store, "calls", lambda *args, **kwargs: answered.wait(5) and [])

    async with run("r"):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await make(answers)()
        assert not trace.get_current_span().get_span_context().is_valid

    answered.set()
    assert [span.name for span in spans.all()] == ["execute_tool look"]
    (call,) = [event for event in sink.events if isinstance(event, ToolCall)]
    assert call.outcome is outcome


class AlwaysFinds:
    """A check that has something to say of every call."""

    name = "always"

    def open(self, run: RunInfo) -> AlwaysFinds:
        return self

    def before(self, event: Event) -> list[Finding]:
        return []

    def after(self, event: Event) -> list[Finding]:
        return [finding(check="always", step=event.step, action=Action.ALLOW)]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
async def test_nobody_is_asked_about_a_call_that_was_cancelled(
    installing: Callable[..., AgentGuard], make: Callable[[Body], Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    installing(checks=[AlwaysFinds()], on_finding=never_answers)
    monkeypatch.setattr("otel_agentguard.engine._wait_for", lambda answer: pytest.fail("the event loop was held up"))

    async with run("r"):
        task = asyncio.create_task(make(waits)())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def fails() -> str:
    raise ConnectionError


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
async def test_a_callback_about_a_call_that_failed_is_awaited_where_the_call_was_made(
    installing: Callable[..., AgentGuard], make: Callable[[Body], Call]
) -> None:
    asked_in: list[object] = []

    async def asked(found: Finding, proposed: Action) -> None:
        await asyncio.sleep(0)
        asked_in.append(asyncio.current_task())

    installing(checks=[AlwaysFinds()], on_finding=asked)

    async with run("r"):
        with pytest.raises(ConnectionError):
            await make(fails)()

    assert set(asked_in) == {asyncio.current_task()}


async def test_an_effect_whose_caller_gives_up_while_the_ledger_opens_was_not_executed(
    installing: Callable[..., AgentGuard], sink: RecordingSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = installing().guard
    assert guard is not None
    monkeypatch.setattr(guard, "executor_async", asyncio.Event().wait)

    async with run("r"):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await side_effect(answers)()

    assert [event.outcome for event in sink.events if isinstance(event, ToolCall)] == [Outcome.NOT_EXECUTED]
