"""What a claim and a completion cost beside the bare statements of the same store, in one run.

    python benchmarks/ledger.py [--rounds 2000] [sqlite postgresql redis]

The bare side does what any ledger must at least do: one durable insert and one durable update, on one
connection. Both sides take turns, so that a slow moment hits both.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from services import PostgresServer, RedisServer, postgres_binaries, redis_binary, running

from otel_agentguard.effects.calls import EffectSpec, RunEffects
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ledger import Claimed, ClaimRequest
from otel_agentguard.stores import open_ledger

TARGETS = {"sqlite": 1.5, "postgresql": 1.3, "redis": 1.3}
RESULT = b'"paid, receipt 4711"'


def asked() -> ClaimRequest:
    key = uuid.uuid4().hex
    return ClaimRequest(key=key, effect=key, arguments=key, step=key, tool="charge", run_id="run")


def compare(name: str, url: str, bare: Callable[[], None], rounds: int) -> None:
    ledger = open_ledger(url)
    executor = EffectExecutor(ledger)
    spec = EffectSpec(tool="charge")
    run = RunEffects(run_id=uuid.uuid4().hex)
    last: list[ClaimRequest] = []

    def ours() -> None:
        request = asked()
        claim = ledger.claim(request)
        assert isinstance(claim, Claimed)
        ledger.complete(claim, RESULT)
        last[:] = [request]

    def replay() -> None:
        ledger.claim(last[0])

    numbers = iter(range(10**9))

    def whole() -> None:
        executor.run(run.call(spec, {"invoice": next(numbers)}), lambda key: "paid, receipt 4711")

    works = {"bare": bare, "claim+complete": ours, "replay": replay, "executor": whole}
    for work in (bare, ours, replay, whole):
        for _ in range(50):
            work()
    times: dict[str, list[float]] = {label: [] for label in works}
    for _ in range(rounds):
        for label, work in works.items():
            started = time.perf_counter()
            work()
            times[label].append(time.perf_counter() - started)
    p50 = {label: statistics.median(values) * 1e6 for label, values in times.items()}
    ratio = p50["claim+complete"] / p50["bare"]
    verdict = "ok" if ratio <= TARGETS[name] else f"over the target of {TARGETS[name]}"
    print(
        f"{name:<11}"
        + "".join(f"{label} {value:7.0f} us   " for label, value in p50.items())
        + f"ratio {ratio:.2f}  {verdict}"
    )
    executor.close()
    ledger.close()


def on_sqlite(rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        connection = sqlite3.connect(f"{folder}/bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE effects (key TEXT PRIMARY KEY, state TEXT, result BLOB)")

        def bare() -> None:
            key = uuid.uuid4().hex
            connection.execute("INSERT INTO effects VALUES (?, 'started', NULL)", (key,))
            connection.execute("UPDATE effects SET state = 'succeeded', result = ? WHERE key = ?", (RESULT, key))

        compare("sqlite", f"sqlite:///{folder}/ledger.db", bare, rounds)
        connection.close()


def on_postgres(rounds: int) -> None:
    binaries = postgres_binaries()
    if binaries is None:
        print("postgresql  no server here")
        return
    import psycopg

    with (
        running(PostgresServer(binaries, durable=True)) as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        connection.execute("CREATE TABLE bare (key TEXT PRIMARY KEY, state TEXT, result BYTEA)")

        def bare() -> None:
            key = uuid.uuid4().hex
            connection.execute("INSERT INTO bare VALUES (%s, 'started', NULL)", (key,))
            connection.execute("UPDATE bare SET state = 'succeeded', result = %s WHERE key = %s", (RESULT, key))

        compare("postgresql", server.url(), bare, rounds)


def on_redis(rounds: int) -> None:
    binary = redis_binary()
    if binary is None:
        print("redis       no server here")
        return
    from redis import Redis

    with running(RedisServer(binary, durable=False)) as server:
        client = Redis(port=server.port)
        # The least that is a ledger with leases: set if absent, set if still the owner, each on the server's clock.
        claim = client.register_script(
            "if redis.call('HSETNX', KEYS[1], 'owner', ARGV[1]) == 0 then return 0 end "
            "local now = redis.call('TIME')[1] redis.call('HSET', KEYS[1], 'lease', now + ARGV[2]) return now"
        )
        complete = client.register_script(
            "if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end "
            "local now = redis.call('TIME')[1] "
            "redis.call('HSET', KEYS[1], 'state', 'succeeded', 'result', ARGV[2], 'at', now) return now"
        )

        def bare() -> None:
            key = uuid.uuid4().hex
            claim(keys=[key], args=[key, 15])
            complete(keys=[key], args=[key, RESULT])

        compare("redis", server.url(), bare, rounds)
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=list(TARGETS))
    parser.add_argument("--rounds", type=int, default=2000)
    chosen = parser.parse_args()
    for name in chosen.stores:
        {"sqlite": on_sqlite, "postgresql": on_postgres, "redis": on_redis}[name](chosen.rounds)


if __name__ == "__main__":
    main()
