"""Whether a plan can be executed as it stands; a call is a plan of one step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import orjson

from otel_agentguard.events import Effect, PlanStep, ToolSpec
from otel_agentguard.plans.names import NameIndex, fold, nearest
from otel_agentguard.plans.references import Reference, Scan, StepIndex, scan_call, scan_plan
from otel_agentguard.plans.registry import ToolRegistry
from otel_agentguard.plans.report import ErrorCode, PlanError, PlanReport, cut, shorten
from otel_agentguard.plans.schemas import KEY_PARAMETER, ArgumentSchema, Violation, argument_path
from otel_agentguard.plans.shapes import MODEL_TOOLS, parse_plan

Agents = Collection[str] | Mapping[str, Collection[str]]


def check_plan(
    plan: object,
    *,
    tools: ToolRegistry | Mapping[str, ToolSpec] | Iterable[ToolSpec] | None = None,
    agents: Agents | None = None,
    denied: Collection[str] = (),
) -> PlanReport:
    """Find everything that keeps a plan from being executed.

    Args:
        plan: In any shape that `parse_plan` reads.
        tools: The tools that there are. None checks only what needs no tools: references between
            steps, cycles, values that nobody filled in, agents.
        agents: Names of the agents that there are; or for each agent the tools that it may use.
        denied: Tools that this plan must not use; `*` stands for any letters.

    Returns:
        The normalised plan and all errors at once.

    Raises:
        ConfigError: `plan` is nothing that a plan can be read from, or a tool's schema is broken.
    """
    registry = None if tools is None else ToolRegistry.of(tools)
    steps = parse_plan(plan, tools=registry)
    checked = _PlanCheck(steps, registry, agents, denied)
    errors = checked.run()
    return PlanReport(plan=tuple(checked.resolved), errors=tuple(errors))


def check_call(
    tool: str,
    arguments: Mapping[str, object] | None,
    *,
    tools: ToolRegistry,
    closed: bool = True,
) -> tuple[PlanError, ...]:
    """Check one call as a plan of one step.

    The guard's own parameter counts neither as missing nor as surplus.

    Args:
        tool: Name of the tool as it was called.
        arguments: By name; None when they were not captured, then only the name is checked.
        tools: The tools that there are.
        closed: Whether there are no others; otherwise an unknown name is no error.
    """
    found = tools.find(tool)
    if found is None:
        return (_unknown_tool("", tool, tools),) if closed else ()
    if arguments is None:
        return ()
    spec, schema = found
    if KEY_PARAMETER in arguments:
        arguments = {key: value for key, value in arguments.items() if key != KEY_PARAMETER}
    scan = scan_call(arguments)
    errors = [] if scan is None else _placeholders("", spec.name, scan)
    violations = schema.violations(arguments, scan) if schema is not None else []
    return (*errors, *(_explain("", spec.name, one, violations) for one in violations))


class _PlanCheck:
    """One pass over one plan."""

    def __init__(
        self,
        steps: Sequence[PlanStep],
        registry: ToolRegistry | None,
        agents: Agents | None,
        denied: Collection[str],
    ) -> None:
        self.registry = registry
        self.agents = agents
        self.denied = [(fold(pattern), pattern) for pattern in denied]
        self.restricted = bool(denied) or isinstance(agents, Mapping)
        self.resolved = list(steps)
        self.index = StepIndex([step.id for step in steps])
        self.edges: list[tuple[int, int]] = []
        self.onward: list[tuple[int, int, Reference]] = []
        self.effects: dict[bytes, str] = {}
        self.errors: list[list[PlanError]] = [[] for _ in steps]

    def run(self) -> list[PlanError]:
        known: set[str] = set()
        for place, step in enumerate(self.resolved):
            if step.id in known:
                self._add(place, _repeated_id(step))
            known.add(step.id)
            if self.agents is not None and step.agent is not None:
                self._check_agent(place, step)
            if step.tool is not None:
                self._check_tool(place, step, step.tool)
            elif step.arguments:
                self._scan(place, step, step.arguments)
            for target in step.depends_on:
                self._link(place, Reference(target, (), target))
        self._check_order()
        return [error for errors in self.errors for error in errors]

    def _add(self, place: int, error: PlanError) -> None:
        self.errors[place].append(error)

    def _check_tool(self, place: int, step: PlanStep, tool: str) -> None:
        spec: ToolSpec | None = None
        schema: ArgumentSchema | None = None
        if self.registry is not None:
            found = self.registry.find(tool)
            if found is None:
                if tool not in MODEL_TOOLS:
                    self._add(place, _unknown_tool(step.id, tool, self.registry))
            else:
                spec, schema = found
                if spec.name != tool:
                    step = self.resolved[place] = replace(step, tool=spec.name)
        if self.restricted:
            self._check_allowed(place, step, step.tool or tool)
        arguments = step.arguments
        if arguments is None:
            return
        scan = self._scan(place, step, arguments)
        if KEY_PARAMETER in arguments:
            self._add(place, _key_given(step))
            arguments = {key: value for key, value in arguments.items() if key != KEY_PARAMETER}
        if schema is not None:
            violations = schema.violations(arguments, scan)
            if violations:
                self.errors[place] += [_explain(step.id, step.tool, one, violations) for one in violations]
        if spec is not None and spec.effect is Effect.SIDE_EFFECT:
            self._check_effect(place, step, spec)

    def _scan(self, place: int, step: PlanStep, arguments: Mapping[str, object]) -> Scan | None:
        scan = scan_plan(arguments, self.index)
        if scan is not None:
            if scan.placeholders and step.tool is not None:
                self.errors[place] += _placeholders(step.id, step.tool, scan)
            for reference in scan.references:
                self._link(place, reference)
        return scan

    def _link(self, place: int, reference: Reference) -> None:
        target = self.index.find(reference.target)
        if target is None:
            if reference.certain:
                self._add(place, self._bad_reference(place, reference, "a step of this plan"))
        elif target >= place and not reference.certain:
            return
        else:
            self.edges.append((place, target))
            if target >= place:
                self.onward.append((place, target, reference))
            elif reference.path and self.resolved[target].tool is None:
                wanted = "a step that calls a tool, since prose has no output"
                self._add(place, self._bad_reference(place, reference, wanted))

    def _bad_reference(self, place: int, reference: Reference, expected: str) -> PlanError:
        step = self.resolved[place]
        earlier = tuple(one.id for one in self.resolved[:place] if one.tool is not None or not reference.path)
        if reference.path:
            there = f"step {earlier[0]}" if len(earlier) == 1 else f"one of the steps {', '.join(cut(earlier))}"
            fix = f"refer to {there}" if earlier else "give the value itself"
        else:
            fix = "take the dependency out"
        return PlanError(
            code=ErrorCode.BAD_REFERENCE,
            step=step.id,
            tool=step.tool,
            path=_path_of(reference),
            got=f"`{shorten(reference.text)}`",
            expected=expected,
            fix=f"{fix}, or add the step that makes it before this one" if reference.path else fix,
            available=cut(earlier),
        )

    def _check_order(self) -> None:
        if not self.onward:
            return
        circular = _circular(len(self.resolved), self.edges)
        told: set[int] = set()
        for source, target, reference in self.onward:
            group = circular.get(source)
            if group is None or group != circular.get(target):
                error = self._bad_reference(source, reference, "an earlier step")
                later = self.resolved[target].id
                self._add(source, replace(error, fix=f"move step {later} before this one, or {error.fix}"))
            elif group not in told:
                told.add(group)
                self._add(source, self._cycle(source, reference, [p for p, g in circular.items() if g == group]))

    def _cycle(self, place: int, reference: Reference, places: Sequence[int]) -> PlanError:
        step = self.resolved[place]
        names = [self.resolved[place].id for place in sorted(places)]
        expected = f"no circle among steps {', '.join(cut(names))}"
        fix = f"let step {names[0]} not wait for a later one"
        if len(names) == 1:
            expected, fix = "a step that does not wait for itself", "take the reference of the step to itself out"
        return PlanError(
            code=ErrorCode.CYCLE,
            step=step.id,
            tool=step.tool,
            path=_path_of(reference),
            got=f"`{shorten(reference.text)}`",
            expected=expected,
            fix=fix,
        )

    def _check_agent(self, place: int, step: PlanStep) -> None:
        agents = tuple(self.agents or ())
        if step.agent in agents or NameIndex(agents).resolve(step.agent or "") is not None:
            return
        near = nearest(step.agent or "", agents)
        self._add(
            place,
            PlanError(
                code=ErrorCode.UNKNOWN_AGENT,
                step=step.id,
                tool=step.tool,
                path="agent",
                got=f"`{shorten(step.agent or '')}`",
                expected=f"one of the agents {', '.join(cut(agents))}" if agents else "no agent, as there are none",
                did_you_mean=near,
                fix=f"give the step to `{near[0]}`" if near else "give the step to an agent that there is",
                available=cut(agents),
            ),
        )

    def _check_allowed(self, place: int, step: PlanStep, name: str) -> None:
        folded = fold(name)
        why = next((f"it is denied by `{p}`" for form, p in self.denied if fnmatchcase(folded, form)), None)
        allowed: tuple[str, ...] = ()
        if why is None and isinstance(self.agents, Mapping) and step.agent is not None and step.agent in self.agents:
            allowed = tuple(self.agents[step.agent])
            if name not in allowed and NameIndex(allowed).resolve(name) is None:
                why = f"it is no tool of `{step.agent}`"
        if why is None:
            return
        owners: list[str] = []
        if isinstance(self.agents, Mapping) and allowed:
            owners = [agent for agent, own in self.agents.items() if NameIndex(own).resolve(name) is not None]
        fix = f"give the step to `{owners[0]}`" if owners else "use another tool, or take the step out"
        self._add(
            place,
            PlanError(
                code=ErrorCode.DENIED_TOOL,
                step=step.id,
                tool=name,
                path="tool",
                got=f"`{shorten(name)}`",
                expected=f"another tool, as {why}",
                fix=fix,
                available=cut(allowed),
            ),
        )

    def _check_effect(self, place: int, step: PlanStep, spec: ToolSpec) -> None:
        if spec.repeatable or not step.arguments:
            return
        names = spec.identity if spec.identity is not None else sorted(step.arguments)
        same = [[name, step.arguments.get(name)] for name in names if step.arguments.get(name) is not None]
        try:
            key = orjson.dumps([spec.name, same], option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        except (TypeError, ValueError, RecursionError):
            return
        first = self.effects.setdefault(key, step.id)
        if first != step.id:
            self._add(
                place,
                PlanError(
                    code=ErrorCode.DUPLICATE_EFFECT,
                    step=step.id,
                    tool=spec.name,
                    path="args",
                    got=f"the effect of step {first} once more",
                    expected="each effect once",
                    fix=f"take this step out, as step {first} does the same",
                ),
            )


def _path_of(reference: Reference) -> str:
    return argument_path(reference.path) if reference.path else "depends_on"


def _explain(step: str, tool: str | None, violation: Violation, all_of_them: Sequence[Violation]) -> PlanError:
    near: tuple[str, ...] = ()
    name = str(violation.path[-1]) if violation.path else ""
    available = violation.available
    match violation.code:
        case ErrorCode.MISSING_ARGUMENT:
            surplus = _siblings(violation, all_of_them, ErrorCode.UNKNOWN_ARGUMENT)
            meant = next((one for one in surplus if name in nearest(one, [name])), None)
            kind = f" ({violation.expected})" if violation.expected != "a value" else ""
            fix = f"rename `{shorten(meant)}` to `{name}`" if meant else f"add `{name}`{kind}"
        case ErrorCode.UNKNOWN_ARGUMENT:
            missing = _siblings(violation, all_of_them, ErrorCode.MISSING_ARGUMENT)
            near = nearest(name, (*missing, *(one for one in available if one not in missing)))
            fix = f"rename it to `{near[0]}`, or leave it out" if near else "leave it out"
        case ErrorCode.WRONG_TYPE:
            fix = f"give {violation.expected} instead"
        case ErrorCode.ENUM:
            near = nearest(violation.got, available)
            fix = f"use {violation.expected}"
        case _:
            fix = f"give {violation.expected}"
    return PlanError(
        code=violation.code,
        step=step,
        tool=tool,
        path=argument_path(violation.path),
        got=violation.got,
        expected=violation.expected,
        did_you_mean=near,
        fix=fix,
        available=cut(available),
    )


def _siblings(violation: Violation, all_of_them: Sequence[Violation], code: ErrorCode) -> list[str]:
    above = violation.path[:-1]
    return [str(one.path[-1]) for one in all_of_them if one.code is code and one.path[:-1] == above]


def _unknown_tool(step: str, tool: str, registry: ToolRegistry) -> PlanError:
    near = registry.near(tool)
    available = cut(registry.index.names)
    if near:
        fix = f"use `{near[0]}`" + (f", or {' or '.join(f'`{one}`' for one in near[1:])}" if near[1:] else "")
    else:
        fix = "use a tool that there is" if available else "answer without a tool"
    return PlanError(
        code=ErrorCode.UNKNOWN_TOOL,
        step=step,
        tool=tool,
        path="tool",
        got=f"`{shorten(tool)}`",
        expected="a tool that there is",
        did_you_mean=near,
        fix=fix,
        available=available,
    )


def _placeholders(step: str, tool: str, scan: Scan) -> list[PlanError]:
    return [
        PlanError(
            code=ErrorCode.PLACEHOLDER,
            step=step,
            tool=tool,
            path=argument_path(path),
            got=f"`{shorten(text)}`",
            expected="the value itself",
            fix="put the value there, or the output of an earlier step" if step else "put the value there",
        )
        for path, text in scan.placeholders
    ]


def _key_given(step: PlanStep) -> PlanError:
    return PlanError(
        code=ErrorCode.UNKNOWN_ARGUMENT,
        step=step.id,
        tool=step.tool,
        path=f"args.{KEY_PARAMETER}",
        got=f"`{KEY_PARAMETER}`",
        expected="nothing, as the guard fills it",
        fix="leave it out",
    )


def _repeated_id(step: PlanStep) -> PlanError:
    return PlanError(
        code=ErrorCode.CONSTRAINT,
        step=step.id,
        tool=step.tool,
        path="id",
        got=f"`{shorten(step.id)}`",
        expected="an id that no other step has",
        fix="number the steps anew",
    )


def _circular(count: int, edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Group the steps that wait for themselves: place to number of the circle."""
    onward: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        onward[source].append(target)
    reach = [_reachable(place, onward) for place in range(count)]
    groups: dict[int, int] = {}
    for place in range(count):
        if place in reach[place]:
            groups[place] = min(other for other in reach[place] if place in reach[other])
    return groups


def _reachable(start: int, onward: Sequence[Sequence[int]]) -> set[int]:
    seen: set[int] = set()
    todo = list(onward[start])
    while todo:
        place = todo.pop()
        if place not in seen:
            seen.add(place)
            todo += onward[place]
    return seen
