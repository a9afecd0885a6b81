"""The real mem0 with a scripted model and scripted embeddings: what it infers goes through the gate."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from memory_runs import user

os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="mem0-")
pytest.importorskip("mem0", reason="mem0 is not installed: pip install mem0ai (it wants protobuf below 7)")

from mem0 import AsyncMemory
from mem0 import Memory as Mem0Memory

from otel_agentguard.errors import ConfigError
from otel_agentguard.memory import MemoryGate
from otel_agentguard.memory.mem0 import guard_mem0
from otel_agentguard.memory.wrappers import Door, guard_store

pytestmark = pytest.mark.filterwarnings("ignore")

SIZE = 16


class ScriptedModel:
    """Answers every extraction with the same memories."""

    def __init__(self, *texts: str) -> None:
        self.answer = json.dumps({"memory": [{"id": str(at), "text": text} for at, text in enumerate(texts)]})

    def generate_response(self, *_: Any, **__: Any) -> str:
        return self.answer


class ScriptedEmbedder:
    """One direction a word, so that texts with common words are near."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        vector = [0.01] * SIZE
        for word in text.casefold().split():
            vector[sum(map(ord, word)) % SIZE] += 1.0
        return vector

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]


def configured(cls: type, path: Path, *texts: str) -> Any:
    memory = cls.from_config(
        {
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(path / "qdrant"), "embedding_model_dims": SIZE, "collection_name": "m"},
            },
            "llm": {"provider": "openai", "config": {"api_key": "none", "model": "scripted"}},
            "embedder": {"provider": "openai", "config": {"api_key": "none", "embedding_dims": SIZE}},
            "history_db_path": str(path / "history.db"),
        }
    )
    memory.llm = ScriptedModel(*texts)
    memory.embedding_model = ScriptedEmbedder()
    memory._link_entities_for_memory = MethodType(lambda *_: None, memory)
    return memory


@pytest.fixture
def gate() -> MemoryGate:
    gate = MemoryGate("run")
    gate.submit(user("I want a refund for the lamp"))
    return gate


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., Any]:
    return lambda *texts: configured(Mem0Memory, tmp_path, *texts)


def payloads(memory: Any) -> dict[str, dict[str, Any]]:
    records, _ = memory.vector_store.client.scroll(collection_name="m", limit=100, with_payload=True)
    return {record.payload["data"]: record.payload for record in records}


def test_what_mem0_infers_is_judged_and_nothing_is_dropped(scripted: Callable[..., Any], gate: MemoryGate) -> None:
    memory = scripted("User wants a refund for the lamp", "User is angry about the delay")
    guard_mem0(memory, Door(gate.submit))

    added = memory.add([{"role": "user", "content": "I want a refund for the lamp"}], user_id="u1")

    assert len(added["results"]) == 2
    kept = payloads(memory)
    assert kept["User wants a refund for the lamp"]["agentguard_status"] == "verified"
    assert kept["User is angry about the delay"]["agentguard_status"] == "unsupported"
    assert kept["User is angry about the delay"]["agentguard_weight"] == 0.3


def test_what_is_stored_without_inference_is_judged_too(scripted: Callable[..., Any], gate: MemoryGate) -> None:
    memory = scripted()
    guard_mem0(memory, Door(gate.submit))

    memory.add([{"role": "assistant", "content": "The user is angry"}], user_id="u1", infer=False)

    assert payloads(memory)["The user is angry"]["agentguard_status"] == "unsupported"


def test_an_update_is_judged(scripted: Callable[..., Any], gate: MemoryGate) -> None:
    memory = scripted()
    guard_mem0(memory, Door(gate.submit))
    added = memory.add([{"role": "user", "content": "I want a refund for the lamp"}], user_id="u1", infer=False)

    memory.update(added["results"][0]["id"], "The user is angry")

    assert payloads(memory)["The user is angry"]["agentguard_status"] == "unsupported"


def test_a_guess_ranks_below_a_fact_that_matches_less(scripted: Callable[..., Any], gate: MemoryGate) -> None:
    memory = scripted()
    guard_mem0(memory, Door(gate.submit))
    for text in ("user wants a refund for the lamp", "user is very angry about the lamp"):
        memory.add([{"role": "user", "content": text}], user_id="u1", infer=False)

    found = memory.search("user is very angry about the lamp", filters={"user_id": "u1"}, threshold=0.0)["results"]

    assert [entry["memory"] for entry in found] == [
        "user wants a refund for the lamp",
        "user is very angry about the lamp",
    ]
    assert found[1]["metadata"]["agentguard_verified"] is False


def test_nothing_of_a_revoked_run_is_found(scripted: Callable[..., Any], gate: MemoryGate) -> None:
    memory = scripted()
    door = Door(gate.submit)
    guard_mem0(memory, door)
    memory.add([{"role": "user", "content": "I want a refund for the lamp"}], user_id="u1", infer=False)

    door.trust.revoke("run")

    assert memory.search("refund", filters={"user_id": "u1"}, threshold=0.0)["results"] == []


def test_what_was_found_is_no_evidence_for_inferring_it_again(scripted: Callable[..., Any]) -> None:
    gate = MemoryGate("run")
    memory = scripted("Coder has no edit tool today")
    memory.add([{"role": "user", "content": "coder has no edit tool"}], user_id="u1", infer=False)
    guard_mem0(memory, Door(gate.submit))

    memory.add([{"role": "user", "content": "hello"}], user_id="u1")

    assert payloads(memory)["Coder has no edit tool today"]["agentguard_status"] == "unsupported"


def test_a_gate_that_cannot_be_asked_loses_nothing(scripted: Callable[..., Any]) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("broken on purpose")

    memory = scripted("User wants a refund")
    guard_mem0(memory, Door(broken))

    memory.add([{"role": "user", "content": "I want a refund"}], user_id="u1")

    assert payloads(memory)["User wants a refund"]["agentguard_verified"] is False


def test_the_asynchronous_memory_is_guarded_too(tmp_path: Path, gate: MemoryGate) -> None:
    memory = configured(AsyncMemory, tmp_path, "User is angry about the delay")

    async def nothing(*_: object) -> None: ...

    memory._link_entities_for_memory = MethodType(nothing, memory)
    guard_mem0(memory, Door(gate.submit))

    asyncio.run(memory.add([{"role": "user", "content": "hello"}], user_id="u1"))

    assert payloads(memory)["User is angry about the delay"]["agentguard_status"] == "unsupported"


def test_the_guard_comes_off_without_a_trace(scripted: Callable[..., Any], gate: MemoryGate) -> None:
    memory = scripted("User is angry")
    before = dict(vars(memory.vector_store))

    detach = guard_mem0(memory, Door(gate.submit))
    again = guard_mem0(memory, Door(gate.submit))
    detach()

    assert again is detach
    assert dict(vars(memory.vector_store)) == before


def test_any_mem0_instance_is_known_for_what_it_is(scripted: Callable[..., Any], gate: MemoryGate) -> None:
    memory = scripted()

    assert guard_store(memory, Door(gate.submit)) is memory
    assert "insert" in vars(memory.vector_store)


def test_something_else_is_refused(gate: MemoryGate) -> None:
    with pytest.raises(ConfigError, match="has no vector store to guard"):
        guard_mem0(object(), Door(gate.submit))  # type: ignore[arg-type]
