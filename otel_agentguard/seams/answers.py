"""Pure and reading tools at a seam: their body runs only where no earlier answer is still true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_agentguard.dedup.dedup import Dedup
from otel_agentguard.dedup.rules import Answer, Rule
from otel_agentguard.seams.calls import ToolStep, deferred, is_deferred
from otel_agentguard.semconv import AGENTGUARD_CACHE_HIT


def answered(step: ToolStep, dedup: Dedup, rule: Rule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Answer a call that was let through, by its body or in its place; what the caller gets.

    Raises:
        BaseException: What the body raised, or why the run must end.
    """
    here = _Answering(step, args, kwargs)
    try:
        answer = dedup.answers.answer(step.run.info, step.call, rule, here.body, fresh=step.scope.fresh)
    except BaseException as exc:
        here.raised(exc)
        step.fail(exc)
        raise
    here.note(answer)
    if is_deferred(answer.value):
        step.park()
        return deferred(step, answer.value)
    return step.finish(answer.value)


async def answered_async(
    step: ToolStep, dedup: Dedup, rule: Rule, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """`answered` for a coroutine function."""
    here = _Answering(step, args, kwargs)
    try:
        answer = await dedup.answers.answer_async(
            step.run.info, step.call, rule, here.body_async, fresh=step.scope.fresh
        )
    except Exception as exc:
        here.raised(exc)
        await step.fail_async(exc)
        raise
    except BaseException as exc:
        here.raised(exc)
        step.fail(exc)
        raise
    here.note(answer)
    return await step.finish_async(answer.value)


def began(step: ToolStep) -> None:
    """Have the cache know of a call that runs outside of it: until it is over it may change what is kept."""
    dedup = step.guard.dedup
    if dedup is not None and dedup.is_on:
        dedup.answers.began(step.run.info, step.call)


def remark_on_past(step: ToolStep, dedup: Dedup) -> None:
    """Have it said with the result what an earlier session knows of the call."""
    if dedup.past is not None and (note := dedup.past.note(dedup.past.earlier(step.run.info, step.call))):
        step.remark(note)


async def remark_on_past_async(step: ToolStep, dedup: Dedup) -> None:
    """`remark_on_past` without blocking the event loop."""
    if dedup.past is None:
        return
    try:
        earlier = await dedup.past.earlier_async(step.run.info, step.call)
    except BaseException as exc:
        step.withdraw(step.call, exc)
        raise
    if note := dedup.past.note(earlier):
        step.remark(note)


class _Answering:
    """One call whose body may run; it takes the last look before it does."""

    def __init__(self, step: ToolStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._step = step
        self._args = args
        self._kwargs = kwargs
        self._refusal: BaseException | None = None

    def body(self) -> Any:
        self._last_look()
        return self._step.plan.passing(*self._args, **self._kwargs)

    async def body_async(self) -> Any:
        self._last_look()
        return await self._step.plan.passing(*self._args, **self._kwargs)

    def note(self, answer: Answer[Any]) -> None:
        if self._step.call.served_from == "cache":
            self._step.more = {AGENTGUARD_CACHE_HIT: True}
        if answer.note:
            self._step.remark(answer.note)

    def raised(self, error: BaseException) -> None:
        """Account for the run's end, which came while the call waited; does nothing for other errors."""
        if error is self._refusal:
            self._step.refused_late()
            self._step.refused(error)

    def _last_look(self) -> None:
        refusal = self._step.last_look(self._step.call)
        if refusal is not None:
            self._refusal = refusal
            raise refusal
