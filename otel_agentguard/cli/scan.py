"""`otel-agentguard scan`: what the guard would have seen in recorded runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from otel_agentguard.checks.registry import default_checks
from otel_agentguard.cli.output import OUTPUTS, ProgressBar, ScanOutput
from otel_agentguard.config import Settings
from otel_agentguard.errors import ReadError
from otel_agentguard.loading import load, with_values
from otel_agentguard.readers.replay import Replayer
from otel_agentguard.readers.runlog import UnreadableRun, find_files, read_file

_CLEAN, _FOUND, _UNREADABLE = 0, 1, 2


@click.command("scan", short_help="Replay recorded runs and say what would have been caught.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--format", "output", type=click.Choice(list(OUTPUTS)), default="text", show_default=True)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, such as loop.same.hint=4; may be given several times.",
)
def command(paths: tuple[Path, ...], output: str, assignments: tuple[str, ...]) -> int:
    """Replay recorded runs through the engine: what would have been caught, and at which step.

    PATH is a run log (JSON Lines, also .gz) or a directory of them. Exit code: 0 when nothing of
    severity warn or above was found, 1 when something was, 2 when something could not be read.
    """
    settings = with_values(load(), _values(assignments))
    try:
        files = [file for path in paths for file in find_files(path)]
    except ReadError as exc:
        raise click.UsageError(str(exc)) from exc
    return _Scan(settings, OUTPUTS[output]()).of(files)


def _values(assignments: Iterable[str]) -> Mapping[str, str]:
    values = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set takes KEY=VALUE, such as loop.same.hint=4, not {assignment!r}")
        values[key.strip()] = value.strip()
    return values


class _Scan:
    def __init__(self, settings: Settings, output: ScanOutput) -> None:
        self._settings = settings
        self._output = output
        self._unknown: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._replayer = Replayer(default_checks(settings), settings, on_failure=self._failed)
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
        for run in read_file(file, settings=self._settings, unknown=self._unknown):
            self._runs += 1
            if isinstance(run, UnreadableRun):
                self._code = _UNREADABLE
                bar.write(self._output.unreadable(run))
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
        if counted:
            click.echo(f"{what}: {', '.join(f'{name} ({n:,})' for name, n in sorted(counted.items()))}", err=True)
