"""The seam in the tool path of a framework: a verdict of the guard becomes a tool result, or the stop of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import Token
from dataclasses import replace
from typing import Generic, Self, TypeVar, cast

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.util.types import AttributeValue

from otel_agentguard import words
from otel_agentguard.adapters.contract import Carrier, Reading, Results, ToolRequest
from otel_agentguard.current import Scope, scope, within
from otel_agentguard.dedup.dedup import Dedup
from otel_agentguard.dedup.rules import Answer, NotKept, Rule, rule_for
from otel_agentguard.errors import CallBlocked, RunAborted, RunStopped
from otel_agentguard.events import OK, Effect, Outcome, ToolCall
from otel_agentguard.findings import Finding
from otel_agentguard.fingerprint import call_digest, result_digest
from otel_agentguard.guard import Guard, installed
from otel_agentguard.runs import PASS, Decision
from otel_agentguard.seams.calls import ToolPlan
from otel_agentguard.seams.declare import ToolDeclaration, declaration_named, declaration_of
from otel_agentguard.seams.handed import HANDED_KEY, HandedOn, call_around
from otel_agentguard.semconv import (
    AGENTGUARD_CACHE_HIT,
    AGENTGUARD_EFFECT,
    GEN_AI_AGENT_NAME,
    GEN_AI_OPERATION_NAME,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
    OPERATION_EXECUTE_TOOL,
    SPAN_EXECUTE_TOOL,
)
from otel_agentguard.shown import error_text

R = TypeVar("R")

_MAX_PLANS = 4096
_plans: dict[str, ToolPlan] = {}
_NO_NAMES: frozenset[str] = frozenset()
_EFFECT_NAMES = {effect: effect.value for effect in Effect}


def is_call_told(tool: str) -> bool:
    """Whether a seam further out tells of the call of this tool that this code makes."""
    outer = call_around()
    return outer is not None and outer.call.tool == tool


class ToolSeam:
    """The place around the tool calls of one framework.

    Attributes:
        carrier: What ends the run from here; None where nothing may be raised in the tool path, so that the
            model is told instead and the next model call, or the entry, ends the run.
        pauses: Exceptions of the framework that only interrupt a call, to be run again later.
    """

    def __init__(self, carrier: Carrier | None, *, pauses: tuple[type[BaseException], ...] = ()) -> None:
        self.carrier = carrier
        self.pauses = pauses

    def call(self, decode: Callable[[], ToolRequest | None], results: Results[R], body: Callable[[], R]) -> R:
        """Take one call through the guard.

        Args:
            decode: Reads the call; None lets it pass, and so does what it raises.
            results: Reads and writes results of this call.
            body: Runs the tool.

        Returns:
            The tool's result, with a note where there is one; or a refusal in its place.

        Raises:
            RunAborted: The run must end (the carrier).
            BaseException: What the body raised.
        """
        step = _begin(decode)
        if step is None:
            return body()
        if (refusal := step.before(step.call)) is not None:
            return self._refused(step, refusal, results)
        answering = Answering.of(step, results)
        try:
            with step:
                result = body() if answering is None else answering.run(body)
        except BaseException as exc:
            decision = step.after(step.call) if step.took_error(exc, self.pauses) else PASS
            return self._ended_in_error(step, decision, exc, results)
        decision = step.after(step.call) if step.took(result, results) else PASS
        return self._ended(step, decision, result, results)

    async def call_async(
        self, decode: Callable[[], ToolRequest | None], results: Results[R], body: Callable[[], Awaitable[R]]
    ) -> R:
        """`call` for a coroutine."""
        step = _begin(decode)
        if step is None:
            return await body()
        if (refusal := await step.before_async(step.call)) is not None:
            return self._refused(step, refusal, results)
        answering = Answering.of(step, results)
        try:
            with step:
                result = await (body() if answering is None else answering.run_async(body))
        except Exception as exc:
            decision = await step.after_async(step.call) if step.took_error(exc, self.pauses) else PASS
            return self._ended_in_error(step, decision, exc, results)
        except BaseException as exc:
            decision = step.after(step.call) if step.took_error(exc, self.pauses) else PASS
            return self._ended_in_error(step, decision, exc, results)
        decision = await step.after_async(step.call) if step.took(result, results) else PASS
        return self._ended(step, decision, result, results)

    def _refused(self, step: FrameworkCall, refusal: BaseException, results: Results[R]) -> R:
        step.finish(refusal)
        if isinstance(refusal, RunAborted | RunStopped):
            return self._stopped(step, refusal.finding, results)
        return results.refusal(refusal.message if isinstance(refusal, CallBlocked) else str(refusal))

    def _ended(self, step: FrameworkCall, decision: Decision, result: R, results: Results[R]) -> R:
        if step.late is not None:
            return self._refused(step, step.late, results)
        stop = step.reason_to_end(decision)
        step.finish(None)
        if stop is not None:
            return self._stopped(step, stop, results)
        notes = step.notes + decision.notes
        return _with_notes(step, result, results, notes) if notes and step.enforce else result

    def _ended_in_error(self, step: FrameworkCall, decision: Decision, error: BaseException, results: Results[R]) -> R:
        if step.late is not None:
            return self._refused(step, step.late, results)
        step.keep_notes(step.notes + decision.notes)
        step.finish(error)
        if step.is_its_stop(error):
            if self.carrier is not None and isinstance(error, self.carrier):
                raise error
            return self._stopped(step, getattr(error, "finding", None), results, error)
        stop = step.reason_to_end(decision) if isinstance(error, Exception) else None
        if stop is not None:
            return self._stopped(step, stop, results, error)
        raise error

    def _stopped(
        self, step: FrameworkCall, finding: Finding | None, results: Results[R], cause: BaseException | None = None
    ) -> R:
        if self.carrier is None:
            return results.refusal(words.run_stopped())
        raise self.carrier(finding, run_id=step.run.run_id) from cause


class FrameworkCall(HandedOn):
    """One call of a framework's tool on its way through the guard.

    Inside of `with`, declared tools know that this call is accounted for.

    Args:
        guard: The installed guard.
        here: Where the call happens.
        around: The context that it happens in.
        request: The call.
    """

    _handing_on: Token[Context]

    def __init__(self, guard: Guard, here: Scope, around: Context, request: ToolRequest) -> None:
        run = here.run
        if run is None and request.conversation is not None:
            run = guard.implicit.of_conversation(request.conversation)
            here = replace(here, left=None)
        super().__init__(guard, here, run=run, around=around)
        if request.agent is not None:
            self.agent = request.agent
        if here.run is None:
            self._around = within(self.run, here, around)
        self.declaration = declaration_for(request)
        may_refuse = guard.enforce_auto if self.declaration is None else guard.enforce
        self.enforce = may_refuse and not request.is_control
        self.call = event_of(guard, self.agent, request, self.declaration)
        attributes: dict[str, AttributeValue] = {
            GEN_AI_OPERATION_NAME: OPERATION_EXECUTE_TOOL,
            GEN_AI_TOOL_NAME: request.tool,
            GEN_AI_AGENT_NAME: self.agent,
            AGENTGUARD_EFFECT: _EFFECT_NAMES[self.call.effect],
        }
        if request.call_id is not None:
            attributes[GEN_AI_TOOL_CALL_ID] = request.call_id
        self.start(f"{SPAN_EXECUTE_TOOL} {request.tool}", attributes)

    def __enter__(self) -> Self:
        """The body of the call is about to run."""
        self._handing_on = context.attach(context.set_value(HANDED_KEY, self))
        return self

    def __exit__(self, *_: object) -> None:
        """It is over."""
        context.detach(self._handing_on)

    def took(self, result: R, results: Results[R]) -> bool:
        """Take in what the framework made of the call, where a declared tool inside has not told more.

        Returns:
            Whether the engine is to be told.
        """
        if self.late is not None:
            return self._did_not_happen()
        if self.was_told:
            return True
        call = self.call
        call.ended_s = self.guard.engine.now_s()
        try:
            value, failed, known = results.read(result)
            call.result_digest = result_digest(failed, value, on_fallback=self.guard.opaque) if known else None
        except Exception as exc:
            self.guard.engine.failed("adapter", exc)
            value, failed, known = Reading(None, known=False)
        call.outcome = Outcome.FAILED if failed else OK
        call.result = value
        call.result_known = known and call.result_digest is not None
        return True

    def took_error(self, error: BaseException, pauses: tuple[type[BaseException], ...]) -> bool:
        """Take in what the tool raised; what is no `Exception` leaves the outcome unknown. See `took`."""
        if self.late is not None:
            return self._did_not_happen()
        if self.was_told:
            return True
        call = self.call
        call.ended_s = self.guard.engine.now_s()
        if isinstance(error, pauses) and not isinstance(error, RunAborted):
            call.outcome = Outcome.NOT_EXECUTED
            call.result_known = False
        elif isinstance(error, Exception) and not self.is_its_stop(error):
            call.outcome = Outcome.FAILED
            call.result = error_text(error)
            call.result_digest = result_digest(True, call.result)
        else:
            call.outcome = Outcome.UNKNOWN
            call.result_known = False
        return True

    def is_its_stop(self, error: BaseException) -> bool:
        """Whether an error is the stop of this run, on its way out."""
        return isinstance(error, RunAborted | RunStopped) and error.run_id == self.run.run_id

    def reason_to_end(self, decision: Decision) -> Finding | None:
        """Why the run must end although the call has happened; None where it may go on."""
        if (stop := self.stop_after(decision)) is not None:
            return getattr(stop, "finding", None)
        run = self.run
        if not self.enforce or not run.can_stop or (run.stopped is None and run.parent is None):
            return None
        return run.stop_reason()

    def finish(self, error: BaseException | None) -> None:
        """End the span."""
        if self.guard.captures_content:
            self.more = {**(self.more or {}), **self._content()}
        self.end(self.call, self.call.fingerprint, error=error, more=self.more)

    def _did_not_happen(self) -> bool:
        call = self.call
        if call.refused:
            return False
        call.outcome = Outcome.NOT_EXECUTED
        call.served_from = "guard"
        call.ended_s = self.guard.engine.now_s()
        return True

    def _content(self) -> Mapping[str, str]:
        content = {}
        if self.call.arguments is not None:
            content[GEN_AI_TOOL_CALL_ARGUMENTS] = self.guard.content(self.call.arguments)
        if self.call.outcome is OK and self.call.result_known:
            content[GEN_AI_TOOL_CALL_RESULT] = self.guard.content(self.call.result)
        return content


class Answering(Generic[R]):
    """A call of a tool that the settings declare to be pure or to read: its body need not run for a known answer.

    A tool that is declared in code answers at its own seam, further in.
    """

    def __init__(self, step: FrameworkCall, results: Results[R], dedup: Dedup, rule: Rule) -> None:
        self._step = step
        self._results = results
        self._dedup = dedup
        self._rule = rule
        self._made: R | None = None

    @classmethod
    def of(cls, step: FrameworkCall, results: Results[R]) -> Answering[R] | None:
        """What answers a call; None where its body must run, of which the answers of others are told."""
        dedup = step.guard.dedup
        if dedup is None or not dedup.is_on or step.declaration is not None:
            return None
        call = step.call
        own = step.guard.settings.tools.get(call.tool)
        rule = None if own is None else rule_for(call.tool, call.effect, ttl_s=own.ttl_s, cache=own.cache)
        if rule is not None and step.enforce and not step.scope.fresh:
            return cls(step, results, dedup, rule)
        dedup.answers.began(step.run.info, call)
        return None

    def run(self, body: Callable[[], R]) -> R:
        """The result of the call, made now or again."""

        def made() -> object:
            self._last_look()
            self._made = body()
            return self._value()

        try:
            answer = self._dedup.answers.answer(self._step.run.info, self._step.call, self._rule, made)
        except _NotKept:
            return cast("R", self._made)
        return self._given(answer)

    async def run_async(self, body: Callable[[], Awaitable[R]]) -> R:
        """`run` for a coroutine."""

        async def made() -> object:
            self._last_look()
            self._made = await body()
            return self._value()

        try:
            answer = await self._dedup.answers.answer_async(self._step.run.info, self._step.call, self._rule, made)
        except _NotKept:
            return cast("R", self._made)
        return self._given(answer)

    def _value(self) -> object:
        """What is kept of the result; a failure, or what cannot be read, is not."""
        try:
            reading = self._results.read(cast("R", self._made))
        except Exception as exc:
            self._step.guard.engine.failed("adapter", exc)
            raise _NotKept from exc
        if reading.failed or not reading.known:
            raise _NotKept
        return reading.value

    def _given(self, answer: Answer[object]) -> R:
        step = self._step
        if step.call.served_from != "cache":
            return cast("R", self._made)
        step.more = {AGENTGUARD_CACHE_HIT: True}
        if answer.note:
            step.notes += (answer.note,)
        return self._results.again(answer.value)

    def _last_look(self) -> None:
        step = self._step
        step.late = step.last_look(step.call)
        if step.late is not None:
            raise _NotKept


class _NotKept(NotKept):
    """A result is given, but is no answer for later calls."""


def _begin(decode: Callable[[], ToolRequest | None]) -> FrameworkCall | None:
    guard = installed.guard
    if guard is None:
        return None
    around = context.get_current()
    here = scope(around)
    try:
        request = decode()
        if request is None:
            return None
        if here.unguarded:
            guard.tell("unguarded", request.tool)
            return None
        return FrameworkCall(guard, here, around, request)
    except RunAborted:
        raise
    except Exception as exc:
        guard.engine.failed("adapter", exc)
        return None


def declaration_for(request: ToolRequest) -> ToolDeclaration | None:
    """What the program has declared of the tool of a call."""
    if request.function is not None:
        return declaration_of(request.function)
    return declaration_named(request.tool)


def event_of(guard: Guard, agent: str, request: ToolRequest, declaration: ToolDeclaration | None) -> ToolCall:
    """The event of a call, as its declaration or the settings say.

    The call of a declared tool has the identity that it has where the program calls it directly.
    """
    settings = guard.settings.tools.get(request.tool)
    effect = settings.effect if settings is not None else None
    if declaration is not None:
        call = _plan(guard, declaration).call(agent, (), request.arguments or {})
        if call.arguments is not None or request.arguments is None:
            call.call_id, call.batch = request.call_id, request.batch
            if effect is None and call.effect is Effect.UNKNOWN:
                call.effect = request.effect
            if request.arguments is None:
                call.arguments = call.fingerprint = None
            return call
    ignore = frozenset(settings.ignore) if settings is not None else _NO_NAMES
    return ToolCall(
        agent=agent,
        at_s=guard.engine.now_s(),
        tool=request.tool,
        fingerprint=call_digest(request.tool, request.arguments, ignore=ignore, on_fallback=guard.opaque),
        arguments=request.arguments,
        effect=request.effect if effect is None else effect,
        call_id=request.call_id,
        batch=request.batch,
    )


def _plan(guard: Guard, declaration: ToolDeclaration) -> ToolPlan:
    plan = _plans.get(declaration.name)
    if plan is None or plan.guard is not guard or plan.declaration is not declaration:
        plan = ToolPlan(guard, declaration, declaration.function)
        if len(_plans) < _MAX_PLANS or declaration.name in _plans:
            _plans[declaration.name] = plan
    return plan


def _with_notes(step: FrameworkCall, result: R, results: Results[R], notes: tuple[str, ...]) -> R:
    try:
        noted = results.with_note(result, "\n".join(notes))
    except Exception as exc:
        step.guard.engine.failed("adapter", exc)
        noted = None
    if noted is None:
        step.keep_notes(notes)
        return result
    return noted
