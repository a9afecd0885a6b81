"""Stores that are locked, full, gone or come back: no claim, no effect; no record, no second effect."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from effect_workers import EffectFile, Job, Process, perform, records
from services import (
    POSTGRES_HINT,
    REDIS_HINT,
    PostgresServer,
    RedisServer,
    Server,
    missing,
    postgres_binaries,
    redis_binary,
    running,
)

from otel_agentguard.effects.calls import EffectCall, EffectSpec, RunEffects
from otel_agentguard.effects.decisions import Place
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ledger import ClaimRequest, State
from otel_agentguard.errors import CompletionNotRecorded, ConfigError, StoreError
from otel_agentguard.stores import open_ledger
from otel_agentguard.stores.sqlite import SqliteLedger


@pytest.fixture(params=["postgresql", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that this test may kill."""
    if request.param == "postgresql":
        binaries = postgres_binaries()
        if binaries is None:
            missing(POSTGRES_HINT)
        own: Server = PostgresServer(binaries)
    else:
        binary = redis_binary()
        if binary is None:
            missing(REDIS_HINT)
        own = RedisServer(binary, durable=True)
    with running(own):
        yield own


def a_call(run_id: str = "run", **given: object) -> EffectCall:
    return RunEffects(run_id=run_id).call(EffectSpec(tool="charge", **given), {"invoice": 7})  # type: ignore[arg-type]


@contextlib.contextmanager
def executor_on(url: str) -> Iterator[EffectExecutor]:
    ledger = open_ledger(url)
    executor = EffectExecutor(ledger, retry_delays_s=(0.01,))
    yield executor
    executor.close()
    ledger.close()


def test_an_effect_happens_where_no_thread_can_be_started(
    url: str, effects: EffectFile, no_threads: Callable[[], None]
) -> None:
    with executor_on(url) as executor:
        executor.run(a_call(), effects.happen)
        no_threads()
        executor.run(a_call("later"), effects.happen)

        assert {record.state for record in executor.ledger.list()} == {State.SUCCEEDED}
    assert effects.count() == 2


def test_a_server_that_is_gone_at_the_claim_keeps_the_effect_from_happening(
    server: Server, effects: EffectFile
) -> None:
    with executor_on(server.url()) as executor:
        server.kill()

        with pytest.raises(StoreError):
            executor.run(a_call(), effects.happen)

        assert effects.count() == 0
        server.start()
        executor.run(a_call(), effects.happen)
        assert effects.count() == 1


def test_a_server_that_stops_answering_keeps_the_effect_from_happening_and_the_caller_for_a_while_only(
    server: Server, effects: EffectFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url()
    if isinstance(server, RedisServer):
        url += "?socket_timeout=0.3"
    else:
        monkeypatch.setattr("otel_agentguard.stores.postgres.ANSWER_S", 0.3)
    with executor_on(url) as executor:
        with server.silent():
            began = time.monotonic()
            with pytest.raises(StoreError):
                executor.run(a_call("one"), effects.happen)
            waited_s = time.monotonic() - began

        assert effects.count() == 0
        assert waited_s < 5
        executor.run(a_call("two"), effects.happen)
        assert effects.count() == 1


def test_a_server_that_is_gone_when_a_ledger_is_opened_says_so(server: Server) -> None:
    server.kill()

    with pytest.raises(StoreError):
        open_ledger(server.url())


def test_a_completion_that_finds_no_server_is_told_with_the_next_call(server: Server, effects: EffectFile) -> None:
    def body(key: str) -> str:
        effects.happen(key)
        server.kill()
        return "paid"

    with executor_on(server.url()) as executor:
        with pytest.raises(CompletionNotRecorded, match="ledger resolve"):
            executor.run(a_call(), body)
        server.start()

        answer = executor.run(a_call(returns=str), effects.happen)

        assert (answer.outcome, answer.value) == ("replayed", "paid")
        assert effects.count() == 1


def test_a_process_that_ends_with_an_untold_completion_leaves_it_unknown(server: Server, effects: EffectFile) -> None:
    url = server.url()
    if isinstance(server, RedisServer):
        url += "?lease_s=0.3"

    def die_with_the_server(key: str) -> None:
        effects.happen(key)
        server.kill()

    with executor_on(url) as executor, pytest.raises(CompletionNotRecorded):
        executor.run(a_call(), die_with_the_server)
    server.start()

    assert perform(Job(url, effects))["error"] == "CallBlocked"
    assert effects.count() == 1


def test_a_server_that_comes_back_before_the_completion_is_not_noticed(server: Server, effects: EffectFile) -> None:
    def body(key: str) -> str:
        effects.happen(key)
        server.kill()
        server.start()
        return "paid"

    with executor_on(server.url()) as executor:
        answer = executor.run(a_call(), body)

        assert answer.outcome == "executed"
        assert executor.run(a_call(), effects.happen).outcome == "replayed"
        assert effects.count() == 1


def test_an_owner_vouches_for_its_claim_again_after_its_server_came_back(server: Server, effects: EffectFile) -> None:
    seen = []

    def body(key: str) -> str:
        server.kill()
        server.start()
        ledger.get(key)
        seen.append(perform(Job(server.url(), effects, "retry", wait_s=0.3)))
        return "paid"

    with executor_on(server.url()) as executor:
        ledger = executor.ledger
        executor.run(a_call(), body)

    assert seen[0]["error"] == "EffectInProgress"


def test_a_ledger_notices_a_server_that_was_restarted_between_calls(server: Server, effects: EffectFile) -> None:
    with executor_on(server.url()) as executor:
        executor.run(a_call("one"), effects.happen)
        server.kill()
        server.start()

        executor.run(a_call("two"), effects.happen)

        assert effects.count() == 2


def test_a_locked_database_keeps_the_effect_from_happening(tmp_path: Path, effects: EffectFile) -> None:
    url = f"sqlite:///{tmp_path}/agentguard.db?busy_timeout_s=0.05"
    with executor_on(url) as executor, contextlib.closing(sqlite3.connect(tmp_path / "agentguard.db")) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="locked"):
            executor.run(a_call(), effects.happen)

        assert effects.count() == 0
        other.rollback()
        assert executor.run(a_call(), effects.happen).attempt == 1


