"""`otel-agentguard scan --sweep`: what each value of one setting catches and costs on recorded runs.

Each value is a scan of its own, and what it says is set against the setting as it is now.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import click

from otel_agentguard.config import Settings
from otel_agentguard.findings import Action, Severity
from otel_agentguard.loading import value_of, with_values
from otel_agentguard.readers.replay import Replay

_SHOWN_RUNS = 8


@dataclass(frozen=True, slots=True)
class Sweep:
    """One setting and the values that are tried.

    Attributes:
        key: Its dotted path, such as `loop.same.hint`.
        tries: The settings with each value, in the order given; the ones that are in force come first where
            no value is theirs.
    """

    key: str
    tries: tuple[Try, ...]


@dataclass(frozen=True, slots=True)
class Try:
    """One value of a sweep.

    Attributes:
        value: As it was given.
        settings: The settings with it.
        now: It is in force.
    """

    value: str
    settings: Settings
    now: bool


@dataclass(slots=True)
class Outcome:
    """What one value led to.

    Attributes:
        value: The value.
        now: It is in force.
        runs: Runs that were read.
        steps: Their events.
        warned: First warning by run: its place in the input, its id, and the step.
        refused: Runs that would have been refused a call.
        stopped: Runs that would have been stopped.
        findings: Findings of severity `warn` and above, by kind.
    """

    value: str
    now: bool
    runs: int = 0
    steps: int = 0
    warned: dict[tuple[int, str], int] = field(default_factory=dict)
    refused: int = 0
    stopped: int = 0
    findings: Counter[str] = field(default_factory=Counter)

    def add(self, replay: Replay) -> None:
        """Count one run."""
        if replay.first_step is not None:
            self.warned[self.runs, replay.id] = replay.first_step
        self.runs += 1
        self.steps += replay.steps
        actions = {finding.action for finding in replay.findings}
        self.refused += Action.BLOCK in actions
        self.stopped += Action.STOP in actions
        self.findings.update(one.kind.value for one in replay.findings if one.severity is not Severity.INFO)

    @property
    def median_first_step(self) -> float | None:
        """Median step of the first warnings."""
        return statistics.median(self.warned.values()) if self.warned else None

    def gone(self, now: Outcome) -> list[str]:
        """Runs that are warned of now, and not with this value."""
        return [run for place, run in now.warned if (place, run) not in self.warned]

    def new(self, now: Outcome) -> list[str]:
        """Runs that are warned of with this value, and not now."""
        return [run for place, run in self.warned if (place, run) not in now.warned]


def parse_sweep(given: str, settings: Settings) -> Sweep:
    """A sweep as it stands on the command line: `KEY=VALUE,VALUE,...`.

    Raises:
        ConfigError: There is no such key, or a value does not fit together with the settings.
        click.UsageError: It has no values.
    """
    key, _, listed = given.partition("=")
    values = list(dict.fromkeys(value.strip() for value in listed.split(",") if value.strip()))
    key = key.strip()
    if not key or not values:
        raise click.UsageError(f"--sweep takes KEY=VALUE,VALUE,..., such as loop.same.hint=3,4,5, not {given!r}")
    tried = [(value, with_values(settings, {key: value})) for value in values]
    tries = [Try(value, one, one == settings) for value, one in tried]
    if not any(one.now for one in tries):
        tries.insert(0, Try(_shown(value_of(settings, key)), settings, now=True))
    return Sweep(key, tuple(tries))


def _shown(value: object) -> str:
    return "never" if value is None else str(value)


def as_text(sweep: Sweep, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The table of a sweep, and the runs that change their side."""
    now = next(one for one in outcomes if one.now)
    yield f"{sweep.key}: {now.runs:,} runs, {now.steps:,} steps"
    heads = ("value", "warned", "gone", "new", "first step", "refused", "stopped", "findings")
    rows = [heads, *(_row(one, now) for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads) - 1)]
    for row in rows:
        cells = [
            cell.ljust(widths[0]) if place == 0 else cell.rjust(widths[place]) for place, cell in enumerate(row[:-1])
        ]
        yield "  " + "  ".join((*cells, row[-1])).rstrip()
    for one in outcomes:
        if gone := one.gone(now):
            yield f"  {one.value}: no warning any more for {_some(gone)}"
        if new := one.new(now):
            yield f"  {one.value}: a warning also for {_some(new)}"
    yield (
        "  warned, refused, stopped: runs; gone, new: warned runs against the value in force now; "
        "first step: median of the first warnings"
    )


def _row(one: Outcome, now: Outcome) -> tuple[str, ...]:
    median = one.median_first_step
    found = ", ".join(f"{kind} {number:,}" for kind, number in one.findings.most_common())
    return (
        f"{one.value} (now)" if one.now else one.value,
        f"{len(one.warned):,}",
        "" if one.now else f"{len(one.gone(now)):,}",
        "" if one.now else f"{len(one.new(now)):,}",
        "-" if median is None else f"{median:g}",
        f"{one.refused:,}",
        f"{one.stopped:,}",
        found or "none",
    )


def _some(runs: Sequence[str]) -> str:
    more = len(runs) - _SHOWN_RUNS
    return ", ".join(runs[:_SHOWN_RUNS]) + (f" and {more:,} more" if more > 0 else "")


def as_json_lines(sweep: Sweep, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One object a value."""
    now = next(one for one in outcomes if one.now)
    for one in outcomes:
        yield json.dumps(
            {
                "sweep": sweep.key,
                "value": one.value,
                "now": one.now,
                "runs": one.runs,
                "steps": one.steps,
                "warned": len(one.warned),
                "gone": one.gone(now),
                "new": one.new(now),
                "first_steps": {run: step for (_, run), step in one.warned.items()},
                "median_first_step": one.median_first_step,
                "refused": one.refused,
                "stopped": one.stopped,
                "findings": dict(one.findings),
            }
        )


SWEEP_OUTPUTS: Mapping[str, Callable[[Sweep, Sequence[Outcome]], Iterator[str]]] = {
    "text": as_text,
    "jsonl": as_json_lines,
}
