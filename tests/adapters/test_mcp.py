"""MCP under guard: clients over stdio, HTTP and in memory, and servers."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'otel-agentguard[mcp]'")

from adapters.conftest import Installing
from adapters.contract_suite import Counted
from adapters.mcp_servers import serving
from mcp import Client
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import ToolAnnotations
from pydantic import BaseModel

from otel_agentguard import Effect, RunAborted, run, tool, unguarded
from otel_agentguard.adapters.attaching import adapters
from otel_agentguard.events import Outcome, ToolCall
from otel_agentguard.findings import Kind
from otel_agentguard.testing import RecordingSink

NOTE = "[agentguard]"
PATCHED = [(ClientSession, "call_tool"), (ClientSession, "list_tools"), (Client, "__aexit__"), (Tool, "run")]
STDIO = StdioServerParameters(
    command=sys.executable, args=[str(Path(__file__).resolve().parents[2] / "examples" / "mcp_server.py")]
)


def made(function: Any, **options: Any) -> MCPServer:
    server = MCPServer("srv")
    server.tool(**options)(function)
    return server


async def ask(client: Any, rounds: int, name: str = "lookup", **arguments: Any) -> list[Any]:
    return [await client.call_tool(name, arguments or {"q": "x"}) for _ in range(rounds)]


def texts(results: list[Any]) -> list[str]:
    return ["\n".join(block.text for block in result.content) for result in results]


async def asked(server: Any, rounds: int, **arguments: Any) -> list[Any]:
    async with Client(server) as client:
        return await ask(client, rounds, **arguments)


def calls(sink: RecordingSink) -> list[ToolCall]:
    return [event for event in sink.events if isinstance(event, ToolCall)]


@pytest.fixture
def serverside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client in the same process tells of its calls itself; here it is taken for one that has no guard."""
    from otel_agentguard.adapters import mcp

    monkeypatch.setattr(mcp, "is_under_way", lambda name, arguments: False)
    monkeypatch.setattr(mcp, "_call_tool", _straight)


