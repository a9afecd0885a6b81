"""The store in Redis: for several machines.

Redis answers a write before its replicas have it, so a failover can lose a claim, and with it the
knowledge that an effect happened. Use it where its data are on disk (`appendonly yes`) and a lost claim
can be borne; else PostgreSQL.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from heapq import nsmallest
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import orjson

from otel_agentguard.effects.ledger import SETTLED, AttemptRecord, ClaimRequest, EffectRecord, Liveness, State
from otel_agentguard.effects.machine import Change, MachineLedger, first_record, request_of
from otel_agentguard.effects.ownership import Claims, watch_forks
from otel_agentguard.errors import ConfigError, MissingExtraError, StoreError

try:
    from redis import Redis, RedisError
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import NoScriptError
    from redis.retry import Retry
except ImportError as exc:
    raise MissingExtraError("redis") from exc

_logger = logging.getLogger(__name__)

# One hash tag, so that a cluster keeps everything that one script touches on one node.
_PREFIX = "agentguard:{ledger}:"
# Members are `effect:key`, all with score 0: the set is in order of the effect key.
_INDEX = f"{_PREFIX}index"
_UNSETTLED = f"{_PREFIX}unsettled"

_NOT_RENEWED = "a lease is not renewed, others may take this process for dead: %s"
_REQUEST_FIELDS = tuple(field.name for field in fields(ClaimRequest))

_NOW = """
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
"""

_CREATE = f"""
if redis.call('HSETNX', KEYS[1], 'request', ARGV[1]) == 0 then return redis.call('HGETALL', KEYS[1]) end
{_NOW}
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'state', '{State.STARTED}', 'attempt', 1,
  'created_s', now, 'lease_s', now + ARGV[3])
redis.call('ZADD', KEYS[2], 0, ARGV[4])
return now
"""

_KEEP_UNSETTLED = f"""
if ARGV[4] == '{State.UNKNOWN}' then redis.call('SADD', KEYS[2], KEYS[1])
elseif seen[3] == '{State.UNKNOWN}' then redis.call('SREM', KEYS[2], KEYS[1]) end
"""

# What an owner does after its effect: the common case, so it carries and does no more than it must.
_SETTLE = f"""
local seen = redis.call('HMGET', KEYS[1], 'attempt', 'owner', 'state', 'maybe_duplicates', 'confirmed_duplicates')
if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] then return false end
if not string.find(ARGV[3], ' ' .. seen[3] .. ' ', 1, true) then return false end
{_NOW}
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'updated_s', now, unpack(ARGV, 5))
{_KEEP_UNSETTLED}
return {{now, seen[4] or '0', seen[5] or '0'}}
"""

_CHANGE = f"""
local seen = redis.call('HMGET', KEYS[1], 'attempt', 'owner', 'state', 'maybe_duplicates', 'confirmed_duplicates',
  'lease_s', 'started_s', 'created_s')
if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] then return false end
if not string.find(ARGV[3], ' ' .. seen[3] .. ' ', 1, true) then return false end
{_NOW}
if ARGV[5] == '1' and tonumber(seen[6]) > tonumber(now) then return false end
local maybe = (seen[4] or 0) + ARGV[6]
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'updated_s', now, 'maybe_duplicates', maybe)
{_KEEP_UNSETTLED}
if ARGV[7] == '' then
  if #ARGV > 10 then redis.call('HSET', KEYS[1], unpack(ARGV, 11)) end
else
  redis.call('HSET', KEYS[1], 'past:' .. ARGV[1], table.concat({{ARGV[2], ARGV[8], seen[7] or seen[8], now}}, '\\n'),
    'attempt', ARGV[1] + 1, 'owner', ARGV[7], 'request', ARGV[9], 'started_s', now, 'lease_s', now + ARGV[10])
