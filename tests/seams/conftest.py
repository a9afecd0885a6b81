"""A guard that records, a tracer provider of its own for each test, and an agent that loops."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

from otel_agentguard import AgentGuard, install
from otel_agentguard.testing import RecordingSink

Installing = Callable[..., AgentGuard]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs coroutine tests, each in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(autouse=True)
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without a tracer provider, and without settings from outside."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.delenv("AGENTGUARD_MODE", raising=False)


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
def installing(sink: RecordingSink) -> Iterator[Installing]:
    """Installs a guard that tells `sink`, and shuts it down after the test."""
    guards: list[AgentGuard] = []

    def install_it(**arguments: Any) -> AgentGuard:
        guards.append(install(**{"sinks": [sink], **arguments}))
        return guards[-1]

    yield install_it
    for guard in guards:
        guard.shutdown()


@pytest.fixture
def guard(installing: Installing) -> AgentGuard:
    return installing()


class Spans:
    """What was exported."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Sets a provider that exports into memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield Spans(exporter)
    provider.shutdown()
