"""The plan check: calls and plans that cannot be executed as they stand, and runs that leave their plan."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TypeVar

from xxhash import xxh3_128_digest

from otel_agentguard import words
from otel_agentguard.events import Crash, Effect, Event, Outcome, Plan, PlanStep, Resume, ToolCall, ToolSpec, Turn
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.plans.drift import Drift, FollowedPlan, Placement, Standing
from otel_agentguard.plans.registry import ToolRegistry
from otel_agentguard.plans.report import ErrorCode, PlanError, feedback
from otel_agentguard.plans.validate import check_call, check_plan
from otel_agentguard.protocols import RunInfo

_T = TypeVar("_T")

_MOST_PLANS = 8
_MOST_CALLS = 512
_MOST_OF_RESULT = 500
_NO_SUCH_TOOL = re.compile(
    r"\b(?:no|unknown|invalid|such|valid|undefined|unrecogni[sz]ed|nonexistent) (?:tool|function)s?\b"
    r"|\b(?:tool|function)\b.{0,120}?\b(?:not found|not exist|unknown|unavailable|not available|not registered)\b",
    re.IGNORECASE | re.DOTALL,
)
_NOT_HAPPENED = frozenset({Outcome.FAILED, Outcome.DENIED, Outcome.NOT_EXECUTED})


class PlanCheck:
    """Checks every call against the tools that are known, every plan, and whether the plan is kept to.

    Args:
        off_plan: What is done about a side effect that the plan does not have; `BLOCK` keeps it from
            happening until the plan is made anew.
    """

    name = CheckName.PLAN

    def __init__(self, *, off_plan: Action = Action.HINT) -> None:
        self._off_plan = off_plan

    def open(self, run: RunInfo) -> PlanRun:
        """The state of this check for one run: its latest plans, and 16 bytes for each of 512 calls."""
        return PlanRun(run, self._off_plan)


class PlanRun:
    """The plan check in one run."""

    __slots__ = ("_checked", "_declared", "_incomplete", "_off_plan", "_plans", "_registry", "_run", "_verdicts")

    def __init__(self, run: RunInfo, off_plan: Action) -> None:
        self._run = run
        self._off_plan = off_plan
        self._incomplete = False
        self._registry: ToolRegistry | None = None
        self._declared: Mapping[str, ToolSpec] = {}
        self._checked: OrderedDict[bytes, None] = OrderedDict()
        self._plans: OrderedDict[str, _Followed] = OrderedDict()
        self._verdicts: OrderedDict[str, _Verdict] = OrderedDict()

    def before(self, event: Event) -> Sequence[Finding]:
        """Judge a call by the tools that there are and by the plan that is followed."""
        if not isinstance(event, ToolCall):
            return ()
        findings = self._check_call(event)
        off_plan = self._check_place(event)
        return findings if off_plan is None else [*findings, off_plan]

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in an event: the outcome of a call, a new plan, a new intent."""
        match event:
            case ToolCall():
                self._settle(event)
            case Plan():
                return self._take_plan(event)
            case Turn(new_intent=True):
                for followed in self._plans.values():
                    followed.binding = False
            case Crash() | Resume():
                for followed in self._plans.values():
                    followed.plan.release()
            case _:
                pass
        return ()

    def drift(self) -> Drift | None:
        """How far the run has strayed from its latest plan; None without one that names tools."""
        followed = next(reversed(self._plans.values()), None)
        return None if followed is None else followed.plan.drift()

    def _tools(self, called: str | None = None) -> ToolRegistry | None:
        """The tools as they are known by now, compiled when they are first asked for."""
        tools = self._run.tools
        if not tools:
            return None
        changed = called is not None and self._declared.get(called) is not tools.get(called)
        if self._registry is None or changed or len(self._declared) != len(tools):
            self._declared = dict(tools)
            self._registry = ToolRegistry(tools.values(), strict=False)
        return self._registry

    def _names_are_complete(self) -> bool:
        return self._run.tools_complete and not self._incomplete

    def _learn_of(self, call: ToolCall, registry: ToolRegistry) -> None:
        """A tool that is not listed and has answered shows that the list is incomplete, whatever was said."""
        if self._run.tools_complete and not self._incomplete and registry.resolve(call.tool) is None:
            self._incomplete = _has_answered(call)

    def _check_call(self, call: ToolCall) -> list[Finding]:
        registry = self._tools(call.tool)
        if registry is None or self._was_checked(call):
            return []
        self._learn_of(call, registry)
        errors = check_call(call.tool, call.arguments, tools=registry, closed=self._names_are_complete())
        if not errors:
            return []
        call.plan_errors = _codes(errors)
        return [
            Finding(
                check=CheckName.PLAN,
                kind=Kind.PLAN,
                severity=Severity.WARN,
                step=call.step,
                signature=_signature("call", call.tool, *sorted(f"{e.code} {e.path}" for e in errors)),
                message=feedback(errors, content=False),
                explanation=f"{call.agent} called {call.tool} in a way it cannot be called: {_in_short(errors)}",
                action=Action.HINT,
                evidence=(call.step,),
                agent=call.agent,
                tool=call.tool,
                count=1,
            )
        ]

    def _was_checked(self, call: ToolCall) -> bool:
        """Whether an equal call was judged before; a call of unknown arguments is known by its tool alone."""
        key = call.fingerprint or call.tool.encode()
        if key in self._checked:
            self._checked.move_to_end(key)
            return True
        self._checked[key] = None
        if len(self._checked) > _MOST_CALLS:
            self._checked.popitem(last=False)
        return False

    def _take_plan(self, plan: Plan) -> list[Finding]:
        registry = self._tools()
        report = check_plan(plan, tools=registry)
        errors = report.errors
        if not self._names_are_complete():
            errors = tuple(error for error in errors if error.code is not ErrorCode.UNKNOWN_TOOL)
        plan.plan_errors = _codes(errors)
        self._follow(plan, report.plan, registry)
        return self._judge_plan(plan, errors)

    def _judge_plan(self, plan: Plan, errors: Sequence[PlanError]) -> list[Finding]:
        last = self._verdicts.pop(plan.agent, None)
        if not errors:
            return []
        signature = _signature("plan", plan.agent, *(f"{e.code} {e.step} {e.tool} {e.path}" for e in errors))
        if last is not None and last.signature == signature:
            last.evidence.append(plan.step)
            del last.evidence[1:-7]
            last.count += 1
            _keep(self._verdicts, plan.agent, last)
            return [self._repeated(plan, last, errors)]
        _keep(self._verdicts, plan.agent, _Verdict(signature, plan.step))
        return [
            Finding(
                check=CheckName.PLAN,
                kind=Kind.PLAN,
                severity=Severity.WARN,
                step=plan.step,
                signature=signature,
                message=feedback(errors, content=False),
                explanation=f"the plan of {plan.agent} cannot be executed: {_in_short(errors)}",
                action=Action.HINT,
                evidence=(plan.step,),
                agent=plan.agent,
                tool=errors[0].tool,
                count=1,
            )
        ]

    def _repeated(self, plan: Plan, verdict: _Verdict, errors: Sequence[PlanError]) -> Finding:
        """The same faulty plan again is a loop; it climbs like a call that somebody has refused."""
        limits = self._run.settings.limits("denied")
        evidence = tuple(verdict.evidence)
        known = f"The plan has the same errors as at step {evidence[0]} (time {verdict.count})."
        return Finding(
            check=CheckName.PLAN,
            kind=Kind.LOOP,
            severity=Severity.WARN,
            step=plan.step,
            signature=_signature("again", verdict.signature.hex()),
            message=f"{words.SIGNATURE} {known} Do what the fixes say.\n{feedback(errors, content=False)}",
            explanation=words.to_people(
                f"{plan.agent} made the same faulty plan {verdict.count} times", evidence, "loop.denied", limits
            ),
            limits=limits,
            evidence=evidence,
            agent=plan.agent,
            count=verdict.count,
        )

    def _follow(self, plan: Plan, steps: Sequence[PlanStep], registry: ToolRegistry | None) -> None:
        last = self._plans.get(plan.agent)
        if last is not None and last.plan.steps == tuple(steps):
            last.binding = last.plan.binding
            self._plans.move_to_end(plan.agent)
            return
        meant: dict[str, Sequence[str]] = {}
        if registry is not None:
            meant = {s.tool: registry.near(s.tool) for s in steps if s.tool and s.tool not in registry}
        followed = FollowedPlan(steps, known_as=meant, before=None if last is None else last.plan)
        _keep(self._plans, plan.agent, _Followed(followed, plan.step))

    def _check_place(self, call: ToolCall) -> Finding | None:
        placed = self._place(call)
        if placed is None:
            return None
        followed, placement = placed
        if not followed.binding or not self._is_side_effect(call) or call.outcome in _NOT_HAPPENED:
            return None
        if placement.standing is Standing.EXTRA and not placement.repeat:
            what = "which is not in the plan"
        elif placement.standing is Standing.ARGUMENT_DRIFT and placement.step is not None:
            names = ", ".join(f"`{name}`" for name in placement.differing)
            what = f"with other values of {names} than step {placement.step.id} of the plan"
        else:
            return None
        return self._off_plan_finding(call, followed, placement, what)

    def _off_plan_finding(self, call: ToolCall, followed: _Followed, placement: Placement, what: str) -> Finding:
        upcoming = followed.plan.next_step()
        if placement.standing is Standing.ARGUMENT_DRIFT:
            advice = "Keep to the values of the plan, or make a new plan."
        elif upcoming is None:
            advice = "All its steps are done: finish, or make a new plan that has this step."
        else:
            advice = f"Next in it is step {upcoming.id} (`{upcoming.tool}`). Go on with that, or make a new plan."
        known = f"`{call.tool}` acts on the outside world, {what} of step {followed.step}."
        if placement.standing is Standing.ARGUMENT_DRIFT:
            known = f"`{call.tool}` acts on the outside world, {what}."
        return Finding(
            check=CheckName.PLAN,
            kind=Kind.PLAN_DRIFT,
            severity=Severity.WARN,
            step=call.step,
            signature=_signature("drift", placement.standing, call.tool, str(followed.step)),
            message=words.to_model(known, advice),
            explanation=f"{call.agent} called {call.tool}, a side effect, {what} (plan of step {followed.step})",
            action=self._off_plan,
            evidence=(followed.step, call.step),
            agent=call.agent,
            tool=call.tool,
            count=1,
        )

    def _place(self, call: ToolCall) -> tuple[_Followed, Placement] | None:
        """The place of a call in the plans that are followed, the newest one first."""
        first: tuple[_Followed, Placement] | None = None
        for followed in reversed(self._plans.values()):
            placement = followed.plan.place(call)
            if placement.standing is not Standing.EXTRA or placement.repeat:
                if first is not None:
                    first[0].plan.settle(call, happened=False)
                return followed, placement
            if first is None:
                first = followed, placement
            else:
                followed.plan.settle(call, happened=False)
        return first

    def _settle(self, call: ToolCall) -> None:
        if self._registry is not None:
            self._learn_of(call, self._registry)
        if not self._plans:
            return
        happened = not call.refused and call.outcome not in _NOT_HAPPENED
        for followed in self._plans.values():
            followed.plan.settle(call, happened=happened)
        drift = self.drift()
        self._run.plan_drift = None if drift is None else drift.drift

    def _is_side_effect(self, call: ToolCall) -> bool:
        if call.effect is not Effect.UNKNOWN:
            return call.effect is Effect.SIDE_EFFECT
        spec = self._run.tools.get(call.tool)
        return spec is not None and spec.effect is Effect.SIDE_EFFECT


