"""Tools that are put under guard in the shape in which a program has them."""

from __future__ import annotations

import contextlib
from collections import UserDict
from typing import Any

import pytest

from otel_agentguard import AgentGuard, ConfigError, RunAborted, run, tool
from otel_agentguard.testing import RecordingSink


def look(word: str) -> str:
    return f"the same for {word}"


def guarded_names(sink: RecordingSink) -> list[str]:
    return [event.tool for event in sink.events]  # type: ignore[attr-defined]


def test_a_function_and_a_list_of_them_are_guarded(guard: AgentGuard, sink: RecordingSink) -> None:
    one = guard.instrument(look)
    listed = guard.instrument([look])
    (first,) = guard.instrument((look,))

    assert one("a") == listed[0]("a") == first("a") == look("a")
    assert guarded_names(sink) == ["look"] * 3


def test_names_of_a_mapping_are_the_names_of_the_tools(guard: AgentGuard, sink: RecordingSink) -> None:
    given = {"search": look, "find": look}

    tools = guard.instrument(given)
    tools["search"]("a")
    tools["find"]("a")

    assert guarded_names(sink) == ["search", "find"]
    assert given == {"search": look, "find": look}


def test_a_registry_is_guarded_where_it_is(guard: AgentGuard, sink: RecordingSink) -> None:
    registry: Any = UserDict(search=look)

    returned = guard.instrument(registry)
    registry["search"]("a")

    assert returned is registry
    assert guarded_names(sink) == ["search"]


class Toolbox:
    def __init__(self, shelf: str) -> None:
        self.shelf = shelf

    def fetch(self, word: str) -> str:
        return f"{word} from {self.shelf}"

    @staticmethod
    def weigh(word: str) -> int:
        return len(word)

    def _secret(self) -> str:
        return "unseen"


def test_a_class_is_guarded_method_by_method(guard: AgentGuard, sink: RecordingSink) -> None:
    cls = type("Fresh", (Toolbox,), {})

    returned = guard.instrument(cls)
    box = returned("left")

    assert returned is cls
    assert (box.fetch("a"), box.weigh("abc"), box._secret()) == ("a from left", 3, "unseen")
    assert [(event.tool, event.arguments) for event in sink.events] == [  # type: ignore[attr-defined]
        ("fetch", {"word": "a"}),
        ("weigh", {"word": "abc"}),
    ]


def test_an_object_is_guarded_alone(guard: AgentGuard, sink: RecordingSink) -> None:
    left, right = Toolbox("left"), Toolbox("right")

    guard.instrument(left)

    assert (left.fetch("a"), right.fetch("a")) == ("a from left", "a from right")
    assert guarded_names(sink) == ["fetch"]


def test_a_declared_tool_stays_as_it_is(guard: AgentGuard) -> None:
    declared = tool(look)

    assert guard.instrument(declared) is declared
    assert guard.instrument({"other": declared})["other"] is declared


def test_what_is_no_tool_is_refused_with_the_way_out(guard: AgentGuard) -> None:
    with pytest.raises(ConfigError, match="'text' is no tool; give functions"):
        guard.instrument(["text"])
    with pytest.raises(ConfigError, match="no public methods"):
        guard.instrument([type("Empty", (), {})])


def test_guarded_tools_stop_a_loop(guard: AgentGuard) -> None:
    tools = guard.instrument({"search": look})

    with pytest.raises(RunAborted) as stop, run():
        for _ in range(50):
            with contextlib.suppress(Exception):
                tools["search"]("a")

    assert stop.value.finding is not None
    assert stop.value.finding.tool == "search"
