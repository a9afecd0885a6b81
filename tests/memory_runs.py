"""Short runs for tests of the memory gate: what is observed, and what is written then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_agentguard.events import Effect, Event, Memory, MemoryOperation, Message, Outcome, ToolCall, Trigger, Turn
from otel_agentguard.memory import Judgement, MemoryGate


def user(text: str | None) -> Turn:
    """A user says something."""
    return Turn(agent="user", trigger=Trigger.USER, text=text)


def agent(text: str, name: str = "agent") -> Message:
    """An agent says something."""
    return Message(agent=name, text=text)


def tool(
    result: object,
    name: str = "lookup",
    arguments: Mapping[str, object] | None = None,
    *,
    effect: Effect = Effect.READ,
    outcome: Outcome = Outcome.OK,
    **more: Any,
) -> ToolCall:
    """A tool answers."""
    return ToolCall(tool=name, arguments=arguments or {}, result=result, effect=effect, outcome=outcome, **more)


def write(value: object, key: str | None = None, **more: Any) -> Memory:
    """Something is to be remembered."""
    return Memory(operation=MemoryOperation.WRITE, key=key, value=value, **more)


def update(value: object, key: str, **more: Any) -> Memory:
    """An entry gets another value."""
    return Memory(operation=MemoryOperation.UPDATE, key=key, value=value, **more)


def read(value: object, key: str | None = None) -> Memory:
    """Something is read from the long-term memory."""
    return Memory(operation=MemoryOperation.READ, key=key, value=value)


def judged(*events: Event, gate: MemoryGate | None = None) -> Judgement:
    """What the gate makes of the last event, which is a write."""
    gate = gate or MemoryGate("run")
    judgement = [gate.submit(event) for event in events][-1]
    assert judgement is not None
    assert gate.failures == 0
    return judgement


def verdict(*events: Event) -> str:
    """The verdict on the last event, which is a write."""
    return judged(*events).verdict.value
