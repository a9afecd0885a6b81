"""A guard, the real SDK with our processor first and an exporter behind it, and spans in three vocabularies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as log_export
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.config import Mode
from otel_agentguard.current import SCOPE_KEY, Scope
from otel_agentguard.engine import Engine
from otel_agentguard.events import Event, ModelCall, ToolCall
from otel_agentguard.findings import Finding
from otel_agentguard.guard import Guard
from otel_agentguard.protocols import RunInfo
from otel_agentguard.runs import Run
from otel_agentguard.tracing.findings import FindingEvents
from otel_agentguard.tracing.processor import AgentGuardSpanProcessor

_LOG_EXPORTER = getattr(log_export, "InMemoryLogRecordExporter", None) or log_export.InMemoryLogExporter
"""The SDK up to 1.38 knows it under the older name."""


@dataclass
class RecordingSink:
    """Keeps what the engine tells."""

    steps: list[tuple[str, Event]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    opened: list[RunInfo] = field(default_factory=list)
    closed: list[tuple[str, str]] = field(default_factory=list)

    def run_opened(self, run: RunInfo) -> None:
        self.opened.append(run)

    def stepped(self, run: RunInfo, event: Event) -> None:
        self.steps.append((run.run_id, event))

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        self.findings.append(finding)

    def run_closed(self, run: RunInfo, outcome: str, steps: int) -> None:
        self.closed.append((run.run_id, outcome))

    def failed(self, where: str) -> None:
        self.failures.append(where)

    def timed(self, check: str, seconds: float) -> None:
        pass


class World:
    """One application: a guard, a provider whose first processor is ours, and what came out."""

    def __init__(self, *, enforce: bool = True, sampler: Sampler = ALWAYS_ON, limits: SpanLimits | None = None) -> None:
        self.sink = RecordingSink()
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, span_limits=limits, shutdown_on_exit=False)
        self.log_exporter = _LOG_EXPORTER()
        logs = LoggerProvider(shutdown_on_exit=False)
        logs.add_log_record_processor(log_export.SimpleLogRecordProcessor(self.log_exporter))
        events = FindingEvents(tracer_provider=self.provider, logger_provider=logs)
        self.engine = Engine(checks=[LoopCheck()], sinks=[self.sink, events])
        mode = Mode.ENFORCE if enforce else Mode.OBSERVE
        self.guard = Guard(self.engine, key=b"k" * 32, automatic=mode)
        self.processor = AgentGuardSpanProcessor(self.guard)
        self.provider.add_span_processor(self.processor)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def tracer(self, scope: str = "opentelemetry.instrumentation.genai.framework") -> trace.Tracer:
        return self.provider.get_tracer(scope)

    @property
    def events(self) -> list[Event]:
        return [event for _, event in self.sink.steps]

    @property
    def calls(self) -> list[ToolCall]:
        return [event for event in self.events if isinstance(event, ToolCall)]

    @property
    def model_calls(self) -> list[ModelCall]:
        return [event for event in self.events if isinstance(event, ModelCall)]

    @property
    def exported(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]

    def genai_tool(self, tool: str = "lookup", arguments: object = None, **more: object) -> None:
        """A tool span as the OpenTelemetry GenAI instrumentations write it: content at the end."""
        with self.tracer().start_as_current_span(
            f"execute_tool {tool}", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        ) as span:
            given = {"q": "x"} if arguments is None else arguments
            span.set_attribute("gen_ai.tool.call.arguments", given if isinstance(given, str) else json.dumps(given))
            span.set_attribute("gen_ai.tool.call.result", "the same answer")
            span.set_attributes(more)

    @contextmanager
    def inside(self, run: Run, *, agent: str | None = None) -> Iterator[None]:
        """Code in a run, as `run()` would put it there."""
        there = Scope(run=run, run_id=run.run_id, agent=agent, explicit=True)
        token = context.attach(context.set_value(SCOPE_KEY, there))
        try:
            yield
        finally:
            context.detach(token)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World
