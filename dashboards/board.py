"""What a board is made of, and the numbers that more than one board shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from panels import CALM, HIGH, LOW, Panel, number
from queries import ACTED, DUPLICATES, FOUND, LOOPS, grown, grown_and_born, or_zero, repeat_rate

from otel_agentguard import semconv


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side, equally wide.

    Attributes:
        height: Their height, cells of Grafana's grid.
        panels: From left to right.
    """

    height: int
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One board.

    Attributes:
        name: Its file, without `.json`.
        title: Its title.
        description: The question that it answers.
        rows: Titles, and the lines below each.
        variables: Names of variables beside `job` and `instance`: each the label of a metric.
    """

    name: str
    title: str
    description: str
    rows: Mapping[str, Sequence[Line]]
    variables: Mapping[str, str] = field(default_factory=dict)


def line(height: int, *panels: Panel) -> Line:
    """Panels side by side."""
    return Line(height, panels)


def duplicates(certainty: str, *matchers: str) -> str:
    """Side effects of one certainty that were asked for again, in the time that is shown."""
    return grown_and_born(semconv.DUPLICATE_SIDE_EFFECTS_TOTAL, f'certainty="{certainty}"', *matchers)


def looping_now() -> Panel:
    """How many agents loop."""
    return number(
        "Agents looping now",
        "Agents that repeated themselves in the last five minutes so much that the guard acted. "
        "Who they are is in the table below.",
        or_zero(f"count({grown(semconv.FINDINGS_TOTAL, LOOPS, ACTED, by='agent', window='5m')} > 0)"),
        steps=((1, LOW), (3, HIGH)),
        traces=FOUND,
    )


def repeat_rate_now(*matchers: str) -> Panel:
    """The share of tool calls that repeat."""
    return number(
        "Repeat rate",
        "Tool calls that repeat an earlier one without progress, as a share of all tool calls, now.",
        or_zero(repeat_rate(*matchers)),
        unit="percentunit",
        steps=((0.1, LOW), (0.3, HIGH)),
    )


def done_twice() -> Panel:
    """The number that must be 0."""
    return number(
        "Done twice for sure",
        "Side effects that happened twice. Anything but 0 is an incident: see the board on side effects and the "
        "runbook, DuplicateSideEffectConfirmed.",
        duplicates("confirmed"),
        steps=((0.5, HIGH),),
        traces=DUPLICATES,
    )


def perhaps_done_twice() -> Panel:
    """The number that somebody has to look into."""
    return number(
        "Perhaps done twice",
        "Side effects that may have happened twice: somebody has to look at the receiving system.",
        duplicates("possible"),
        steps=((0.5, LOW),),
        traces=DUPLICATES,
    )


def duplicates_prevented() -> Panel:
    """The number that shows the guard at work."""
    return number(
        "Duplicates prevented",
        "Side effects that an agent asked for again and that the guard did not do again.",
        duplicates("prevented"),
        calm=CALM,
    )
