"""Results that are kept, bounded by bytes: a run's own, and those of all runs of the process together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from otel_agentguard.copies import Kept, keep
from otel_agentguard.forks import new_lock

RUN_BYTES = 1024 * 1024
PROCESS_BYTES = 64 * 1024 * 1024

_HEAD_CHARS = 65_536


class Sized(Protocol):
    """What takes memory.

    Attributes:
        size_bytes: Roughly how much.
    """

    @property
    def size_bytes(self) -> int:
        """See above."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class ByteBudget:
    """Bytes that all runs of a process may keep together.

    Args:
        max_bytes: The limit.

    Attributes:
        used_bytes: What is kept now.
        dropped: How many values did not fit or made room for others.
        lock: Held while anything is put or taken away.
    """

    def __init__(self, max_bytes: int = PROCESS_BYTES) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.dropped = 0
        self.lock = new_lock()


class BoundedMap(Generic[K, V]):
    """Values of one run by key; what was used least recently makes room. Thread safe.

    Args:
        budget: What all runs share.
        max_bytes: Most that this run may keep; no value takes more than half of it.
    """

    __slots__ = ("_budget", "_bytes", "_closed", "_max_bytes", "_values")

    def __init__(self, budget: ByteBudget, *, max_bytes: int = RUN_BYTES) -> None:
        self._budget = budget
        self._max_bytes = max_bytes
        self._bytes = 0
        self._closed = False
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value, without counting this as a use."""
        return self._values.get(key)

    def use(self, key: K) -> V | None:
        """The value, which stays longer for it."""
        with self._budget.lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> bool:
        """Keep a value in place of an earlier one; False where it does not fit."""
        budget, size = self._budget, value.size_bytes
        with budget.lock:
            if key in self._values:
                self._forget(key)
            if self._closed or size > self._max_bytes // 2:
                budget.dropped += 1
                return False
            while self._bytes + size > self._max_bytes or budget.used_bytes + size > budget.max_bytes:
                budget.dropped += 1
                if not self._values:
                    return False
                self._forget(next(iter(self._values)))
            self._values[key] = value
            self._bytes += size
            budget.used_bytes += size
            return True

    def remove(self, key: K, value: V | None = None) -> None:
        """Drop what is kept there; where `value` is given, only if it is that one."""
        with self._budget.lock:
            known = self._values.get(key)
            if known is not None and (value is None or value is known):
                self._forget(key)

    def clear(self) -> None:
        """Drop everything, for good; called when the run ends."""
        with self._budget.lock:
            self._closed = True
            self._budget.used_bytes -= self._bytes
            self._bytes = 0
            self._values.clear()

    def _forget(self, key: K) -> None:
        size = self._values.pop(key).size_bytes
        self._bytes -= size
        self._budget.used_bytes -= size


class KeptValues:
    """Results of one run by call fingerprint, so that a refused call can be told what it answered before.

    What is kept is a copy, and so is what is given out: what a caller does to a result changes no refusal.

    Args:
        budget: What all runs share.
        max_bytes: Most that this run may keep.
    """

    __slots__ = ("_budget", "_map")

    def __init__(self, budget: ByteBudget, *, max_bytes: int = RUN_BYTES) -> None:
        self._budget = budget
        self._map: BoundedMap[bytes, Kept] = BoundedMap(budget, max_bytes=max_bytes)

    def put(self, fingerprint: bytes, value: object) -> None:
        """Keep a result in place of an earlier one. A text over 64 KB is kept as its head.

        May call what a class says of its own copies; nothing is kept where no true copy can be had.
        """
        if isinstance(value, str) and len(value) > _HEAD_CHARS:
            value = f"{value[:_HEAD_CHARS]}\n[{len(value) - _HEAD_CHARS} more characters]"
        kept = keep(value)
        if kept is not None:
            self._map.put(fingerprint, kept)
            return
        self._map.remove(fingerprint)
        with self._budget.lock:
            self._budget.dropped += 1

    def get(self, fingerprint: bytes | None) -> object:
        """A copy of the kept result, or None."""
        kept = None if fingerprint is None else self._map.use(fingerprint)
        if kept is None:
            return None
        try:
            return kept.give()
        except Exception:  # a class that can be copied once and no more
            return None

    def clear(self) -> None:
        """Drop everything; called when the run ends."""
        self._map.clear()
