"""Fixtures for all tests: database servers on loopback, started once a session and when first asked for."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from services import (
    POSTGRES_HINT,
    REDIS_HINT,
    PostgresServer,
    RedisServer,
    missing,
    postgres_binaries,
    redis_binary,
    running,
)

from otel_agentguard.guard import installed
from otel_agentguard.instrumentor import AgentGuardInstrumentor
from otel_agentguard.seams import declare

# Machines that run these are shared and slow at times; how long an example takes is no property.
settings.register_profile("agentguard", deadline=None)
settings.load_profile("agentguard")


@pytest.fixture(autouse=True)
def no_tools_of_other_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tool was declared to be holds in the whole process; each test knows those of its own module only."""
    here = request.module.__name__
    known = OrderedDict(
        (name, declaration)
        for name, declaration in declare._declared.items()
        if (module := getattr(declaration.function, "__module__", "")) == here or ".test_" not in f".{module}"
    )
    monkeypatch.setattr(declare, "_declared", known)


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def no_threads() -> Iterator[Callable[[], None]]:
    """The guard can start no thread, as at the limit or at the exit of the interpreter, until this is called."""
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("agentguard"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        yield patch.undo


@pytest.fixture
def instrumentor_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No guard before and after, no settings of this machine, an empty working directory."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("AGENTGUARD_", "OTEL_"))]:
        monkeypatch.delenv(name)
    yield
    instrumentor = AgentGuardInstrumentor()
    if instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.uninstrument()
    assert installed.guard is None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test session."""
    binaries = postgres_binaries()
    if binaries is None:
        missing(POSTGRES_HINT)
    if importlib.util.find_spec("psycopg") is None:
        missing("no PostgreSQL driver here: pip install 'otel-agentguard[postgres]'")
    server = PostgresServer(binaries)
    with running(server):
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server of this test session."""
    binary = redis_binary()
    if binary is None:
        missing(REDIS_HINT)
    if importlib.util.find_spec("redis") is None:
        missing("no Redis driver here: pip install 'otel-agentguard[redis]'")
    server = RedisServer(binary)
    with running(server):
        yield server