end
return {{now, tostring(maybe), seen[5] or '0'}}
"""

_LATE = f"""{_NOW}
local field = 'past:' .. ARGV[1]
local past = redis.call('HGET', KEYS[1], field)
if not past then return 0 end
local owner, outcome, started, ended = string.match(past, '^(.-)\\n(.-)\\n(.-)\\n(.-)$')
if outcome == 'late' then return 0 end
redis.call('HSET', KEYS[1], 'updated_s', now, field, table.concat({{owner, 'late', started, ended}}, '\\n'))
return redis.call('HINCRBY', KEYS[1], 'confirmed_duplicates', 1)
"""

_RENEW = f"""
if redis.call('HGET', KEYS[1], 'state') ~= '{State.SUCCEEDED}' then return 0 end
redis.call('HSET', KEYS[1], 'renewed', '1')
return 1
"""

_ALIVE = f"""{_NOW}
local seen = redis.call('HMGET', KEYS[1], 'owner', 'lease_s')
if seen[1] == ARGV[1] and tonumber(seen[2]) > tonumber(now) then return 1 end
return 0
"""

_BEAT = f"""{_NOW}
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'lease_s', now + ARGV[2])
return 1
"""

_EXPIRE = f"""{_NOW}
local members = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. ARGV[2] .. ':', '[' .. ARGV[2] .. ';')
local keys = {{}}
for place, member in ipairs(members) do
  keys[place] = ARGV[1] .. string.sub(member, #ARGV[2] + 2)
  local seen = redis.call('HMGET', keys[place], 'state', 'updated_s')
  if seen[1] and not string.find(ARGV[3], ' ' .. seen[1] .. ' ', 1, true) then return 0 end
  if seen[2] and tonumber(seen[2]) > now - ARGV[4] then return 0 end
end
for place, member in ipairs(members) do
  redis.call('DEL', keys[place])
  redis.call('ZREM', KEYS[1], member)
end
return #members
"""


def open_ledger(url: str) -> RedisLedger:
    """Open the ledger in a Redis database.

    Args:
        url: `redis://[user:password@]host:port/db`; `?lease_s=15` sets how long an owner counts as alive
            after its last sign of life.

    Raises:
        ConfigError: The URL cannot be read.
        StoreError: The server cannot be reached.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    lease = query.pop("lease_s", "15")
    try:
        lease_s = float(lease)
    except ValueError as exc:
        raise ConfigError(f"lease_s={lease!r} in the store's URL is no number of seconds") from exc
    if lease_s <= 0:
        raise ConfigError(f"lease_s={lease!r} in the store's URL must be above 0")
    return RedisLedger(RedisConnection(urlunsplit(parts._replace(query=urlencode(query)))), lease_s=lease_s)


class RedisConnection:
    """A client for any thread and across forks, whose errors are ours.

    Args:
        url: A redis-py URL; what it does not say about time-outs is filled in.
    """

    def __init__(self, url: str) -> None:
        try:
            # Untyped: redis-py types every reply as text or bytes, and without decode_responses it is bytes.
            self.client: Any = Redis.from_url(
                url,
                socket_timeout=5,
                socket_connect_timeout=5,
                health_check_interval=30,
                # A connection that broke is opened again; a server that does not answer is waited for once.
                retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            )
        except ValueError as exc:
            raise ConfigError(f"not a Redis URL ({exc})") from exc
        parts = urlsplit(url)
        self.url = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def script(self, text: str) -> Callable[[Sequence[str], Sequence[Any]], Any]:
        """A Lua script to call with its keys and arguments.

        Raises:
            StoreError: The server cannot be reached, or refuses (when called).
        """
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        client = self.client

        def call(keys: Sequence[str], arguments: Sequence[Any]) -> Any:
            try:
                try:
                    return client.evalsha(digest, len(keys), *keys, *arguments)
                except NoScriptError:
                    return client.eval(text, len(keys), *keys, *arguments)
            except RedisError as exc:
                raise StoreError(f"{self.url}: {exc}") from exc

        return call

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what Redis raises into `StoreError`."""
        try:
            yield
        except RedisError as exc:
            raise StoreError(f"{self.url}: {exc}") from exc

    def close(self) -> None:
        """Close the sockets; the next use opens them again."""
        self.client.close()


class RedisLedger(MachineLedger):
    """A ledger in a Redis database; owners are watched by leases on the server's clock.

    A thread renews the leases of the claims that are running. An owner whose lease lapsed may be stopped or
    cut off and come back, so it is `LAPSED`, never `DEAD`. Nothing has a time to live: only `gc`
    removes records, and only settled ones.

    Args:
        connection: The client.
        lease_s: How long an owner counts as alive after its last sign of life, seconds.

    Raises:
        StoreError: The server cannot be reached.
    """

    def __init__(self, connection: RedisConnection, *, lease_s: float = 15.0) -> None:
        super().__init__()
        self._connection = connection
        self._lease_s = lease_s
        self._run_create = connection.script(_CREATE)
        self._run_settle = connection.script(_SETTLE)
        self._run_change = connection.script(_CHANGE)
        self._run_late = connection.script(_LATE)
        self._run_renew = connection.script(_RENEW)
        self._run_alive = connection.script(_ALIVE)
        self._run_beat = connection.script(_BEAT)
        self._run_expire = connection.script(_EXPIRE)
        self._running: dict[str, str] = {}
        self._pulse: threading.Thread | None = None
        self._closed = threading.Event()
        watch_forks(self)
        with connection.errors():
            connection.client.ping()
        self._warn_of_forgetful_server()

    def _warn_of_forgetful_server(self) -> None:
        with contextlib.suppress(RedisError):  # Managed servers refuse CONFIG.
            settings = {**self._connection.client.config_get("appendonly", "maxmemory-policy")}
            if settings.get(b"appendonly") == b"no":
                _logger.warning("%s keeps nothing on disk (appendonly no): a restart forgets claims", self.url)
            if settings.get(b"maxmemory-policy", b"").startswith(b"allkeys-"):
                _logger.warning("%s may evict claims (maxmemory-policy allkeys-*); use noeviction", self.url)

    @property
    def url(self) -> str:
        """See `Ledger`."""
        return self._connection.url

    def _create(self, request: ClaimRequest, owner: str) -> EffectRecord:
        self._vouch(owner, request.key)
        member = f"{request.effect}:{request.key}"
        text = _request_text(request)
        reply = self._run_create([_record(request.key), _INDEX], [text, owner, self._lease_s, member])
        return first_record(request, owner, float(reply)) if isinstance(reply, bytes) else _record_of(reply)

    def _change(self, change: Change) -> EffectRecord | None:
        following, seen = change.next, change.seen
        arguments: list[Any] = [seen.attempt, seen.owner, f" {' '.join(change.sources)} ", change.target.value]
        run = self._run_settle
        if following is not None or change.gone or change.counted:
            run = self._run_change
            arguments += [int(change.gone), change.counted]
            if following is None:
                arguments += ["", "", "", ""]
            else:
                self._vouch(following.owner, seen.key)
                asked = replace(request_of(seen), step=following.step, turn=following.turn, run_id=following.run_id)
                arguments += [following.owner, following.old_outcome, _request_text(asked), self._lease_s]
        if change.result is not None:
            arguments += ["result", change.result]
        if change.error is not None:
            arguments += ["error", change.error]
        reply = run([_record(seen.key), _UNSETTLED], arguments)
        if reply is None:
            return None
        now, maybe, confirmed = reply
        return change.applied(now_s=float(now), maybe_duplicates=int(maybe), confirmed_duplicates=int(confirmed))

    def _count_late(self, key: str, attempt: int) -> None:
        self._run_late([_record(key)], [attempt])

    def _liveness_elsewhere(self, record: EffectRecord) -> Liveness:
        return Liveness.ALIVE if self._run_alive([_record(record.key)], [record.owner]) else Liveness.LAPSED

    def renew(self, key: str) -> bool:
        """See `Ledger`."""
        return bool(self._run_renew([_record(key)], []))

    def get(self, key: str) -> EffectRecord | None:
        """See `Ledger`."""
        return next(iter(self._read([key])), None)

    def history(self, effect: str) -> Sequence[EffectRecord]:
        """See `Ledger`."""
        with self._connection.errors():
            members = self._connection.client.zrangebylex(_INDEX, f"[{effect}:", f"[{effect};")
        return sorted(self._read(_keys(members)), key=lambda record: (record.intent, record.repeat))

    def _read(self, keys: Sequence[str]) -> Sequence[EffectRecord]:
        with self._connection.errors():
            pipeline = self._connection.client.pipeline(transaction=False)
            for key in keys:
                pipeline.hgetall(_record(key))
            replies = pipeline.execute() if keys else []
        return [_record_of(reply) for reply in replies if reply]

    def attempts(self, key: str) -> Sequence[AttemptRecord]:
        """See `Ledger`."""
        with self._connection.errors():
            fields = self._connection.client.hgetall(_record(key))
        past = [(int(name[5:]), text.decode()) for name, text in fields.items() if name.startswith(b"past:")]
        return [_attempt_of(key, number, text) for number, text in sorted(past)]

    def list(
        self, *, state: State | None = None, tool: str | None = None, run_id: str | None = None, limit: int = 100
    ) -> Sequence[EffectRecord]:
        """See `Ledger`."""
        found = (
            record
            for records in self._all()
            for record in records
            if state in {None, record.state} and tool in {None, record.tool} and run_id in {None, record.run_id}
        )
        return nsmallest(limit, found, key=lambda record: (-record.updated_s, record.key))

    def _all(self) -> Iterator[Sequence[EffectRecord]]:
        """All records, some hundred at a time."""
        after = "-"
        while True:
            with self._connection.errors():
                members = self._connection.client.zrangebylex(_INDEX, after, "+", start=0, num=500)
            if not members:
                return
            yield self._read(_keys(members))
            after = f"({members[-1].decode()}"

    def unsettled(self) -> Mapping[str, int]:
        """See `Ledger`."""
        with self._connection.errors():
            members = self._connection.client.smembers(_UNSETTLED)
        records = self._read([member.decode().removeprefix(_record("")) for member in members])
        return Counter(record.tool for record in records if record.state is State.UNKNOWN)

    def gc(self, older_than_s: float) -> int:
        """See `Ledger`."""
        settled = f" {' '.join(sorted(SETTLED))} "
        effects = {record.effect: None for records in self._all() for record in records if record.state in SETTLED}
        return sum(int(self._run_expire([_INDEX], [_record(""), effect, settled, older_than_s])) for effect in effects)

    def _vouch(self, owner: str, key: str) -> None:
        """Renew the lease of a claim from now on, while it runs."""
        self._running[owner] = key
        if self._pulse is None or not self._pulse.is_alive():
            self._closed.clear()
            pulse = threading.Thread(target=self._beat, name="agentguard-lease", daemon=True)
            try:
                pulse.start()
            except RuntimeError as exc:
                _logger.warning(_NOT_RENEWED, exc)
                return
            self._pulse = pulse

    def _beat(self) -> None:
        while not self._closed.wait(self._lease_s / 3):
            self.heartbeat()

    def heartbeat(self) -> None:
        """Renew the leases of running claims; a failure is logged, and the next beat tries again."""
        for owner, key in list(self._running.items()):
            if not self.claims.is_running(owner):
                self._running.pop(owner, None)
                continue
            try:
                self._run_beat([_record(key)], [owner, self._lease_s])
            except StoreError as exc:
                _logger.warning(_NOT_RENEWED, exc)
                return

    def close(self) -> None:
        """Close the sockets; while claims are running their lease is still renewed."""
        if not self.claims.any_running:
            self._closed.set()
        self._connection.close()

    def before_fork(self) -> None:
        """Nothing to rest: redis-py opens sockets of its own in the child."""

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`."""
        if in_child:
            self.claims = Claims()
            self._running = {}
            self._pulse = None
            self._closed = threading.Event()


def _record(key: str) -> str:
    return f"{_PREFIX}record:{key}"


def _keys(members: Sequence[bytes]) -> list[str]:
    return [member.decode().rpartition(":")[2] for member in members]


def _request_text(request: ClaimRequest) -> bytes:
    return orjson.dumps([getattr(request, name) for name in _REQUEST_FIELDS])


def _record_of(reply: Mapping[bytes, bytes] | Sequence[bytes]) -> EffectRecord:
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    found = {name.decode(): value for name, value in pairs}
    asked = ClaimRequest(**dict(zip(_REQUEST_FIELDS, orjson.loads(found["request"]), strict=True)))
    error = found.get("error")
    return replace(
        first_record(asked, found["owner"].decode(), float(found["created_s"])),
        state=State(found["state"].decode()),
        attempt=int(found["attempt"]),
        result=found.get("result"),
        error=error.decode() if error is not None else None,
        renewed=found.get("renewed") == b"1",
        maybe_duplicates=int(found.get("maybe_duplicates", b"0")),
        confirmed_duplicates=int(found.get("confirmed_duplicates", b"0")),
        started_s=float(found.get("started_s", found["created_s"])),
        updated_s=float(found.get("updated_s", found["created_s"])),
    )


def _attempt_of(key: str, number: int, text: str) -> AttemptRecord:
    owner, outcome, started, ended = text.split("\n")
    return AttemptRecord(
        key=key, attempt=number, owner=owner, outcome=outcome, started_s=float(started), ended_s=float(ended)
    )
