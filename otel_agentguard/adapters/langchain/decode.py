"""LangChain's messages, tools and configurations, as the guard reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from otel_agentguard.adapters.contract import EntryRequest, ModelAnswer, ModelRequest, Reading, ToolRequest
from otel_agentguard.adapters.talk import Asked, TalkAnswer, TalkRequest, Told

_HANDOFF_KEY = "__handoff_destination"
_HANDOFF_PREFIX = re.compile("transfer_to_|transfer_back_to_|handoff_to_")
# `isinstance` is told of the usual ones first: asking an abstract class takes longer than all else that is asked here.
_MAPPINGS = (dict, Mapping)
_SEQUENCES = (list, tuple, Sequence)
_INTERRUPTED = "__interrupt__"
_USERS = frozenset({"user", "human"})
_UNNAMED = frozenset({"LangGraph", "", None})


def tool_request(call: Mapping[str, Any], tool: Any = None, *, batch: str | None = None) -> ToolRequest:
    """A tool call as a message of the model holds it; `tool` is the `BaseTool` that it goes to."""
    arguments = call.get("args")
    return ToolRequest(
        tool=str(call["name"]),
        arguments=dict(arguments) if isinstance(arguments, _MAPPINGS) else None,
        call_id=call.get("id"),
        batch=batch,
        function=function_of(tool),
    )


def function_of(tool: Any) -> object:
    """The function of the program under a tool, where it is made of one."""
    return getattr(tool, "func", None) or getattr(tool, "coroutine", None)


def handoff_target(name: str, tool: Any) -> str | None:
    """The agent that a tool hands control to; None for a tool that does something else."""
    metadata = getattr(tool, "metadata", None)
    if metadata and isinstance(metadata, Mapping) and isinstance(target := metadata.get(_HANDOFF_KEY), str):
        return target
    prefix = _HANDOFF_PREFIX.match(name)
    return None if prefix is None else name[prefix.end() :]


def last_text(state: Any) -> str | None:
    """What the latest message of a state says."""
    messages = state.get("messages") if isinstance(state, Mapping) else state
    if not isinstance(messages, Sequence) or not messages or not isinstance(messages[-1], BaseMessage):
        return None
    return str(messages[-1].text)


def said(item: Any) -> str | None:
    """What an agent answered, from the last item that its graph yielded: its state, in most modes of streaming."""
    state = item[-1] if isinstance(item, tuple) else item
    if not isinstance(state, Mapping):
        return None
    messages = state.get("messages")
    last = messages[-1] if isinstance(messages, Sequence) and messages else None
    return str(last.text) if isinstance(last, AIMessage) and not last.tool_calls else None


def said_in_all(result: Any) -> str | None:
    """`said` of what a graph gives back at once: its state, or the list of all items."""
    if isinstance(result, list):
        return said(result[-1]) if result else None
    return None if isinstance(result, Mapping) and _INTERRUPTED in result else said(result)


def batch_of(state: Any) -> str | None:
    """The id of the model's message that the calls of a state came in."""
    messages = state.get("messages") if isinstance(state, _MAPPINGS) else state
    if not isinstance(messages, _SEQUENCES) or not messages:
        return None
    last = messages[-1]
    return last.id if isinstance(last, AIMessage) else None


class ToolMessages:
    """`Results` of one tool call: tool messages, commands that carry them, or the bare content.

    Args:
        name: Name of the tool.
        call_id: Id of the call; None where the tool was run without one, and returns bare content.
    """

    def __init__(self, name: str, call_id: str | None) -> None:
        self._name = name
        self._call_id = call_id

    def read(self, result: Any) -> Reading:
        """See `Results`."""
        if isinstance(result, ToolMessage):
            return Reading(result.content, failed=result.status == "error")
        if isinstance(result, list) and any(isinstance(one, ToolMessage) or _update_of(one) for one in result):
            readings = [self.read(one) for one in result]
            return Reading([one.value for one in readings], failed=any(one.failed for one in readings))
        update = _update_of(result)
        return Reading(result if update is None else _plain(update))

    def refusal(self, text: str) -> Any:
        """See `Results`."""
        return self.again(text)

    def again(self, value: object) -> Any:
        """See `Results`."""
        if self._call_id is None:
            return value
        content: Any = value if isinstance(value, str | list) else str(value)
        return ToolMessage(content=content, name=self._name, tool_call_id=self._call_id)

    def with_note(self, result: Any, note: str) -> Any:
        """See `Results`."""
        if type(result) is str:
            return f"{note}\n\n{result}"
        if not isinstance(result, ToolMessage):
            return None
        content: Any = result.content
        noted = f"{note}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": note}, *content]
        return result.model_copy(update={"content": noted})


def model_request(model: Any, messages: Any, options: Mapping[str, Any]) -> ModelRequest:
    """A request of a chat model."""
    return ModelRequest(
        model=_model_name(model),
        messages=[_plain(message) for message in messages],
        tools=options.get("tools"),
    )


def talk_request(model: Any, messages: Any, options: Mapping[str, Any]) -> TalkRequest:
    """A request of a chat model in a loop that is written by hand."""
    plain = model_request(model, messages, options)
    last = messages[-1] if messages else None
    ends_with_user = isinstance(last, HumanMessage)
    return TalkRequest(
        model=plain.model,
        messages=plain.messages,
        tools=plain.tools,
        results=partial(_results, messages),
        user_messages=[_role_of[type(one)] for one in messages].count(HumanMessage),
        ends_with_user=ends_with_user,
        user_text=str(last.text) if isinstance(last, HumanMessage) else None,
    )


