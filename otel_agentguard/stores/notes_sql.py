# ruff: noqa: S608  (every text below is made of constants; what callers give goes in as parameters)
"""Notes in the tables of an SQL database: everything but the connection."""

from __future__ import annotations

import secrets
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from otel_agentguard.effects.sql import Dialect, Statement
from otel_agentguard.errors import StoreError
from otel_agentguard.notes import (
    DEFAULT_RETENTION,
    MAX_STOPS,
    LoggedCall,
    Retention,
    StopMark,
    Visit,
    finding_from_json,
    finding_to_json,
)

Row = Sequence[Any]

_TRIM_EVERY = 256
_ALL_ROWS = 2**31 - 1
_VISIT = "audience, resource, name, version, count, first_s, last_s, run_id, purpose, summary"
_CALL = "audience, call, tool, resources, tokens, status, at_s, count, run_id, result, version, pure, excerpt"
_STOP = "namespace, run_id, conversation, event, finding, stopped_s"


def migrations(dialect: Dialect) -> tuple[tuple[str, ...], ...]:
    """The statements that lead from each version of the tables to the next; the first from nothing to 1."""
    return (
        (
            f"CREATE TABLE agentguard_secret (place INTEGER PRIMARY KEY, secret {dialect.blob} NOT NULL)",
            f"""CREATE TABLE agentguard_visits (
                audience TEXT NOT NULL, resource TEXT NOT NULL, name TEXT, version TEXT, count INTEGER NOT NULL,
                first_s {dialect.real} NOT NULL, last_s {dialect.real} NOT NULL, run_id TEXT NOT NULL,
                purpose TEXT, summary TEXT, PRIMARY KEY (audience, resource))""",
            "CREATE INDEX agentguard_visits_last ON agentguard_visits (last_s)",
            "CREATE INDEX agentguard_visits_of ON agentguard_visits (audience, last_s)",
            f"""CREATE TABLE agentguard_calls (
                audience TEXT NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL, resources TEXT NOT NULL,
                tokens {dialect.blob} NOT NULL, status TEXT NOT NULL, at_s {dialect.real} NOT NULL,
                count INTEGER NOT NULL, run_id TEXT NOT NULL, result TEXT, version TEXT, pure INTEGER NOT NULL,
                excerpt TEXT, PRIMARY KEY (audience, call))""",
            "CREATE INDEX agentguard_calls_last ON agentguard_calls (at_s)",
            "CREATE INDEX agentguard_calls_of ON agentguard_calls (audience, tool, at_s)",
            """CREATE TABLE agentguard_call_resources (
                audience TEXT NOT NULL, resource TEXT NOT NULL, call TEXT NOT NULL,
                PRIMARY KEY (audience, resource, call))""",
            f"""CREATE TABLE agentguard_stops (
                namespace TEXT NOT NULL, run_id TEXT NOT NULL, conversation TEXT, event TEXT,
                finding TEXT NOT NULL, stopped_s {dialect.real} NOT NULL, PRIMARY KEY (namespace, run_id))""",
            "CREATE INDEX agentguard_stops_of ON agentguard_stops (namespace, conversation)",
        ),
    )


VERSION_TABLE = "CREATE TABLE IF NOT EXISTS agentguard_notes_schema (version INTEGER NOT NULL)"
VERSION = "SELECT version FROM agentguard_notes_schema"


