"""What an adapter adds to one tool call and one model call of a framework, in microseconds and in bare spans.

    python benchmarks/adapters.py [--quick] [WORD ...]

Words leave out the cases whose titles have none of them. The model answers in process, so that nothing but the
framework and the guard takes time. Rounds without the guard, with a bare span in the tool or the model, with the
guard and with a guard that has no checks are interleaved, and medians of the process's CPU time are compared, since
other processes share the machine. The bare span is the measure: between two calls a framework runs enough other code
that nothing of the next span or guard is in the processor's caches, and both take twice as long as in a tight loop.
The tracer provider is the SDK's, with an exporter that drops.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from otel_agentguard import RunAborted, install, run, tool
from otel_agentguard.adapters.contract import TEXTS, ModelAnswer, ModelRequest, ToolRequest
from otel_agentguard.adapters.models import ModelSeam
from otel_agentguard.adapters.tools import ToolSeam

LIMIT_US = 100.0
WORDS = [f"subject {number * 7919 % 10007}" for number in range(10_007)]


class NoExporter(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def numbers() -> Iterator[int]:
    while True:
        yield from range(len(WORDS))


NUMBERS = numbers()


Case = Callable[[int], object]
"""Works for so many calls."""


def repeated(once: Callable[[], object]) -> Case:
    def work(calls: int) -> None:
        for _ in range(calls):
            once()

    return work


ATTRIBUTES = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "answer",
    "gen_ai.agent.name": "agent",
    "agentguard.effect": "unknown",
    "agentguard.fingerprint": "0" * 32,
    "agentguard.run.id": "benchmark",
    "agentguard.step": 1,
}


class Place:
    """Where the guard goes around: a tool or a model, with a bare span in it where that is to be measured."""

    tracer: trace.Tracer | None = None

    def spanned(self) -> None:
        if self.tracer is not None:
            with self.tracer.start_as_current_span("execute_tool answer", attributes=ATTRIBUTES):
                pass


PLACE = Place()


def answer(q: str) -> str:
    """Look something up."""
    PLACE.spanned()
    return f"{hash(q):x} is what is known of {q}"


@cache
def loop() -> asyncio.Runner:
    """The event loop of all cases, so that a client stays connected from round to round."""
    return asyncio.Runner()


def awaited(once: Callable[[], Awaitable[object]]) -> Case:
    async def calls_of(calls: int) -> None:
        for _ in range(calls):
            await once()

    return lambda calls: loop().run(calls_of(calls))


def declared_tool() -> Case:
    """The seam of `@tool`, for comparison."""
    look = tool(answer)
    return repeated(lambda: look(WORDS[next(NUMBERS)]))


def tool_seam() -> Case:
    """The seam that adapters put around tools, with no framework around it."""
    seam = ToolSeam(RunAborted)

    def once() -> object:
        word = WORDS[next(NUMBERS)]
        asked = ToolRequest(tool="look", arguments={"q": word}, call_id=word)
        return seam.call(lambda: asked, TEXTS, lambda: answer(word))

    return repeated(once)


def model_seam() -> Case:
    """The seam that adapters put around model calls, with no framework around it."""
    seam = ModelSeam(RunAborted)

    def once() -> object:
        word = WORDS[next(NUMBERS)]
        PLACE.spanned()
        asked = ModelRequest(model="m", messages=[word])
        return seam.call(lambda: asked, lambda said: ModelAnswer(content=said), lambda hints: word)

    return repeated(once)


def langchain_tool() -> Case:
    """A graph that goes round between a node without a model and LangGraph's tool node."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import StructuredTool
    from langgraph.graph import START, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition
    from typing_extensions import TypedDict

    class Latest(TypedDict):
        messages: list[Any]

    left = 0

    def ask(state: Latest) -> Any:
        nonlocal left
        left -= 1
        number = next(NUMBERS)
        call = {"name": "answer", "args": {"q": WORDS[number]}, "id": f"call_{number}", "type": "tool_call"}
        return {"messages": [AIMessage(content="", tool_calls=[call] if left >= 0 else [])]}

    graph = StateGraph(Latest)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([StructuredTool.from_function(answer, name="answer")]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    made = graph.compile()

    def work(calls: int) -> None:
        nonlocal left
        left = calls
        made.invoke({"messages": []}, {"recursion_limit": 4 * calls + 10})

    return work


def langchain_model(messages: int) -> Case:
    """One call of a chat model with a history of so many messages, whose head stays the same."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage

    def replies() -> Iterator[AIMessage]:
        while True:
            PLACE.spanned()
            yield AIMessage(content=WORDS[next(NUMBERS)])

    model = GenericFakeChatModel(messages=replies())
    history = [
        (AIMessage if number % 2 else HumanMessage)(f"part {number} of what was said") for number in range(messages - 1)
    ]
    return repeated(lambda: model.invoke([*history, HumanMessage(WORDS[next(NUMBERS)])]))


def chat_completion() -> Any:
    number = next(NUMBERS)
    function = {"name": "answer", "arguments": json.dumps({"q": WORDS[number]})}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": f"chat_{number}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def http_client(reply: Callable[[], Any]) -> Any:
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx  # type: ignore[no-redef]

    def handle(request: Any) -> Any:
        PLACE.spanned()
        return httpx.Response(200, json=reply())

    return httpx.Client(transport=httpx.MockTransport(handle))


def openai_turn(messages: int) -> Case:
    """One request of OpenAI's client that brings the result of a tool call and gets the next call."""
    import openai

    client = openai.OpenAI(api_key="none", http_client=http_client(chat_completion))
    head = [
        {"role": "assistant" if number % 2 else "user", "content": f"part {number} of what was said"}
        for number in range(messages - 2)
    ]
    last: list[Any] = []

    def once() -> object:
        answered = client.chat.completions.create(model="m", messages=[*head, *last])
        message = answered.choices[0].message
        call = message.tool_calls[0]
        told = {"role": "tool", "tool_call_id": call.id, "content": f"what is known of {call.function.arguments}"}
        last[:] = [message.model_dump(exclude_none=True), told]
        return answered

    return repeated(once)


def anthropic_turn(messages: int) -> Case:
    """One request of Anthropic's client that brings the result of a tool call and gets the next call."""
    import anthropic

    def reply() -> Any:
        number = next(NUMBERS)
        use = {"type": "tool_use", "id": f"call_{number}", "name": "answer", "input": {"q": WORDS[number]}}
        head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": [use]}
        return {**head, "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": number}}

    client = anthropic.Anthropic(api_key="none", http_client=http_client(reply))
    head = [
        {"role": "assistant" if number % 2 else "user", "content": f"part {number} of what was said"}
        for number in range(messages - 2)
    ]
    last: list[Any] = []

    def once() -> object:
        asked = [*head, *last] or [{"role": "user", "content": "go"}]
        answered = client.messages.create(model="m", max_tokens=99, messages=asked)
        use = answered.content[0]
        told = {"type": "tool_result", "tool_use_id": use.id, "content": f"what is known of {use.input['q']}"}
        content = [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.input}]
        last[:] = [{"role": "assistant", "content": content}, {"role": "user", "content": [told]}]
        return answered

    return repeated(once)


