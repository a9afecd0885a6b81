"""The adapter of Anthropic's client: messages, streamed or not, in loops written by hand and in the tool runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from anthropic._base_client import AsyncAPIClient, SyncAPIClient

from otel_agentguard.adapters.contract import EntryRequest, Reading, ToolRequest
from otel_agentguard.adapters.entries import RunEntry
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.talk import Asked, TalkAnswer, TalkRequest, TalkSeam, Told, arguments_of, parsed
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.errors import RunAborted

TALK = TalkSeam("anthropic")
TOOLS = ToolSeam(RunAborted)
ENTRY = RunEntry(RunAborted)

_Body = Mapping[str, Any]
_PATH = "/v1/messages"


def hook(patches: Patches) -> None:
    """Put the seam around requests; all forms of `messages` come through `request`, which retries inside."""
    patches.wrap(SyncAPIClient, "request", _request)
    patches.wrap(AsyncAPIClient, "request", _request_async)


def hook_runner(patches: Patches) -> None:
    """Put the seams into the tool runner, which is a loop of its own."""
    from anthropic.lib.tools._beta_runner import BaseAsyncToolRunner, BaseSyncToolRunner

    patches.wrap(BaseSyncToolRunner, "_run_tool", _run_tool)
    patches.wrap(BaseAsyncToolRunner, "_run_tool", _run_tool_async)
    patches.wrap(BaseSyncToolRunner, "__run__", _run)
    patches.wrap(BaseAsyncToolRunner, "__run__", _run_async)


def _request(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    options = _messages_of(*args, **kwargs)
    if options is None:
        return wrapped(*args, **kwargs)

    def body(hints: str) -> Any:
        return wrapped(*_hinted(args, hints), **kwargs)

    return TALK.call(lambda: _decode(options.json_data), _read, body)


async def _request_async(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    options = _messages_of(*args, **kwargs)
    if options is None:
        return await wrapped(*args, **kwargs)

    async def body(hints: str) -> Any:
        return await wrapped(*_hinted(args, hints), **kwargs)

    return await TALK.call_async(lambda: _decode(options.json_data), _read, body)


def _messages_of(cast_to: Any, options: Any = None, *_: Any, **__: Any) -> Any:
    if str(getattr(options, "url", "")).partition("?")[0] != _PATH or not isinstance(options.json_data, Mapping):
        return None
    return options


def _hinted(args: Any, hints: str) -> Any:
    if not hints:
        return args
    cast_to, options, *rest = args
    body = options.json_data
    system = body.get("system")
    if isinstance(system, str) and system:
        longer: Any = f"{system}\n\n{hints}"
    else:
        longer = [*system, {"type": "text", "text": hints}] if system else hints
    return (cast_to, options.model_copy(update={"json_data": {**body, "system": longer}}), *rest)


def _run_tool(wrapped: Any, runner: Any, args: Any, kwargs: Any) -> Any:
    tool, use = args
    return TOOLS.call(lambda: _use(tool, use), _ToolResults(use.id), lambda: wrapped(tool, use))


async def _run_tool_async(wrapped: Any, runner: Any, args: Any, kwargs: Any) -> Any:
    tool, use = args
    return await TOOLS.call_async(lambda: _use(tool, use), _ToolResults(use.id), lambda: wrapped(tool, use))


def _use(tool: Any, use: Any) -> ToolRequest:
    return ToolRequest(
        tool=use.name, arguments=arguments_of(use.input), call_id=use.id, function=getattr(tool, "func", None)
    )


def _run(wrapped: Any, runner: Any, args: Any, kwargs: Any) -> Any:
    return ENTRY.stream(lambda: _entry(runner), lambda: wrapped(*args, **kwargs))


def _run_async(wrapped: Any, runner: Any, args: Any, kwargs: Any) -> Any:
    return ENTRY.stream_async(lambda: _entry(runner), lambda: wrapped(*args, **kwargs))


def _entry(runner: Any) -> EntryRequest:
    messages = list(getattr(runner, "_messages", None) or ())
    last = messages[-1] if messages and isinstance(messages[-1], Mapping) else {}
    return EntryRequest(user_text=_text(last.get("content")) if last.get("role") == "user" else None)


class _ToolResults:
    """`Results` of one call in the tool runner: `tool_result` blocks."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id

    def read(self, result: Any) -> Reading:
        return Reading(result.get("content"), failed=result.get("is_error") is True)

    def refusal(self, text: str) -> Any:
        return self.again(text)

    def again(self, value: object) -> Any:
        return {"type": "tool_result", "tool_use_id": self._call_id, "content": value}

    def with_note(self, result: Any, note: str) -> Any:
        content = result.get("content")
        if content is None or isinstance(content, str):
            return {**result, "content": f"{note}\n\n{content or ''}"}
        return {**result, "content": [{"type": "text", "text": note}, *content]}


