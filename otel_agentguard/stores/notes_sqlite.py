"""Notes in a SQLite file, which may be that of the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from otel_agentguard.effects.sql import SQLITE, Statement
from otel_agentguard.notes import DEFAULT_RETENTION, Retention
from otel_agentguard.stores.notes_sql import VERSION, VERSION_TABLE, Row, SqlNotes
from otel_agentguard.stores.sqlite import SqliteConnection, path_of


def open_notes(
    url: str,
    *,
    wait_s: float = 1.0,
    now_s: Callable[[], float] = time.time,
    retention: Retention = DEFAULT_RETENTION,
) -> SqliteNotes:
    """Open the notes in a SQLite file, which is made when missing.

    Args:
        url: `sqlite:///relative.db` or `sqlite:////absolute.db`.
        wait_s: How long a write waits for that of another process, seconds.
        now_s: Wall clock, seconds since the epoch.
        retention: How long notes are kept, and how many.

    Raises:
        ConfigError: The URL names no file, or the SQLite library is too old.
        StoreError: The file cannot be opened.
    """
    connection = SqliteConnection(path_of(url), synchronous="NORMAL", busy_timeout_s=wait_s)
    return SqliteNotes(connection, now_s=now_s, retention=retention)


class SqliteNotes(SqlNotes):
    """Notes in a SQLite file, for all processes of one machine. See `SqlNotes`.

    Raises:
        StoreError: The file cannot be opened, or a newer version made its tables.
    """

    def __init__(
        self,
        connection: SqliteConnection,
        *,
        now_s: Callable[[], float] = time.time,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        super().__init__(SQLITE, now_s=now_s, retention=retention)
        self._connection = connection
        try:
            self._prepare()
        except BaseException:
            connection.close()
            raise

    def _prepare(self) -> None:
        with self._connection.writing() as connection:
            connection.execute(VERSION_TABLE)
            row = connection.execute(VERSION).fetchone()
            for text, values in self._upgrade(None if row is None else row[0]):
                connection.execute(text, values)

    @property
    def url(self) -> str:
        """See `Store`."""
        return self._connection.url

    def _fetch(self, statement: Statement) -> Sequence[Row]:
        with self._connection.use() as connection:
            return connection.execute(*statement).fetchall()

    def _write(self, statements: Sequence[Statement]) -> list[int]:
        with self._connection.writing() as connection:
            return [connection.execute(*statement).rowcount for statement in statements]

    def close(self) -> None:
        """See `Store`."""
        self._connection.close()
