"""A LangChain agent that asks for the same book until the guard ends its run.

The model is scripted, so that it needs no key and no network; LangChain, LangGraph and the guard are the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import otel_agentguard
from otel_agentguard import RunAborted

CALLS = count(1)


class StubbornModel(BaseChatModel):
    """Asks for one book and nothing else."""

    @property
    def _llm_type(self) -> str:
        return "stubborn"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> StubbornModel:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        call = {"name": "find_book", "args": {"title": "Middlemarch"}, "id": f"call_{next(CALLS)}"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="", tool_calls=[call]))])


@tool
def find_book(title: str) -> str:
    """Tell where a book stands."""
    print(f"looking for {title}")
    return f"{title}: shelf 12"


def main() -> None:
    librarian = create_agent(StubbornModel(), [find_book], name="librarian")
    try:
        librarian.invoke({"messages": [{"role": "user", "content": "Where is Middlemarch?"}]})
    except RunAborted as stop:
        print(f"stopped: {stop.finding.kind if stop.finding else 'earlier'}")


if __name__ == "__main__":
    otel_agentguard.install(mode="enforce")
    main()
