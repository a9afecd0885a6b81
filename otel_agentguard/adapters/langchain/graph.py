"""The seams in LangGraph: the tool node, and the runs of graphs."""

from __future__ import annotations

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
    """Put the entry around runs of graphs; `invoke` and all else go through `stream` and `astream`."""
    from langgraph.pregel.main import Pregel

    for seam in (core.MODELS, core.TALK.models, core.TOOLS):
        patches.replace(seam, "carrier", GraphRunAborted)
    patches.replace(core.TOOLS, "pauses", (GraphBubbleUp,))
    patches.wrap(Pregel, "stream", _stream)
    patches.wrap(Pregel, "astream", _astream)


def _run_one(wrapped: Any, node: Any, args: Any, kwargs: Any) -> Any:
    call, runtime = _called(*args, **kwargs)
    if _hands_off(node, call, runtime):
        return wrapped(*args, **kwargs)
    results = decode.ToolMessages(call["name"], call["id"])
    return TOOLS.call(partial(_request, node, call, runtime), results, lambda: wrapped(*args, **kwargs))


async def _arun_one(wrapped: Any, node: Any, args: Any, kwargs: Any) -> Any:
    call, runtime = _called(*args, **kwargs)
    if _hands_off(node, call, runtime):
        return await wrapped(*args, **kwargs)
    results = decode.ToolMessages(call["name"], call["id"])
    return await TOOLS.call_async(partial(_request, node, call, runtime), results, lambda: wrapped(*args, **kwargs))


def _called(call: Any, input_type: Any = None, tool_runtime: Any = None) -> tuple[Any, Any]:
    return call, tool_runtime


def _request(node: Any, call: Any, runtime: Any) -> ToolRequest:
    batch = decode.batch_of(getattr(runtime, "state", None))
    return decode.tool_request(call, node.tools_by_name.get(call["name"]), batch=batch)


def _hands_off(node: Any, call: Any, runtime: Any) -> bool:
    """Tell of a handoff, which is no tool call; whether it was one."""
    target = decode.handoff_target(call["name"], node.tools_by_name.get(call["name"]))
    if target is None:
        return False
    handed = [call.get("args"), decode.last_text(getattr(runtime, "state", None))]
    tell_handoff(target, handed=handed, carrier=GraphRunAborted)
    return True


def _stream(wrapped: Any, graph: Any, args: Any, kwargs: Any) -> Any:
    return ENTRY.stream(lambda: _entry(graph, *args, **kwargs), lambda: wrapped(*args, **kwargs), said=decode.said)


def _astream(wrapped: Any, graph: Any, args: Any, kwargs: Any) -> Any:
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
