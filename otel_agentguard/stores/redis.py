"""The store in Redis: for several machines.

Redis answers a write before its replicas have it, so a failover can lose a claim, and with it the
knowledge that an effect happened. Use it where its data are on disk (`appendonly yes`) and a lost claim
can be borne; else PostgreSQL.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from otel_agentguard.effects.ledger import SETTLED, AttemptRecord, ClaimRequest, EffectRecord, Liveness, State
from otel_agentguard.effects.machine import Change, MachineLedger
from otel_agentguard.effects.ownership import Claims, process_of, watch_forks
from otel_agentguard.errors import ConfigError, MissingExtraError, StoreError

try:
    from redis import Redis, RedisError
except ImportError as exc:
    raise MissingExtraError("redis") from exc

_logger = logging.getLogger(__name__)

# One hash tag, so that a cluster keeps everything that one script touches on one node.
_PREFIX = "agentguard:{ledger}:"
_INDEX = f"{_PREFIX}index"
_OWNERS = f"{_PREFIX}owners"

_NOW = """
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
"""

_CREATE = f"""{_NOW}
redis.call('HSET', KEYS[4], ARGV[2], tonumber(now) + tonumber(ARGV[3]))
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'created_s', now, 'started_s', now, 'updated_s', now, unpack(ARGV, 4))
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('ZADD', KEYS[3], now, ARGV[1])
end
return redis.call('HGETALL', KEYS[1])
"""

_CHANGE = f"""{_NOW}
local key, attempt, owner, sources, gone, process, lease_s, taker = unpack(ARGV, 1, 8)
local target, counted, result, failure, step, turn, run_id, old_outcome = unpack(ARGV, 9, 16)
local seen = redis.call('HMGET', KEYS[1], 'attempt', 'owner', 'state', 'started_s')
if seen[1] ~= attempt or seen[2] ~= owner then return false end
if not string.find(sources, ' ' .. seen[3] .. ' ', 1, true) then return false end
if gone == '1' then
  local lease = redis.call('HGET', KEYS[3], process)
  if lease and tonumber(lease) > tonumber(now) then return false end
end
redis.call('HSET', KEYS[1], 'state', target, 'updated_s', now)
if counted ~= '0' then redis.call('HINCRBY', KEYS[1], 'maybe_duplicates', counted) end
redis.call('HDEL', KEYS[1], 'result', 'error')
if result ~= '' then redis.call('HSET', KEYS[1], 'result', result) end
if failure ~= '' then redis.call('HSET', KEYS[1], 'error', failure) end
if taker ~= '' then
  redis.call('HSET', KEYS[1], 'past:' .. attempt, table.concat({{owner, old_outcome, seen[4], now}}, '\\n'))
  redis.call('HINCRBY', KEYS[1], 'attempt', 1)
  redis.call('HSET', KEYS[1], 'owner', taker, 'started_s', now, 'step', step, 'turn', turn, 'run_id', run_id)
  redis.call('HSET', KEYS[3], string.match(taker, '^(.*)/'), tonumber(now) + tonumber(lease_s))
end
redis.call('ZADD', KEYS[2], now, key)
return redis.call('HGETALL', KEYS[1])
"""

_LATE = """
local field = 'past:' .. ARGV[1]
local past = redis.call('HGET', KEYS[1], field)
if not past then return 0 end
local owner, outcome, started, ended = string.match(past, '^(.-)\\n(.-)\\n(.-)\\n(.-)$')
if outcome == 'late' then return 0 end
redis.call('HSET', KEYS[1], field, table.concat({owner, 'late', started, ended}, '\\n'))
return redis.call('HINCRBY', KEYS[1], 'confirmed_duplicates', 1)
"""

_RENEW = f"""
if redis.call('HGET', KEYS[1], 'state') ~= '{State.SUCCEEDED}' then return 0 end
redis.call('HSET', KEYS[1], 'renewed', '1')
return 1
"""

_ALIVE = f"""{_NOW}
local lease = redis.call('HGET', KEYS[1], ARGV[1])
if lease and tonumber(lease) > tonumber(now) then return 1 end
return 0
"""

_BEAT = f"""{_NOW}
return redis.call('HSET', KEYS[1], ARGV[1], tonumber(now) + tonumber(ARGV[2]))
"""

_EXPIRE = f"""{_NOW}
local keys = redis.call('SMEMBERS', KEYS[1])
for _, key in ipairs(keys) do
  local seen = redis.call('HMGET', ARGV[1] .. key, 'state', 'updated_s')
  if seen[1] and not string.find(ARGV[2], ' ' .. seen[1] .. ' ', 1, true) then return 0 end
  if seen[2] and tonumber(seen[2]) > tonumber(now) - tonumber(ARGV[3]) then return 0 end
