from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import StatusCode

from otel_agentguard import AgentGuard, CallBlocked, Effect, RunAborted, run, tool


@tool(effect=Effect.READ)
def read(path: str) -> str:
    return "a secret text"


def names(spans: list[ReadableSpan]) -> list[str]:
    return [span.name for span in spans]


def test_a_call_is_a_span_of_the_genai_conventions(installing: Callable[..., AgentGuard], spans: Any) -> None:
    installing(fingerprint_key=b"k" * 32)

    with run("r", agent="coder", conversation="c"):
        read("a.py")

    (span,) = spans.all()
    attributes = dict(span.attributes)
    fingerprint = attributes.pop("agentguard.fingerprint")
    assert (span.name, span.kind.name, span.status.status_code) == ("execute_tool read", "INTERNAL", StatusCode.UNSET)
    assert span.instrumentation_scope.name == "otel_agentguard"
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read",
        "gen_ai.agent.name": "coder",
        "gen_ai.conversation.id": "c",
        "agentguard.effect": "read",
        "agentguard.run.id": "r",
        "agentguard.step": 1,
    }
    assert len(fingerprint) == 32
    assert span.events == ()


def test_exported_fingerprints_depend_on_the_key(installing: Callable[..., AgentGuard], spans: Any) -> None:
    for key in (b"k" * 32, b"k" * 32, b"other" * 8):
        guard = installing(fingerprint_key=key)
        with run():
            read("a.py")
        guard.shutdown()

    one, two, three = (span.attributes["agentguard.fingerprint"] for span in spans.all())
    assert one == two != three


def test_a_repeat_and_its_finding_are_on_the_span(guard: AgentGuard, spans: Any) -> None:
    with run("r"):
        for _ in range(3):
            read("a.py")

    third = spans.all()[-1]
    assert third.attributes["agentguard.repeat.count"] == 2
    assert third.attributes["agentguard.repeat.similarity"] == "exact"
    assert third.attributes["agentguard.action"] == "hint"
    assert third.attributes["agentguard.finding.kind"] == "loop"
    assert third.attributes["agentguard.evidence.steps"] == (1, 2, 3)
    (event,) = third.events
    assert event.name == "agentguard.finding"
    assert dict(event.attributes) == {
        "agentguard.finding.check": "loop",
        "agentguard.finding.kind": "loop",
        "agentguard.finding.severity": "warn",
        "agentguard.action": "hint",
        "agentguard.evidence.steps": (1, 2, 3),
    }


def test_a_refused_call_has_a_span_in_error(guard: AgentGuard, spans: Any) -> None:
    with run("r"):
        for _ in range(4):
            read("a.py")
        with pytest.raises(CallBlocked):
            read("a.py")

    span = spans.all()[-1]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "otel_agentguard.errors.CallBlocked"
    assert span.attributes["agentguard.action"] == "block"


def test_a_stop_is_on_the_span_before_it_is_raised(guard: AgentGuard, spans: Any) -> None:
    with pytest.raises(RunAborted), run("r"):
        for _ in range(7):
            with contextlib.suppress(CallBlocked):
                read("a.py")

    span = spans.all()[-1]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "otel_agentguard.errors.RunStopped"
    assert span.attributes["agentguard.action"] == "stop"


def test_an_error_has_its_type_on_the_span_and_not_its_text(guard: AgentGuard, spans: Any) -> None:
    @tool
    def fetch(url: str) -> str:
        raise ConnectionError("secret host")

    with run("r"), pytest.raises(ConnectionError):
        fetch("u")

    (span,) = spans.all()
    assert span.attributes["error.type"] == "ConnectionError"
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in f"{dict(span.attributes)} {span.status.description} {span.events}"


def test_no_content_leaves_unless_it_is_turned_on(guard: AgentGuard, spans: Any) -> None:
    with run("r"):
        read("private.txt")

    (span,) = spans.all()
    assert "secret" not in str(dict(span.attributes))
    assert "private" not in str(dict(span.attributes))


def test_content_is_on_the_span_where_it_is_turned_on(
    installing: Callable[..., AgentGuard], spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    installing(redact=lambda text: text.replace("secret", "***"))

    with run("r"):
        read("a.txt")

    (span,) = spans.all()
    assert span.attributes["gen_ai.tool.call.arguments"] == '{"path":"a.txt"}'
    assert span.attributes["gen_ai.tool.call.result"] == "a *** text"


def test_the_body_runs_inside_of_the_span_and_the_caller_outside(guard: AgentGuard, spans: Any) -> None:
    @tool
    def work() -> None:
        trace.get_tracer("app").start_span("inside").end()

    with trace.get_tracer("app").start_as_current_span("caller") as caller:
        work()
        assert trace.get_current_span() is caller

    inside, call, around = spans.all()
    assert names([inside, call, around]) == ["inside", "execute_tool work", "caller"]
    assert inside.parent.span_id == call.context.span_id
    assert call.parent.span_id == around.context.span_id


def test_a_span_processor_that_raises_leaves_the_call_alone(guard: AgentGuard) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            raise RuntimeError("broken")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    trace.set_tracer_provider(provider)

    with run("r"):
        assert read("a") == "a secret text"

    counted = guard.registry.get_sample_value("agentguard_guard_errors_total", {"where": "span"})
    assert counted == 1
