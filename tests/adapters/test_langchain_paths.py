"""The ways through LangChain and LangGraph that a stop, a note and a turn must find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest

pytest.importorskip("langchain", reason="pip install 'otel-agentguard[langchain]'")
pytest.importorskip("langchain_openai", reason="the scripted model is reached through langchain-openai")

from adapters.conftest import Installing
from adapters.scripted_model import Reply, ScriptedModel, looping, saying
from adapters.test_langchain import chat
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware, ToolRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_agentguard import Effect, RunAborted, run
from otel_agentguard import tool as declared
from otel_agentguard.adapters.langchain.graph import GraphRunAborted
from otel_agentguard.events import Handoff, Message, ModelCall, Outcome, ToolCall
from otel_agentguard.findings import Kind
from otel_agentguard.testing import RecordingSink

ASKED: Any = {"messages": [{"role": "user", "content": "go"}]}
RETRIES = [
    ToolRetryMiddleware(max_retries=2, initial_delay=0.01),
    ModelRetryMiddleware(max_retries=2, initial_delay=0.01),
]


@tool
def lookup(q: str) -> str:
    """Look something up."""
    return f"the same for {q}"


async def _lookup(q: str) -> str:
    return f"the same for {q}"


lookup_async = StructuredTool.from_function(coroutine=_lookup, name="lookup", description="Look something up.")


def graph(url: str, tools: Any) -> Any:
    """A graph written by hand: a model and a node of tools."""
    model = chat(url).bind_tools([lookup])
    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    made.add_node("tools", tools)
    made.add_edge(START, "model")
    made.add_conditional_edges("model", tools_condition)
    made.add_edge("tools", "model")
    return made.compile()


def own_node(state: MessagesState) -> Any:
    """A node of tools that swallows every error, as many are written."""
    told = []
    for call in state["messages"][-1].tool_calls:  # type: ignore[union-attr]
        try:
            told.append(lookup.invoke(call))
        except Exception as exc:
            told.append(ToolMessage(f"Error: {exc}", tool_call_id=call["id"]))
    return {"messages": told}


def collected(stream: Any) -> Any:
    async def read() -> list[Any]:
        return [item async for item in stream]

    return asyncio.run(read())


PATHS: dict[str, Callable[[str], Any]] = {
    "graph": lambda url: graph(url, ToolNode([lookup])).invoke(ASKED),
    "graph that feeds errors back": lambda url: graph(url, ToolNode([lookup], handle_tool_errors=True)).invoke(ASKED),
    "node of its own": lambda url: graph(url, own_node).invoke(ASKED),
    "retries": lambda url: create_agent(chat(url), [lookup], middleware=RETRIES).invoke(ASKED),
    "async retries": lambda url: asyncio.run(
        create_agent(chat(url), [lookup_async], middleware=RETRIES).ainvoke(ASKED)
    ),
    "stream of messages": lambda url: list(create_agent(chat(url), [lookup]).stream(ASKED, stream_mode="messages")),
    "events": lambda url: collected(create_agent(chat(url), [lookup_async]).astream_events(ASKED, version="v2")),
    "batch": lambda url: create_agent(chat(url), [lookup]).batch([ASKED]),
    "async batch": lambda url: asyncio.run(create_agent(chat(url), [lookup_async]).abatch([ASKED])),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_stop_gets_through(path: str, model: ScriptedModel, installing: Installing, sink: RecordingSink) -> None:
    installing()

    with pytest.raises(RunAborted):
        PATHS[path](model.play("path", looping(rounds=20)))

    assert len(model.requests("path")) == 7
    told = [type(event) for event in sink.events]
    assert (told.count(ToolCall), told.count(ModelCall)) == (7, 7)
    assert sink.executed_after == []
    assert sink.failures == []


def by_hand(url: str) -> str:
    model = chat(url).bind_tools([lookup])
    messages: list[Any] = [HumanMessage("go")]
    while True:
        answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return str(answer.content)
        messages += [lookup.invoke(call) for call in answer.tool_calls]


def test_a_loop_by_hand_is_refused_in_place_and_stopped_without_a_run(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    installing()

    with pytest.raises(RunAborted):
        by_hand(model.play("hand", looping(rounds=20)))

    assert len(model.requests("hand")) == 7
    assert [type(event) for event in sink.events].count(ToolCall) == 7


def test_a_loop_by_hand_inside_of_run_is_that_run(model: ScriptedModel, installing: Installing) -> None:
    installing()

    with pytest.raises(RunAborted) as stop, run("mine"):
        by_hand(model.play("hand-run", looping(rounds=20)))

    assert stop.value.run_id == "mine"


def test_a_tool_that_asks_a_person_and_runs_again_counts_once(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    @tool
    def order(q: str) -> str:
        """Order something."""
        return f"{interrupt('really?')}: {q}"

    url = model.play("person", saying(Reply(calls=[("order", {"q": "tea"})]), "done"))
    agent = create_agent(chat(url), [order], checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "person"}}
    installing()

    waiting = agent.invoke(ASKED, thread)
    done = agent.invoke(Command(resume="yes"), thread)

    assert "__interrupt__" in waiting
    assert done["messages"][-2].content == "yes: tea"
    calls = [event for event in sink.events if isinstance(event, ToolCall)]
    assert [call.outcome for call in calls] == [Outcome.NOT_EXECUTED, Outcome.OK]
    assert sink.findings == []


def handing_to(name: str) -> Any:
    @tool(f"transfer_to_{name}")
    def hand_over(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Hand over."""
        told = ToolMessage("handed over", tool_call_id=tool_call_id)
        return Command(goto=name, graph=Command.PARENT, update={"messages": [told]})

    return hand_over


