"""What has been written when, as far as the guard sees it.

One counter goes up with every write. A resource remembers where the counter stood when it was last
written, so that an answer is still true while none of its resources stands above the counter at which
the answer was made. This is what knows of writes to resources that have no state to look at (a record
in a database, a file inside a container); files on this machine are looked at as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from otel_agentguard.forks import new_lock

MAX_NAMES = 20_000
MAX_OPEN = 1_024


@dataclass(frozen=True, slots=True)
class Key:
    """How one resource is found again.

    Attributes:
        name: As the tool names it.
        path: As a path of this machine, absolute and with links resolved.
    """

    name: str
    path: str


class Generations:
    """Counts writes by resource; shared by all runs of a process, thread safe, bounded.

    A write to a path is one to everything below it, and to the listing of everything above it.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._now = 0
        self._everything = 0
        self._written: dict[str, int] = {}
        self._below: dict[str, int] = {}
        self._open: dict[int, tuple[Key, ...] | None] = {}
        self._tokens = 0

    @property
    def now(self) -> int:
        """Where the counter stands."""
        return self._now

    def begin(self, keys: Sequence[Key] | None) -> int:
        """A write begins.

        Args:
            keys: What it writes; None for anything.

        Returns:
            What `end` is to be told of.
        """
        with self._lock:
            self._bump(keys)
            self._tokens += 1
            if len(self._open) >= MAX_OPEN:
                del self._open[next(iter(self._open))]
            self._open[self._tokens] = None if keys is None else tuple(keys)
            return self._tokens

    def end(self, token: int, keys: Sequence[Key] | None) -> None:
        """The write is over, however it ended; it may have written until now."""
        with self._lock:
            self._open.pop(token, None)
            self._bump(keys)

    def wrote(self, keys: Sequence[Key] | None) -> None:
        """A write has happened whose beginning nobody told of."""
        with self._lock:
            self._bump(keys)

    def unchanged(self, since: int, keys: Iterable[Key]) -> bool:
        """Whether nothing of `keys` was written after the counter stood at `since`."""
        if self._now == since:
            return True
        if self._everything > since:
            return False
        return not any(self._written_after(since, key) for key in keys)

    @property
    def quiet(self) -> bool:
        """Whether no write is going on at all."""
        return not self._open

    def is_open(self, keys: Sequence[Key]) -> bool:
        """Whether a write that could touch `keys` is going on."""
        if not self._open:
            return False
        with self._lock:
            going_on = list(self._open.values())
        return any(written is None or _overlap(written, keys) for written in going_on)

    def _written_after(self, since: int, key: Key) -> bool:
        written = self._written
        if written.get(key.name, 0) > since or self._below.get(key.path, 0) > since:
            return True
        return any(written.get(path, 0) > since for path in _upwards(key.path))

    def _bump(self, keys: Sequence[Key] | None) -> None:
        self._now += 1
        if keys is None or len(self._written) + len(self._below) > MAX_NAMES:
            self._everything = self._now
            self._written.clear()
            self._below.clear()
        for key in keys or ():
            self._written[key.name] = self._now
            for path in _upwards(key.path):
                self._below[path] = self._now
            self._written[key.path] = self._now


def _upwards(path: str) -> Iterator[str]:
    """A path and every folder above it."""
    yield path
    above = os.path.dirname(path)
    while above != path:
        yield above
        path, above = above, os.path.dirname(above)


def _overlap(written: Sequence[Key], read: Sequence[Key]) -> bool:
    for one in written:
        for other in read:
            if one.name == other.name or one.path in _upwards(other.path) or other.path in _upwards(one.path):
                return True
    return False
