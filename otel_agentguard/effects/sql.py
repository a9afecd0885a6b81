# ruff: noqa: S608  (every text below is made of constants; what callers give goes in as parameters)
"""The ledger's tables and statements, for the SQL databases that keep one.

The statements are made from the table of moves once more: a `Change` is one `UPDATE` whose `WHERE` names
key, state, attempt and owner.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_agentguard.effects.ledger import SETTLED, AttemptRecord, ClaimRequest, EffectRecord, State
from otel_agentguard.effects.machine import Change, MachineLedger

SCHEMA_VERSION = 1
SCHEMA_LOCK = 0x6167_7561_7264
"""Number of the PostgreSQL advisory lock under which the tables are made."""

Parameters = tuple[object, ...]
Statement = tuple[str, Parameters]

_COLUMNS = (
    "key, effect, intent, repeat, arguments, step, turn, tool, run_id, state, attempt, owner, result, error, "
    "renewed, maybe_duplicates, confirmed_duplicates, created_s, started_s, updated_s"
)
_ATTEMPT_COLUMNS = "key, attempt, owner, outcome, started_s, ended_s"
_SETTLED = ", ".join(f"'{state}'" for state in sorted(SETTLED))
_IS_UNKNOWN = f"state = '{State.UNKNOWN}'"

UNSETTLED_INDEX = "agentguard_effects_unsettled"
"""Holds the unknown effects alone, so that they are counted without a look at the others."""
UNSETTLED = f"SELECT tool, count(*) FROM agentguard_effects WHERE {_IS_UNKNOWN} GROUP BY tool"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between databases.

    Attributes:
        mark: How a parameter is written.
        now: The database's clock, seconds since the epoch.
        blob: The type of bytes.
        real: The type of seconds.
    """

    mark: str
    now: str
    blob: str
    real: str


SQLITE = Dialect("?", "((julianday('now') - 2440587.5) * 86400.0)", "BLOB", "REAL")
POSTGRES = Dialect("%s", "extract(epoch from statement_timestamp())::float8", "BYTEA", "DOUBLE PRECISION")


def schema(dialect: Dialect) -> tuple[str, ...]:
    """The statements that make the tables; each does nothing where its table is there."""
    return (
        f"""CREATE TABLE IF NOT EXISTS agentguard_effects (
            key TEXT PRIMARY KEY, effect TEXT NOT NULL, intent INTEGER NOT NULL, repeat INTEGER NOT NULL,
            arguments TEXT NOT NULL, step TEXT NOT NULL, turn INTEGER NOT NULL, tool TEXT NOT NULL,
            run_id TEXT NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL, owner TEXT NOT NULL,
            result {dialect.blob}, error TEXT, renewed INTEGER NOT NULL DEFAULT 0,
            maybe_duplicates INTEGER NOT NULL DEFAULT 0, confirmed_duplicates INTEGER NOT NULL DEFAULT 0,
            created_s {dialect.real} NOT NULL, started_s {dialect.real} NOT NULL, updated_s {dialect.real} NOT NULL)""",
        "CREATE INDEX IF NOT EXISTS agentguard_effects_by_effect ON agentguard_effects (effect)",
        f"CREATE INDEX IF NOT EXISTS {UNSETTLED_INDEX} ON agentguard_effects (tool) WHERE {_IS_UNKNOWN}",
        f"""CREATE TABLE IF NOT EXISTS agentguard_attempts (
            key TEXT NOT NULL, attempt INTEGER NOT NULL, owner TEXT NOT NULL, outcome TEXT NOT NULL,
            started_s {dialect.real} NOT NULL, ended_s {dialect.real} NOT NULL, PRIMARY KEY (key, attempt))""",
        "CREATE TABLE IF NOT EXISTS agentguard_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL)",
        f"INSERT INTO agentguard_schema (part, version) VALUES ('ledger', {SCHEMA_VERSION}) ON CONFLICT DO NOTHING",
    )


VERSION = "SELECT version FROM agentguard_schema WHERE part = 'ledger'"


