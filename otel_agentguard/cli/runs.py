"""`otel-agentguard runs`: stopped runs, and how their stop is lifted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from otel_agentguard.cli.stores import existing
from otel_agentguard.cli.tables import print_rows, utc
from otel_agentguard.errors import ConfigError
from otel_agentguard.loading import load
from otel_agentguard.notes import StopMark
from otel_agentguard.protocols import Store
from otel_agentguard.stores.notes import open_notes

_NOT_FOUND = 1
_MOST = 1000

_STORE = click.option("--store", help="URL of the store; AGENTGUARD_STORE or agentguard.toml where it is not given.")


@click.group("runs", short_help="Look at stopped runs and lift their stops.")
def command() -> None:
    """Look at stopped runs and lift their stops."""


@command.command("ls", short_help="List the runs that are stopped, the latest first.")
@_STORE
@click.option("--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, help="Most that are listed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def ls(store: str | None, limit: int, as_json: bool) -> int:
    """List the runs that were stopped and not released since, the latest first.

    One line each. Where the output is no terminal, the values stand with tabs between them and without a head: run,
    conversation, time of the stop, kind, why.
    """
    with _notes(store) as (notes, namespace):
        marks = notes.stops(namespace, limit=limit)
    if as_json:
        for mark in marks:
            click.echo(json.dumps(_plain(mark)))
    elif marks:
        columns = ("run", "conversation", "stopped", "kind", "why")
        print_rows(columns, [_row(mark) for mark in marks])
    else:
        click.echo("no run is stopped", err=True)
    return 0


@command.command("release")
@click.argument("run_id")
@_STORE
def release(run_id: str, store: str | None) -> int:
    """Lift the stop of a run, so that it may be entered again."""
    with _notes(store) as (notes, namespace):
        lifted = notes.release_stop(namespace, run_id)
    if not lifted:
        click.echo(f"no stop of run {run_id!r} is known; see: otel-agentguard runs ls", err=True)
        return _NOT_FOUND
    click.echo(f"run {run_id!r} may go on", err=True)
    return 0


@contextmanager
def _notes(store: str | None) -> Iterator[tuple[Store, str]]:
    settings = load()
    url = store or settings.store
    if url.startswith("memory:"):
        raise ConfigError(
            "memory:// keeps the marks of stopped runs in their process; lift them there with guard.release(run_id), "
            "or name another store: --store sqlite:///agentguard.db"
        )
    with closing(open_notes(existing(url))) as notes:
        yield notes, settings.namespace


def _plain(mark: StopMark) -> dict[str, object]:
    return {
        "run_id": mark.run_id,
        "conversation": mark.conversation,
        "stopped": utc(mark.stopped_s),
        "kind": mark.finding.kind.value,
        "why": mark.finding.explanation,
        "steps": list(mark.finding.evidence),
    }


def _row(mark: StopMark) -> tuple[str, ...]:
    finding = mark.finding
    return mark.run_id, mark.conversation or "", utc(mark.stopped_s), finding.kind.value, finding.explanation
