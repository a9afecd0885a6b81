"""Whatever a model hands in as a plan or as arguments is judged, never a crash."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_agentguard.errors import ConfigError
from otel_agentguard.plans import ToolRegistry, check_call, check_plan, parse_plan

PATIENT = settings(deadline=None)
KEYS = st.sampled_from(["steps", "tool", "args", "id", "n", "function", "depends_on", "args_hint", "name", "$ref", "x"])
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["{step_1}", "$1", "#E1 = f[x]", "1. f(", "1. f(1, {}, **x)", '{"a"', "f", "{{a.b}}", "$ref", "- [x] f"]
    ),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(), TEXTS)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=12,
)
REGISTRY = ToolRegistry.from_dicts(
    {
        "f": {"required": ["x"], "optional": ["steps"], "items_schema": {"steps": {"required": ["id"]}}},
        "g": {"schema": {"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}, {"enum": ["a"]}]}}}},
    }
)


@PATIENT
@given(JSON)
@example({"steps": [{"tool": "f", "args": {"x": {"$ref": {"$ref": 1}}}}]})
@example([{"id": float("nan"), "tool": "f"}])
def test_any_json_is_a_plan_or_is_refused(plan: Any) -> None:
    try:
        steps = parse_plan(plan, tools=REGISTRY)
    except ConfigError:
        return

    report = check_plan(plan, tools=REGISTRY)

    assert len(report.plan) == len(steps)
    assert report.ok is (report.feedback() == "")


@PATIENT
@given(st.sampled_from(["f", "g", "h"]), st.dictionaries(KEYS, JSON, max_size=4))
def test_any_arguments_are_judged(tool: str, arguments: dict[str, Any]) -> None:
    errors = check_call(tool, arguments, tools=REGISTRY)

    assert all(error.line() for error in errors)


def test_deep_and_self_referring_arguments_are_judged() -> None:
    endless: dict[str, Any] = {"x": 1}
    endless["steps"] = [endless]
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]

    assert check_call("f", {"x": deep}, tools=REGISTRY) == ()
    assert check_call("f", endless, tools=REGISTRY) != ()


def test_a_plan_of_a_hundred_thousand_steps_is_read_to_its_first_thousand() -> None:
    report = check_plan([{"tool": "f", "args": {"x": 1}}] * 100_000, tools=REGISTRY)

    assert len(report.plan) == 1000
