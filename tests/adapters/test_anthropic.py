"""Hand-written loops around Anthropic's client, and its tool runner, under guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="pip install 'otel-agentguard[anthropic]'")

import anthropic
from adapters.contract_suite import AdapterContract, pytest_generate_tests  # noqa: F401
from adapters.raw_loop import RawLoop
from anthropic import beta_async_tool, beta_tool
from anthropic._base_client import AsyncAPIClient, SyncAPIClient
from anthropic.lib.tools._beta_runner import BaseAsyncToolRunner, BaseSyncToolRunner

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SYSTEM = "Answer shortly."
PATCHED = [
    (SyncAPIClient, "request"),
    (AsyncAPIClient, "request"),
    (BaseSyncToolRunner, "_run_tool"),
    (BaseAsyncToolRunner, "_run_tool"),
    (BaseSyncToolRunner, "__run__"),
    (BaseAsyncToolRunner, "__run__"),
]


def system_of(request: dict[str, Any]) -> str:
    system = request.get("system") or ""
    return system if isinstance(system, str) else "\n".join(part["text"] for part in system)


def told_in(requests: list[dict[str, Any]]) -> list[str]:
    blocks = [block for one in requests for block in one["content"] if not isinstance(one["content"], str)]
    contents = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return [one if isinstance(one, str) else "\n".join(part["text"] for part in one) for one in contents]


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


class TestToolRunner(AdapterContract):
    adapter = "anthropic"
    has_conversations = False

    def patched(self) -> Sequence[tuple[Any, str]]:
        return PATCHED

    def ask(
        self,
        kind: str,
        url: str,
        tools: Sequence[Any],
        text: str = "go",
        *,
        agent: str = "Looper",
        conversation: str | None = None,
    ) -> Any:
        asked: dict[str, Any] = {
            "model": "claude-scripted",
            "max_tokens": 99,
            "system": SYSTEM,
            "messages": [{"role": "user", "content": text}],
            **({"stream": True} if kind.endswith("stream") else {}),
        }
        if kind.startswith("async"):
            return self.ask_async(url, [beta_async_tool(one) for one in tools], asked)
        runner = client(url).beta.messages.tool_runner(tools=[beta_tool(one) for one in tools], **asked)
        return runner.until_done().content[0].text

    async def ask_async(self, url: str, tools: Sequence[Any], asked: dict[str, Any]) -> str:
        runner = client_async(url).beta.messages.tool_runner(tools=tools, **asked)
        return str((await runner.until_done()).content[0].text)

    def system_text(self, request: dict[str, Any]) -> str:
        return system_of(request)

    def told(self, request: dict[str, Any]) -> list[str]:
        return told_in(request["messages"])

    def all_told(self, requests: Sequence[dict[str, Any]]) -> list[str]:
        # The history stays on the server: each request brings what is new.
        return [text for request in requests for text in self.told(request)]