def _decode(body: _Body) -> TalkRequest:
    messages: Sequence[_Body] = list(body.get("messages") or ())
    said = [one for one in messages if one.get("role") == "user" and not _brings_results(one)]
    ends_with_user = bool(messages and said) and messages[-1] is said[-1]
    thread = body.get("thread")
    earlier = thread.get("previous_message_id") if isinstance(thread, Mapping) else None
    return TalkRequest(
        model=str(body.get("model", "")),
        # What the program leaves out is a false object of the client's here, which has no stable form.
        messages=[body.get("system") or None, earlier, *messages],
        tools=body.get("tools") or None,
        results=partial(_results, messages),
        follows=[earlier] if isinstance(earlier, str) else [],
        user_messages=len(said),
        ends_with_user=ends_with_user,
        user_text=_text(said[-1].get("content")) if ends_with_user else None,
    )


def _read(result: Any) -> TalkAnswer:
    if isinstance(result, list):
        return _answer_of_events(result)
    message = parsed(result)
    if getattr(message, "content", None) is None:
        return TalkAnswer()
    asked = [Asked(one.id, one.name, arguments_of(one.input)) for one in message.content if one.type == "tool_use"]
    text = "".join(one.text for one in message.content if one.type == "text")
    return _answered(message.id, text, asked, _input_tokens(message.usage), message.usage.output_tokens)


def _answer_of_events(events: Iterable[Any]) -> TalkAnswer:
    """A streamed message: blocks come in pieces, numbered."""
    answer_id: str | None = None
    tokens: list[int | None] = [None, None]
    text: list[str] = []
    calls: dict[int, tuple[str, str, list[str]]] = {}
    for event in events:
        match event.type:
            case "message_start":
                answer_id = event.message.id
                tokens[0] = _input_tokens(event.message.usage)
            case "content_block_start" if event.content_block.type == "tool_use":
                calls[event.index] = event.content_block.id, event.content_block.name, []
            case "content_block_delta" if event.delta.type == "text_delta":
                text.append(event.delta.text)
            case "content_block_delta" if event.delta.type == "input_json_delta" and event.index in calls:
                calls[event.index][2].append(event.delta.partial_json)
            case "message_delta":
                tokens[1] = event.usage.output_tokens
            case _:
                pass
    asked = [Asked(id_, name, arguments_of("".join(pieces))) for id_, name, pieces in calls.values()]
    return _answered(answer_id, "".join(text), asked, *tokens)


def _answered(
    answer_id: str | None, text: str, asked: Sequence[Asked], input_tokens: int | None, output_tokens: int | None
) -> TalkAnswer:
    return TalkAnswer(
        id=answer_id,
        content=[text, [[one.tool, one.arguments] for one in asked]],
        asked=asked,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


def _results(messages: Sequence[_Body]) -> Iterator[Told]:
    for message in reversed(messages):
        if message.get("role") == "user":
            for block in reversed(_blocks(message)):
                if block.get("type") == "tool_result":
                    failed = block.get("is_error") is True
                    yield Told(str(block.get("tool_use_id")), block.get("content"), failed=failed)


def _brings_results(message: _Body) -> bool:
    return any(block.get("type") == "tool_result" for block in _blocks(message))


def _blocks(message: _Body) -> Sequence[_Body]:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return ()
    return [one for one in content if isinstance(one, (dict, Mapping))]


def _text(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    return "\n".join(str(one.get("text", "")) for one in content if isinstance(one, Mapping)) or None


def _input_tokens(usage: Any) -> int:
    """Tokens read, those from and for the cache included, which the vendor counts apart."""
    cached: tuple[int | None, ...] = (
        getattr(usage, "cache_read_input_tokens", None),
        getattr(usage, "cache_creation_input_tokens", None),
    )
    return sum(filter(None, cached), int(usage.input_tokens))