def test_a_database_that_is_locked_at_the_completion_is_told_later(tmp_path: Path, effects: EffectFile) -> None:
    url = f"sqlite:///{tmp_path}/agentguard.db?busy_timeout_s=0.01"
    with executor_on(url) as executor, contextlib.closing(sqlite3.connect(tmp_path / "agentguard.db")) as other:

        def body(key: str) -> None:
            effects.happen(key)
            other.execute("BEGIN IMMEDIATE")

        with pytest.raises(CompletionNotRecorded):
            executor.run(a_call(), body)
        other.rollback()

        assert executor.run(a_call(), effects.happen).outcome == "replayed"
        assert effects.count() == 1


def fill_up(ledger: object) -> None:
    assert isinstance(ledger, SqliteLedger)
    with ledger._connection.use() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    for place in range(1000):
        try:
            ledger.claim(a_request(place))
        except StoreError:
            return


def a_request(place: int) -> ClaimRequest:
    call = RunEffects(run_id=f"filler {place}").call(EffectSpec(tool="filler"), {"text": "x" * 500})
    call.run.lead(call)
    return call.request_at(Place())


def test_a_full_database_keeps_the_effect_from_happening(tmp_path: Path, effects: EffectFile) -> None:
    with executor_on(f"sqlite:///{tmp_path}/agentguard.db") as executor:
        fill_up(executor.ledger)

        with pytest.raises(StoreError, match="full"):
            executor.run(a_call(), effects.happen)

        assert effects.count() == 0


def test_a_full_disk_keeps_the_effect_from_happening(tmp_path: Path, effects: EffectFile) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here; it takes root")
    try:
        with executor_on(f"sqlite:///{disk}/agentguard.db") as executor:
            executor.run(a_call("one"), effects.happen)
            with contextlib.suppress(OSError):
                (disk / "filler").write_bytes(b"x" * 300_000)
            for place in range(200):
                try:
                    executor.run(a_call(f"more {place}"), lambda key: "x" * 2000)
                except (StoreError, CompletionNotRecorded):
                    break

            with pytest.raises(StoreError):
                executor.run(a_call("two"), effects.happen)

            assert effects.count() == 1
            (disk / "filler").unlink()
            executor.run(a_call("two"), effects.happen)
            assert effects.count() == 2
            assert executor.run(a_call("one"), effects.happen).outcome == "replayed"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_size_limit_keeps_the_effect_from_happening(sqlite_url: str, effects: EffectFile) -> None:
    def limit(_: EffectExecutor) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    answer = perform(Job(sqlite_url, effects, hook=limit))

    assert answer["error"] == "StoreError"
    assert effects.count() == 0
    assert perform(Job(sqlite_url, effects))["outcome"] == "executed"


def test_a_database_in_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        open_ledger(f"sqlite:///{tmp_path}/nowhere/agentguard.db")


def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "agentguard.db").write_bytes(b"a letter to my mother" * 100)

    with pytest.raises(StoreError, match="not a database"):
        open_ledger(f"sqlite:///{tmp_path}/agentguard.db")


def test_tables_of_a_newer_version_are_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agentguard.db"
    open_ledger(url).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "agentguard.db")) as connection:
        connection.execute("UPDATE agentguard_schema SET version = 99")
        connection.commit()

    with pytest.raises(StoreError, match="newer version"):
        open_ledger(url)


def test_the_files_of_a_ledger_are_for_its_owner_only(tmp_path: Path, effects: EffectFile) -> None:
    before = os.umask(0)
    try:
        with executor_on(f"sqlite:///{tmp_path}/agentguard.db") as executor:
            executor.run(a_call(), effects.happen)
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("agentguard*")}
    finally:
        os.umask(before)

    assert {mode & 0o077 for mode in modes.values()} == {0}


def test_dead_processes_leave_no_lock_files_behind(sqlite_url: str, effects: EffectFile, tmp_path: Path) -> None:
    for point in ("after claim", "after return"):
        perform(Job(sqlite_url, effects, die_at=point, run_id=point))

    ledger = open_ledger(sqlite_url)
    left = list((tmp_path / "agentguard.db-owners").iterdir())
    ledger.close()

    assert len(left) == 1


def test_a_claim_is_lost_to_nobody_while_many_processes_open_the_file(sqlite_url: str, effects: EffectFile) -> None:
    owner = Process(Job(sqlite_url, effects, "retry", freeze_at="before effect"))
    owner.wait_until_frozen()

    others = [Process(Job(sqlite_url, effects, "retry", wait_s=0.2)) for _ in range(8)]
    answers = [other.wait() for other in others]
    owner.thaw()

    assert {answer.get("error") for answer in answers} == {"EffectInProgress"}
    assert owner.wait()["outcome"] == "executed"
    assert [record.state for record in records(sqlite_url)] == [State.SUCCEEDED]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///a.db?busy_timeout_s=soon",
        "sqlite:///a.db?speed=11",
        "redis://localhost?lease_s=0",
        "redis://localhost?lease_s=x",
    ],
)
def test_a_setting_in_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    if url.startswith("redis:"):
        pytest.importorskip("redis", reason="pip install 'otel-agentguard[redis]'")

    with pytest.raises(ConfigError):
        open_ledger(url)