class SqlNotes(ABC):
    """A `Store` in SQL tables.

    Args:
        dialect: The database.
        now_s: Wall clock, seconds since the epoch.
        retention: How long notes are kept, and how many.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        now_s: Callable[[], float] = time.time,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        self._dialect = dialect
        self._now_s = now_s
        self._retention = retention
        self._recorded = 0

    @property
    @abstractmethod
    def url(self) -> str:
        """See `Store`."""

    @abstractmethod
    def close(self) -> None:
        """See `Store`."""

    @abstractmethod
    def _fetch(self, statement: Statement) -> Sequence[Row]:
        """The rows of one statement."""

    @abstractmethod
    def _write(self, statements: Sequence[Statement]) -> list[int]:
        """Do all statements in one transaction; how many rows each changed."""

    def _upgrade(self, version: int | None) -> list[Statement]:
        """The statements that bring tables of a version to that of this code; None means there are none yet.

        Raises:
            StoreError: A newer version of the package made them.
        """
        steps = migrations(self._dialect)
        if version is not None and version > len(steps):
            raise StoreError(f"{self.url}: notes of version {version}, made by a newer version; update otel-agentguard")
        if version == len(steps):
            return []
        statements: list[Statement] = [(text, ()) for step in steps[version or 0 :] for text in step]
        statements += [("DELETE FROM agentguard_notes_schema", ()), self._statement(_SET_VERSION, (len(steps),))]
        return statements

    def secret(self) -> bytes:
        """See `Store`."""
        self._write([self._statement(_MAKE_KEY, (1, secrets.token_bytes(32)))])
        return bytes(self._fetch(("SELECT secret FROM agentguard_secret", ()))[0][0])

    def record(self, visits: Sequence[Visit], calls: Sequence[LoggedCall]) -> None:
        """See `Store`."""
        # In one order everywhere, so that two writers never wait for each other.
        ordered = sorted(visits, key=lambda visit: (visit.audience, visit.resource))
        statements = [self._statement(_PUT_VISIT, _visit_values(visit)) for visit in ordered]
        for call in sorted(calls, key=lambda call: (call.audience, call.call)):
            statements.append(self._statement(_PUT_CALL, _call_values(call)))
            statements += [
                self._statement(_PUT_CALL_RESOURCE, (call.audience, resource, call.call)) for resource in call.resources
            ]
        self._recorded += len(visits) + len(calls)
        if self._recorded >= _TRIM_EVERY:
            self._recorded = 0
            statements += self._trimming(self._now_s() - self._retention.seconds)
        if statements:
            self._write(statements)

    def visits(self, audience: str, *, resources: Sequence[str] | None = None, limit: int = 100) -> Sequence[Visit]:
        """See `Store`."""
        where, values = "audience = ? AND last_s >= ?", [audience, self._now_s() - self._retention.seconds]
        if resources is not None:
            if not resources:
                return []
            where += f" AND resource IN ({', '.join('?' * len(resources))})"
            values += resources
        text = f"SELECT {_VISIT} FROM agentguard_visits WHERE {where} ORDER BY last_s DESC, resource LIMIT ?"
        return [_visit_of(row) for row in self._fetch(self._statement(text, (*values, limit)))]

    def calls(
        self,
        audience: str,
        *,
        call: str | None = None,
        resource: str | None = None,
        tool: str | None = None,
        limit: int = 100,
    ) -> Sequence[LoggedCall]:
        """See `Store`."""
        column, value = one_of(call=call, resource=resource, tool=tool)
        if column == "resource":
            where = (
                "call IN (SELECT call FROM agentguard_call_resources AS r WHERE r.audience = ? AND r.resource = ?)"
                " AND audience = ?"
            )
            values: tuple[object, ...] = (audience, value, audience)
        else:
            where, values = f"audience = ? AND {column} = ?", (audience, value)
        text = f"SELECT {_CALL} FROM agentguard_calls WHERE {where} AND at_s >= ? ORDER BY at_s DESC, call LIMIT ?"
        since = self._now_s() - self._retention.seconds
        return [_call_of(row) for row in self._fetch(self._statement(text, (*values, since, limit)))]

    def put_stop(self, mark: StopMark) -> None:
        """See `Store`."""
        values = (
            mark.namespace,
            mark.run_id,
            mark.conversation,
            mark.event,
            finding_to_json(mark.finding),
            mark.stopped_s,
        )
        self._write([self._statement(_PUT_STOP, values), self._statement(_TRIM_STOPS, (MAX_STOPS,))])

    def find_stop(
        self, namespace: str, *, run_id: str | None = None, conversation: str | None = None
    ) -> StopMark | None:
        """See `Store`."""
        for column, value in (("run_id", run_id), ("conversation", conversation)):
            if value is None:
                continue
            where = f"namespace = ? AND {column} = ? ORDER BY stopped_s DESC LIMIT 1"
            text = f"SELECT {_STOP} FROM agentguard_stops WHERE {where}"
            rows = self._fetch(self._statement(text, (namespace, value)))
            if rows:
                return self._stop_of(rows[0])
        return None

    def stops(self, namespace: str, *, limit: int = 100) -> Sequence[StopMark]:
        """See `Store`."""
        text = f"SELECT {_STOP} FROM agentguard_stops WHERE namespace = ? ORDER BY stopped_s DESC, run_id LIMIT ?"
        return [self._stop_of(row) for row in self._fetch(self._statement(text, (namespace, limit)))]

    def release_stop(self, namespace: str, run_id: str) -> bool:
        """See `Store`."""
        text = "DELETE FROM agentguard_stops WHERE namespace = ? AND run_id = ?"
        return self._write([self._statement(text, (namespace, run_id))])[0] > 0

    def gc(self, older_than_s: float) -> int:
        """See `Store`."""
        since = self._now_s() - older_than_s
        counts = self._write(
            [
                self._statement("DELETE FROM agentguard_visits WHERE last_s < ?", (since,)),
                self._statement("DELETE FROM agentguard_calls WHERE at_s < ?", (since,)),
                self._statement("DELETE FROM agentguard_stops WHERE stopped_s < ?", (since,)),
                (_TRIM_CALL_RESOURCES, ()),
            ]
        )
        return sum(counts[:3])

    def _trimming(self, since: float) -> list[Statement]:
        return [
            self._statement("DELETE FROM agentguard_visits WHERE last_s < ?", (since,)),
            self._statement("DELETE FROM agentguard_calls WHERE at_s < ?", (since,)),
            self._statement(_TRIM_VISITS, (_ALL_ROWS, self._retention.visits)),
            self._statement(_TRIM_CALLS, (_ALL_ROWS, self._retention.calls)),
            (_TRIM_CALL_RESOURCES, ()),
        ]

    def _statement(self, text: str, values: Iterable[object]) -> Statement:
        return text.replace("?", self._dialect.mark), tuple(values)

    def _stop_of(self, row: Row) -> StopMark:
        namespace, run_id, conversation, event, finding, stopped_s = row
        try:
            return StopMark(
                namespace=namespace,
                run_id=run_id,
                conversation=conversation,
                event=event,
                finding=finding_from_json(finding),
                stopped_s=stopped_s,
            )
        except ValueError as exc:
            raise StoreError(f"{self.url}: the mark of run {run_id!r} cannot be read: {exc}") from exc


def one_of(**given: str | None) -> tuple[str, str]:
    """The one keyword that is not None, and its value.

    Raises:
        ValueError: There is not exactly one.
    """
    found = [(name, value) for name, value in given.items() if value is not None]
    if len(found) != 1:
        raise ValueError(f"give exactly one of {', '.join(given)}, not {len(found)}")
    return found[0]


def pack_tokens(tokens: Iterable[int]) -> bytes:
    """Digests of words as bytes, in rising order."""
    ordered = sorted(tokens)
    return struct.pack(f">{len(ordered)}I", *ordered)


def unpack_tokens(data: bytes) -> frozenset[int]:
    """The digests of `pack_tokens`."""
    return frozenset(struct.unpack(f">{len(data) // 4}I", data[: len(data) // 4 * 4]))


_SET_VERSION = "INSERT INTO agentguard_notes_schema (version) VALUES (?)"
_MAKE_KEY = "INSERT INTO agentguard_secret (place, secret) VALUES (?, ?) ON CONFLICT (place) DO NOTHING"
_PUT_VISIT = f"""INSERT INTO agentguard_visits AS old ({_VISIT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (audience, resource) DO UPDATE SET
    name = COALESCE(excluded.name, old.name), version = excluded.version, count = old.count + excluded.count,
    last_s = excluded.last_s, run_id = excluded.run_id, purpose = COALESCE(excluded.purpose, old.purpose),
    summary = COALESCE(excluded.summary, old.summary)"""
_PUT_CALL = f"""INSERT INTO agentguard_calls AS old ({_CALL}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (audience, call) DO UPDATE SET
    tool = excluded.tool, resources = excluded.resources, tokens = excluded.tokens, status = excluded.status,
    at_s = excluded.at_s, count = old.count + excluded.count, run_id = excluded.run_id, result = excluded.result,
    version = excluded.version, pure = excluded.pure, excerpt = excluded.excerpt"""
_PUT_CALL_RESOURCE = """INSERT INTO agentguard_call_resources (audience, resource, call) VALUES (?, ?, ?)
    ON CONFLICT (audience, resource, call) DO NOTHING"""
_PUT_STOP = f"""INSERT INTO agentguard_stops ({_STOP}) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, run_id) DO UPDATE SET
    conversation = excluded.conversation, event = excluded.event, finding = excluded.finding,
    stopped_s = excluded.stopped_s"""
_TRIM_VISITS = """DELETE FROM agentguard_visits WHERE (audience, resource) IN
    (SELECT audience, resource FROM agentguard_visits ORDER BY last_s DESC LIMIT ? OFFSET ?)"""
_TRIM_CALLS = """DELETE FROM agentguard_calls WHERE (audience, call) IN
    (SELECT audience, call FROM agentguard_calls ORDER BY at_s DESC LIMIT ? OFFSET ?)"""
_TRIM_CALL_RESOURCES = """DELETE FROM agentguard_call_resources WHERE NOT EXISTS
    (SELECT 1 FROM agentguard_calls AS c WHERE c.audience = agentguard_call_resources.audience
     AND c.call = agentguard_call_resources.call)"""
_TRIM_STOPS = f"""DELETE FROM agentguard_stops WHERE (namespace, run_id) IN
    (SELECT namespace, run_id FROM agentguard_stops ORDER BY stopped_s DESC LIMIT {_ALL_ROWS} OFFSET ?)"""


def _visit_values(visit: Visit) -> tuple[object, ...]:
    return (
        visit.audience,
        visit.resource,
        visit.name,
        visit.version,
        visit.count,
        visit.first_s or visit.last_s,
        visit.last_s,
        visit.run_id,
        visit.purpose,
        visit.summary,
    )


def _visit_of(row: Row) -> Visit:
    names = (name.strip() for name in _VISIT.split(","))
    return Visit(**dict(zip(names, row, strict=True)))


def _call_values(call: LoggedCall) -> tuple[object, ...]:
    return (
        call.audience,
        call.call,
        call.tool,
        orjson.dumps(call.resources).decode(),
        pack_tokens(call.tokens),
        call.status,
        call.at_s,
        call.count,
        call.run_id,
        call.result,
        call.version,
        int(call.pure),
        call.excerpt,
    )


def _call_of(row: Row) -> LoggedCall:
    fields = dict(zip((name.strip() for name in _CALL.split(",")), row, strict=True))
    fields["resources"] = tuple(orjson.loads(fields["resources"]))
    fields["tokens"] = unpack_tokens(bytes(fields["tokens"]))
    fields["pure"] = bool(fields["pure"])
    return LoggedCall(**fields)
