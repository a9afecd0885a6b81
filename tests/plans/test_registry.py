"""Registries from whatever tools come as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypedDict

import pytest

from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Effect, ToolSpec
from otel_agentguard.plans import ToolRegistry, check_call
from otel_agentguard.seams.tool import tool

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}

pydantic = pytest.importorskip("pydantic", reason="pip install pydantic")


def codes(registry: ToolRegistry, tool: str, /, **arguments: object) -> list[tuple[str, str]]:
    return [(error.code.value, error.path) for error in check_call(tool, arguments, tools=registry)]


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Line(TypedDict):
    sku: str
    qty: int


@dataclass
class Address:
    street: str
    country: str = "NL"


class Customer(pydantic.BaseModel):
    name: str
    address: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults


class Connection:
    """Something that a framework hands in."""


def order(
    lines: list[Line],
    size: Size,
    to: Address,
    customer: Customer,
    connection: Connection,
    mode: Literal["fast", "slow"] = "fast",
    limit: Annotated[int, "at most"] = 10,
    due: datetime | None = None,
    folder: Path = Path(),
    note: str = None,  # type: ignore[assignment]  # noqa: RUF013 - as people write it
    *,
    idempotency_key: str,
) -> None:
    """Order something.

    More of it.
    """


ORDER: dict[str, Any] = {
    "lines": [{"sku": "a", "qty": 1}],
    "size": "small",
    "to": {"street": "Main"},
    "customer": {"name": "Kim"},
}


def test_a_function_is_a_tool_with_name_description_and_arguments() -> None:
    registry = ToolRegistry.from_functions(order)

    assert list(registry) == ["order"]
    assert registry["order"].description == "Order something."
    assert registry["order"].schema["required"] == ["lines", "size", "to", "customer"]


def test_a_call_that_fits_the_type_hints_is_fine() -> None:
    registry = ToolRegistry.from_functions([order])

    found = codes(registry, "order", **ORDER, mode="slow", limit=3, due="2026-01-01", folder="/x", note=None)

    assert found == []


@pytest.mark.parametrize(
    ("name", "value", "code", "path"),
    [
        ("lines", [{"sku": "a"}], "missing_argument", "args.lines[0].qty"),
        ("lines", [{"sku": "a", "qty": "1"}], "wrong_type", "args.lines[0].qty"),
        ("lines", {"sku": "a", "qty": 1}, "wrong_type", "args.lines"),
        ("size", "huge", "enum", "args.size"),
        ("to", {}, "missing_argument", "args.to.street"),
        ("customer", {"name": 1}, "wrong_type", "args.customer.name"),
        ("mode", "medium", "enum", "args.mode"),
        ("limit", "3", "wrong_type", "args.limit"),
        ("limit", True, "wrong_type", "args.limit"),
        ("note", 3, "wrong_type", "args.note"),
        ("colour", "red", "unknown_argument", "args.colour"),
    ],
)
def test_what_does_not_fit_a_type_hint_is_named_with_its_path(name: str, value: object, code: str, path: str) -> None:
    registry = ToolRegistry.from_functions(order)

    assert codes(registry, "order", **{**ORDER, name: value}) == [(code, path)]


def test_live_python_values_pass_where_their_text_form_is_asked_for() -> None:
    registry = ToolRegistry.from_functions(order)

    found = codes(registry, "order", **{**ORDER, "to": Address("Main")}, folder=Path("/x"), connection=Connection())

    assert found == []


def test_tuples_are_arrays() -> None:
    registry = ToolRegistry.from_functions(order)

    assert codes(registry, "order", **{**ORDER, "lines": ({"sku": "a", "qty": 1},)}) == []


def test_a_function_with_keywords_takes_any_argument() -> None:
    def search(query: str, **options: object) -> None: ...

    registry = ToolRegistry.from_functions(search)

    assert codes(registry, "search", query="x", anything=1) == []
    assert codes(registry, "search", anything=1) == [("missing_argument", "args.query")]


def test_methods_and_partials_do_not_ask_for_what_is_bound() -> None:
    class Shop:
        def find(self, name: str) -> None: ...

    def move(source: str, target: str) -> None: ...

    registry = ToolRegistry.from_functions(Shop().find, partial(move, "a"))

    assert codes(registry, "find", name="x") == []
    assert codes(registry, "move", target="b") == []


def test_a_declared_tool_keeps_what_it_declares() -> None:
    @tool(effect=Effect.SIDE_EFFECT, identity=("invoice",), key_param="request_id")
    def charge(invoice: str, amount: int, *, request_id: str) -> str:
        """Charge a card."""
        return f"{invoice} {amount} {request_id}"

    registry = ToolRegistry.from_functions(charge)

    spec = registry["charge"]
    assert (spec.effect, spec.identity, spec.description) == (Effect.SIDE_EFFECT, ("invoice",), "Charge a card.")
    assert codes(registry, "charge", invoice="i", amount=1) == []


def test_a_function_without_hints_is_checked_by_names() -> None:
    def legacy(a, b=1):  # type: ignore[no-untyped-def]
        ...

    registry = ToolRegistry.from_functions(legacy)

    assert codes(registry, "legacy", a=object()) == []
    assert codes(registry, "legacy", b=1) == [("missing_argument", "args.a")]


def test_hints_that_exist_for_type_checkers_only_are_no_error() -> None:
    def lost(a: Nowhere, b: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    registry = ToolRegistry.from_functions(lost)

    assert codes(registry, "lost", a=1, b=2) == []


def test_mcp_tools_are_read_as_objects_or_as_json() -> None:
    as_json = {"tools": [{"name": "search", "inputSchema": QUERY, "annotations": {"readOnlyHint": True}}]}
    as_objects = SimpleNamespace(
        tools=[SimpleNamespace(name="search", description=None, inputSchema=QUERY, annotations=None)]
    )

    from_json = ToolRegistry.from_mcp(as_json)
    from_objects = ToolRegistry.from_mcp(as_objects)

    assert from_json["search"].effect is Effect.READ
    assert from_objects["search"].effect is Effect.UNKNOWN
    assert codes(from_json, "search") == codes(from_objects, "search") == [("missing_argument", "args.query")]


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param({"type": "function", "function": {"name": "search", "parameters": QUERY}}, id="chat"),
        pytest.param({"type": "function", "name": "search", "parameters": QUERY, "strict": True}, id="responses"),
    ],
)
def test_openai_tools_are_read_in_both_forms(definition: object) -> None:
    registry = ToolRegistry.from_openai([definition, {"type": "web_search"}])

    assert list(registry) == ["search", "web_search"]
    assert codes(registry, "search") == [("missing_argument", "args.query")]
    assert codes(registry, "web_search", anything=1) == []


def test_langchain_tools_are_read_without_what_is_injected() -> None:
    class Arguments(pydantic.BaseModel):
        query: str

    class Everything(Arguments):
        state: dict[str, str]

    tool = SimpleNamespace(name="search", description="d", tool_call_schema=Arguments, args_schema=Everything)

    registry = ToolRegistry.from_langchain([tool])

    assert codes(registry, "search", query="x") == []
    assert codes(registry, "search") == [("missing_argument", "args.query")]


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param([{"name": "query_order", "required_args": ["order_id"]}], id="list"),
        pytest.param({"query_order": {"required": ["order_id"], "optional": []}}, id="by name"),
        pytest.param({"tools": [{"name": "query_order", "required": ["order_id"]}]}, id="wrapped"),
        pytest.param([{"name": "query_order", "input_schema": {**QUERY, "required": ["order_id"]}}], id="schema"),
    ],
)
def test_plain_data_is_a_registry(tools: object) -> None:
    registry = ToolRegistry.from_dicts(tools)

    assert ("missing_argument", "args.order_id") in codes(registry, "query_order")


def test_the_tools_of_a_run_log_keep_what_they_say() -> None:
    registry = ToolRegistry.from_dicts(
        {"charge": {"required": ["order"], "optional": ["memo"], "identity": ["order"], "repeatable": True,
                    "effect": "side_effect"}}
    )  # fmt: skip

    spec = registry["charge"]

    assert (spec.identity, spec.repeatable, spec.effect) == (("order",), True, Effect.SIDE_EFFECT)
    assert codes(registry, "charge", order=1, memo=None) == []
    assert codes(registry, "charge", order=1, tip=2) == [("unknown_argument", "args.tip")]


def test_the_items_of_a_list_have_a_schema_of_their_own() -> None:
    registry = ToolRegistry.from_dicts(
        {"save": {"required": ["rows"], "items_schema": {"rows": {"required": ["sku", "qty"]}}}}
    )

    assert codes(registry, "save", rows=[{"sku": 1, "qty": 2}, {"sku": 1}]) == [
        ("missing_argument", "args.rows[1].qty")
    ]
    assert codes(registry, "save", rows={}) == [("wrong_type", "args.rows")]


def test_names_alone_leave_the_arguments_unchecked() -> None:
    registry = ToolRegistry.from_dicts([{"name": "anything"}])

    assert codes(registry, "anything", a=1, b=2) == []


def test_the_guards_own_key_is_neither_asked_for_nor_refused() -> None:
    registry = ToolRegistry.from_dicts({"charge": {"required": ["order", "idempotency_key"]}})

    assert codes(registry, "charge", order=1) == []
    assert codes(registry, "charge", order=1, idempotency_key="k") == []


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "objekt"}, "objekt"),
        ({"type": "object", "required": "order_id"}, "required"),
        ({"type": "object", "properties": [{"name": "a"}]}, "properties"),
        ({"type": "object", "properties": {"a": {"type": "str"}}}, "properties/a"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/Missing"}}}, "#/$defs/Missing"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.test/a.json"}}}, "example.test"),
        ({"$ref": "#"}, "without end"),
        ({"type": "array"}, "array"),
        ("not a schema", "str"),
    ],
    ids=lambda value: value if isinstance(value, str) else "schema",
)
def test_a_broken_schema_is_refused_by_the_name_of_its_tool(schema: Any, word: str) -> None:
    spec = ToolSpec(name="charge", schema=schema)

    with pytest.raises(ConfigError, match="'charge'") as refused:
        ToolRegistry([spec])

    assert word in str(refused.value)


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["a"] = schema

    with pytest.raises(ConfigError, match="'loop'"):
        ToolRegistry([ToolSpec(name="loop", schema=schema)])


def test_a_schema_that_refers_to_itself_in_a_tree_is_fine() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name"],
    }
    registry = ToolRegistry([ToolSpec(name="tree", schema=tree)])

    assert codes(registry, "tree", name="a", children=[{"name": "b"}]) == []
    assert codes(registry, "tree", name="a", children=[{}]) == [("missing_argument", "args.children[0].name")]


def test_a_broken_schema_leaves_the_other_tools_checked_where_nobody_can_mend_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    specs = [ToolSpec(name="bad", schema={"type": "objekt"}), ToolSpec(name="good", schema=QUERY)]
    registry = ToolRegistry(specs, strict=False)

    assert codes(registry, "bad", a=1) == codes(registry, "bad", a=1) == []
    assert codes(registry, "good") == [("missing_argument", "args.query")]
    assert [record.getMessage() for record in caplog.records if "'bad'" in record.getMessage()] != []
    assert len(caplog.records) == 1


def test_a_pattern_of_another_dialect_does_not_count() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "pattern": r"^\p{L}+$"}}}
    registry = ToolRegistry([ToolSpec(name="greet", schema=schema)])

    assert codes(registry, "greet", name="Kim") == []
    assert codes(registry, "greet", name=1) == [("wrong_type", "args.name")]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ToolRegistry.from_dicts("charge"), id="text"),
        pytest.param(lambda: ToolRegistry.from_dicts([{"required": []}]), id="no name"),
        pytest.param(lambda: ToolRegistry.from_dicts({"charge": ["order"]}), id="list for a tool"),
        pytest.param(lambda: ToolRegistry.from_dicts({"charge": {"required": "order"}}), id="text for names"),
        pytest.param(lambda: ToolRegistry.from_mcp(3), id="number"),
        pytest.param(lambda: ToolRegistry.from_openai([{"type": "function"}]), id="nameless function"),
        pytest.param(lambda: ToolRegistry([ToolSpec(name="a"), ToolSpec(name="a")]), id="twice"),
    ],
)
def test_what_is_no_registry_is_refused(make: Callable[[], ToolRegistry]) -> None:
    with pytest.raises(ConfigError, match=r"give|no name|twice"):
        make()


def test_a_registry_is_a_mapping_of_specs() -> None:
    specs: Sequence[ToolSpec] = [ToolSpec(name="a"), ToolSpec(name="b")]

    registry = ToolRegistry(specs)

    assert dict(registry) == {"a": specs[0], "b": specs[1]}
    assert ToolRegistry.of(registry) is registry
    assert repr(registry) == "ToolRegistry(a, b)"
