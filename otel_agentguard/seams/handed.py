"""A call that one seam hands on to another: a framework's tool whose body is declared with `@tool`.

The outer seam has asked the engine already and will tell it what came of the call. The inner one runs the
body the way its declaration says, and leaves the rest to the outer one, so that the call counts once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.util.types import AttributeValue

from otel_agentguard.errors import CallBlocked
from otel_agentguard.events import Event, ToolCall
from otel_agentguard.findings import Finding
from otel_agentguard.guard import Guard
from otel_agentguard.runs import PASS, Decision
from otel_agentguard.seams.calls import ToolPlan, ToolStep
from otel_agentguard.seams.declare import ToolDeclaration
from otel_agentguard.seams.step import Attributes, Step

HANDED_KEY = context.create_key("agentguard-handed-on")


class HandedOn(Step):
    """A call under way at an outer seam, as the inner one sees it.

    Attributes:
        call: Its event.
        declaration: What the outer seam knows to be declared of it; None for nothing.
        late: Why the inner seam did not let the body begin after all.
        notes: What is to be delivered with the result.
        more: Further attributes of its span.
        was_told: The inner seam has filled in what came of the call.
    """

    call: ToolCall
    declaration: ToolDeclaration | None = None
    late: BaseException | None = None
    notes: tuple[str, ...] = ()
    more: dict[str, AttributeValue] | None = None
    was_told = False


def call_around() -> HandedOn | None:
    """The call of a framework's tool that this code runs in; the innermost one."""
    step = context.get_value(HANDED_KEY)
    return step if isinstance(step, HandedOn) else None


def handed_on(guard: Guard, declaration: ToolDeclaration, ctx: Context) -> HandedOn | None:
    """The call around that is this one, told by an outer seam; None where there is none."""
    step = call_around()
    if step is None or step.guard is not guard:
        return None
    if step.declaration is declaration or step.call.tool == declaration.name:
        return step
    return None


class ContinuedStep(ToolStep):
    """A call that an outer seam has told of: nothing is asked twice, and nothing ends here.

    Args:
        plan: The declared tool.
        outer: The call at the outer seam.
        args: Positional arguments of the body.
        kwargs: Keyword arguments of the body.
    """

    def __init__(self, plan: ToolPlan, outer: HandedOn, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for name in ("guard", "scope", "run", "agent", "enforce", "span", "findings", "action"):
            setattr(self, name, getattr(outer, name))
        self._around = context.get_current()
        self._outer = outer
        self.plan = plan
        self.call = outer.call
        self.call.effect = plan.effect
        bound = plan.call(outer.agent, args, kwargs)
        if bound.arguments is not None:
            self.call.arguments = bound.arguments
            self.call.touches = bound.touches
            self.call.form = None

    def resume(self) -> None:
        """The span of the outer seam is the current one."""

    def park(self) -> None:
        """See `resume`."""

    def before(self, event: Event) -> BaseException | None:
        """The outer seam has asked."""
        return None

    async def before_async(self, event: Event) -> BaseException | None:
        """See `before`."""
        return None

    def refused(self, refusal: BaseException) -> str:
        """Hand a late refusal to the outer seam, which answers for it.

        Raises:
            CallBlocked: Always; an ordinary error, since what lies between is a framework.
        """
        self._outer.late = refusal
        raise CallBlocked(str(refusal)) from refusal

    def succeeded(self, value: object) -> None:
        """See `ToolStep`."""
        super().succeeded(value)
        self._outer.was_told = True

    def failed(self, error: BaseException) -> None:
        """See `ToolStep`."""
        super().failed(error)
        self._outer.was_told = True

    def refused_late(self) -> None:
        """The outer seam tells the engine."""

    def withdraw(self, event: Event, error: BaseException) -> None:
        """The outer seam hears of it too."""

    def after(self, event: Event) -> Decision:
        """The outer seam tells the engine."""
        return PASS

    async def after_async(self, event: Event) -> Decision:
        """See `after`."""
        return PASS

    def keep_notes(self, notes: Sequence[str]) -> None:
        """Have the outer seam deliver them."""
        if notes and self.enforce:
            self._outer.notes += tuple(notes)

    def delivered(self, decision: Decision, value: Any) -> Any:
        """The value as it is: notes are for the outer seam."""
        self.keep_notes(self._remarks)
        return value

    def report(self, finding: Finding) -> None:
        """See `Step`."""
        self._outer.report(finding)

    def end(
        self,
        event: Event,
        fingerprint: bytes | None = None,
        *,
        error: BaseException | None = None,
        more: Attributes | None = None,
    ) -> None:
        """Leave the span to the outer seam, with what is known here."""
        if more:
            self._outer.more = {**(self._outer.more or {}), **more}
