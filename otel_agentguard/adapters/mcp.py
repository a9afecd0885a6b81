"""The adapter of MCP: the calls of a client session, and the tools of an `MCPServer`.

A client's call belongs to the run that makes it. A server does not know the runs of its clients: what comes in
one session is taken as one run, which is told and refused, and never ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from mcp_types import CallToolResult, TextContent

from otel_agentguard.adapters.contract import Reading, ToolRequest
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.annotations import effect_of_annotations
from otel_agentguard.current import scope
from otel_agentguard.errors import RunAborted
from otel_agentguard.events import Effect
from otel_agentguard.fingerprint import call_digest
from otel_agentguard.forks import new_lock
from otel_agentguard.guard import installed
from otel_agentguard.seams.handed import call_around
from otel_agentguard.words import SIGNATURE

CLIENT = ToolSeam(RunAborted)
# An exception of ours would be an error of the server to one client, and a `BaseException` its end for all.
SERVER = ToolSeam(None)


def hook_client(patches: Patches) -> None:
    """Put the seam around the calls of client sessions, whatever carries them."""
    from mcp.client.session import ClientSession

    patches.wrap(ClientSession, "call_tool", _call_tool)
    patches.wrap(ClientSession, "list_tools", _list_tools)


def hook_connection(patches: Patches) -> None:
    """Have a stop leave a connection as what it is."""
    from mcp.client.client import Client

    patches.wrap(Client, "__aexit__", _left)


def hook_server(patches: Patches) -> None:
    """Put the seam around the tools of servers."""
    from mcp.server.mcpserver.tools.base import Tool

    patches.wrap(Tool, "run", _run)


async def _call_tool(wrapped: Any, session: Any, args: Any, kwargs: Any) -> Any:
    name, arguments = _called(*args, **kwargs)
    if is_told(name):
        return await wrapped(*args, **kwargs)

    async def body() -> Any:
        with _under_way(name, arguments):
            return await wrapped(*args, **kwargs)

    return await CLIENT.call_async(partial(_client_request, session, name, arguments), CallResults(), body)


def _called(name: str, arguments: Any = None, *_: Any, **__: Any) -> tuple[str, Any]:
    return name, arguments


def _client_request(session: Any, name: str, arguments: Any) -> ToolRequest:
    effects = _listed.get(session, {})
    return ToolRequest(tool=name, arguments=dict(arguments or {}), effect=effects.get(name, Effect.UNKNOWN))


async def _list_tools(wrapped: Any, session: Any, args: Any, kwargs: Any) -> Any:
    listed = await wrapped(*args, **kwargs)
    if installed.guard is not None:
        try:
            known = _listed.setdefault(session, {})
            known.update({tool.name: effect_of(tool.annotations) for tool in listed.tools})
        except Exception as exc:
            installed.guard.engine.failed("adapter", exc)
    return listed


_listed: MutableMapping[Any, dict[str, Effect]] = WeakKeyDictionary()


async def _left(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    """The end of a connection, whose task groups put a stop that passes through them into groups of exceptions."""
    error = args[1] if len(args) > 1 else None
    try:
        return await wrapped(*args, **kwargs)
    except BaseExceptionGroup as group:
        if isinstance(error, RunAborted) and group.split(lambda one: one is error)[1] is None:
            raise error from error.__cause__
        raise


def effect_of(annotations: Any) -> Effect:
    """What the annotations of a tool suggest that it does; they are hints, which a declaration or a setting beats."""
    if annotations is None:
        return Effect.UNKNOWN
    hints: Mapping[str, object] = annotations.model_dump(by_alias=True, exclude_none=True)
    return effect_of_annotations(hints)


def is_told(name: str) -> bool:
    """Whether a seam further out tells of the call of this tool: a framework's, or of a server that mounts this one.

    Both may put a prefix before the name that the server knows the tool by.
    """
    outer = call_around()
    return outer is not None and (outer.call.tool == name or outer.call.tool.endswith((f"_{name}", f".{name}")))


async def _run(wrapped: Any, tool: Any, args: Any, kwargs: Any) -> Any:
    arguments, context, converted = _asked(*args, **kwargs)
    if is_told(tool.name) or is_under_way(tool.name, arguments):
        return await wrapped(*args, **kwargs)
    results = CallResults() if converted else RawResults()
    return await SERVER.call_async(
        partial(_server_request, tool, arguments, context), results, lambda: wrapped(*args, **kwargs)
    )


def _asked(arguments: Any, context: Any = None, convert_result: bool = False) -> tuple[Any, Any, bool]:
    return arguments, context, convert_result


def _server_request(tool: Any, arguments: Any, context: Any) -> ToolRequest:
    return ToolRequest(
        tool=tool.name,
        arguments=dict(arguments),
        function=tool.fn,
        effect=effect_of(tool.annotations),
        conversation=conversation_of(*_came_in(context)),
    )


def _came_in(context: Any) -> tuple[Any, Any]:
    """The request that a context is of, and its server; None for what a program calls without a request."""
    try:
        return context.request_context, context.mcp_server
    except (AttributeError, LookupError, ValueError):
        return None, None


def conversation_of(request: Any, server: Any) -> str | None:
    """What a call over the wire is part of, for a server that nobody tells where a client begins something new.

    Args:
        request: The request's context, as the server has it; None for a call that its own program makes.
        server: The server.

    Returns:
        The session where there is one. Without HTTP there is one client, and the server's life is its session.
        Over HTTP without sessions every request stands alone: None, and a trace that the client sends may tell.
    """
    if request is None:
        return None
    session = getattr(getattr(getattr(request, "session", None), "_connection", None), "session_id", None)
    if not isinstance(session, str):
        if getattr(request, "request", None) is not None:
            return None
        with _lock:
            session = _names.setdefault(server, uuid4().hex)
    conversation = f"mcp-{session}"
    if installed.guard is not None and scope().run is None:
        # It serves other chats of the same client next, so it is refused calls, but never ended.
        installed.guard.implicit.of_conversation(conversation).can_stop = False
    return conversation


_lock = new_lock()
_names: MutableMapping[Any, str] = WeakKeyDictionary()


# A client and its server in one process: the client has told of the call already.


@contextmanager
def _under_way(name: str, arguments: Any) -> Iterator[None]:
    key = _key(name, arguments)
    with _lock:
        _calls[key] += 1
    try:
        yield
    finally:
        with _lock:
            _calls[key] -= 1
            if not _calls[key]:
                del _calls[key]


def is_under_way(name: str, arguments: Any) -> bool:
    """Whether a client of this process waits for this very call."""
    if not _calls:
        return False
    with _lock:
        return _key(name, arguments) in _calls


def _key(name: str, arguments: Any) -> tuple[str, bytes | None]:
    return name, call_digest(name, dict(arguments or {}))


_calls: Counter[tuple[str, bytes | None]] = Counter()


class CallResults:
    """`Results` of a call, as the protocol has them."""

    def read(self, result: Any) -> Reading:
        """See `Results`; a result that asks the client for more is none yet.

        What another guard, at the server, has said counts times, so that no two of its answers are the same: it is
        left out.
        """
        if not isinstance(result, CallToolResult):
            return Reading(None, known=False)
        said = result
        if any(map(_is_note, result.content)):
            said = result.model_copy(update={"content": [block for block in result.content if not _is_note(block)]})
        content = said.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
        return Reading(content, failed=result.is_error)

    def refusal(self, text: str) -> Any:
        """See `Results`; an error to the client, since what is none must fit the tool's output schema."""
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)

    def again(self, value: object) -> Any:
        """See `Results`."""
        return CallToolResult.model_validate(value)

    def with_note(self, result: Any, note: str) -> Any:
        """See `Results`; what is structured stays as it is."""
        if not isinstance(result, CallToolResult):
            return None
        return result.model_copy(update={"content": [TextContent(type="text", text=note), *result.content]})


def _is_note(block: Any) -> bool:
    return isinstance(block, TextContent) and block.text.startswith(SIGNATURE)


class RawResults:
    """`Results` of a tool that the program of a server runs itself: whatever its function returns."""

    def read(self, result: Any) -> Reading:
        """See `Results`."""
        return Reading(result)

    def refusal(self, text: str) -> Any:
        """See `Results`.

        Raises:
            ToolError: Always; that is how such a call fails, and its text reaches the model.
        """
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError(text)

    def again(self, value: object) -> Any:
        """See `Results`."""
        return value

    def with_note(self, result: Any, note: str) -> Any:
        """See `Results`."""
        return f"{note}\n\n{result}" if type(result) is str else None
