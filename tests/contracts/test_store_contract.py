"""What every store of notes promises, over every store."""

from __future__ import annotations

import secrets
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard.errors import ConfigError, StoreError
from otel_agentguard.findings import Action, Finding, Kind, Limits, Severity
from otel_agentguard.notes import LoggedCall, Retention, StopMark, Visit, finding_from_json, finding_to_json
from otel_agentguard.protocols import Store
from otel_agentguard.stores.notes import open_notes
from otel_agentguard.testing import ManualClock

STORES = ["memory", "sqlite", "postgresql", "redis"]
HERE, THERE = "a" * 32, "b" * 32


class Place:
    """Somewhere to keep notes, opened as often as a test likes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock()
        self._opened: list[Store] = []

    def open(self, **retention: Any) -> Store:
        if self.url == "memory://" and self._opened:
            return self._opened[0]
        store = open_notes(self.url, now_s=self.clock, wait_s=5.0, retention=Retention(**retention))
        self._opened.append(store)
        return store

    @property
    def is_shared(self) -> bool:
        return self.url != "memory://"

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/agentguard.db"
        case "postgresql":
            url = own_database(request.getfixturevalue("postgres_server").url())
        case _:
            url = request.getfixturevalue("redis_server").url().removesuffix("/0") + "/7"
            flush(url)
    here = Place(url)
    yield here
    here.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def own_database(url: str) -> str:
    import psycopg

    name = f"notes_{secrets.token_hex(6)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"{url.rpartition('/')[0]}/{name}"


def flush(url: str) -> None:
    import redis

    client = redis.Redis.from_url(url)
    client.flushdb()
    client.close()


def visit(resource: str = "r1", at_s: float = 1_700_000_000.0, **given: Any) -> Visit:
    return Visit(**({"audience": HERE, "resource": resource, "last_s": at_s, "run_id": "run-1"} | given))


def called(call: str = "c1", at_s: float = 1_700_000_000.0, **given: Any) -> LoggedCall:
    values = {"audience": HERE, "call": call, "tool": "read", "at_s": at_s, "status": "ok", "run_id": "run-1"}
    return LoggedCall(**(values | given))


FINDING = Finding(
    check="loop",
    kind=Kind.CYCLE,
    severity=Severity.ERROR,
    step=9,
    signature=b"\0" * 16,
    message="a note “to” the model",
    explanation="it went round",
    action=Action.STOP,
    limits=Limits(3, 4, None),
    evidence=(1, 5, 9),
    agent="coder",
    tool="read",
    count=5,
    score=0.5,
)


def mark(run_id: str = "run-1", **given: Any) -> StopMark:
    return StopMark(
        **({"run_id": run_id, "finding": FINDING, "stopped_s": 1_700_000_000.0, "namespace": "app"} | given)
    )


def test_a_visit_comes_back_as_it_was_kept(store: Store) -> None:
    kept = visit(name="src/ä.py", version="v1", purpose="find it", summary="it's here", first_s=1_699_999_999.5)

    store.record([kept], [])

    assert store.visits(HERE) == [kept]


def test_a_visit_without_content_has_none_later(store: Store) -> None:
    store.record([visit()], [])

    (found,) = store.visits(HERE)
    assert (found.name, found.version, found.purpose, found.summary) == (None, None, None, None)


def test_visits_of_one_resource_add_up(store: Store) -> None:
    store.record([visit(version="v1", name="a.py", purpose="look", summary="short")], [])
    store.record([visit(at_s=1_700_000_050.0, run_id="run-2", version="v2", count=2)], [])
    store.record([visit(at_s=1_700_000_060.0, run_id="run-3", summary="long")], [])

    (found,) = store.visits(HERE)
    assert found == visit(
        at_s=1_700_000_060.0,
        first_s=1_700_000_000.0,
        count=4,
        run_id="run-3",
        version=None,
        name="a.py",
        purpose="look",
        summary="long",
    )


def test_several_visits_of_one_resource_in_one_record_add_up(store: Store) -> None:
    store.record([visit(), visit(at_s=1_700_000_001.0)], [])

    assert [found.count for found in store.visits(HERE)] == [2]


def test_visits_are_given_latest_first_and_no_more_than_asked_for(store: Store) -> None:
    store.record([visit(f"r{n}", at_s=1_700_000_000.0 + n) for n in range(5)], [])

    assert [found.resource for found in store.visits(HERE, limit=3)] == ["r4", "r3", "r2"]


def test_visits_can_be_asked_for_by_resource(store: Store) -> None:
    store.record([visit(f"r{n}", at_s=1_700_000_000.0 + n) for n in range(5)], [])

    assert [found.resource for found in store.visits(HERE, resources=["r1", "r3", "r9"])] == ["r3", "r1"]
    assert list(store.visits(HERE, resources=[])) == []


def test_an_audience_sees_only_its_own(store: Store) -> None:
    store.record(
        [visit(), visit(audience=THERE, summary="theirs")], [called(), called(audience=THERE, status="failed")]
    )

    assert [found.summary for found in store.visits(HERE)] == [None]
    assert [found.status for found in store.calls(HERE, call="c1")] == ["ok"]
    assert [found.status for found in store.calls(HERE, tool="read")] == ["ok"]
    assert list(store.visits("c" * 32)) == []


def test_a_call_comes_back_as_it_was_kept(store: Store) -> None:
    kept = called(
        tool="mcp:files/read",
        resources=("r1", "r2"),
        tokens=frozenset({0, 7, 2**32 - 1}),
        result="d" * 32,
        version="v1",
        pure=True,
        excerpt="it says “ä”",
        status="failed",
    )

    store.record([], [kept])

    assert store.calls(HERE, call="c1") == [kept]


def test_equal_calls_add_up_and_the_latest_outcome_counts(store: Store) -> None:
    store.record([], [called(result="d1", excerpt="one", resources=("r1",))])
    store.record([], [called(at_s=1_700_000_009.0, status="failed", run_id="run-2", resources=("r1",))])

    assert store.calls(HERE, call="c1") == [
        called(at_s=1_700_000_009.0, status="failed", run_id="run-2", count=2, resources=("r1",))
    ]


def test_calls_can_be_asked_for_by_resource_and_by_tool(store: Store) -> None:
    store.record(
        [],
        [
            called("c1", at_s=1_700_000_001.0, resources=("r1", "r2")),
            called("c2", at_s=1_700_000_002.0, resources=("r2",)),
            called("c3", at_s=1_700_000_003.0, tool="grep", resources=("r1",)),
        ],
    )

    assert [found.call for found in store.calls(HERE, resource="r1")] == ["c3", "c1"]
    assert [found.call for found in store.calls(HERE, tool="read")] == ["c2", "c1"]
    assert [found.call for found in store.calls(HERE, tool="read", limit=1)] == ["c2"]
    assert list(store.calls(HERE, resource="r9")) == []


def test_calls_are_asked_for_in_one_way_at_a_time(store: Store) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        store.calls(HERE)
    with pytest.raises(ValueError, match="exactly one"):
        store.calls(HERE, call="c1", tool="read")


def test_what_is_older_than_the_retention_is_not_shown(place: Place) -> None:
    store = place.open(seconds=60)
    store.record([visit()], [called(resources=("r1",))])

    place.clock.advance(61)

    assert list(store.visits(HERE)) == []
    assert list(store.visits(HERE, resources=["r1"])) == []
    assert list(store.calls(HERE, call="c1")) == []
    assert list(store.calls(HERE, resource="r1")) == []


def test_a_store_keeps_no_more_than_it_may(place: Place) -> None:
    store = place.open(visits=10, calls=20)
    for first in range(0, 600, 50):
        numbers = range(first, first + 50)
        store.record(
            [visit(f"r{n}", at_s=1_700_000_000.0 + n) for n in numbers],
            [called(f"c{n}", at_s=1_700_000_000.0 + n, resources=(f"r{n}",)) for n in numbers],
        )

    store.record(
        [visit(f"r{n}", at_s=1_700_001_000.0 + n) for n in range(128)],
        [called(f"c{n}", at_s=1_700_001_000.0 + n) for n in range(128)],
    )

    assert [found.resource for found in store.visits(HERE, limit=1000)] == [f"r{n}" for n in range(127, 117, -1)]
    assert len(store.calls(HERE, tool="read", limit=1000)) == 20


def test_gc_drops_what_is_older(place: Place) -> None:
    store = place.open()
    store.record([visit("old")], [called("old")])
    store.put_stop(mark("old"))
    place.clock.advance(100)
    now = place.clock.now_s
    store.record([visit("new", at_s=now)], [called("new", at_s=now)])
    store.put_stop(mark("new", stopped_s=now))

    assert store.gc(50) == 3

    assert [found.resource for found in store.visits(HERE)] == ["new"]
    assert [found.call for found in store.calls(HERE, tool="read")] == ["new"]
    assert [found.run_id for found in store.stops("app")] == ["new"]
    assert store.gc(50) == 0


def test_a_stop_is_found_by_run_and_by_conversation(store: Store) -> None:
    kept = mark(conversation="talk", event="mail-7")
    store.put_stop(kept)

    assert store.find_stop("app", run_id="run-1") == kept
    assert store.find_stop("app", conversation="talk") == kept
    assert store.find_stop("app", run_id="run-2", conversation="talk") == kept
    assert store.find_stop("app", run_id="run-2") is None
    assert store.find_stop("app", conversation="other") is None
    assert store.find_stop("app") is None
    assert store.find_stop("other app", run_id="run-1") is None


def test_a_conversation_has_its_latest_stop(store: Store) -> None:
    store.put_stop(mark("late", conversation="talk", stopped_s=1_700_000_009.0))
    store.put_stop(mark("early", conversation="talk", stopped_s=1_700_000_001.0))

    found = store.find_stop("app", conversation="talk")
    assert found is not None
    assert found.run_id == "late"


def test_stops_are_listed_latest_first(store: Store) -> None:
    for number in range(4):
        store.put_stop(mark(f"run-{number}", stopped_s=1_700_000_000.0 + number))
    store.put_stop(mark("foreign", namespace="other"))

    assert [found.run_id for found in store.stops("app", limit=3)] == ["run-3", "run-2", "run-1"]


def test_a_released_stop_is_gone(store: Store) -> None:
    store.put_stop(mark(conversation="talk"))

    assert store.release_stop("app", "run-1") is True

    assert store.find_stop("app", run_id="run-1", conversation="talk") is None
    assert list(store.stops("app")) == []
    assert store.release_stop("app", "run-1") is False


def test_a_run_that_is_stopped_again_has_one_mark(store: Store) -> None:
    store.put_stop(mark())
    later = mark(stopped_s=1_700_000_009.0, finding=replace(FINDING, step=20))
    store.put_stop(later)

    assert store.stops("app") == [later]


def test_a_finding_survives_being_written() -> None:
    assert finding_from_json(finding_to_json(FINDING)) == FINDING
    assert finding_from_json(finding_to_json(replace(FINDING, limits=None, tool=None))).limits is None
    with pytest.raises(ValueError, match="no finding"):
        finding_from_json("{}")


def test_whoever_opens_the_store_has_the_same_secret(place: Place) -> None:
    first = place.open().secret()

    assert len(first) == 32
    assert place.open().secret() == first


def test_notes_survive_closing_and_a_new_opening(place: Place) -> None:
    store = place.open()
    store.record([visit(summary="it is here")], [called()])
    store.put_stop(mark())
    store.close()

    again = place.open()

    assert [found.summary for found in again.visits(HERE)] == ["it is here"]
    assert len(again.calls(HERE, call="c1")) == 1
    assert again.find_stop("app", run_id="run-1") == mark()


def test_many_threads_record_without_losing_a_count(store: Store) -> None:
    def work(number: int) -> None:
        for _ in range(10):
            store.record([visit("shared"), visit(f"own-{number}")], [called("shared", resources=("shared",))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    assert store.visits(HERE, resources=["shared"])[0].count == 80
    assert store.calls(HERE, call="shared")[0].count == 80
    assert len(store.visits(HERE)) == 9


WORKER = """
    import sys
    from otel_agentguard.notes import LoggedCall, Visit
    from otel_agentguard.stores.notes import open_notes
    from otel_agentguard.testing import ManualClock

    store = open_notes(sys.argv[1], now_s=ManualClock(), wait_s=20.0)
    for number in range(int(sys.argv[2])):
        visits = [Visit(audience="a" * 32, resource=name, last_s=1.7e9) for name in ("r1", "r2")]
        calls = [LoggedCall(audience="a" * 32, call=name, tool="t", at_s=1.7e9, status="ok") for name in ("c1", "c2")]
        store.record(visits if number % 2 else visits[::-1], calls)
    print(store.secret().hex())
