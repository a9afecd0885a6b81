"""Earlier results, kept so that a refused call can be told what it answered before."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import orjson

_HEAD_BYTES = 65_536


@dataclass(slots=True)
class SharedBudget:
    """Bytes that all runs of a process may keep together.

    Attributes:
        max_bytes: The limit.
        used: What is kept now.
        dropped: How many values were not kept or were dropped.
    """

    max_bytes: int = 64 * 1024 * 1024
    used: int = 0
    dropped: int = 0


class KeptValues:
    """Results of one run by call fingerprint: least recently used dropped, bounded by bytes."""

    __slots__ = ("_bytes", "_max_bytes", "_shared", "_values")

    def __init__(self, shared: SharedBudget, *, max_bytes: int = 1024 * 1024) -> None:
        self._shared = shared
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[bytes, tuple[object, int]] = OrderedDict()

    def put(self, fingerprint: bytes, value: object) -> None:
        """Keep a result. A text over 64 KB is kept as its head; what cannot be measured is not kept."""
        if isinstance(value, str) and len(value) > _HEAD_BYTES:
            value = f"{value[:_HEAD_BYTES]}\n[{len(value) - _HEAD_BYTES} more characters]"
        size = _size(value)
        if size is None or size > _HEAD_BYTES * 4 or self._shared.used + size > self._shared.max_bytes:
            self._shared.dropped += 1
            return
        self._forget(fingerprint)
        self._values[fingerprint] = (value, size)
        self._bytes += size
        self._shared.used += size
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._values)))
            self._shared.dropped += 1

    def get(self, fingerprint: bytes | None) -> object:
        """The kept result, or None."""
        if fingerprint is None or (kept := self._values.get(fingerprint)) is None:
            return None
        self._values.move_to_end(fingerprint)
        return kept[0]

    def clear(self) -> None:
        """Drop everything; called when the run ends."""
        self._shared.used -= self._bytes
        self._bytes = 0
        self._values.clear()

    def _forget(self, fingerprint: bytes) -> None:
        kept = self._values.pop(fingerprint, None)
        if kept is not None:
            self._bytes -= kept[1]
            self._shared.used -= kept[1]


def _size(value: object) -> int | None:
    if value is None or isinstance(value, bool | int | float):
        return 32
    if isinstance(value, str):
        return 64 + len(value) * (1 if value.isascii() else 4)
    if isinstance(value, bytes):
        return 64 + len(value)
    try:
        return 64 + len(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)) * 4
    except (TypeError, ValueError, RecursionError):
        return None
