"""The OpenAI Agents SDK under guard."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="pip install 'otel-agentguard[openai-agents]'")

import agents
from adapters.conftest import Installing
from adapters.contract_suite import AdapterContract, Counted, pytest_generate_tests  # noqa: F401
from adapters.scripted_model import Reply, ScriptedModel, looping, saying, working
from agents import Agent, ModelSettings, RunConfig, Runner, SQLiteSession, function_tool
from agents.mcp import MCPServerStdio
from agents.models.interface import Model
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from agents.run_internal import run_loop, tool_execution, turn_resolution
from openai import AsyncOpenAI

from otel_agentguard import RunAborted
from otel_agentguard.events import Handoff, ModelCall, ToolCall
from otel_agentguard.testing import RecordingSink

SESSIONS: dict[str, SQLiteSession] = {}
OPENED: list[SQLiteSession] = []


@pytest.fixture(autouse=True)
def no_traces() -> Iterator[None]:
    """Traces would be sent to the vendor; and `run_sync` leaves an event loop to whoever comes next."""
    agents.set_tracing_disabled(True)
    yield
    policy = asyncio.get_event_loop_policy()
    loop = getattr(getattr(policy, "_local", None), "_loop", None)
    if loop is not None and not loop.is_closed():
        loop.close()
        asyncio.set_event_loop(None)


def chat(url: str, kind: type[Model] = OpenAIChatCompletionsModel) -> Any:
    client = AsyncOpenAI(base_url=f"{url}/v1", max_retries=0)
    return kind(model="gpt-scripted", openai_client=client)  # type: ignore[call-arg]


def made(url: str, tools: Sequence[Any], name: str = "Looper", **options: Any) -> Agent[Any]:
    return Agent(
        name=name,
        instructions="Look it up.",
        model=options.pop("model", None) or chat(url),
        model_settings=ModelSettings(include_usage=True),
        tools=[function_tool(one) for one in tools],
        **options,
    )


def run(kind: str, agent: Agent[Any], given: Any, **options: Any) -> Any:
    """The final output of a run, or a coroutine of it."""
    options = {"max_turns": 50, **options}
    if kind == "sync":
        return _run_sync(agent, given, options)

    async def ask() -> Any:
        if kind == "async":
            return (await Runner.run(agent, given, **options)).final_output
        result = Runner.run_streamed(agent, given, **options)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return ask()


def _run_sync(agent: Agent[Any], given: Any, options: Any) -> Any:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return Runner.run_sync(agent, given, **options).final_output
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class TestOpenAIAgents(AdapterContract):
    adapter = "openai-agents"
    kinds = ("sync", "async", "async_stream")

    def ask(
        self,
        kind: str,
        url: str,
        tools: Sequence[Any],
        text: str = "go",
        *,
        agent: str = "Looper",
        conversation: str | None = None,
    ) -> Any:
        options = {} if conversation is None else {"session": SESSIONS.setdefault(conversation, session(conversation))}
        return run(kind, made(url, tools, agent), text, **options)

    def patched(self) -> Sequence[tuple[Any, str]]:
        return [
            (OpenAIChatCompletionsModel, "get_response"),
            (OpenAIChatCompletionsModel, "stream_response"),
            (OpenAIResponsesModel, "get_response"),
            (OpenAIResponsesModel, "stream_response"),
            (run_loop, "get_model"),
            (run_loop, "run_single_turn_streamed"),
            (tool_execution, "_invoke_function_tool_with_metadata"),
            (turn_resolution, "execute_handoffs"),
            (Runner, "run"),
            (Runner, "run_sync"),
            (Runner, "run_streamed"),
        ]

    def resume(self, url: str, tools: Sequence[Any], conversation: str) -> Any:
        return run("async", made(url, tools), [], session=SESSIONS[conversation])

    def ask_team(self, kind: str, url: str, tools: Sequence[Any]) -> Any:
        inner_agent = made(f"{url}-inner", tools, "Inner")

        async def inner(q: str) -> str:
            """Ask the inner agent."""
            return str((await Runner.run(inner_agent, q, max_turns=50)).final_output)

        return run(kind, made(f"{url}-outer", [inner], "Outer"), "go")


def session(name: str) -> SQLiteSession:
    OPENED.append(SQLiteSession(name))
    return OPENED[-1]


@pytest.fixture(scope="module", autouse=True)
def _closed_sessions() -> Iterator[None]:
    yield
    SESSIONS.clear()
    while OPENED:
        OPENED.pop().close()


def test_handoffs_are_told_and_calls_belong_to_the_agent_that_has_control(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    url = model.play(
        "handoff", saying(Reply(calls=[("transfer_to_b", {})]), Reply(calls=[("lookup", {"q": "x"})]), "done")
    )
    second = made(url, [Counted().function], "B")
    first = made(url, [], "A", handoffs=[second])
    installing()

    answer = asyncio.run(run("async", first, "go"))

    assert answer == "done"
    assert [(one.agent, one.to) for one in sink.events if isinstance(one, Handoff)] == [("A", "B")]
    assert [one.agent for one in sink.events if isinstance(one, ModelCall)] == ["A", "B", "B"]
    assert [one.agent for one in sink.events if isinstance(one, ToolCall)] == ["B"]


@pytest.mark.parametrize("kind", ["sync", "async", "async_stream"])
def test_agents_that_hand_over_to_each_other_for_ever_are_stopped(
    kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    def script(number: int, request: Any) -> Reply:
        (offered,) = [one["function"]["name"] for one in request["tools"]]
        return Reply(calls=[(offered, {})])

    url = model.play("pingpong", script)
    first, second = made(url, [], "A"), made(url, [], "B")
    first.handoffs, second.handoffs = [second], [first]
    installing()

    with pytest.raises(RunAborted) as stop:
        answer = run(kind, first, "go")
        asyncio.run(answer) if kind != "sync" else None

    assert stop.value.finding is not None
    assert len(model.requests("pingpong")) < 20
    assert sink.executed_after == []


def test_a_looping_agent_that_is_a_tool_of_another_stops_the_whole_run(
    model: ScriptedModel, installing: Installing
) -> None:
    inner_url = model.play("tool-inner", looping())
    url = model.play("tool-outer", looping("inner", input="go"))
    counted = Counted(is_async=True)
    inner = made(inner_url, [counted.function], "Inner").as_tool("inner", "Ask it.", max_turns=50)
    outer = Agent(name="Outer", model=chat(url), tools=[inner])
    installing()

    with pytest.raises(RunAborted):
        asyncio.run(run("async", outer, "go"))

    assert counted.calls == 4
    assert len(model.requests("tool-outer")) == 1


@pytest.mark.parametrize("kind", ["async", "async_stream"])
def test_the_responses_interface_is_guarded_too(
    kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    url = model.play("responses", looping())
    counted = Counted(is_async=True)
    installing()

    with pytest.raises(RunAborted):
        asyncio.run(run(kind, made(url, [counted.function], model=chat(url, OpenAIResponsesModel)), "go"))

    assert counted.calls == 4
    assert len(model.requests("responses")) == 7
    assert {one.input_tokens for one in sink.events if isinstance(one, ModelCall)} == {11}


class OwnModel(OpenAIChatCompletionsModel):
    """A model of the program's own, with a method of its own around the one that it inherits."""

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        return await super().get_response(*args, **kwargs)