class Statements:
    """Every statement of the ledger in one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._mark = dialect.mark
        self._now = dialect.now
        mark, now = dialect.mark, dialect.now
        values = ", ".join([mark] * 12)
        self._create = (
            f"INSERT INTO agentguard_effects (key, effect, intent, repeat, arguments, step, turn, tool, run_id, "
            f"state, attempt, owner, created_s, started_s, updated_s) VALUES ({values}, {now}, {now}, {now}) "
            "ON CONFLICT (key) DO NOTHING RETURNING created_s"
        )
        self._get = f"SELECT {_COLUMNS} FROM agentguard_effects WHERE key = {mark}"
        self._history = f"SELECT {_COLUMNS} FROM agentguard_effects WHERE effect = {mark} ORDER BY intent, repeat"
        self._attempts = f"SELECT {_ATTEMPT_COLUMNS} FROM agentguard_attempts WHERE key = {mark} ORDER BY attempt"
        self._settle = f"UPDATE agentguard_effects SET {self._written()}"
        self._take = (
            f"UPDATE agentguard_effects SET {self._written()}, attempt = attempt + 1, owner = {mark}, "
            f"run_id = {mark}, turn = {mark}, step = {mark}, started_s = {now}"
        )

    def _written(self) -> str:
        m = self._mark
        return (
            f"state = {m}, maybe_duplicates = maybe_duplicates + {m}, result = {m}, error = {m}, "
            f"updated_s = {self._now}"
        )

    def create(self, request: ClaimRequest, owner: str) -> Statement:
        """Write a first attempt; gives its time, or nothing where there is a record."""
        return self._create, (
            request.key,
            request.effect,
            request.intent,
            request.repeat,
            request.arguments,
            request.step,
            request.turn,
            request.tool,
            request.run_id,
            State.STARTED.value,
            1,
            owner,
        )

    def get(self, key: str) -> Statement:
        """The record of one key."""
        return self._get, (key,)

    def history(self, effect: str) -> Statement:
        """The records of one effect key."""
        return self._history, (effect,)

    def attempts(self, key: str) -> Statement:
        """The attempts of one record that are over."""
        return self._attempts, (key,)

    def _matching(self, change: Change) -> Statement:
        m = self._mark
        states = ", ".join([m] * len(change.sources))
        where = f" WHERE key = {m} AND attempt = {m} AND owner = {m} AND state IN ({states})"
        return where, (
            change.seen.key,
            change.seen.attempt,
            change.seen.owner,
            *(state.value for state in change.sources),
        )

    def update(self, change: Change) -> Statement:
        """Apply a change; gives its time and the counts after it, or nothing where it did not apply."""
        where, matching = self._matching(change)
        values: Parameters = (change.target.value, change.counted, change.result, change.error)
        head = self._settle
        if change.next is not None:
            head = self._take
            values += (change.next.owner, change.next.run_id, change.next.turn, change.next.step)
        return f"{head}{where} RETURNING updated_s, maybe_duplicates, confirmed_duplicates", values + matching

    def archive(self, change: Change) -> Statement:
        """Write the attempt that `change` replaces to the attempts; goes before it, in one transaction."""
        where, matching = self._matching(change)
        outcome = change.next.old_outcome if change.next is not None else "unknown"
        insert = (
            f"INSERT INTO agentguard_attempts ({_ATTEMPT_COLUMNS}) "
            f"SELECT key, attempt, owner, {self._mark}, started_s, {self._now} FROM agentguard_effects"
        )
        return insert + where, (outcome, *matching)

    def late(self, key: str, attempt: int) -> tuple[Statement, Statement]:
        """Mark an attempt as late, and count it if that changed a row."""
        m = self._mark
        mark = (
            f"UPDATE agentguard_attempts SET outcome = 'late' WHERE key = {m} AND attempt = {m} AND outcome <> 'late'"
        )
        count = (
            f"UPDATE agentguard_effects SET confirmed_duplicates = confirmed_duplicates + 1, updated_s = {self._now} "
            f"WHERE key = {m}"
        )
        return (mark, (key, attempt)), (count, (key,))

    def renew(self, key: str) -> Statement:
        """Note that the effect was undone, if it succeeded."""
        text = f"UPDATE agentguard_effects SET renewed = 1 WHERE key = {self._mark} AND state = '{State.SUCCEEDED}'"
        return text, (key,)

    def list(self, *, state: State | None, tool: str | None, run_id: str | None, limit: int) -> Statement:
        """Records, the last changed first."""
        given = {"state": state.value if state is not None else None, "tool": tool, "run_id": run_id}
        chosen = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(f"{name} = {self._mark}" for name in chosen)
        text = (
            f"SELECT {_COLUMNS} FROM agentguard_effects{' WHERE ' + where if where else ''} "
            f"ORDER BY updated_s DESC, key LIMIT {self._mark}"
        )
        return text, (*chosen.values(), limit)

    def gc(self, older_than_s: float) -> tuple[Statement, Statement]:
        """Drop effects that are settled throughout, then the attempts that belong to no record."""
        effects = (
            f"DELETE FROM agentguard_effects WHERE state IN ({_SETTLED}) AND effect IN ("
            "SELECT effect FROM agentguard_effects GROUP BY effect "
            f"HAVING max(updated_s) <= {self._now} - {self._mark} "
            f"AND sum(CASE WHEN state IN ({_SETTLED}) THEN 0 ELSE 1 END) = 0)"
        )
        attempts = (
            "DELETE FROM agentguard_attempts WHERE NOT EXISTS "
            "(SELECT 1 FROM agentguard_effects e WHERE e.key = agentguard_attempts.key)"
        )
        return (effects, (older_than_s,)), (attempts, ())


class SqlLedger(MachineLedger):
    """What ledgers of SQL databases read alike.

    Attributes:
        statements: The statements in the dialect of the database.
    """

    statements: Statements

    @abstractmethod
    def rows(self, statement: Statement) -> Sequence[Sequence[Any]]:
        """Execute a statement.

        Raises:
            StoreError: The database refused.
        """

    def get(self, key: str) -> EffectRecord | None:
        """See `Ledger`."""
        rows = self.rows(self.statements.get(key))
        return record_of(rows[0]) if rows else None

    def history(self, effect: str) -> Sequence[EffectRecord]:
        """See `Ledger`."""
        return [record_of(row) for row in self.rows(self.statements.history(effect))]

    def attempts(self, key: str) -> Sequence[AttemptRecord]:
        """See `Ledger`."""
        return [attempt_of(row) for row in self.rows(self.statements.attempts(key))]

    def list(
        self, *, state: State | None = None, tool: str | None = None, run_id: str | None = None, limit: int = 100
    ) -> Sequence[EffectRecord]:
        """See `Ledger`."""
        rows = self.rows(self.statements.list(state=state, tool=tool, run_id=run_id, limit=limit))
        return [record_of(row) for row in rows]

    def unsettled(self) -> Mapping[str, int]:
        """See `Ledger`."""
        return {str(tool): int(count) for tool, count in self.rows((UNSETTLED, ()))}


def changed(change: Change, rows: Sequence[Sequence[Any]]) -> EffectRecord | None:
    """Read what `update` gave."""
    if not rows:
        return None
    now_s, maybe, confirmed = rows[0]
    return change.applied(now_s=now_s, maybe_duplicates=maybe, confirmed_duplicates=confirmed)


def record_of(row: Sequence[Any]) -> EffectRecord:
    """Read one row of `agentguard_effects`."""
    return EffectRecord(
        key=row[0],
        effect=row[1],
        intent=row[2],
        repeat=row[3],
        arguments=row[4],
        step=row[5],
        turn=row[6],
        tool=row[7],
        run_id=row[8],
        state=State(row[9]),
        attempt=row[10],
        owner=row[11],
        result=bytes(row[12]) if row[12] is not None else None,
        error=row[13],
        renewed=bool(row[14]),
        maybe_duplicates=row[15],
        confirmed_duplicates=row[16],
        created_s=row[17],
        started_s=row[18],
        updated_s=row[19],
    )


def attempt_of(row: Sequence[Any]) -> AttemptRecord:
    """Read one row of `agentguard_attempts`."""
    return AttemptRecord(key=row[0], attempt=row[1], owner=row[2], outcome=row[3], started_s=row[4], ended_s=row[5])
