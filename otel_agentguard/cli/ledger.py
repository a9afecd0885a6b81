"""`otel-agentguard ledger`: looks at recorded side effects, and settles those whose outcome nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

import click

from otel_agentguard.cli.stores import existing
from otel_agentguard.cli.tables import print_fields, print_rows, utc
from otel_agentguard.effects.ledger import AttemptRecord, EffectRecord, Ledger, State
from otel_agentguard.effects.values import encode
from otel_agentguard.errors import ConfigError
from otel_agentguard.loading import load
from otel_agentguard.stores import open_ledger

_NOT_DONE = 1
_DAY_S = 86_400.0
_MOST = 1000
_APPLIED = "applied"
_NOT_APPLIED = "not-applied"

_STORE = click.option("--store", help="URL of the store; AGENTGUARD_STORE or agentguard.toml where it is not given.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


@click.group("ledger", short_help="Look at side effects and settle those whose outcome is unknown.")
def command() -> None:
    """Look at recorded side effects and settle those whose outcome nobody knows."""


@command.command("ls", short_help="List side effects, the last changed first.")
@_STORE
@click.option(
    "--state",
    type=click.Choice([state.value for state in State], case_sensitive=False),
    help="Only effects in this state; unknown ones wait for a person.",
)
@click.option("--tool", help="Only effects of this tool.")
@click.option("--run", "run_id", help="Only effects of this run.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, help="Most that are listed.")
@_JSON
def ls(store: str | None, state: str | None, tool: str | None, run_id: str | None, limit: int, as_json: bool) -> int:
    """List side effects, the last changed first.

    One line each, keys whole. Where the output is no terminal, the values stand with tabs between them and without a
    head: key, tool, state, run, attempt, possible duplicates, confirmed duplicates, last change.
    """
    with _ledger(store) as ledger:
        wanted = None if state is None else State(state)
        records = ledger.list(state=wanted, tool=tool, run_id=run_id, limit=limit)
    if as_json:
        for record in records:
            click.echo(json.dumps(_plain(record)))
    elif records:
        print_rows(tuple(_COLUMNS), [[shown(record) for shown in _COLUMNS.values()] for record in records])
    else:
        narrowed = state or tool or run_id
        click.echo("no such side effect is recorded" if narrowed else "no side effect is recorded", err=True)
    return 0


@command.command("show")
@click.argument("key")
@_STORE
@_JSON
def show(key: str, store: str | None, as_json: bool) -> int:
    """Show one side effect and its attempts."""
    with _ledger(store) as ledger:
        record = _record(ledger, key)
        attempts = ledger.attempts(record.key)
        owner = ledger.liveness(record).value
    shown = {**_plain(record), "owner_is": owner}
    if as_json:
        click.echo(json.dumps({**shown, "attempts": [asdict(attempt) for attempt in attempts]}))
        return 0
    print_fields({**_for_people(shown), **{f"attempt {one.attempt}": _told(one) for one in attempts}})
    return 0


@command.command("resolve")
@click.argument("key")
@click.argument("outcome", type=click.Choice([_APPLIED, _NOT_APPLIED]))
@_STORE
@click.option("--result", help="What the call returned, as JSON; for an effect that happened.")
@click.option("--force", is_flag=True, help="Also while its owner seems to be alive.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resolve(key: str, outcome: str, store: str | None, result: str | None, force: bool, yes: bool) -> int:
    """Say whether a side effect happened, once you have found out.

    One that happened is replayed from then on; one that did not may be made again.
    """
    applied = outcome == _APPLIED
    kept = None if result is None else encode(_parsed(result, applied=applied))
    with _ledger(store) as ledger:
        record = _record(ledger, key)
        if record.state is not State.UNKNOWN and not (force and record.state is State.STARTED):
            click.echo(f"{record.tool} is {record.state.value}: there is nothing to settle", err=True)
            return _NOT_DONE
        question = (
            f"{record.tool} of run {record.run_id}: record that it {'happened' if applied else 'did not happen'}?"
        )
        if not yes and not click.confirm(question, err=True):
            return _NOT_DONE
        if not ledger.resolve(record, applied=applied, result=kept, force=force):
            click.echo("it has changed since; look at it again", err=True)
            return _NOT_DONE
    click.echo(f"{record.tool}: recorded as {outcome}", err=True)
    return 0


@command.command("gc", short_help="Drop settled side effects that are old.")
@_STORE
@click.option(
    "--older-than-days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Days since the last change; what is dropped may be done again.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def gc(store: str | None, older_than_days: float, yes: bool) -> int:
    """Drop settled side effects that have not changed for so many days; what is not settled stays."""
    if not yes and not click.confirm(f"Forget settled effects older than {older_than_days:g} days?", err=True):
        return _NOT_DONE
    with _ledger(store) as ledger:
        dropped = ledger.gc(older_than_days * _DAY_S)
    click.echo(f"dropped {dropped}", err=True)
    return 0


@contextmanager
def _ledger(store: str | None) -> Iterator[Ledger]:
    url = store or load().store
    if url.startswith("memory:"):
        raise ConfigError(
            "memory:// lives and dies with its process; name another store: --store sqlite:///agentguard.db"
        )
    with closing(open_ledger(existing(url))) as ledger:
        yield ledger


def _record(ledger: Ledger, key: str) -> EffectRecord:
    record = ledger.get(key)
    if record is None:
        raise click.UsageError(f"no side effect with the key {key!r}; see: otel-agentguard ledger ls")
    return record


def _parsed(result: str, *, applied: bool) -> Any:
    if not applied:
        raise click.UsageError("--result goes with an effect that happened: resolve KEY applied --result ...")
    try:
        return json.loads(result)
    except ValueError as exc:
        raise click.UsageError(f"--result {result!r} is no JSON: {exc}") from exc


def _plain(record: EffectRecord) -> Mapping[str, object]:
    plain = asdict(record)
    kept = plain.pop("result")
    return {**plain, "state": record.state.value, "result": None if kept is None else bytes(kept).decode()}


def _for_people(shown: Mapping[str, object]) -> dict[str, str]:
    """Fields as text; times by their name without the unit."""
    return {
        name.removesuffix("_s"): utc(value) if isinstance(value, float) else "" if value is None else str(value)
        for name, value in shown.items()
    }


def _told(attempt: AttemptRecord) -> str:
    return f"{attempt.outcome}, {utc(attempt.started_s)} to {utc(attempt.ended_s)}, by {attempt.owner}"


_COLUMNS: dict[str, Callable[[EffectRecord], str]] = {
    "key": lambda record: record.key,
    "tool": lambda record: record.tool,
    "state": lambda record: record.state.value,
    "run": lambda record: record.run_id,
    "attempt": lambda record: str(record.attempt),
    "maybe twice": lambda record: str(record.maybe_duplicates),
    "twice": lambda record: str(record.confirmed_duplicates),
    "changed": lambda record: utc(record.updated_s),
}
