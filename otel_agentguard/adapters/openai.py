"""The adapter of OpenAI's client: chat completions and responses, streamed or not, in loops written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from openai._base_client import AsyncAPIClient, SyncAPIClient

from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.talk import Asked, TalkAnswer, TalkRequest, TalkSeam, Told, arguments_of, parsed

TALK = TalkSeam("openai")

_Body = Mapping[str, Any]


def hook(patches: Patches) -> None:
    """Put the seam around requests.

    `create`, `parse`, `stream` and their raw forms all come through `request`, which retries inside. OpenInference
    wraps it in the subclasses, and goes on to what was in the base class when it did so.
    """
    for client in dict.fromkeys((SyncAPIClient, *_overriding(SyncAPIClient))):
        patches.wrap(client, "request", _request)
    for client in dict.fromkeys((AsyncAPIClient, *_overriding(AsyncAPIClient))):
        patches.wrap(client, "request", _request_async)


def _overriding(base: type[Any]) -> Iterator[type[Any]]:
    """The subclasses that have a `request` of their own by now."""
    for client in base.__subclasses__():
        if "request" in vars(client):
            yield client
        yield from _overriding(client)


def _request(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    options, kind = _kind_of(*args, **kwargs)
    if kind is None:
        return wrapped(*args, **kwargs)

    def body(hints: str) -> Any:
        return wrapped(*_hinted(args, kind, hints), **kwargs)

    return TALK.call(lambda: kind.decode(options.json_data), kind.read, body)


async def _request_async(wrapped: Any, client: Any, args: Any, kwargs: Any) -> Any:
    options, kind = _kind_of(*args, **kwargs)
    if kind is None:
        return await wrapped(*args, **kwargs)

    async def body(hints: str) -> Any:
        return await wrapped(*_hinted(args, kind, hints), **kwargs)

    return await TALK.call_async(lambda: kind.decode(options.json_data), kind.read, body)


def _kind_of(cast_to: Any, options: Any = None, *_: Any, **__: Any) -> tuple[Any, _Chat | _Responses | None]:
    kind = _KINDS.get(str(getattr(options, "url", "")).partition("?")[0])
    if kind is None or str(options.method).lower() != "post" or not isinstance(options.json_data, Mapping):
        return options, None
    return options, kind


def _hinted(args: Any, kind: _Chat | _Responses, hints: str) -> Any:
    if not hints:
        return args
    cast_to, options, *rest = args
    more = options.model_copy(update={"json_data": kind.with_hints(options.json_data, hints)})
    return (cast_to, more, *rest)


class _Chat:
    """Chat completions: the whole history comes with each request."""

    def decode(self, body: _Body) -> TalkRequest:
        messages: Sequence[_Body] = list(body.get("messages") or ())
        last = messages[-1] if messages else {}
        ends_with_user = last.get("role") == "user"
        return TalkRequest(
            model=str(body.get("model", "")),
            messages=messages,
            tools=body.get("tools"),
            results=partial(_chat_results, messages),
            user_messages=_user_messages(messages),
            ends_with_user=ends_with_user,
            user_text=_text(last.get("content")) if ends_with_user else None,
        )

    def read(self, result: Any) -> TalkAnswer:
        if isinstance(result, list):
            return _chat_answer_of_chunks(result)
        completion = parsed(result)
        if not getattr(completion, "choices", None):
            return TalkAnswer()
        messages = [choice.message for choice in completion.choices]
        asked = [one for message in messages for one in map(_chat_call, message.tool_calls or ()) if one is not None]
        return _answered(completion.id, messages[0].content, asked, _chat_tokens(completion.usage))

    def with_hints(self, body: _Body, hints: str) -> dict[str, Any]:
        messages = list(body.get("messages") or ())
        for place, message in enumerate(messages):
            if message.get("role") in {"system", "developer"}:
                messages[place] = {**message, "content": _longer(message.get("content"), hints, "text")}
                return {**body, "messages": messages}
        return {**body, "messages": [{"role": "system", "content": hints}, *messages]}


class _Responses:
    """Responses: the history comes with the request, or stays on the server."""

    def decode(self, body: _Body) -> TalkRequest:
        given = body.get("input")
        items: Sequence[_Body] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
        conversation = body.get("conversation")
        conversation = conversation.get("id") if isinstance(conversation, Mapping) else conversation
        last = items[-1] if items else {}
        ends_with_user = last.get("role") == "user"
        return TalkRequest(
            model=str(body.get("model", "")),
            messages=[body.get("instructions"), body.get("previous_response_id"), conversation, *items],
            tools=body.get("tools"),
            conversation=conversation,
            results=partial(_response_results, items),
            follows=[key for key in (conversation, body.get("previous_response_id")) if isinstance(key, str)],
            user_messages=_user_messages(items),
            ends_with_user=ends_with_user,
            user_text=_text(last.get("content")) if ends_with_user else None,
        )

    def read(self, result: Any) -> TalkAnswer:
        if isinstance(result, list):
            ended = [event.response for event in result if event.type in _ENDS]
            return self.read(ended[-1]) if ended else TalkAnswer()
        response = parsed(result)
        if getattr(response, "output", None) is None:
            return TalkAnswer()
        usage = response.usage
        tokens = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        asked = [one for one in map(_response_call, response.output) if one is not None]
        return _answered(response.id, response.output_text, asked, tokens)

    def with_hints(self, body: _Body, hints: str) -> dict[str, Any]:
        instructions = body.get("instructions")
        return {**body, "instructions": f"{instructions}\n\n{hints}" if isinstance(instructions, str) else hints}


_KINDS: Mapping[str, _Chat | _Responses] = {"/chat/completions": _Chat(), "/responses": _Responses()}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def _user_messages(messages: Sequence[_Body]) -> int:
    return [one.get("role") for one in messages].count("user")


def _chat_results(messages: Sequence[_Body]) -> Iterator[Told]:
    for one in reversed(messages):
        if one.get("role") == "tool":
            yield Told(str(one.get("tool_call_id")), one.get("content"))


def _response_results(items: Sequence[_Body]) -> Iterator[Told]:
    for one in reversed(items):
        if str(one.get("type", "")).endswith("_call_output"):
            yield Told(str(one.get("call_id")), one.get("output"))


def _chat_call(call: Any) -> Asked | None:
    function = getattr(call, "function", None)
    if function is not None:
        return Asked(call.id, function.name, arguments_of(function.arguments))
    custom = getattr(call, "custom", None)
    return None if custom is None else Asked(call.id, custom.name, {"input": custom.input})


def _response_call(item: Any) -> Asked | None:
    if item.type == "function_call":
        return Asked(item.call_id, item.name, arguments_of(item.arguments))
    return Asked(item.call_id, item.name, {"input": item.input}) if item.type == "custom_tool_call" else None


def _chat_answer_of_chunks(chunks: Iterable[Any]) -> TalkAnswer:
    """A streamed completion: calls come in pieces, numbered within their choice."""
    answer_id: str | None = None
    text: list[str] = []
    calls: dict[tuple[int, int], list[Any]] = {}
    tokens: tuple[int | None, int | None] = (None, None)
    for chunk in chunks:
        answer_id = answer_id or chunk.id
        tokens = _chat_tokens(chunk.usage) if chunk.usage is not None else tokens
        for choice in chunk.choices:
            if choice.delta is None:
                continue
            if choice.index == 0 and choice.delta.content:
                text.append(choice.delta.content)
            for piece in choice.delta.tool_calls or ():
                parts = calls.setdefault((choice.index, piece.index), [None, "", []])
                parts[0] = piece.id or parts[0]
                if piece.function is not None:
                    parts[1] = piece.function.name or parts[1]
                    parts[2].append(piece.function.arguments or "")
    asked = [Asked(id_, name, arguments_of("".join(pieces))) for id_, name, pieces in calls.values() if id_]
    return _answered(answer_id, "".join(text), asked, tokens)


def _answered(
    answer_id: str | None, text: object, asked: Sequence[Asked], tokens: tuple[int | None, int | None]
) -> TalkAnswer:
    return TalkAnswer(
        id=answer_id,
        content=[text or None, [[one.tool, one.arguments] for one in asked]],
        asked=asked,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
    )


def _chat_tokens(usage: Any) -> tuple[int | None, int | None]:
    return (None, None) if usage is None else (usage.prompt_tokens, usage.completion_tokens)


def _text(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping)) or None


def _longer(content: Any, hints: str, kind: str) -> Any:
    if isinstance(content, str):
        return f"{content}\n\n{hints}"
    return [*(content or ()), {"type": kind, "text": hints}]