class _Followed:
    __slots__ = ("binding", "plan", "step")

    def __init__(self, plan: FollowedPlan, step: int) -> None:
        self.plan = plan
        self.step = step
        self.binding = plan.binding


class _Verdict:
    __slots__ = ("count", "evidence", "signature")

    def __init__(self, signature: bytes, step: int) -> None:
        self.signature = signature
        self.evidence = [step]
        self.count = 1


def _has_answered(call: ToolCall) -> bool:
    """Whether a call reached a tool; frameworks may return as a result that there is no such tool."""
    if call.outcome is Outcome.UNKNOWN:
        return not call.refused
    if call.outcome is not Outcome.OK or call.refused or call.result is None:
        return False
    return not (isinstance(call.result, str) and _NO_SUCH_TOOL.search(call.result[:_MOST_OF_RESULT]))


def _keep(kept: OrderedDict[str, _T], agent: str, value: _T) -> None:
    kept[agent] = value
    kept.move_to_end(agent)
    while len(kept) > _MOST_PLANS:
        kept.popitem(last=False)


def _codes(errors: Sequence[PlanError]) -> tuple[str, ...]:
    return tuple(error.code.value for error in errors)


def _in_short(errors: Sequence[PlanError]) -> str:
    first = errors[0]
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    near = f", near are {', '.join(first.did_you_mean)}" if first.did_you_mean else ""
    where = f" of step {first.step}" if first.step else ""
    return f"{first.code} at {first.path}{where}{near}{more}"


def _signature(*parts: str) -> bytes:
    return xxh3_128_digest("\0".join(parts).encode())