end
for _, key in ipairs(keys) do
  redis.call('DEL', ARGV[1] .. key)
  redis.call('ZREM', KEYS[2], key)
end
redis.call('DEL', KEYS[1])
return #keys
"""

_FORGET_OWNERS = f"""{_NOW}
local owners = redis.call('HGETALL', KEYS[1])
for place = 1, #owners, 2 do
  if tonumber(owners[place + 1]) < tonumber(now) - 86400 then redis.call('HDEL', KEYS[1], owners[place]) end
end
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
            self.client: Any = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5, health_check_interval=30)
        except ValueError as exc:
            raise ConfigError(f"not a Redis URL ({exc})") from exc
        parts = urlsplit(url)
        self.url = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def script(self, text: str) -> Callable[[Sequence[str], Sequence[Any]], Any]:
        """A Lua script to call with its keys and arguments.

        Raises:
            StoreError: The server cannot be reached, or refuses (when called).
        """
        registered = self.client.register_script(text)

        def call(keys: Sequence[str], arguments: Sequence[Any]) -> Any:
            with self.errors():
                return registered(keys=keys, args=arguments)

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

    A thread renews the lease of this process while claims are running. An owner whose lease lapsed may be
    stopped or cut off and come back, so it is `LAPSED`, never `DEAD`. Nothing has a time to live: only `gc`
    removes records, and only settled ones.

    Args:
        connection: The client.
        lease_s: How long this process counts as alive after its last sign of life, seconds.

    Raises:
        StoreError: The server cannot be reached.
    """

    def __init__(self, connection: RedisConnection, *, lease_s: float = 15.0) -> None:
        super().__init__()
        self._connection = connection
        self._lease_s = lease_s
        self._run_create = connection.script(_CREATE)
        self._run_change = connection.script(_CHANGE)
        self._run_late = connection.script(_LATE)
        self._run_renew = connection.script(_RENEW)
        self._run_alive = connection.script(_ALIVE)
        self._run_beat = connection.script(_BEAT)
        self._run_expire = connection.script(_EXPIRE)
        self._run_forget_owners = connection.script(_FORGET_OWNERS)
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
        self._keep_alive()
        fields: Mapping[str, object] = {
            "key": request.key,
            "effect": request.effect,
            "intent": request.intent,
            "repeat": request.repeat,
            "arguments": request.arguments,
            "step": request.step,
            "turn": request.turn,
            "tool": request.tool,
            "run_id": request.run_id,
            "state": State.STARTED.value,
            "attempt": 1,
            "owner": owner,
        }
        flat = [item for field in fields.items() for item in field]
        keys = [_record(request.key), _effect(request.effect), _INDEX, _OWNERS]
        return _record_of(self._run_create(keys, [request.key, self.claims.process, self._lease_s, *flat]))

    def _change(self, change: Change) -> EffectRecord | None:
        following = change.next
        if following is not None:
            self._keep_alive()
        arguments = [
            change.key,
            change.attempt,
            change.owner,
            f" {' '.join(change.sources)} ",
            int(change.gone),
            process_of(change.owner),
            self._lease_s,
            following.owner if following else "",
            change.target.value,
            change.counted,
            change.result if change.result is not None else "",
            change.error if change.error is not None else "",
            following.step if following else "",
            following.turn if following else "",
            following.run_id if following else "",
            following.old_outcome if following else "",
        ]
        reply = self._run_change([_record(change.key), _INDEX, _OWNERS], arguments)
        return _record_of(reply) if reply else None

    def _count_late(self, key: str, attempt: int) -> None:
        self._run_late([_record(key)], [attempt])

    def _liveness_elsewhere(self, process: str) -> Liveness:
        return Liveness.ALIVE if self._run_alive([_OWNERS], [process]) else Liveness.LAPSED

    def renew(self, key: str) -> bool:
        """See `Ledger`."""
        return bool(self._run_renew([_record(key)], []))

    def get(self, key: str) -> EffectRecord | None:
        """See `Ledger`."""
        return next(iter(self._read([key])), None)

    def history(self, effect: str) -> Sequence[EffectRecord]:
        """See `Ledger`."""
        with self._connection.errors():
            keys = [member.decode() for member in self._connection.client.smembers(_effect(effect))]
        return sorted(self._read(keys), key=lambda record: (record.intent, record.repeat))

    def _read(self, keys: Sequence[str]) -> list[EffectRecord]:
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
        records: list[EffectRecord] = []
        start = 0
        while len(records) < limit:
            with self._connection.errors():
                keys = self._connection.client.zrevrange(_INDEX, start, start + 499)
            if not keys:
                break
            start += len(keys)
            records += [
                record
                for record in self._read([key.decode() for key in keys])
                if state in {None, record.state} and tool in {None, record.tool} and run_id in {None, record.run_id}
            ]
        return records[:limit]

    def gc(self, older_than_s: float) -> int:
        """See `Ledger`."""
        settled = f" {' '.join(sorted(SETTLED))} "
        with self._connection.errors():
            seconds, _ = self._connection.client.time()
            keys = self._connection.client.zrangebyscore(_INDEX, "-inf", seconds + 1 - older_than_s)
        effects = {record.effect for record in self._read([key.decode() for key in keys])}
        gone = sum(
            int(self._run_expire([_effect(effect), _INDEX], [_record(""), settled, older_than_s]))
            for effect in sorted(effects)
        )
        self._run_forget_owners([_OWNERS], [])
        return gone

    def _keep_alive(self) -> None:
        if self._pulse is None or not self._pulse.is_alive():
            self._closed.clear()
            self._pulse = threading.Thread(target=self._beat, name="agentguard-lease", daemon=True)
            self._pulse.start()

    def _beat(self) -> None:
        while not self._closed.wait(self._lease_s / 3):
            if self.claims.any_running:
                self.heartbeat()

    def heartbeat(self) -> None:
        """Renew the lease of this process; a failure is logged, and the next beat tries again."""
        try:
            self._run_beat([_OWNERS], [self.claims.process, self._lease_s])
        except StoreError as exc:
            _logger.warning("lease not renewed, others may take this process for dead: %s", exc)

    def close(self) -> None:
        """Close the sockets; while claims are running their lease is still renewed."""
        if not self.claims.any_running:
            self._closed.set()
            with contextlib.suppress(RedisError):
                self._connection.client.hdel(_OWNERS, self.claims.process)
        self._connection.close()

    def before_fork(self) -> None:
        """Nothing to rest: redis-py opens sockets of its own in the child."""

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`."""
        if in_child:
            self.claims = Claims()
            self._pulse = None
            self._closed = threading.Event()


