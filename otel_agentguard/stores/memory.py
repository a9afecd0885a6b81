"""The store that dies with the process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from otel_agentguard.effects.ledger import (
    SETTLED,
    AttemptRecord,
    ClaimRequest,
    EffectRecord,
    Liveness,
    State,
)
from otel_agentguard.effects.machine import Change, MachineLedger, first_record
from otel_agentguard.effects.ownership import Claims, watch_forks
from otel_agentguard.errors import StoreError


def open_ledger(url: str = "memory://") -> MemoryLedger:
    """A new, empty ledger; no two of them share anything."""
    return MemoryLedger()


class MemoryLedger(MachineLedger):
    """A ledger in this process.

    Args:
        now_s: Wall clock, seconds since the epoch.
        max_records: Most records that are kept; beyond it the settled ones that changed longest ago go.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.time, max_records: int = 50_000) -> None:
        super().__init__()
        self._now_s = now_s
        self._max_records = max_records
        self._lock = threading.RLock()
        self._records: dict[str, EffectRecord] = {}
        self._keys: dict[str, list[str]] = {}
        self._attempts: dict[str, list[AttemptRecord]] = {}
        watch_forks(self)

    @property
    def url(self) -> str:
        """See `Ledger`."""
        return "memory://"

    def _create(self, request: ClaimRequest, owner: str) -> EffectRecord:
        with self._lock:
            record = self._records.get(request.key)
            if record is not None:
                return record
            self._make_room()
            record = first_record(request, owner, self._now_s())
            self._keys.setdefault(request.effect, []).append(request.key)
            return self._put(record)

    def _put(self, record: EffectRecord) -> EffectRecord:
        # Moved to the end, so that the dict is in order of the last change.
        self._records.pop(record.key, None)
        self._records[record.key] = record
        return record

    def _make_room(self) -> None:
        if len(self._records) < self._max_records:
            return
        for record in list(self._records.values()):
            if all(self._records[key].state in SETTLED for key in self._keys[record.effect]):
                self._drop(record.effect)
                return
        raise StoreError(f"the memory ledger holds {len(self._records)} unsettled effects and takes no more")

    def _drop(self, effect: str) -> int:
        keys = self._keys.pop(effect)
        for key in keys:
            del self._records[key]
            self._attempts.pop(key, None)
        return len(keys)

    def _change(self, change: Change) -> EffectRecord | None:
        with self._lock:
            record = self._records.get(change.seen.key)
            if record is None or not change.fits(record):
                return None
            now = self._now_s()
            if change.next is not None:
                self._archive(record, change.next.old_outcome, now)
            changed = change.applied(
                now_s=now,
                maybe_duplicates=record.maybe_duplicates + change.counted,
                confirmed_duplicates=record.confirmed_duplicates,
            )
            return self._put(changed)

    def _archive(self, record: EffectRecord, outcome: str, now: float) -> None:
        self._attempts.setdefault(record.key, []).append(
            AttemptRecord(
                key=record.key,
                attempt=record.attempt,
                owner=record.owner,
                outcome=outcome,
                started_s=record.started_s,
                ended_s=now,
            )
        )

    def _count_late(self, key: str, attempt: int) -> None:
        with self._lock:
            attempts = self._attempts.get(key, [])
            for place, past in enumerate(attempts):
                if past.attempt == attempt and past.outcome != "late":
                    attempts[place] = replace(past, outcome="late")
                    record = self._records[key]
                    self._put(replace(record, confirmed_duplicates=record.confirmed_duplicates + 1))

    def _liveness_elsewhere(self, record: EffectRecord) -> Liveness:
        # Only after a fork are there claims of another process here, in a copy that it will never update.
        return Liveness.LAPSED

    def renew(self, key: str) -> bool:
        """See `Ledger`."""
        with self._lock:
            record = self._records.get(key)
            if record is None or record.state is not State.SUCCEEDED:
                return False
            self._records[key] = replace(record, renewed=True)
            return True

    def get(self, key: str) -> EffectRecord | None:
        """See `Ledger`."""
        return self._records.get(key)

    def history(self, effect: str) -> Sequence[EffectRecord]:
        """See `Ledger`."""
        with self._lock:
            records = [self._records[key] for key in self._keys.get(effect, ())]
        return sorted(records, key=lambda record: (record.intent, record.repeat))

    def attempts(self, key: str) -> Sequence[AttemptRecord]:
        """See `Ledger`."""
        with self._lock:
            return tuple(self._attempts.get(key, ()))

    def list(
        self, *, state: State | None = None, tool: str | None = None, run_id: str | None = None, limit: int = 100
    ) -> Sequence[EffectRecord]:
        """See `Ledger`."""
        with self._lock:
            records = [
                record
                for record in self._records.values()
                if state in {None, record.state} and tool in {None, record.tool} and run_id in {None, record.run_id}
            ]
        return sorted(records, key=lambda record: (-record.updated_s, record.key))[:limit]

    def unsettled(self) -> Mapping[str, int]:
        """See `Ledger`."""
        with self._lock:
            return Counter(record.tool for record in self._records.values() if record.state is State.UNKNOWN)

    def gc(self, older_than_s: float) -> int:
        """See `Ledger`."""
        with self._lock:
            limit = self._now_s() - older_than_s
            gone = [
                effect
                for effect, keys in self._keys.items()
                if all(self._records[k].state in SETTLED and self._records[k].updated_s <= limit for k in keys)
            ]
            return sum(self._drop(effect) for effect in gone)

    def close(self) -> None:
        """There is nothing to let go of."""

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`."""
        if in_child:
            self.claims = Claims()
        self._lock.release()
