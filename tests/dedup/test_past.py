"""What one session leaves for the next, and how it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard.config import Settings
from otel_agentguard.dedup.dedup import Dedup, make_dedup
from otel_agentguard.dedup.past import EarlierCall
from otel_agentguard.events import Effect, Outcome, ToolCall
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.notes import Audience
from otel_agentguard.protocols import RunInfo, Store
from otel_agentguard.stores.notes import open_notes
from otel_agentguard.testing import ManualClock, tool_call


class Sessions:
    """Sessions that come one after the other on one store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock()
        self.memory: Store | None = None
        self.opened: list[Dedup] = []

    def store(self) -> Store:
        if self.url == "memory://" and self.memory is not None:
            return self.memory
        self.memory = open_notes(self.url, now_s=self.clock)
        return self.memory

    def begin(self, *, store_content: bool = False, **more: Any) -> Session:
        store = self.store()
        settings = Settings(store_content=store_content)
        dedup = make_dedup(settings, store=store, key=store.secret(), now_s=self.clock, timeout_s=10, **more)
        self.opened.append(dedup)
        return Session(dedup, RunInfo(run_id=f"run-{len(self.opened)}", agent="agent", settings=settings))

    def close(self) -> None:
        for dedup in self.opened:
            dedup.close()


class Session:
    def __init__(self, dedup: Dedup, run: RunInfo) -> None:
        self.dedup = dedup
        self.run = run
        self.step = 0

    def call(
        self, tool: str, arguments: dict[str, object], result: object = "x", **given: object
    ) -> EarlierCall | None:
        """One call as a seam makes it; what an earlier session knows of it."""
        call = self.event(tool, arguments, result, **given)
        assert self.dedup.past is not None
        earlier = self.dedup.past.earlier(self.run, call)
        self.dedup.stepped(self.run, call)
        return earlier

    def event(self, tool: str, arguments: dict[str, object], result: object = "x", **given: object) -> ToolCall:
        self.step += 1
        effect = given.pop("effect", Effect.READ)
        call = tool_call(tool, arguments, result, step=self.step, effect=effect)  # type: ignore[arg-type]
        for name, value in given.items():
            setattr(call, name, value)
        return call

    def end(self) -> None:
        self.dedup.close()