async def _straight(wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
    return await wrapped(*args, **kwargs)


def test_it_attaches_once_and_detaching_restores_what_was_there(installing: Installing) -> None:
    before = [vars(owner)[name] for owner, name in PATCHED]

    guard = installing()
    once = [vars(owner)[name] for owner, name in PATCHED]
    assert guard.guard is not None
    adapters()["mcp"].attach(guard.guard)
    twice = [vars(owner)[name] for owner, name in PATCHED]
    guard.shutdown()

    assert all(new is not old for new, old in zip(once, before, strict=True))
    assert all(new is old for new, old in zip(twice, once, strict=True))
    assert [vars(owner)[name] for owner, name in PATCHED] == before


def test_a_setting_leaves_it_out(installing: Installing, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [vars(owner)[name] for owner, name in PATCHED]
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "mcp")

    installing()

    assert [vars(owner)[name] for owner, name in PATCHED] == before


def test_a_looping_client_is_told_and_its_run_is_stopped(installing: Installing, sink: RecordingSink) -> None:
    counted = Counted()
    got: list[Any] = []
    installing()

    async def loop() -> None:
        async with Client(made(counted.function)) as client, run("ticket-42"):
            for _ in range(20):
                got.extend(await ask(client, 1))

    with pytest.raises(RunAborted) as stop:
        asyncio.run(loop())

    assert stop.value.run_id == "ticket-42"
    assert counted.calls == 4
    assert [NOTE in text for text in texts(got)] == [False, False, True, False, True, True]
    assert [result.is_error for result in got] == [False] * 4 + [True] * 2
    assert sink.executed_after == []
    assert sink.failures == []


def test_a_stop_leaves_the_connection_as_itself_and_other_errors_as_ever(installing: Installing) -> None:
    installing()

    async def loop() -> None:
        async with Client(made(Counted().function)) as client:
            await ask(client, 20)

    async def fail() -> None:
        async with Client(made(Counted().function)):
            raise ValueError("mine")

    with pytest.raises(RunAborted):
        asyncio.run(loop())
    with pytest.raises(ExceptionGroup):
        asyncio.run(fail())


def test_a_call_counts_once_where_client_and_server_share_a_process(
    installing: Installing, sink: RecordingSink
) -> None:
    installing()

    async def within() -> None:
        async with run("r"), Client(made(Counted().function)) as client:
            await ask(client, 1)

    asyncio.run(within())

    assert [(one.tool, one.arguments, one.outcome) for one in calls(sink)] == [("lookup", {"q": "x"}, Outcome.OK)]


def test_results_and_errors_pass_unchanged(installing: Installing, sink: RecordingSink) -> None:
    def lookup(q: str) -> str:
        """Look something up."""
        if q == "x":
            raise ToolError("no x today")
        if q == "crash":
            raise ValueError("a secret")
        return q

    async def all_of_them() -> list[Any]:
        async with Client(made(lookup)) as client:
            return [await client.call_tool("lookup", {"q": q}) for q in ("a", "x", "crash")]

    plain = asyncio.run(all_of_them())
    installing()
    guarded = asyncio.run(all_of_them())

    assert guarded == plain
    assert [one.outcome for one in calls(sink)] == [Outcome.OK, Outcome.FAILED, Outcome.FAILED]
    assert sink.failures == []


def test_observing_runs_everything(installing: Installing, sink: RecordingSink) -> None:
    counted = Counted()
    installing(mode="observe")

    async def loop() -> list[Any]:
        async with run("r"):
            return await asked(made(counted.function), 9)

    got = asyncio.run(loop())

    assert counted.calls == 9
    assert not any(NOTE in text for text in texts(got))
    assert Kind.LOOP in {finding.kind for finding, _ in sink.findings}
    assert {mode for _, mode in sink.findings} == {"observe"}


def test_what_passes_the_guard_is_let_alone(installing: Installing, sink: RecordingSink) -> None:
    counted = Counted()
    installing()

    with unguarded():
        asyncio.run(asked(made(counted.function), 9))

    assert counted.calls == 9
    assert sink.findings == []


def test_of_two_clients_only_the_looping_one_is_stopped(installing: Installing) -> None:
    installing()

    async def one(name: str, queries: list[str]) -> str:
        async with run(name), Client(made(Counted(is_async=True).function)) as client:
            for q in queries:
                await client.call_tool("lookup", {"q": q})
        return "done"

    async def both() -> list[Any]:
        working = ["height of Mont Blanc", "who wrote Middlemarch", "boiling point of ethanol", "capital of Peru"]
        return await asyncio.gather(one("a", ["x"] * 12), one("b", working), return_exceptions=True)

    looping, healthy = asyncio.run(both())

    assert isinstance(looping, RunAborted)
    assert healthy == "done"


def test_annotations_that_were_listed_say_what_a_tool_does(installing: Installing, sink: RecordingSink) -> None:
    installing()
    server = made(Counted().function, annotations=ToolAnnotations(read_only_hint=True))

    async def listed() -> None:
        async with Client(server) as client:
            await ask(client, 1, q="before")
            await client.list_tools()
            await ask(client, 1, q="after")

    asyncio.run(listed())

    assert [one.effect for one in calls(sink)] == [Effect.UNKNOWN, Effect.READ]


class Place(BaseModel):
    shelf: int


def test_a_note_stands_beside_a_structured_result(installing: Installing) -> None:
    def lookup(q: str) -> Place:
        """Look something up."""
        return Place(shelf=12)

    installing()

    async def three() -> list[Any]:
        async with run("r"):
            return await asked(made(lookup), 5)

    got = asyncio.run(three())

    assert got[2].content[0].text.startswith(NOTE)
    assert got[2].structured_content == {"shelf": 12}
    assert got[4].is_error


def test_a_client_over_stdio_is_guarded_and_so_is_its_server(installing: Installing, sink: RecordingSink) -> None:
    installing()

    async def loop() -> None:
        async with Client(STDIO) as client, run("stdio"):
            await ask(client, 20, "find_book", title="Middlemarch")

    with pytest.raises(RunAborted):
        asyncio.run(loop())

    assert len(calls(sink)) == 7


def test_a_server_over_stdio_refuses_a_client_without_a_guard() -> None:
    async def loop() -> list[Any]:
        async with Client(STDIO) as client:
            return await ask(client, 9, "find_book", title="Middlemarch")

    got = asyncio.run(loop())

    assert [result.is_error for result in got] == [False] * 4 + [True] * 5
    assert got[2].content[0].text.startswith(NOTE)


def test_a_client_over_http_is_guarded(installing: Installing) -> None:
    counted = Counted()
    installing()

    async def loop(url: str) -> None:
        async with Client(url) as client, run("http"):
            await ask(client, 20)

    with serving(made(counted.function).streamable_http_app()) as url, pytest.raises(RunAborted):
        asyncio.run(loop(url))

    assert counted.calls == 4


@pytest.mark.usefixtures("serverside")
def test_a_server_refuses_repeats_and_stays_up_for_other_calls(installing: Installing, sink: RecordingSink) -> None:
    counted = Counted()
    server = made(counted.function)
    installing()

    async def loop() -> tuple[list[Any], list[Any]]:
        async with Client(server) as client:
            return await ask(client, 12), await ask(client, 1, q="other")

    repeated, other = asyncio.run(loop())

    assert [result.is_error for result in repeated] == [False] * 4 + [True] * 8
    assert NOTE in texts(repeated)[2]
    assert not other[0].is_error
    assert counted.calls == 5
    assert sink.executed_after == []


@pytest.mark.usefixtures("serverside")
def test_a_declared_tool_of_a_server_counts_once(installing: Installing, sink: RecordingSink) -> None:
    sent: list[str] = []

    @tool(effect=Effect.SIDE_EFFECT)
    def send(q: str) -> str:
        """Send a text."""
        sent.append(q)
        return f"sent {q}"

    installing()

    got = asyncio.run(asked(made(send), 2, name="send", q="x"))

    assert sent == ["x"]
    assert [one.effect for one in calls(sink)] == [Effect.SIDE_EFFECT] * 2
    assert Kind.DUPLICATE_SIDE_EFFECT in [found.kind for found, _ in sink.findings]
    assert all("sent x" in text for text in texts(got))


@pytest.mark.usefixtures("serverside")
def test_annotations_of_a_server_tool_say_what_it_does(installing: Installing, sink: RecordingSink) -> None:
    installing()
    hints = ToolAnnotations(read_only_hint=False, open_world_hint=True)

    asyncio.run(asked(made(Counted().function, annotations=hints), 1))

    assert [one.effect for one in calls(sink)] == [Effect.SIDE_EFFECT]


@pytest.mark.usefixtures("serverside")
def test_nothing_of_the_guard_ends_a_server(installing: Installing) -> None:
    guard = installing()
    started = threading.Event()

    def lookup(q: str) -> str:
        """Look something up."""
        started.set()
        with run("inner"):
            for one in guard.engine.runs():
                guard.release(one.run_id)
        return q

    got = asyncio.run(asked(made(lookup), 12))

    assert started.is_set()
    assert len(got) == 12
