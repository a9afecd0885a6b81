from __future__ import annotations

from typing import Any

import pytest

from otel_agentguard import ConfigError, Effect, Evidence, install, run, tool
from otel_agentguard.plans import ToolRegistry


@tool(effect=Effect.READ)
def query_order(order_id: int) -> str:
    """Look up one order."""
    return f"order {order_id}: shipped on 3 May, 40 EUR"


@pytest.fixture
def guard() -> Any:
    with install() as made:
        yield made


def test_a_plan_that_names_a_missing_tool_comes_back_with_the_way_out(guard: Any) -> None:
    with run("r", tools=[query_order]) as r:
        report = r.check_plan([{"tool": "query_latest_orders", "args": {"user": "kim"}}, {"tool": None}])

    assert not report.ok
    assert [(error.code, error.tool) for error in report.errors] == [("unknown_tool", "query_latest_orders")]
    assert "query_order" in report.feedback()


def test_a_plan_of_declared_tools_passes(guard: Any) -> None:
    with run("r", tools=[query_order]) as r:
        report = r.check_plan([{"tool": "query_order", "args": {"order_id": 7}}])

    assert report.ok
    assert [step.tool for step in report.plan] == ["query_order"]


def test_a_method_is_planned_without_its_self(guard: Any) -> None:
    class Shop:
        @tool
        def stock(self, sku: str) -> int:
            return 3

    with run("r", tools=[Shop().stock]) as r:
        assert r.check_plan([{"tool": "stock", "args": {"sku": "a"}}]).ok


def test_tools_may_come_from_a_registry(guard: Any) -> None:
    registry = ToolRegistry.from_dicts({"web_search": {"required": ["query"]}})

    with run("r") as r:
        report = r.check_plan([{"tool": "search", "args": {"query": "x"}}], tools=registry)

    assert report.errors[0].did_you_mean == ("web_search",)


def test_a_plan_is_checked_while_no_guard_is_installed() -> None:
    with run("r") as r:
        report = r.check_plan([{"tool": "a"}], tools=ToolRegistry.from_dicts({"b": {"required": []}}))

    assert not report.ok


def test_a_fact_that_a_user_stated_is_verified(guard: Any) -> None:
    with run("r") as r:
        r.turn("user", text="I want a refund for order 7")

        memory = r.remember(
            "customer wants a refund", kind="fact", evidence=[Evidence(step=1, quote="I want a refund")]
        )

    assert (memory.verdict, memory.weight) == ("verified", 1.0)


def test_a_guess_is_kept_as_an_intent(guard: Any) -> None:
    with run("r") as r:
        r.turn("user", text="Where is order 7?")

        memory = r.remember("the user wants a refund", source="user")

    assert memory.verdict == "unsupported"
    assert memory.weight < 1


def test_what_a_tool_showed_counts_as_evidence(guard: Any) -> None:
    with run("r") as r:
        query_order(7)

        memory = r.remember("order 7 was shipped on 3 May", source="tool")

    assert memory.verdict == "verified"


def test_a_guess_never_comes_back_as_a_premise(guard: Any) -> None:
    with run("r") as r:
        r.turn("user", text="I live in Graz")
        r.remember("lives in Graz", source="user", key="home")
        r.remember("hates rain", source="user", key="mood")

        assert [one.key for one in r.recall("Graz rain")] == ["home"]


def test_a_guarded_dict_stamps_what_is_written_to_it(guard: Any) -> None:
    store = guard.memory({})

    with run("r") as r:
        r.turn("user", text="My van is called Mildred")
        store["van"] = "the van is called Mildred"
        store["colour"] = "the van is red"

    assert store.weight("van") == 1.0
    assert "colour" not in store.premises()


def test_remembering_without_the_memory_check_says_what_to_do() -> None:
    with install(checks=["loop"]), run("r") as r, pytest.raises(ConfigError, match="add 'memory'"):
        r.remember("x")


def test_a_call_outside_of_the_plan_that_acts_on_the_world_is_found(guard: Any) -> None:
    @tool(effect=Effect.SIDE_EFFECT)
    def send_mail(to: str, *, idempotency_key: str) -> str:
        return "sent"

    with run("r", tools=[query_order, send_mail], plan=[{"tool": "query_order", "args": {"order_id": 7}}]) as r:
        query_order(7)
        send_mail("all@example.test")

        assert r.finding is not None
        assert r.finding.kind == "plan_drift"
