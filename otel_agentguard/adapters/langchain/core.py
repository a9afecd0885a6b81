"""The seam in langchain-core's chat models, and what both seams there end a run with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel

from otel_agentguard.adapters.contract import ModelAnswer
from otel_agentguard.adapters.langchain import decode
from otel_agentguard.adapters.models import ModelSeam
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.errors import RunAborted

# LangGraph's part gives both its carrier, when there is one to get through.
MODELS = ModelSeam(RunAborted)
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

    return MODELS.call(partial(decode.model_request, model, messages, options), decode.answer_of_result, body)


async def _agenerate(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    messages, rest, options = _request(*args, **kwargs)

    async def body(hints: str) -> Any:
        return await wrapped(decode.with_hints(messages, hints) if hints else messages, *rest, **options)

    return await MODELS.call_async(
        partial(decode.model_request, model, messages, options), decode.answer_of_result, body
    )


def _request(messages: Any, *rest: Any, **options: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return messages, rest, options


def _stream(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Generator[Any, Any, Any]:
    given, rest, options = _streamed(*args, **kwargs)

    def body(hints: str) -> Any:
        return wrapped(_hinted(model, given, hints), *rest, **options)

    return MODELS.stream(lambda: _decoded(model, given, options), _joined, body)


def _astream(wrapped: Any, model: Any, args: Any, kwargs: Any) -> AsyncGenerator[Any, Any]:
    given, rest, options = _streamed(*args, **kwargs)

    def body(hints: str) -> Any:
        return wrapped(_hinted(model, given, hints), *rest, **options)

    return MODELS.stream_async(lambda: _decoded(model, given, options), _joined, body)


def _streamed(input: Any, *rest: Any, **options: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return input, rest, options


def _decoded(model: Any, given: Any, options: Any) -> Any:
    return decode.model_request(model, model._convert_input(given).to_messages(), options)  # noqa: SLF001


def _hinted(model: Any, given: Any, hints: str) -> Any:
    return decode.with_hints(model._convert_input(given).to_messages(), hints) if hints else given  # noqa: SLF001


def _joined(chunks: list[Any]) -> ModelAnswer:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return decode.answer_of(whole)
