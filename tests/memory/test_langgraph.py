"""The real LangGraph store, and a real graph with a scripted model that writes to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from memory_runs import user

pytest.importorskip("langgraph.store.memory", reason="LangGraph is not installed: pip install langgraph")

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore, SearchItem
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from otel_agentguard.errors import ConfigError
from otel_agentguard.memory import MemoryGate, Trust
from otel_agentguard.memory.langgraph import ASIDE, GuardedStore, guard_langgraph
from otel_agentguard.memory.wrappers import Door, guard_store
from otel_agentguard.testing import ManualClock

ABOUT = ("users", "u1")


class State(TypedDict, total=False):
    said: str
    answer: str


@pytest.fixture
def gate() -> MemoryGate:
    gate = MemoryGate("run")
    gate.submit(user("My office is in room 21, and I want a refund."))
    return gate


@pytest.fixture
def inner() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def store(gate: MemoryGate, inner: InMemoryStore) -> GuardedStore:
    return guard_langgraph(inner, Door(gate.submit))


def stored(inner: BaseStore, key: str) -> dict[str, Any]:
    item = inner.get(ABOUT, key)
    assert item is not None
    return item.value


def test_a_fact_comes_back_as_it_was_put_and_carries_its_stamp_inside(
    store: GuardedStore, inner: InMemoryStore
) -> None:
    store.put(ABOUT, "office", {"text": "room 21"})

    item = store.get(ABOUT, "office")

    assert item is not None
    assert item.value == {"text": "room 21"}
    assert stored(inner, "office")["agentguard_status"] == "verified"


def test_a_guess_comes_back_with_what_it_is_worth(store: GuardedStore) -> None:
    store.put(ABOUT, "mood", {"text": "the user is angry"})

    item = store.get(ABOUT, "mood")

    assert item is not None
    assert item.value["text"] == "the user is angry"
    assert item.value["agentguard_verified"] is False
    assert item.value["agentguard_weight"] == 0.3


def test_aput_asearch_and_adelete_are_guarded_as_well(store: GuardedStore, inner: InMemoryStore) -> None:
    async def use() -> list[SearchItem]:
        await store.aput(ABOUT, "office", {"text": "room 21"})
        await store.aput(ABOUT, "mood", {"text": "the user is angry"})
        await store.adelete(ABOUT, "office")
        return await store.asearch(ABOUT)

    (found,) = asyncio.run(use())

    assert found.key == "mood"
    assert found.value["agentguard_verified"] is False


def test_a_guess_never_replaces_a_fact(store: GuardedStore, inner: InMemoryStore) -> None:
    store.put(ABOUT, "office", {"text": "room 21"})

    store.put(ABOUT, "office", {"text": "room 77"})

    assert stored(inner, "office")["text"] == "room 21"
    assert stored(inner, "office" + ASIDE)["text"] == "room 77"


def test_a_value_that_was_corrected_is_not_put_again(
    gate: MemoryGate, store: GuardedStore, inner: InMemoryStore
) -> None:
    store.put(ABOUT, "office", {"text": "room 21"})
    gate.submit(user("Sorry, room 12."))
    store.put(ABOUT, "office", {"text": "room 12"})

    store.put(ABOUT, "office", {"text": "room 21"})

    assert stored(inner, "office")["text"] == "room 12"


def test_a_guess_ranks_below_a_fact(gate: MemoryGate) -> None:
    inner = InMemoryStore(index={"dims": 2, "embed": lambda texts: [[1.0, 0.1 * ("angry" in t)] for t in texts]})
    store = guard_langgraph(inner, Door(gate.submit))
    store.put(ABOUT, "mood", {"text": "the user is angry"})
    store.put(ABOUT, "office", {"text": "room 21"})

    found = store.search(ABOUT, query="angry")

    assert [item.key for item in found] == ["office", "mood"]


def test_a_guess_expires(gate: MemoryGate, inner: InMemoryStore) -> None:
    clock = ManualClock()
    gate._now_s = clock
    store = guard_langgraph(inner, Door(gate.submit, trust=Trust(now_s=clock)))
    store.put(ABOUT, "mood", {"text": "the user is angry"})

    clock.advance(8 * 86_400)

    assert store.get(ABOUT, "mood") is None
    assert store.search(ABOUT) == []


def test_nothing_of_a_revoked_run_comes_back(gate: MemoryGate, inner: InMemoryStore) -> None:
    door = Door(gate.submit)
    store = guard_langgraph(inner, door)
    store.put(ABOUT, "office", {"text": "room 21"})

    door.trust.revoke("run")

    assert store.get(ABOUT, "office") is None


def test_what_comes_back_is_no_evidence_for_writing_it_again(
    gate: MemoryGate, store: GuardedStore, inner: InMemoryStore
) -> None:
    inner.put(ABOUT, "old", {"text": "coder has no edit tool"})

    store.get(ABOUT, "old")
    store.put(ABOUT, "new", {"text": "coder has no edit tool"})

    assert stored(inner, "new")["agentguard_status"] == "unsupported"


def test_entries_from_before_the_guard_come_back_untouched(store: GuardedStore, inner: InMemoryStore) -> None:
    inner.put(ABOUT, "old", {"text": "x"})

    item = store.get(ABOUT, "old")

    assert item is not None
    assert item.value == {"text": "x"}


def test_namespaces_that_hold_no_memories_are_passed_through(gate: MemoryGate, inner: InMemoryStore) -> None:
    store = guard_langgraph(inner, Door(gate.submit), only=lambda namespace: namespace[0] == "users")

    store.put(("cache",), "page", {"text": "the user is angry"})

    item = inner.get(("cache",), "page")
    assert item is not None
    assert item.value == {"text": "the user is angry"}


def test_the_shape_that_langmem_stores_is_read_by_its_content(store: GuardedStore, inner: InMemoryStore) -> None:
    store.put(ABOUT, "m1", {"kind": "Memory", "content": {"content": "User wants a refund"}})

    assert stored(inner, "m1")["agentguard_status"] == "verified"


def test_all_operations_of_one_batch_are_answered_in_order(store: GuardedStore) -> None:
    store.put(ABOUT, "office", {"text": "room 21"})

    assert store.list_namespaces(prefix=("users",)) == [ABOUT]
    assert [item.key for item in store.search(("users",), limit=5)] == ["office"]


def test_a_gate_that_cannot_be_asked_loses_nothing(inner: InMemoryStore) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("broken on purpose")

    store = guard_langgraph(inner, Door(broken))
    store.put(ABOUT, "office", {"text": "room 21"})

    assert stored(inner, "office")["text"] == "room 21"
    assert stored(inner, "office")["agentguard_verified"] is False


def test_a_graph_writes_through_the_store_that_it_is_given(
    gate: MemoryGate, store: GuardedStore, inner: InMemoryStore
) -> None:
    claims = iter([{"office": "room 21"}, {"mood": "the user is angry"}])

    def remember(state: State, *, store: BaseStore) -> State:
        for key, text in next(claims).items():
            store.put(ABOUT, key, {"text": text})
        return {"answer": "noted"}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    graph = builder.compile(store=store)

    graph.invoke({"said": "x"})
    graph.invoke({"said": "y"})

    assert stored(inner, "office")["agentguard_status"] == "verified"
    assert stored(inner, "mood")["agentguard_status"] == "unsupported"


def test_guarding_twice_is_guarding_once(store: GuardedStore, gate: MemoryGate) -> None:
    assert guard_langgraph(store, Door(gate.submit)) is store


def test_any_langgraph_store_is_known_for_what_it_is(inner: InMemoryStore, gate: MemoryGate) -> None:
    assert isinstance(guard_store(inner, Door(gate.submit)), GuardedStore)


def test_something_else_is_refused(gate: MemoryGate) -> None:
    with pytest.raises(ConfigError, match="dict is no LangGraph store"):
        guard_langgraph({}, Door(gate.submit))  # type: ignore[arg-type]
