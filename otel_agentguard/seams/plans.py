"""Plans at a seam: checked before they run, and followed while they do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from otel_agentguard.current import Scope
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Plan, PlanStep, ToolSpec
from otel_agentguard.fingerprint import digest
from otel_agentguard.guard import Guard
from otel_agentguard.runs import PASS, Run
from otel_agentguard.seams.declare import ToolDeclaration, declaration_of
from otel_agentguard.seams.step import Step
from otel_agentguard.semconv import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME, OPERATION_PLAN, SPAN_PLAN

if TYPE_CHECKING:
    from otel_agentguard.plans.report import PlanReport
    from otel_agentguard.plans.validate import Agents

Tools = Mapping[str, ToolSpec] | Iterable[ToolSpec | Callable[..., object]]

# The plan parts load a JSON Schema validator; a program without plans does without.


def checked(plan: object, tools: Any, agents: Agents | None) -> PlanReport:
    """Check a plan against tools, where any are known."""
    from otel_agentguard.plans import ToolRegistry, check_plan

    return check_plan(plan, tools=ToolRegistry.of(tools) if tools else None, agents=agents)


def _schema_of(declared: ToolDeclaration) -> Mapping[str, object]:
    """JSON Schema of what a tool takes, without `self` and without the parameter that the guard fills."""
    from otel_agentguard.plans.functions import parameters_schema

    hidden = [declared.key_param or "idempotency_key"]
    if declared.skip_first:
        hidden.append(next(iter(inspect.signature(declared.function).parameters)))
    return parameters_schema(declared.function, hidden=hidden)


def follow(guard: Guard, here: Scope, run: Run, plan: object) -> None:
    """Measure a run by a plan from here on.

    Raises:
        ConfigError: A plan cannot be read from it.
    """
    from otel_agentguard.plans import ToolRegistry, parse_plan

    tell(guard, here, parse_plan(plan, tools=ToolRegistry.of(run.info.tools)))


def tell(guard: Guard, here: Scope, steps: Sequence[PlanStep]) -> None:
    """Take a plan through the guard: from here on the run is measured by it.

    Raises:
        RunStopped: The run was stopped (`RunAborted` outside of `run()`).
    """
    step = Step(guard, here)
    event = Plan(
        agent=step.agent,
        at_s=guard.engine.now_s(),
        steps=tuple(steps),
        digest=digest([[one.tool, one.arguments, one.agent] for one in steps], on_fallback=guard.opaque),
    )
    attributes = {GEN_AI_AGENT_NAME: step.agent, GEN_AI_OPERATION_NAME: OPERATION_PLAN}
    step.start(f"{SPAN_PLAN} {step.agent}", attributes, instant=True)
    error = step.before(event)
    if error is None and (decision := step.after(event)) is not PASS:
        step.keep_notes(decision.notes)
        error = step.stop_after(decision)
    step.end(event, error=error)
    if error is not None:
        raise error


def specs_of(tools: Tools) -> Mapping[str, ToolSpec]:
    """The tools of a run by name.

    Raises:
        ConfigError: One is neither a `ToolSpec` nor declared with `@tool`.
    """
    if isinstance(tools, Mapping):
        return tools
    specs = [one if isinstance(one, ToolSpec) else _spec(one) for one in tools]
    return {spec.name: spec for spec in specs}


def _spec(tool: object) -> ToolSpec:
    declared = declaration_of(tool)
    if declared is None:
        raise ConfigError(f"tools names {tool!r}; give ToolSpecs, a ToolRegistry, or functions declared with @tool")
    return ToolSpec(
        name=declared.name,
        schema=_schema_of(declared),
        description=declared.description,
        effect=declared.effect,
        identity=declared.identity,
    )
