"""Sees every agent span, whoever made it, and tells the engine."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import StatusCode

from otel_agentguard.current import NOWHERE, Scope, scope
from otel_agentguard.events import Effect, Event, ModelCall, ToolCall, Trigger, Turn
from otel_agentguard.fingerprint import call_digest
from otel_agentguard.forks import new_lock
from otel_agentguard.guard import Guard, installed
from otel_agentguard.protocols import Decoder, EndedSpan
from otel_agentguard.runs import Decision, Run
from otel_agentguard.seen import Sighting
from otel_agentguard.semconv import (
    AGENTGUARD_ACTION,
    AGENTGUARD_EVIDENCE_STEPS,
    AGENTGUARD_FINDING_KIND,
    AGENTGUARD_RUN_ID,
    GEN_AI_RESPONSE_ID,
    INSTRUMENTATION_SCOPE,
)
from otel_agentguard.tracing import decoding
from otel_agentguard.tracing.decoders import DECODERS
from otel_agentguard.tracing.findings import Late, telling_late

MAX_LIVE_SPANS = 10_000
_MAX_DEPTH = 32
_TRACES_OF_A_RUN = 16
_MAX_ANSWERS = 256
_EXCEPTION = "exception"
_EXCEPTION_MESSAGE = "exception.message"


_Live = tuple[Span, Scope, bool]
"""A span that has not ended, the scope that it began in, and whether one of our seams made it."""


@dataclass(slots=True)
class _Around:
    """What the spans above a span say; nearer ones win."""

    run: Run | None = None
    agent: str | None = None
    conversation: str | None = None
    recording: Span | None = None


class AgentGuardSpanProcessor(SpanProcessor):
    """Feeds the agent spans of any instrumentation to the engine, which runs the same checks on them.

    A span is read when it ends, since most instrumentations know the arguments no sooner: too late to
    prevent anything. A stop marks the run, so that its next seam raises. Spans of our own seams are
    skipped, and an event that a seam or another instrumentation has told already is counted once.

    Nothing is raised and no exporter is kept from its spans. What is remembered is bounded.

    Args:
        guard: Whom to tell; by default the guard that is installed when a span ends, or nobody.
        decoders: The vocabularies, asked in this order.
    """

    def __init__(self, guard: Guard | None = None, *, decoders: Sequence[Decoder] = DECODERS) -> None:
        self._guard = guard
        self._marked = tuple((marker, decoder) for decoder in decoders for marker in decoder.markers)
        self._live: OrderedDict[int, _Live] = OrderedDict()
        self._lock = new_lock()
        self._answers: OrderedDict[str, tuple[str, str | None]] = OrderedDict()
        self._traces: WeakKeyDictionary[Run, deque[int]] = WeakKeyDictionary()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Remember the span and the run that it begins in, until it ends."""
        guard = self._guard or installed.guard
        if guard is None:
            return
        try:
            there = scope(parent_context)
            is_own = _is_own(span)
            live = self._live
            span_id = span.context.span_id
            live[span_id] = span, there, is_own
            guard.others.span_began(span_id, is_own=is_own)
            if len(live) > MAX_LIVE_SPANS:
                guard.others.span_ended(live.popitem(last=False)[0])
            if there.run is None and (conversation := self._conversation(_attributes_of(span))) is not None:
                self._conversation_run(guard, conversation, span.context.trace_id, asks=not is_own)
        except Exception as exc:
            guard.engine.failed("span processor", exc)

    def on_end(self, span: ReadableSpan) -> None:
        """Tell the engine of the span, where it is one of an agent."""
        guard = self._guard or installed.guard
        if guard is None:
            return
        try:
            own = span.context
            _, there, is_own = self._live.pop(own.span_id, None) or (None, NOWHERE, _is_own(span))
            if not is_own:
                guard.others.span_ended(own.span_id)
                attributes = _attributes_of(span)
                for marker, _ in self._marked:
                    if marker in attributes:
                        self._take(guard, span, attributes, there)
                        break
            parent = span.parent
            # Below a caller's span each of our calls is without a parent here; the request has other calls to come.
            if parent is None or (parent.is_remote and not is_own):
                self._root_ended(guard, own.trace_id, span)
        except Exception as exc:
            guard.engine.failed("span processor", exc)

    def shutdown(self) -> None:
        """Forget everything."""
        guard = self._guard or installed.guard
        while self._live:
            span_id, _ = self._live.popitem()
            if guard is not None:
                guard.others.span_ended(span_id)
        with self._lock:
            self._traces.clear()
            self._answers.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True

    def _take(self, guard: Guard, span: ReadableSpan, attributes: Mapping[str, object], there: Scope) -> None:
        source = span.instrumentation_scope.name if span.instrumentation_scope is not None else ""
        if there.unguarded:
            return
        told = _ended(span, attributes)
        event = self._decoded(guard, told)
        around = self._around(span, there)
        run = around.run
        if run is None:
            conversation = self._conversation(attributes) or around.conversation
            if conversation is not None:
                run = self._conversation_run(guard, conversation, span.context.trace_id)
        if event is None:
            return
        if isinstance(event, ModelCall) and self._is_answer_of_another(attributes, source, run):
            return
        run = run or guard.implicit.of_trace(span.context.trace_id)
        if run.closed:
            return
        if isinstance(event, ToolCall) and self._is_retold_above(guard, span, event):
            return
        event.agent = event.agent or around.agent or there.agent or run.info.agent
        if isinstance(event, ToolCall):
            _identify(run, event)
        if not run.seen.is_news(_sighting(event, source, span, told)):
            return
        token = context.attach(telling_late(Late(span.context, around.recording)))
        try:
            decision = guard.engine.observe(run, event, enforce=guard.enforce_auto)
        finally:
            context.detach(token)
        if decision.findings and around.recording is not None:
            _write_onto(around.recording, run, decision)

    def _decoded(self, guard: Guard, told: EndedSpan) -> Event | None:
        for marker, decoder in self._marked:
            if marker not in told.attributes:
                continue
            try:
                event = decoder.decode(told)
            except Exception as exc:
                guard.engine.failed(f"decoder {decoder.name}", exc)
                continue
            if event is not None:
                return event
        return None

    def _conversation(self, attributes: Mapping[str, object]) -> str | None:
        for marker, decoder in self._marked:
            if marker in attributes and (found := decoder.conversation(attributes)) is not None:
                return found
        return None

    def _agent(self, name: str, attributes: Mapping[str, object]) -> str | None:
        for marker, decoder in self._marked:
            if marker in attributes and (found := decoder.agent(name, attributes)) is not None:
                return found
        return None

    def _above(self, span: ReadableSpan) -> Iterator[_Live]:
        """The living spans above a span, nearest first."""
        for _ in range(_MAX_DEPTH):
            if span.parent is None:
                return
            live = self._live.get(span.parent.span_id)
            if live is None:
                return
            yield live
            span = live[0]

    def _around(self, span: ReadableSpan, there: Scope) -> _Around:
        around = _Around(run=there.run)
        for above, its_scope, _ in self._above(span):
            if around.recording is None and above.is_recording():
                around.recording = above
            if around.run is None:
                around.run = its_scope.run
            attributes = _attributes_of(above)
            if around.agent is None and its_scope.run is there.run and its_scope.agent == there.agent:
                around.agent = self._agent(above.name, attributes)
            if around.conversation is None:
                around.conversation = self._conversation(attributes)
        return around

    def _conversation_run(self, guard: Guard, conversation: str, trace_id: int, *, asks: bool = True) -> Run:
        """The run of a conversation; where it comes back in another trace, it was asked something new.

        Spans do not tell who asked, so that makes repeats legitimate, but never lifts a stop. Seams of ours
        know of turns themselves: their spans only (`asks` is false) tell which traces belong to it.
        """
        run = guard.implicit.of_conversation(conversation, trace_id=trace_id)
        with self._lock:
            known = self._traces.get(run)
            if known is None:
                self._traces[run] = deque((trace_id,), maxlen=_TRACES_OF_A_RUN)
                return run
            if trace_id in known:
                return run
            known.append(trace_id)
        if asks and run.awaits_user is None:
            guard.engine.observe(run, Turn(agent=run.info.agent, trigger=Trigger.USER, at_s=guard.engine.now_s()))
        return run

    def _is_answer_of_another(self, attributes: Mapping[str, object], source: str, run: Run | None) -> bool:
        """Whether another instrumentation told of this answer, which has an id, maybe in a trace of its own.

        A run that is known by more than its trace hears of it in any case.
        """
        answer = attributes.get(GEN_AI_RESPONSE_ID)
        if not isinstance(answer, str) or not answer:
            return False
        known_run = None if run is None else run.run_id
        with self._lock:
            first_source, first_run = self._answers.setdefault(answer, (source, known_run))
            if len(self._answers) > _MAX_ANSWERS:
                self._answers.popitem(last=False)
        return first_source != source and known_run in (None, first_run)

    def _is_retold_above(self, guard: Guard, span: ReadableSpan, call: ToolCall) -> bool:
        """Whether a span above, still open, tells of the same call and will know more of it."""
        if call.arguments is not None or call.call_id is not None:
            return False
        for above, _, is_own in self._above(span):
            if is_own:
                continue
            told = self._decoded(guard, EndedSpan(name=above.name, attributes=_attributes_of(above)))
            if isinstance(told, ToolCall) and told.tool == call.tool:
                return True
        return False

    def _root_ended(self, guard: Guard, trace_id: int, span: ReadableSpan) -> None:
        if guard.implicit.has_trace(trace_id):
            guard.implicit.end_trace(trace_id, failed=span.status.status_code is StatusCode.ERROR)


