"""`@tool`: puts the guard around a function, whatever kind of function it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

from opentelemetry import context

from otel_agentguard.current import NOWHERE, SCOPE_KEY, Scope, living
from otel_agentguard.errors import ConfigError, RunAborted
from otel_agentguard.events import Effect
from otel_agentguard.findings import Limits
from otel_agentguard.guard import Guard, installed
from otel_agentguard.seams.answers import answered, answered_async, began, remark_on_past, remark_on_past_async
from otel_agentguard.seams.calls import ToolPlan, ToolStep, ToolWatch, deferred, is_deferred
from otel_agentguard.seams.declare import (
    ToolDeclaration,
    declaration_of,
    declare,
    is_async_generator,
    is_coroutine,
    is_generator,
)
from otel_agentguard.seams.effects import caused, caused_async, effect_spec, keyed
from otel_agentguard.seams.handed import HANDED_KEY, ContinuedStep, handed_on
from otel_agentguard.seams.streams import Watch, relaying, relaying_async

_P = ParamSpec("_P")
_R = TypeVar("_R")
_AnyFunction = Callable[..., Any]


@overload
def tool(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...


@overload
def tool(
    *,
    effect: Literal[Effect.SIDE_EFFECT],
    touches: Callable[..., object] | Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    ttl_s: float | None = None,
    cache: bool | None = None,
    notes: Literal["inline"] | None = None,
    guard: bool = True,
    limits: Limits | Mapping[str, Limits] | None = None,
    version: str | int | None = None,
    identity: Sequence[str] | None = None,
    scope: Literal["run", "session", "event", "global"] | Callable[..., object] | None = None,
    on_unknown: Literal["block", "retry", "verify"] | None = None,
    on_duplicate: Literal["replay", "block", "warn", "allow"] | None = None,
    verify: Callable[..., object] | None = None,
    permanent: type[Exception] | Sequence[type[Exception]] | None = None,
    key_param: str | None = None,
    tx: object = None,
    wait_s: float | None = None,
    compensates: str | _AnyFunction | None = None,
    keep_result: bool | None = None,
    decode: Callable[[Any], object] | None = None,
) -> Callable[[Callable[..., _R]], Callable[..., _R]]: ...


@overload
def tool(
    *,
    effect: Effect | str | None = None,
    touches: Callable[..., object] | Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    ttl_s: float | None = None,
    cache: bool | None = None,
    notes: Literal["inline"] | None = None,
    guard: bool = True,
    limits: Limits | Mapping[str, Limits] | None = None,
    version: str | int | None = None,
    scope: Callable[..., object] | None = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...


def tool(function: _AnyFunction | None = None, /, **options: Any) -> Any:
    """Put the guard around a tool.

    Works on functions, coroutines, generators, async generators, methods, classmethods, staticmethods,
    partials and callable objects; name, signature and docstring stay. The guard is looked up at each
    call: before `install()` and in mode `off` the call goes straight through.

    The result is never changed. Notes for the model wait in `r.notes()`; a refused call raises
    `CallBlocked`, and a stopped run raises `RunStopped` inside `run()`, else `RunAborted`. With
    `notes="inline"` the note stands at the head of results that are text, and a refusal is returned.

    Args:
        function: The function, where it is used without arguments.
        options: effect: what the tool does to the world. touches: the resources, or a function of
            some of the arguments that names them. ignore: arguments that are no part of its identity.
            ttl_s: how long an answer may be served again, seconds. cache: whether it may be at all.
            notes: `"inline"` or None. guard: False lets every call pass. limits: `Limits` for equal
            calls, or by row of the loop check. version: another version is another tool. scope: makes
            the working directory or tenant of the arguments; for a side effect also `"run"`,
            `"session"`, `"event"` or `"global"`.
            For `Effect.SIDE_EFFECT` only: identity: arguments that make it the same. on_unknown,
            on_duplicate, verify, permanent, key_param, tx, wait_s, compensates, keep_result, decode:
            see `ToolDeclaration`. The key parameter is filled by the guard in every mode and hidden
            from the signature.

    Raises:
        ConfigError: An option has no such name or value, or does not fit the function.
    """
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise ConfigError(f"@tool has no {', '.join(sorted(unknown))}; known: {', '.join(sorted(_OPTIONS))}")
    if function is None:
        return functools.partial(_declared, options=options)
    return _declared(function, options)


def tool_named(function: Any, name: str) -> Any:
    """`tool` for a function that models know by another name than its own; a declared one stays as it is."""
    return function if declaration_of(function) is not None else _declared(function, {"name": name})


_OPTIONS = frozenset(
    (
        *("effect", "touches", "ignore", "ttl_s", "cache", "notes", "guard", "limits", "version"),
        *("identity", "scope", "on_unknown", "on_duplicate", "verify", "permanent", "key_param"),
        *("tx", "wait_s", "compensates", "keep_result", "decode"),
    )
)


def _declared(function: Any, options: Mapping[str, Any]) -> Any:
    if isinstance(function, classmethod | staticmethod):
        return type(function)(_declared(function.__func__, options))
    if not callable(function):
        raise ConfigError(f"@tool goes around a function, not {function!r}")
    known = declaration_of(function)
    if known is not None:
        if not options:
            return function
        function = known.function
    declaration = declare(function, options)
    if is_async_generator(function):
        wrapper = _around_async_generator(declaration)
    elif is_generator(function):
        wrapper = _around_generator(declaration)
    elif is_coroutine(function):
        wrapper = _around_coroutine(declaration)
    else:
        wrapper = _around_function(declaration)
    return _dressed(wrapper, declaration)


def _around_function(declaration: ToolDeclaration) -> _AnyFunction:
    body = keyed(declaration)
    plans = _Plans(declaration, body)

    def call(*args: Any, **kwargs: Any) -> Any:
        guard = installed.guard
        if guard is None:
            return body(*args, **kwargs)
        step = plans.step(guard, args, kwargs)
        if step is None:
            return body(*args, **kwargs)
        if (refusal := step.before(step.call)) is not None:
            return step.refused(refusal)
        dedup = guard.dedup
        if dedup is not None and dedup.is_on:
            if dedup.past is not None:
                remark_on_past(step, dedup)
            if step.plan.answers is not None and step.enforce:
                return answered(step, dedup, step.plan.answers, args, kwargs)
            dedup.answers.began(step.run.info, step.call)
        if step.plan.effect_spec is not None:
            return caused(step, args, kwargs)
        try:
            value = body(*args, **kwargs)
        except BaseException as exc:
            step.fail(exc)
            raise
        if is_deferred(value):
            step.park()
            return deferred(step, value)
        return step.finish(value)

    return call


def _around_coroutine(declaration: ToolDeclaration) -> _AnyFunction:
    body = keyed(declaration)
    plans = _Plans(declaration, body)

    async def call(*args: Any, **kwargs: Any) -> Any:
        guard = installed.guard
        if guard is None:
            return await body(*args, **kwargs)
        step = plans.step(guard, args, kwargs)
        if step is None:
            return await body(*args, **kwargs)
        if (refusal := await step.before_async(step.call)) is not None:
            return step.refused(refusal)
        dedup = guard.dedup
        if dedup is not None and dedup.is_on:
            if dedup.past is not None:
                await remark_on_past_async(step, dedup)
            if step.plan.answers is not None and step.enforce:
                return await answered_async(step, dedup, step.plan.answers, args, kwargs)
            dedup.answers.began(step.run.info, step.call)
        if step.plan.effect_spec is not None:
            return await caused_async(step, args, kwargs)
        try:
            value = await body(*args, **kwargs)
        except Exception as exc:
            await step.fail_async(exc)
            raise
        except BaseException as exc:
            step.fail(exc)
            raise
        return await step.finish_async(value)

    return call


def _around_generator(declaration: ToolDeclaration) -> _AnyFunction:
    body = declaration.function
    plans = _Plans(declaration, body)

    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Generator[Any, Any, Any], Watch | None]:
        guard = installed.guard
        step = None if guard is None else plans.step(guard, args, kwargs, current=False)
        if step is None:
            return body(*args, **kwargs), None
        if (refusal := step.before(step.call)) is not None:
            return _only(step.refused(refusal)), None
        began(step)
        return body(*args, **kwargs), ToolWatch(step)

    return relaying(begin)


def _around_async_generator(declaration: ToolDeclaration) -> _AnyFunction:
    body = declaration.function
    plans = _Plans(declaration, body)

    async def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[AsyncGenerator[Any, Any], Watch | None]:
        guard = installed.guard
        step = None if guard is None else plans.step(guard, args, kwargs, current=False)
        if step is None:
            return body(*args, **kwargs), None
        if (refusal := await step.before_async(step.call)) is not None:
            return _only_async(step.refused(refusal)), None
        began(step)
        return body(*args, **kwargs), ToolWatch(step)

    return relaying_async(begin)


def _only(item: object) -> Generator[Any, Any, Any]:
    yield item


async def _only_async(item: object) -> AsyncGenerator[Any, Any]:
    yield item


class _Plans:
    """The plan of one declared tool under the guard that is installed now."""

    __slots__ = ("_declaration", "_passing", "_plan")

    def __init__(self, declaration: ToolDeclaration, passing: _AnyFunction) -> None:
        self._declaration = declaration
        self._passing = passing
        self._plan: ToolPlan | None = None

    def step(
        self, guard: Guard, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, current: bool = True
    ) -> ToolStep | None:
        """Begin a call; None where it passes the guard."""
        ctx = context.get_current()
        here: Scope = ctx.get(SCOPE_KEY, NOWHERE)  # type: ignore[assignment]  # nobody else has this key
        if here.run is not None and here.run.closed:
            here = living(here)
        declaration = self._declaration
        if here.unguarded or not declaration.guard:
            guard.tell("unguarded", declaration.name)
            return None
        try:
            plan = self._plan
            if plan is None or plan.guard is not guard:
                plan = self._plan = self._made(guard)
            if HANDED_KEY in ctx and (outer := handed_on(guard, declaration, ctx)) is not None:
                return ContinuedStep(plan, outer, args, kwargs)
            return ToolStep(plan, here, args, kwargs, current=current, around=ctx)
        except RunAborted:
            raise
        except Exception as exc:
            guard.engine.failed("seam", exc)
            return None

    def _made(self, guard: Guard) -> ToolPlan:
        plan = ToolPlan(guard, self._declaration, self._passing)
        if plan.effect is Effect.SIDE_EFFECT:
            plan.effect_spec = effect_spec(self._declaration)
        return plan


def _dressed(wrapper: Any, declaration: ToolDeclaration) -> Any:
    function: Any = declaration.function
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__name__"):
        wrapper.__name__ = wrapper.__qualname__ = declaration.name
        wrapper.__module__ = type(function).__module__
        wrapper.__doc__ = type(function).__doc__
        wrapper.__wrapped__ = declaration.function
    else:
        functools.update_wrapper(wrapper, function)
        wrapper.__wrapped__ = declaration.function
    if declaration.key_param is not None:
        _hide(wrapper, declaration)
    wrapper.__agentguard__ = declaration
    return wrapper


def _hide(wrapper: Any, declaration: ToolDeclaration) -> None:
    """Leave the key parameter out of what schemas are made from."""
    signature = inspect.signature(declaration.function)
    shown = [one for name, one in signature.parameters.items() if name != declaration.key_param]
    wrapper.__signature__ = signature.replace(parameters=shown)
    hints = getattr(wrapper, "__annotations__", {})
    wrapper.__annotations__ = {name: hint for name, hint in hints.items() if name != declaration.key_param}