def openai_agents(at_once: int) -> Case:
    """Tool calls of an agent of the OpenAI Agents SDK, so many in one answer of its model."""
    from agents import Agent, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    left = 0

    class InProcess(Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            nonlocal left
            wanted = min(left, at_once)
            left -= wanted
            if at_once == 1:
                PLACE.spanned()
            output: list[Any] = [asked() for _ in range(wanted)]
            return ModelResponse(output=output or [done()], usage=Usage(requests=1), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    def asked() -> ResponseFunctionToolCall:
        number = next(NUMBERS)
        arguments = json.dumps({"q": WORDS[number]})
        call_id = f"call_{number}"
        return ResponseFunctionToolCall(name="answer", arguments=arguments, call_id=call_id, type="function_call")

    def done() -> ResponseOutputMessage:
        text = ResponseOutputText(text="done", type="output_text", annotations=[])
        return ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")

    agent = Agent(name="agent", model=InProcess(), tools=[function_tool(answer)])

    def work(calls: int) -> None:
        nonlocal left
        left = calls
        loop().run(Runner.run(agent, "go", max_turns=calls + 2))

    return work


def pydantic_ai(at_once: int) -> Case:
    """Tool calls of an agent of Pydantic AI, so many in one answer of its model."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import UsageLimits

    left = 0

    def reply(messages: Any, info: Any) -> ModelResponse:
        nonlocal left
        wanted = min(left, at_once)
        left -= wanted
        if at_once == 1:
            PLACE.spanned()
        calls = [ToolCallPart("answer", {"q": WORDS[next(NUMBERS)]}) for _ in range(wanted)]
        return ModelResponse(parts=calls or [TextPart("done")])

    agent = Agent(FunctionModel(reply), tools=[answer], name="agent")

    def work(calls: int) -> None:
        nonlocal left
        left = calls
        loop().run(agent.run("go", usage_limits=UsageLimits(request_limit=None)))

    return work


def mcp_client() -> Case:
    """A call of an MCP client, with its server in memory."""
    from mcp import Client
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("server")
    server.tool()(answer)
    client = Client(server)
    loop().run(client.__aenter__())
    return awaited(lambda: client.call_tool("answer", {"q": WORDS[next(NUMBERS)]}))


def mcp_server() -> Case:
    """A call of a tool of an MCP server, without a client."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("server")
    server.tool()(answer)
    return awaited(lambda: server.call_tool("answer", {"q": WORDS[next(NUMBERS)]}))


def fastmcp_server() -> Case:
    """A call of a tool of a FastMCP server, without a client."""
    from fastmcp import FastMCP

    server = FastMCP("server")
    server.tool(answer)
    return awaited(lambda: server.call_tool("answer", {"q": WORDS[next(NUMBERS)]}))


CASES: dict[str, Callable[[], Case]] = {
    "@tool, one call": declared_tool,
    "the adapters' tool seam, one call": tool_seam,
    "the adapters' model seam, one call": model_seam,
    "langgraph, one tool call": langchain_tool,
    "openai-agents, one tool call of 50 at once": lambda: openai_agents(50),
    "openai-agents, one model call and one tool call": lambda: openai_agents(1),
    "pydantic-ai, one tool call of 50 at once": lambda: pydantic_ai(50),
    "pydantic-ai, one model call and one tool call": lambda: pydantic_ai(1),
    "mcp client, one tool call": mcp_client,
    "mcp server, one tool call": mcp_server,
    "fastmcp server, one tool call": fastmcp_server,
    **{
        f"{title}, {messages} messages": lambda make=make, messages=messages: make(messages)
        for title, make in {
            "langchain, one model call": langchain_model,
            "openai, one model call and one tool call": openai_turn,
            "anthropic, one model call and one tool call": anthropic_turn,
        }.items()
        for messages in (10, 400)
    },
}


def timed(work: Case, calls: int) -> float:
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        work(calls)
        return (time.process_time() - began) / calls * 1e6
    finally:
        gc.enable()


def guarded(work: Case, calls: int, **given: Any) -> float:
    guard = install(mode="enforce", **given)
    try:
        with run("benchmark"):
            work(10)
            return timed(work, calls)
    finally:
        guard.shutdown()


def spanned(work: Case, calls: int, tracer: trace.Tracer) -> float:
    PLACE.tracer = tracer
    try:
        work(10)
        return timed(work, calls)
    finally:
        PLACE.tracer = None


def compared(work: Case, rounds: int, calls: int, tracer: trace.Tracer) -> dict[str, float]:
    """Medians, microseconds a call."""
    variants: dict[str, Callable[[], float]] = {
        "bare": lambda: timed(work, calls),
        "span": lambda: spanned(work, calls, tracer),
        "unchecked": lambda: guarded(work, calls, checks=()),
        "guarded": lambda: guarded(work, calls),
    }
    work(calls)
    took: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            took[name].append(variant())
    return {name: statistics.median(times) for name, times in took.items()}


def provider() -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(NoExporter()))
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("word", nargs="*", help="measure the cases that have one of these in their titles")
    asked = parser.parse_args()
    logging.disable(logging.INFO)
    trace.set_tracer_provider(provider())
    tracer = provider().get_tracer("bare")
    print(f"{'us a call':52} {'bare':>7} {'+span':>7} {'+guard':>7} {'spans':>6}  without checks")
    for title, make in CASES.items():
        if asked.word and not any(word in title for word in asked.word):
            continue
        try:
            work = make()
        except ImportError as exc:
            print(f"{title}: left out, {exc}")
            continue
        took = compared(work, 5 if asked.quick else 15, 100, tracer)
        span, plain, whole = (took[name] - took["bare"] for name in ("span", "unchecked", "guarded"))
        verdict = "" if whole <= LIMIT_US else f"  above {LIMIT_US:.0f}"
        print(f"{title:52} {took['bare']:7.0f} {span:7.0f} {whole:7.0f} {whole / span:6.1f}  {plain:6.0f}{verdict}")


if __name__ == "__main__":
    main()
