"""One call of a declared tool on its way through the guard."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.util.types import AttributeValue

from otel_agentguard.binding import Binder, ByName, by_name
from otel_agentguard.config import ToolSettings
from otel_agentguard.current import Scope
from otel_agentguard.dedup.rules import rule_for
from otel_agentguard.effects.calls import EffectSpec
from otel_agentguard.errors import CallBlocked
from otel_agentguard.events import OK, SIDE_EFFECT, Outcome, ToolCall
from otel_agentguard.fingerprint import call_digest, result_digest
from otel_agentguard.guard import Guard
from otel_agentguard.runs import PASS, Decision
from otel_agentguard.seams.declare import ToolDeclaration
from otel_agentguard.seams.step import Attributes, Step
from otel_agentguard.seams.streams import Watch, Yielded
from otel_agentguard.semconv import (
    AGENTGUARD_EFFECT,
    GEN_AI_AGENT_NAME,
    GEN_AI_OPERATION_NAME,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
    OPERATION_EXECUTE_TOOL,
    SPAN_EXECUTE_TOOL,
)
from otel_agentguard.shown import error_text

_MAX_AGENTS = 256
_NO_SETTINGS: ToolSettings = ToolSettings()


class ToolPlan:
    """A declaration under one guard: everything about its calls that can be known before them.

    Attributes:
        guard: The guard.
        declaration: The declaration.
        effect: What the tool does, as the settings or the declaration say.
        span_name: Name of the spans of its calls.
        effect_spec: What the ledger needs to know; None for what is no side effect.
        on_opaque: Is told of values that have no stable form.
        passing: The function, its key parameter filled; for calls that the ledger does not see.
        answers: What may be done with its answers; None where its body must always run.
    """

    __slots__ = (
        "_attributes",
        "_binder",
        "_ignore",
        "_scope",
        "_touches",
        "answers",
        "declaration",
        "effect",
        "effect_spec",
        "guard",
        "on_opaque",
        "passing",
        "span_name",
    )

    def __init__(self, guard: Guard, declaration: ToolDeclaration, passing: Callable[..., Any]) -> None:
        own = guard.settings.tools.get(declaration.name, _NO_SETTINGS)
        self.guard = guard
        self.declaration = declaration
        self.effect = own.effect or declaration.effect
        self.span_name = f"{SPAN_EXECUTE_TOOL} {declaration.name}"
        hidden = () if declaration.key_param is None else (declaration.key_param,)
        self._binder = Binder(declaration.function, skip_first=declaration.skip_first, hidden=hidden)
        self._ignore = frozenset(own.ignore or declaration.ignore)
        self._touches = by_name(declaration.touches) if callable(declaration.touches) else declaration.touches
        self._scope = by_name(declaration.scope) if callable(declaration.scope) else None
        self._attributes: dict[str, Attributes] = {}
        self.passing = passing
        self.on_opaque = guard.opaque
        self.effect_spec: EffectSpec | None = None
        self.answers = rule_for(
            declaration.name,
            self.effect,
            ttl_s=declaration.ttl_s if own.ttl_s is None else own.ttl_s,
            cache=declaration.cache if own.cache is None else own.cache,
        )
        if self.effect is SIDE_EFFECT:
            guard.declare_side_effect(declaration.name)

    def call(self, agent: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ToolCall:
        """The event of one call."""
        arguments = self._binder.bind(args, kwargs)
        scope = self._scope
        scoped = "" if scope is None or arguments is None else str(self._asked("scope", scope, arguments) or "")
        declaration = self.declaration
        return ToolCall(
            agent=agent,
            at_s=self.guard.engine.now_s(),
            tool=declaration.name,
            fingerprint=call_digest(
                declaration.name,
                arguments,
                scope=scoped,
                version=declaration.version,
                ignore=self._ignore,
                on_fallback=self.on_opaque,
            ),
            arguments=arguments,
            effect=self.effect,
            touches=self._touched(arguments) if callable(self._touches) else self._touches,
            scope=scoped,
            claimed=self.effect is SIDE_EFFECT,
        )

    def attributes(self, agent: str) -> Attributes:
        """What is known of every call of this tool by this agent."""
        known = self._attributes.get(agent)
        if known is None:
            known = {
                GEN_AI_OPERATION_NAME: OPERATION_EXECUTE_TOOL,
                GEN_AI_TOOL_NAME: self.declaration.name,
                GEN_AI_AGENT_NAME: agent,
                AGENTGUARD_EFFECT: self.effect.value,
            }
            if len(self._attributes) < _MAX_AGENTS:
                self._attributes[agent] = known
        return known

    def _touched(self, arguments: Mapping[str, object] | None) -> tuple[str, ...] | None:
        if arguments is None or not callable(self._touches):
            return None
        named = self._asked("touches", self._touches, arguments)
        if named is None or isinstance(named, str):
            return None if named is None else (named,)
        if not isinstance(named, Iterable):
            self.guard.engine.failed("touches", TypeError(f"touches returned {named!r}; it returns names"))
            return None
        return tuple(map(str, named))

    def _asked(self, where: str, ask: ByName, arguments: Mapping[str, object]) -> object:
        try:
            return ask(arguments)
        except Exception as exc:
            self.guard.engine.failed(where, exc)
            return None


class ToolStep(Step):
    """One call of a declared tool.

    Attributes:
        call: Its event.
        plan: Its tool.
        more: Further attributes of its span.
    """

    more: dict[str, AttributeValue] | None = None
    _remarks: tuple[str, ...] = ()

    def __init__(
        self,
        plan: ToolPlan,
        scope: Scope,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        current: bool = True,
        around: Context | None = None,
    ) -> None:
        super().__init__(plan.guard, scope, around=around)
        self.plan = plan
        self.call = plan.call(self.agent, args, kwargs)
        self.start(plan.span_name, plan.attributes(self.agent), current=current)

    def refused(self, refusal: BaseException) -> str:
        """End the span of a call that must not happen.

        Returns:
            What the caller gets in its place, where the tool takes its notes inline.

        Raises:
            BaseException: The refusal, everywhere else.
        """
        self.end(self.call, error=refusal, more=self.more)
        if isinstance(refusal, CallBlocked) and self.plan.declaration.inline_notes:
            return refusal.message
        raise refusal

    def refused_late(self) -> None:
        """Tell the engine of a call that it let through and that did not happen all the same."""
        call = self.call
        if not call.refused:
            call.outcome = Outcome.NOT_EXECUTED
            call.served_from = "guard"
            call.ended_s = self.guard.engine.now_s()
            self.after(call)

    def remark(self, note: str) -> None:
        """Have a note delivered with the result."""
        self._remarks = (*self._remarks, note)

    def succeeded(self, value: object) -> None:
        """Take in what the body returned."""
        call = self.call
        call.outcome = OK
        call.ended_s = self.guard.engine.now_s()
        try:
            call.result_digest = result_digest(False, value, on_fallback=self.plan.on_opaque)
        except Exception as exc:
            self.guard.engine.failed("fingerprint", exc)
        call.result = value
        call.result_known = call.result_digest is not None

    def failed(self, error: BaseException) -> None:
        """Take in what the body raised; what is no `Exception` leaves the outcome unknown."""
        call = self.call
        call.ended_s = self.guard.engine.now_s()
        if isinstance(error, Exception):
            call.outcome = Outcome.FAILED
            call.result = error_text(error)
            call.result_digest = result_digest(True, call.result)
        else:
            call.outcome = Outcome.UNKNOWN
            call.result_known = False

    def told(self, decision: Decision, error: BaseException | None = None) -> None:
        """End the span of a call that has happened.

        Raises:
            RunStopped: The run must end now (`RunAborted` outside of `run()`).
        """
        stop = None
        if decision is not PASS and (error is None or isinstance(error, Exception)):
            stop = self.stop_after(decision)
        if self.guard.captures_content:
            self.more = {**(self.more or {}), **self._content()}
        self.end(self.call, error=stop or error, more=self.more)
        if stop is not None:
            raise stop from error

    def delivered(self, decision: Decision, value: Any) -> Any:
        """The result as the caller gets it: with the note at its head where the tool takes them inline."""
        notes = self._remarks + decision.notes
        if notes and self.enforce:
            if self.plan.declaration.inline_notes and type(value) is str:
                return "\n".join((*notes, "", value))
            self.keep_notes(notes)
        return value

    def finish(self, value: Any) -> Any:
        """Account for a body that returned; what the caller gets."""
        self.succeeded(value)
        decision = self.after(self.call)
        if decision is PASS and not self._remarks and not self.guard.captures_content:
            self.end(self.call, more=self.more)
            return value
        self.told(decision)
        return self.delivered(decision, value)

    async def finish_async(self, value: Any) -> Any:
        """`finish`, awaiting the callbacks of the application."""
        self.succeeded(value)
        decision = await self.after_async(self.call)
        self.told(decision)
        return value if decision is PASS and not self._remarks else self.delivered(decision, value)

    def fail(self, error: BaseException) -> None:
        """Account for a body that raised; the caller raises `error` again."""
        self.failed(error)
        decision = self.after(self.call)
        self.told(decision, error)
        self.keep_notes(decision.notes)

    async def fail_async(self, error: Exception) -> None:
        """`fail`, awaiting the callbacks of the application."""
        self.failed(error)
        decision = await self.after_async(self.call)
        self.told(decision, error)
        self.keep_notes(decision.notes)

    def _content(self) -> dict[str, str]:
        content = {}
        if self.call.arguments is not None:
            content[GEN_AI_TOOL_CALL_ARGUMENTS] = self.guard.content(self.call.arguments)
        if self.call.outcome is OK:
            content[GEN_AI_TOOL_CALL_RESULT] = self.guard.content(self.call.result)
        return content


class ToolWatch(Watch):
    """A declared tool that yields its result.

    Args:
        step: Its call, let through.
    """

    def __init__(self, step: ToolStep) -> None:
        self._step = step
        self._yielded = Yielded()

    def resume(self) -> None:
        """See `Watch`."""
        self._step.resume()

    def park(self) -> None:
        """See `Watch`."""
        self._step.park()

    def took(self, item: object) -> None:
        """See `Watch`."""
        self._yielded.add(item, self._step.guard.opaque)

    def returned(self) -> None:
        """See `Watch`; raises where the run must end now."""
        self._account()
        self._told(self._step.after(self._step.call))

    async def returned_async(self) -> None:
        """See `Watch`; raises where the run must end now."""
        self._account()
        self._told(await self._step.after_async(self._step.call))

    def closed(self) -> None:
        """See `Watch`."""
        step = self._step
        self._account()
        step.keep_notes(step.after(step.call).notes)
        step.end(step.call)

    async def closed_async(self) -> None:
        """See `Watch`."""
        step = self._step
        self._account()
        step.keep_notes((await step.after_async(step.call)).notes)
        step.end(step.call)

    def raised(self, error: BaseException) -> None:
        """See `Watch`."""
        self._step.fail(error)

    async def raised_async(self, error: BaseException) -> None:
        """See `Watch`."""
        if isinstance(error, Exception):
            await self._step.fail_async(error)
        else:
            self._step.fail(error)

    def _told(self, decision: Decision) -> None:
        self._step.told(decision)
        self._step.keep_notes(decision.notes)

    def _account(self) -> None:
        self._step.succeeded(self._yielded.text())
        self._step.call.result_digest = self._yielded.digest
        self._step.call.result_known = self._yielded.digest is not None


def is_deferred(value: object) -> bool:
    """Whether a plain function returned a coroutine, whose body has not run yet."""
    return inspect.iscoroutine(value)


async def deferred(step: ToolStep, body: Awaitable[Any]) -> Any:
    """Await the body that a plain function returned, and account for it."""
    step.resume()
    try:
        value = await body
    except Exception as exc:
        await step.fail_async(exc)
        raise
    except BaseException as exc:
        step.fail(exc)
        raise
    return await step.finish_async(value)
