"""Pydantic AI under guard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pip install 'otel-agentguard[pydantic-ai]'")

from adapters.conftest import Installing
from adapters.contract_suite import AdapterContract, Counted, pytest_generate_tests  # noqa: F401
from adapters.scripted_model import Reply, ScriptedModel, looping, saying, working
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from otel_agentguard import RunAborted
from otel_agentguard.events import ModelCall, Outcome, ToolCall
from otel_agentguard.testing import RecordingSink

HISTORIES: dict[str, list[Any]] = {}


@pytest.fixture(autouse=True)
def no_loop_left() -> Iterator[None]:
    """`run_sync` leaves an event loop to whoever comes next."""
    yield
    loop = getattr(getattr(asyncio.get_event_loop_policy(), "_local", None), "_loop", None)
    if loop is not None and not loop.is_closed():
        loop.close()
        asyncio.set_event_loop(None)


def chat(url: str, kind: Any = OpenAIChatModel) -> Any:
    client = AsyncOpenAI(base_url=f"{url}/v1", max_retries=0)
    return kind("gpt-scripted", provider=OpenAIProvider(openai_client=client))


def made(url: str, tools: Sequence[Any], name: str = "Looper", **options: Any) -> Agent[Any, Any]:
    model = options.pop("model", None) or chat(url)
    return Agent(model, name=name, instructions="Look it up.", tools=list(tools), **options)


def run(kind: str, agent: Agent[Any, Any], text: str | None, **options: Any) -> Any:
    """The output of a run, or a coroutine of it."""
    options = {"usage_limits": UsageLimits(request_limit=60), **options}
    if kind == "sync":
        return _run_sync(agent, text, options)

    async def ask() -> Any:
        if kind == "async":
            return (await agent.run(text, **options)).output
        async with agent.run_stream(text, **options) as result:
            return await result.get_output()

    return ask()


def _run_sync(agent: Agent[Any, Any], text: str | None, options: Any) -> Any:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return agent.run_sync(text, **options).output
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class TestPydanticAI(AdapterContract):
    adapter = "pydantic-ai"
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
        options = {} if conversation is None else {"conversation_id": conversation}
        return run(kind, made(url, tools, agent), text, **options)

    def patched(self) -> Sequence[tuple[Any, str]]:
        return [(Agent, "iter")]

    def test_an_error_of_the_model_reaches_the_application_as_without_the_guard(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        script = saying(Reply(status=400))
        plain = self._ended(kind, model.play("refusal-a", script), self.counted(kind))

        installing()
        guarded = self._ended(kind, model.play("refusal-b", script), self.counted(kind))

        assert guarded[0] == plain[0]
        # Where an answer is streamed, the framework cancels its capabilities and tells none of them why.
        expected = Outcome.UNKNOWN if kind == "async_stream" else Outcome.FAILED
        assert [call.outcome for call in sink.events if isinstance(call, ModelCall)] == [expected]

    def resume(self, url: str, tools: Sequence[Any], conversation: str) -> Any:
        return run("async", made(url, tools), None, conversation_id=conversation)

    def ask_team(self, kind: str, url: str, tools: Sequence[Any]) -> Any:
        inner_agent = made(f"{url}-inner", tools, "Inner")

        async def inner(q: str) -> str:
            """Ask the inner agent."""
            return str((await inner_agent.run(q)).output)

        return run(kind, made(f"{url}-outer", [inner], "Outer"), "go")


async def lookup_retrying(q: str) -> str:
    """Look something up."""
    raise ModelRetry(f"no {q} today")


lookup_retrying.__name__ = "lookup"


def test_a_call_that_the_model_is_asked_to_make_again_has_failed(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    script = saying(Reply(calls=[("lookup", {"q": "x"})]), "done")
    installing()

    answer = asyncio.run(run("async", made(model.play("retry", script), [lookup_retrying]), "go"))

    assert answer == "done"
    assert [one.outcome for one in sink.events if isinstance(one, ToolCall)] == [Outcome.FAILED]


def test_a_call_that_waits_for_approval_has_not_happened(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    async def lookup(q: str) -> str:
        """Look something up."""
        raise ApprovalRequired

    agent = made(model.play("approval", looping()), [lookup], output_type=[str, DeferredToolRequests])
    installing()

    answer = asyncio.run(run("async", agent, "go"))

    assert isinstance(answer, DeferredToolRequests)
    assert [one.outcome for one in sink.events if isinstance(one, ToolCall)] == [Outcome.NOT_EXECUTED]


class Found(BaseModel):
    q: str


def test_the_tool_that_ends_a_run_is_never_counted_or_refused(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    agent = made(model.play("final", looping("final_result")), [], output_type=Found)
    installing()

    answers = [asyncio.run(run("async", agent, "go", conversation_id="c-final")) for _ in range(9)]

    assert answers == [Found(q="x")] * 9
    assert [one for one in sink.events if isinstance(one, ToolCall)] == []


def test_a_result_with_content_beside_it_gets_the_note_in_its_text(
    model: ScriptedModel, installing: Installing
) -> None:
    async def lookup(q: str) -> Any:
        """Look something up."""
        return ToolReturn(return_value=f"result for {q}", content="see the picture", metadata={"page": 1})

    installing()

    with pytest.raises(RunAborted):
        asyncio.run(run("async", made(model.play("return", looping()), [lookup]), "go"))

    messages = model.requests("return")[-1]["messages"]
    told = [one["content"] for one in messages if one["role"] == "tool"]
    assert [text.startswith("[agentguard]") for text in told[:4]] == [False, False, True, False]


def test_another_model_is_not_tried_after_a_stop(model: ScriptedModel, installing: Installing) -> None:
    urls = model.play("first", looping()), model.play("second", saying("done"))
    installing()

    with pytest.raises(RunAborted):
        agent = made(urls[0], [Counted().function], model=FallbackModel(chat(urls[0]), chat(urls[1])))
        asyncio.run(run("async", agent, "go"))

    assert len(model.requests("first")) == 7
    assert model.requests("second") == []


def test_a_run_driven_node_by_node_is_stopped(model: ScriptedModel, installing: Installing) -> None:
    counted = Counted()
    agent = made(model.play("nodes", looping()), [counted.function])
    installing()

    async def drive() -> None:
        async with agent.iter("go") as nodes:
            async for _ in nodes:
                pass

    with pytest.raises(RunAborted):
        asyncio.run(drive())

    assert counted.calls == 4


def test_events_of_a_run_end_in_the_stop(model: ScriptedModel, installing: Installing) -> None:
    counted = Counted()
    agent = made(model.play("events", looping()), [counted.function])
    installing()

    async def read() -> None:
        async with agent.run_stream_events("go") as events:
            async for _ in events:
                pass

    with pytest.raises(RunAborted):
        asyncio.run(read())

    assert counted.calls == 4


def test_the_responses_interface_is_guarded_too(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    url = model.play("responses", looping())
    installing()

    with pytest.raises(RunAborted):
        asyncio.run(run("async", made(url, [Counted().function], model=chat(url, OpenAIResponsesModel)), "go"))

    assert len(model.requests("responses")) == 7
    assert {one.input_tokens for one in sink.events if isinstance(one, ModelCall)} == {11}


class Replacing(AbstractCapability[Any]):
    """A capability of the program, which answers calls itself."""

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        return f"kept for {args['q']}"


def test_calls_that_another_capability_answers_count_as_calls(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    counted = Counted()
    agent = made(model.play("capability", working(rounds=2)), [counted.function], capabilities=[Replacing()])
    installing()

    asyncio.run(run("async", agent, "go"))

    assert counted.calls == 0
    assert [one.outcome for one in sink.events if isinstance(one, ToolCall)] == [Outcome.OK] * 2


def test_a_conversation_goes_on_where_its_history_says_so(model: ScriptedModel, installing: Installing) -> None:
    guard = installing()
    seen: list[str | None] = []
    counted = Counted(doing=lambda q: seen.extend(one.info.conversation for one in guard.engine.runs()))
    agent = made(model.play("history", working(rounds=1)), [counted.function])

    async def twice() -> None:
        first = await agent.run("go", conversation_id="c-history")
        model.play("history", working(rounds=1))
        await agent.run("and on", message_history=first.all_messages())

    asyncio.run(twice())

    assert seen == ["c-history", "c-history"]