def _record(key: str) -> str:
    return f"{_PREFIX}record:{key}"


def _effect(effect: str) -> str:
    return f"{_PREFIX}effect:{effect}"


def _fields(reply: Mapping[bytes, bytes] | Sequence[bytes]) -> dict[str, bytes]:
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value for name, value in pairs}


def _record_of(reply: Mapping[bytes, bytes] | Sequence[bytes]) -> EffectRecord:
    fields = _fields(reply)
    text = {name: value.decode() for name, value in fields.items() if name != "result"}
    return EffectRecord(
        key=text["key"],
        effect=text["effect"],
        intent=int(text["intent"]),
        repeat=int(text["repeat"]),
        arguments=text["arguments"],
        step=text["step"],
        turn=int(text["turn"]),
        tool=text["tool"],
        run_id=text["run_id"],
        state=State(text["state"]),
        attempt=int(text["attempt"]),
        owner=text["owner"],
        result=fields.get("result"),
        error=text.get("error"),
        renewed=text.get("renewed") == "1",
        maybe_duplicates=int(text.get("maybe_duplicates", "0")),
        confirmed_duplicates=int(text.get("confirmed_duplicates", "0")),
        created_s=float(text["created_s"]),
        started_s=float(text["started_s"]),
        updated_s=float(text["updated_s"]),
    )


def _attempt_of(key: str, number: int, text: str) -> AttemptRecord:
    owner, outcome, started, ended = text.split("\n")
    return AttemptRecord(
        key=key, attempt=number, owner=owner, outcome=outcome, started_s=float(started), ended_s=float(ended)
    )
