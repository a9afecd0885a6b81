"""What one run has read and repeated so far, for the hints of its next turn."""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from otel_agentguard.dedup.cache import working_directory
from otel_agentguard.dedup.resources import Resources, Seen
from otel_agentguard.events import NOT_EXECUTED, OK, Effect, Event, ToolCall
from otel_agentguard.forks import new_lock
from otel_agentguard.packed import PackedOutcomes, mark_of
from otel_agentguard.protocols import RunInfo

MAX_READINGS = 256
MAX_CALLS = 2_048
MAX_REPEATS = 256
_MAX_RUNS = 20_000
_MAX_NAME_CHARS = 512
_READS = frozenset({Effect.READ, Effect.CURSOR})


@dataclass(slots=True, eq=False)
class Reading:
    """A resource that the run has read.

    Attributes:
        name: Its name, as the tool was called with it.
        first_step: When it was first read; 0 for before the first step.
        last_step: When it was read last.
        count: How often.
        purpose: Why, as the agent said.
        summary: What was found, as the agent said.
        seen: Its state when it was read last; None where that cannot be compared.
    """

    name: str
    first_step: int
    last_step: int
    count: int = 0
    purpose: str | None = None
    summary: str | None = None
    seen: Seen | None = None


@dataclass(slots=True, eq=False)
class Repeat:
    """A call that came to the same answer more than once.

    Attributes:
        tool: The tool.
        first_step: When it came to this answer first.
        last_step: When it did last.
        mark: Tells that answer from others.
        count: How often it did.
    """

    tool: str
    first_step: int
    last_step: int
    mark: int
    count: int = 2


class Journal:
    """One run; thread safe, bounded, least recently used dropped.

    Attributes:
        calls: Tool calls so far.
        executed: Those whose body ran.
        saved: Those that were answered from what was known.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.executed = 0
        self.saved = 0
        self._step = 0
        self._lock = new_lock()
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._firsts = PackedOutcomes(MAX_CALLS)
        self._repeats: OrderedDict[bytes, Repeat] = OrderedDict()

    def take(self, call: ToolCall, names: Iterable[str], seen: dict[str, Seen | None]) -> None:
        """Take in a call that is over.

        Args:
            call: The call.
            names: What it read.
            seen: The state of what it read now, where its body ran.
        """
        with self._lock:
            self._step = call.step
            self.calls += 1
            if call.served_from in ("cache", "replay"):
                self.saved += 1
            elif not call.refused and call.outcome is not NOT_EXECUTED:
                self.executed += 1
            for name in names:
                reading = self._reading(name, call.step)
                reading.count += 1
                reading.last_step = call.step
                reading.seen = seen.get(name, reading.seen)
            if call.fingerprint is not None and call.result_digest is not None and not call.refused:
                self._repeat(call, call.fingerprint, mark_of(call.result_digest))

    def visit(self, name: str, *, purpose: str | None, summary: str | None, seen: Seen | None) -> bool:
        """Take in what the agent says of something that it read.

        Returns:
            Whether that is the first that the run tells of it.
        """
        with self._lock:
            is_news = name not in self._readings
            reading = self._reading(name, self._step)
            reading.count = max(reading.count, 1)
            reading.last_step = max(reading.last_step, self._step)
            reading.purpose = purpose or reading.purpose
            reading.summary = summary or reading.summary
            reading.seen = seen
            return is_news

    def readings(self) -> list[Reading]:
        """What was read, in the order in which it was first read."""
        with self._lock:
            return sorted(self._readings.values(), key=lambda reading: (reading.first_step, reading.name))

    def repeats(self) -> list[Repeat]:
        """Calls that came to one answer more than once, in the order in which they first did."""
        with self._lock:
            found = list(self._repeats.values())
        return sorted(found, key=lambda repeat: (repeat.first_step, repeat.tool))

    def _reading(self, name: str, step: int) -> Reading:
        reading = self._readings.get(name)
        if reading is None:
            reading = self._readings[name] = Reading(name, step, step)
            if len(self._readings) > MAX_READINGS:
                self._readings.popitem(last=False)
        self._readings.move_to_end(name)
        return reading

    def _repeat(self, call: ToolCall, key: bytes, mark: int) -> None:
        """Count an answer, where it is the one that the call came to before."""
        repeat = self._repeats.get(key)
        if repeat is not None and repeat.mark == mark:
            repeat.count += 1
            repeat.last_step = call.step
            self._repeats.move_to_end(key)
            return
        first = self._firsts.put(key, call.step, mark)
        if first is None or first.mark != mark:
            if repeat is not None:
                del self._repeats[key]
            return
        self._firsts.put(key, first.step, mark)
        self._repeats[key] = Repeat(call.tool, first.step, call.step, mark)
        if len(self._repeats) > MAX_REPEATS:
            self._repeats.popitem(last=False)


class Journals:
    """The journals of all runs of a process; thread safe.

    Args:
        resources: Looks at files.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._lock = new_lock()
        self._runs: OrderedDict[str, Journal] = OrderedDict()

    def of(self, run_id: str) -> Journal:
        """The journal of a run."""
        journal = self._runs.get(run_id)
        if journal is None:
            with self._lock:
                while len(self._runs) >= _MAX_RUNS:
                    self._runs.popitem(last=False)
                journal = self._runs.setdefault(run_id, Journal())
        return journal

    def stepped(self, run: RunInfo, event: Event) -> None:
        """An event is over. See `Sink`."""
        if not isinstance(event, ToolCall):
            return
        names = read_by(event)
        seen = {name: self.look(name) for name in names} if names and event.served_from is None else {}
        self.of(run.run_id).take(event, names, seen)

    def visit(self, run: RunInfo, name: str, *, purpose: str | None = None, summary: str | None = None) -> bool:
        """Take in what the agent of a run says of something that it read; see `Journal.visit`."""
        return self.of(run.run_id).visit(name, purpose=purpose, summary=summary, seen=self.look(name))

    def look(self, name: str) -> Seen | None:
        """The state of a file now; None for what is none."""
        folder = working_directory()
        if folder is None or not os.path.isfile(os.path.join(folder, name)):
            return None
        found = self._resources.look((name,), folder)
        return found[0] if found else None

    def has_changed(self, reading: Reading) -> bool | None:
        """Whether a file has changed since it was read last; None where nobody can tell."""
        return None if reading.seen is None else not self._resources.same((reading.seen,))

    def forget(self, run_id: str) -> None:
        """The run is over."""
        self._runs.pop(run_id, None)


def read_by(call: ToolCall) -> tuple[str, ...]:
    """The resources that a call has read: what it was declared to touch, else the files that its arguments name.

    Empty for a call that did not succeed, or that was not declared to read.
    """
    if call.effect not in _READS or call.outcome is not OK or call.refused:
        return ()
    if call.touches is not None:
        return call.touches
    names = []
    for value in (call.arguments or {}).values():
        if isinstance(value, str) and value and len(value) <= _MAX_NAME_CHARS and "\n" not in value:
            try:
                if os.access(value, os.F_OK) and stat.S_ISREG(os.stat(value).st_mode):  # most texts name no file
                    names.append(value)
            except (OSError, ValueError):
                continue
    return tuple(names)
