"""One small agent per framework, run under the instrumentations of one family; a program that prints what it saw.

    python golden_agents.py FAMILY FRAMEWORK

The agent of each framework has the same two tools and the same scripted model: it finds a book, lends it, which
fails, and answers. It runs three times in one process:

- with nothing but the instrumentations: the spans of this run are the golden file;
- with a guard without adapters: the events that spans alone make;
- with a guard and its adapters, asking for the same book twice side by side: what is counted then.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_agentguard import install
from otel_agentguard.events import Event, Handoff, Message, ModelCall, ToolCall
from otel_agentguard.testing import RecordingSink

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from adapters.scripted_model import Reply, ScriptedModel, saying

MODEL = "gpt-scripted"
AGENT = "librarian"
CONVERSATION = "visit-1"
QUESTION = "May I have Middlemarch?"
ANSWER = "It stands on shelf 12, and is lent."
ERROR = "Middlemarch is lent already"
FIND = ("find_book", {"title": "Middlemarch", "copies": 2})
LEND = ("lend_book", {"title": "Middlemarch"})
ONE_BY_ONE = (Reply(calls=[FIND]), Reply(calls=[LEND]), Reply(ANSWER))
SIDE_BY_SIDE = (Reply(calls=[FIND]), Reply(calls=[FIND, FIND]), Reply(calls=[LEND]), Reply(ANSWER))

ran: list[str] = []


def find_book(title: str, copies: int) -> str:
    """Tell where a book stands.

    Args:
        title: Title of the book.
        copies: How many are wanted.
    """
    ran.append("find_book")
    return f"{title}: {copies} on shelf 12"


def lend_book(title: str) -> str:
    """Lend a book.

    Args:
        title: Title of the book.
    """
    ran.append("lend_book")
    raise ValueError(f"{title} is lent already")


TOOLS: dict[str, Callable[..., str]] = {"find_book": find_book, "lend_book": lend_book}


def done(tool: str, arguments: dict[str, Any]) -> str:
    """The result of a tool, as a loop written by hand tells it to a model."""
    try:
        return TOOLS[tool](**arguments)
    except ValueError as exc:
        return f"error: {exc}"


def langchain(url: str, replies: Sequence[Reply]) -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import wrap_tool_call
    from langchain_core.messages import ToolMessage
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver

    @wrap_tool_call
    def errors_are_told(request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except ValueError as exc:
            return ToolMessage(content=str(exc), tool_call_id=request.tool_call["id"], status="error")

    model = ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0)
    agent = create_agent(
        model, [find_book, lend_book], name=AGENT, middleware=[errors_are_told], checkpointer=InMemorySaver()
    )
    asked = {"messages": [{"role": "user", "content": QUESTION}]}
    agent.invoke(asked, {"configurable": {"thread_id": CONVERSATION}})


def openai_agents(url: str, replies: Sequence[Reply]) -> None:
    from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    model = OpenAIResponsesModel(model=MODEL, openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
    agent = Agent(name=AGENT, model=model, tools=[function_tool(find_book), function_tool(lend_book)])
    asyncio.run(Runner.run(agent, QUESTION, run_config=RunConfig(group_id=CONVERSATION)))


def pydantic_ai(url: str, replies: Sequence[Reply]) -> None:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, ToolFailed
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def lend(title: str) -> str:
        try:
            return lend_book(title)
        except ValueError as exc:
            raise ToolFailed(str(exc)) from exc

    lend.__name__ = "lend_book"
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, name=AGENT, tools=[find_book, lend])
    asyncio.run(agent.run(QUESTION, conversation_id=CONVERSATION))


def openai(url: str, replies: Sequence[Reply]) -> None:
    from openai import OpenAI

    tools: Any = [{"type": "function", "function": one} for one in described("parameters")]
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        while True:
            answer = client.chat.completions.create(model=MODEL, messages=history, tools=tools).choices[0].message
            history.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                return
            for call in answer.tool_calls:
                told = done(call.function.name, json.loads(call.function.arguments))
                history.append({"role": "tool", "tool_call_id": call.id, "content": told})


def anthropic(url: str, replies: Sequence[Reply]) -> None:
    from anthropic import Anthropic

    tools: Any = described("input_schema")
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        while True:
            message = client.messages.create(model=MODEL, max_tokens=99, messages=history, tools=tools)
            history.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return
            told = [
                {"type": "tool_result", "tool_use_id": call.id, "content": done(call.name, call.input)}
                for call in calls
            ]
            history.append({"role": "user", "content": told})


def anthropic_runner(url: str, replies: Sequence[Reply]) -> None:
    from anthropic import Anthropic, beta_tool

    with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model=MODEL,
            max_tokens=99,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[beta_tool(find_book), beta_tool(lend_book)],
        )
        runner.until_done()


def mcp(url: str, replies: Sequence[Reply]) -> None:
    from mcp import Client
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("library")
    for function in TOOLS.values():
        server.tool()(function)

    async def visit() -> None:
        async with Client(server) as client:
            for reply in replies:
                for tool, arguments in reply.calls:
                    await client.call_tool(tool, dict(arguments))

    asyncio.run(visit())


def fastmcp(url: str, replies: Sequence[Reply]) -> None:
    from fastmcp import Client, FastMCP

    server = FastMCP("library")
    for function in TOOLS.values():
        server.tool(function)

    async def visit() -> None:
        async with Client(server) as client:
            for reply in replies:
                for tool, arguments in reply.calls:
                    await client.call_tool(tool, dict(arguments), raise_on_error=False)

    asyncio.run(visit())


def described(parameters: str) -> list[dict[str, Any]]:
    """The tools as a model is told of them."""
    text, count = {"type": "string"}, {"type": "integer"}
    shapes = {"find_book": {"title": text, "copies": count}, "lend_book": {"title": text}}
    return [
        {
            "name": name,
            "description": (TOOLS[name].__doc__ or "").splitlines()[0],
            parameters: {"type": "object", "properties": shape, "required": list(shape)},
        }
        for name, shape in shapes.items()
    ]


FRAMEWORKS: dict[str, Callable[[str, Sequence[Reply]], None]] = {
    "langchain": langchain,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "openai": openai,
    "anthropic": anthropic,
    "anthropic-runner": anthropic_runner,
    "mcp": mcp,
    "fastmcp": fastmcp,
}
PREFIXES = {
    "native": "-",
    "openinference": "openinference.instrumentation.",
    "openllmetry": "opentelemetry.instrumentation.",
    "genai": "opentelemetry.instrumentation.genai.",
}


def turn_on(family: str, provider: TracerProvider) -> None:
    """Every instrumentation of a family, as `opentelemetry-instrument` does, and what frameworks have themselves."""
    for entry in entry_points(group="opentelemetry_instrumentor"):
        if not entry.value.startswith(PREFIXES[family]):
            continue
        if family == "openllmetry" and entry.value.startswith(PREFIXES["genai"]):
            continue
        try:
            instrumentor = entry.load()()
        except ImportError as exc:
            print(f"{entry.value} cannot be imported: {exc}", file=sys.stderr)
            continue
        try:
            instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
        except Exception as exc:
            print(f"{entry.value} does not work here: {exc}", file=sys.stderr)


def turn_on_pydantic_ai(family: str, provider: TracerProvider) -> None:
    """Pydantic AI makes its spans itself, when it is asked to; OpenInference translates them as they end."""
    from pydantic_ai import Agent

    if family == "openinference":
        processor = import_module("openinference.instrumentation.pydantic_ai").OpenInferenceSpanProcessor
        provider.add_span_processor(processor())
    Agent.instrument_all(True)


def told(span: ReadableSpan, places: dict[int, int], ticks: dict[int, int]) -> dict[str, Any]:
    """A span as JSON: its parent by place in the list, its times by rank."""
    scope = span.instrumentation_scope
    parent = None if span.parent is None else places.get(span.parent.span_id)
    return {
        "name": span.name,
        "scope": "" if scope is None else scope.name,
        "parent": parent,
        "from": ticks[span.start_time or 0],
        "to": ticks[span.end_time or 0],
        "status": span.status.status_code.name,
        "error": span.status.description,
        "attributes": dict(sorted((span.attributes or {}).items())),
        "events": [{"name": event.name, "attributes": dict(event.attributes or {})} for event in span.events],
    }


def all_told(spans: Sequence[ReadableSpan]) -> list[dict[str, Any]]:
    """Spans in the order of their start."""
    ordered = sorted(spans, key=lambda span: (span.start_time or 0, -(span.end_time or 0)))
    places = {span.context.span_id: place for place, span in enumerate(ordered)}
    moments = sorted({time for span in ordered for time in (span.start_time or 0, span.end_time or 0)})
    ticks = {time: rank for rank, time in enumerate(moments)}
    return [told(span, places, ticks) for span in ordered]


def events_of(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """What the guard was told, in short."""
    for event in events:
        shown: dict[str, Any] = {"kind": type(event).__name__, "agent": event.agent}
        match event:
            case ToolCall():
                shown |= {"tool": event.tool, "arguments": event.arguments, "call_id": event.call_id}
                shown |= {"outcome": event.outcome, "result": event.result}
            case ModelCall():
                shown |= {"model": event.model, "tokens": [event.input_tokens, event.output_tokens]}
            case Message():
                shown |= {"text": event.text}
            case Handoff():
                shown |= {"to": event.to}
        yield shown


def watched(work: Callable[[], None], **settings: Any) -> dict[str, Any]:
    """Run with a guard that only observes, and say what it was told beside what there really was."""
    sink = RecordingSink()
    ran.clear()
    with install(mode="observe", sinks=[sink], **settings):
        work()
    return {
        "ran": list(ran),
        "events": list(events_of(sink.events)),
        "runs": len(sink.opened),
        "failures": sink.failures,
    }


CAPTURE = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content",
    "TRACELOOP_TRACE_CONTENT": "true",
}
"""What makes instrumentations record content."""


def main(family: str, framework: str) -> None:
    os.environ.update(CAPTURE)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    if framework == "pydantic-ai":
        turn_on_pydantic_ai(family, provider)
    if framework != "pydantic-ai" or family != "openinference":
        turn_on(family, provider)
    run = FRAMEWORKS[framework]
    with ScriptedModel() as model:

        def visit(name: str, replies: Sequence[Reply]) -> int:
            run(model.play(name, saying(*replies)), replies)
            return len(model.requests(name))

        asked = [visit("alone", ONE_BY_ONE)]
        spans = all_told(exporter.get_finished_spans())
        os.environ["AGENTGUARD_ADAPTERS_OFF"] = "*"
        alone = watched(lambda: asked.append(visit("spans", ONE_BY_ONE)))
        del os.environ["AGENTGUARD_ADAPTERS_OFF"]
        beside = watched(lambda: asked.append(visit("seams", SIDE_BY_SIDE)))
    alone["asked"], beside["asked"] = asked[1:]
    print(json.dumps({"spans": spans, "alone": alone, "beside": beside}))


if __name__ == "__main__":
    main(*sys.argv[1:])
