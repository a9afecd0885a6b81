"""Guards what writes to a long-term memory: plain containers, and any function that a model calls as a tool.

A guarded store asks through a `Door`, so it needs no engine: `MemoryGate.submit` is a way through, and so is
anything else that marks a `Memory` event with its verdict.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from otel_agentguard import words
from otel_agentguard.errors import CallBlocked, ConfigError
from otel_agentguard.events import Memory, MemoryOperation
from otel_agentguard.memory.recall import Trust
from otel_agentguard.memory.verdicts import SENTENCES, STAMP, MemoryKind, Reason, Verdict

_logger = logging.getLogger("otel_agentguard")

UNVERIFIED = "[unverified guess] "
"""What a text begins with where a tool has no place for a stamp."""

Submit = Callable[[Memory], object]
"""Takes in a memory event of the current run and marks it; what it returns does not matter."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a store is to do with a write.

    Attributes:
        store: Whether to store it at all.
        stamp: What to store beside it; empty where nothing is to be changed.
        verified: It may replace what is verified already.
        reasons: Why, as sentences.
    """

    store: bool
    stamp: Mapping[str, object]
    verified: bool
    reasons: tuple[str, ...] = ()


class Door:
    """Between a store and the gate: asks, and lets the write through as an intent where asking fails.

    Attributes:
        trust: Weighs what comes back.
        failures: Writes that could not be judged; all of them went through.
    """

    def __init__(
        self,
        submit: Submit,
        *,
        trust: Trust | None = None,
        enforces: Callable[[], bool] = lambda: True,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        """Open a door.

        Args:
            submit: Takes in a memory event of the current run and marks it.
            trust: Knows revoked runs and changed files; a new one where None is given.
            enforces: Whether a write may be changed or refused; where it says no, all goes through as it came.
            on_failure: Told what went wrong when a write could not be judged.
        """
        self.trust = trust or Trust()
        self.failures = 0
        self._submit = submit
        self._enforces = enforces
        self._on_failure = on_failure

    def write(self, memory: Memory) -> Ruling:
        """Have a write judged. Never raises."""
        try:
            self._submit(memory)
            enforces = self._enforces()
        except Exception as exc:
            self._failed(exc)
            enforces = True
        if not enforces:
            return Ruling(store=True, stamp={}, verified=True)
        if memory.stamp is None:
            return Ruling(True, _unchecked(memory), verified=False, reasons=(SENTENCES[Reason.GATE_FAILED],))
        return Ruling(
            store=memory.verdict != Verdict.CONTRADICTED,
            stamp=memory.stamp,
            verified=memory.weight is not None and memory.weight >= 1.0,
            reasons=memory.reasons,
        )

    def read(self, value: object, key: str | None = None) -> None:
        """Tell the run that this was read from memory, so that it does not come back as evidence. Never raises."""
        try:
            self._submit(Memory(operation=MemoryOperation.READ, key=key, value=value))
        except Exception as exc:
            self._failed(exc)

    def delete(self, key: str) -> None:
        """Tell the run that an entry was deleted. Never raises."""
        try:
            self._submit(Memory(operation=MemoryOperation.DELETE, key=key))
        except Exception as exc:
            self._failed(exc)

    def _failed(self, exc: Exception) -> None:
        if not self.failures:
            _logger.error("agentguard: the memory gate cannot be asked; writes go through as guesses", exc_info=exc)
        self.failures += 1
        if self._on_failure is not None:
            self._on_failure(exc)


def _unchecked(memory: Memory) -> dict[str, object]:
    return {
        f"{STAMP}status": Verdict.UNVERIFIABLE.value,
        f"{STAMP}kind": MemoryKind.INTENT.value,
        f"{STAMP}verified": False,
        f"{STAMP}weight": 0.3,
        f"{STAMP}writer": memory.agent,
    }


def without_stamp(value: Mapping[str, object]) -> dict[str, object]:
    """A stored value as it was before the stamp was laid beside it."""
    return {name: content for name, content in value.items() if not str(name).startswith(STAMP)}


def stamp_in(value: Mapping[str, object]) -> dict[str, object]:
    """The stamp in a stored value; empty where it has none."""
    return {name: content for name, content in value.items() if str(name).startswith(STAMP)}


def guard_store(store: Any, door: Door) -> Any:
    """Guard a store of any kind that is known.

    Args:
        store: A dict or list, a LangGraph store, or an instance of mem0's `Memory` or `AsyncMemory`.
        door: How it asks the gate.

    Returns:
        What to use in its place: a guarded container or LangGraph store; the same mem0 instance, guarded.

    Raises:
        ConfigError: It is none of those.
    """
    if isinstance(store, GuardedDict | GuardedList):
        return store
    if isinstance(store, MutableMapping):
        return GuardedDict(store, door)
    if isinstance(store, MutableSequence):
        return GuardedList(store, door)
    families = {cls.__module__.partition(".")[0] for cls in type(store).__mro__}
    if "langgraph" in families:
        from otel_agentguard.memory.langgraph import guard_langgraph

        return guard_langgraph(store, door)
    if "mem0" in families:
        from otel_agentguard.memory.mem0 import guard_mem0

        guard_mem0(store, door)
        return store
    raise ConfigError(
        f"no guard for a memory of type {type(store).__qualname__}; known: dict, list, LangGraph's BaseStore, mem0's "
        "Memory. For anything else decorate the function that writes with `memory_tool`"
    )


class GuardedDict(MutableMapping[Any, Any]):
    """A mapping whose values have to be observed before they count as facts.

    A guess is stored, but never over a verified value: it is kept in `aside` then. What was contradicted is not
    stored.

    Attributes:
        inner: The mapping itself.
        stamps: What the gate said of each value that was written through the guard.
        aside: Guesses that would have replaced a verified value.
    """

    def __init__(self, inner: MutableMapping[Any, Any], door: Door) -> None:
        self.inner = inner
        self.stamps: dict[Any, Mapping[str, object]] = {}
        self.aside: dict[Any, Any] = {}
        self._door = door
        self._told: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        value = self.inner[key]
        if key not in self._told or self._told[key] is not value:
            self._told[key] = value
            self._door.read(value, str(key))
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        ruling = self._door.write(Memory(operation=MemoryOperation.UPDATE, key=str(key), value=value))
        if not ruling.store:
            return
        if not ruling.verified and self.weight(key) >= 1.0:
            self.aside[key] = value
            return
        self.inner[key] = value
        if ruling.stamp:
            self.stamps[key] = ruling.stamp

    def __delitem__(self, key: Any) -> None:
        del self.inner[key]
        for part in (self.stamps, self.aside, self._told):
            part.pop(key, None)
        self._door.delete(str(key))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)

    def __repr__(self) -> str:
        return f"GuardedDict({self.inner!r})"

    def weight(self, key: Any) -> float:
        """How far the value under a key may be trusted now, 0 to 1; 0 where nothing was written under the guard."""
        stamp = self.stamps.get(key)
        return 0.0 if stamp is None else self._door.trust.weight(stamp)

    def premises(self) -> dict[Any, Any]:
        """The entries that may serve as premises: what is verified, and neither expired, stale nor revoked."""
        return {key: self[key] for key in self.inner if self.weight(key) >= 1.0}


class GuardedList(MutableSequence[Any]):
    """A list of memories; what is appended has to be observed before it counts as a fact.

    Attributes:
        inner: The list itself.
    """

    def __init__(self, inner: MutableSequence[Any], door: Door) -> None:
        self.inner = inner
        self._door = door
        self._stamps: list[Mapping[str, object]] = [{} for _ in inner]

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> MutableSequence[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        value = self.inner[index]
        self._door.read(value)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            kept = [(one, stamp) for one in value if (stamp := self._stamp_of(one)) is not None]
            self.inner[index] = [one for one, _ in kept]
            self._stamps[index] = [stamp for _, stamp in kept]
            return
        stamp = self._stamp_of(value)
        if stamp is not None:
            self.inner[index] = value
            self._stamps[index] = stamp

    def __delitem__(self, index: Any) -> None:
        del self.inner[index]
        del self._stamps[index]

    def __len__(self) -> int:
        return len(self.inner)

    def __repr__(self) -> str:
        return f"GuardedList({self.inner!r})"

    def insert(self, index: int, value: Any) -> None:
        """Insert a value, unless it is contradicted."""
        stamp = self._stamp_of(value)
        if stamp is not None:
            self.inner.insert(index, value)
            self._stamps.insert(index, stamp)

    def premises(self) -> list[Any]:
        """The values that may serve as premises."""
        pairs = zip(self.inner, self._stamps, strict=True)
        return [value for value, stamp in pairs if stamp and self._door.trust.weight(stamp) >= 1.0]

    def _stamp_of(self, value: Any) -> Mapping[str, object] | None:
        ruling = self._door.write(Memory(operation=MemoryOperation.WRITE, value=value))
        return ruling.stamp if ruling.store else None


def memory_tool(
    door: Door,
    *,
    claim: str,
    key: str | None = None,
    stamp: str | None = None,
    kind: str = MemoryKind.FACT.value,
    source: str | None = None,
) -> Callable[[_Function], _Function]:
    """Guard a function or coroutine that writes to a memory.

    Args:
        door: How it asks the gate.
        claim: The parameter that holds what is to be remembered.
        key: The parameter that names the entry.
        stamp: The parameter, a mapping, that takes the stamp. Without one a text that is not verified is stored
            with `UNVERIFIED` before it.
        kind: What is written: `fact`, `intent`, `preference` or `procedure`.
        source: Who is said to have stated it, where the tool is for one source alone.

    Returns:
        A decorator. What was contradicted is refused: the function raises `CallBlocked`, whose text is for the model.

    Raises:
        ConfigError: The function has no parameter of that name, or there is no such kind.
    """
    if kind not in set(MemoryKind):
        raise ConfigError(f"no memory kind {kind!r}; known: {', '.join(MemoryKind)}")

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        _check_parameters(function, signature, (claim, key, stamp))

        def ruled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            name = None if key is None or given[key] is None else str(given[key])
            memory = Memory(operation=MemoryOperation.UPDATE, key=name, value=given[claim], source=source, kind=kind)
            ruling = door.write(memory)
            if not ruling.store:
                raise CallBlocked(
                    words.to_model(
                        f"Not stored: {'; '.join(ruling.reasons)}.", "Keep what is stored, or cite newer evidence."
                    )
                )
            if stamp is not None:
                given[stamp] = {**(given[stamp] or {}), **ruling.stamp}
            elif not ruling.verified and isinstance(given[claim], str):
                given[claim] = UNVERIFIED + given[claim]
            return bound

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def guarded_coroutine(*args: Any, **kwargs: Any) -> Any:
                bound = ruled(args, kwargs)
                return await function(*bound.args, **bound.kwargs)

            return cast("_Function", guarded_coroutine)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            bound = ruled(args, kwargs)
            return function(*bound.args, **bound.kwargs)

        return cast("_Function", guarded)

    return decorate


def _check_parameters(function: Callable[..., Any], signature: inspect.Signature, names: Iterable[str | None]) -> None:
    for name in names:
        if name is not None and name not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise ConfigError(f"{function.__qualname__} has no parameter {name!r}; it has: {known}")
