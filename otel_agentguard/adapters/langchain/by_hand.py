"""The seam in langchain-core's tools, for programs that run them themselves."""

from __future__ import annotations

from typing import Any

from langchain_core.tools.base import BaseTool

from otel_agentguard.adapters.contract import ToolRequest
from otel_agentguard.adapters.langchain import decode
from otel_agentguard.adapters.langchain.core import TOOLS
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.tools import is_call_told


def hook_tools(patches: Patches) -> None:
    """Put the seam around tools that a program runs itself."""
    patches.wrap(BaseTool, "run", _run)
    patches.wrap(BaseTool, "arun", _arun)


def _run(wrapped: Any, tool: Any, args: Any, kwargs: Any) -> Any:
    if _is_told(tool):
        return wrapped(*args, **kwargs)
    results = decode.ToolMessages(tool.name, kwargs.get("tool_call_id"))
    return TOOLS.call(lambda: _run_request(tool, *args, **kwargs), results, lambda: wrapped(*args, **kwargs))


async def _arun(wrapped: Any, tool: Any, args: Any, kwargs: Any) -> Any:
    if _is_told(tool):
        return await wrapped(*args, **kwargs)
    results = decode.ToolMessages(tool.name, kwargs.get("tool_call_id"))
    return await TOOLS.call_async(
        lambda: _run_request(tool, *args, **kwargs), results, lambda: wrapped(*args, **kwargs)
    )


def _run_request(tool: Any, tool_input: Any, *_: Any, tool_call_id: str | None = None, **__: Any) -> ToolRequest:
    arguments = tool_input if isinstance(tool_input, dict) else {"input": tool_input}
    return decode.tool_request({"name": tool.name, "args": arguments, "id": tool_call_id}, tool)


def _is_told(tool: Any) -> bool:
    """Whether the tool node has told of the call, as a call or as a handoff."""
    return is_call_told(tool.name) or decode.handoff_target(tool.name, tool) is not None