def _is_own(span: ReadableSpan) -> bool:
    source = span.instrumentation_scope
    return source is not None and source.name == INSTRUMENTATION_SCOPE


def _attributes_of(span: ReadableSpan) -> Mapping[str, object]:
    """The attributes of a span, living or over.

    The mapping that the SDK hands out takes a microsecond for three look-ups, which every span of the
    application would pay; the plain dict inside of it takes a tenth.
    """
    bounded = getattr(span, "_attributes", None)
    plain = getattr(bounded, "_dict", None)
    return plain if isinstance(plain, dict) else span.attributes or {}


def _ended(span: ReadableSpan, attributes: Mapping[str, object]) -> EndedSpan:
    status = span.status
    failed = status.status_code is StatusCode.ERROR
    started_ns = span.start_time or 0
    return EndedSpan(
        name=span.name,
        attributes=attributes,
        started_ns=started_ns,
        ended_ns=span.end_time or started_ns,
        failed=failed,
        error=_error(span) if failed else None,
        max_value_chars=getattr(getattr(span, "_attributes", None), "max_value_len", None),
    )


def _sighting(event: Event, source: str, span: ReadableSpan, told: EndedSpan) -> Sighting:
    parent = span.parent
    return Sighting(
        event,
        source,
        told.started_ns,
        told.ended_ns,
        span.context.span_id,
        0 if parent is None else parent.span_id,
    )


