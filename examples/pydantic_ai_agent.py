"""A Pydantic AI agent that asks for the same book until the guard ends its run.

The model is a function, so that it needs no key and no network; the framework and the guard are the real ones.
"""

from __future__ import annotations

from pydantic_ai import Agent, ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import otel_agentguard
from otel_agentguard import RunAborted


def ask_again(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("find_book", {"title": "Middlemarch"})])


librarian = Agent(FunctionModel(ask_again), name="librarian")


@librarian.tool_plain
def find_book(title: str) -> str:
    """Tell where a book stands."""
    print(f"looking for {title}")
    return f"{title}: shelf 12"


if __name__ == "__main__":
    otel_agentguard.install(mode="enforce")
    try:
        librarian.run_sync("Where is Middlemarch?")
    except RunAborted as stop:
        print(f"stopped: {stop.finding.kind if stop.finding else 'earlier'}")
