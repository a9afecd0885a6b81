"""References between steps, and values that nobody filled in."""

from __future__ import annotations

import pytest

from otel_agentguard.plans.references import StepIndex, scan_call, scan_plan

INDEX = StepIndex(["1", "2", "3"])


@pytest.mark.parametrize(
    "text",
    [
        "{step_2}", "{{step_2}}", "${step_2}", "{ step 2 }", "{steps.2.output}", "{{steps[2].rows}}", "{step_2.id}",
        "{result_of_step_2}", "{output.step_2}", "{{task_2}}", "$2", "${2}", "$2.id", "$step_2", "$steps.2.rows", "#E2",
    ],
)  # fmt: skip
def test_every_usual_form_of_a_reference_is_read(text: str) -> None:
    scan = scan_plan({"value": text}, INDEX)

    assert scan is not None
    assert [(one.target, one.path) for one in scan.references] == [("2", ("value",))]
    assert scan.untyped == {("value",)}


@pytest.mark.parametrize("target", [2, "{step_2}", "step_2", "$2", "#E2", "#/steps/2", "#/steps/2/output", "step_2.x"])
def test_a_ref_object_is_a_reference(target: object) -> None:
    scan = scan_plan({"deep": [{"$ref": target}]}, INDEX)

    assert scan is not None
    assert [(one.target, one.path) for one in scan.references] == [("2", ("deep", 0))]


def test_a_reference_within_text_leaves_the_rest_known_as_text() -> None:
    scan = scan_plan({"query": "weather in {step_1} and {step_2}"}, INDEX)

    assert scan is not None
    assert [one.target for one in scan.references] == ["1", "2"]
    assert scan.partial == {("query",)}
    assert not scan.untyped


def test_the_name_of_a_step_in_braces_is_a_reference() -> None:
    scan = scan_plan({"orders": "{fetch_orders.output}"}, StepIndex(["fetch_orders", "report"]))

    assert scan is not None
    assert scan.references[0].target == "fetch_orders"


@pytest.mark.parametrize(
    "text",
    [
        "price is $7, or $1,000",
        "colour #E1E1E1",
        'if (x) { return "y"; }',
        r"\d{3}-\d{4}",
        '{"a": 1}',
        "a plain sentence",
        "echo ${HOME}",
    ],
)
def test_ordinary_text_is_no_reference(text: str) -> None:
    assert scan_plan({"content": text}, INDEX) is None


def test_a_pointer_of_json_schema_is_no_reference() -> None:
    scan = scan_plan({"schema": {"items": {"$ref": "#/$defs/Order"}}}, INDEX)

    assert scan is None


@pytest.mark.parametrize(
    "text",
    [
        "<order_id>",
        "<the order id>",
        "{order_id}",
        "{{ order_id }}",
        "YOUR_API_KEY",
        "[ORDER_ID]",
        "TBD",
        "...",
        "<id>",
    ],
)
def test_a_value_that_nobody_filled_in_is_a_placeholder(text: str) -> None:
    scan = scan_plan({"value": text}, INDEX)

    assert scan is not None
    assert scan.placeholders == [(("value",), text)]


@pytest.mark.parametrize(
    "text", ["<b>", "<https://example.test>", "{}", "[]", "[1, 2]", "todo", "Your order", "a <b_c>"]
)
def test_what_only_looks_like_one_is_no_placeholder(text: str) -> None:
    assert scan_plan({"value": text}, INDEX) is None


def test_a_template_may_hold_what_is_filled_in_later() -> None:
    assert scan_plan({"template": "{name}"}, INDEX) is None


@pytest.mark.parametrize("text", ["{step_1}", "{{step_1.output}}", "#E1", "<order_id>", "YOUR_API_KEY"])
def test_a_call_that_still_holds_a_reference_was_not_filled_in(text: str) -> None:
    scan = scan_call({"value": text})

    assert scan is not None
    assert scan.placeholders == [(("value",), text)]


@pytest.mark.parametrize("text", ["{name}", "$1", "${1}", "TODO", "...", "see {step_1}", "{}", "<div>"])
def test_a_call_may_hold_code_and_patterns(text: str) -> None:
    assert scan_call({"value": text}) is None


def test_an_object_that_is_no_json_has_no_type_yet() -> None:
    scan = scan_call({"value": [object()]})

    assert scan is not None
    assert scan.untyped == {("value", 0)}


@pytest.mark.parametrize(
    ("ids", "target", "place"),
    [
        (["1", "2"], "2", 1),
        (["step_1", "step_2"], "2", 1),
        (["E1", "E2"], "2", 1),
        (["s1", "s2"], "step_2", 1),
        (["first", "second"], "2", 1),
        (["Fetch-Orders", "b"], "fetch_orders", 0),
        (["10", "20"], "2", None),
        (["1", "2"], "3", None),
        (["a", "a"], "a", 0),
    ],
)
def test_a_reference_finds_its_step_by_id_number_or_place(ids: list[str], target: str, place: int | None) -> None:
    assert StepIndex(ids).find(target) == place
