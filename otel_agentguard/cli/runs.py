"""`otel-agentguard runs`: stopped runs, and how their stop is lifted."""

from __future__ import annotations

import click

from otel_agentguard.loading import load

_NOT_FOUND = 1


@click.group("runs", short_help="Look at stopped runs and lift their stops.")
def command() -> None:
    """Look at stopped runs and lift their stops."""


@command.command("ls")
def ls() -> int:
    """List the runs that were stopped."""
    _say_where_marks_live()
    return 0


@command.command("release")
@click.argument("run_id")
def release(run_id: str) -> int:
    """Lift the stop of a run."""
    _say_where_marks_live()
    click.echo(f"no stop of run '{run_id}' is known here; in its own process: guard.release({run_id!r})", err=True)
    return _NOT_FOUND


def _say_where_marks_live() -> None:
    store = load().store.partition("://")[0]
    click.echo(f"{store}:// keeps no marks of stopped runs outside of their process: nothing to list", err=True)
