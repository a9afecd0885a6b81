"""When two names are the same, and which are near."""

from __future__ import annotations

import pytest

from otel_agentguard.plans.names import NameIndex, nearest


@pytest.mark.parametrize(
    "spelling", ["web_search", "Web_Search", "web-search", "webSearch", "WEB SEARCH", "functions.web_search"]
)
def test_another_spelling_of_a_name_is_the_same_name(spelling: str) -> None:
    index = NameIndex(["web_search", "read_file"])

    found = index.resolve(spelling)

    assert found == "web_search"


def test_a_server_prefix_may_be_there_or_not() -> None:
    with_prefix = NameIndex(["mcp__github__create_issue"])
    without = NameIndex(["create_issue"])

    assert with_prefix.resolve("create_issue") == "mcp__github__create_issue"
    assert without.resolve("mcp__github__create_issue") == "create_issue"


def test_a_tool_of_one_server_is_not_taken_for_that_of_another() -> None:
    index = NameIndex(["mcp__github__create_issue"])

    found = index.resolve("mcp__gitlab__create_issue")

    assert found is None
    assert index.near("mcp__gitlab__create_issue") == ("mcp__github__create_issue",)


def test_a_name_that_two_tools_share_is_not_guessed() -> None:
    index = NameIndex(["mcp__github__search", "mcp__gitlab__search"])

    assert index.resolve("search") is None
    assert set(index.near("search")) == {"mcp__github__search", "mcp__gitlab__search"}


def test_a_longer_name_is_not_the_same_name() -> None:
    index = NameIndex(["web_search"])

    assert index.resolve("search") is None


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("search", "web_search"),
        ("bash", "terminal"),
        ("cat", "read_file"),
        ("send_mail", "send_email"),
        ("fleet_list_hubs", "fleet_get_hubs"),
        ("query_orders", "query_order"),
        ("get_latest_orders", "query_order"),
        ("reed_file", "read_file"),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(asked: str, meant: str) -> None:
    names = [
        "terminal", "read_file", "web_search", "send_email", "fleet_get_vans", "fleet_get_hubs", "query_order",
    ]  # fmt: skip

    found = nearest(asked, names)

    assert found[0] == meant


@pytest.mark.parametrize("asked", ["predict", "teleport", "", "x" * 10_000])
def test_nothing_is_near_to_a_name_that_has_nothing_in_common(asked: str) -> None:
    assert nearest(asked, ["list_assets", "web_search"]) == ()


def test_at_most_three_names_are_suggested() -> None:
    names = [f"search_{what}" for what in ("web", "docs", "code", "mail", "files")]

    assert len(nearest("search", names)) == 3
