"""Writes findings where OpenTelemetry users look for them: log events and span events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry import context, trace
from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber, get_logger
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, TracerProvider
from opentelemetry.util.types import AttributeValue

from otel_agentguard.findings import Finding, Severity
from otel_agentguard.protocols import RunInfo, Sink
from otel_agentguard.semconv import (
    AGENTGUARD_ACTION,
    AGENTGUARD_EVIDENCE_STEPS,
    AGENTGUARD_FINDING_CHECK,
    AGENTGUARD_FINDING_KIND,
    AGENTGUARD_FINDING_SEVERITY,
    AGENTGUARD_MODE,
    AGENTGUARD_REPEAT_COUNT,
    AGENTGUARD_RUN_ID,
    AGENTGUARD_STEP,
    EVENT_EVALUATION_RESULT,
    EVENT_FINDING,
    GEN_AI_AGENT_NAME,
    GEN_AI_CONVERSATION_ID,
    GEN_AI_EVALUATION_EXPLANATION,
    GEN_AI_EVALUATION_NAME,
    GEN_AI_EVALUATION_SCORE_LABEL,
    GEN_AI_EVALUATION_SCORE_VALUE,
    GEN_AI_TOOL_NAME,
    INSTRUMENTATION_SCOPE,
    SPAN_FINDING,
)

_LATE = context.create_key("agentguard-late")
_SEVERITIES = {
    Severity.INFO: SeverityNumber.INFO,
    Severity.WARN: SeverityNumber.WARN,
    Severity.ERROR: SeverityNumber.ERROR,
}


@dataclass(frozen=True, slots=True)
class Late:
    """A span that was over when it was judged, so that nothing can be written onto it.

    Attributes:
        ended: The span.
        ancestor: The nearest span above it that is still being recorded; None where there is none.
    """

    ended: SpanContext
    ancestor: Span | None


def telling_late(late: Late) -> Context:
    """The current context, in which findings are about a span that is over."""
    return context.set_value(_LATE, late)


class FindingEvents(Sink):
    """A sink that emits each finding as OpenTelemetry events.

    Two log events carry the context of the span that the finding is about: `agentguard.finding`, and
    `gen_ai.evaluation.result` of https://github.com/open-telemetry/semantic-conventions-genai. A span
    event goes onto the span, or onto the nearest ancestor that is still recorded, or onto a span of
    zero length that is linked to it. Spans of our own seams get theirs from the seam.

    Neither the text for the model nor any argument or result is written.

    Args:
        tracer_provider: Makes the spans of zero length; the global one by default.
        logger_provider: Emits the log events; the global one by default.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, logger_provider: LoggerProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer(INSTRUMENTATION_SCOPE, tracer_provider=tracer_provider)
        self._logger: Logger = get_logger(INSTRUMENTATION_SCOPE, logger_provider=logger_provider)

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        """See `Sink`."""
        told = _attributes(run, finding, mode)
        late = context.get_value(_LATE)
        if not isinstance(late, Late):
            self._emit(finding, told, context.get_current())
            current = trace.get_current_span()
            if current.is_recording() and not _is_ours(current):
                current.add_event(EVENT_FINDING, told)
            return
        about = trace.set_span_in_context(NonRecordingSpan(late.ended))
        self._emit(finding, told, about)
        if late.ancestor is not None:
            late.ancestor.add_event(EVENT_FINDING, told)
            return
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            SPAN_FINDING, about, attributes=told, links=(Link(late.ended),), start_time=now_ns
        )
        span.add_event(EVENT_FINDING, told, timestamp=now_ns)
        span.end(now_ns)

    def _emit(self, finding: Finding, told: Mapping[str, AttributeValue], about: Context) -> None:
        for name, attributes in ((EVENT_FINDING, told), (EVENT_EVALUATION_RESULT, _evaluation(finding))):
            self._logger.emit(
                LogRecord(
                    timestamp=time.time_ns(),
                    context=about,
                    severity_number=_SEVERITIES[finding.severity],
                    severity_text=finding.severity.name,
                    event_name=name,
                    attributes=attributes,
                )
            )


def _attributes(run: RunInfo, finding: Finding, mode: str) -> dict[str, AttributeValue]:
    told: dict[str, AttributeValue] = {
        AGENTGUARD_RUN_ID: run.run_id,
        AGENTGUARD_STEP: finding.step,
        AGENTGUARD_FINDING_CHECK: str(finding.check),
        AGENTGUARD_FINDING_KIND: finding.kind.value,
        AGENTGUARD_FINDING_SEVERITY: finding.severity.value,
        AGENTGUARD_ACTION: str(finding.action),
        AGENTGUARD_MODE: mode,
        AGENTGUARD_EVIDENCE_STEPS: finding.evidence,
    }
    if finding.count:
        told[AGENTGUARD_REPEAT_COUNT] = finding.count
    if finding.agent:
        told[GEN_AI_AGENT_NAME] = finding.agent
    if finding.tool is not None:
        told[GEN_AI_TOOL_NAME] = finding.tool
    if run.conversation is not None:
        told[GEN_AI_CONVERSATION_ID] = run.conversation
    return told


def _evaluation(finding: Finding) -> dict[str, AttributeValue]:
    return {
        GEN_AI_EVALUATION_NAME: f"agentguard.{finding.check}",
        GEN_AI_EVALUATION_SCORE_VALUE: float(finding.score),
        GEN_AI_EVALUATION_SCORE_LABEL: finding.kind.value,
        GEN_AI_EVALUATION_EXPLANATION: finding.explanation,
    }


def _is_ours(span: Span) -> bool:
    scope = getattr(span, "instrumentation_scope", None)
    return getattr(scope, "name", None) == INSTRUMENTATION_SCOPE
