"""Notes in a Redis database, which may be that of the ledger.

Every note is a hash with a time to live, so that Redis itself ends the retention; sorted sets by time
name what there is for an audience.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import orjson

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
from otel_agentguard.stores.notes_sql import one_of, pack_tokens, unpack_tokens
from otel_agentguard.stores.redis import RedisConnection

# One hash tag, so that a cluster keeps everything that one transaction touches on one node.
_PREFIX = "agentguard:{notes}:"
_VERSION = 1
_VERSION_KEY = f"{_PREFIX}version"
_SECRET = f"{_PREFIX}secret"
_VISITS = f"{_PREFIX}visits"
_CALLS = f"{_PREFIX}calls"
_TRIM_EVERY = 256


def open_notes(
    url: str,
    *,
    wait_s: float = 1.0,
    now_s: Callable[[], float] = time.time,
    retention: Retention = DEFAULT_RETENTION,
) -> RedisNotes:
    """Open the notes in a Redis database.

    Args:
        url: `redis://[user:password@]host:port/db`.
        wait_s: How long the server may take to answer, seconds, where the URL does not say.
        now_s: Wall clock, seconds since the epoch.
        retention: How long notes are kept, and how many.

    Raises:
        ConfigError: The URL cannot be read.
        StoreError: The server cannot be reached.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    query.pop("lease_s", None)  # of the ledger at this URL
    query = {"socket_timeout": str(wait_s), "socket_connect_timeout": str(wait_s)} | query
    connection = RedisConnection(urlunsplit(parts._replace(query=urlencode(query))))
    return RedisNotes(connection, now_s=now_s, retention=retention)


