from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import trace

from otel_agentguard import AgentGuard, CallBlocked, ConfigError, RunAborted, agent, run, tool
from otel_agentguard.events import Message
from otel_agentguard.testing import RecordingSink


@tool
def look(word: str) -> str:
    return word


@agent("coder")
def plain(task: str) -> str:
    """Write code."""
    return look(f"did {task}")


@agent("coder")
async def asynchronous(task: str) -> str:
    return look(f"did {task}")


@agent("coder")
def in_parts(task: str) -> Iterator[str]:
    yield look("did ")
    yield task


@agent("coder")
async def in_parts_later(task: str) -> AsyncIterator[str]:
    yield look("did ")
    yield task


async def told(returned: object) -> object:
    if inspect.isawaitable(returned):
        return await returned
    if inspect.isgenerator(returned):
        return "".join(returned)
    if inspect.isasyncgen(returned):
        return "".join([part async for part in returned])
    return returned


KINDS = [plain, asynchronous, in_parts, in_parts_later]


@pytest.mark.parametrize("function", KINDS)
async def test_what_an_agent_returns_is_its_message(
    function: Any, guard: AgentGuard, sink: RecordingSink, spans: Any
) -> None:
    async with run("r"):
        assert await told(function("it")) == "did it"

    call, said = sink.events
    assert (call.agent, said.agent) == ("coder", "coder")
    assert isinstance(said, Message)
    assert said.text == "did it"


@pytest.mark.parametrize("function", KINDS)
async def test_an_agent_has_a_span_around_what_it_does(function: Any, guard: AgentGuard, spans: Any) -> None:
    async with run("r"):
        await told(function("it"))

    (around,) = spans.named("invoke_agent coder")
    inner = [span for span in spans.all() if span.name != around.name]
    assert {span.name for span in inner} == {"execute_tool look", "agentguard.message coder"}
    assert {span.parent.span_id for span in inner} == {around.context.span_id}
    assert dict(around.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "coder",
        "agentguard.run.id": "r",
    }


@pytest.mark.parametrize("function", KINDS)
async def test_an_agent_works_without_a_guard(function: Any) -> None:
    assert await told(function("it")) == "did it"


def test_an_agent_keeps_its_name_and_docstring() -> None:
    assert (plain.__name__, plain.__doc__) == ("plain", "Write code.")
    assert inspect.iscoroutinefunction(asynchronous)
    assert inspect.isgeneratorfunction(in_parts)
    assert inspect.isasyncgenfunction(in_parts_later)


def test_used_bare_an_agent_has_the_name_of_its_function(guard: AgentGuard, sink: RecordingSink) -> None:
    @agent
    def reviewer() -> str:
        return "fine"

    with run("r"):
        reviewer()

    assert sink.events[0].agent == "reviewer"


def test_an_agent_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="give a text"):
        agent("")


def test_what_is_no_text_is_no_message(guard: AgentGuard, sink: RecordingSink) -> None:
    @agent("coder")
    def code() -> dict[str, int]:
        return {"a": 1}

    with run("r"):
        assert code() == {"a": 1}

    assert sink.events == []


def test_nothing_of_an_agent_is_attached_while_its_consumer_runs(guard: AgentGuard, spans: Any) -> None:
    with run("r"):
        parts = in_parts("it")
        next(parts)
        between = trace.get_current_span()
        look("outside")
        parts.close()

    assert between is trace.INVALID_SPAN


def test_two_agents_that_only_talk_are_stopped(guard: AgentGuard) -> None:
    @agent("ping")
    def ping() -> str:
        return "over to you"

    @agent("pong")
    def pong() -> str:
        return "no, over to you"

    rounds = 0
    with pytest.raises(RunAborted) as ended, run("r"):
        for _ in range(50):
            rounds += 1
            for speak in (ping, pong):
                with contextlib.suppress(CallBlocked):
                    speak()

    assert rounds <= 7
    assert ended.value.finding is not None
    assert ended.value.finding.kind == "pingpong"


def test_an_error_of_an_agent_is_raised_unchanged(guard: AgentGuard, spans: Any) -> None:
    @agent("coder")
    def code() -> str:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"), run("r"):
        code()

    (around,) = spans.named("invoke_agent coder")
    assert around.attributes["error.type"] == "LookupError"
    assert around.events == ()
