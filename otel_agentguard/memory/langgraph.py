"""Guards a LangGraph store: every put, get and search goes through `batch` or `abatch`, and so through here.

Works with what LangMem and `create_agent(store=...)` do, since both use the store that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from otel_agentguard.errors import ConfigError, MissingExtraError

try:
    from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result, SearchItem, SearchOp
except ImportError as exc:
    raise MissingExtraError("langgraph") from exc

from otel_agentguard.events import Memory, MemoryOperation
from otel_agentguard.memory.verdicts import STAMP
from otel_agentguard.memory.wrappers import Door, Ruling, stamp_in, without_stamp

ASIDE = "~unverified"
"""Ending of the key under which a guess is kept that would have replaced a verified value."""

Namespace = tuple[str, ...]
ClaimOf = Callable[[Namespace, str, Mapping[str, Any]], object]

_CONTENT = ("content", "text", "memory", "data", "fact", "value")


def content_of(namespace: Namespace, key: str, value: Mapping[str, Any]) -> object:
    """What a stored value claims: its content where it has a field for that, else all of it.

    LangMem's `{"kind": ..., "content": {...}}` and the usual `{"text": ...}` are read so.
    """
    for name in _CONTENT:
        if name in value:
            inner = value[name]
            return content_of(namespace, key, inner) if isinstance(inner, Mapping) else inner
    return dict(value)


def guard_langgraph(
    store: BaseStore,
    door: Door,
    *,
    claim_of: ClaimOf = content_of,
    only: Callable[[Namespace], bool] = lambda _: True,
) -> GuardedStore:
    """Guard a LangGraph store.

    Args:
        store: The store.
        door: How it asks the gate.
        claim_of: What a value that is put claims; called with namespace, key and value.
        only: Which namespaces hold memories; the others are passed through untouched.

    Returns:
        A store to use in its place. Guarding it again gives it back.

    Raises:
        ConfigError: It is no LangGraph store.
    """
    if isinstance(store, GuardedStore):
        return store
    if not isinstance(store, BaseStore):
        raise ConfigError(f"{type(store).__qualname__} is no LangGraph store: it does not derive from BaseStore")
    return GuardedStore(store, door, claim_of=claim_of, only=only)


class GuardedStore(BaseStore):
    """A LangGraph store that lays a stamp beside what is put, and weighs what is read by it.

    What is verified comes back as it was put. A guess comes back with its stamp in it, so that a prompt made from
    it shows what it is worth, and ranks lower. Expired entries, and those of revoked runs, do not come back.
    A guess never replaces a verified value: it is kept under the same key with `ASIDE` after it.

    Attributes:
        inner: The store itself.
    """

    def __init__(self, inner: BaseStore, door: Door, *, claim_of: ClaimOf, only: Callable[[Namespace], bool]) -> None:
        self.inner = inner
        self.supports_ttl = inner.supports_ttl
        self.ttl_config = inner.ttl_config
        self._door = door
        self._claim_of = claim_of
        self._only = only

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations, puts after the gate has judged them."""
        asked = list(ops)
        rulings = self._rulings(asked)
        held = {}
        if guesses := self._guesses(asked, rulings):
            found = self.inner.batch([GetOp(op.namespace, op.key) for op in guesses.values()])
            held = dict(zip(guesses, found, strict=True))
        planned = self._planned(asked, rulings, held)
        results = self.inner.batch(list(planned.values())) if planned else []
        return self._answers(asked, dict(zip(planned, results, strict=True)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations, puts after the gate has judged them."""
        asked = list(ops)
        rulings = self._rulings(asked)
        held = {}
        if guesses := self._guesses(asked, rulings):
            found = await self.inner.abatch([GetOp(op.namespace, op.key) for op in guesses.values()])
            held = dict(zip(guesses, found, strict=True))
        planned = self._planned(asked, rulings, held)
        results = await self.inner.abatch(list(planned.values())) if planned else []
        return self._answers(asked, dict(zip(planned, results, strict=True)))

    def _rulings(self, ops: list[Op]) -> dict[int, Ruling]:
        rulings = {}
        for place, op in enumerate(ops):
            if not isinstance(op, PutOp) or not self._only(op.namespace):
                continue
            name = _name(op.namespace, op.key)
            if op.value is None:
                self._door.delete(name)
                continue
            claim = self._claim_of(op.namespace, op.key, without_stamp(op.value))
            rulings[place] = self._door.write(Memory(operation=MemoryOperation.UPDATE, key=name, value=claim))
        return rulings

    def _guesses(self, ops: list[Op], rulings: dict[int, Ruling]) -> dict[int, PutOp]:
        return {
            place: op
            for place, ruling in rulings.items()
            if ruling.store and not ruling.verified and isinstance(op := ops[place], PutOp)
        }

    def _planned(self, ops: list[Op], rulings: dict[int, Ruling], held: Mapping[int, Result]) -> dict[int, Op]:
        planned: dict[int, Op] = {}
        for place, op in enumerate(ops):
            ruling = rulings.get(place)
            if ruling is None or not isinstance(op, PutOp) or op.value is None:
                planned[place] = op
            elif ruling.store:
                value = {**without_stamp(op.value), **ruling.stamp} if ruling.stamp else op.value
                key = op.key + ASIDE if self._is_verified(held.get(place)) else op.key
                planned[place] = op._replace(key=key, value=value)
        return planned

    def _is_verified(self, item: Result) -> bool:
        if not isinstance(item, Item):
            return False
        stamp = stamp_in(item.value)
        return bool(stamp) and self._door.trust.weight(stamp) >= 1.0

    def _answers(self, ops: list[Op], results: Mapping[int, Result]) -> list[Result]:
        answers: list[Result] = []
        for place, op in enumerate(ops):
            result = results.get(place)
            if isinstance(op, GetOp) and isinstance(result, Item):
                result = self._weighed(result)
            elif isinstance(op, SearchOp) and isinstance(result, list):
                kept = [found for item in result if (found := self._weighed(item)) is not None]
                result = sorted(kept, key=_score, reverse=True) if any(map(_score, kept)) else kept
            answers.append(result)
        return answers

    def _weighed(self, item: Any) -> Any:
        """An item as it may be seen now; None where it may not be seen at all."""
        if not isinstance(item, Item) or not self._only(item.namespace):
            return item
        stamp = stamp_in(item.value)
        weight = self._door.trust.weight(stamp) if stamp else 1.0
        if weight <= 0:
            return None
        bare = without_stamp(item.value)
        self._door.read(self._claim_of(item.namespace, item.key, bare), _name(item.namespace, item.key))
        if not stamp:
            return item
        value = bare if weight >= 1.0 else {**bare, **stamp, f"{STAMP}weight": weight, f"{STAMP}verified": False}
        parts: dict[str, Any] = {
            "value": value,
            "key": item.key,
            "namespace": item.namespace,
            "created_at": item.created_at,
            "updated_at": item.updated_at,
        }
        if not isinstance(item, SearchItem):
            return Item(**parts)
        return SearchItem(**parts, score=None if item.score is None else item.score * weight)


def _name(namespace: Namespace, key: str) -> str:
    return "/".join((*namespace, key))


def _score(item: Any) -> float:
    score = getattr(item, "score", None)
    return score if isinstance(score, float) else 0.0
