from __future__ import annotations

from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber

from otel_agentguard.config import Settings
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.protocols import RunInfo
from otel_agentguard.semconv import INSTRUMENTATION_SCOPE
from otel_agentguard.tracing.findings import FindingEvents

RUN = RunInfo(run_id="r1", agent="coder", settings=Settings(), conversation="c1")


def finding(severity: Severity = Severity.WARN) -> Finding:
    return Finding(
        check=CheckName.LOOP,
        kind=Kind.PINGPONG,
        severity=severity,
        step=9,
        signature=b"s" * 16,
        message="text for the model, with the earlier result",
        explanation="lookup gave the same answer at steps 3, 5 and 9",
        action=Action.HINT,
        evidence=(3, 5, 9),
        agent="coder",
        tool="lookup",
        count=3,
        score=0.8,
    )


@pytest.fixture
def events(world: Any) -> FindingEvents:
    return next(sink for sink in world.engine._sinks if isinstance(sink, FindingEvents))


def records(world: Any) -> dict[str, Any]:
    return {data.log_record.event_name: data.log_record for data in world.log_exporter.get_finished_logs()}


def test_a_finding_is_a_log_event_in_the_context_of_the_current_span(world: Any, events: FindingEvents) -> None:
    with world.tracer().start_as_current_span("POST /chat") as span:
        events.found(RUN, finding(), "enforce")

    record = records(world)["agentguard.finding"]
    assert (record.trace_id, record.span_id) == (span.context.trace_id, span.context.span_id)
    assert dict(record.attributes) == {
        "agentguard.run.id": "r1",
        "agentguard.step": 9,
        "agentguard.finding.check": "loop",
        "agentguard.finding.kind": "pingpong",
        "agentguard.finding.severity": "warn",
        "agentguard.action": "hint",
        "agentguard.mode": "enforce",
        "agentguard.evidence.steps": (3, 5, 9),
        "agentguard.repeat.count": 3,
        "gen_ai.agent.name": "coder",
        "gen_ai.tool.name": "lookup",
        "gen_ai.conversation.id": "c1",
    }


def test_a_finding_is_an_evaluation_result_too(world: Any, events: FindingEvents) -> None:
    events.found(RUN, finding(), "enforce")

    assert dict(records(world)["gen_ai.evaluation.result"].attributes) == {
        "gen_ai.evaluation.name": "agentguard.loop",
        "gen_ai.evaluation.score.value": 0.8,
        "gen_ai.evaluation.score.label": "pingpong",
        "gen_ai.evaluation.explanation": "lookup gave the same answer at steps 3, 5 and 9",
    }


@pytest.mark.parametrize(
    ("severity", "number"),
    [
        (Severity.INFO, SeverityNumber.INFO),
        (Severity.WARN, SeverityNumber.WARN),
        (Severity.ERROR, SeverityNumber.ERROR),
    ],
)
def test_the_severity_of_the_log_event_is_that_of_the_finding(
    world: Any, events: FindingEvents, severity: Severity, number: SeverityNumber
) -> None:
    events.found(RUN, finding(severity), "enforce")

    assert records(world)["agentguard.finding"].severity_number is number


def test_the_current_span_of_the_application_gets_a_span_event(world: Any, events: FindingEvents) -> None:
    with world.tracer().start_as_current_span("POST /chat"):
        events.found(RUN, finding(), "observe")

    (span,) = world.exporter.get_finished_spans()
    assert [event.name for event in span.events] == ["agentguard.finding"]
    assert span.events[0].attributes["agentguard.mode"] == "observe"


def test_a_span_of_our_own_seam_is_left_to_the_seam(world: Any, events: FindingEvents) -> None:
    with world.tracer(INSTRUMENTATION_SCOPE).start_as_current_span("execute_tool lookup"):
        events.found(RUN, finding(), "enforce")

    assert world.exporter.get_finished_spans()[0].events == ()


def test_the_text_for_the_model_is_never_written(world: Any, events: FindingEvents) -> None:
    with world.tracer().start_as_current_span("POST /chat"):
        events.found(RUN, finding(), "enforce")

    written = repr([dict(record.attributes) for record in records(world).values()])
    written += repr([dict(event.attributes) for event in world.exporter.get_finished_spans()[0].events])
    assert "text for the model" not in written


def test_without_any_span_and_logger_nothing_is_written_and_nothing_raised() -> None:
    FindingEvents().found(RUN, finding(), "enforce")
