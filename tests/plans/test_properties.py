"""A plan that was made from the registry passes; any one change to it is found, by code and place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_agentguard.events import PlanStep, ToolSpec
from otel_agentguard.plans import PlanReport, ToolRegistry, check_plan
from otel_agentguard.plans.schemas import compile_schema

PATIENT = settings(deadline=None)
WORDS = st.text("abcdefghij ", min_size=1, max_size=12).map(lambda text: f"v {text}")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": WORDS,
    "integer": st.integers(-(2**40), 2**40),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "array": st.lists(st.integers(0, 9), max_size=3),
    "object": st.dictionaries(st.sampled_from(["x", "y"]), WORDS, max_size=2),
}
WRONG = {"string": 7, "integer": "seven", "number": "seven", "boolean": 1, "array": {"a": 1}, "object": [1]}
ARGUMENTS = ("alpha", "beta", "gamma", "delta")
TOOLS = ("search_docs", "charge_card", "open_ticket", "read_page", "plot_chart")
References = Callable[[int], object]
FORMS: tuple[References, ...] = (
    lambda number: f"{{step_{number}}}",
    lambda number: f"${number}",
    lambda number: f"#E{number}",
    lambda number: {"$ref": str(number)},
)


@st.composite
def registries(draw: st.DrawFn) -> ToolRegistry:
    specs = []
    for name in draw(st.lists(st.sampled_from(TOOLS), min_size=1, unique=True)):
        kinds = draw(st.dictionaries(st.sampled_from(ARGUMENTS), st.sampled_from(sorted(VALUES)), min_size=1))
        required = [one for one in kinds if draw(st.booleans())]
        properties = {one: {"type": kind} for one, kind in kinds.items()}
        specs.append(ToolSpec(name=name, schema={"type": "object", "properties": properties, "required": required}))
    return ToolRegistry(specs)


@st.composite
def plans(draw: st.DrawFn) -> tuple[ToolRegistry, list[PlanStep]]:
    registry = draw(registries())
    steps: list[PlanStep] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        spec = registry[draw(st.sampled_from(sorted(registry)))]
        arguments: dict[str, object] = {}
        for name, kind in kinds_of(spec).items():
            earlier = [step.id for step in steps]
            if earlier and draw(st.booleans()):
                arguments[name] = draw(st.sampled_from(FORMS))(int(draw(st.sampled_from(earlier))))
            elif name in required_of(spec) or draw(st.booleans()):
                arguments[name] = draw(VALUES[kind])
        depends = tuple(draw(st.sets(st.sampled_from([step.id for step in steps]), max_size=2))) if steps else ()
        steps.append(PlanStep(id=str(number), tool=spec.name, arguments=arguments, depends_on=depends))
    return registry, steps


def kinds_of(spec: ToolSpec) -> dict[str, str]:
    properties: Any = spec.schema["properties"]
    return {name: schema["type"] for name, schema in properties.items()}


def required_of(spec: ToolSpec) -> list[str]:
    required: Any = spec.schema["required"]
    return list(required)


def found(report: PlanReport) -> list[tuple[str, str, str]]:
    return [(error.step, error.code.value, error.path) for error in report.errors]


def changed(step: PlanStep, name: str, value: object) -> PlanStep:
    return replace(step, arguments={**(step.arguments or {}), name: value})


@PATIENT
@given(plans())
def test_a_plan_that_was_made_from_the_registry_passes(made: tuple[ToolRegistry, list[PlanStep]]) -> None:
    registry, steps = made

    report = check_plan(steps, tools=registry)

    assert found(report) == []
    assert list(report.plan) == steps


@PATIENT
@given(plans(), st.data())
def test_another_name_of_a_tool_is_found(made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject) -> None:
    registry, steps = made
    place = data.draw(st.integers(0, len(steps) - 1))
    wrong = data.draw(st.sampled_from(["search", "docs_search_v2", "teleport", "", "charge", "read_pages_now"]))
    steps[place] = replace(steps[place], tool=wrong)

    report = check_plan(steps, tools=registry)

    assert found(report) == [(steps[place].id, "unknown_tool", "tool")]


@PATIENT
@given(plans(), st.data())
def test_a_required_argument_that_is_left_out_is_found(
    made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject
) -> None:
    registry, steps = made
    open_places = [(place, name) for place, step in enumerate(steps) for name in required_of(registry[str(step.tool)])]
    if not open_places:
        return
    place, name = data.draw(st.sampled_from(open_places))
    kept = {key: value for key, value in (steps[place].arguments or {}).items() if key != name}
    steps[place] = replace(steps[place], arguments=kept)

    report = check_plan(steps, tools=registry)

    assert found(report) == [(steps[place].id, "missing_argument", f"args.{name}")]


@PATIENT
@given(plans(), st.data())
def test_an_argument_that_there_is_not_is_found(made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject) -> None:
    registry, steps = made
    place = data.draw(st.integers(0, len(steps) - 1))
    steps[place] = changed(steps[place], "epsilon", data.draw(WORDS))

    report = check_plan(steps, tools=registry)

    assert found(report) == [(steps[place].id, "unknown_argument", "args.epsilon")]


@PATIENT
@given(plans(), st.data())
def test_a_value_of_another_type_is_found(made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject) -> None:
    registry, steps = made
    place = data.draw(st.integers(0, len(steps) - 1))
    name, kind = data.draw(st.sampled_from(sorted(kinds_of(registry[str(steps[place].tool)]).items())))
    steps[place] = changed(steps[place], name, WRONG[kind])

    report = check_plan(steps, tools=registry)

    assert found(report) == [(steps[place].id, "wrong_type", f"args.{name}")]


@PATIENT
@given(plans(), st.data(), st.sampled_from(FORMS))
def test_a_reference_to_no_step_is_found(
    made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject, form: References
) -> None:
    registry, steps = made
    place = data.draw(st.integers(0, len(steps) - 1))
    name = data.draw(st.sampled_from(sorted(kinds_of(registry[str(steps[place].tool)]))))
    steps[place] = changed(steps[place], name, form(99))

    report = check_plan(steps, tools=registry)

    assert found(report) == [(steps[place].id, "bad_reference", f"args.{name}")]


@PATIENT
@given(plans(), st.data(), st.sampled_from(FORMS))
def test_a_reference_of_a_step_to_itself_is_found(
    made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject, form: References
) -> None:
    registry, steps = made
    place = data.draw(st.integers(0, len(steps) - 1))
    name = data.draw(st.sampled_from(sorted(kinds_of(registry[str(steps[place].tool)]))))
    steps[place] = changed(steps[place], name, form(place + 1))

    report = check_plan(steps, tools=registry)

    assert found(report) == [(steps[place].id, "cycle", f"args.{name}")]


@PATIENT
@given(plans(), st.data(), st.sampled_from(FORMS))
def test_a_step_that_comes_before_what_it_needs_is_found(
    made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject, form: References
) -> None:
    registry, steps = made
    if len(steps) < 2:
        return
    place = data.draw(st.integers(1, len(steps) - 1))
    needed = data.draw(st.integers(0, place - 1))
    name = data.draw(st.sampled_from(sorted(kinds_of(registry[str(steps[place].tool)]))))
    steps[place] = changed(steps[place], name, form(needed + 1))
    moved = [*steps[:needed], *steps[needed + 1 : place + 1], steps[needed], *steps[place + 1 :]]

    report = check_plan(moved, tools=registry)

    assert (steps[place].id, "bad_reference", f"args.{name}") in found(report)
    assert {code for _, code, _ in found(report)} == {"bad_reference"}


@PATIENT
@given(plans(), st.data())
def test_both_validators_agree(made: tuple[ToolRegistry, list[PlanStep]], data: st.DataObject) -> None:
    jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="jsonschema-rs is not installed")
    registry, steps = made
    step = steps[0]
    spec = registry[str(step.tool)]
    name = data.draw(st.sampled_from([*kinds_of(spec), "epsilon"]))
    arguments = {**(step.arguments or {}), name: data.draw(st.one_of(*VALUES.values(), st.none()))}

    slow = compile_schema({**spec.schema, "additionalProperties": False}, tool=spec.name).violations(arguments)
    fast = jsonschema_rs.validator_for({**spec.schema, "additionalProperties": False}).is_valid(arguments)

    assert fast is (slow == [])
