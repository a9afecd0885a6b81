"""Hand-written loops around OpenAI's client under guard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("openai", reason="pip install 'otel-agentguard[openai]'")

import openai
from adapters.contract_suite import pytest_generate_tests  # noqa: F401
from adapters.raw_loop import RawLoop
from openai._base_client import AsyncAPIClient, SyncAPIClient

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SYSTEM = "Answer shortly."


def function(tool: Any) -> dict[str, Any]:
    return {"name": tool.__name__, "description": tool.__doc__, "parameters": SCHEMA}


class OpenAILoop(RawLoop):
    adapter = "openai"

    def patched(self) -> Sequence[tuple[Any, str]]:
        return [(SyncAPIClient, "request"), (AsyncAPIClient, "request")]

    def client(self, url: str) -> Any:
        http = openai.DefaultHttpxClient(verify=False)  # reading certificates takes most of a test's time
        return openai.OpenAI(base_url=f"{url}/v1", max_retries=0, http_client=http)

    def client_async(self, url: str) -> Any:
        http = openai.DefaultAsyncHttpxClient(verify=False)
        return openai.AsyncOpenAI(base_url=f"{url}/v1", max_retries=0, http_client=http)


class TestChatCompletions(OpenAILoop):
    def begun(self, text: str) -> list[Any]:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]

    def results(self, values: list[tuple[str, str]]) -> list[Any]:
        return [{"role": "tool", "tool_call_id": call_id, "content": value} for call_id, value in values]

    def asked(self, history: list[Any], tools: Sequence[Any], is_stream: bool) -> dict[str, Any]:
        listed = [{"type": "function", "function": function(tool)} for tool in tools]
        options = {"stream": True, "stream_options": {"include_usage": True}} if is_stream else {}
        return {"model": "gpt-scripted", "messages": history, "tools": listed, **options}

    def turn(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        answer = client.chat.completions.create(**self.asked(history, tools, is_stream))
        return self.taken(list(answer) if is_stream else answer, history)

    async def turn_async(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        answer = await client.chat.completions.create(**self.asked(history, tools, is_stream))
        return self.taken([chunk async for chunk in answer] if is_stream else answer, history)

    def taken(self, answer: Any, history: list[Any]) -> Any:
        if isinstance(answer, list):
            message = self.joined(answer)
        else:
            message = answer.choices[0].message.model_dump(exclude_none=True)
        history.append(message)
        calls = [
            (one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
            for one in message.get("tool_calls", ())
        ]
        return calls, message.get("content")

    def joined(self, chunks: list[Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        for choice in (one for chunk in chunks for one in chunk.choices):
            message["content"] += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                calls = message.setdefault("tool_calls", [])
                if piece.index == len(calls):
                    named = {"name": piece.function.name, "arguments": ""}
                    calls.append({"id": piece.id, "type": "function", "function": named})
                calls[piece.index]["function"]["arguments"] += piece.function.arguments or ""
        return message


class TestResponses(OpenAILoop):
    def begun(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def results(self, values: list[tuple[str, str]]) -> list[Any]:
        return [{"type": "function_call_output", "call_id": call_id, "output": value} for call_id, value in values]

    def asked(self, history: list[Any], tools: Sequence[Any], is_stream: bool) -> dict[str, Any]:
        listed = [{"type": "function", "strict": False, **function(tool)} for tool in tools]
        asked = {"model": "gpt-scripted", "input": history, "tools": listed, "instructions": SYSTEM}
        return {**asked, "stream": True} if is_stream else asked

    def turn(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        answer = client.responses.create(**self.asked(history, tools, is_stream))
        return self.taken(list(answer)[-1].response if is_stream else answer, history)

    async def turn_async(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        answer = await client.responses.create(**self.asked(history, tools, is_stream))
        return self.taken([event async for event in answer][-1].response if is_stream else answer, history)

    def taken(self, response: Any, history: list[Any]) -> Any:
        history += response.output
        calls = [
            (one.call_id, one.name, json.loads(one.arguments)) for one in response.output if one.type == "function_call"
        ]
        return calls, response.output_text

    def system_text(self, request: dict[str, Any]) -> str:
        return str(request.get("instructions") or "")

    def told(self, request: dict[str, Any]) -> list[str]:
        return [one["output"] for one in request["input"] if one.get("type") == "function_call_output"]


del OpenAILoop