def _results(messages: Sequence[Any]) -> Iterator[Told]:
    for one in reversed(messages):
        if _role_of[type(one)] is ToolMessage:
            yield Told(one.tool_call_id, one.content, failed=one.status == "error")


def answer(result: Any) -> ModelAnswer:
    """What a `ChatResult` says, or the pieces of a streamed message."""
    message = _whole(result)
    input_tokens, output_tokens = _tokens(message)
    return ModelAnswer(content=_plain(message), input_tokens=input_tokens, output_tokens=output_tokens)


def talk_answer(result: Any) -> TalkAnswer:
    """`answer`, with the calls that it asks for."""
    message = _whole(result)
    input_tokens, output_tokens = _tokens(message)
    calls = getattr(message, "tool_calls", None) or ()
    return TalkAnswer(
        content=_plain(message),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        asked=[Asked(str(call["id"]), call["name"], dict(call["args"])) for call in calls if call.get("id")],
    )


def _whole(result: Any) -> Any:
    if not isinstance(result, list):
        return result.generations[0].message
    whole = result[0]
    for piece in result[1:]:
        whole = whole + piece
    return whole


def _tokens(message: Any) -> tuple[int | None, int | None]:
    usage = getattr(message, "usage_metadata", None) or {}
    return usage.get("input_tokens"), usage.get("output_tokens")


def with_hints(messages: Sequence[BaseMessage], hints: str) -> list[BaseMessage]:
    """The messages of one request with more system text; the messages that are given stay as they are."""
    first = messages[0] if messages else None
    if not isinstance(first, SystemMessage):
        return [SystemMessage(content=hints), *messages]
    content: Any = first.content
    more = f"{content}\n\n{hints}" if isinstance(content, str) else [*content, {"type": "text", "text": hints}]
    return [first.model_copy(update={"content": more}), *messages[1:]]


def entry_request(name: str | None, given: Any, *configurations: Any, is_resumption: bool) -> EntryRequest:
    """A run of a graph.

    Args:
        name: Name of the graph.
        given: Its input.
        configurations: Where the thread is looked for, the first one first.
        is_resumption: The input goes on with what was interrupted.
    """
    is_users, text = (False, None) if is_resumption else _users_turn(given)
    return EntryRequest(
        agent=None if name in _UNNAMED else name,
        conversation=next(filter(None, map(_thread_of, configurations)), None),
        user_text=text,
        is_user_turn=is_users,
    )


def _thread_of(configuration: Any) -> str | None:
    if not isinstance(configuration, Mapping):
        return None
    for part in ("configurable", "metadata"):
        thread = (configuration.get(part) or {}).get("thread_id")
        if thread is not None:
            return str(thread)
    return None


def _users_turn(given: Any) -> tuple[bool, str | None]:
    """Whether an input is something new from the user, and the text of it.

    A state that has messages is, where the last one is the user's; a state without messages is taken for one.
    """
    messages = given.get("messages") if isinstance(given, Mapping) else given
    last = messages[-1] if isinstance(messages, list | tuple) and messages else messages
    if isinstance(messages, tuple) and len(messages) == 2 and messages[0] in _USERS:
        last = messages
    if isinstance(last, str):
        return True, last
    if isinstance(last, HumanMessage):
        return True, str(last.text)
    if isinstance(last, Mapping) and "content" in last:
        content = last["content"]
        return last.get("role", last.get("type")) in _USERS, content if isinstance(content, str) else None
    if isinstance(last, tuple) and len(last) == 2 and isinstance(last[0], str):
        return last[0] in _USERS, str(last[1])
    return not isinstance(last, BaseMessage), None


def _model_name(model: Any) -> str:
    for attribute in ("model_name", "model", "model_id"):
        name = getattr(model, attribute, None)
        if isinstance(name, str):
            return name
    return type(model).__name__


def _update_of(result: Any) -> Any:
    """What a `Command` writes into the state; LangGraph need not be there to tell one."""
    return getattr(result, "update", None) if type(result).__name__ == "Command" else None


class _Roles(dict[type, type | None]):
    """Which of the messages that are told apart here a class is; None for no message at all.

    `isinstance` asks pydantic's classes in Python, which takes longer than all else that is read of a message.
    """

    def __missing__(self, kind: type) -> type | None:
        told_apart = (ToolMessage, AIMessage, HumanMessage, BaseMessage)
        role = next((one for one in told_apart if issubclass(kind, one)), None)
        if len(self) < _MAX_ROLES:
            self[kind] = role
        return role


_MAX_ROLES = 1024
_role_of = _Roles()


def _plain(value: Any) -> Any:
    """What a message says, without ids and measurements that differ from call to call."""
    role = _role_of[type(value)]
    if role is None:
        return _plain_items(value)
    if role is ToolMessage:
        return ["tool", value.content, value.tool_call_id, value.status]
    if role is AIMessage:
        return ["ai", value.content, [[call["name"], call["args"]] for call in value.tool_calls]]
    return [value.type, value.content]


def _plain_items(value: Any) -> Any:
    if isinstance(value, _MAPPINGS):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
