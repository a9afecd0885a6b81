"""The seam at the public run methods of a framework: where a run begins, and where a stopped one always ends."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextvars import Token
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry import context, trace
from opentelemetry.context import Context

from otel_agentguard.adapters.contract import Carrier, EntryRequest
from otel_agentguard.current import SCOPE_KEY, Scope, scope
from otel_agentguard.errors import RunAborted
from otel_agentguard.events import Handoff, Message, Trigger, Turn
from otel_agentguard.fingerprint import digest, text_digest
from otel_agentguard.guard import Guard, installed
from otel_agentguard.runs import Run
from otel_agentguard.seams.step import Step, end_agent_span, stopped
from otel_agentguard.seams.streams import Watch, relaying, relaying_async
from otel_agentguard.seams.turns import take_turn
from otel_agentguard.seen import SEAM, Sighting
from otel_agentguard.semconv import (
    GEN_AI_AGENT_NAME,
    GEN_AI_OPERATION_NAME,
    OPERATION_INVOKE_AGENT,
    SPAN_INVOKE_AGENT,
)

R = TypeVar("R")

_INSIDE = context.create_key("agentguard-entry")
_PASS_THROUGH = (KeyboardInterrupt, SystemExit, GeneratorExit)


class RunEntry:
    """The place around the public run methods of one framework.

    The outermost one opens the run, by the conversation where one is known, else for this call; inside of a
    run, `run()` included, it is that run under another agent name. However a stopped run comes back from the
    framework, the outermost entry ends it in `RunAborted`, with what arrived as its `__cause__`; inner ones let
    the carrier go on.

    Args:
        carrier: What ends the run from an inner entry.
    """

    def __init__(self, carrier: Carrier = RunAborted) -> None:
        self._carrier = carrier

    def call(
        self,
        decode: Callable[[], EntryRequest | None],
        body: Callable[[], R],
        *,
        said: Callable[[R], str | None] | None = None,
    ) -> R:
        """Take one run of an agent through the guard.

        Args:
            decode: Reads what is asked; None lets it pass, and so does what it raises.
            body: Runs the agent.
            said: Reads the agent's answer from what comes back (from the last item, of a run that yields), for
                agents that talk to one another; None where there is no text.

        Raises:
            RunAborted: The run was stopped, or the conversation was and nothing new was said.
            BaseException: What the body raised, of a run that was not stopped.
        """
        entered = self._enter(decode, said)
        if entered is None:
            return body()
        entered.resume()
        try:
            value = body()
        except BaseException as exc:
            entered.raised(exc)
            raise
        entered.took(value)
        entered.returned()
        return value

    async def call_async(
        self,
        decode: Callable[[], EntryRequest | None],
        body: Callable[[], Awaitable[R]],
        *,
        said: Callable[[R], str | None] | None = None,
    ) -> R:
        """`call` for a coroutine."""
        entered = self._enter(decode, said)
        if entered is None:
            return await body()
        entered.resume()
        try:
            value = await body()
        except BaseException as exc:
            entered.raised(exc)
            raise
        entered.took(value)
        entered.returned()
        return value

    def stream(
        self,
        decode: Callable[[], EntryRequest | None],
        body: Callable[[], Generator[Any, Any, Any]],
        *,
        said: Callable[[Any], str | None] | None = None,
    ) -> Generator[Any, Any, Any]:
        """`call` for a run that yields: entered with the first item, left with the last."""
        return relaying(lambda args, kwargs: _begun(self._enter(decode, said), body))()

    def stream_async(
        self,
        decode: Callable[[], EntryRequest | None],
        body: Callable[[], AsyncGenerator[Any, Any]],
        *,
        said: Callable[[Any], str | None] | None = None,
    ) -> AsyncGenerator[Any, Any]:
        """`stream` for an async generator."""

        async def begin(args: Any, kwargs: Any) -> tuple[AsyncGenerator[Any, Any], Entered | None]:
            return _begun(self._enter(decode, said), body)

        return relaying_async(begin)()

    def open(
        self, decode: Callable[[], EntryRequest | None], *, said: Callable[[Any], str | None] | None = None
    ) -> Entered | None:
        """Enter by hand, where the run of an agent is no call and no generator.

        Call `resume` and `park` around its code, then one of `returned`, `closed` and `raised`, which may raise.
        """
        return self._enter(decode, said)

    def _enter(
        self, decode: Callable[[], EntryRequest | None], said: Callable[[Any], str | None] | None
    ) -> Entered | None:
        guard = installed.guard
        if guard is None or scope().unguarded:
            return None
        try:
            request = decode()
            return None if request is None else Entered(guard, request, self._carrier, said)
        except RunAborted:
            raise
        except Exception as exc:
            guard.engine.failed("adapter", exc)
            return None


class Entered(Watch):
    """One run of an agent by a framework; a `Watch` where it yields.

    Attributes:
        run: The run that it belongs to.

    Args:
        guard: The installed guard.
        request: What is asked.
        carrier: What ends the run from an inner entry.
        said: Reads the agent's answer from the last thing that it took.

    Raises:
        RunAborted: The run was stopped before, and nothing new was said.
        RunStopped: The `run()` around was stopped before.
    """

    def __init__(
        self,
        guard: Guard,
        request: EntryRequest,
        carrier: Carrier,
        said: Callable[[Any], str | None] | None = None,
    ) -> None:
        if guard.processor_pending:
            guard.meet_provider()
        around = scope()
        self._guard = guard
        self._carrier = carrier
        self._said = said
        self._last: object = None
        self._is_inner = around.run is not None and context.get_value(_INSIDE) == around.run.run_id
        self._ends_run = around.run is None and request.conversation is None
        if around.run is not None and (reason := around.run.stop_reason()) is not None:
            raise carrier(reason, run_id=around.run_id) if self._is_inner else stopped(around, around.run, reason)
        self.run = around.run or _opened(guard, request)
        if around.run is None:
            try:
                self.run = take_users_turn(guard, self.run, around, request)
            except BaseException:
                if self._ends_run:
                    guard.leave_run(self.run, failed=True)
                raise
        elif not self._is_inner and request.is_user_turn and _is_asked_again(self.run, request):
            take_turn(guard, around, Turn(trigger=Trigger.USER, text=request.user_text))
        agent = request.agent or around.agent or self.run.info.agent
        self._scope = replace(around, run=self.run, run_id=self.run.run_id, agent=agent, left=None)
        self._token: Token[Context] | None = None
        self._began_ns = time.time_ns()
        ctx = context.get_current()
        attributes = {GEN_AI_OPERATION_NAME: OPERATION_INVOKE_AGENT, GEN_AI_AGENT_NAME: agent}
        try:
            self._span = guard.tracer.start_span(f"{SPAN_INVOKE_AGENT} {agent}", ctx, attributes=attributes)
        except Exception as exc:
            guard.engine.failed("span", exc)
            self._span = trace.INVALID_SPAN
        ctx = context.set_value(SCOPE_KEY, self._scope, trace.set_span_in_context(self._span, ctx))
        self._context = context.set_value(_INSIDE, self.run.run_id, ctx)

    def resume(self) -> None:
        """Be in the run: its code is about to go on."""
        self._token = context.attach(self._context)

    def park(self) -> None:
        """Leave the context of the caller as it was: its code waits, or is over."""
        if self._token is not None:
            context.detach(self._token)
            self._token = None

    def took(self, item: object) -> None:
        """It yielded, or is about to return this."""
        self._last = item

    def returned(self) -> None:
        """It came back without an error; raises `RunAborted` where it was stopped."""
        if self._said is not None:
            self._tell_answer(self._said)
        self._leave(None)

    def closed(self) -> None:
        """Its consumer wants no more."""
        self._end(None)

    def raised(self, error: BaseException) -> None:
        """It raised; raises `RunAborted` from that where it was stopped."""
        self._leave(error)

    def _tell_answer(self, said: Callable[[Any], str | None]) -> None:
        """Tell what the agent answered; it is given to whoever asked in any case."""
        guard = self._guard
        try:
            text = said(self._last)
            if text is not None:
                agent = self._scope.agent or self.run.info.agent
                event = Message(agent=agent, at_s=guard.engine.now_s(), text=text, digest=text_digest(text))
                # A span of the framework inside of this may have told of it as it ended.
                if self.run.seen.is_news(Sighting(event, SEAM, self._began_ns, time.time_ns())):
                    guard.engine.observe(self.run, event, enforce=guard.enforce_auto)
        except Exception as exc:
            guard.engine.failed("adapter", exc)

    def _end(self, error: BaseException | None) -> None:
        self.park()
        end_agent_span(self._guard, self._span, self.run, error)
        if self._ends_run:
            self._guard.leave_run(self.run, failed=error is not None)

    def _leave(self, error: BaseException | None) -> None:
        reason = self.run.stop_reason()
        kind = self._carrier if self._is_inner else RunAborted
        stop = None
        if reason is not None and not isinstance(error, _PASS_THROUGH):
            is_that = type(error) is kind and isinstance(error, RunAborted) and error.run_id == self.run.run_id
            stop = None if is_that else kind(reason, run_id=self.run.run_id)
        self._end(stop or error)
        if stop is not None:
            raise stop from error


def tell_handoff(
    to: str,
    *,
    agent: str | None = None,
    text: str | None = None,
    handed: object = None,
    carrier: Carrier = RunAborted,
) -> None:
    """Tell that control passes to another agent.

    Args:
        to: The agent that goes on.
        agent: The agent that hands over; None for the one that acts here.
        text: What was handed over, where it is a text.
        handed: What was handed over, where it is more, as JSON values; equal ones in turn may be a loop.
        carrier: What ends the run from here.

    Raises:
        RunAborted: The run must end (the carrier). A handoff is never just refused.
    """
    guard = installed.guard
    here = scope()
    if guard is None or here.unguarded:
        return
    step = Step(guard, here)
    step.enforce = guard.enforce_auto
    event = Handoff(agent=agent or step.agent, at_s=guard.engine.now_s(), to=to, text=text)
    what = text if handed is None else handed
    if what is not None:
        event.digest = digest(what, on_fallback=guard.opaque)
    refusal = step.before(event)
    if refusal is None:
        decision = step.after(event)
        step.keep_notes(decision.notes)
        refusal = step.stop_after(decision)
    if refusal is not None and step.run.stop_reason() is not None:
        raise carrier(getattr(refusal, "finding", None), run_id=step.run.run_id)


def _begun(entered: Entered | None, body: Callable[[], R]) -> tuple[R, Entered | None]:
    if entered is None:
        return body(), None
    entered.resume()
    try:
        return body(), entered
    finally:
        entered.park()


def _opened(guard: Guard, request: EntryRequest) -> Run:
    if request.conversation is not None:
        return guard.implicit.of_conversation(request.conversation)
    return guard.enter_run(partial(guard.engine.open, agent=request.agent or "agent", tools=guard.specs))


def take_users_turn(guard: Guard, run: Run, around: Scope, request: EntryRequest) -> Run:
    """Take the turn that the input of an outermost entry is.

    Returns:
        The run that goes on: another one where this one was stopped before.

    Raises:
        RunAborted: The run was stopped, and the input brings nothing new.
    """
    if not request.is_user_turn:
        reason = run.stop_reason() or run.awaits_user
        if guard.enforce_auto and reason is not None:
            raise RunAborted(reason, run_id=run.run_id)
        return run
    if run.stopped is not None:
        run = guard.implicit.renew(run)
    here = replace(around, run=run, run_id=run.run_id, agent=request.agent, left=None)
    take_turn(guard, here, Turn(trigger=Trigger.USER, text=request.user_text))
    return run


def _is_asked_again(run: Run, request: EntryRequest) -> bool:
    """Whether the input of an outermost entry inside of a run is a new turn of its user.

    The agents of a program that lets them talk to one another are told so with user messages too; so a message
    to another agent than the one before is taken as theirs.
    """
    agent = request.agent or ""
    before = _asked_last.get(run)
    _asked_last[run] = agent
    return before is None or before == agent


_asked_last: WeakKeyDictionary[Run, str] = WeakKeyDictionary()