"""


def test_two_processes_share_one_store(place: Place) -> None:
    if not place.is_shared:
        pytest.skip("memory is not shared between processes")
    command = [sys.executable, "-c", textwrap.dedent(WORKER), place.url, "100"]

    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [worker.communicate(timeout=60)[0].strip() for worker in workers]

    assert [worker.returncode for worker in workers] == [0, 0]
    store = place.open()
    assert outputs == [store.secret().hex()] * 2
    assert [found.count for found in store.visits(HERE, resources=["r1", "r2"])] == [200, 200]
    assert [found.count for found in store.calls(HERE, tool="t")] == [200, 200]


def test_a_store_made_by_a_newer_version_is_refused(place: Place) -> None:
    if not place.is_shared:
        pytest.skip("memory has no version")
    place.open()
    set_version(place.url, 99)

    with pytest.raises(StoreError, match="newer version"):
        place.open()


def set_version(url: str, version: int) -> None:
    if url.startswith("redis"):
        import redis

        client = redis.Redis.from_url(url)
        client.set("agentguard:{notes}:version", version)
        client.close()
        return
    if url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute("UPDATE agentguard_notes_schema SET version = %s", (version,))
        return
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        connection.execute("UPDATE agentguard_notes_schema SET version = ?", (version,))
    connection.close()


def test_tables_of_an_older_version_are_brought_up_to_date(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if not place.url.startswith(("sqlite", "postgresql")):
        pytest.skip("has no tables")
    from otel_agentguard.stores import notes_sql

    place.open().record([visit(summary="from before")], [])
    steps = notes_sql.migrations
    added = ("ALTER TABLE agentguard_visits ADD COLUMN colour TEXT DEFAULT 'blue'",)
    monkeypatch.setattr(notes_sql, "migrations", lambda dialect: (*steps(dialect), added))

    upgraded = place.open()

    assert [found.summary for found in upgraded.visits(HERE)] == ["from before"]
    place.open()  # and this one finds nothing left to do
    monkeypatch.setattr(notes_sql, "migrations", steps)
    with pytest.raises(StoreError, match="newer version"):
        place.open()


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:////nowhere/at/all/agentguard.db", "sqlite3"),
        ("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1", "psycopg"),
        ("redis://127.0.0.1:1/0", "redis"),
    ],
)
def test_a_store_that_cannot_be_reached_says_so(url: str, driver: str) -> None:
    pytest.importorskip(driver, reason="its extra is not installed")

    with pytest.raises(StoreError):
        open_notes(url)


def test_an_unknown_store_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no store for 'ftp'; known: memory, postgresql, redis, sqlite"):
        open_notes("ftp://host/notes")


def test_a_retention_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="keeps nothing"):
        Retention(visits=0)


def test_the_ledger_and_the_notes_can_live_at_one_place(place: Place) -> None:
    from otel_agentguard.stores import open_ledger

    ledger = open_ledger(place.url)
    store = place.open()
    store.record([visit()], [])

    assert len(store.visits(HERE)) == 1
    ledger.close()


def test_the_url_of_a_store_has_no_password(redis_server: Any) -> None:
    store = open_notes(redis_server.url().replace("redis://", "redis://default:secret@"))

    assert "secret" not in store.url
    store.close()
