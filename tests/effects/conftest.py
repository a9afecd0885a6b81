"""Where the tests of effects keep their ledgers and their effects."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from effect_workers import EffectFile
from services import PostgresServer, RedisServer

DURABLE = ["sqlite", "postgresql", "redis"]


@pytest.fixture
def effects(tmp_path: Path) -> EffectFile:
    """The outside world."""
    return EffectFile(tmp_path / "effects")


@pytest.fixture(params=DURABLE)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store that outlives its processes."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def locking_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store that watches owners by locks."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/agentguard.db"


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Redis database; owners that are silent for 0.4 s count as gone."""
    from redis import Redis

    with contextlib.closing(Redis(port=redis_server.port)) as client:
        client.flushall()
    return f"{redis_server.url()}?lease_s=0.4"


@pytest.fixture
def postgresql_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty schema of a PostgreSQL database."""
    import psycopg

    name = f"s{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
        yield f"{postgres_server.url()}?options=-csearch_path%3D{name}"
        connection.execute(f'DROP SCHEMA "{name}" CASCADE')
