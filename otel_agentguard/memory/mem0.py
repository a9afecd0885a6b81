"""Guards an instance of mem0: what it extracts from a conversation is written to its vector store, and judged there.

With `infer=True` mem0 lets a model phrase the memories and calls nothing but `vector_store.insert` and `update`.
It reports a memory as added even where the store did not take it, so nothing is dropped here: what is not shown
by evidence is stored with less weight, and ranks lower when it is searched.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from otel_agentguard.errors import ConfigError, MissingExtraError

try:
    from mem0 import AsyncMemory
    from mem0 import Memory as Mem0Memory
except ImportError as exc:
    raise MissingExtraError("mem0") from exc

from otel_agentguard.events import Memory, MemoryOperation
from otel_agentguard.memory.verdicts import STAMP, MemoryKind
from otel_agentguard.memory.wrappers import Door, stamp_in

_TEXT = "data"
_PROCEDURAL = "procedural_memory"
_GUARDED = "_agentguard_detach"
_METHODS = ("insert", "update", "search", "keyword_search", "get")


def guard_mem0(memory: Mem0Memory | AsyncMemory, door: Door) -> Callable[[], None]:
    """Guard the vector store of a mem0 instance, in place.

    Args:
        memory: The instance; guarding it again changes nothing.
        door: How it asks the gate.

    Returns:
        A function that takes the guard off again.

    Raises:
        ConfigError: It is no mem0 instance with a vector store of its own; the hosted client has none.
    """
    if not isinstance(memory, Mem0Memory | AsyncMemory):
        raise ConfigError(
            f"{type(memory).__qualname__} has no vector store to guard; known: mem0's Memory, AsyncMemory"
        )
    store = memory.vector_store
    if (detach := store.__dict__.get(_GUARDED)) is not None:
        return detach  # type: ignore[no-any-return]
    guarded = _GuardedVectorStore(store, door)
    before = {name: store.__dict__[name] for name in _METHODS if name in store.__dict__}

    def take_off() -> None:
        for name in (*_METHODS, _GUARDED):
            store.__dict__.pop(name, None)
        store.__dict__.update(before)

    for name in _METHODS:
        setattr(store, name, getattr(guarded, name))
    setattr(store, _GUARDED, take_off)
    return take_off


class _GuardedVectorStore:
    """The methods that are put in the place of a vector store's own."""

    def __init__(self, store: Any, door: Door) -> None:
        self._door = door
        self._insert = store.insert
        self._update = store.update
        self._search = store.search
        self._keyword_search = store.keyword_search
        self._get = store.get

    def insert(self, vectors: Any, payloads: Any = None, ids: Any = None, **kwargs: Any) -> Any:
        if payloads is not None:
            payloads = [self._stamped(payload, None, MemoryOperation.WRITE) for payload in payloads]
        return self._insert(vectors=vectors, payloads=payloads, ids=ids, **kwargs)

    def update(self, vector_id: Any, vector: Any = None, payload: Any = None, **kwargs: Any) -> Any:
        if payload is not None:
            payload = self._stamped(payload, str(vector_id), MemoryOperation.UPDATE)
        return self._update(vector_id=vector_id, vector=vector, payload=payload, **kwargs)

    def search(self, *args: Any, **kwargs: Any) -> Any:
        return self._weighed(self._search(*args, **kwargs))

    def keyword_search(self, *args: Any, **kwargs: Any) -> Any:
        return self._weighed(self._keyword_search(*args, **kwargs))

    def get(self, *args: Any, **kwargs: Any) -> Any:
        found = self._get(*args, **kwargs)
        text = _payload(found).get(_TEXT)
        if text:
            self._door.read(text)
        return found

    def _stamped(self, payload: Any, key: str | None, operation: MemoryOperation) -> Any:
        if not isinstance(payload, Mapping) or not payload.get(_TEXT):
            return payload
        kind = MemoryKind.PROCEDURE if payload.get("memory_type") == _PROCEDURAL else MemoryKind.FACT
        source = "user" if payload.get("role") == "user" else None
        ruling = self._door.write(
            Memory(operation=operation, key=key, value=payload[_TEXT], source=source, kind=kind.value)
        )
        bare = {name: value for name, value in payload.items() if not name.startswith(STAMP)}
        return {**bare, **ruling.stamp}

    def _weighed(self, found: Any) -> Any:
        if not isinstance(found, Sequence):
            return found
        kept = []
        texts = []
        for hit in found:
            payload = _payload(hit)
            stamp = stamp_in(payload)
            weight = self._door.trust.weight(stamp) if stamp else 1.0
            if weight <= 0:
                continue
            if payload.get(_TEXT):
                texts.append(payload[_TEXT])
            kept.append(hit if weight >= 1.0 else _lowered(hit, weight))
        if texts:
            self._door.read(texts)
        return sorted(kept, key=_score, reverse=True)


def _payload(hit: Any) -> Mapping[str, Any]:
    payload = getattr(hit, "payload", None)
    return payload if isinstance(payload, Mapping) else {}


def _lowered(hit: Any, weight: float) -> Any:
    """A copy of a search hit whose score is lower; hits that have none, or cannot be copied, stay."""
    if not isinstance(getattr(hit, "score", None), int | float):
        return hit
    try:
        lowered = copy.copy(hit)
        lowered.score = hit.score * weight
    except (AttributeError, TypeError, ValueError):
        return hit
    return lowered


def _score(hit: Any) -> float:
    score = getattr(hit, "score", None)
    return float(score) if isinstance(score, int | float) else 0.0
