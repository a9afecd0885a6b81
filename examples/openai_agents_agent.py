"""An agent of the OpenAI Agents SDK that asks for the same book until the guard ends its run.

The model is scripted, so that it needs no key and no network; the SDK and the guard are the real ones.
"""

from __future__ import annotations

import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, function_call

import otel_agentguard
from otel_agentguard import RunAborted


@function_tool
def find_book(title: str) -> str:
    """Tell where a book stands.

    Args:
        title: Title of the book.
    """
    print(f"looking for {title}")
    return f"{title}: shelf 12"


def librarian() -> Agent[None]:
    again = [
        ModelStep(output=[function_call("find_book", {"title": "Middlemarch"}, call_id=f"call_{number}")])
        for number in range(20)
    ]
    return Agent(name="librarian", model=ScriptedModel(again), tools=[find_book])


async def main() -> None:
    try:
        await Runner.run(librarian(), "Where is Middlemarch?", max_turns=20)
    except RunAborted as stop:
        print(f"stopped: {stop.finding.kind if stop.finding else 'earlier'}")


if __name__ == "__main__":
    set_tracing_disabled(True)
    otel_agentguard.install(mode="enforce")
    asyncio.run(main())
