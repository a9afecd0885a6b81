"""Notes in a PostgreSQL database, which may be that of the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from otel_agentguard.effects.sql import POSTGRES, Statement
from otel_agentguard.errors import ConfigError, MissingExtraError
from otel_agentguard.notes import DEFAULT_RETENTION, Retention
from otel_agentguard.stores.notes_sql import VERSION, VERSION_TABLE, Row, SqlNotes
from otel_agentguard.stores.postgres import Connection, PostgresConnection

try:
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as exc:
    raise MissingExtraError("postgres") from exc

_SCHEMA_LOCK = 0x6167_6E6F_7465


def open_notes(
    url: str,
    *,
    wait_s: float = 1.0,
    now_s: Callable[[], float] = time.time,
    retention: Retention = DEFAULT_RETENTION,
) -> PostgresNotes:
    """Open the notes in a PostgreSQL database; its tables are made when missing.

    Args:
        url: `postgresql://...`.
        wait_s: How long a statement may take, seconds, where the URL does not say.
        now_s: Wall clock, seconds since the epoch.
        retention: How long notes are kept, and how many.

    Raises:
        ConfigError: The URL cannot be read.
        StoreError: The server cannot be reached, or refuses.
    """
    try:
        given = conninfo_to_dict(url)
    except Error as exc:
        raise ConfigError(f"not a PostgreSQL URL ({str(exc).strip()})") from exc
    limits = {
        "options": f"-c statement_timeout={max(1, round(wait_s * 1000))}",
        "connect_timeout": str(max(2, round(wait_s))),
        "application_name": "otel-agentguard notes",
    }
    unsaid = {name: value for name, value in limits.items() if name not in given}
    connection = PostgresConnection(make_conninfo(url, **unsaid))
    return PostgresNotes(connection, now_s=now_s, retention=retention)


class PostgresNotes(SqlNotes):
    """Notes in a PostgreSQL database, for several machines. See `SqlNotes`.

    Raises:
        StoreError: The server cannot be reached, or a newer version made the tables.
    """

    def __init__(
        self,
        connection: PostgresConnection,
        *,
        now_s: Callable[[], float] = time.time,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        super().__init__(POSTGRES, now_s=now_s, retention=retention)
        self._connection = connection
        try:
            connection.run(self._prepare)
        except BaseException:
            connection.close()
            raise

    def _prepare(self, connection: Connection) -> None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            found = connection.execute("SELECT to_regclass('agentguard_notes_schema') IS NOT NULL").fetchone()
            if found is None or not found[0]:
                connection.execute(VERSION_TABLE)
            row = connection.execute(VERSION).fetchone()
            for text, values in self._upgrade(None if row is None else row[0]):
                connection.execute(text, values)

    @property
    def url(self) -> str:
        """See `Store`."""
        return self._connection.url

    def _fetch(self, statement: Statement) -> Sequence[Row]:
        text, values = statement
        return self._connection.run(lambda connection: connection.execute(text, values).fetchall())

    def _write(self, statements: Sequence[Statement]) -> list[int]:
        def work(connection: Connection) -> list[int]:
            with connection.transaction():
                return [connection.execute(text, values).rowcount for text, values in statements]

        return self._connection.run(work)

    def close(self) -> None:
        """See `Store`."""
        self._connection.close()
