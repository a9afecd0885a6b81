"""How a scan is written: text for people, JSON Lines for programs; and the progress bar beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from otel_agentguard.findings import Finding
from otel_agentguard.readers.replay import Replay
from otel_agentguard.readers.runlog import UnreadableRun


class ScanOutput(Protocol):
    """One way to write a scan; each method returns the text that is due."""

    def run(self, replay: Replay) -> str:
        """What to write of a run."""
        ...

    def unreadable(self, run: UnreadableRun) -> str:
        """What to write of a run that cannot be read."""
        ...

    def end(self) -> str:
        """What to write when all is read."""
        ...


class JsonLines:
    """One object a run, in input order, also for one that cannot be read."""

    def run(self, replay: Replay) -> str:
        """The object of a run."""
        return _line(
            {
                "id": replay.id,
                "steps": replay.steps,
                "findings": [_finding(one) for one in replay.findings],
                "first_step": replay.first_step,
                "stopped_at": replay.stopped_at,
                "redundant_steps": replay.redundant_steps,
                "duplicate_effect_steps": replay.duplicate_effect_steps,
                "wasted": {"calls": replay.wasted_calls, "tokens": replay.wasted_tokens},
            }
        )

    def unreadable(self, run: UnreadableRun) -> str:
        """The object of a run that cannot be read: the same shape, empty, and `error`."""
        return _line(
            {
                "id": run.id,
                "error": run.error,
                "steps": 0,
                "findings": [],
                "first_step": None,
                "stopped_at": None,
                "redundant_steps": [],
                "duplicate_effect_steps": [],
                "wasted": {"calls": 0, "tokens": None},
            }
        )

    def end(self) -> str:
        """Nothing: every line is a run."""
        return ""


class Text:
    """A paragraph for each run in which something was found, and one line of totals."""

    def __init__(self) -> None:
        self._runs = self._steps = self._found = self._warned = self._stopped = 0
        self._redundant = self._duplicates = self._unreadable = 0

    def run(self, replay: Replay) -> str:
        """The paragraph of a run; empty where nothing was found."""
        self._runs += 1
        self._steps += replay.steps
        self._found += bool(replay.findings)
        self._warned += replay.has_warning
        self._stopped += replay.stopped_at is not None
        self._redundant += len(replay.redundant_steps)
        self._duplicates += len(replay.duplicate_effect_steps)
        if not replay.findings:
            return ""
        lines = [f"{replay.id}: {_counted(replay.steps, 'step')}{_verdict(replay)}"]
        lines += [_row(one) for one in replay.findings]
        return "\n".join(lines) + "\n"

    def unreadable(self, run: UnreadableRun) -> str:
        """Nothing on stdout: what cannot be read is told on stderr."""
        self._unreadable += 1
        return ""

    def end(self) -> str:
        """The line of totals."""
        parts = [
            f"{_counted(self._warned, 'run')} with a warning",
            f"{self._stopped:,} that would have been stopped or refused a call",
            f"{_counted(self._redundant, 'redundant call')}",
            f"{_counted(self._duplicates, 'duplicate effect')}",
        ]
        if self._unreadable:
            parts.append(f"{self._unreadable:,} that could not be read")
        return f"{_counted(self._runs, 'run')}, {_counted(self._steps, 'step')}: {', '.join(parts)}\n"


OUTPUTS: dict[str, Callable[[], ScanOutput]] = {"text": Text, "jsonl": JsonLines}


class ProgressBar:
    """How much of the input is read, on stderr; shows nothing where that is no terminal.

    Args:
        total: Size of the input, bytes on disk.
    """

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("reading"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}% {task.fields[runs]:,} runs"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=False,
        )
        self._task = self._bar.add_task("", total=total, runs=0)
        self._shares_terminal = console.is_terminal and sys.stdout.isatty()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def at(self, done: int, runs: int) -> None:
        """Show that `done` bytes and `runs` runs are read."""
        self._bar.update(self._task, completed=done, runs=runs)

    def write(self, text: str, *, err: bool = False) -> None:
        """Write a result, not into the bar."""
        if not text:
            return
        in_the_way = not self._bar.disable and (err or self._shares_terminal)
        if in_the_way:
            self._bar.stop()
        click.echo(text, nl=False, err=err)
        if in_the_way:
            self._bar.start()


def _line(values: dict[str, object]) -> str:
    return json.dumps(values) + "\n"


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "step": finding.step,
        "check": str(finding.check),
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "action": str(finding.action),
        "agent": finding.agent,
        "tool": finding.tool,
        "evidence": finding.evidence,
        "message": finding.message or finding.explanation,
    }


def _verdict(replay: Replay) -> str:
    parts = []
    if replay.first_step is not None:
        parts.append(f"first warning at step {replay.first_step}")
    if replay.stopped_at is not None:
        parts.append(f"refused from step {replay.stopped_at} on")
    if replay.redundant_steps:
        parts.append(f"redundant: {_steps(replay.redundant_steps)}")
    return "".join(f", {part}" for part in parts)


def _row(finding: Finding) -> str:
    where = f"{finding.agent}: {finding.tool}" if finding.tool else finding.agent
    why = finding.explanation or finding.message
    return f"  {finding.step:>5}  {finding.severity:<5}  {finding.kind:<9}  {finding.action!s:<5}  {where}: {why}"


_SHOWN_STEPS = 12


def _steps(steps: Iterable[int]) -> str:
    shown = [str(step) for step in steps]
    more = len(shown) - _SHOWN_STEPS
    return ", ".join(shown[:_SHOWN_STEPS]) + (f" and {more} more" if more > 0 else "")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
