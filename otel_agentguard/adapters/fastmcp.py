"""The adapter of FastMCP: the tools of a server. Its client is guarded by the adapter of MCP, below it."""

from __future__ import annotations

from functools import partial
from typing import Any

from mcp_types import TextContent

from otel_agentguard.adapters.contract import Reading, ToolRequest
from otel_agentguard.adapters.mcp import conversation_of, effect_of, is_told, is_under_way
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.guard import installed
from otel_agentguard.seams.declare import declaration_named
from otel_agentguard.seams.handed import call_around

TOOLS = ToolSeam(None)


def hook(patches: Patches) -> None:
    """Put the seam around the calls of a server, outside of its middleware."""
    from fastmcp.server.server import FastMCP

    patches.wrap(FastMCP, "call_tool", _call_tool)


async def _call_tool(wrapped: Any, server: Any, args: Any, kwargs: Any) -> Any:
    name, arguments, is_inner = _called(*args, **kwargs)
    if is_inner or is_under_way(name, arguments):
        return await wrapped(*args, **kwargs)
    if is_told(name):
        _hand_on(name)
        return await wrapped(*args, **kwargs)
    tool = await _found(server, name)
    return await TOOLS.call_async(
        partial(_request, server, name, arguments, tool), ToolResults(), lambda: wrapped(*args, **kwargs)
    )


def _called(name: str, arguments: Any = None, *, run_middleware: bool = True, **_: Any) -> tuple[str, Any, bool]:
    return name, arguments or {}, not run_middleware


def _hand_on(name: str) -> None:
    """Have a declared tool of a mounted server know its call by the name that the outer server gives it."""
    outer = call_around()
    if outer is not None and outer.declaration is None:
        outer.declaration = declaration_named(name)


async def _found(server: Any, name: str) -> Any:
    """The tool, where it is the server's own; others may be far away, and are asked for by the call alone."""
    if installed.guard is None:
        return None
    try:
        return await server.local_provider.get_tool(name)
    except Exception as exc:
        installed.guard.engine.failed("adapter", exc)
        return None


def _request(server: Any, name: str, arguments: Any, tool: Any) -> ToolRequest:
    return ToolRequest(
        tool=name,
        arguments=dict(arguments),
        function=getattr(tool, "fn", None),
        effect=effect_of(getattr(tool, "annotations", None)),
        conversation=conversation_of(_request_context(), server),
    )


def _request_context() -> Any:
    from fastmcp.server.dependencies import fastmcp_request_ctx

    return fastmcp_request_ctx.get(None)


class ToolResults:
    """`Results` of a call: `ToolResult`."""

    def read(self, result: Any) -> Reading:
        """See `Results`."""
        content = [block.model_dump(mode="json", exclude_none=True, exclude={"meta"}) for block in result.content]
        return Reading([content, result.structured_content], failed=result.is_error)

    def refusal(self, text: str) -> Any:
        """See `Results`; an error to the client, since what is none must fit the tool's output schema."""
        from fastmcp.tools.base import ToolResult

        return ToolResult(content=text, is_error=True)

    def again(self, value: Any) -> Any:
        """See `Results`."""
        from fastmcp.tools.base import ToolResult

        content, structured = value
        return ToolResult(content=[_block(one) for one in content], structured_content=structured)

    def with_note(self, result: Any, note: str) -> Any:
        """See `Results`; what is structured stays as it is."""
        return result.model_copy(update={"content": [TextContent(type="text", text=note), *result.content]})


def _block(value: Any) -> Any:
    from mcp_types import ContentBlock
    from pydantic import TypeAdapter

    return TypeAdapter(ContentBlock).validate_python(value)
