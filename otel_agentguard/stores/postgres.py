"""The store in PostgreSQL: for several machines."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from otel_agentguard.effects.ledger import ClaimRequest, EffectRecord, Liveness
from otel_agentguard.effects.machine import Change, first_record
from otel_agentguard.effects.ownership import Claims, process_of, watch_forks
from otel_agentguard.effects.sql import (
    POSTGRES,
    SCHEMA_LOCK,
    SCHEMA_VERSION,
    UNSETTLED_INDEX,
    VERSION,
    SqlLedger,
    Statement,
    Statements,
    changed,
    record_of,
    schema,
)
from otel_agentguard.errors import ConfigError, MissingExtraError, StoreError

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as exc:
    raise MissingExtraError("postgres") from exc

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

ANSWER_S = 20.0
"""How long a server may take for one answer: a little longer than its own `statement_timeout` lets it."""

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "otel-agentguard",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "options": "-c statement_timeout=15s -c lock_timeout=5s",
}


def open_ledger(url: str) -> PostgresLedger:
    """Open the ledger in a PostgreSQL database; its tables are made when missing.

    Raises:
        ConfigError: The URL cannot be read.
        StoreError: The server cannot be reached, or refuses.
    """
    return PostgresLedger(PostgresConnection(url))


class _Session(psycopg.Connection[tuple[Any, ...]]):
    """A session that ends when the server does not answer any more.

    A server that is stopped, or its disk, keeps its connections, and libpq waits for an answer for ever:
    `statement_timeout` is kept by the server, `tcp_user_timeout` by its kernel.
    """

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """See psycopg; what it is waiting for is bounded."""
        try:
            return super().wait(_bounded(gen, time.monotonic() + ANSWER_S), *args, **kwargs)
        except _NoAnswer:
            self.close()
            raise


class _NoAnswer(psycopg.OperationalError):
    """The server has not answered in time; whether it did what it was asked is unknown."""


def _bounded(gen: Any, until_s: float) -> Any:
    """A generator that psycopg waits for, which it resumes with nothing every 0.1 s, given up after a time."""
    ready = None
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as stop:
            return stop.value
        ready = yield wanted
        if not ready and time.monotonic() > until_s:
            gen.close()
            raise _NoAnswer(f"no answer for {ANSWER_S:g} s")


class PostgresConnection:
    """One session of this process, for any thread, opened again after it broke and in a forked child.

    Args:
        url: A libpq URL; what it does not say about time-outs is filled in.
    """

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as exc:
            raise ConfigError(f"not a PostgreSQL URL ({str(exc).strip()})") from exc
        self._conninfo = make_conninfo("", **(_DEFAULTS | given))
        host, port = given.get("host") or "", given.get("port")
        self.url = f"postgresql://{host}{f':{port}' if port else ''}/{given.get('dbname') or ''}"
        self.on_connect: list[Callable[[Connection], None]] = []
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._of_parent: list[Connection] = []
        watch_forks(self)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do some work on the session, for this thread alone; outside `transaction()` each statement is one.

        Work that met a broken session is done once more on a new one, so it must bear being done twice. A server
        that gives no session, or no answer, is not asked again: one that hangs would keep the caller twice as long.

        Raises:
            StoreError: The server cannot be reached, or refuses.
        """
        with self._lock:
            try:
                return self._run_once(work)
            except psycopg.OperationalError as exc:
                if self._connection is None or not self._connection.closed or isinstance(exc, _NoAnswer):
                    raise StoreError(f"{self.url}: {_text(exc)}") from exc
            try:
                return self._run_once(work)
            except psycopg.Error as exc:
                raise StoreError(f"{self.url}: {_text(exc)}") from exc

    def _run_once(self, work: Callable[[Connection], T]) -> T:
        try:
            return work(self._session())
        except psycopg.OperationalError:
            raise
        except psycopg.Error as exc:
            raise StoreError(f"{self.url}: {_text(exc)}") from exc

    def _session(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = None
            connection = _Session.connect(self._conninfo, autocommit=True)
            # A claim that a crash of the server could undo would be no claim.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
            for hook in self.on_connect:
                hook(connection)
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """End the session; the next use opens one again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`."""
        if in_child and self._connection is not None:
            if not self._connection.closed:
                # The socket would outlive the parent and so keep its session and its lock; a proper close
                # would end the session of the parent. The object is kept, since its end would close too.
                os.close(self._connection.fileno())
            self._of_parent.append(self._connection)
            self._connection = None
        self._lock.release()


def _text(exc: psycopg.Error) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__


def _lock_number(process: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"agentguard {process}".encode(), digest_size=8).digest(), signed=True)


_vouching: list[PostgresConnection] = []


