"""Plans of any shape come out in the neutral one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Plan, PlanStep
from otel_agentguard.plans import ToolRegistry, parse_plan
from otel_agentguard.plans.shapes import Hint

TOOLS = ToolRegistry.from_dicts(
    {
        "web_search": {"required": ["query"], "optional": ["limit"]},
        "math": {"required": ["problem", "context"]},
        "query_order": {"required": ["order_id"]},
    }
)

pydantic = pytest.importorskip("pydantic", reason="pip install pydantic")


def brief(steps: tuple[PlanStep, ...]) -> list[tuple[str, str | None, object]]:
    return [(step.id, step.tool, step.arguments) for step in steps]


def test_the_neutral_shape_keeps_every_part() -> None:
    plan = {
        "steps": [
            {"id": "a", "tool": "web_search", "args": {"query": "x"}, "agent": "ann"},
            {"id": "b", "tool": None, "args": {}, "depends_on": ["a"], "optional": True},
        ]
    }

    steps = parse_plan(plan)

    assert steps == (
        PlanStep(id="a", tool="web_search", arguments={"query": "x"}, agent="ann"),
        PlanStep(id="b", arguments={}, depends_on=("a",), optional=True),
    )


def test_steps_and_plans_of_ours_are_taken_as_they_are() -> None:
    steps = (PlanStep(id="1", tool="web_search"),)

    assert parse_plan(Plan(steps=steps)) == parse_plan(list(steps)) == steps


def test_the_steps_of_a_run_log_are_read() -> None:
    steps = parse_plan([{"n": 1, "tool": "web_search", "args": {"query": "x"}, "deps": [3], "agent": "ann"}])

    assert steps == (PlanStep(id="1", tool="web_search", arguments={"query": "x"}, depends_on=("3",), agent="ann"),)


@pytest.mark.parametrize(
    ("hint", "arguments"),
    [
        ({"order_id": "o-1"}, {"order_id": "o-1"}),
        ('{"order_id": "o-1"}', {"order_id": "o-1"}),
        ("order_id=17, deep=true", {"order_id": 17, "deep": True}),
        ("the latest order of the user", None),
        ("latest", None),
        ("", {}),
    ],
    ids=str,
)
def test_hints_for_arguments_are_read_as_far_as_they_tell(hint: object, arguments: object) -> None:
    steps = parse_plan([{"step": 1, "tool": "query_order", "args_hint": hint}], tools=TOOLS)

    assert brief(steps) == [("1", "query_order", arguments)]


@pytest.mark.parametrize("hint", ["order_id", "order_id, deep", ["order_id"], "order_id: the one above"])
def test_a_hint_that_names_arguments_promises_them(hint: object) -> None:
    (step,) = parse_plan([{"step": 1, "tool": "query_order", "args_hint": hint}], tools=TOOLS)

    assert step.arguments is not None
    assert isinstance(step.arguments["order_id"], Hint)


def test_a_plan_of_names_leaves_the_arguments_open() -> None:
    steps = parse_plan([{"tool": "web_search"}, {"tool": "none"}, {"tool": "query_order"}])

    assert brief(steps) == [("1", "web_search", None), ("2", None, None), ("3", "query_order", None)]


def test_a_step_without_arguments_among_steps_with_them_has_none() -> None:
    steps = parse_plan([{"tool": "web_search", "args": {"query": "x"}}, {"tool": "query_order"}])

    assert brief(steps)[1] == ("2", "query_order", {})


def test_crewai_steps_are_read_by_their_attributes() -> None:
    @dataclass
    class PlanStepOfCrewAI:
        step_number: int
        description: str
        tool_to_use: str | None = None
        depends_on: list[int] = field(default_factory=list)

    plan = SimpleNamespace(
        plan="two steps",
        steps=[PlanStepOfCrewAI(1, "find it", "web_search"), PlanStepOfCrewAI(2, "write about it", None, [1])],
    )

    steps = parse_plan(plan)

    assert steps == (
        PlanStep(id="1", tool="web_search"),
        PlanStep(id="2", depends_on=("1",)),
    )


def test_pydantic_models_and_plain_objects_are_read() -> None:
    class Step(pydantic.BaseModel):
        tool: str
        args: dict[str, str]

    plain = SimpleNamespace(id=7, tool="query_order", args={"order_id": "{step_1}"})

    steps = parse_plan([Step(tool="web_search", args={"query": "x"}), plain])

    assert brief(steps) == [("1", "web_search", {"query": "x"}), ("7", "query_order", {"order_id": "{step_1}"})]


def test_tool_calls_of_a_model_are_a_plan() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "web_search", "arguments": '{"query": "x"}'}}

    assert brief(parse_plan([call])) == [("call_1", "web_search", {"query": "x"})]


def test_the_text_of_llmcompiler_is_read_with_arguments_by_position() -> None:
    text = """1. web_search("who won", limit=3)
