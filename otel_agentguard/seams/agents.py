"""`@agent`: a function that is an agent; what it returns is its message."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextvars import Token
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, overload

from opentelemetry import context, trace
from opentelemetry.context import Context

from otel_agentguard.current import SCOPE_KEY, scope
from otel_agentguard.errors import ConfigError, RunAborted
from otel_agentguard.guard import Guard, installed
from otel_agentguard.seams.declare import is_async_generator, is_coroutine, is_generator
from otel_agentguard.seams.messages import say
from otel_agentguard.seams.step import end_agent_span, stopped
from otel_agentguard.seams.streams import Watch, relaying, relaying_async
from otel_agentguard.semconv import (
    GEN_AI_AGENT_NAME,
    GEN_AI_OPERATION_NAME,
    OPERATION_INVOKE_AGENT,
    SPAN_INVOKE_AGENT,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MAX_SAID_CHARS = 1024 * 1024


@overload
def agent(name: str, /) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...


@overload
def agent(name: Callable[_P, _R], /) -> Callable[_P, _R]: ...


def agent(name: Any, /) -> Any:
    """Make a function an agent: events inside belong to it, the text that it returns is its message.

    Works on functions, coroutines, generators and async generators; of those that yield text the whole
    of it is the message. The guard is looked up at each call.

    Args:
        name: Name of the agent; used bare it is the name of the function.

    Raises:
        ConfigError: The name is no text.
    """
    if isinstance(name, str) and name:
        return functools.partial(_agent, name)
    if callable(name):
        return _agent(getattr(name, "__name__", type(name).__name__), name)
    raise ConfigError(f'an agent has the name {name!r}; give a text: @agent("coder")')


def _agent(name: str, function: Any) -> Any:
    if isinstance(function, classmethod | staticmethod):
        return type(function)(_agent(name, function.__func__))
    if is_async_generator(function):
        wrapper: Any = _around_async_generator(name, function)
    elif is_generator(function):
        wrapper = _around_generator(name, function)
    elif is_coroutine(function):
        wrapper = _around_coroutine(name, function)
    else:
        wrapper = _around_function(name, function)
    return functools.update_wrapper(wrapper, function)


def _around_function(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        guard = installed.guard
        if guard is None or scope().unguarded:
            return body(*args, **kwargs)
        invoked = Invocation(guard, name)
        invoked.resume()
        try:
            value = body(*args, **kwargs)
        except BaseException as exc:
            invoked.raised(exc)
            raise
        invoked.returned_value(value)
        return value

    return call


def _around_coroutine(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        guard = installed.guard
        if guard is None or scope().unguarded:
            return await body(*args, **kwargs)
        invoked = Invocation(guard, name)
        invoked.resume()
        try:
            value = await body(*args, **kwargs)
        except BaseException as exc:
            invoked.raised(exc)
            raise
        invoked.returned_value(value)
        return value

    return call


def _around_generator(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Generator[Any, Any, Any], Watch | None]:
        guard = installed.guard
        seen = None if guard is None or scope().unguarded else Invocation(guard, name)
        return body(*args, **kwargs), seen

    return relaying(begin)


def _around_async_generator(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    async def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[AsyncGenerator[Any, Any], Watch | None]:
        guard = installed.guard
        seen = None if guard is None or scope().unguarded else Invocation(guard, name)
        return body(*args, **kwargs), seen

    return relaying_async(begin)


class Invocation(Watch):
    """One call of an agent; a `Watch` where it yields.

    Outside of every run it is the entry of its implicit run: left when the run was stopped, it ends in
    `RunAborted`; where its span began the trace, the run ends with it.

    Args:
        guard: The installed guard.
        name: Name of the agent.

    Raises:
        RunStopped: The run was stopped before (`RunAborted` outside of `run()`).
    """

    def __init__(self, guard: Guard, name: str) -> None:
        if guard.processor_pending:
            guard.meet_provider()
        around = scope()
        if around.run is not None and guard.enforce and (reason := around.run.stop_reason()) is not None:
            raise stopped(around, around.run, reason)
        ctx = context.get_current()
        is_root = not trace.get_current_span(ctx).get_span_context().is_valid
        attributes = {GEN_AI_OPERATION_NAME: OPERATION_INVOKE_AGENT, GEN_AI_AGENT_NAME: name}
        try:
            self._span = guard.tracer.start_span(f"{SPAN_INVOKE_AGENT} {name}", ctx, attributes=attributes)
        except Exception as exc:
            guard.engine.failed("span", exc)
            self._span = trace.INVALID_SPAN
        ctx = trace.set_span_in_context(self._span, ctx)
        self._guard = guard
        self._is_entry = around.run is None
        self._run = around.run or guard.implicit.current(ctx)
        self._scope = replace(around, run=self._run, run_id=self._run.run_id, agent=name)
        self._context = context.set_value(SCOPE_KEY, self._scope, ctx)
        self._token: Token[Context] | None = None
        self._ends_trace = self._is_entry and is_root and self._span.get_span_context().is_valid
        self._said: list[str] | None = []
        self._said_chars = 0

    def resume(self) -> None:
        """See `Watch`."""
        self._token = context.attach(self._context)

    def park(self) -> None:
        """See `Watch`."""
        if self._token is not None:
            context.detach(self._token)
            self._token = None

    def took(self, item: object) -> None:
        """See `Watch`."""
        if self._said is None:
            return
        if not isinstance(item, str) or self._said_chars > _MAX_SAID_CHARS:
            self._said = None
            return
        self._said.append(item)
        self._said_chars += len(item)

    def returned(self) -> None:
        """See `Watch`."""
        self.returned_value("".join(self._said) if self._said else None)

    def closed(self) -> None:
        """See `Watch`."""
        self._end(None)

    def raised(self, error: BaseException) -> None:
        """See `Watch`; raises `RunAborted` at the entry of a stopped run."""
        self._end(error)
        self._leave(error)

    def returned_value(self, value: object) -> None:
        """Take what the agent returned as its message.

        Raises:
            CallBlocked: The message must not be sent.
            RunStopped: The run was stopped (`RunAborted` outside of `run()`).
        """
        if self._token is None:
            self.resume()
        try:
            if isinstance(value, str):
                say(self._guard, self._scope, value)
        except BaseException as exc:
            self.raised(exc)
            raise
        self._end(None)
        self._leave(None)

    def _end(self, error: BaseException | None) -> None:
        self.park()
        end_agent_span(self._guard, self._span, self._run, error)
        if self._ends_trace:
            self._guard.implicit.end_trace(self._span.get_span_context().trace_id, failed=error is not None)

    def _leave(self, error: BaseException | None) -> None:
        if not self._is_entry or not self._guard.enforce or (reason := self._run.stop_reason()) is None:
            return
        if isinstance(error, RunAborted) or (error is not None and not isinstance(error, Exception)):
            return
        raise RunAborted(reason, run_id=self._run.run_id) from error
