"""FastMCP under guard: servers, their middleware and mounts, and clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("fastmcp", reason="pip install 'otel-agentguard[fastmcp]'")

from adapters.conftest import Installing
from adapters.contract_suite import Counted
from adapters.mcp_servers import serving
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import Middleware
from mcp.types import ToolAnnotations
from pydantic import BaseModel

from otel_agentguard import Effect, RunAborted, run, tool
from otel_agentguard.adapters.attaching import adapters
from otel_agentguard.events import Outcome, ToolCall
from otel_agentguard.findings import Kind
from otel_agentguard.testing import RecordingSink

NOTE = "[agentguard]"


def made(function: Any, **options: Any) -> FastMCP:
    server = FastMCP("srv")
    server.tool(function, **options)
    return server


async def ask(client: Any, rounds: int, name: str = "lookup", **arguments: Any) -> list[Any]:
    return [await client.call_tool(name, arguments or {"q": "x"}, raise_on_error=False) for _ in range(rounds)]


async def asked(server: Any, rounds: int, **arguments: Any) -> list[Any]:
    async with Client(server) as client:
        return await ask(client, rounds, **arguments)


def texts(results: list[Any]) -> list[str]:
    return ["\n".join(block.text for block in result.content) for result in results]


def calls(sink: RecordingSink) -> list[ToolCall]:
    return [event for event in sink.events if isinstance(event, ToolCall)]


@pytest.fixture
def serverside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the server is guarded, as where a client runs elsewhere."""
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "mcp")


def test_it_attaches_once_and_detaching_restores_what_was_there(installing: Installing) -> None:
    before = vars(FastMCP)["call_tool"]

    guard = installing()
    once = vars(FastMCP)["call_tool"]
    assert guard.guard is not None
    adapters()["fastmcp"].attach(guard.guard)
    twice = vars(FastMCP)["call_tool"]
    guard.shutdown()

    assert once is not before
    assert twice is once
    assert vars(FastMCP)["call_tool"] is before


def test_a_setting_leaves_it_out(installing: Installing, monkeypatch: pytest.MonkeyPatch) -> None:
    before = vars(FastMCP)["call_tool"]
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "fastmcp")

    installing()

    assert vars(FastMCP)["call_tool"] is before


def test_a_looping_client_is_stopped_and_a_call_counts_once(installing: Installing, sink: RecordingSink) -> None:
    counted = Counted()
    installing()

    async def loop() -> None:
        async with run("ticket-42"):
            await asked(made(counted.function), 20)

    with pytest.raises(RunAborted) as stop:
        asyncio.run(loop())

    assert stop.value.run_id == "ticket-42"
    assert counted.calls == 4
    assert len(calls(sink)) == 7
    assert sink.executed_after == []
    assert sink.failures == []


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
    assert [NOTE in text for text in texts(repeated)[:5]] == [False, False, True, False, True]
    assert not other[0].is_error
    assert counted.calls == 5
    assert sink.executed_after == []


@pytest.mark.usefixtures("serverside")
def test_results_and_errors_pass_unchanged(installing: Installing, sink: RecordingSink) -> None:
    def lookup(q: str) -> str:
        """Look something up."""
        if q == "x":
            raise ToolError("no x today")
        if q == "crash":
            raise ValueError("it broke")
        return q

    async def all_of_them() -> list[Any]:
        async with Client(made(lookup)) as client:
            got = [
                await client.call_tool(name, {"q": q}, raise_on_error=False)
                for name, q in (("lookup", "a"), ("lookup", "x"), ("lookup", "crash"), ("unknown", "a"))
            ]
        return [(one.content, one.structured_content, one.is_error) for one in got]

    plain = asyncio.run(all_of_them())
    installing()
    guarded = asyncio.run(all_of_them())

    assert guarded == plain
    assert [one.outcome for one in calls(sink)] == [Outcome.OK, *[Outcome.FAILED] * 3]
    assert sink.failures == []


