"""Code outside of every `run()`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from seams.conftest import Spans

from otel_agentguard import AgentGuard, CallBlocked, RunAborted, agent, message, run, tool
from otel_agentguard.current import ImplicitRuns
from otel_agentguard.engine import Engine
from otel_agentguard.events import Message
from otel_agentguard.testing import ManualClock, RecordingSink


@tool
def look(word: str) -> str:
    return f"the same for {word}"


@tool
async def look_later(word: str) -> str:
    await asyncio.sleep(0)
    return f"the same for {word}"


def outcomes(times: int, word: str = "x") -> list[str]:
    found = []
    for _ in range(times):
        try:
            found.append(look(word))
        except Exception as exc:
            found.append(type(exc).__name__)
    return found


SAME = "the same for x"


async def test_in_a_task_a_stop_is_an_ordinary_error(guard: AgentGuard) -> None:
    found = outcomes(9)

    assert found == [SAME] * 4 + ["CallBlocked"] * 2 + ["RunAborted"] * 3


async def test_each_task_is_a_run_of_its_own(guard: AgentGuard, sink: RecordingSink) -> None:
    async def three() -> list[str]:
        return outcomes(4)

    found = await asyncio.gather(three(), three())

    assert found == [[SAME] * 4] * 2
    assert len(sink.opened) == 2


async def test_a_run_of_a_task_ends_with_it(guard: AgentGuard, sink: RecordingSink) -> None:
    async def once() -> None:
        look("x")

    await asyncio.create_task(once())
    await asyncio.sleep(0)

    assert [outcome for _, outcome, _ in sink.closed] == ["completed"]


def test_a_thread_is_refused_calls_but_never_stopped(guard: AgentGuard) -> None:
    assert outcomes(20) == [SAME] * 4 + ["CallBlocked"] * 16
    assert outcomes(1, "y") == ["the same for y"]


def test_each_thread_is_a_run_of_its_own(guard: AgentGuard, sink: RecordingSink) -> None:
    threads = [threading.Thread(target=outcomes, args=(1,)) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()

    assert len(sink.opened) == 2


def test_what_happens_in_one_trace_is_one_run(guard: AgentGuard, spans: Any, sink: RecordingSink) -> None:
    tracer = trace.get_tracer("app")

    def request() -> list[str]:
        with tracer.start_as_current_span("GET /"):
            return outcomes(8)

    assert request() == [SAME] * 4 + ["CallBlocked"] * 2 + ["RunAborted"] * 2
    assert request()[0] == SAME
    assert len(sink.opened) == 2


def test_the_run_of_a_trace_ends_with_its_root(installing: Callable[..., AgentGuard], spans: Any) -> None:
    guard = installing()

    with trace.get_tracer("app").start_as_current_span("GET /"):
        look("x")
        assert len(guard.engine.runs()) == 1

    assert guard.engine.runs() == []


@pytest.fixture
def web(guard: AgentGuard) -> Iterator[Any]:
    fastapi = pytest.importorskip("fastapi", reason="pip install fastapi httpx")
    testclient = pytest.importorskip("fastapi.testclient", reason="pip install fastapi httpx")
    app = fastapi.FastAPI()

    @app.get("/async")
    async def handle_async() -> list[str]:
        return [await look_later("x") for _ in range(50)]

    @app.get("/plain")
    def handle_plain() -> list[str]:
        return [look("x") for _ in range(50)]

    @app.get("/patient")
    async def handle_patiently() -> str:
        for _ in range(50):
            with contextlib.suppress(CallBlocked):
                await look_later("x")
        return "never"

    @app.get("/healthy")
    async def handle_well() -> str:
        return await look_later("x")

    with testclient.TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("path", ["/async", "/plain", "/patient"])
def test_a_web_handler_without_a_run_answers_500_and_serves_on(web: Any, path: str) -> None:
    assert web.get(path).status_code == 500
    assert web.get("/healthy").json() == SAME


def test_a_new_user_turn_starts_anew_and_remembers(guard: AgentGuard) -> None:
    async def chat() -> list[str]:
        first = outcomes(9)
        message("please go on", role="user")
        return [first[-1], *outcomes(3)]

    assert asyncio.run(chat()) == ["RunAborted", SAME, SAME, "RunAborted"]


def test_idle_runs_are_dropped_after_fifteen_minutes() -> None:
    clock = ManualClock()
    engine = Engine(checks=(), now_s=clock)
    implicit = ImplicitRuns(engine)
    first = implicit.of_conversation("c")

    clock.advance(899)
    same = implicit.of_conversation("c")
    clock.advance(902)
    other = implicit.of_conversation("c")

    assert same is first
    assert other is not first
    assert first.closed
    assert engine.runs() == [other]


def unrecorded(number: int) -> Context:
    """The context of a request whose spans are not sampled."""
    return trace.set_span_in_context(
        trace.NonRecordingSpan(trace.SpanContext(trace_id=number + 1, span_id=1, is_remote=False))
    )


def test_of_traces_that_are_not_recorded_only_those_touched_latest_are_known() -> None:
    clock = ManualClock()
    engine = Engine(checks=(), now_s=clock)
    implicit = ImplicitRuns(engine)
    first = implicit.current(unrecorded(0))

    for number in range(1, 5_000):
        clock.advance(0.001)
        implicit.current(unrecorded(number))
        engine.observe(first, Message(text="still here"))
        assert len(engine.runs()) <= 1_000

    assert implicit.current(unrecorded(0)) is first
    assert not first.closed
    assert implicit.current(unrecorded(4_999)).run_id in {run.run_id for run in engine.runs()}


def test_calls_below_a_remote_caller_are_one_run(guard: AgentGuard, spans: Spans) -> None:
    remote = trace.SpanContext(trace_id=7, span_id=8, is_remote=True, trace_flags=trace.TraceFlags(1))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))

    found = outcomes(8)
    context.detach(token)

    assert found[-1] == "RunAborted"


def test_a_trace_that_is_not_recorded_is_one_run_all_the_same(guard: AgentGuard) -> None:
    token = context.attach(unrecorded(1))

    found = outcomes(8)

    context.detach(token)
    assert found == [SAME] * 4 + ["CallBlocked"] * 2 + ["RunAborted"] * 2


def test_a_run_of_a_recorded_trace_is_not_taken_for_ended(spans: Any) -> None:
    engine = Engine(checks=())
    implicit = ImplicitRuns(engine)
    with trace.get_tracer("app").start_as_current_span("GET /"):
        recorded = implicit.current()

    for number in range(2_000):
        implicit.current(unrecorded(number))

    assert not recorded.closed


def test_the_run_of_a_conversation_outlives_its_traces_that_are_not_recorded() -> None:
    implicit = ImplicitRuns(Engine(checks=()))
    implicit.current(unrecorded(1))
    run = implicit.of_conversation("c", trace_id=2)

    for number in range(2, 2_000):
        implicit.current(unrecorded(number))

    assert not run.closed
    assert implicit.of_conversation("c") is run


def test_requests_that_are_not_sampled_push_out_no_run_that_is_open(
    guard: AgentGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_agentguard.engine.MAX_RUNS", 50)
    trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_OFF))

    def request() -> None:
        with trace.get_tracer("app").start_as_current_span("GET /"):
            look("x")

    with pytest.raises(RunAborted), run("nightly"):
        for _ in range(100):
            contextvars.Context().run(request)
        outcomes(10)


def test_idle_runs_of_others_are_swept_too() -> None:
    clock = ManualClock()
    engine = Engine(checks=(), now_s=clock)
    implicit = ImplicitRuns(engine)
    for number in range(50):
        implicit.of_trace(number)
    clock.advance(901)

    implicit.of_trace(1000)

    assert len(engine.runs()) == 1


def test_runs_of_dead_threads_are_swept() -> None:
    clock = ManualClock()
    engine = Engine(checks=(), now_s=clock)
    implicit = ImplicitRuns(engine)
    for _ in range(20):
        thread = threading.Thread(target=implicit.current)
        thread.start()
        thread.join()
    del thread
    gc.collect()
    clock.advance(901)

    implicit.of_trace(1)

    assert len(engine.runs()) == 1


def test_an_agent_outside_of_a_run_is_the_entry_of_one(guard: AgentGuard, spans: Any, sink: RecordingSink) -> None:
    @agent("coder")
    def code() -> str:
        for _ in range(20):
            try:
                look("x")
            except Exception as exc:
                assert isinstance(exc, CallBlocked | RunAborted)
        return "I gave up"

    with pytest.raises(RunAborted) as ended:
        code()

    assert [outcome for _, outcome, _ in sink.closed] == ["stopped_by_guard"]
    assert ended.value.finding is not None


def test_a_run_inside_of_an_implicit_one_ends_in_its_own_name(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted) as ended, run("r"):
        outcomes(9)

    assert ended.value.run_id == "r"
