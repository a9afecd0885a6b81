"""What the span processor costs: a span that is none of an agent's, and a tool span that is decoded and checked.

Run with `python -m pytest benchmarks/processor.py`.
"""

from __future__ import annotations

import itertools
import json

import pytest
from opentelemetry import context
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from pytest_benchmark.fixture import BenchmarkFixture

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.current import SCOPE_KEY, Scope
from otel_agentguard.engine import Engine
from otel_agentguard.guard import Guard
from otel_agentguard.protocols import Check
from otel_agentguard.tracing.processor import AgentGuardSpanProcessor

OTHER_SPAN_LIMIT_S = 1e-6
TOOL_SPAN_LIMIT_S = 30e-6


def guard(*checks: Check) -> Guard:
    return Guard(Engine(checks=checks), key=b"k" * 32)


def other_span(*, root: bool = False) -> tuple[Span, ReadableSpan]:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("opentelemetry.instrumentation.httpx")
    attributes = {f"http.attribute.{number}": number for number in range(8)}
    with tracer.start_as_current_span("POST /"):
        span = tracer.start_span("GET /", context.Context() if root else None, attributes=attributes)
    assert isinstance(span, Span)
    return span, span._readable_span()


@pytest.fixture
def tool_spans() -> list[tuple[Span, ReadableSpan, context.Context]]:
    """Spans of one run, below an agent span, with different arguments and results of usual size."""
    run = guard(LoopCheck()).engine.open("r")
    ctx = context.set_value(SCOPE_KEY, Scope(run=run, run_id="r", explicit=True))
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("opentelemetry.instrumentation.genai.framework")
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "coder"}
    spans = []
    token = context.attach(ctx)
    with tracer.start_as_current_span("invoke_agent coder", attributes=agent):
        for number in range(2000):
            span = tracer.start_span(
                "execute_tool read_file",
                attributes={
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "read_file",
                    "gen_ai.tool.call.id": f"call_{number}",
                    "gen_ai.tool.call.arguments": json.dumps({"path": f"src/{number}.py", "limit": 200}),
                    "gen_ai.tool.call.result": f"line {number}\n" * 20,
                },
            )
            span.end()
            assert isinstance(span, Span)
            spans.append((span, span._readable_span(), ctx))
    context.detach(token)
    return spans


@pytest.mark.parametrize("root", [False, True], ids=["child", "root"])
def test_end_of_a_span_of_no_agent(benchmark: BenchmarkFixture, *, root: bool) -> None:
    processor = AgentGuardSpanProcessor(guard(LoopCheck()))
    _, ended = other_span(root=root)

    benchmark(processor.on_end, ended)

    assert benchmark.stats["median"] < OTHER_SPAN_LIMIT_S


def test_start_and_end_of_a_span_of_no_agent(benchmark: BenchmarkFixture) -> None:
    processor = AgentGuardSpanProcessor(guard(LoopCheck()))
    span, ended = other_span()

    def life() -> None:
        processor.on_start(span)
        processor.on_end(ended)

    benchmark(life)

    assert benchmark.stats["median"] < 2 * OTHER_SPAN_LIMIT_S


def test_end_of_a_span_of_no_agent_while_nothing_is_installed(benchmark: BenchmarkFixture) -> None:
    processor = AgentGuardSpanProcessor()
    _, ended = other_span()

    benchmark(processor.on_end, ended)

    assert benchmark.stats["median"] < OTHER_SPAN_LIMIT_S


@pytest.mark.parametrize(
    ("checks", "limit_s"),
    [([], TOOL_SPAN_LIMIT_S), ([LoopCheck()], 4 * TOOL_SPAN_LIMIT_S)],
    ids=["decoding", "with the loop check"],
)
def test_end_of_a_tool_span(
    benchmark: BenchmarkFixture,
    tool_spans: list[tuple[Span, ReadableSpan, context.Context]],
    checks: list[Check],
    limit_s: float,
) -> None:
    installed = guard(*checks)
    run = installed.engine.open("r")
    processor = AgentGuardSpanProcessor(installed)
    ctx = context.set_value(SCOPE_KEY, Scope(run=run, run_id="r", explicit=True))
    rounds = itertools.cycle(tool_spans)

    def started() -> tuple[tuple[ReadableSpan], dict[str, object]]:
        span, ended, _ = next(rounds)
        processor.on_start(span, ctx)
        return (ended,), {}

    benchmark.pedantic(processor.on_end, setup=started, rounds=1500)

    assert benchmark.stats["median"] < limit_s
