"""`otel-agentguard scan`: what the guard would have seen in recorded runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from otel_agentguard.checks.registry import default_checks
from otel_agentguard.cli.output import OUTPUTS, ProgressBar, ScanOutput
from otel_agentguard.cli.sweep import SWEEP_OUTPUTS, Outcome, Sweep, parse_sweep
from otel_agentguard.config import Settings
from otel_agentguard.embedders import open_embedder
from otel_agentguard.errors import ReadError
from otel_agentguard.loading import load, with_values
from otel_agentguard.protocols import Embedder
from otel_agentguard.readers.replay import Replay, Replayer
from otel_agentguard.readers.runlog import UnreadableRun, find_files, read_file

_CLEAN, _FOUND, _UNREADABLE = 0, 1, 2


@click.command("scan", short_help="Replay recorded runs and say what would have been caught.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "output",
    type=click.Choice(list(OUTPUTS)),
    default="text",
    show_default=True,
    help="Text for people, or one JSON object a line.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, such as loop.same.hint=4; may be given several times.",
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=A,B,C",
    help="Try values of a setting, such as loop.same.hint=3,4,5, and say what each catches and costs.",
)
def command(paths: tuple[Path, ...], output: str, assignments: tuple[str, ...], sweeps: tuple[str, ...]) -> int:
    """Replay recorded runs through the engine: what would have been caught, and at which step.

    PATH is a run log (JSON Lines, also .gz) or a directory of them. Exit code: 0 when nothing of
    severity warn or above was found, 1 when something was, 2 when something could not be read or a
    file holds no run.
    """
    settings = with_values(load(), _values(assignments))
    tried = [parse_sweep(given, settings) for given in sweeps]
    try:
        files = [file for path in paths for file in find_files(path)]
    except ReadError as exc:
        raise click.UsageError(str(exc)) from exc
    embedder = open_embedder(settings.embedder)
    if not tried:
        return _Scan(settings, OUTPUTS[output](), embedder).of(files)
    return max(_swept(sweep, files, output, embedder, aloud=place == 0) for place, sweep in enumerate(tried))


def _values(assignments: Iterable[str]) -> Mapping[str, str]:
    values = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set takes KEY=VALUE, such as loop.same.hint=4, not {assignment!r}")
        values[key.strip()] = value.strip()
    return values


def _swept(sweep: Sweep, files: list[Path], output: str, embedder: Embedder | None, *, aloud: bool) -> int:
    """Scan once for each value; the exit code."""
    code = _CLEAN
    outcomes = []
    for place, one in enumerate(sweep.tries):
        outcome = Outcome(one.value, one.now)
        counting = _Counting(outcome)
        scan = _Scan(one.settings, counting, embedder, aloud=aloud and place == 0)
        code = max(code, scan.of(files))
        outcomes.append(outcome)
    for line in SWEEP_OUTPUTS[output](sweep, outcomes):
        click.echo(line)
    return code


class _Counting:
    """A scan that is written as one line of a table."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def run(self, replay: Replay) -> str:
        self._outcome.add(replay)
        return ""

    def unreadable(self, run: UnreadableRun) -> str:
        return ""

    def end(self) -> str:
        return ""


class _Scan:
    def __init__(
        self, settings: Settings, output: ScanOutput, embedder: Embedder | None, *, aloud: bool = True
    ) -> None:
        self._aloud = aloud
        self._settings = settings
        self._output = output
        self._unknown: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._replayer = Replayer(default_checks(settings, embedder=embedder), settings, on_failure=self._failed)
        self._runs = 0
        self._code = _CLEAN

    def of(self, files: list[Path]) -> int:
        """Scan the files in order; the exit code."""
        sizes = [file.stat().st_size for file in files]
        with ProgressBar(sum(sizes)) as bar:
            done = 0
            for file, size in zip(files, sizes, strict=True):
                self._scan(file, bar, done)
                done += size
                bar.at(done, self._runs)
        click.echo(self._output.end(), nl=False)
        self._tell("read as unknown", self._unknown)
        self._tell("failed and was left out", self._failures)
        return self._code

    def _scan(self, file: Path, bar: ProgressBar, done: int) -> None:
        before = self._runs
        self._read(file, bar, done)
        if self._runs == before:
            self._code = _UNREADABLE
            if self._aloud:
                bar.write(f"{file}: holds no run\n", err=True)

    def _read(self, file: Path, bar: ProgressBar, done: int) -> None:
        for run in read_file(file, settings=self._settings, unknown=self._unknown):
            self._runs += 1
            if isinstance(run, UnreadableRun):
                self._code = _UNREADABLE
                bar.write(self._output.unreadable(run))
                if self._aloud:
                    bar.write(f"{run.error}\n", err=True)
            else:
                replay = self._replayer.replay(run)
                if replay.has_warning:
                    self._code = max(self._code, _FOUND)
                bar.write(self._output.run(replay))
            bar.at(done + run.offset, self._runs)

    def _failed(self, where: str) -> None:
        self._failures[where] += 1

    def _tell(self, what: str, counted: Counter[str]) -> None:
        if counted and self._aloud:
            click.echo(f"{what}: {', '.join(f'{name} ({n:,})' for name, n in sorted(counted.items()))}", err=True)
