"""Foreign spans and our own seams in one run, as an application has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from otel_agentguard.errors import RunAborted
from otel_agentguard.guard import installed
from otel_agentguard.seams.agents import agent
from otel_agentguard.seams.models import model_call
from otel_agentguard.seams.runs import run
from otel_agentguard.seams.tool import tool


@tool
def lookup(q: str) -> str:
    return "the same answer"


@pytest.fixture
def app(world: Any) -> Iterator[Any]:
    """The world with its guard installed, as `install()` leaves it once the provider is met."""
    world.guard.tracer = world.provider.get_tracer("otel_agentguard")
    installed.guard = world.guard
    yield world
    installed.guard = None


def instrumented_lookup(app: Any, q: str = "x") -> str:
    """A framework that calls our tool and is instrumented by somebody else."""
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": f'{{"q": "{q}"}}',
    }
    with app.tracer().start_as_current_span("execute_tool lookup", attributes=told):
        return lookup(q)


def loop_of_spans(app: Any) -> None:
    for _ in range(12):
        app.genai_tool("search")


def test_a_tool_of_ours_inside_an_instrumented_framework_is_one_step(app: Any) -> None:
    with run("r1"):
        instrumented_lookup(app)
        instrumented_lookup(app, "y")

    assert [call.arguments for call in app.calls] == [{"q": "x"}, {"q": "y"}]


@pytest.mark.parametrize("alone", [0, 200])
def test_the_first_foreign_span_after_many_calls_of_our_own_is_still_the_same_call(app: Any, alone: int) -> None:
    @tool
    def ask(q: str) -> str:
        app.genai_tool("ask", {"q": q})
        return "found"

    with run("r1"):
        for number in range(alone):
            lookup(str(number))
        ask("inside")
        instrumented_lookup(app, "outside")

    assert [call.arguments["q"] for call in app.calls[alone:]] == ["inside", "outside"]


def test_outside_of_runs_a_tool_and_the_spans_of_its_trace_share_a_run(app: Any) -> None:
    with app.tracer().start_as_current_span("POST /chat"):
        lookup("x")
        app.genai_tool("search", {"q": "y"})

    assert len({run_id for run_id, _ in app.sink.steps}) == 1


def test_outside_of_runs_a_tool_in_a_conversation_and_the_spans_around_it_share_a_run(app: Any) -> None:
    told = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c1"}

    for _ in range(2):
        with app.tracer().start_as_current_span("invoke_agent coder", attributes=told):
            instrumented_lookup(app)

    assert [call.arguments for call in app.calls] == [{"q": "x"}, {"q": "x"}]
    assert len({run_id for run_id, _ in app.sink.steps}) == 1


def test_a_new_question_in_a_conversation_makes_a_repeated_tool_call_legitimate(app: Any) -> None:
    told = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c1"}

    for _ in range(9):
        with app.tracer().start_as_current_span("invoke_agent coder", attributes=told):
            assert lookup("x") == "the same answer"

    assert app.sink.findings == []


def test_a_loop_that_is_only_seen_in_spans_stops_the_next_tool_of_the_run(app: Any) -> None:
    ran = []

    def work() -> None:
        with run("r1"):
            loop_of_spans(app)
            ran.append(lookup("x"))

    with pytest.raises(RunAborted) as stopped:
        work()

    assert ran == []
    assert stopped.value.finding is not None
    assert stopped.value.finding.tool == "search"


def test_a_loop_that_is_only_seen_in_spans_stops_the_next_model_call_of_the_run(app: Any) -> None:
    sent = []

    def work() -> None:
        with run("r1"):
            loop_of_spans(app)
            with model_call(model="gpt-9", messages=[]):
                sent.append(1)

    with pytest.raises(RunAborted):
        work()

    assert sent == []


def test_a_run_that_was_stopped_by_spans_alone_still_ends_in_an_error(app: Any) -> None:
    def work() -> None:
        with run("r1"):
            loop_of_spans(app)

    with pytest.raises(RunAborted):
        work()


def test_the_agent_of_our_own_seam_names_the_calls_of_others_inside_it(app: Any) -> None:
    @agent("coder")
    def work() -> None:
        app.genai_tool("search")

    with run("r1"):
        work()

    assert [call.agent for call in app.calls] == ["coder"]


def test_a_model_call_of_ours_around_an_instrumented_client_is_one_call(app: Any) -> None:
    told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-9", "gen_ai.usage.output_tokens": 3}

    with run("r1"), model_call(model="gpt-9", messages=["hi"]) as call:
        app.tracer().start_span("chat gpt-9", attributes=told).end()
        call.record("hello", input_tokens=1, output_tokens=3)

    assert [one.output_tokens for one in app.model_calls] == [3]


def test_what_an_agent_of_ours_returns_is_said_once_where_a_framework_span_is_around_it(app: Any) -> None:
    told = {"openinference.span.kind": "AGENT", "agent.name": "coder", "output.value": "fixed line 23"}

    @agent("coder")
    def work() -> str:
        return "fixed line 23"

    with run("r1"), app.tracer("openinference.framework").start_as_current_span("coder", attributes=told):
        work()

    assert len(app.events) == 1
