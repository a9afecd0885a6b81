"""Cached answers through the public decorator."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard import AgentGuard, CallBlocked, Effect, RunAborted, fresh, install, run, tool
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.testing import RecordingSink


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
def guard(sink: RecordingSink, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentGuard]:
    monkeypatch.delenv("AGENTGUARD_MODE", raising=False)
    with install(sinks=[sink]) as made:
        yield made


class Reader:
    """A declared tool that reads files, and counts."""

    def __init__(self, **options: Any) -> None:
        self.count = 0

        @tool(effect=Effect.READ, touches=lambda path: [path], **options)
        def read_file(path: str) -> str:
            self.count += 1
            return Path(path).read_text()

        self.read: Callable[[str], str] = read_file


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "a.txt"
    path.write_text("alpha")
    return str(path)


@pytest.mark.usefixtures("guard")
def test_a_declared_read_is_answered_from_what_is_known(file: str, sink: RecordingSink) -> None:
    reader = Reader()

    with run() as r:
        results = [reader.read(file) for _ in range(2)]
        notes = r.notes()
        Path(file).write_text("omega")
        results.append(reader.read(file))

    assert results == ["alpha", "alpha", "omega"]
    assert reader.count == 2
    assert [call.served_from for call in sink.events] == [None, "cache", None]  # type: ignore[attr-defined]
    assert any("Same call as step 1" in note for note in notes)
    assert sink.failures == []


@pytest.mark.usefixtures("guard")
def test_a_note_stands_at_the_head_of_a_result_that_takes_it_inline(file: str) -> None:
    reader = Reader(notes="inline")

    with run():
        reader.read(file)
        again = reader.read(file)

    assert again.startswith("[agentguard] Same call as step 1")
    assert again.endswith("\nalpha")


@pytest.mark.usefixtures("guard")
def test_a_coroutine_is_answered_too() -> None:
    count = 0

    @tool(effect="read", ttl_s=60)
    async def search(query: str) -> list[str]:
        nonlocal count
        count += 1
        await asyncio.sleep(0.01)
        return [query]

    async def main() -> list[list[str]]:
        async with run():
            return [*await asyncio.gather(*(search("x") for _ in range(50))), await search("x")]

    assert asyncio.run(main()) == [["x"]] * 51
    assert count == 1


@pytest.mark.usefixtures("guard")
def test_threads_of_one_run_share_one_execution() -> None:
    count, opened = 0, threading.Event()

    @tool(effect="pure")
    def slow(n: int) -> int:
        nonlocal count
        count += 1
        opened.wait(10)
        return n

    with run() as r, ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(r.bind(slow), 7) for _ in range(8)]
        threading.Timer(0.2, opened.set).start()

        assert [future.result() for future in futures] == [7] * 8
    assert count == 1


@pytest.mark.usefixtures("guard")
def test_fresh_goes_past_what_is_known(file: str) -> None:
    reader = Reader()

    with run():
        reader.read(file)
        reader.read(file)
        assert reader.count == 1
        with fresh():
            reader.read(file)

    assert reader.count == 2


@pytest.mark.usefixtures("guard")
def test_an_undeclared_tool_in_between_makes_a_name_be_read_again() -> None:
    state, asked = {"stock": 3}, []

    @tool(effect="read", touches=lambda item: [item])
    def stock(item: str) -> int:
        asked.append(item)
        return state[item]

    @tool
    def sell() -> None:
        state["stock"] -= 1

    with run():
        assert [stock("stock"), stock("stock")] == [3, 3]
        assert len(asked) == 1
        sell()
        assert stock("stock") == 2


def test_a_call_that_waited_for_another_one_does_not_run_after_a_stop(guard: AgentGuard, sink: RecordingSink) -> None:
    ran: list[int] = []
    entered, opened = threading.Event(), threading.Event()

    @tool(effect="read", touches=["x"])
    def slow() -> list[object]:
        ran.append(1)
        entered.set()
        opened.wait(10)
        return [iter(())]  # nothing that could be shared, so the other one would have to run

    finding = Finding(
        check="loop", kind=Kind.LOOP, severity=Severity.ERROR, step=1, signature=b"s", message="", explanation="x",
        action=Action.STOP,
    )  # fmt: skip
    with pytest.raises(RunAborted), run() as r, ThreadPoolExecutor(2) as pool:
        first = pool.submit(r.bind(slow))
        entered.wait(10)
        second = pool.submit(r.bind(slow))
        threading.Event().wait(0.1)
        live = guard.engine.find(r.run_id)
        assert live is not None
        guard.engine.stop(live, finding)
        opened.set()
        for future in (first, second):
            future.exception()

    assert ran == [1]
    assert sink.executed_after == []


@pytest.mark.usefixtures("guard")
def test_the_hints_of_a_run_name_what_was_read(file: str) -> None:
    reader = Reader()

    with run() as r:
        reader.read(file)
        r.visit(file, purpose="find the first letter", summary="it is alpha")  # type: ignore[attr-defined]
        text = r.hints()

    assert f"- {file}: read once" in text
    assert "it is alpha" in text


def test_without_the_dedup_check_every_read_runs(file: str) -> None:
    reader = Reader()
    with install(checks=["loop"]), run() as r:
        assert [reader.read(file) for _ in range(2)] == ["alpha", "alpha"]
        r.visit(file, purpose="find the hash")
        assert reader.count == 2
        assert "find the hash" in r.hints()


@pytest.mark.parametrize("checks", [("loop",), ("loop", "dedup")])
def test_a_stop_survives_a_restart(tmp_path: Path, checks: tuple[str, ...]) -> None:
    store = f"sqlite:///{tmp_path}/agentguard.db"

    @tool
    def again() -> str:
        return "same"

    with install(store=store, checks=checks), pytest.raises(RunAborted), run("ticket-42"):
        for _ in range(10):
            with contextlib.suppress(CallBlocked):
                again()

    with install(store=store, checks=checks), pytest.raises(RunAborted), run("ticket-42"):
        pass
    with install(store=store, checks=checks) as guard:
        assert guard.release("ticket-42") is True
    with install(store=store, checks=checks), run("ticket-42"):
        assert again() == "same"
