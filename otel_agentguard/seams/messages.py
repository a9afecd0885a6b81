"""`message()`: what agents say to one another, and what users say to them."""

from __future__ import annotations

from dataclasses import replace

from otel_agentguard.current import Scope, scope
from otel_agentguard.events import Message, Trigger, Turn
from otel_agentguard.fingerprint import digest, text_digest
from otel_agentguard.guard import Guard, installed
from otel_agentguard.runs import PASS
from otel_agentguard.seams.step import Step
from otel_agentguard.seams.turns import take_turn
from otel_agentguard.semconv import GEN_AI_AGENT_NAME, GEN_AI_OUTPUT_MESSAGES, SPAN_MESSAGE


def message(text: object, *, agent: str | None = None, to: str | None = None, role: str | None = None) -> None:
    """Say that an agent is about to send a message.

    Args:
        text: What it says; anything but a text is taken as structured content.
        agent: Who says it; the agent that acts here where it is None.
        to: The agent that it is for.
        role: `"user"` makes it a user turn; so does an agent of the setting `people` where it is None.

    Raises:
        CallBlocked: The message must not be sent.
        RunStopped: The run was stopped (`RunAborted` outside of `run()`).
    """
    guard = installed.guard
    if guard is None:
        return
    here = scope()
    if here.unguarded:
        return
    if agent is not None:
        here = replace(here, agent=agent)
    if role == "user" or (role is None and agent in guard.settings.people):
        take_turn(guard, here, Turn(trigger=Trigger.USER, text=text if isinstance(text, str) else None))
    else:
        say(guard, here, text, to=to)


def say(guard: Guard, here: Scope, said: object, *, to: str | None = None) -> None:
    """Take a message of the agent of a scope through the guard.

    Raises:
        CallBlocked: The message must not be sent.
        RunStopped: The run was stopped (`RunAborted` outside of `run()`).
    """
    step = Step(guard, here)
    text = said if isinstance(said, str) else None
    event = Message(
        agent=step.agent,
        at_s=guard.engine.now_s(),
        text=text,
        to=to,
        digest=digest(said, on_fallback=guard.opaque) if text is None else text_digest(text),
        payload=said if text is None else None,
    )
    step.start(f"{SPAN_MESSAGE} {step.agent}", {GEN_AI_AGENT_NAME: step.agent}, instant=True)
    error = step.before(event)
    if error is None and (decision := step.after(event)) is not PASS:
        step.keep_notes(decision.notes)
        error = step.stop_after(decision)
    more = {GEN_AI_OUTPUT_MESSAGES: guard.content(said)} if guard.captures_content else None
    step.end(event, error=error, more=more)
    if error is not None:
        raise error