def test_a_model_of_the_program_is_guarded_when_it_is_first_used_and_counts_once(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    before = vars(OwnModel)["get_response"]
    url = model.play("own", working(rounds=2))
    guard = installing()

    asyncio.run(run("async", made(url, [Counted().function], model=chat(url, OwnModel)), "go"))
    guard.shutdown()

    assert len([one for one in sink.events if isinstance(one, ModelCall)]) == 3
    assert vars(OwnModel)["get_response"] is before


@pytest.mark.parametrize(
    ("options", "conversation"),
    [
        ({"session": session("s-1")}, "s-1"),
        ({"run_config": RunConfig(group_id="g-1")}, "g-1"),
        ({"run_config": RunConfig(group_id="g-1"), "session": session("s-1")}, "s-1"),
    ],
)
def test_a_conversation_is_known_by_its_session_or_its_group(
    options: Any, conversation: str, model: ScriptedModel, installing: Installing
) -> None:
    guard = installing()
    seen: list[str | None] = []
    counted = Counted(doing=lambda q: seen.extend(one.info.conversation for one in guard.engine.runs()))

    asyncio.run(run("async", made(model.play("talk", working(rounds=1)), [counted.function]), "go", **options))

    assert seen == [conversation]


def test_a_tool_that_returns_content_gets_the_note_as_a_part_of_its_own(
    model: ScriptedModel, installing: Installing
) -> None:
    async def lookup(q: str) -> Any:
        """Look something up."""
        return [agents.ToolOutputText(text=f"result for {q}")]

    installing()

    with pytest.raises(RunAborted):
        asyncio.run(
            run(
                "async",
                made(url := model.play("parts", looping()), [lookup], model=chat(url, OpenAIResponsesModel)),
                "go",
            )
        )

    outputs = [
        one["output"] for one in model.requests("parts")[-1]["input"] if one.get("type") == "function_call_output"
    ]
    assert [len(one) for one in outputs[:3]] == [1, 1, 2]
    assert outputs[2][0]["text"].startswith("[agentguard]")


def test_a_stopped_conversation_is_refused_where_its_stream_is_asked_for(
    model: ScriptedModel, installing: Installing
) -> None:
    kept = session("s-stop")
    agent = made(model.play("stop-stream", looping()), [Counted().function])
    installing()

    async def twice() -> None:
        with pytest.raises(RunAborted):
            await run("async_stream", agent, "go", session=kept)
        asked = len(model.requests("stop-stream"))
        with pytest.raises(RunAborted):
            Runner.run_streamed(agent, [], session=kept)
        assert len(model.requests("stop-stream")) == asked

    asyncio.run(twice())


def test_a_stream_that_is_cancelled_ends_as_without_the_guard(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    async def cancelled(name: str) -> tuple[bool, Any, bool]:
        result = Runner.run_streamed(made(model.play(name, working()), [Counted().function]), "go", max_turns=50)
        async for event in result.stream_events():
            if event.type == "run_item_stream_event":
                result.cancel()
        return result.is_complete, result.final_output, result.run_loop_task is not None

    plain = asyncio.run(cancelled("cancel-a"))
    installing()

    assert asyncio.run(cancelled("cancel-b")) == plain
    assert sink.failures == []
    assert len(sink.closed) == 1


def test_a_run_goes_on_after_an_approval_as_part_of_its_conversation(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    counted = Counted()
    script = saying(Reply(calls=[("lookup", {"q": "x"})]), "done")
    kept = session("s-approval")
    agent = Agent(
        name="Careful",
        model=chat(model.play("approve", script)),
        tools=[function_tool(counted.function, needs_approval=True)],
    )
    installing()

    async def approved() -> Any:
        waiting = await Runner.run(agent, "go", session=kept)
        state = waiting.to_state()
        for one in waiting.interruptions:
            state.approve(one)
        return (await Runner.run(agent, state, session=kept)).final_output

    assert asyncio.run(approved()) == "done"
    assert counted.calls == 1
    assert len(sink.opened) == 1
    assert [one.agent for one in sink.events if isinstance(one, ToolCall)] == ["Careful"]


def test_a_tool_of_an_mcp_server_counts_once(model: ScriptedModel, installing: Installing, sink: RecordingSink) -> None:
    server = Path(__file__).resolve().parents[2] / "examples" / "mcp_server.py"
    url = model.play("mcp", saying(Reply(calls=[("find_book", {"title": "Middlemarch"})]), "done"))
    installing()

    async def ask() -> Any:
        params = {"command": sys.executable, "args": [str(server)]}
        async with MCPServerStdio(params=params, client_session_timeout_seconds=30) as shelves:  # type: ignore[arg-type]
            return await run("async", Agent(name="Reader", model=chat(url), mcp_servers=[shelves]), "go")

    assert asyncio.run(ask()) == "done"
    assert [(one.tool, one.agent) for one in sink.events if isinstance(one, ToolCall)] == [("find_book", "Reader")]
