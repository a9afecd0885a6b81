"""Effects that are writes to the caller's own database, in one transaction with their record."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard.effects.calls import EffectSpec, RunEffects
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.errors import CallBlocked, ConfigError, EffectMismatch, StoreError
from otel_agentguard.stores.memory import MemoryLedger


class Books:
    """A table of bookings in a database, and a way to connect to it."""

    def __init__(self, kind: str, where: str) -> None:
        self.kind = kind
        self.where = where
        with self.connect() as connection:
            connection.execute("CREATE TABLE bookings (invoice TEXT)")
            connection.commit()

    @contextlib.contextmanager
    def connect(self, **given: Any) -> Iterator[Any]:
        if self.kind == "sqlite":
            connection: Any = sqlite3.connect(self.where, timeout=5, **given)
        else:
            import psycopg

            connection = psycopg.connect(self.where, **given)
        try:
            yield connection
        finally:
            connection.close()

    def count(self) -> int:
        with self.connect() as connection:
            found = connection.execute("SELECT count(*) FROM bookings").fetchone()[0]
            return int(found)


@pytest.fixture(params=["sqlite", "postgresql"])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Books:
    if request.param == "sqlite":
        return Books("sqlite", str(tmp_path / "books.db"))
    return Books("postgresql", request.getfixturevalue("postgresql_url"))


class Setup:
    def __init__(self) -> None:
        self.executor = EffectExecutor(MemoryLedger())
        self.ran = 0

    def book(self, connection: Any, *, trouble: Exception | None = None, amount: int = 1, **given: Any) -> Any:
        def body(key: str) -> str:
            self.ran += 1
            connection.execute("INSERT INTO bookings VALUES ('seven')")
            if trouble is not None:
                raise trouble
            return f"booking {self.ran}"

        spec = EffectSpec(**{"tool": "book", "identity": ("invoice",), **given})
        call = RunEffects(run_id="run").call(spec, {"invoice": 7, "amount": amount})
        return self.executor.run(call, body, tx=connection)


@pytest.fixture
def here() -> Setup:
    return Setup()


def test_effect_and_record_are_committed_together(here: Setup, books: Books) -> None:
    with books.connect() as connection:
        first = here.book(connection)
    with books.connect() as connection:
        second = here.book(connection)

    assert (first.outcome, second.outcome) == ("executed", "replayed")
    assert first.value == second.value == "booking 1"
    assert books.count() == 1


def test_an_outer_transaction_of_the_caller_decides_about_both(here: Setup, books: Books) -> None:
    with books.connect() as connection:
        connection.execute("INSERT INTO bookings VALUES ('one')")
        here.book(connection)
        connection.rollback()

    assert books.count() == 0
    with books.connect() as connection:
        connection.execute("INSERT INTO bookings VALUES ('one')")
        assert here.book(connection).outcome == "executed"
        connection.commit()
    assert books.count() == 2


def test_an_error_undoes_the_effect_and_leaves_the_outer_transaction_usable(here: Setup, books: Books) -> None:
    with books.connect() as connection:
        connection.execute("INSERT INTO bookings VALUES ('one')")
        with pytest.raises(ZeroDivisionError):
            here.book(connection, trouble=ZeroDivisionError())
        connection.commit()

        assert books.count() == 1
        assert here.book(connection).outcome == "executed"


def test_a_kill_in_the_middle_leaves_neither_effect_nor_record(here: Setup, books: Books) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        with books.connect() as connection:

            def body(key: str) -> None:
                connection.execute("INSERT INTO bookings VALUES ('seven')")
                os.kill(os.getpid(), signal.SIGKILL)

            call = RunEffects(run_id="run").call(
                EffectSpec(tool="book", identity=("invoice",)), {"invoice": 7, "amount": 1}
            )
            here.executor.run(call, body, tx=connection)
        os._exit(1)
    _, status = os.waitpid(pid, 0)

    with books.connect() as connection:
        answer = here.book(connection)

    assert os.WIFSIGNALED(status)
    assert answer.outcome == "executed"
    assert books.count() == 1


def test_other_arguments_under_one_identity_are_a_mismatch_here_too(here: Setup, books: Books) -> None:
    with books.connect() as connection:
        here.book(connection, amount=1)

        with pytest.raises(EffectMismatch):
            here.book(connection, amount=2)

    assert books.count() == 1


def test_a_duplicate_at_a_new_step_can_be_refused_here_too(here: Setup, books: Books) -> None:
    run = RunEffects(run_id="run")
    spec = EffectSpec(tool="book", on_duplicate="block")  # type: ignore[arg-type]
    with books.connect() as connection:
        here.executor.run(run.call(spec, {"invoice": 7}), lambda key: 1, tx=connection)

        with pytest.raises(CallBlocked):
            here.executor.run(run.call(spec, {"invoice": 7}), lambda key: 2, tx=connection)


def test_a_connection_that_gives_rows_as_dicts_will_do(here: Setup, books: Books) -> None:
    with books.connect() as connection:
        if books.kind == "sqlite":
            connection.row_factory = sqlite3.Row
        else:
            from psycopg.rows import dict_row

            connection.row_factory = dict_row

        here.book(connection)

        assert here.book(connection).outcome == "replayed"


def test_a_connection_in_autocommit_mode_will_do(here: Setup, books: Books) -> None:
    given = {"isolation_level": None} if books.kind == "sqlite" else {"autocommit": True}
    with books.connect(**given) as connection:
        with pytest.raises(ZeroDivisionError):
            here.book(connection, trouble=ZeroDivisionError())

        assert here.book(connection).outcome == "executed"

    assert books.count() == 1


def test_a_second_transaction_waits_for_the_first_and_gets_its_result(here: Setup, books: Books) -> None:
    with books.connect() as first, books.connect() as second:
        first.execute("INSERT INTO bookings VALUES ('one')")
        here.book(first)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            first.commit()

        assert here.book(second).outcome == "replayed"


def test_a_locked_database_runs_nothing(here: Setup, tmp_path: Path) -> None:
    books = Books("sqlite", str(tmp_path / "books.db"))
    with books.connect() as holder, contextlib.closing(sqlite3.connect(books.where, timeout=0.01)) as connection:
        holder.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="locked"):
            here.book(connection)

    assert here.ran == 0


def test_a_tool_that_commits_by_itself_is_told(here: Setup, tmp_path: Path) -> None:
    books = Books("sqlite", str(tmp_path / "books.db"))
    call = RunEffects(run_id="run").call(EffectSpec(tool="book"), {})
    with books.connect() as connection, pytest.raises(StoreError, match="leave that to the caller"):
        here.executor.run(call, lambda key: connection.commit(), tx=connection)


def test_another_kind_of_connection_is_refused(here: Setup) -> None:
    with pytest.raises(ConfigError, match=r"sqlite3\.Connection or a psycopg\.Connection"):
        here.book(object())


def test_the_record_is_seen_by_a_ledger_on_the_same_database(here: Setup, books: Books) -> None:
    from otel_agentguard.stores import open_ledger

    with books.connect() as connection:
        here.book(connection)

    ledger = open_ledger(f"sqlite:///{books.where}" if books.kind == "sqlite" else books.where)
    assert [record.tool for record in ledger.list()] == ["book"]
    ledger.close()


def test_observing_runs_the_body_in_the_transaction_whatever_the_record_says(here: Setup, books: Books) -> None:
    call_spec = EffectSpec(tool="book")
    with books.connect() as connection:
        for _ in range(2):
            call = RunEffects(run_id="run").call(call_spec, {"invoice": 7})
            here.executor.run(
                call,
                lambda key: connection.execute("INSERT INTO bookings VALUES ('seven')") and None,
                tx=connection,
                enforce=False,
            )

    assert books.count() == 2


def test_a_record_that_cannot_be_completed_undoes_the_effect_and_is_not_kept_for_later(
    here: Setup, tmp_path: Path
) -> None:
    books = Books("sqlite", str(tmp_path / "books.db"))
    with books.connect() as connection:

        def body(key: str) -> None:
            connection.execute("INSERT INTO bookings VALUES ('seven')")
            connection.execute("ALTER TABLE agentguard_effects RENAME TO elsewhere")

        call = RunEffects(run_id="run").call(EffectSpec(tool="book"), {})
        with pytest.raises(StoreError):
            here.executor.run(call, body, tx=connection)

    assert books.count() == 0
    assert here.executor.settle_parked() == 0
