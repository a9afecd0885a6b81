"""A scripted model for all tests, a guard that records, and no tracer provider to begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from adapters.scripted_model import ScriptedModel
from opentelemetry import trace
from opentelemetry.util._once import Once

from otel_agentguard import AgentGuard, install
from otel_agentguard.testing import RecordingSink

Installing = Callable[..., AgentGuard]


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as served:
        yield served


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without a tracer provider, without settings from outside, and with keys nobody honours."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    for name in ("AGENTGUARD_MODE", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "LANGSMITH_TRACING"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "no-key")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


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
