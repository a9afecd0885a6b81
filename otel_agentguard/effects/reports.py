"""What the executor tells of effects: outcomes, duplicates, and the finding of a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from otel_agentguard.effects.calls import EffectCall
from otel_agentguard.effects.ledger import EffectRecord
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity


class EffectOutcome(StrEnum):
    """How one call of a side-effect tool ended."""

    EXECUTED = "executed"
    REPLAYED = "replayed"
    WAITED = "waited"
    """Another call in flight did it."""
    BLOCKED = "blocked"
    MISMATCH = "mismatch"
    FAILED = "failed"
    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"
    LATE = "late"
    """It was done, but another attempt had begun in the meantime."""


class Certainty(StrEnum):
    """How sure it is that an effect happened twice."""

    PREVENTED = "prevented"
    POSSIBLE = "possible"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectAnswer:
    """What a call gets.

    Attributes:
        value: What the tool returned, now or earlier.
        outcome: How it came about.
        key: The key of the record; empty where there is none.
        attempt: The attempt that it comes from; 0 where there is none.
        note: A sentence for the model where the tool did not run for this call; empty else.
    """

    value: object
    outcome: EffectOutcome
    key: str = ""
    attempt: int = 0
    note: str = ""


class EffectObserver(Protocol):
    """Is told what happens; makes metrics, spans and findings of it.

    Called in the thread of the caller, outside all locks. What it raises is logged and ignored.
    """

    def effect(self, call: EffectCall, outcome: EffectOutcome, *, key: str, attempt: int, enforced: bool) -> None:
        """A call ended so; where not `enforced` it would have, but the body ran all the same."""
        ...

    def duplicate(self, call: EffectCall, certainty: Certainty, *, key: str) -> None:
        """An effect was asked for twice within one intent."""
        ...

    def failed(self, where: str) -> None:
        """A part of the guard failed and was contained."""
        ...


class Silent:
    """An observer that ignores everything."""

    def effect(self, call: EffectCall, outcome: EffectOutcome, *, key: str, attempt: int, enforced: bool) -> None:
        """See `EffectObserver`."""

    def duplicate(self, call: EffectCall, certainty: Certainty, *, key: str) -> None:
        """See `EffectObserver`."""

    def failed(self, where: str) -> None:
        """See `EffectObserver`."""


def refusal(call: EffectCall, record: EffectRecord, message: str, explanation: str) -> Finding:
    """The finding of a call that was refused because of a record."""
    return Finding(
        check=CheckName.EFFECTS,
        kind=Kind.DUPLICATE_SIDE_EFFECT,
        severity=Severity.ERROR,
        step=call.position,
        signature=bytes.fromhex(call.effect),
        message=message,
        explanation=explanation,
        action=Action.BLOCK,
        agent=call.agent,
        tool=call.spec.tool,
        count=record.attempt + 1,
    )


def mismatch_text(call: EffectCall) -> str:
    """Why a call with other arguments under the same key is refused."""
    named = f" (identity: {', '.join(call.spec.identity)})" if call.spec.identity else ""
    return f"{call.spec.tool} is known under this key with other arguments{named}; nothing was done"


def in_progress_text(call: EffectCall) -> str:
    """Why a call that waited long enough is refused."""
    return f"{call.spec.tool} is being done by another caller, who did not finish within {call.spec.wait_s:g} s"


def not_recorded_text(call: EffectCall, record: EffectRecord) -> str:
    """What to do about an effect that the ledger does not know of."""
    return (
        f"{call.spec.tool} was done, but the ledger could not be told; "
        f"it is told again with later calls, else: otel-agentguard ledger resolve {record.key}"
    )
