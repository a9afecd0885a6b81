"""Hand-written loops around Anthropic's client under guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="pip install 'otel-agentguard[anthropic]'")

import anthropic
from adapters.conftest import Installing
from adapters.contract_suite import pytest_generate_tests  # noqa: F401
from adapters.raw_loop import RawLoop
from adapters.scripted_model import ScriptedModel, saying
from anthropic._base_client import AsyncAPIClient, SyncAPIClient

from otel_agentguard.events import ModelCall
from otel_agentguard.testing import RecordingSink

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SYSTEM = "Answer shortly."
PATCHED = [
    (SyncAPIClient, "request"),
    (AsyncAPIClient, "request"),
]


def system_of(request: dict[str, Any]) -> str:
    system = request.get("system") or ""
    return system if isinstance(system, str) else "\n".join(part["text"] for part in system)


def told_in(messages: list[dict[str, Any]]) -> list[str]:
    """The results of tool calls, each call once."""
    blocks = [block for one in messages for block in one["content"] if not isinstance(one["content"], str)]
    results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    return [one if isinstance(one, str) else "\n".join(part["text"] for part in one) for one in results.values()]


def client(url: str) -> Any:
    http = anthropic.DefaultHttpxClient(verify=False)  # reading certificates takes most of a test's time
    return anthropic.Anthropic(base_url=url, max_retries=0, http_client=http)


def client_async(url: str) -> Any:
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    return anthropic.AsyncAnthropic(base_url=url, max_retries=0, http_client=http)


class TestMessages(RawLoop):
    adapter = "anthropic"

    def patched(self) -> Sequence[tuple[Any, str]]:
        return PATCHED

    def client(self, url: str) -> Any:
        return client(url)

    def client_async(self, url: str) -> Any:
        return client_async(url)

    def begun(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def results(self, values: list[tuple[str, str]]) -> list[Any]:
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": value} for call_id, value in values]
        return [{"role": "user", "content": blocks}]

    def asked(self, history: list[Any], tools: Sequence[Any]) -> dict[str, Any]:
        listed = [{"name": tool.__name__, "description": tool.__doc__, "input_schema": SCHEMA} for tool in tools]
        return {"model": "claude-scripted", "max_tokens": 99, "system": SYSTEM, "messages": history, "tools": listed}

    def turn(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        if not is_stream:
            return self.taken(client.messages.create(**self.asked(history, tools)), history)
        with client.messages.stream(**self.asked(history, tools)) as stream:
            return self.taken(stream.get_final_message(), history)

    async def turn_async(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        if not is_stream:
            return self.taken(await client.messages.create(**self.asked(history, tools)), history)
        async with client.messages.stream(**self.asked(history, tools)) as stream:
            return self.taken(await stream.get_final_message(), history)

    def taken(self, message: Any, history: list[Any]) -> Any:
        history.append({"role": "assistant", "content": message.content})
        calls = [(one.id, one.name, one.input) for one in message.content if one.type == "tool_use"]
        return calls, "".join(one.text for one in message.content if one.type == "text")

    def system_text(self, request: dict[str, Any]) -> str:
        return system_of(request)

    def told(self, request: dict[str, Any]) -> list[str]:
        return told_in(request["messages"])


def test_what_a_request_leaves_out_has_a_stable_form(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    url = model.play("left-out", saying("here"))
    installing()

    for _ in range(2):
        client(url).messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "go"}])

    first, second = [event.request_digest for event in sink.events if isinstance(event, ModelCall)]
    assert first is not None
    assert first == second
    assert sink.failures == []