class PostgresLedger(SqlLedger):
    """A ledger in a PostgreSQL database; owners are watched by advisory locks of their sessions.

    The server frees the lock a few milliseconds after the process was killed and keeps it while the process
    is stopped. A session can also end while its process lives (a broken network, a restart of the server),
    so an owner without a lock is `LAPSED`, not `DEAD`. A pooler that hands sessions around between
    transactions cannot be used.

    Args:
        connection: The session.

    Raises:
        StoreError: The server cannot be reached, or a newer version made the tables.
    """

    statements = Statements(POSTGRES)

    def __init__(self, connection: PostgresConnection) -> None:
        super().__init__()
        self._connection = connection
        self._locked_as: str | None = None
        connection.on_connect.append(self._lock_anew)
        watch_forks(self)
        try:
            connection.run(self._prepare)
        except StoreError:
            connection.close()
            raise

    def _prepare(self, connection: Connection) -> None:
        # The index is younger than the tables.
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (UNSETTLED_INDEX,)).fetchone()
        if row is None or not row[0]:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
                for statement in schema(POSTGRES):
                    connection.execute(statement)
        version = connection.execute(VERSION).fetchone()
        if version is None or version[0] > SCHEMA_VERSION:
            raise StoreError(
                f"{self.url}: the ledger's tables are not of version {SCHEMA_VERSION}; update otel-agentguard"
            )

    @property
    def url(self) -> str:
        """See `Ledger`."""
        return self._connection.url

    def _lock_anew(self, connection: Connection) -> None:
        self._locked_as = None
        self._vouch(connection)

    def _vouch(self, connection: Connection) -> None:
        """Hold this process's lock; while an older session of it still does, that one vouches."""
        if self._locked_as != self.claims.process:
            number = _lock_number(self.claims.process)
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone()
            if row is not None and row[0]:
                self._locked_as = self.claims.process

    def rows(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """See `SqlLedger`."""
        return self._connection.run(lambda connection: _fetch(connection, statement))

    def _create(self, request: ClaimRequest, owner: str) -> EffectRecord:
        return self._connection.run(lambda connection: self._create_on(connection, request, owner))

    def _create_on(self, connection: Connection, request: ClaimRequest, owner: str) -> EffectRecord:
        self._vouch(connection)
        create, get = self.statements.create(request, owner), self.statements.get(request.key)
        while True:
            if rows := _fetch(connection, create):
                return first_record(request, owner, rows[0][0])
            if rows := _fetch(connection, get):
                return record_of(rows[0])

    def _change(self, change: Change) -> EffectRecord | None:
        return self._connection.run(lambda connection: self._change_on(connection, change))

    def _change_on(self, connection: Connection, change: Change) -> EffectRecord | None:
        update = self.statements.update(change)
        if change.next is None and not change.gone:
            return changed(change, _fetch(connection, update))
        self._vouch(connection)
        with connection.transaction():
            if change.gone and not _is_free(connection, process_of(change.seen.owner)):
                return None
            if change.next is not None:
                # The row lock first: under it the old attempt that is archived is the one that is replaced.
                connection.execute("SELECT 1 FROM agentguard_effects WHERE key = %s FOR UPDATE", (change.seen.key,))
                connection.execute(*self.statements.archive(change))
            return changed(change, _fetch(connection, update))

    def _count_late(self, key: str, attempt: int) -> None:
        mark, count = self.statements.late(key, attempt)

        def work(connection: Connection) -> None:
            with connection.transaction():
                if connection.execute(*mark).rowcount:
                    connection.execute(*count)

        self._connection.run(work)

    def _liveness_elsewhere(self, record: EffectRecord) -> Liveness:
        def work(connection: Connection) -> bool:
            with connection.transaction():
                return _is_free(connection, process_of(record.owner))

        return Liveness.LAPSED if self._connection.run(work) else Liveness.ALIVE

    def renew(self, key: str) -> bool:
        """See `Ledger`."""
        text, values = self.statements.renew(key)
        changed = self._connection.run(lambda connection: connection.execute(text, values).rowcount)
        return bool(changed)

    def gc(self, older_than_s: float) -> int:
        """See `Ledger`."""
        effects, attempts = self.statements.gc(older_than_s)

        def work(connection: Connection) -> int:
            with connection.transaction():
                gone = connection.execute(*effects).rowcount
                connection.execute(*attempts)
            return int(gone)

        return self._connection.run(work)

    def close(self) -> None:
        """End the session, unless it vouches for a claim that is running: then it lives on with the process."""
        if self.claims.any_running:
            _vouching.append(self._connection)
        else:
            self._locked_as = None
            self._connection.close()

    def before_fork(self) -> None:
        """The session rests by itself."""

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`."""
        if in_child:
            self.claims = Claims()
            self._locked_as = None


def _fetch(connection: Connection, statement: Statement) -> Sequence[tuple[Any, ...]]:
    text, values = statement
    return connection.execute(text, values).fetchall()


def _is_free(connection: Connection, process: str) -> bool:
    # Shared, so that two onlookers do not take each other for the owner; held to the end of the
    # transaction, so that an owner that comes back waits until it is decided.
    row = connection.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", (_lock_number(process),)).fetchone()
    return row is not None and bool(row[0])