class RedisNotes:
    """A `Store` in a Redis database, for several machines.

    Args:
        connection: The client.
        now_s: Wall clock, seconds since the epoch.
        retention: How long notes are kept, and how many.

    Raises:
        StoreError: The server cannot be reached, or a newer version made what is there.
    """

    def __init__(
        self,
        connection: RedisConnection,
        *,
        now_s: Callable[[], float] = time.time,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        self._connection = connection
        self._client = connection.client
        self._now_s = now_s
        self._retention = retention
        self._recorded = 0
        with connection.errors():
            self._client.setnx(_VERSION_KEY, _VERSION)
            version = int(self._client.get(_VERSION_KEY) or _VERSION)
        if version > _VERSION:
            connection.close()
            raise StoreError(f"{self.url}: notes of version {version}, made by a newer version; update otel-agentguard")

    @property
    def url(self) -> str:
        """See `Store`."""
        return self._connection.url

    def secret(self) -> bytes:
        """See `Store`."""
        with self._connection.errors():
            self._client.setnx(_SECRET, secrets.token_bytes(32))
            return bytes(self._client.get(_SECRET))

    def record(self, visits: Sequence[Visit], calls: Sequence[LoggedCall]) -> None:
        """See `Store`."""
        with self._connection.errors():
            pipeline = self._client.pipeline(transaction=True)
            for visit in visits:
                self._put_visit(pipeline, visit)
            for call in calls:
                self._put_call(pipeline, call)
            pipeline.execute()
            self._recorded += len(visits) + len(calls)
            if self._recorded >= _TRIM_EVERY:
                self._recorded = 0
                self._trim(_VISITS, self._retention.visits)
                self._trim(_CALLS, self._retention.calls)

    def _put_visit(self, pipeline: Any, visit: Visit) -> None:
        key = _key("visit", visit.audience, visit.resource)
        fields = {"version": visit.version, "run_id": visit.run_id, "last_s": visit.last_s, "name": visit.name}
        fields |= {"purpose": visit.purpose, "summary": visit.summary}
        pipeline.hset(key, mapping={"audience": visit.audience, "resource": visit.resource, **_some(fields)})
        if visit.version is None:
            pipeline.hdel(key, "version")
        pipeline.hsetnx(key, "first_s", visit.first_s or visit.last_s)
        pipeline.hincrby(key, "count", visit.count)
        self._index(pipeline, key, visit.last_s, _VISITS, _key("visits", visit.audience))

    def _put_call(self, pipeline: Any, call: LoggedCall) -> None:
        key = _key("call", call.audience, call.call)
        fields = {
            "audience": call.audience,
            "call": call.call,
            "tool": call.tool,
            "resources": orjson.dumps(call.resources),
            "tokens": pack_tokens(call.tokens),
            "status": call.status,
            "at_s": call.at_s,
            "run_id": call.run_id,
            "pure": int(call.pure),
        }
        replaced = {"result": call.result, "version": call.version, "excerpt": call.excerpt}
        pipeline.hdel(key, *replaced)
        pipeline.hset(key, mapping={**fields, **_some(replaced)})
        pipeline.hincrby(key, "count", call.count)
        places = [_key("calls-of", call.audience, call.tool)]
        places += [_key("calls-on", call.audience, resource) for resource in call.resources]
        self._index(pipeline, key, call.at_s, _CALLS, *places)

    def _index(self, pipeline: Any, key: str, at_s: float, *places: str) -> None:
        pipeline.expire(key, round(self._retention.seconds) + 1)
        for place in places:
            pipeline.zadd(place, {key: at_s})
            pipeline.zremrangebyscore(place, "-inf", f"({at_s - self._retention.seconds}")
            pipeline.expire(place, round(self._retention.seconds) + 1)

    def _trim(self, index: str, most: int) -> None:
        gone = self._client.zrange(index, 0, -most - 1)
        for start in range(0, len(gone), 500):
            self._client.delete(*gone[start : start + 500])
        if gone:
            self._client.zremrangebyrank(index, 0, -most - 1)

    def visits(self, audience: str, *, resources: Sequence[str] | None = None, limit: int = 100) -> Sequence[Visit]:
        """See `Store`."""
        if resources is None:
            rows = self._latest(_key("visits", audience), limit)
        else:
            rows = self._read([_key("visit", audience, resource) for resource in resources])
        since = self._now_s() - self._retention.seconds
        found = [visit for visit in map(_visit_of, rows) if visit.last_s >= since]
        return sorted(found, key=lambda visit: (-visit.last_s, visit.resource))[:limit]

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
        by, value = one_of(call=call, resource=resource, tool=tool)
        if by == "call":
            rows = self._read([_key("call", audience, value)])
        else:
            rows = self._latest(_key("calls-on" if by == "resource" else "calls-of", audience, value), limit)
        since = self._now_s() - self._retention.seconds
        found = [one for one in map(_call_of, rows) if one.at_s >= since]
        return sorted(found, key=lambda one: (-one.at_s, one.call))[:limit]

    def _latest(self, index: str, limit: int) -> list[Mapping[str, bytes]]:
        with self._connection.errors():
            keys = self._client.zrevrange(index, 0, max(0, limit) * 2 + 8)
        return self._read([key.decode() for key in keys])

    def _read(self, keys: Sequence[str]) -> list[Mapping[str, bytes]]:
        with self._connection.errors():
            pipeline = self._client.pipeline(transaction=False)
            for key in keys:
                pipeline.hgetall(key)
            replies = pipeline.execute() if keys else []
        return [{name.decode(): value for name, value in reply.items()} for reply in replies if reply]

    def put_stop(self, mark: StopMark) -> None:
        """See `Store`."""
        entry = {
            "run_id": mark.run_id,
            "conversation": mark.conversation,
            "event": mark.event,
            "finding": finding_to_json(mark.finding),
            "stopped_s": mark.stopped_s,
        }
        with self._connection.errors():
            pipeline = self._client.pipeline(transaction=True)
            pipeline.hset(_key("stops", mark.namespace), mark.run_id, orjson.dumps(entry))
            pipeline.zadd(_key("stopped", mark.namespace), {mark.run_id: mark.stopped_s})
            pipeline.execute()
            most = self._client.zrange(_key("stopped", mark.namespace), 0, -MAX_STOPS - 1)
        for run_id in most:
            self.release_stop(mark.namespace, run_id.decode())

    def find_stop(
        self, namespace: str, *, run_id: str | None = None, conversation: str | None = None
    ) -> StopMark | None:
        """See `Store`."""
        if run_id is not None:
            with self._connection.errors():
                found = self._client.hget(_key("stops", namespace), run_id)
            if found is not None:
                return self._stop_of(namespace, found)
        if conversation is None:
            return None
        marks = self.stops(namespace, limit=MAX_STOPS)
        return next((mark for mark in marks if mark.conversation == conversation), None)

    def stops(self, namespace: str, *, limit: int = 100) -> Sequence[StopMark]:
        """See `Store`."""
        with self._connection.errors():
            runs = self._client.zrevrange(_key("stopped", namespace), 0, limit - 1)
            entries = self._client.hmget(_key("stops", namespace), runs) if runs else []
        found = [self._stop_of(namespace, entry) for entry in entries if entry is not None]
        return sorted(found, key=lambda mark: (-mark.stopped_s, mark.run_id))

    def release_stop(self, namespace: str, run_id: str) -> bool:
        """See `Store`."""
        with self._connection.errors():
            pipeline = self._client.pipeline(transaction=True)
            pipeline.hdel(_key("stops", namespace), run_id)
            pipeline.zrem(_key("stopped", namespace), run_id)
            return bool(pipeline.execute()[0])

    def gc(self, older_than_s: float) -> int:
        """See `Store`."""
        since = f"({self._now_s() - older_than_s}"
        gone = 0
        with self._connection.errors():
            for index in (_VISITS, _CALLS):
                keys = self._client.zrangebyscore(index, "-inf", since)
                gone += int(self._client.delete(*keys)) if keys else 0
                self._client.zremrangebyscore(index, "-inf", since)
            stopped = list(self._client.scan_iter(match=f"{_key('stopped', '')}*"))
            for index in stopped:
                namespace = cast("bytes", index).decode().removeprefix(_key("stopped", ""))
                for run_id in self._client.zrangebyscore(index, "-inf", since):
                    gone += self.release_stop(namespace, run_id.decode())
        return gone

    def close(self) -> None:
        """See `Store`."""
        self._connection.close()

    def _stop_of(self, namespace: str, entry: bytes) -> StopMark:
        try:
            fields = orjson.loads(entry)
            return StopMark(namespace=namespace, **{**fields, "finding": finding_from_json(fields["finding"])})
        except (ValueError, TypeError, KeyError) as exc:
            raise StoreError(f"{self.url}: the mark of a stopped run cannot be read: {exc}") from exc


def _key(kind: str, *parts: str) -> str:
    return f"{_PREFIX}{kind}:{':'.join(parts)}"


def _some(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _visit_of(row: Mapping[str, bytes]) -> Visit:
    text = {name: value.decode() for name, value in row.items()}
    return Visit(
        audience=text["audience"],
        resource=text["resource"],
        name=text.get("name"),
        version=text.get("version"),
        count=int(text["count"]),
        first_s=float(text["first_s"]),
        last_s=float(text["last_s"]),
        run_id=text.get("run_id", ""),
        purpose=text.get("purpose"),
        summary=text.get("summary"),
    )


def _call_of(row: Mapping[str, bytes]) -> LoggedCall:
    text = {name: value.decode() for name, value in row.items() if name != "tokens"}
    return LoggedCall(
        audience=text["audience"],
        call=text["call"],
        tool=text["tool"],
        resources=tuple(orjson.loads(text["resources"])),
        tokens=unpack_tokens(row["tokens"]),
        status=text["status"],
        at_s=float(text["at_s"]),
        count=int(text["count"]),
        run_id=text["run_id"],
        result=text.get("result"),
        version=text.get("version"),
        pure=text["pure"] == "1",
        excerpt=text.get("excerpt"),
    )