def test_agents_that_hand_over_to_each_other_for_ever_are_stopped(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    team = StateGraph(MessagesState)
    for name, other in (("A", "B"), ("B", "A")):
        url = model.play(f"team-{name}", lambda number, request, to=other: Reply(calls=[(f"transfer_to_{to}", {})]))
        team.add_node(name, create_agent(chat(url), [handing_to(other)], name=name))
    team.add_edge(START, "A")
    installing()

    with pytest.raises(RunAborted) as stop:
        team.compile().invoke(ASKED, {"recursion_limit": 100})

    assert stop.value.finding is not None
    assert stop.value.finding.kind is Kind.PINGPONG
    handoffs = [event for event in sink.events if isinstance(event, Handoff)]
    assert [(one.agent, one.to) for one in handoffs[:2]] == [("A", "B"), ("B", "A")]
    assert not any(isinstance(event, ToolCall) for event in sink.events)


def node(function: Callable[..., Any], **options: Any) -> Callable[[str], Any]:
    """A tool node alone; called with the id of the call."""
    made = StateGraph(MessagesState)
    made.add_node("tools", ToolNode([StructuredTool.from_function(function, name="fetch", description="f", **options)]))
    made.add_edge(START, "tools")
    compiled = made.compile()

    def call(call_id: str) -> Any:
        asked = AIMessage("", tool_calls=[{"name": "fetch", "args": {"q": "x"}, "id": call_id}])
        return compiled.invoke({"messages": [asked]})["messages"][-1]

    return call


def test_a_note_is_a_block_of_its_own_where_the_content_has_blocks(installing: Installing) -> None:
    block = {"type": "text", "text": "the same"}
    call = node(lambda q: [block])
    installing()

    with run():
        told = [call(str(number)).content for number in range(3)]

    assert told[:2] == [[block], [block]]
    assert told[2][1:] == [block]
    assert told[2][0]["text"].startswith("[agentguard]")


def test_an_artifact_stays_with_a_result_that_has_a_note(installing: Installing) -> None:
    call = node(lambda q: ("the same", {"rows": 3}), response_format="content_and_artifact")
    installing()

    with run():
        told = [call(str(number)) for number in range(3)]

    assert told[2].content.startswith("[agentguard]")
    assert [one.artifact for one in told] == [{"rows": 3}] * 3


def test_the_carrier_is_a_run_aborted_and_survives_pickling() -> None:
    import pickle

    stop = pickle.loads(pickle.dumps(GraphRunAborted(None, run_id="r")))  # noqa: S301

    assert isinstance(stop, RunAborted)
    assert stop.run_id == "r"


def test_each_run_of_a_graph_is_entered_once_however_it_is_asked_for(installing: Installing) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    left = [3]

    def made(name: str, node: Callable[[Any], Any]) -> Any:
        drawn = StateGraph(MessagesState)
        drawn.add_node("node", node)
        drawn.add_edge(START, "node")
        return drawn.compile(name=name)

    def ask_all(state: MessagesState) -> Any:
        leaf.invoke(ASKED)
        list(leaf.stream(ASKED))
        left[0] -= 1
        return outer.invoke(ASKED) if left[0] else {"messages": [AIMessage("done")]}

    leaf = made("leaf", lambda state: {"messages": [AIMessage("here")]})
    outer = made("outer", ask_all)
    installing()

    outer.invoke(ASKED)
    asyncio.run(leaf.ainvoke(ASKED))

    entered = [span.name for span in exporter.get_finished_spans() if span.name.startswith("invoke_agent")]
    assert entered.count("invoke_agent outer") == 3
    assert entered.count("invoke_agent leaf") == 7


@pytest.mark.parametrize("options", [{}, {"stream_mode": "updates"}, {"stream_mode": "values"}], ids=str)
def test_what_an_invoked_graph_answers_is_told_where_its_state_is_given_back(
    options: Any, installing: Installing, sink: RecordingSink
) -> None:
    drawn = StateGraph(MessagesState)
    drawn.add_node("node", lambda state: {"messages": [AIMessage("here")]})
    drawn.add_edge(START, "node")
    installing()

    drawn.compile().invoke(ASKED, **options)

    told = [event.text for event in sink.events if isinstance(event, Message)]
    assert told == ([] if options.get("stream_mode") == "updates" else ["here"])


def test_a_worker_begun_in_a_run_serves_each_conversation_after_it_with_effects_of_its_own(
    installing: Installing,
) -> None:
    installing()
    sent: list[str] = []

    @declared(effect=Effect.SIDE_EFFECT)
    async def mail(to: str, *, idempotency_key: str) -> str:
        sent.append(to)
        return "sent"

    async def send(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(await mail("customer"))]}

    made = StateGraph(MessagesState)
    made.add_node("send", send)
    made.add_edge(START, "send")
    sending = made.compile()
    left = asyncio.Event()

    async def worker() -> None:
        await left.wait()
        for thread in ("a", "b"):
            await sending.ainvoke(ASKED, {"configurable": {"thread_id": thread}})

    async def main() -> None:
        async with run("start"):
            task = asyncio.create_task(worker())
        left.set()
        await task

    asyncio.run(main())
    assert len(sent) == 2
