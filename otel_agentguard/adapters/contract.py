"""What an adapter decodes from its framework, and how it writes an answer of the guard into a tool result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from otel_agentguard.errors import RunAborted
from otel_agentguard.events import Effect
from otel_agentguard.runs import Run

R = TypeVar("R")

Carrier = type[RunAborted]
"""`RunAborted` mixed with the control-flow class that a framework lets through: how a stop travels inside of it."""

# What is made for every call is not frozen, since that makes it four times as dear. Nobody changes it once it is made.


@dataclass(slots=True, kw_only=True, eq=False)
class ToolRequest:
    """One call of a tool, as a framework asks for it.

    Attributes:
        tool: Name of the tool, as the model knows it.
        arguments: What the model passed, by name, without what the framework injects; None when not readable.
        call_id: The id that the model gave the call.
        agent: The agent that called; None leaves that to the entry around it.
        batch: Calls with one value came from one model turn.
        function: The function of the program under the tool, where the framework tells: one declared with
            `@tool` is then counted once, with what its declaration says.
        effect: What the framework says that the tool does; a declaration or a setting beats it.
        conversation: The conversation that it belongs to; only used outside of every run.
        is_control: The loop of the framework itself (a final answer, a handoff): told, never refused.
    """

    tool: str
    arguments: Mapping[str, object] | None
    call_id: str | None = None
    agent: str | None = None
    batch: str | None = None
    function: object = None
    effect: Effect = Effect.UNKNOWN
    conversation: str | None = None
    is_control: bool = False


class Reading(NamedTuple):
    """What a tool result of a framework says.

    Attributes:
        value: The content, without ids and envelopes that differ from call to call.
        failed: The tool failed, and the framework tells the model so.
        known: False where the content cannot be read.
    """

    value: object
    failed: bool = False
    known: bool = True


class Results(Protocol[R]):
    """Reads and writes the tool results of one call; made by the adapter for each call."""

    def read(self, result: R) -> Reading:
        """What a result says."""
        ...

    def refusal(self, text: str) -> R:
        """A result in place of a call that was not run: the text for the model."""
        ...

    def again(self, value: object) -> R:
        """A result for this call, of the value that `read` gave of an earlier equal one."""
        ...

    def with_note(self, result: R, note: str) -> R | None:
        """The result with a note for the model: as a content block of its own, else at the head of its text.

        Returns:
            None where the result is neither; it is never altered then, and the note waits for `r.notes()`.
        """
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class ModelRequest:
    """One request to a model, as a framework makes it.

    Attributes:
        model: Name of the model.
        messages: The messages of the request; with `tools` they make its identity. None when not readable.
        tools: The tools of the request.
        agent: The agent that asks; None leaves that to the entry around it.
        conversation: The conversation that it belongs to; only used outside of every run.
        run: The run that it belongs to, where the adapter has found that already.
    """

    model: str = ""
    messages: object = None
    tools: object = None
    agent: str | None = None
    conversation: str | None = None
    run: Run | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class ModelAnswer:
    """What came back from a model.

    Attributes:
        content: The answer, without ids that differ from call to call; None when not readable.
        input_tokens: Tokens read; None when not reported.
        output_tokens: Tokens written; None when not reported.
    """

    content: object = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRequest:
    """One call of a public run method of a framework.

    Attributes:
        agent: Name of the agent; None where the framework does not tell.
        conversation: The conversation that it belongs to; None for none, then the run ends with the call.
        user_text: What the user said, where the input brings a user message whose text can be read.
        is_user_turn: Whether the input brings something new from the user; False for a resumption. A
            conversation that was stopped is entered again only with something new.
    """

    agent: str | None = None
    conversation: str | None = None
    user_text: str | None = None
    is_user_turn: bool = True


class Texts:
    """`Results` of frameworks whose tools return text as it is; anything else is left alone."""

    def read(self, result: Any) -> Reading:
        """See `Results`."""
        return Reading(result)

    def refusal(self, text: str) -> Any:
        """See `Results`."""
        return text

    def again(self, value: object) -> Any:
        """See `Results`."""
        return value

    def with_note(self, result: Any, note: str) -> Any:
        """See `Results`."""
        return f"{note}\n\n{result}" if type(result) is str else None


TEXTS = Texts()