def _error(span: ReadableSpan) -> str | None:
    for event in reversed(span.events):
        if event.name == _EXCEPTION and event.attributes:
            message = event.attributes.get(_EXCEPTION_MESSAGE)
            if isinstance(message, str):
                return message
    return span.status.description


def _identify(run: Run, call: ToolCall) -> None:
    """Fill in what depends on what is known of the tool in this run."""
    settings = run.info.settings.tools.get(call.tool)
    spec = run.info.tools.get(call.tool)
    if call.arguments is not None and spec is not None:
        call.arguments = decoding.renamed(call.arguments, decoding.parameter_names(spec.schema))
    if settings is not None and settings.effect is not None:
        call.effect = settings.effect
    elif spec is not None:
        call.effect = spec.effect
    else:
        call.effect = Effect.UNKNOWN
    ignore = frozenset(settings.ignore) if settings is not None else frozenset()
    call.fingerprint = call_digest(call.tool, call.arguments, ignore=ignore)


def _write_onto(span: Span, run: Run, decision: Decision) -> None:
    finding = decision.finding or decision.findings[0]
    span.set_attributes(
        {
            AGENTGUARD_RUN_ID: run.run_id,
            AGENTGUARD_ACTION: str(decision.action),
            AGENTGUARD_FINDING_KIND: finding.kind.value,
            AGENTGUARD_EVIDENCE_STEPS: finding.evidence,
        }
    )
