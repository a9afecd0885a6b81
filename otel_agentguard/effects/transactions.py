"""Exactly once: an effect and its record in one transaction of the caller's database.

The record is written on the caller's own connection, in its transaction, so both are committed or neither.
It lies in the same tables that a store makes; in the database of a store, the two see one another.
"""

from __future__ import annotations

import sqlite3
import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from otel_agentguard.effects.ledger import ClaimRequest, EffectRecord, Liveness
from otel_agentguard.effects.machine import Change, first_record
from otel_agentguard.effects.sql import (
    POSTGRES,
    SCHEMA_LOCK,
    SQLITE,
    SqlLedger,
    Statement,
    Statements,
    changed,
    schema,
)
from otel_agentguard.errors import ConfigError, StoreError


class TransactionLedger(SqlLedger):
    """A ledger on a connection of the caller, in its transaction."""

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction, or a savepoint in the one that is open."""

    @abstractmethod
    def commit(self) -> None:
        """End what `begin` started; an outer transaction stays the caller's to commit.

        Raises:
            StoreError: The database refused, or the tool has ended the transaction itself.
        """

    @abstractmethod
    def rollback(self, error: BaseException) -> None:
        """Undo everything since `begin`."""

    @abstractmethod
    def execute(self, statement: Statement) -> tuple[Sequence[Sequence[Any]], int]:
        """Execute a statement.

        Returns:
            Its rows, and how many it changed.
        """

    def rows(self, statement: Statement) -> Sequence[Sequence[Any]]:
        """See `SqlLedger`."""
        return self.execute(statement)[0]

    @property
    def url(self) -> str:
        """See `Ledger`."""
        return "tx"

    def _create(self, request: ClaimRequest, owner: str) -> EffectRecord:
        rows = self.rows(self.statements.create(request, owner))
        if rows:
            return first_record(request, owner, rows[0][0])
        record = self.get(request.key)
        if record is None:
            raise StoreError("another transaction holds this effect; try again")
        return record

    def _change(self, change: Change) -> EffectRecord | None:
        # Who owns a record of another kind cannot be told from here; its policy decides as for a lapsed one.
        if change.next is not None:
            self.execute(self.statements.archive(change))
        return changed(change, self.rows(self.statements.update(change)))

    def _count_late(self, key: str, attempt: int) -> None:
        mark, count = self.statements.late(key, attempt)
        if self.execute(mark)[1]:
            self.execute(count)

    def _liveness_elsewhere(self, record: EffectRecord) -> Liveness:
        return Liveness.LAPSED

    def renew(self, key: str) -> bool:
        """See `Ledger`."""
        return self.execute(self.statements.renew(key))[1] > 0

    def gc(self, older_than_s: float) -> int:
        """See `Ledger`."""
        effects, attempts = self.statements.gc(older_than_s)
        gone = self.execute(effects)[1]
        self.execute(attempts)
        return gone

    def close(self) -> None:
        """The connection is the caller's."""


class SqliteTransaction(TransactionLedger):
    """On a `sqlite3.Connection`."""

    statements = Statements(SQLITE)

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._outer = False

    def execute(self, statement: Statement) -> tuple[Sequence[Sequence[Any]], int]:
        """See `TransactionLedger`."""
        try:
            cursor = self._connection.cursor()
            cursor.row_factory = None
            cursor.execute(*statement)
            return cursor.fetchall(), cursor.rowcount
        except sqlite3.Error as exc:
            raise StoreError(f"tx: {exc}") from exc

    def begin(self) -> None:
        """See `TransactionLedger`."""
        self._outer = self._connection.in_transaction
        if not self._outer:
            self.execute(("BEGIN IMMEDIATE", ()))
        self.execute(("SAVEPOINT agentguard_effect", ()))
        if not self.rows(("SELECT 1 FROM sqlite_master WHERE name = 'agentguard_schema'", ())):
            for text in schema(SQLITE):
                self.execute((text, ()))

    def commit(self) -> None:
        """See `TransactionLedger`."""
        try:
            self.execute(("RELEASE agentguard_effect", ()))
        except StoreError as exc:
            raise StoreError("tx: the tool ended the transaction itself; leave that to the caller") from exc
        if not self._outer:
            self.execute(("COMMIT", ()))

    def rollback(self, error: BaseException) -> None:
        """See `TransactionLedger`."""
        if not self._connection.in_transaction:
            return
        if self._outer:
            self.execute(("ROLLBACK TO agentguard_effect", ()))
            self.execute(("RELEASE agentguard_effect", ()))
        else:
            self.execute(("ROLLBACK", ()))


class _Cursor(Protocol):
    """The little of a psycopg cursor that is used here."""

    rowcount: int
    description: object

    def execute(self, text: str, values: tuple[object, ...]) -> object: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class PostgresTransaction(TransactionLedger):
    """On a psycopg `Connection`."""

    statements = Statements(POSTGRES)

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        self._psycopg: Any = sys.modules["psycopg"]
        self._block: Any = None

    def execute(self, statement: Statement) -> tuple[Sequence[Sequence[Any]], int]:
        """See `TransactionLedger`."""
        try:
            cursor: _Cursor = self._connection.cursor(row_factory=self._psycopg.rows.tuple_row)
            cursor.execute(*statement)
            return (cursor.fetchall() if cursor.description is not None else []), cursor.rowcount
        except self._psycopg.Error as exc:
            raise StoreError(f"tx: {exc}") from exc

    def begin(self) -> None:
        """See `TransactionLedger`."""
        try:
            self._block = self._connection.transaction()
            self._block.__enter__()
        except self._psycopg.Error as exc:
            raise StoreError(f"tx: {exc}") from exc
        if not self.rows(("SELECT 1 WHERE to_regclass('agentguard_schema') IS NOT NULL", ())):
            self.execute(("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,)))
            for text in schema(POSTGRES):
                self.execute((text, ()))

    def commit(self) -> None:
        """See `TransactionLedger`."""
        try:
            self._block.__exit__(None, None, None)
        except self._psycopg.Error as exc:
            raise StoreError(f"tx: {exc}") from exc

    def rollback(self, error: BaseException) -> None:
        """See `TransactionLedger`."""
        self._block.__exit__(type(error), error, error.__traceback__)


def transaction_on(connection: object) -> TransactionLedger:
    """The ledger on a caller's connection.

    Raises:
        ConfigError: It is of a kind that has no such ledger.
    """
    if isinstance(connection, sqlite3.Connection):
        return SqliteTransaction(connection)
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return PostgresTransaction(connection)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise ConfigError(f"tx= takes a sqlite3.Connection or a psycopg.Connection, not {kind}")
