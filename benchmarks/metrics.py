"""What counting costs: one step, a scrape at the label caps, a reading for OTLP.

Run with `python -m pytest benchmarks/metrics.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import generate_latest
from pytest_benchmark.fixture import BenchmarkFixture

from otel_agentguard.config import Settings
from otel_agentguard.events import Effect, ModelCall, Similarity, ToolCall
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.protocols import RunInfo
from otel_agentguard.sinks.otlp_bridge import metrics_data
from otel_agentguard.sinks.prometheus import PrometheusSink

STEP_LIMIT_S = 3e-6


@pytest.fixture
def run() -> RunInfo:
    return RunInfo(run_id="r", agent="coder", settings=Settings())


@pytest.fixture
def sink(run: RunInfo) -> Iterator[PrometheusSink]:
    sink = PrometheusSink()
    sink.run_opened(run)
    yield sink
    sink.close()


def call(tool: str = "read_file", agent: str = "coder") -> ToolCall:
    return ToolCall(tool=tool, agent=agent, effect=Effect.READ)


def finding() -> Finding:
    return Finding(
        check="loop",
        kind=Kind.LOOP,
        severity=Severity.WARN,
        step=3,
        signature=b"s",
        message="",
        explanation="",
        action=Action.HINT,
        agent="coder",
    )


def filled(run: RunInfo) -> PrometheusSink:
    """A sink at its caps: 300 pairs of 100 agents and 100 tools."""
    sink = PrometheusSink()
    for n in range(400):
        sink.stepped(run, call(f"tool{n % 100}", f"agent{(n + n // 100) % 100}"))
    return sink


def test_one_tool_step(benchmark: BenchmarkFixture, sink: PrometheusSink, run: RunInfo) -> None:
    event = call()
    benchmark(sink.stepped, run, event)
    assert benchmark.stats["min"] <= STEP_LIMIT_S


def test_one_tool_step_that_repeats(benchmark: BenchmarkFixture, sink: PrometheusSink, run: RunInfo) -> None:
    event = call()
    event.repeats, event.similarity, event.redundant = 2, Similarity.EXACT, True
    benchmark(sink.stepped, run, event)
    assert benchmark.stats["min"] <= STEP_LIMIT_S


def test_one_model_step(benchmark: BenchmarkFixture, sink: PrometheusSink, run: RunInfo) -> None:
    benchmark(sink.stepped, run, ModelCall(agent="coder", model="m"))


def test_one_tool_step_beyond_the_caps(benchmark: BenchmarkFixture, run: RunInfo) -> None:
    benchmark(filled(run).stepped, run, call("a tool that a model invented"))


def test_one_finding_with_an_exemplar(benchmark: BenchmarkFixture, sink: PrometheusSink, run: RunInfo) -> None:
    provider = TracerProvider()
    with provider.get_tracer("t").start_as_current_span("s"):
        benchmark(sink.found, run, finding(), "enforce")
    provider.shutdown()


def test_a_scrape_of_a_new_process(benchmark: BenchmarkFixture, sink: PrometheusSink) -> None:
    benchmark(generate_latest, sink.registry)


def test_a_scrape_at_the_label_caps(benchmark: BenchmarkFixture, run: RunInfo) -> None:
    benchmark(generate_latest, filled(run).registry)


def test_a_reading_for_otlp_at_the_label_caps(benchmark: BenchmarkFixture, run: RunInfo) -> None:
    registry = filled(run).registry
    now_ns = time.time_ns()
    benchmark(metrics_data, registry, resource=Resource({}), start_ns=now_ns, now_ns=now_ns)


def test_making_a_sink(benchmark: BenchmarkFixture) -> None:
    benchmark(PrometheusSink)
