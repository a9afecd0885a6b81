"""The store in a SQLite file: for all processes of one machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from otel_agentguard.effects.ledger import ClaimRequest, EffectRecord, Liveness
from otel_agentguard.effects.machine import Change, first_record
from otel_agentguard.effects.oslock import locks_in
from otel_agentguard.effects.ownership import Claims, process_of, watch_forks
from otel_agentguard.effects.sql import (
    SCHEMA_VERSION,
    SQLITE,
    VERSION,
    SqlLedger,
    Statement,
    Statements,
    changed,
    schema,
)
from otel_agentguard.errors import ConfigError, StoreError

_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT}


def open_ledger(url: str) -> SqliteLedger:
    """Open the ledger in a SQLite file, which is made when missing.

    Args:
        url: `sqlite:///agentguard.db`; `?busy_timeout_s=5` sets how long a write waits for another one.

    Raises:
        ConfigError: The URL names no file, or the SQLite library is too old.
        StoreError: The file cannot be opened.
    """
    query = dict(parse_qsl(urlsplit(url).query))
    try:
        busy_timeout_s = float(query.pop("busy_timeout_s", "5"))
    except ValueError as exc:
        raise ConfigError(f"busy_timeout_s in {url!r} is no number of seconds") from exc
    if query:
        raise ConfigError(f"{url!r} sets {', '.join(query)}, which is not known; known: busy_timeout_s")
    return SqliteLedger(SqliteConnection(path_of(url), busy_timeout_s=busy_timeout_s))


def path_of(url: str) -> Path:
    """The file that a `sqlite:///` URL names: three slashes for a relative path, four for an absolute one.

    Raises:
        ConfigError: It names none.
    """
    parts = urlsplit(url)
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or path in {"", ":memory:"}:
        raise ConfigError(f"{url!r} names no file: sqlite:///agentguard.db, or memory:// to keep nothing")
    return Path(path)


class SqliteConnection:
    """One connection of this process to a file, for any thread, closed over forks.

    SQLite forbids to carry a connection over a fork: the child would believe that it holds the parent's
    locks, and either could then delete the log of the other. So it is closed before and reopened after.

    Args:
        path: The file; made with access for its owner only.
        synchronous: `FULL` for what must survive a power cut, `NORMAL` for what need not.
        busy_timeout_s: How long a write waits for another one, seconds.
    """

    def __init__(self, path: Path, *, synchronous: str = "FULL", busy_timeout_s: float = 5.0) -> None:
        if sqlite3.sqlite_version_info < (3, 35):
            raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old for a store; 3.35 is the first that fits")
        self.path = path.absolute()
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        watch_forks(self)

    @property
    def url(self) -> str:
        """See `Ledger`."""
        return f"sqlite:///{self.path}"

    @contextlib.contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; each statement is a transaction of its own.

        Raises:
            StoreError: SQLite refused; the message says why.
        """
        with self._lock:
            try:
                yield self._connection or self._open()
            except sqlite3.Error as exc:
                if exc.__dict__.get("sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _PASSING:
                    self.close()
                raise StoreError(f"{self.url}: {exc}") from exc

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection in one write transaction, which is rolled back when the block raises."""
        with self.use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _open(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as exc:
            raise StoreError(f"{self.url}: {exc.strerror}") from exc
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection
        return connection

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()
        self.close()

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`."""
        self._lock.release()


class SqliteLedger(SqlLedger):
    """A ledger in a SQLite file; owners are watched by locks of the operating system.

    The lock files are in a folder beside the database file, `<file>-owners`. A dead owner is seen at once
    and a stopped one is never taken for dead; clocks play no part.

    Args:
        connection: Where the tables are; made when missing.

    Raises:
        StoreError: The file or the lock cannot be had, or a newer version made the tables.
    """

    statements = Statements(SQLITE)

    def __init__(self, connection: SqliteConnection) -> None:
        super().__init__()
        self._connection = connection
        try:
            self._prepare()
        except StoreError:
            connection.close()
            raise
        self._locks = locks_in(connection.path.with_name(connection.path.name + "-owners"))
        self._locks.hold(self.claims.process)
        watch_forks(self)

    def _prepare(self) -> None:
        with self._connection.writing() as connection:
            for statement in schema(SQLITE):
                connection.execute(statement)
            version = connection.execute(VERSION).fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreError(f"{self.url}: made by a newer version (ledger tables {version}); update otel-agentguard")

    @property
    def url(self) -> str:
        """See `Ledger`."""
        return self._connection.url

    def rows(self, statement: Statement) -> Sequence[Sequence[Any]]:
        """See `SqlLedger`."""
        with self._connection.use() as connection:
            return connection.execute(*statement).fetchall()

    def _create(self, request: ClaimRequest, owner: str) -> EffectRecord:
        self._locks.hold(self.claims.process)
        while True:
            # Read first: a refused insert takes the write lock, and a replay must not wait for writers.
            record = self.get(request.key)
            if record is not None:
                return record
            rows = self.rows(self.statements.create(request, owner))
            if rows:
                return first_record(request, owner, rows[0][0])

    def _change(self, change: Change) -> EffectRecord | None:
        if change.next is None and not change.gone:
            return changed(change, self.rows(self.statements.update(change)))
        with self._connection.writing() as connection:
            if change.gone and self._liveness_elsewhere(change.seen) is Liveness.ALIVE:
                return None
            if change.next is not None:
                connection.execute(*self.statements.archive(change))
            return changed(change, connection.execute(*self.statements.update(change)).fetchall())

    def _count_late(self, key: str, attempt: int) -> None:
        mark, count = self.statements.late(key, attempt)
        with self._connection.writing() as connection:
            if connection.execute(*mark).rowcount:
                connection.execute(*count)

    def _liveness_elsewhere(self, record: EffectRecord) -> Liveness:
        return self._locks.liveness(process_of(record.owner))

    def renew(self, key: str) -> bool:
        """See `Ledger`."""
        with self._connection.use() as connection:
            return connection.execute(*self.statements.renew(key)).rowcount > 0

    def gc(self, older_than_s: float) -> int:
        """See `Ledger`."""
        effects, attempts = self.statements.gc(older_than_s)
        with self._connection.writing() as connection:
            gone = connection.execute(*effects).rowcount
            connection.execute(*attempts)
        self._locks.sweep()
        return gone

    def close(self) -> None:
        """See `Ledger`."""
        self._connection.close()
        if not self.claims.any_running:
            self._locks.let_go(self.claims.process)

    def before_fork(self) -> None:
        """The connection and the locks rest by themselves."""

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`."""
        if in_child:
            self.claims = Claims()
