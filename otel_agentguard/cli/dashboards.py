"""`otel-agentguard dashboards`: the boards, rules and runbook that ship in the package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import click

from otel_agentguard.errors import ConfigError

_SHIPPED = frozenset({".json", ".yml", ".yaml", ".md"})
_RUNBOOK = "runbook.md#"


@click.group("dashboards", short_help="Write out the Grafana boards, Prometheus rules and the runbook.")
def command() -> None:
    """Write out the Grafana boards, Prometheus rules and the runbook that ship in the package."""


@command.command("export")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--force", is_flag=True, help="Overwrite files that were changed.")
@click.option("--runbook", metavar="URL", help="Where the runbook is read; alerts then link to its headings there.")
def export(directory: Path, *, force: bool, runbook: str | None) -> None:
    """Write the boards, rules and runbook to DIR.

    Prints the files that it wrote. Where one is there already and differs, nothing is written, unless
    --force says so.
    """
    written = write(shipped(runbook=runbook), directory, force=force)
    for path in written:
        click.echo(path)
    click.echo(f"{len(written)} files written, the others were there already" if written else "nothing to do", err=True)


def shipped(*, runbook: str | None = None) -> Mapping[PurePosixPath, str]:
    """The files that ship in the package, by their path within the folder that they are written to.

    Args:
        runbook: URL of the runbook, put into the alerts; None leaves them with its file name.

    Raises:
        ConfigError: They are not in this installation.
    """
    folder: Traversable = files("otel_agentguard") / "dashboards_data"
    if not folder.is_dir():
        # A source tree has them beside the package; they get into it when a wheel is built.
        folder = Path(__file__).parents[2] / "dashboards"
    if not folder.is_dir():
        raise ConfigError("this installation comes without dashboards; install the wheel of otel-agentguard")
    found = dict(_texts(folder, PurePosixPath()))
    if runbook is None:
        return found
    link = f"{runbook.split('#')[0]}#"
    return {path: text.replace(_RUNBOOK, link) if path.suffix == ".yml" else text for path, text in found.items()}


def write(texts: Mapping[PurePosixPath, str], directory: Path, *, force: bool) -> list[Path]:
    """Write files that are not there yet or, with `force`, differ.

    Returns:
        The files that were written.

    Raises:
        ConfigError: A file differs and `force` is not given, and then none is written; or it cannot be written.
    """
    try:
        there = {path: _read(directory / path) for path in texts}
        changed = [str(directory / path) for path, text in there.items() if text is not None and text != texts[path]]
        if changed and not force:
            raise ConfigError(f"changed since they were written: {', '.join(changed)}; --force overwrites them")
        due = [path for path, text in texts.items() if there[path] != text]
        for path in due:
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(texts[path], encoding="utf-8", newline="\n")
    except OSError as exc:
        raise ConfigError(f"cannot write to {directory}: {exc}") from exc
    return [directory / path for path in due]


def _texts(folder: Traversable, at: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            yield from _texts(entry, at / entry.name)
        elif PurePosixPath(entry.name).suffix in _SHIPPED:
            yield at / entry.name, entry.read_text(encoding="utf-8")


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
