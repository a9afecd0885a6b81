"""Kills workers at random while they cause effects, and counts what came of it.

    python benchmarks/chaos.py [--keys 300] [--kills 60] [--seed 1] [sqlite postgresql redis]

Three workers go through all keys in an order of their own. `repeated` are effects beyond the first of a key,
`uncounted` keys with more of them than the ledger thought possible: it must be 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from effect_chaos import rage
from services import PostgresServer, RedisServer, postgres_binaries, redis_binary, running

from otel_agentguard.effects.ledger import State

POLICIES = ("block", "retry", "verify")


@contextmanager
def store(name: str, folder: Path) -> Iterator[str | None]:
    """The URL of an empty store, or None where its server is missing."""
    if name == "sqlite":
        yield f"sqlite:///{folder}/agentguard.db"
        return
    binary = postgres_binaries() if name == "postgresql" else redis_binary()
    if binary is None:
        yield None
        return
    server = PostgresServer(binary, durable=True) if name == "postgresql" else RedisServer(binary, durable=True)
    with running(server):
        yield server.url() + ("?lease_s=0.5" if name == "redis" else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", default=["sqlite", "postgresql", "redis"])
    parser.add_argument("--keys", type=int, default=300)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    columns = ("store", "policy", "kills", "effects", "repeated", "possible", "confirmed", "uncounted", "unknown", "s")
    print("".join(f"{column:>11}" for column in columns))
    for name in chosen.stores:
        for policy in POLICIES:
            with tempfile.TemporaryDirectory(dir=".") as folder, store(name, Path(folder)) as url:
                if url is None:
                    print(f"{name:>11}  no server here")
                    break
                report = rage(url, policy, Path(folder), keys=chosen.keys, kills=chosen.kills, seed=chosen.seed)
            row = (
                *(name, policy, report.kills, sum(report.effects.values()), report.repeated),
                *(sum(report.possible.values()), report.confirmed, report.uncounted),
                *(report.states.get(State.UNKNOWN, 0), f"{report.seconds:.1f}"),
            )
            print("".join(f"{cell:>11}" for cell in row), flush=True)


if __name__ == "__main__":
    main()
