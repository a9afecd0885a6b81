"""Label values under a cap, first come, first served.

Names of agents and tools come from applications and from models, which invent tools: without a cap
one confused model would fill a registry. A value keeps its place for the life of the process, so
that a series never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, Self, TypeVar

from otel_agentguard.forks import new_lock
from otel_agentguard.semconv import OTHER

MAX_AGENTS = 100
MAX_TOOLS = 100
MAX_PAIRS = 300
MAX_PLACES = 100
MAX_VALUE_CHARS = 120

_OTHERS = (OTHER, OTHER)


class Names:
    """The values that one label may have.

    Args:
        cap: How many values are let in.
        known: Values that are let in from the start; they count towards the cap.
    """

    __slots__ = ("_cap", "_lock", "_seen")

    def __init__(self, cap: int, known: Iterable[str] = ()) -> None:
        self._seen = set(known)
        self._cap = cap
        self._lock = new_lock()

    @classmethod
    def closed(cls, values: Sequence[str]) -> Self:
        """A set that lets nobody else in."""
        return cls(len(values), values)

    def admit(self, value: str) -> str:
        """The value as a label: itself, cut and made printable where it must be, or `OTHER` when the set is full."""
        if value in self._seen or value == OTHER:
            return value
        if len(self._seen) >= self._cap:
            return OTHER
        clean = _printable(value)
        with self._lock:
            if clean not in self._seen:
                if len(self._seen) >= self._cap:
                    return OTHER
                self._seen.add(clean)
        return clean


class Pairs:
    """The pairs of agent and tool that one process may show.

    One set serves all metrics, so that a ratio of two of them finds the same series on both sides.

    Args:
        agents: Agents that are let in.
        tools: Tools that are let in.
        cap: How many pairs are let in.
    """

    __slots__ = ("_cap", "_lock", "_seen", "agents", "tools")

    def __init__(self, agents: Names, tools: Names, cap: int = MAX_PAIRS) -> None:
        self.agents = agents
        self.tools = tools
        self._seen: set[tuple[str, str]] = set()
        self._cap = cap
        self._lock = new_lock()

    def admit(self, agent: str, tool: str) -> tuple[str, str]:
        """Both as labels. A step without a tool has the tool `""` and takes no place among the pairs."""
        if not tool:
            return self.agents.admit(agent), tool
        pair = (self.agents.admit(agent), self.tools.admit(tool))
        if pair in self._seen or pair == _OTHERS:
            return pair
        with self._lock:
            if pair not in self._seen:
                if len(self._seen) >= self._cap:
                    return _OTHERS
                self._seen.add(pair)
        return pair


class Metric(Protocol):
    """What `Family` needs of a labelled metric of prometheus_client."""

    def labels(self, *values: str) -> Self:
        """The series of these label values."""
        ...


M = TypeVar("M", bound=Metric)


class Family(Generic[M]):
    """The series of one labelled metric, found by one dictionary look-up.

    Args:
        metric: The metric.
        admit: Turns values into labels; called for values without a series only.
        overflowed: Called whenever a value went to `OTHER`.
        born: Called with the labels of every new series; may ask this family for more.
    """

    __slots__ = ("_admit", "_born", "_lock", "_metric", "_overflowed", "_series")

    def __init__(
        self,
        metric: M,
        admit: Callable[[tuple[str, ...]], tuple[str, ...]],
        overflowed: Callable[[], None],
        born: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        self._metric = metric
        self._admit = admit
        self._overflowed = overflowed
        self._born = born
        self._series: dict[tuple[str, ...], M] = {}
        self._lock = new_lock()

    def at(self, *values: str) -> M:
        """The series of these values, or the one that they fall to; made when there is none."""
        series = self._series.get(values)
        return series if series is not None else self._reach(values)

    def _reach(self, values: tuple[str, ...]) -> M:
        labels = self._admit(values)
        if labels != values and OTHER in labels:
            self._overflowed()
        series = self._series.get(labels)
        if series is not None:
            return series
        with self._lock:
            series = self._series.setdefault(labels, self._metric.labels(*labels))
        if self._born is not None:
            self._born(labels)
        return series


def _printable(value: str) -> str:
    """Cut to size; a lone surrogate, which JSON can carry, would break the whole page."""
    return value[:MAX_VALUE_CHARS].encode("utf-8", "replace").decode()
