"""What an adapter adds to one tool call and one model call of a framework, in microseconds.

    python benchmarks/adapters.py [--quick]

The model answers in process, so that nothing but the framework and the guard takes time. Rounds without and with
the guard are interleaved, and medians of the process's CPU time are compared, since other processes share the
machine. The tracer provider is the SDK's, with an exporter that drops.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
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


def answer(q: str) -> str:
    """Look something up."""
    return f"{hash(q):x} is what is known of {q}"


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


def langchain_model() -> Case:
    """One call of a chat model with ten messages."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage

    def replies() -> Iterator[AIMessage]:
        while True:
            yield AIMessage(content=WORDS[next(NUMBERS)])

    model = GenericFakeChatModel(messages=replies())
    history = [HumanMessage(f"part {number} of what was said") for number in range(9)]
    return repeated(lambda: model.invoke([*history, HumanMessage(WORDS[next(NUMBERS)])]))


def openai_turn() -> Case:
    """One request of OpenAI's client that brings the result of a tool call and gets the next call."""
    import openai

    try:
        import httpx2 as httpx
    except ImportError:
        import httpx  # type: ignore[no-redef]

    def reply(request: Any) -> Any:
        number = next(NUMBERS)
        function = {"name": "answer", "arguments": json.dumps({"q": WORDS[number]})}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
        }
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        head = {"id": f"chat_{number}", "object": "chat.completion", "created": 1, "model": "m"}
        return httpx.Response(200, json={**head, "choices": [choice]})

    client = openai.OpenAI(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(reply)))
    last: list[Any] = []

    def once() -> object:
        answered = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}, *last])
        message = answered.choices[0].message
        call = message.tool_calls[0]
        told = {"role": "tool", "tool_call_id": call.id, "content": answer(call.function.arguments)}
        last[:] = [message.model_dump(exclude_none=True), told]
        return answered

    return repeated(once)


CASES = {
    "@tool, one call": declared_tool,
    "the adapters' tool seam, one call": tool_seam,
    "the adapters' model seam, one call": model_seam,
    "langgraph, one tool call": langchain_tool,
    "langchain chat model, one model call": langchain_model,
    "openai client, one model call and one tool call": openai_turn,
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


def compared(work: Case, rounds: int, calls: int) -> tuple[float, float]:
    """Medians without and with the guard, microseconds a call."""
    work(calls)
    bare, guarded = [], []
    for _ in range(rounds):
        bare.append(timed(work, calls))
        guard = install(mode="enforce")
        with run("benchmark"):
            work(1)
            guarded.append(timed(work, calls))
        guard.shutdown()
    return statistics.median(bare), statistics.median(guarded)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(NoExporter()))
    trace.set_tracer_provider(provider)
    for title, make in CASES.items():
        try:
            work = make()
        except ImportError as exc:
            print(f"{title}: left out, {exc}")
            continue
        bare, guarded = compared(work, 7 if quick else 21, 100)
        verdict = "" if guarded - bare <= LIMIT_US else f"  above {LIMIT_US:.0f}"
        print(f"{title}: {bare:.0f} us bare, {guarded:.0f} us guarded, {guarded - bare:+.0f} us{verdict}")


if __name__ == "__main__":
    main()
