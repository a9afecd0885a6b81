"""Turns: something from outside sets an agent to work."""

from __future__ import annotations

from otel_agentguard.current import Scope
from otel_agentguard.events import Trigger, Turn
from otel_agentguard.guard import Guard
from otel_agentguard.seams.step import Step


def take_turn(guard: Guard, there: Scope, turn: Turn) -> None:
    """Tell the engine of a turn.

    Raises:
        RunStopped: The run was stopped (`RunAborted` outside of `run()`).
    """
    step = Step(guard, there)
    new_user_turn = turn.trigger is Trigger.USER and not turn.replay
    if new_user_turn and there.run is None and step.enforce and step.run.stopped is not None:
        step.run = guard.implicit.renew(step.run)
    turn.agent = step.agent
    turn.at_s = guard.engine.now_s()
    if (refusal := step.before(turn)) is not None:
        raise refusal
    step.keep_notes(step.after(turn).notes)
    guard.effects_of(step.run).turn(new_intent=turn.new_intent, event=turn.event)
