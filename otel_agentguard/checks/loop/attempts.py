"""Which calls are attempts of their own: equal calls at once are one."""

from __future__ import annotations

from otel_agentguard.events import NOT_EXECUTED, ToolCall

_MAX_OPEN = 256


class Attempts:
    """The calls that have begun and not ended, and those of the latest model turn.

    Of equal calls that begin before one of them has ended, the first that ends is the attempt.
    """

    __slots__ = ("_batch", "_batched", "_followers", "_open")

    def __init__(self) -> None:
        self._open: dict[bytes, int | list[int]] = {}
        self._followers: set[int] = set()
        self._batch: str | None = None
        self._batched: set[bytes] = set()

    def begin(self, key: bytes, step: int) -> None:
        """A call begins."""
        others = self._open.get(key)
        if others is None:
            if len(self._open) < _MAX_OPEN:
                self._open[key] = step
        elif isinstance(others, int):
            self._open[key] = [others, step]
        elif len(others) < _MAX_OPEN:
            others.append(step)

    def leads(self, key: bytes, call: ToolCall) -> bool:
        """Whether this call, which is over, counts as an attempt."""
        first = self._ends_first(key, call.step)
        batch = call.batch
        if batch is None or call.outcome is NOT_EXECUTED:
            return first
        if batch != self._batch:
            self._batch = batch
            self._batched = set()
        if key in self._batched:
            return False
        if len(self._batched) < _MAX_OPEN:
            self._batched.add(key)
        return first

    def _ends_first(self, key: bytes, step: int) -> bool:
        followers = self._followers
        if followers and step in followers:
            followers.discard(step)
            return False
        others = self._open.pop(key, step)
        if isinstance(others, list):
            if len(followers) > _MAX_OPEN:
                followers.clear()
            followers.update(other for other in others if other != step)
        return True
