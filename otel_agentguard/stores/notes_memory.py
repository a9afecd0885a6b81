"""Notes that die with the process."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from otel_agentguard.notes import DEFAULT_RETENTION, MAX_STOPS, LoggedCall, Retention, StopMark, Visit

_K = TypeVar("_K")
_V = TypeVar("_V")


def open_notes(
    url: str = "memory://",
    *,
    wait_s: float = 1.0,
    now_s: Callable[[], float] = time.time,
    retention: Retention = DEFAULT_RETENTION,
) -> MemoryNotes:
    """New, empty notes; no two of them share anything, and nothing in them waits."""
    return MemoryNotes(now_s=now_s, retention=retention)


class MemoryNotes:
    """A `Store` in this process.

    Args:
        now_s: Wall clock, seconds since the epoch.
        retention: How long notes are kept, and how many.
    """

    def __init__(
        self,
        *,
        now_s: Callable[[], float] = time.time,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        self._now_s = now_s
        self._retention = retention
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._visits: OrderedDict[tuple[str, str], Visit] = OrderedDict()
        self._calls: OrderedDict[tuple[str, str], LoggedCall] = OrderedDict()
        self._stops: OrderedDict[tuple[str, str], StopMark] = OrderedDict()

    @property
    def url(self) -> str:
        """See `Store`."""
        return "memory://"

    def secret(self) -> bytes:
        """See `Store`."""
        return self._secret

    def record(self, visits: Sequence[Visit], calls: Sequence[LoggedCall]) -> None:
        """See `Store`."""
        with self._lock:
            for visit in visits:
                self._put_visit(visit)
            for call in calls:
                earlier = self._calls.get((call.audience, call.call))
                count = call.count + (0 if earlier is None else earlier.count)
                _put(self._calls, (call.audience, call.call), replace(call, count=count), self._retention.calls)

    def _put_visit(self, visit: Visit) -> None:
        earlier = self._visits.get((visit.audience, visit.resource))
        if earlier is None:
            visit = replace(visit, first_s=visit.first_s or visit.last_s)
        else:
            visit = replace(
                visit,
                count=visit.count + earlier.count,
                first_s=earlier.first_s,
                name=earlier.name if visit.name is None else visit.name,
                purpose=earlier.purpose if visit.purpose is None else visit.purpose,
                summary=earlier.summary if visit.summary is None else visit.summary,
            )
        _put(self._visits, (visit.audience, visit.resource), visit, self._retention.visits)

    def visits(self, audience: str, *, resources: Sequence[str] | None = None, limit: int = 100) -> Sequence[Visit]:
        """See `Store`."""
        since = self._now_s() - self._retention.seconds
        with self._lock:
            found = [
                visit
                for visit in self._visits.values()
                if visit.audience == audience
                and visit.last_s >= since
                and (resources is None or visit.resource in resources)
            ]
        return sorted(found, key=lambda visit: (-visit.last_s, visit.resource))[:limit]

    def calls(
        self,
        audience: str,
        *,
        call: str | None = None,
        resource: str | None = None,
        tool: str | None = None,
        limit: int = 100,
    ) -> Sequence[LoggedCall]:
        """See `Store`."""
        if sum(given is not None for given in (call, resource, tool)) != 1:
            raise ValueError("give exactly one of call, resource, tool")
        since = self._now_s() - self._retention.seconds
        with self._lock:
            found = [
                one
                for one in self._calls.values()
                if one.audience == audience
                and one.at_s >= since
                and (call == one.call or tool == one.tool or resource in one.resources)
            ]
        return sorted(found, key=lambda one: (-one.at_s, one.call))[:limit]

    def put_stop(self, mark: StopMark) -> None:
        """See `Store`."""
        with self._lock:
            _put(self._stops, (mark.namespace, mark.run_id), mark, MAX_STOPS)

    def find_stop(
        self, namespace: str, *, run_id: str | None = None, conversation: str | None = None
    ) -> StopMark | None:
        """See `Store`."""
        with self._lock:
            if run_id is not None and (mark := self._stops.get((namespace, run_id))) is not None:
                return mark
            if conversation is None:
                return None
            found = [
                mark
                for mark in self._stops.values()
                if (mark.namespace, mark.conversation) == (namespace, conversation)
            ]
        return max(found, key=lambda mark: mark.stopped_s, default=None)

    def stops(self, namespace: str, *, limit: int = 100) -> Sequence[StopMark]:
        """See `Store`."""
        with self._lock:
            found = [mark for mark in self._stops.values() if mark.namespace == namespace]
        return sorted(found, key=lambda mark: (-mark.stopped_s, mark.run_id))[:limit]

    def release_stop(self, namespace: str, run_id: str) -> bool:
        """See `Store`."""
        with self._lock:
            return self._stops.pop((namespace, run_id), None) is not None

    def gc(self, older_than_s: float) -> int:
        """See `Store`."""
        since = self._now_s() - older_than_s
        with self._lock:
            return (
                _drop(self._visits, (key for key, visit in self._visits.items() if visit.last_s < since))
                + _drop(self._calls, (key for key, call in self._calls.items() if call.at_s < since))
                + _drop(self._stops, (key for key, mark in self._stops.items() if mark.stopped_s < since))
            )

    def close(self) -> None:
        """There is nothing to let go of."""


def _put(kept: OrderedDict[_K, _V], key: _K, value: _V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def _drop(kept: OrderedDict[_K, _V], keys: Iterable[_K]) -> int:
    gone = list(keys)
    for key in gone:
        del kept[key]
    return len(gone)
