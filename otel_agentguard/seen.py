"""The latest events of one run, so that an event that several sides report is counted once.

A tool call inside a framework can be told three times: by our seam, by the framework's own spans and
by those of an instrumentation. Seams say of each event when it begins and when it is over; the span
processor, which hears of an event when it is over, asks whether it is one of those.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from otel_agentguard.events import Event, Handoff, Memory, Message, ModelCall, Plan, ToolCall
from otel_agentguard.fingerprint import text_digest
from otel_agentguard.forks import new_lock

SEAM = "agentguard"
_KEPT = 64
_MAX_GOING = 1_024
_SHORT_CHARS = 200
_SCALARS = frozenset({str, int, float, bool, type(None)})

_K = TypeVar("_K")


@dataclass(slots=True, eq=False)
class Sighting:
    """One side's account of an event.

    Attributes:
        event: What it tells of; None once the event is over, when its identity is all that is kept.
        source: Who tells: `SEAM`, or the instrumentation scope of the span.
        started_ns: When the event began, nanoseconds since the epoch.
        ended_ns: When it ended; None while it goes on.
        span_id: The span that tells of it; 0 where none does.
        parent_id: The span above that one; 0 where there is none.
        others: Who has told of the same event since.
        identity: What tells it from other events; None while it goes on.
    """

    event: Event | None
    source: str
    started_ns: int
    ended_ns: int | None = None
    span_id: int = 0
    parent_id: int = 0
    others: tuple[str, ...] = ()
    identity: Identity | None = None

    def known(self) -> Identity:
        """What is known by now to tell the event from others."""
        if self.identity is not None:
            return self.identity
        return _NOTHING if self.event is None else _identity(self.event)


@dataclass(slots=True, eq=False)
class Identity:
    """What tells one event from others; small, whatever the event holds.

    Attributes:
        kind: What sort of event it is.
        name: Tool, agent, model, or the entry of a memory.
        call_id: The id that the model gave a tool call.
        digest: Fingerprint of a call, digest of a message or a plan.
        arguments: Those arguments of a call that are no lists or objects, long texts as their digest.
        output_tokens: Tokens that a model wrote.
    """

    kind: type[Event]
    name: str = ""
    call_id: str | None = None
    digest: bytes | None = None
    arguments: Mapping[str, object] | None = None
    output_tokens: int | None = None


_NOTHING = Identity(Event)


class SeenEvents:
    """What was seen of one run lately; bounded, oldest dropped. Thread safe."""

    __slots__ = ("_going", "_lock", "_now_ns", "_parents", "_sightings", "_sources")

    def __init__(self, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._lock = new_lock()
        self._going: OrderedDict[int, tuple[Event, int] | Sighting] = OrderedDict()
        self._sightings: deque[Sighting] = deque()
        self._sources: dict[str, int] = {}
        self._parents: dict[int, int] = {}

    def begin(self, event: Event) -> None:
        """An event begins at a seam, before the engine judges it; refused ones too."""
        self._going[id(event)] = event, self._now_ns()
        if len(self._going) > _MAX_GOING:
            self._going.popitem(last=False)

    def end(self, event: Event, *, keep: bool = True) -> None:
        """The event is over: it returned, raised or was refused.

        Args:
            event: What `begin` was told of.
            keep: Whether others may still tell of it.
        """
        with self._lock:
            begun = self._going.pop(id(event), None)
            if begun is None or not (keep or isinstance(begun, Sighting)):
                return
            sighting = begun if isinstance(begun, Sighting) else self._sighted(*begun)
        _close(sighting)
        sighting.ended_ns = self._now_ns()

    def is_news(self, told: Sighting) -> bool:
        """Whether nobody told of this event yet; then it is noted.

        One account is matched by at most one of each other source, so that equal calls made side by
        side stay as many as they are.

        Args:
            told: What a span tells, complete.
        """
        _close(told)
        with self._lock:
            for key, begun in self._going.copy().items():
                if not isinstance(begun, Sighting):
                    self._going[key] = self._sighted(*begun)
            best = self._same(told)
            if best is None:
                self._note(told)
                return True
            best.others = (*best.others, told.source)
            return False

    def _sighted(self, event: Event, started_ns: int) -> Sighting:
        sighting = Sighting(event, SEAM, started_ns)
        self._note(sighting)
        return sighting

    def _same(self, told: Sighting) -> Sighting | None:
        if self._sources.keys() <= {told.source} and told.span_id not in self._parents:
            return None
        best: Sighting | None = None
        mine = told.known()
        for earlier in self._sightings:
            # Most are long over; this look at them is all that they cost.
            ended_ns = earlier.ended_ns
            apart = ended_ns is not None and ended_ns < told.started_ns
            if apart and (mine.call_id is None or earlier.identity is None or earlier.identity.call_id != mine.call_id):
                continue
            its_own = earlier.source == told.source
            if its_own and (earlier.parent_id == 0 or earlier.parent_id != told.span_id):
                continue
            if not its_own and told.source in earlier.others:
                continue
            if _is_same(earlier, told, its_own=its_own) and (best is None or _gap(earlier, told) < _gap(best, told)):
                best = earlier
        return best

    def _note(self, sighting: Sighting) -> None:
        source, parent_id = sighting.source, sighting.parent_id
        self._sightings.append(sighting)
        if len(self._sightings) > _KEPT:
            oldest = self._sightings.popleft()
            if oldest.parent_id:
                _uncount(self._parents, oldest.parent_id)
            if oldest.source == source:
                source = ""
            else:
                _uncount(self._sources, oldest.source)
        if source:
            _count(self._sources, source)
        if parent_id:
            _count(self._parents, parent_id)


class Others:
    """Whether others than our seams may tell of the same events: spans that are not ours, or what models are told.

    Attributes:
        may_tell: They may. That ends when as many spans of ours as are remembered came in a row, and no other goes on.
    """

    __slots__ = ("_always", "_foreign", "_own_in_a_row", "may_tell")

    def __init__(self) -> None:
        self.may_tell = False
        self._always = False
        self._foreign: set[int] = set()
        self._own_in_a_row = 0

    def expect(self, *, always: bool = False) -> None:
        """Somebody may tell from here on; `always` for what models are told, of which no span speaks."""
        self._always = self._always or always
        self.may_tell = True

    def span_began(self, span_id: int, *, is_own: bool) -> None:
        """A span began, of one of our seams or of somebody else."""
        if not is_own:
            self._own_in_a_row = 0
            self._foreign.add(span_id)
            self.may_tell = True
            return
        self._own_in_a_row += 1
        if self._own_in_a_row == _KEPT and not self._foreign and not self._always:
            self.may_tell = False

    def span_ended(self, span_id: int) -> None:
        """A span of somebody else is over, or forgotten."""
        self._foreign.discard(span_id)


def _count(counts: dict[_K, int], key: _K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _uncount(counts: dict[_K, int], key: _K) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


def _close(sighting: Sighting) -> None:
    if sighting.event is not None:
        sighting.identity = _identity(sighting.event)
        sighting.event = None


def _identity(event: Event) -> Identity:
    kind = type(event)
    if isinstance(event, ToolCall):
        arguments = None if event.arguments is None else _short(event.arguments)
        return Identity(kind, event.tool, event.call_id, event.fingerprint, arguments)
    if isinstance(event, Message):
        return Identity(kind, event.agent, digest=event.digest)
    if isinstance(event, ModelCall):
        return Identity(kind, event.model, output_tokens=event.output_tokens)
    if isinstance(event, Handoff):
        return Identity(kind, event.to)
    if isinstance(event, Memory):
        return Identity(kind, f"{event.operation} {event.key}")
    if isinstance(event, Plan):
        return Identity(kind, digest=event.digest)
    return Identity(kind)


def _short(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """The arguments that cost little to keep; long texts as their digest."""
    short: dict[str, object] = {}
    for name, value in arguments.items():
        kind = type(value)
        if kind is str:
            short[name] = text_digest(value) if len(value) > _SHORT_CHARS else value  # type: ignore[arg-type]
        elif kind in _SCALARS:
            short[name] = value
    return short


def _gap(one: Sighting, other: Sighting) -> int:
    return abs(one.started_ns - other.started_ns)


def _is_same(earlier: Sighting, told: Sighting, *, its_own: bool) -> bool:
    one, other = earlier.known(), told.known()
    if one.kind is not other.kind:
        return False
    if one.kind is ToolCall:
        if one.call_id is not None and other.call_id is not None:
            return one.call_id == other.call_id and one.name == other.name
        return _overlap(earlier, told) and one.name == other.name and _same_arguments(one, other)
    if not _overlap(earlier, told):
        return False
    if one.kind is Message:
        if its_own or one.digest is None or other.digest is None:
            return one.name == other.name and (one.digest == other.digest or not its_own)
        return one.digest == other.digest
    if one.kind is ModelCall:
        return _same_model_call(one, other)
    return one.name == other.name and one.digest == other.digest


def _overlap(earlier: Sighting, told: Sighting) -> bool:
    if told.ended_ns is not None and told.ended_ns < earlier.started_ns:
        return False
    return earlier.ended_ns is None or told.started_ns <= earlier.ended_ns


def _same_arguments(one: Identity, other: Identity) -> bool:
    if one.digest is None or other.digest is None or one.digest == other.digest:
        return True
    mine, theirs = one.arguments, other.arguments
    if not mine or not theirs:
        return False
    # A seam leaves out what is no part of the identity, spans leave out what the framework hands in.
    common = mine.keys() & theirs.keys()
    if common:
        return all(mine[name] == theirs[name] for name in common)
    # OpenInference records the lone argument of a LangChain tool as its bare value, without the name.
    return len(mine) == len(theirs) == 1 and next(iter(mine.values())) == next(iter(theirs.values()))


def _same_model_call(one: Identity, other: Identity) -> bool:
    """Names of models differ by a date or a provider in front; the length of the answer is one number."""
    if one.output_tokens is not None and other.output_tokens is not None:
        return one.output_tokens == other.output_tokens
    return not one.name or not other.name or one.name in other.name or other.name in one.name