2. math("double it", $1)
Thought: I can answer now.
3. join()<END_OF_PLAN>"""

    steps = parse_plan(text, tools=TOOLS)

    assert brief(steps) == [
        ("1", "web_search", {"query": "who won", "limit": 3}),
        ("2", "math", {"problem": "double it", "context": "$1"}),
        ("3", None, None),
    ]


def test_arguments_that_are_no_python_are_one_text() -> None:
    steps = parse_plan("1. web_search(who won the cup?)\n2. web_search({'query': 'x'})", tools=TOOLS)

    assert brief(steps) == [("1", "web_search", {"query": "who won the cup?"}), ("2", "web_search", {"query": "x"})]


def test_more_values_than_parameters_are_kept_so_that_they_are_seen() -> None:
    (step,) = parse_plan('1. query_order("a", "b")', tools=TOOLS)

    assert step.arguments == {"order_id": "a", "argument 2": "b"}


def test_values_by_position_are_open_where_the_parameters_are_not_known() -> None:
    assert brief(parse_plan('1. teleport("a")')) == [("1", "teleport", None)]


def test_the_text_of_rewoo_is_read() -> None:
    text = """Plan: Look it up.
#E1 = web_search[population of Leiden]
Plan: Think.
#E2 = LLM[What is twice #E1?]
#E3 = math[{"problem": "#E2", "context": "none"}]"""

    steps = parse_plan(text, tools=TOOLS)

    assert [(step.id, step.tool) for step in steps] == [("E1", "web_search"), ("E2", "LLM"), ("E3", "math")]
    assert steps[0].arguments == {"query": "population of Leiden"}
    assert steps[2].arguments == {"problem": "#E2", "context": "none"}


def test_json_in_a_fence_is_read() -> None:
    text = "Here is my plan:\n```json\n" + json.dumps({"steps": [{"tool": "web_search", "args": {}}]}) + "\n```"

    assert brief(parse_plan(text)) == [("1", "web_search", {})]


def test_a_todo_list_is_prose_but_for_names_of_tools() -> None:
    text = "- [x] understand the question\n2. web_search: find it\n* Deploy"

    steps = parse_plan(text, tools=TOOLS)

    assert brief(steps) == [("1", None, None), ("2", "web_search", None), ("3", None, None)]


def test_todo_items_are_read() -> None:
    todos = [{"content": "Tidy up", "status": "pending"}, {"content": "web_search", "status": "pending"}, "done"]

    steps = parse_plan(todos, tools=TOOLS)

    assert brief(steps) == [("1", None, None), ("2", "web_search", None), ("3", None, None)]


@pytest.mark.parametrize(
    "plan",
    [None, 42, b"plan", [42], [object()]],
    ids=lambda plan: type(plan).__name__ + str(isinstance(plan, list) and type(plan[0]).__name__),
)
def test_what_is_no_plan_is_refused(plan: object) -> None:
    with pytest.raises(ConfigError, match=r"cannot read a (plan|step)"):
        parse_plan(plan)


def test_an_empty_plan_has_no_steps() -> None:
    assert parse_plan([]) == parse_plan("") == ()
