"""The seam in langchain-core's chat models, and what both seams there end a run with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel

from otel_agentguard.adapters.langchain import decode
from otel_agentguard.adapters.models import ModelSeam
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.talk import TalkSeam
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.current import scope
from otel_agentguard.errors import RunAborted

# LangGraph's part gives both its carrier, when there is one to get through.
MODELS = ModelSeam(RunAborted)
TALK = TalkSeam("langchain")
TOOLS = ToolSeam(RunAborted)


def hook_models(patches: Patches) -> None:
    """Put the seam into the model path."""
    patches.wrap(BaseChatModel, "_generate_with_cache", _generate)
    patches.wrap(BaseChatModel, "_agenerate_with_cache", _agenerate)
    patches.wrap(BaseChatModel, "stream", _stream)
    patches.wrap(BaseChatModel, "astream", _astream)


def _generate(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    messages, rest, options = _request(*args, **kwargs)

    def body(hints: str) -> Any:
        return wrapped(decode.with_hints(messages, hints) if hints else messages, *rest, **options)

    if scope().run is None:
        return TALK.call(partial(decode.talk_request, model, messages, options), decode.talk_answer, body)
    return MODELS.call(partial(decode.model_request, model, messages, options), decode.answer, body)


async def _agenerate(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    messages, rest, options = _request(*args, **kwargs)

    async def body(hints: str) -> Any:
        return await wrapped(decode.with_hints(messages, hints) if hints else messages, *rest, **options)

    if scope().run is None:
        return await TALK.call_async(partial(decode.talk_request, model, messages, options), decode.talk_answer, body)
    return await MODELS.call_async(partial(decode.model_request, model, messages, options), decode.answer, body)


def _request(messages: Any, *rest: Any, **options: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return messages, rest, options


def _stream(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Generator[Any, Any, Any]:
    given, rest, options = _streamed(*args, **kwargs)

    def body(hints: str) -> Any:
        return wrapped(_hinted(model, given, hints), *rest, **options)

    if scope().run is None:
        return TALK.stream(
            lambda: decode.talk_request(model, _messages(model, given), options), decode.talk_answer, body
        )
    return MODELS.stream(lambda: decode.model_request(model, _messages(model, given), options), decode.answer, body)


def _astream(wrapped: Any, model: Any, args: Any, kwargs: Any) -> AsyncGenerator[Any, Any]:
    given, rest, options = _streamed(*args, **kwargs)

    def body(hints: str) -> Any:
        return wrapped(_hinted(model, given, hints), *rest, **options)

    if scope().run is None:
        return TALK.stream_async(
            lambda: decode.talk_request(model, _messages(model, given), options), decode.talk_answer, body
        )
    return MODELS.stream_async(
        lambda: decode.model_request(model, _messages(model, given), options), decode.answer, body
    )


def _streamed(input: Any, *rest: Any, **options: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return input, rest, options


def _messages(model: Any, given: Any) -> Any:
    return model._convert_input(given).to_messages()  # noqa: SLF001


def _hinted(model: Any, given: Any, hints: str) -> Any:
    return decode.with_hints(_messages(model, given), hints) if hints else given
