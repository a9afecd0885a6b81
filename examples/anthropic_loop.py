"""A loop around Anthropic's client, written by hand: no decorator, no run, one line for the guard.

It needs ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL of a server that speaks messages. With a model that asks for the
same book again and again, it ends in `RunAborted` before the eighth request.
"""

from __future__ import annotations

import os
from typing import Any

from anthropic import Anthropic

import otel_agentguard
from otel_agentguard import RunAborted

TOOLS: list[Any] = [
    {
        "name": "find_book",
        "description": "Tells where a book stands.",
        "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    }
]


def find_book(title: str) -> str:
    print(f"looking for {title}")
    return f"{title}: shelf 12"


def answer(question: str) -> str:
    client = Anthropic()
    history: list[Any] = [{"role": "user", "content": question}]
    while True:
        model = os.environ.get("ANTHROPIC_MODEL", "claude-haiku-4-5")
        message = client.messages.create(model=model, max_tokens=1000, messages=history, tools=TOOLS)
        history.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": find_book(**call.input)} for call in calls
        ]
        history.append({"role": "user", "content": results})


def main() -> None:
    try:
        print(answer("Where is Middlemarch?"))
    except RunAborted as stop:
        print(f"stopped: {stop.finding.kind if stop.finding else 'earlier'}")


if __name__ == "__main__":
    otel_agentguard.install(mode="enforce")
    main()