@pytest.mark.usefixtures("serverside")
def test_observing_runs_everything(installing: Installing, sink: RecordingSink) -> None:
    counted = Counted()
    installing(mode="observe")

    got = asyncio.run(asked(made(counted.function), 9))

    assert counted.calls == 9
    assert not any(NOTE in text for text in texts(got))
    assert Kind.LOOP in {finding.kind for finding, _ in sink.findings}


class Place(BaseModel):
    shelf: int


@pytest.mark.usefixtures("serverside")
def test_a_note_stands_beside_a_structured_result(installing: Installing) -> None:
    def lookup(q: str) -> Place:
        """Look something up."""
        return Place(shelf=12)

    installing()

    got = asyncio.run(asked(made(lookup), 5))

    assert got[2].content[0].text.startswith(NOTE)
    assert got[2].structured_content == {"shelf": 12}
    assert got[4].is_error


@pytest.mark.usefixtures("serverside")
def test_a_tool_of_a_mounted_server_counts_once(installing: Installing, sink: RecordingSink) -> None:
    outer = FastMCP("outer")
    outer.mount(made(Counted().function), namespace="inner")
    installing()

    asyncio.run(asked(outer, 1, name="inner_lookup", q="x"))

    assert [one.tool for one in calls(sink)] == ["inner_lookup"]


@pytest.mark.usefixtures("serverside")
def test_a_declared_tool_of_a_mounted_server_counts_once(installing: Installing, sink: RecordingSink) -> None:
    @tool(effect=Effect.READ)
    def look_up(q: str) -> str:
        """Look something up."""
        return q

    outer = FastMCP("outer")
    outer.mount(made(look_up), namespace="inner")
    installing()

    asyncio.run(asked(outer, 1, name="inner_look_up", q="x"))

    assert [(one.tool, one.effect, one.arguments) for one in calls(sink)] == [
        ("inner_look_up", Effect.READ, {"q": "x"})
    ]


class Answering(Middleware):
    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        result = await call_next(context)
        return result.model_copy(update={"structured_content": {"result": "kept"}})


@pytest.mark.usefixtures("serverside")
def test_middleware_of_the_server_runs_inside(installing: Installing, sink: RecordingSink) -> None:
    server = made(Counted().function)
    server.add_middleware(Answering())
    installing()

    got = asyncio.run(asked(server, 1))

    assert got[0].structured_content == {"result": "kept"}
    assert len(calls(sink)) == 1


@pytest.mark.usefixtures("serverside")
def test_annotations_and_declarations_say_what_a_tool_does(installing: Installing, sink: RecordingSink) -> None:
    @tool(effect=Effect.PURE)
    def halve(q: str) -> str:
        """Halve a text."""
        return q[: len(q) // 2]

    installing()

    async def both() -> None:
        await asked(made(Counted().function, annotations=ToolAnnotations(read_only_hint=True)), 1)
        await asked(made(halve), 1, name="halve", q="x")

    asyncio.run(both())

    assert [one.effect for one in calls(sink)] == [Effect.READ, Effect.PURE]


@pytest.mark.usefixtures("serverside")
def test_a_program_that_calls_its_own_server_is_guarded(installing: Installing, sink: RecordingSink) -> None:
    server = made(Counted().function)
    installing()

    async def direct() -> list[Any]:
        return [await server.call_tool("lookup", {"q": "x"}) for _ in range(5)]

    got = asyncio.run(direct())

    assert [one.is_error for one in got] == [False] * 4 + [True]


@pytest.mark.usefixtures("serverside")
def test_a_server_over_http_tells_its_sessions_apart(installing: Installing) -> None:
    counted = Counted()
    installing()

    async def loop(url: str) -> list[list[bool]]:
        got = []
        for _ in range(2):
            async with Client(url, mode="legacy") as client:
                got.append([one.is_error for one in await ask(client, 5)])
        return got

    with serving(made(counted.function).http_app()) as url:
        first, second = asyncio.run(loop(url))

    assert first == second == [False] * 4 + [True]
    assert counted.calls == 8
