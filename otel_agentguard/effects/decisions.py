"""What to do with a record that is already there. Pure: the executor and the model test both ask here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from otel_agentguard.effects.ledger import SETTLED, EffectRecord, Liveness, State


class OnUnknown(StrEnum):
    """What a call does that finds an effect of unknown outcome."""

    BLOCK = "block"
    RETRY = "retry"
    VERIFY = "verify"


class OnDuplicate(StrEnum):
    """What a call does that finds the same effect done, within one intent, by another step."""

    REPLAY = "replay"
    BLOCK = "block"
    WARN = "warn"
    ALLOW = "allow"


class Decision(StrEnum):
    """What comes next for a call."""

    CLAIM = "claim"
    """Ask for the claim again: the record has become retryable."""
    REPLAY = "replay"
    DUPLICATE = "duplicate"
    """The effect is done, by another step of this intent: `on_duplicate` decides."""
    RAISE = "raise"
    """It failed for good; the error is raised again."""
    MISMATCH = "mismatch"
    WAIT = "wait"
    BLOCK = "block"
    TAKE_OVER = "take_over"
    VERIFY = "verify"


def decide(record: EffectRecord, owner_is: Liveness, *, step: str, arguments: str, on_unknown: OnUnknown) -> Decision:
    """What a call does that found this record.

    Args:
        record: What was found.
        owner_is: What is known of its owner.
        step: The step key of the call.
        arguments: The fingerprint of its arguments.
        on_unknown: The policy of its tool.
    """
    if record.arguments != arguments:
        return Decision.MISMATCH
    match record.state:
        case State.SUCCEEDED:
            return Decision.REPLAY if record.step == step else Decision.DUPLICATE
        case State.FAILED:
            return Decision.RAISE
        case State.RETRYABLE:
            return Decision.CLAIM
        case State.STARTED if owner_is is Liveness.ALIVE:
            return Decision.WAIT
        case State.STARTED | State.UNKNOWN:
            return _decide_unknown(on_unknown)
        case _:
            assert_never(record.state)


def _decide_unknown(on_unknown: OnUnknown) -> Decision:
    match on_unknown:
        case OnUnknown.BLOCK:
            return Decision.BLOCK
        case OnUnknown.RETRY:
            return Decision.TAKE_OVER
        case OnUnknown.VERIFY:
            return Decision.VERIFY
        case _:
            assert_never(on_unknown)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Which record of an effect key a call belongs to.

    Attributes:
        intent: Which intent, from 1.
        repeat: Which copy within it, from 1.
    """

    intent: int = 1
    repeat: int = 1


def place_in(history: Sequence[EffectRecord], *, step: str, run_id: str, turn: int) -> Place:
    """Find the record that a call belongs to among those of its effect key.

    A step that is known goes back to its record, so a resumed run finds what it did. Any other call belongs
    to the last record, unless that is settled and a new intent came after it: one that this run has seen,
    or a compensating effect.

    Args:
        history: The records of the effect key, by intent and repeat.
        step: The step key of the call.
        run_id: Its run.
        turn: How many new intents the run has seen.
    """
    for record in history:
        if record.step == step:
            return Place(record.intent, record.repeat)
    if not history:
        return Place()
    last = history[-1]
    if last.state in SETTLED and (last.renewed or (last.run_id == run_id and turn > last.turn)):
        return Place(last.intent + 1)
    return Place(last.intent, last.repeat)


def next_copy(history: Sequence[EffectRecord], intent: int) -> Place:
    """The place of one more copy within an intent, for tools whose duplicates may run."""
    return Place(intent, 1 + max((record.repeat for record in history if record.intent == intent), default=0))
