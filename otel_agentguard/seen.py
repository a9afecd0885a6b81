"""The latest events of one run, so that an event that several sides report is counted once.

A tool call inside a framework can be told three times: by our seam, by the framework's own spans and
by those of an instrumentation. Seams note each event when it begins; the span processor, which hears
of an event when it is over, asks whether it is one of those.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from otel_agentguard.events import Event, Handoff, Memory, Message, ModelCall, Plan, ToolCall

SEAM = "agentguard"
_KEPT = 64

_K = TypeVar("_K")


@dataclass(slots=True, eq=False)
class Sighting:
    """One side's account of an event.

    Attributes:
        event: What it tells of.
        source: Who tells: `SEAM`, or the instrumentation scope of the span.
        started_ns: When the event began, nanoseconds since the epoch.
        ended_ns: When it ended; None while it goes on.
        span_id: The span that tells of it; 0 where none does.
        parent_id: The span above that one; 0 where there is none.
        others: Who has told of the same event since.
    """

    event: Event
    source: str
    started_ns: int
    ended_ns: int | None = None
    span_id: int = 0
    parent_id: int = 0
    others: tuple[str, ...] = ()


class SeenEvents:
    """What was seen of one run lately; bounded, oldest dropped. Thread safe."""

    __slots__ = ("_lock", "_now_ns", "_parents", "_sightings", "_sources")

    def __init__(self, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._sightings: deque[Sighting] = deque()
        self._sources: dict[str, int] = {}
        self._parents: dict[int, int] = {}

    def begin(self, event: Event) -> Sighting:
        """Note an event at a seam, before the engine judges it; refused ones too.

        Returns:
            What `end` is to be told of.
        """
        sighting = Sighting(event, SEAM, self._now_ns())
        with self._lock:
            self._note(sighting)
        return sighting

    def end(self, sighting: Sighting) -> None:
        """Note that the event is over: it returned, raised or was refused."""
        sighting.ended_ns = self._now_ns()

    def is_news(self, told: Sighting) -> bool:
        """Whether nobody told of this event yet; then it is noted.

        One account is matched by at most one of each other source, so that equal calls made side by
        side stay as many as they are.

        Args:
            told: What a span tells, complete.
        """
        with self._lock:
            best = self._same(told)
            if best is None:
                self._note(told)
                return True
            best.others = (*best.others, told.source)
            return False

    def _same(self, told: Sighting) -> Sighting | None:
        if self._sources.keys() <= {told.source} and told.span_id not in self._parents:
            return None
        best: Sighting | None = None
        call_id = _call_id(told)
        for earlier in self._sightings:
            # Most are long over; this look at them is all that they cost.
            ended_ns = earlier.ended_ns
            if (
                ended_ns is not None
                and ended_ns < told.started_ns
                and (call_id is None or _call_id(earlier) != call_id)
            ):
                continue
            if earlier.source == told.source:
                if earlier.parent_id == 0 or earlier.parent_id != told.span_id:
                    continue
            elif told.source in earlier.others:
                continue
            if _is_same(earlier, told) and (best is None or _gap(earlier, told) < _gap(best, told)):
                best = earlier
        return best

    def _note(self, sighting: Sighting) -> None:
        self._sightings.append(sighting)
        _count(self._sources, sighting.source)
        _count(self._parents, sighting.parent_id)
        if len(self._sightings) > _KEPT:
            oldest = self._sightings.popleft()
            _uncount(self._sources, oldest.source)
            _uncount(self._parents, oldest.parent_id)


def _count(counts: dict[_K, int], key: _K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _uncount(counts: dict[_K, int], key: _K) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


def _gap(one: Sighting, other: Sighting) -> int:
    return abs(one.started_ns - other.started_ns)


def _is_same(earlier: Sighting, told: Sighting) -> bool:
    one, other = earlier.event, told.event
    if type(one) is not type(other):
        return False
    if isinstance(one, ToolCall) and isinstance(other, ToolCall):
        if one.call_id is not None and other.call_id is not None:
            return one.call_id == other.call_id and one.tool == other.tool
        return _overlap(earlier, told) and one.tool == other.tool and _same_arguments(one, other)
    return _overlap(earlier, told) and _same_content(one, other)


def _call_id(sighting: Sighting) -> str | None:
    event = sighting.event
    return event.call_id if isinstance(event, ToolCall) else None


def _overlap(earlier: Sighting, told: Sighting) -> bool:
    if told.ended_ns is not None and told.ended_ns < earlier.started_ns:
        return False
    return earlier.ended_ns is None or told.started_ns <= earlier.ended_ns


def _same_arguments(one: ToolCall, other: ToolCall) -> bool:
    if one.fingerprint is None or other.fingerprint is None or one.fingerprint == other.fingerprint:
        return True
    mine, theirs = one.arguments, other.arguments
    if not mine or not theirs:
        return False
    try:
        # A seam leaves out what is no part of the identity, spans leave out what the framework hands in.
        common = mine.keys() & theirs.keys()
        if common:
            return all(mine[name] == theirs[name] for name in common)
        # OpenInference records the lone argument of a LangChain tool as its bare value, without the name.
        return len(mine) == len(theirs) == 1 and next(iter(mine.values())) == next(iter(theirs.values()))
    except Exception:
        return False


def _same_content(one: Event, other: Event) -> bool:
    if isinstance(one, Message) and isinstance(other, Message):
        if one.digest is None or other.digest is None:
            return one.agent == other.agent
        return one.digest == other.digest
    if isinstance(one, ModelCall) and isinstance(other, ModelCall):
        return _same_model_call(one, other)
    if isinstance(one, Handoff) and isinstance(other, Handoff):
        return one.to == other.to
    if isinstance(one, Memory) and isinstance(other, Memory):
        return one.operation is other.operation and one.key == other.key
    if isinstance(one, Plan) and isinstance(other, Plan):
        return one.digest == other.digest
    return False


def _same_model_call(one: ModelCall, other: ModelCall) -> bool:
    """Names of models differ by a date or a provider in front; the answer's length is one number."""
    if one.output_tokens is not None and other.output_tokens is not None:
        return one.output_tokens == other.output_tokens
    return not one.model or not other.model or one.model in other.model or other.model in one.model
