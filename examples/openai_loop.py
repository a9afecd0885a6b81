"""A loop around OpenAI's client, written by hand: no decorator, no run, one line for the guard.

It needs OPENAI_API_KEY, or OPENAI_BASE_URL of a server that speaks chat completions. With a model that asks for the
same book again and again, it ends in `RunAborted` before the eighth request.
"""

from __future__ import annotations

import json
import os
from typing import Any

from openai import OpenAI

import otel_agentguard
from otel_agentguard import RunAborted

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "find_book",
            "description": "Tells where a book stands.",
            "parameters": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
        },
    }
]


def find_book(title: str) -> str:
    print(f"looking for {title}")
    return f"{title}: shelf 12"


def answer(question: str) -> str:
    client = OpenAI()
    history: list[Any] = [{"role": "user", "content": question}]
    while True:
        model = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
        message = client.chat.completions.create(model=model, messages=history, tools=TOOLS).choices[0].message
        history.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            found = find_book(**json.loads(call.function.arguments))
            history.append({"role": "tool", "tool_call_id": call.id, "content": found})


def main() -> None:
    try:
        print(answer("Where is Middlemarch?"))
    except RunAborted as stop:
        print(f"stopped: {stop.finding.kind if stop.finding else 'earlier'}")


if __name__ == "__main__":
    otel_agentguard.install(mode="enforce")
    main()
