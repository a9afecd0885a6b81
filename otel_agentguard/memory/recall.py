"""What comes back out of the long-term memory: weighed, marked, and never passed off as evidence."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_agentguard.forks import new_lock
from otel_agentguard.memory.claims import normal_value, text_of
from otel_agentguard.memory.marks import marked
from otel_agentguard.memory.passages import index_keys
from otel_agentguard.memory.verdicts import STAMP, Judgement, Verdict

MAX_ENTRIES = 4096
MAX_BOOK_BYTES = 4 << 20
_MAX_REVOKED = 10_000
_MAX_VERSIONS = 4096


class Trust:
    """What happened after entries were stored: runs that were revoked, files that changed, time that went by.

    Thread safe. The latest 10,000 runs and 4,096 files are known.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._lock = new_lock()
        self._revoked: OrderedDict[str, None] = OrderedDict()
        self._versions: OrderedDict[str, str] = OrderedDict()

    def revoke(self, run_id: str) -> None:
        """Recall nothing any more that this run stored: it was poisoned."""
        with self._lock:
            self._revoked[run_id] = None
            while len(self._revoked) > _MAX_REVOKED:
                self._revoked.popitem(last=False)

    def changed(self, resource: str, version: str = "") -> None:
        """A file or other resource has changed; what was read from another version of it is stale.

        Args:
            resource: Its name, as the tools that read it tell it (`touches`).
            version: Its new version, where one is known; without one everything read before is stale.
        """
        with self._lock:
            self._versions[resource] = version
            self._versions.move_to_end(resource)
            while len(self._versions) > _MAX_VERSIONS:
                self._versions.popitem(last=False)

    def weight(self, stamp: Mapping[str, object], *, unsupported: float = 0.3) -> float:
        """How far a stored entry may be trusted now.

        Args:
            stamp: What is stored beside it; an entry without a stamp was never judged.
            unsupported: Weight of what is stale or was never judged.

        Returns:
            0 for what is not to be recalled at all: expired, contradicted, or of a revoked run.
        """
        if stamp.get(f"{STAMP}status") == Verdict.CONTRADICTED or stamp.get(f"{STAMP}run") in self._revoked:
            return 0.0
        expires_s = stamp.get(f"{STAMP}expires_s")
        if isinstance(expires_s, int | float) and self._now_s() >= expires_s:
            return 0.0
        weight = stamp.get(f"{STAMP}weight")
        if not isinstance(weight, int | float):
            return unsupported
        return min(float(weight), unsupported) if self.is_stale(stamp) else float(weight)

    def is_stale(self, stamp: Mapping[str, object]) -> bool:
        """Whether something that the entry was read from has changed since."""
        sources = stamp.get(f"{STAMP}sources")
        if not isinstance(sources, str):
            return False
        for line in sources.splitlines():
            version, _, resource = line.partition(" ")
            known = self._versions.get(resource)
            if known is not None and known != version:
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """One entry, as it comes back.

    Attributes:
        text: Its text between marks that tell what it is worth; this is what belongs into a prompt.
        value: What was stored.
        key: Its name, where it has one.
        weight: How far it may be trusted, above 0 up to 1.
        verdict: What its evidence was worth when it was stored.
        stale: What it was read from has changed since.
        stamp: What is stored beside it.
    """

    text: str
    value: object
    key: str | None
    weight: float
    verdict: str
    stale: bool
    stamp: Mapping[str, object]

    @property
    def verified(self) -> bool:
        """Whether it may serve as a premise."""
        return self.weight >= 1.0


@dataclass(slots=True)
class _Entry:
    key: str | None
    value: object
    stamp: Mapping[str, object]
    words: frozenset[int]
    size: int


def marked_text(value: object, stamp: Mapping[str, object], weight: float, *, stale: bool = False) -> str:
    """The text of a stored value between marks that tell what it is worth."""
    worth = "verified" if weight >= 1.0 else "stale, check it again" if stale else "unverified, a guess and no premise"
    run = stamp.get(f"{STAMP}run")
    return marked(text_of(value), f"{worth}, run {run}" if run else worth)


class MemoryBook:
    """What the runs of this process have stored through the gate: bounded, in memory only.

    Thread safe. It serves `recall` where the application has no memory of its own.
    """

    def __init__(
        self,
        *,
        trust: Trust | None = None,
        now_s: Callable[[], float] = time.time,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BOOK_BYTES,
    ) -> None:
        self.trust = trust or Trust(now_s=now_s)
        self.dropped = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._lock = new_lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of text that are held, about."""
        return self._size

    def add(self, value: object, judgement: Judgement, *, key: str | None = None) -> None:
        """Keep what was judged; under one key the latest stands, except that a guess never replaces a fact."""
        if not judgement.stored:
            return
        text = text_of(value)
        name = key if key is not None else f"\0{normal_value(value)}"
        entry = _Entry(
            key, value, judgement.stamp(), frozenset(index_keys(f"{key or ''} {text}")), sys.getsizeof(text) + 512
        )
        with self._lock:
            known = self._entries.get(name)
            if known is not None and self.trust.weight(known.stamp) > judgement.weight:
                if normal_value(known.value) == normal_value(value):
                    return
                name = f"{name}\0{judgement.run}"
            self._drop(name)
            self._entries[name] = entry
            self._size += entry.size
            while len(self._entries) > self._max_entries or (self._size > self._max_bytes and len(self._entries) > 1):
                self._drop(next(iter(self._entries)))
                self.dropped += 1

    def recall(self, query: str = "", *, limit: int = 10, include_unverified: bool = False) -> list[Recalled]:
        """What is known about something.

        Args:
            query: Words to look for; without any the latest entries come first.
            limit: At most so many.
            include_unverified: Also entries that are guesses or stale, after the verified ones and marked so.

        Returns:
            Best first: the share of the query's words that an entry has, times its weight.
        """
        wanted = index_keys(query)
        found = []
        with self._lock:
            entries = list(self._entries.values())
        for place, entry in enumerate(entries):
            weight = self.trust.weight(entry.stamp)
            if weight <= 0 or (weight < 1 and not include_unverified):
                continue
            overlap = len(wanted & entry.words) / len(wanted) if wanted else 1.0
            if overlap:
                found.append((overlap * weight, place, weight, entry))
        found.sort(key=lambda one: one[:2], reverse=True)
        return [self._recalled(entry, weight) for _, _, weight, entry in found[:limit]]

    def forget(self, key: str) -> None:
        """Drop what is kept under a key."""
        with self._lock:
            self._drop(key)

    def revoke(self, run_id: str) -> int:
        """Drop everything that a run stored, and recall nothing of it from other stores either.

        Returns:
            How many entries were dropped here.
        """
        self.trust.revoke(run_id)
        with self._lock:
            poisoned = [name for name, entry in self._entries.items() if entry.stamp.get(f"{STAMP}run") == run_id]
            for name in poisoned:
                self._drop(name)
        return len(poisoned)

    def _recalled(self, entry: _Entry, weight: float) -> Recalled:
        stale = self.trust.is_stale(entry.stamp)
        return Recalled(
            text=marked_text(entry.value, entry.stamp, weight, stale=stale),
            value=entry.value,
            key=entry.key,
            weight=weight,
            verdict=str(entry.stamp.get(f"{STAMP}status")),
            stale=stale,
            stamp=entry.stamp,
        )

    def _drop(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._size -= entry.size
