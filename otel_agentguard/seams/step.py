"""One guarded event: its span, the question before it, the account after it.

Every seam of ours is built on `Step`. It alone turns decisions into exceptions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextvars import Token

import orjson
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from otel_agentguard import words
from otel_agentguard.current import Scope
from otel_agentguard.errors import CallBlocked, RunAborted, RunStopped
from otel_agentguard.events import Event, ModelCall, Outcome, ToolCall
from otel_agentguard.findings import Action, Finding
from otel_agentguard.guard import Guard
from otel_agentguard.runs import PASS, Decision, Run
from otel_agentguard.semconv import (
    AGENTGUARD_ACTION,
    AGENTGUARD_EVIDENCE_STEPS,
    AGENTGUARD_FINDING_CHECK,
    AGENTGUARD_FINDING_KIND,
    AGENTGUARD_FINDING_SEVERITY,
    AGENTGUARD_FINGERPRINT,
    AGENTGUARD_REPEAT_COUNT,
    AGENTGUARD_REPEAT_SIMILARITY,
    AGENTGUARD_RUN_ID,
    AGENTGUARD_STEP,
    ERROR_TYPE,
    EVENT_FINDING,
    GEN_AI_CONVERSATION_ID,
)
from otel_agentguard.shown import shown

Attributes = Mapping[str, AttributeValue]
_Plain = tuple[str, Attributes, SpanKind, bool, bool]


class Step:
    """One event on its way through a seam.

    A seam makes one, says with `start` what its span is, asks `before` and obeys the refusal that it may
    return, lets the event happen, fills it, tells `after`, and `end`s the span.

    Attributes:
        guard: The installed guard.
        scope: Where the event happens.
        run: The run that it belongs to.
        agent: Who acts.
        enforce: Whether the seam may refuse.
        span: The span of the event.
        findings: What is new about the event.
        action: The highest action that was decided.
    """

    span: Span = trace.INVALID_SPAN
    findings: tuple[Finding, ...] = ()
    action: Action = Action.ALLOW
    _at_ns: int | None = None
    _decisive: Finding | None = None
    _identified = False
    _plain: _Plain | None = None
    _token: Token[Context] | None = None

    def __init__(self, guard: Guard, scope: Scope, *, run: Run | None = None, around: Context | None = None) -> None:
        if guard.processor_pending:
            guard.meet_provider()
        self.guard = guard
        self.scope = scope
        self.run = run or scope.run or guard.implicit.current()
        self.agent = scope.agent or self.run.info.agent
        self.enforce = guard.enforce
        self._around = context.get_current() if around is None else around

    def start(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        current: bool = True,
        instant: bool = False,
    ) -> None:
        """Say what the span is; it starts in `before`, once the event has its step.

        An attribute that is given at the start costs half of one that is set later.

        Args:
            name: Name of the span.
            attributes: What is known before the event.
            kind: Its kind.
            current: Whether it becomes the current span.
            instant: Whether it has no length.
        """
        self._plain = name, attributes, kind, current, instant

    def resume(self) -> None:
        """Make the span the current one."""
        self._token = context.attach(trace.set_span_in_context(self.span, self._around))

    def park(self) -> None:
        """Give the context of the caller back: across a yield nothing of ours stays attached."""
        if self._token is not None:
            context.detach(self._token)
            self._token = None

    def before(self, event: Event) -> BaseException | None:
        """Ask the engine; what is returned is to be raised, in place of the event."""
        try:
            decision = self.guard.engine.before(self.run, event, enforce=self.enforce, numbered=self._open)
        except BaseException as exc:
            self.withdraw(event, exc)
            raise
        return None if decision is PASS else self.refusal(event, decision)

    async def before_async(self, event: Event) -> BaseException | None:
        """`before`, awaiting the callbacks of the application, and a last look after them."""
        try:
            decision = await self.guard.engine.before_async(self.run, event, enforce=self.enforce, numbered=self._open)
        except BaseException as exc:
            self.withdraw(event, exc)
            raise
        if decision is not PASS and (refusal := self.refusal(event, decision)) is not None:
            return refusal
        return self.last_look(event)

    def withdraw(self, event: Event, error: BaseException) -> None:
        """End the span of an event that did not begin, since its caller was interrupted while the guard was asked."""
        if isinstance(event, ToolCall):
            event.outcome = Outcome.NOT_EXECUTED
            event.result_known = False
        elif isinstance(event, ModelCall):
            event.outcome = Outcome.NOT_EXECUTED
        self.guard.engine.withdraw(self.run, event)
        self.end(event, error=error)

    def last_look(self, event: Event) -> BaseException | None:
        """Ask once more whether the run may go on, after what took time between `before` and the body."""
        run = self.run
        if not self.enforce or not run.can_stop or (run.stopped is None and run.parent is None):
            return None
        reason = run.stop_reason()
        if reason is None:
            return None
        event.refused = True
        self.action = Action.STOP
        self._decisive = reason
        return stopped(self.scope, run, reason)

    def refusal(self, event: Event, decision: Decision) -> BaseException | None:
        """What a decision made before the event means here."""
        self._note(decision)
        if not self.enforce or decision.action < Action.BLOCK:
            self.keep_notes(decision.notes)
            return None
        if decision.action is Action.STOP:
            return stopped(self.scope, self.run, decision.finding)
        told = None if decision.finding is None else decision.finding.message
        self.keep_notes([note for note in decision.notes if note != told])
        return blocked(self.run, event, decision.finding)

    def after(self, event: Event) -> Decision:
        """Tell the engine what came of the event."""
        decision = self.guard.engine.after(self.run, event, enforce=self.enforce)
        if decision is not PASS:
            self._note(decision)
        return decision

    async def after_async(self, event: Event) -> Decision:
        """`after`, awaiting the callbacks of the application."""
        try:
            decision = await self.guard.engine.after_async(self.run, event, enforce=self.enforce)
        except BaseException as exc:
            self.end(event, error=exc)
            raise
        if decision is not PASS:
            self._note(decision)
        return decision

    def stop_after(self, decision: Decision) -> BaseException | None:
        """What is to be raised although the event has happened: the run must end now."""
        if self.enforce and decision.action is Action.STOP and self.run.can_stop:
            return stopped(self.scope, self.run, decision.finding)
        return None

    def keep_notes(self, notes: Sequence[str]) -> None:
        """Keep notes until somebody can deliver them."""
        if notes and self.enforce:
            with self.run.lock:
                self.run.pending_notes.extend(notes)

    def report(self, finding: Finding) -> None:
        """Take in a finding that the seam made itself."""
        if self.guard.report(self.run, finding, enforced=self.enforce):
            self._note(Decision(finding.action, finding, (finding,)))

    def end(
        self,
        event: Event,
        fingerprint: bytes | None = None,
        *,
        error: BaseException | None = None,
        more: Attributes | None = None,
    ) -> None:
        """Put onto the span what is known by now, and end it.

        Args:
            event: The event.
            fingerprint: Its identity, where that was not known at the start.
            error: What it ended in. Its text goes onto the span only where content is captured.
            more: Further attributes.
        """
        if self._plain is not None:
            self._open(event)
        self.park()
        self.run.seen.end(event, keep=self.guard.others.may_tell)
        span = self.span
        try:
            late = fingerprint is not None and not self._identified
            if (late or more or error or event.repeats or self._decisive) and span.is_recording():
                if late and fingerprint is not None:
                    span.set_attribute(AGENTGUARD_FINGERPRINT, self.guard.exported(fingerprint))
                self._tell(span, event, error, more)
            span.end(self._at_ns)
        except Exception as exc:
            self.guard.engine.failed("span", exc)

    def _open(self, event: Event) -> None:
        """Start the span that `start` told of."""
        if self._plain is None:
            return
        name, attributes, kind, current, instant = self._plain
        self._plain = None
        info = self.run.info
        known = {**attributes, AGENTGUARD_RUN_ID: info.run_id, AGENTGUARD_STEP: event.step}
        fingerprint = _identity(event)
        self._identified = fingerprint is not None
        if fingerprint is not None:
            known[AGENTGUARD_FINGERPRINT] = self.guard.exported(fingerprint)
        if info.conversation is not None:
            known[GEN_AI_CONVERSATION_ID] = info.conversation
        try:
            if instant:
                self._at_ns = time.time_ns()
            self.span = self.guard.tracer.start_span(name, self._around, kind, known, start_time=self._at_ns)
        except Exception as exc:
            self.guard.engine.failed("span", exc)
        self.run.seen.begin(event)
        if current:
            self.resume()

    def _note(self, decision: Decision) -> None:
        self.findings += decision.findings
        if decision.action > self.action or (decision.findings and self._decisive is None):
            self.action = decision.action
            self._decisive = decision.finding

    def _tell(self, span: Span, event: Event, error: BaseException | None, more: Attributes | None) -> None:
        told: dict[str, AttributeValue] = {**(more or {})}
        if event.repeats:
            told[AGENTGUARD_REPEAT_COUNT] = event.repeats
            if event.similarity is not None:
                told[AGENTGUARD_REPEAT_SIMILARITY] = event.similarity.value
        if told:
            span.set_attributes(told)
        if self._decisive is not None:
            self._tell_findings(span, self._decisive)
        if error is not None:
            self._tell_error(span, error)

    def _tell_findings(self, span: Span, main: Finding) -> None:
        span.set_attributes(
            {
                AGENTGUARD_ACTION: str(self.action),
                AGENTGUARD_FINDING_KIND: main.kind.value,
                AGENTGUARD_EVIDENCE_STEPS: main.evidence,
            }
        )
        for finding in self.findings:
            span.add_event(
                EVENT_FINDING,
                {
                    AGENTGUARD_FINDING_CHECK: finding.check,
                    AGENTGUARD_FINDING_KIND: finding.kind.value,
                    AGENTGUARD_FINDING_SEVERITY: finding.severity.value,
                    AGENTGUARD_ACTION: str(finding.action),
                    AGENTGUARD_EVIDENCE_STEPS: finding.evidence,
                },
            )

    def _tell_error(self, span: Span, error: BaseException) -> None:
        name = error_type(error)
        span.set_attribute(ERROR_TYPE, name)
        if self.guard.captures_content:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, self.guard.content(shown(error))))
        else:
            span.set_status(Status(StatusCode.ERROR, name))


def _identity(event: Event) -> bytes | None:
    if isinstance(event, ToolCall):
        return event.fingerprint
    return event.request_digest if isinstance(event, ModelCall) else getattr(event, "digest", None)


def error_type(error: BaseException) -> str:
    """The value of `error.type` for an exception."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def end_agent_span(guard: Guard, span: Span, run: Run, error: BaseException | None) -> None:
    """End the span of an agent with what its run is called and what the agent raised; never raises."""
    try:
        if span.is_recording():
            span.set_attribute(AGENTGUARD_RUN_ID, run.run_id)
            if run.info.conversation is not None:
                span.set_attribute(GEN_AI_CONVERSATION_ID, run.info.conversation)
            if error is not None:
                span.set_attribute(ERROR_TYPE, error_type(error))
                span.set_status(Status(StatusCode.ERROR, error_type(error)))
        span.end()
    except Exception as exc:
        guard.engine.failed("span", exc)


def stopped(scope: Scope, run: Run, finding: Finding | None) -> BaseException:
    """What ends a stopped run here: plain code inside `run()` is unwound past its `except Exception`."""
    kind = RunStopped if scope.explicit else RunAborted
    return kind(finding, run_id=run.run_id)


def blocked(run: Run, event: Event, finding: Finding | None) -> CallBlocked:
    """A refusal that carries what the call answered before, where that is kept."""
    note = finding.message if finding is not None else words.to_model("This was refused.", "Do something else.")
    if not isinstance(event, ToolCall):
        return CallBlocked(note, finding=finding)
    earlier = run.values.get(event.fingerprint)
    text = words.refused(note, None if earlier is None else as_text(earlier))
    return CallBlocked(text, finding=finding, earlier_result=earlier)


def as_text(value: object) -> str:
    """A result as a model reads it."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except Exception:  # whatever the `str` of something inside raises
        return shown(value)