@pytest.fixture(params=["memory", "sqlite"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sessions]:
    found = Sessions("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/notes.db")
    yield found
    found.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "auth.py"
    path.write_text("md5")
    return path


def read(session: Session, file: Path, **more: object) -> EarlierCall | None:
    return session.call("read", {"path": str(file), **more}, touches=(str(file),))


def test_a_call_of_an_earlier_session_is_known_at_the_first_equal_call(sessions: Sessions, file: Path) -> None:
    first = sessions.begin()
    assert read(first, file) is None
    assert read(first, file) is None
    first.end()
    sessions.clock.advance(2 * 86_400 + 60)

    second = sessions.begin()
    earlier = read(second, file)

    assert earlier is not None
    assert (earlier.match, earlier.freshness, earlier.call.count, earlier.call.status) == ("same", "fresh", 2, "ok")
    assert second.dedup.past is not None
    note = second.dedup.past.note(earlier)
    assert "2 days ago" in note
    assert "2 times in all" in note
    assert "unchanged" in note
    assert read(second, file) is None


def test_a_change_since_makes_it_stale(sessions: Sessions, file: Path) -> None:
    first = sessions.begin()
    read(first, file)
    first.end()

    file.write_text("sha256")

    earlier = read(sessions.begin(), file)
    assert earlier is not None
    assert earlier.freshness == "stale"


def test_the_same_content_again_is_fresh_whatever_its_times(sessions: Sessions, file: Path) -> None:
    first = sessions.begin()
    read(first, file)
    first.end()

    file.unlink()
    file.write_text("md5")

    earlier = read(sessions.begin(), file)
    assert earlier is not None
    assert earlier.freshness == "fresh"


def test_what_is_no_file_is_of_unknown_freshness_and_what_is_pure_is_fresh(sessions: Sessions) -> None:
    first = sessions.begin()
    first.call("search", {"q": "hash"})
    first.call("sum", {"a": 1}, effect=Effect.PURE)
    first.end()

    second = sessions.begin()
    searched, summed = second.call("search", {"q": "hash"}), second.call("sum", {"a": 1}, effect=Effect.PURE)

    assert searched is not None
    assert searched.freshness == "unknown"
    assert summed is not None
    assert summed.freshness == "fresh"


def test_another_call_on_the_same_file_is_like_it(sessions: Sessions, file: Path) -> None:
    first = sessions.begin()
    read(first, file, first=1, last=9)
    first.end()

    earlier = read(sessions.begin(), file, first=40, last=60)

    assert earlier is not None
    assert earlier.match == "resource"


@pytest.mark.parametrize(
    ("query", "is_like"),
    [
        ("where is the md5 hash of the password computed in auth", True),
        ("where is the salt of the password checked", False),
        ("what is the weather", False),
    ],
)
def test_a_call_in_nearly_the_same_words_is_like_it(sessions: Sessions, query: str, is_like: bool) -> None:
    first = sessions.begin()
    first.call("search", {"q": "where is the md5 hash of the password computed"})
    first.end()

    earlier = sessions.begin().call("search", {"q": query})

    assert (earlier is not None and earlier.match == "similar") is is_like


def test_equal_words_for_another_tool_are_not_alike(sessions: Sessions) -> None:
    first = sessions.begin()
    first.call("search", {"q": "md5 hash"})
    first.end()

    assert sessions.begin().call("delete", {"q": "md5 hash"}) is None


def test_a_failure_of_an_earlier_session_is_told(sessions: Sessions) -> None:
    first = sessions.begin()
    first.call("search", {"q": "x"}, "down", outcome=Outcome.FAILED)
    first.end()

    second = sessions.begin()
    earlier = second.call("search", {"q": "x"})

    assert second.dedup.past is not None
    assert "it ended: failed" in second.dedup.past.note(earlier)


def test_what_this_run_did_itself_is_no_earlier_session(sessions: Sessions, file: Path) -> None:
    session = sessions.begin()
    read(session, file, first=1)
    session.dedup.past.visits(session.run)  # type: ignore[union-attr] - waits until the notes are written

    assert read(session, file, first=2) is None


def test_calls_that_write_get_no_note(sessions: Sessions) -> None:
    for _ in range(2):
        session = sessions.begin()
        assert session.call("mail", {"to": "a"}, effect=Effect.SIDE_EFFECT) is None
        session.end()


def test_answers_that_were_given_and_refusals_are_not_noted(sessions: Sessions) -> None:
    first = sessions.begin()
    first.call("search", {"q": "x"}, served_from="cache")
    first.call("search", {"q": "y"}, refused=True)
    first.call("search", {"q": "z"}, outcome=Outcome.NOT_EXECUTED)
    first.end()

    second = sessions.begin()
    assert [second.call("search", {"q": q}) for q in "xyz"] == [None, None, None]


def test_what_was_read_is_listed_with_count_purpose_and_summary(sessions: Sessions, file: Path) -> None:
    first = sessions.begin(store_content=True)
    read(first, file)
    read(first, file)
    first.dedup.visit(first.run, str(file), purpose="find the hash", summary="uses md5")
    first.end()

    second = sessions.begin(store_content=True)
    assert second.dedup.past is not None
    (visit,) = second.dedup.past.visits(second.run, [str(file)])

    assert (visit.name, visit.count, visit.purpose, visit.summary) == (str(file), 2, "find the hash", "uses md5")
    assert "uses md5" in second.dedup.past.note(read(second, file))


def test_by_default_no_content_is_stored(sessions: Sessions, file: Path) -> None:
    first = sessions.begin()
    first.call("read", {"path": str(file), "secret": "hunter2"}, "the password is swordfish", touches=(str(file),))
    first.dedup.visit(first.run, str(file), purpose="find hunter2", summary="swordfish")
    first.end()

    second = sessions.begin()
    assert second.dedup.past is not None
    (visit,) = second.dedup.past.visits(second.run)
    earlier = second.call("read", {"path": str(file), "secret": "hunter2"}, touches=(str(file),))
    assert earlier is not None
    stored = repr((visit, earlier.call))
    for content in ("hunter2", "swordfish", file.name, "password"):
        assert content not in stored
    if sessions.url != "memory://":
        data = b"".join(path.read_bytes() for path in file.parent.glob("notes.db*"))
        assert b"swordfish" not in data
        assert b"hunter2" not in data
        assert file.name.encode() not in data


def test_content_is_redacted_and_cut_before_it_is_stored(sessions: Sessions) -> None:
    first = sessions.begin(store_content=True, redact=lambda text: text.replace("swordfish", "[redacted]"))
    first.call("search", {"q": "x"}, "the password is swordfish " + "y" * 5_000)
    first.dedup.visit(first.run, "vault", purpose="get swordfish", summary="swordfish" * 500)
    first.end()

    second = sessions.begin(store_content=True)
    earlier = second.call("search", {"q": "x"})
    assert second.dedup.past is not None
    (visit,) = second.dedup.past.visits(second.run, ["vault"])

    assert earlier is not None
    assert earlier.call.excerpt is not None
    assert len(earlier.call.excerpt) <= 500
    assert "the password is [redacted]" in earlier.call.excerpt
    assert "swordfish" not in repr(visit)
    assert len(visit.summary or "") <= 1_000


def test_where_redaction_fails_nothing_is_stored_and_that_is_counted(sessions: Sessions) -> None:
    failures: list[str] = []

    def broken(text: str) -> str:
        raise ValueError(text)

    first = sessions.begin(store_content=True, redact=broken, failed=lambda where, exc: failures.append(where))
    first.dedup.visit(first.run, "vault", summary="swordfish")
    first.end()

    second = sessions.begin()
    (visit,) = second.dedup.past.visits(second.run)  # type: ignore[union-attr]
    assert (visit.name, visit.summary) == (None, None)
    assert "redact" in failures


def test_other_tenants_and_principals_see_nothing(sessions: Sessions) -> None:
    def begin(tenant: str, principal: str) -> Session:
        return sessions.begin(audience_of=lambda run: Audience(tenant=tenant, principal=principal))

    first = begin("acme", "ada")
    first.call("search", {"q": "x"})
    first.dedup.visit(first.run, "vault")
    first.end()

    for tenant, principal in (("acme", "bob"), ("other", "ada"), ("acme ada", "")):
        other = begin(tenant, principal)
        assert other.call("search", {"q": "x"}) is None
        assert list(other.dedup.past.visits(other.run)) == []  # type: ignore[union-attr]
        other.run = replace_id(other.run, f"{tenant}-{principal}")
        other.end()
    assert begin("acme", "ada").call("search", {"q": "x"}) is not None


def replace_id(run: RunInfo, run_id: str) -> RunInfo:
    return replace(run, run_id=run_id)


def test_another_namespace_sees_nothing(sessions: Sessions) -> None:
    first = sessions.begin()
    first.call("search", {"q": "x"})
    first.end()

    second = sessions.begin()
    second.run.settings = Settings(namespace="other")

    assert second.call("search", {"q": "x"}) is None


def test_coroutines_are_told_too(sessions: Sessions) -> None:
    first = sessions.begin()
    first.call("search", {"q": "x"})
    first.end()

    second = sessions.begin()
    assert second.dedup.past is not None
    earlier = asyncio.run(second.dedup.past.earlier_async(second.run, second.event("search", {"q": "x"})))

    assert earlier is not None


def test_a_stop_survives_a_restart_until_it_is_released(sessions: Sessions) -> None:
    finding = Finding(
        check="loop",
        kind=Kind.LOOP,
        severity=Severity.ERROR,
        step=9,
        signature=b"s" * 16,
        message="",
        explanation="read gave the same result 7 times",
        action=Action.STOP,
    )
    first = sessions.begin()
    first.run.conversation = "talk"
    assert first.dedup.marks is not None
    first.dedup.marks.stopped(first.run, finding)
    first.end()

    marks = sessions.begin().dedup.marks
    assert marks is not None
    found = marks.find("run-1")
    assert found is not None
    assert found.finding == finding
    assert marks.find(None, "talk") == found
    assert asyncio.run(marks.look_async("run-1")) == (True, found)
    assert [mark.run_id for mark in marks.list()] == ["run-1"]

    assert marks.release("run-1") is True

    assert marks.find("run-1", "talk") is None
    assert list(marks.list()) == []


def test_without_a_store_there_is_no_past() -> None:
    dedup = make_dedup(Settings())
    run = RunInfo(run_id="r", agent="a", settings=Settings())

    dedup.visit(run, "x", summary="y")
    dedup.stepped(run, tool_call("search"))
    dedup.close()

    assert (dedup.past, dedup.marks) == (None, None)
