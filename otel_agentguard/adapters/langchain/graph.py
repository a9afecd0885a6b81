"""The seams in LangGraph: the tool node, and the runs of graphs."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from otel_agentguard.adapters.contract import EntryRequest, ToolRequest
from otel_agentguard.adapters.entries import RunEntry, tell_handoff
from otel_agentguard.adapters.langchain import core, decode
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.errors import RunAborted


class GraphRunAborted(RunAborted, GraphBubbleUp):
    """A stop on its way through a graph: no tool node, retry or fallback takes it for an error."""


TOOLS = ToolSeam(GraphRunAborted, pauses=(GraphBubbleUp,))
ENTRY = RunEntry(GraphRunAborted)


def hook_tool_node(patches: Patches) -> None:
    """Put the seam into the tool path."""
    from langgraph.prebuilt.tool_node import ToolNode

    patches.wrap(ToolNode, "_run_one", _run_one)
    patches.wrap(ToolNode, "_arun_one", _arun_one)


def hook_graphs(patches: Patches) -> None:
    """Put the entry around runs of graphs.

    All of them go through `stream` and `astream`. Where that is the doing of `invoke` and `ainvoke`, these are the
    entry, so that nothing is in the way of what is streamed to nobody else.
    """
    from langgraph.pregel.main import Pregel

    for seam in (core.MODELS, core.TALK.models, core.TOOLS):
        patches.replace(seam, "carrier", GraphRunAborted)
    patches.replace(core.TOOLS, "pauses", (GraphBubbleUp,))
    patches.wrap(Pregel, "invoke", _invoke)
    patches.wrap(Pregel, "ainvoke", _ainvoke)
    patches.wrap(Pregel, "stream", _stream)
    patches.wrap(Pregel, "astream", _astream)


def _run_one(wrapped: Any, node: Any, args: Any, kwargs: Any) -> Any:
    call, runtime = _called(*args, **kwargs)
    tool = node.tools_by_name.get(call["name"])
    if _hands_off(tool, call, runtime):
        return wrapped(*args, **kwargs)
    results = decode.ToolMessages(call["name"], call["id"])
    return TOOLS.call(partial(_request, tool, call, runtime), results, lambda: wrapped(*args, **kwargs))


async def _arun_one(wrapped: Any, node: Any, args: Any, kwargs: Any) -> Any:
    call, runtime = _called(*args, **kwargs)
    tool = node.tools_by_name.get(call["name"])
    if _hands_off(tool, call, runtime):
        return await wrapped(*args, **kwargs)
    results = decode.ToolMessages(call["name"], call["id"])
    return await TOOLS.call_async(partial(_request, tool, call, runtime), results, lambda: wrapped(*args, **kwargs))


def _called(call: Any, input_type: Any = None, tool_runtime: Any = None) -> tuple[Any, Any]:
    return call, tool_runtime


def _request(tool: Any, call: Any, runtime: Any) -> ToolRequest:
    return decode.tool_request(call, tool, batch=decode.batch_of(getattr(runtime, "state", None)))


def _hands_off(tool: Any, call: Any, runtime: Any) -> bool:
    """Tell of a handoff, which is no tool call; whether it was one."""
    target = decode.handoff_target(call["name"], tool)
    if target is None:
        return False
    handed = [call.get("args"), decode.last_text(getattr(runtime, "state", None))]
    tell_handoff(target, handed=handed, carrier=GraphRunAborted)
    return True


# The graph whose `invoke` has been entered and is about to ask for its own stream.
_invoked: ContextVar[Any] = ContextVar("agentguard-invoked-graph", default=None)


def _invoke(wrapped: Any, graph: Any, args: Any, kwargs: Any) -> Any:
    def body() -> Any:
        token = _invoked.set(graph)
        try:
            return wrapped(*args, **kwargs)
        finally:
            _invoked.reset(token)

    return ENTRY.call(lambda: _entry(graph, *args, **kwargs), body, said=decode.said_in_all)


async def _ainvoke(wrapped: Any, graph: Any, args: Any, kwargs: Any) -> Any:
    async def body() -> Any:
        token = _invoked.set(graph)
        try:
            return await wrapped(*args, **kwargs)
        finally:
            _invoked.reset(token)

    return await ENTRY.call_async(lambda: _entry(graph, *args, **kwargs), body, said=decode.said_in_all)


def _is_entered(graph: Any) -> bool:
    """Whether it is `invoke` that asks for the stream of this graph; a node in it may ask for another one."""
    if _invoked.get() is not graph:
        return False
    _invoked.set(None)
    return True


def _stream(wrapped: Any, graph: Any, args: Any, kwargs: Any) -> Any:
    if _is_entered(graph):
        return wrapped(*args, **kwargs)
    return ENTRY.stream(lambda: _entry(graph, *args, **kwargs), lambda: wrapped(*args, **kwargs), said=decode.said)


def _astream(wrapped: Any, graph: Any, args: Any, kwargs: Any) -> Any:
    if _is_entered(graph):
        return wrapped(*args, **kwargs)
    return ENTRY.stream_async(
        lambda: _entry(graph, *args, **kwargs), lambda: wrapped(*args, **kwargs), said=decode.said
    )


def _entry(graph: Any, input: Any, config: Any = None, **_: Any) -> EntryRequest:
    return decode.entry_request(
        getattr(graph, "name", None),
        input,
        config,
        getattr(graph, "config", None),
        is_resumption=input is None or isinstance(input, Command),
    )
