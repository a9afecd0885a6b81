"""The answers of one run that are still true."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from otel_agentguard.copies import Kept
from otel_agentguard.dedup.flight import Flights
from otel_agentguard.dedup.generations import Generations
from otel_agentguard.dedup.resources import Resources, Seen
from otel_agentguard.dedup.rules import Source
from otel_agentguard.values import RUN_BYTES, BoundedMap, ByteBudget

NOT_FOUND_S = 5.0

_ENTRY_BYTES = 512


@dataclass(slots=True, eq=False)
class Entry:
    """One answer.

    Attributes:
        value: The answer; None where it is an error.
        error: That what was asked for does not exist.
        step: The step that made it.
        took_s: How long that took, seconds.
        began: Where the counter of writes stood before it was made.
        made_s: When it was begun to be made, seconds since the epoch.
        expires_s: When it is too old; None for never.
        reads: What it was made from; None where nobody said.
        pure: It depends on the arguments alone.
        size_bytes: What it takes in memory.
    """

    value: Kept | None
    error: Exception | None
    step: int
    took_s: float
    began: int
    made_s: float
    expires_s: float | None
    reads: tuple[Seen, ...] | None
    pure: bool
    size_bytes: int = field(default=0)

    def __post_init__(self) -> None:
        kept = self.value.size_bytes if self.value is not None else len(str(self.error))
        names = sum(len(seen.path) + len(seen.key.path) + 256 for seen in self.reads or ())
        self.size_bytes = _ENTRY_BYTES + kept + names


class AnswerCache:
    """Answers by call, least recently used dropped, bounded by bytes. Thread safe.

    Args:
        generations: What has been written when.
        resources: Looks at files.
        budget: What all runs share.
        now_s: Wall clock, seconds since the epoch.
        max_bytes: Most that this run may keep.

    Attributes:
        flights: Its executions that are going on.
    """

    def __init__(
        self,
        *,
        generations: Generations,
        resources: Resources,
        budget: ByteBudget,
        now_s: Callable[[], float],
        max_bytes: int = RUN_BYTES,
    ) -> None:
        self.flights = Flights()
        self._generations = generations
        self._resources = resources
        self._now_s = now_s
        self._entries: BoundedMap[Hashable, Entry] = BoundedMap(budget, max_bytes=max_bytes)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> tuple[Entry | None, Source]:
        """The answer to a call, where there is one and it is still true.

        May block for the stats of the files that it was made from. One that is no longer true is dropped.

        Returns:
            The answer, and what that means: a hit, a miss, or one that was dropped just now.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None, Source.MISS
        if self._holds(entry):
            self._entries.use(key)
            return entry, Source.HIT
        self._entries.remove(key, entry)
        return None, Source.INVALIDATED

    def put(self, key: Hashable, entry: Entry) -> bool:
        """Keep an answer in place of an earlier one; False where it does not fit."""
        return self._entries.put(key, entry)

    def clear(self) -> None:
        """Drop everything, for good; called when the run ends."""
        self._entries.clear()

    def _holds(self, entry: Entry) -> bool:
        if entry.expires_s is not None and not entry.made_s <= self._now_s() < entry.expires_s:
            return False
        reads = entry.reads
        if entry.pure:
            return True
        if reads is None:
            return self._generations.now == entry.began
        generations = self._generations
        if generations.now != entry.began and not generations.unchanged(entry.began, [seen.key for seen in reads]):
            return False
        return self._resources.same(reads)


def can_be_kept(reads: Sequence[Seen] | None, generations: Generations, began: int) -> bool:
    """Whether nothing that an answer was made from was written while it was made, nor is being written now.

    A file on this machine may be written now: its state shows what of that an answer has seen.
    """
    if reads is None:
        return generations.now == began and generations.quiet
    if not generations.unchanged(began, [seen.key for seen in reads]):
        return False
    unseen = [seen.key for seen in reads if not seen.exists]
    return not unseen or not generations.is_open(unseen)


def working_directory() -> str | None:
    """The working directory; None where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None
