from __future__ import annotations

import asyncio

import pytest
from memory_runs import user

from otel_agentguard.errors import CallBlocked, ConfigError
from otel_agentguard.events import Memory
from otel_agentguard.memory import MemoryGate
from otel_agentguard.memory.wrappers import UNVERIFIED, Door, GuardedDict, GuardedList, guard_store, memory_tool


@pytest.fixture
def gate() -> MemoryGate:
    gate = MemoryGate("run")
    gate.submit(user("My office is in room 21, and I want a refund."))
    return gate


@pytest.fixture
def door(gate: MemoryGate) -> Door:
    return Door(gate.submit)


def test_a_guarded_dict_stores_and_tells_facts_from_guesses(door: Door) -> None:
    inner: dict[str, str] = {}
    memory = guard_store(inner, door)

    memory["office"] = "room 21"
    memory["mood"] = "the user is angry"

    assert inner == {"office": "room 21", "mood": "the user is angry"}
    assert memory.premises() == {"office": "room 21"}
    assert memory.weight("mood") == 0.3


def test_a_guess_is_kept_beside_a_fact_not_over_it(door: Door) -> None:
    memory = GuardedDict({}, door)
    memory["office"] = "room 21"

    memory["office"] = "room 77"

    assert memory["office"] == "room 21"
    assert memory.aside == {"office": "room 77"}


def test_a_corrected_value_does_not_get_into_a_dict_again(gate: MemoryGate, door: Door) -> None:
    memory = GuardedDict({}, door)
    memory["office"] = "room 21"
    gate.submit(user("Sorry, room 12."))
    memory["office"] = "room 12"

    memory["office"] = "room 21"

    assert memory["office"] == "room 12"


def test_a_guarded_dict_behaves_like_a_dict(door: Door) -> None:
    memory = GuardedDict({"a": 1}, door)
    memory.update(b=2)

    del memory["a"]

    assert dict(memory) == {"b": 2}
    assert len(memory) == 1
    assert memory.get("a") is None


def test_a_guarded_list_tells_facts_from_guesses(door: Door) -> None:
    memory = guard_store([], door)

    memory.append("office is in room 21")
    memory.append("the user is angry")
    memory.extend(["wants a refund"])
    del memory[1]

    assert list(memory) == ["office is in room 21", "wants a refund"]
    assert isinstance(memory, GuardedList)
    assert memory.premises() == ["office is in room 21", "wants a refund"]


def test_what_is_read_from_a_guarded_store_is_no_evidence_from_then_on(gate: MemoryGate, door: Door) -> None:
    seen: list[object] = []

    def submit(memory: Memory) -> None:
        seen.append((memory.operation.value, memory.value))
        gate.submit(memory)

    memory = GuardedDict({"lamp": "the lamp is broken"}, Door(submit))

    assert memory["lamp"] == memory["lamp"]
    assert seen == [("read", "the lamp is broken")]


def test_a_tool_stores_a_guess_with_the_word_for_it(door: Door) -> None:
    stored: list[str] = []

    @memory_tool(door, claim="text")
    def save_memory(text: str) -> str:
        stored.append(text)
        return "saved"

    assert save_memory("the user wants a refund") == "saved"
    assert save_memory(text="the user is angry") == "saved"
    assert stored == ["the user wants a refund", UNVERIFIED + "the user is angry"]


def test_a_tool_with_a_place_for_the_stamp_gets_the_text_as_it_is(door: Door) -> None:
    stored: list[tuple[str, dict[str, object]]] = []

    @memory_tool(door, claim="text", stamp="metadata")
    def save_memory(text: str, metadata: dict[str, object] | None = None) -> None:
        stored.append((text, metadata or {}))

    save_memory("the user is angry", {"topic": "mood"})

    ((text, metadata),) = stored
    assert text == "the user is angry"
    assert metadata["topic"] == "mood"
    assert metadata["agentguard_verified"] is False


def test_a_tool_refuses_what_was_corrected(gate: MemoryGate, door: Door) -> None:
    @memory_tool(door, claim="text", key="name")
    def save_memory(name: str, text: str) -> None:
        raise AssertionError("this body must not run")

    gate.submit(user("Sorry, room 12."))

    with pytest.raises(CallBlocked, match="it was corrected later") as refused:
        save_memory("office", "office is in room 21")
    assert "not from the user" in str(refused.value)


def test_a_coroutine_is_guarded_too(door: Door) -> None:
    stored: list[str] = []

    @memory_tool(door, claim="text")
    async def save_memory(text: str) -> str:
        stored.append(text)
        return "saved"

    assert asyncio.run(save_memory("the user is angry")) == "saved"
    assert stored == [UNVERIFIED + "the user is angry"]


def test_a_decorator_that_names_no_parameter_of_the_function_says_which_there_are(door: Door) -> None:
    with pytest.raises(ConfigError, match="has no parameter 'content'; it has: text"):

        @memory_tool(door, claim="content")
        def save_memory(text: str) -> None: ...


def test_a_gate_that_cannot_be_asked_lets_everything_through_as_a_guess() -> None:
    failures: list[Exception] = []

    def broken(_: Memory) -> None:
        raise RuntimeError("broken on purpose")

    door = Door(broken, on_failure=failures.append)
    memory = GuardedDict({}, door)

    memory["office"] = "room 21"

    assert memory["office"] == "room 21"
    assert memory.weight("office") == 0.3
    assert door.failures == len(failures) == 2


def test_a_door_that_only_observes_changes_nothing(gate: MemoryGate) -> None:
    door = Door(gate.submit, enforces=lambda: False)
    stored: list[str] = []

    @memory_tool(door, claim="text")
    def save_memory(text: str) -> None:
        stored.append(text)

    save_memory("the user is angry")

    assert stored == ["the user is angry"]


def test_a_store_of_an_unknown_kind_says_what_is_known(door: Door) -> None:
    with pytest.raises(ConfigError, match=r"known: dict, list, LangGraph's BaseStore, mem0's Memory"):
        guard_store(object(), door)


def test_guarding_twice_is_guarding_once(door: Door) -> None:
    memory = guard_store({}, door)

    assert guard_store(memory, door) is memory
