"""What keeps a plan from being executed is said before it runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_agentguard.events import Effect, PlanStep, ToolSpec
from otel_agentguard.plans import ErrorCode, PlanReport, ToolRegistry, check_plan

OBJECT = {"type": "object"}
TOOLS = ToolRegistry(
    [
        ToolSpec(
            name="web_search",
            schema={
                **OBJECT,
                "properties": {
                    "query": {"type": "string", "minLength": 2},
                    "limit": {"type": "integer", "minimum": 1},
                    "sort": {"enum": ["date", "rank"]},
                    "filters": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
                },
                "required": ["query"],
            },
        ),
        ToolSpec(
            name="get_asset",
            schema={**OBJECT, "properties": {"asset": {"type": "integer"}}, "required": ["asset"]},
        ),
        ToolSpec(name="charge", effect=Effect.SIDE_EFFECT, identity=("invoice",)),
        ToolSpec(name="list_sites", schema={**OBJECT, "properties": {}}),
    ]
)  # fmt: skip


def step(name: str, tool: str | None = "web_search", /, *depends_on: str, agent: str | None = None, **args: object):  # type: ignore[no-untyped-def]
    return PlanStep(id=name, tool=tool, arguments=args, depends_on=depends_on, agent=agent)


def found(report: PlanReport) -> list[tuple[str, str, str]]:
    return [(error.step, error.code.value, error.path) for error in report.errors]


def one_step(tool: str | None = "web_search", /, **args: object) -> list[tuple[str, str]]:
    return [(code, path) for _, code, path in found(check_plan([step("1", tool, **args)], tools=TOOLS))]


def test_a_plan_that_can_be_executed_is_fine() -> None:
    plan = [
        step("1", query="pumps at MAIN"),
        step("2", None, "1"),
        step("3", "get_asset", asset="{step_1}"),
        step("4", query="more about {step_3}", limit=3, sort="date", filters=None),
    ]

    report = check_plan(plan, tools=TOOLS)

    assert report.ok
    assert report.errors == ()
    assert report.feedback() == ""


def test_the_normalised_plan_calls_tools_by_their_names() -> None:
    report = check_plan([{"tool": "Web-Search", "args": {"query": "x y"}}], tools=TOOLS)

    assert report.ok
    assert report.plan == (PlanStep(id="1", tool="web_search", arguments={"query": "x y"}),)


def test_an_order_cannot_be_queried_by_user_where_the_tool_wants_an_order_id() -> None:
    registry = ToolRegistry.from_dicts([{"name": "query_order", "required_args": ["order_id"]}])
    plan = [
        {"step": 1, "tool": "query_order", "args_hint": {"user_id": "current", "sort": "latest"}},
        {"step": 2, "tool": "summarise", "args_hint": {"orders": "{step_1}"}},
    ]

    report = check_plan(plan, tools=registry)

    assert found(report) == [
        ("1", "missing_argument", "args.order_id"),
        ("1", "unknown_argument", "args.user_id"),
        ("1", "unknown_argument", "args.sort"),
        ("2", "unknown_tool", "tool"),
    ]
    assert "add `order_id`" in report.feedback()


def test_a_search_that_is_called_web_search_is_pointed_at() -> None:
    report = check_plan([step("1", "search", query="x y")], tools=TOOLS)

    (error,) = report.errors
    assert (error.code, error.step, error.tool, error.path) == (ErrorCode.UNKNOWN_TOOL, "1", "search", "tool")
    assert error.did_you_mean == ("web_search",)
    assert error.fix == "use `web_search`"
    assert error.available == ("web_search", "get_asset", "charge", "list_sites")


@pytest.mark.parametrize(
    ("args", "code", "path"),
    [
        ({}, "missing_argument", "args.query"),
        ({"query": "xy", "page": 2}, "unknown_argument", "args.page"),
        ({"query": 3}, "wrong_type", "args.query"),
        ({"query": "xy", "limit": "3"}, "wrong_type", "args.limit"),
        ({"query": "xy", "limit": 1.5}, "wrong_type", "args.limit"),
        ({"query": "xy", "sort": "size"}, "enum", "args.sort"),
        ({"query": "x"}, "constraint", "args.query"),
        ({"query": "xy", "limit": 0}, "constraint", "args.limit"),
        ({"query": "xy", "filters": ["a", 1]}, "wrong_type", "args.filters[1]"),
        ({"query": "xy", "filters": "a"}, "wrong_type", "args.filters"),
    ],
)
def test_what_is_wrong_with_an_argument_has_a_code_and_a_path(args: Mapping[str, object], code: str, path: str) -> None:
    assert one_step(**args) == [(code, path)]


def test_all_errors_of_all_steps_are_told_at_once() -> None:
    plan = [step("1", limit=0, page=1), step("2", "serch", query="x y"), step("3", "get_asset", asset="{step_9}")]

    assert found(check_plan(plan, tools=TOOLS)) == [
        ("1", "missing_argument", "args.query"),
        ("1", "unknown_argument", "args.page"),
        ("1", "constraint", "args.limit"),
        ("2", "unknown_tool", "tool"),
        ("3", "bad_reference", "args.asset"),
    ]


def test_a_misspelt_argument_is_renamed() -> None:
    report = check_plan([step("1", qery="x y")], tools=TOOLS)

    missing, surplus = report.errors
    assert missing.fix == "rename `qery` to `query`"
    assert surplus.did_you_mean == ("query",)


@pytest.mark.parametrize("reference", ["$1", "{step_1}", "#E1", "{step_1.asset}", {"$ref": "step_1"}])
def test_a_reference_fits_every_type(reference: object) -> None:
    plan = [step("1", query="x y"), step("2", "get_asset", asset=reference)]

    assert check_plan(plan, tools=TOOLS).ok


def test_a_reference_fits_inside_of_alternatives_too() -> None:
    plan = [
        step("1", query="x y"),
        step("2", query="x y", filters=["a", {"$ref": "1"}]),
        step("3", query="$2", sort="$1"),
    ]

    assert check_plan(plan, tools=TOOLS).ok


def test_text_around_a_reference_is_text() -> None:
    plan = [
        step("1", query="x y"),
        step("2", "get_asset", asset="asset {step_1}"),
        step("3", query="{step_1}!", sort="by $1"),
    ]

    assert found(check_plan(plan, tools=TOOLS)) == [("2", "wrong_type", "args.asset")]


@pytest.mark.parametrize("reference", ["{step_3}", "$3", "{step_7}", {"$ref": "7"}])
def test_a_reference_to_a_later_or_a_missing_step_is_bad(reference: object) -> None:
    plan = [step("1", query="x y"), step("2", query=reference), step("3", query="x y")]

    assert found(check_plan(plan, tools=TOOLS)) == [("2", "bad_reference", "args.query")]


def test_a_later_step_is_named_as_the_one_to_move() -> None:
    plan = [step("1", query="{step_2}"), step("2", query="x y")]

    (error,) = check_plan(plan, tools=TOOLS).errors

    assert error.fix.startswith("move step 2 before this one")


def test_prose_has_no_output_to_refer_to() -> None:
    plan = [step("1", query="x y"), step("2", None, "1"), step("3", "get_asset", "2", asset="{step_2}")]

    assert found(check_plan(plan, tools=TOOLS)) == [("3", "bad_reference", "args.asset")]


def test_a_price_within_text_is_no_reference() -> None:
    plan = [step("1", query="hotels under $2 a night"), step("2", query="x y")]

    assert check_plan(plan, tools=TOOLS).ok


def test_the_model_as_a_worker_is_known_and_has_output() -> None:
    plan = "#E1 = web_search[x y]\n#E2 = LLM[what is #E1?]\n#E3 = web_search[#E2]\n#E4 = web_search[#E9]"

    assert found(check_plan(plan, tools=TOOLS)) == [("E4", "bad_reference", "args.query")]


def test_a_dependency_must_be_there_and_come_before() -> None:
    plan = [step("1", "list_sites", "2"), step("2", "list_sites", "9")]

    assert found(check_plan(plan, tools=TOOLS)) == [
        ("1", "bad_reference", "depends_on"),
        ("2", "bad_reference", "depends_on"),
    ]


def test_steps_that_wait_for_each_other_are_one_cycle() -> None:
    plan = [step("1", query="{step_3}"), step("2", query="{step_1}"), step("3", "list_sites", "2")]

    assert found(check_plan(plan, tools=TOOLS)) == [("1", "cycle", "args.query")]


def test_a_step_that_waits_for_itself_is_a_cycle() -> None:
    assert found(check_plan([step("1", query="{step_1}")], tools=TOOLS)) == [("1", "cycle", "args.query")]


def test_a_value_that_nobody_filled_in_is_no_value() -> None:
    assert one_step("get_asset", asset="<asset_id>") == [("placeholder", "args.asset")]
    assert one_step(query="{{ topic }}") == [("placeholder", "args.query")]


def test_references_are_checked_where_no_tools_are_known() -> None:
    report = check_plan([step("1", "anything", a="{step_2}", b="<the_value>"), step("2", "whatever", c=1)])

    assert found(report) == [("1", "placeholder", "args.b"), ("1", "bad_reference", "args.a")]


def test_the_guards_own_key_is_not_the_planners_to_give() -> None:
    (error,) = check_plan([step("1", "charge", invoice="i-1", idempotency_key="k")], tools=TOOLS).errors

    assert (error.code, error.path, error.fix) == ("unknown_argument", "args.idempotency_key", "leave it out")


def test_the_same_effect_twice_in_a_plan_is_told() -> None:
    plan = [
        step("1", "charge", invoice="i-1", amount=5),
        step("2", "charge", invoice="i-2", amount=5),
        step("3", "charge", invoice="i-1", amount=6),
    ]

    (error,) = check_plan(plan, tools=TOOLS).errors

    assert (error.step, error.code) == ("3", "duplicate_effect")
    assert "step 1" in error.fix


def test_equal_calls_of_a_repeatable_tool_are_two_effects() -> None:
    registry = ToolRegistry([ToolSpec(name="dose", effect=Effect.SIDE_EFFECT, repeatable=True)])

    assert check_plan([step("1", "dose", ml=5), step("2", "dose", ml=5)], tools=registry).ok


def test_equal_reads_are_not_effects() -> None:
    assert check_plan([step("1", query="x y"), step("2", query="x y")], tools=TOOLS).ok


def test_an_agent_that_there_is_not_is_told() -> None:
    plan = [step("1", query="x y", agent="ForecastAgent"), step("2", query="x y", agent="IoTAgent")]

    (error,) = check_plan(plan, tools=TOOLS, agents=["IoTAgent", "WorkOrderAgent"]).errors

    assert (error.step, error.code, error.path) == ("1", "unknown_agent", "agent")
    assert error.available == ("IoTAgent", "WorkOrderAgent")


def test_a_tool_of_another_agent_is_denied_and_its_owner_named() -> None:
    agents = {"searcher": ["web_search"], "payer": ["charge"]}

    (error,) = check_plan([step("1", "charge", agent="searcher", invoice="i")], tools=TOOLS, agents=agents).errors

    assert (error.code, error.fix) == ("denied_tool", "give the step to `payer`")


@pytest.mark.parametrize("denied", ["charge", "Charge", "char*"])
def test_a_denied_tool_is_told(denied: str) -> None:
    report = check_plan([step("1", "charge", invoice="i"), step("2", query="x y")], tools=TOOLS, denied=[denied])

    assert found(report) == [("1", "denied_tool", "tool")]


def test_two_steps_of_one_id_are_told() -> None:
    report = check_plan([step("1", query="x y"), step("1", query="x y")], tools=TOOLS)

    assert found(report) == [("1", "constraint", "id")]


def test_names_without_arguments_are_checked_as_names() -> None:
    assert found(check_plan([{"tool": "web_search"}, {"tool": "teleport"}], tools=TOOLS)) == [
        ("2", "unknown_tool", "tool")
    ]


def test_an_empty_registry_has_no_tools() -> None:
    (error,) = check_plan([step("1", query="x y")], tools=ToolRegistry()).errors

    assert (error.code, error.fix) == ("unknown_tool", "answer without a tool")


def test_feedback_says_what_is_wrong_what_exists_and_what_to_do() -> None:
    plan = [step("1", "search", query="x y"), step("2", query=3)]

    text = check_plan(plan, tools=TOOLS).feedback()

    assert text.splitlines() == [
        "[agentguard] (from the plan check, not from the user) This cannot be executed as it stands, 2 errors:",
        "- step 1: there is no tool `search` (unknown_tool). Fix: use `web_search`.",
        "- step 2, `web_search`: args.query: expected string, got integer (wrong_type). Fix: give string instead.",
        "Tools there are: web_search, get_asset, charge, list_sites.",
    ]


def test_feedback_stays_short_for_a_plan_that_is_all_wrong() -> None:
    registry = ToolRegistry(ToolSpec(name=f"tool_{number}") for number in range(200))

    text = check_plan([step(str(number), "teleport") for number in range(1, 500)], tools=registry).feedback()

    assert len(text) < 4000
    assert "and 479 more" in text
    assert "and 180 more" in text


def test_a_huge_value_is_not_quoted_whole() -> None:
    (error,) = check_plan([step("1", query="x y", sort="s" * 100_000)], tools=TOOLS).errors

    assert len(error.got) <= 80
