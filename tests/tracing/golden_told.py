"""What the decoders must read out of each golden file, written by hand from what the agents really did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FOUND = "Middlemarch: 2 on shelf 12"
FAILURE = "Middlemarch is lent already"
ANSWER = "It stands on shelf 12, and is lent."


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a family tells of the agent of one framework.

    Attributes:
        agent: Who acts; `agent` where nobody says.
        conversation: Its conversation, where that is told.
        tools: The two tool calls are told.
        find: Arguments of the first.
        found: Its result; None where that is not told.
        lend: Arguments of the second.
        failure: What it failed with; None where that is not told.
        ids: Ids of the two calls.
        model_in_two_traces: Each model call is told by the framework's instrumentation and, in a trace of its own,
            by the client's, so that nothing shows that they are one.
        messages: Texts that agents said.
    """

    agent: str = "librarian"
    conversation: str | None = None
    tools: bool = True
    find: Mapping[str, Any] | None = field(default_factory=lambda: {"title": "Middlemarch", "copies": 2})
    found: str | None = FOUND
    lend: Mapping[str, Any] | None = field(default_factory=lambda: {"title": "Middlemarch"})
    failure: str | None = FAILURE
    ids: tuple[str | None, str | None] = ("call_alone_1_0", "call_alone_2_0")
    model_in_two_traces: bool = False
    messages: tuple[str | None, ...] = ()


_CLIENT = Told(agent="agent", tools=False)
_SERVER = Told(agent="agent", find=None, found=None, lend=None, failure=None, ids=(None, None))
_HIDDEN = "An error occurred while running the tool. Please try again."
_AGENTS_SDK = Told(failure=_HIDDEN, ids=(None, None), messages=(None,))

TOLD: dict[tuple[str, str], Told] = {
    ("native", "pydantic-ai"): Told(conversation="visit-1", messages=(ANSWER,)),
    ("native", "anthropic"): _CLIENT,
    ("native", "anthropic-runner"): Told(agent="agent", failure=f"ValueError('{FAILURE}')", messages=(None,)),
    ("native", "mcp"): _SERVER,
    ("native", "fastmcp"): replace(_SERVER, failure=f"Error calling tool 'lend_book': {FAILURE}"),
    ("openinference", "langchain"): Told(
        conversation="visit-1",
        # Of a tool with one argument its bare value is recorded.
        lend={"input": "Middlemarch"},
        # The id is in the result, and there is none.
        ids=("call_alone_1_0", None),
        model_in_two_traces=True,
    ),
    ("openinference", "openai-agents"): _AGENTS_SDK,
    ("openinference", "pydantic-ai"): Told(conversation="visit-1", messages=(ANSWER,)),
    ("openinference", "openai"): _CLIENT,
    ("openinference", "anthropic"): _CLIENT,
    ("openllmetry", "langchain"): Told(conversation="visit-1", messages=(None,)),
    ("openllmetry", "openai-agents"): _AGENTS_SDK,
    ("openllmetry", "openai"): _CLIENT,
    ("openllmetry", "anthropic"): _CLIENT,
    ("genai", "langchain"): Told(conversation="visit-1", messages=(ANSWER,)),
    ("genai", "openai-agents"): replace(_AGENTS_SDK, conversation="visit-1"),
    ("genai", "openai"): _CLIENT,
    ("genai", "anthropic"): _CLIENT,
}
