"""The ledger of side effects: its states, its table of moves, its protocol.

`TRANSITIONS` is the only place that says what may follow what. Every store carries out its rows, each as
one compare-and-set on key, state, attempt and owner, and the model test explores them exhaustively.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class State(StrEnum):
    """What is known of one effect."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    RETRYABLE = "retryable"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Move(StrEnum):
    """What can be asked of a record."""

    CLAIM = "claim"
    TAKE_OVER = "take_over"
    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    MARK_UNKNOWN = "mark_unknown"
    LAPSE = "lapse"
    RESOLVE_APPLIED = "resolve_applied"
    RESOLVE_NOT_APPLIED = "resolve_not_applied"
    EXPIRE = "expire"


class Standing(StrEnum):
    """How whoever moves stands to the owner of the record."""

    ANYONE = "anyone"
    OWNER = "owner"
    HEIR = "heir"
    """The owner is dead, or its lease has lapsed."""


class Counts(StrEnum):
    """Whether a move may let the effect happen once more than the ledger knows."""

    NEVER = "never"
    UNLESS_DEAD = "unless_dead"
    """Somebody looked, but an owner that still runs may apply it after the look."""
    ALWAYS = "always"


class Liveness(StrEnum):
    """What a store can tell of the owner of a record."""

    ALIVE = "alive"
    LAPSED = "lapsed"
    """It shows no sign of life; it may still be running, cut off from the store."""
    DEAD = "dead"
    """It has certainly ended: the operating system released its lock."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One arrow of the state machine.

    Attributes:
        move: What is asked.
        source: The state before; None where there is no record.
        target: The state after; None where the record goes.
        standing: Who may.
        attempt_up: A new attempt begins; the old one is written to the attempts in the same transaction.
        counts: Whether it counts a possible duplicate in the record.
    """

    move: Move
    source: State | None
    target: State | None
    standing: Standing = Standing.OWNER
    attempt_up: bool = False
    counts: Counts = Counts.NEVER


TRANSITIONS: tuple[Transition, ...] = (
    Transition(Move.CLAIM, None, State.STARTED, Standing.ANYONE, attempt_up=True),
    Transition(Move.CLAIM, State.RETRYABLE, State.STARTED, Standing.ANYONE, attempt_up=True),
    Transition(Move.TAKE_OVER, State.STARTED, State.STARTED, Standing.HEIR, attempt_up=True, counts=Counts.ALWAYS),
    Transition(Move.TAKE_OVER, State.UNKNOWN, State.STARTED, Standing.ANYONE, attempt_up=True, counts=Counts.ALWAYS),
    Transition(Move.COMPLETE, State.STARTED, State.SUCCEEDED),
    Transition(Move.COMPLETE, State.UNKNOWN, State.SUCCEEDED),
    # Somebody judged the effect as not applied while its owner was still at it. The owner knows better, and
    # nobody has begun again: to refuse it would cause the very duplicate that its news can prevent.
    Transition(Move.COMPLETE, State.RETRYABLE, State.SUCCEEDED),
    Transition(Move.FAIL, State.STARTED, State.FAILED),
    Transition(Move.RELEASE, State.STARTED, State.RETRYABLE),
    Transition(Move.MARK_UNKNOWN, State.STARTED, State.UNKNOWN),
    Transition(Move.LAPSE, State.STARTED, State.UNKNOWN, Standing.HEIR),
    Transition(Move.RESOLVE_APPLIED, State.STARTED, State.SUCCEEDED, Standing.HEIR),
    Transition(Move.RESOLVE_APPLIED, State.UNKNOWN, State.SUCCEEDED, Standing.ANYONE),
    Transition(Move.RESOLVE_NOT_APPLIED, State.STARTED, State.RETRYABLE, Standing.HEIR, counts=Counts.UNLESS_DEAD),
    Transition(Move.RESOLVE_NOT_APPLIED, State.UNKNOWN, State.RETRYABLE, Standing.ANYONE, counts=Counts.UNLESS_DEAD),
    Transition(Move.EXPIRE, State.SUCCEEDED, None, Standing.ANYONE),
    Transition(Move.EXPIRE, State.FAILED, None, Standing.ANYONE),
)


SETTLED = frozenset(row.source for row in TRANSITIONS if row.move is Move.EXPIRE and row.source is not None)
"""The states that are answered from the ledger, and the only ones that expire."""


def transition_for(move: Move, source: State | None) -> Transition | None:
    """The row of `move` from `source`, or None where the table has none."""
    return next((row for row in TRANSITIONS if row.move is move and row.source is source), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A call that wants to cause an effect.

    Attributes:
        key: The key of the record, also handed to the callee: effect, intent and repeat as one digest.
        effect: The effect key.
        intent: Which intent this serves, from 1.
        repeat: Which copy within the intent, from 1; above 1 only where `on_duplicate` lets copies run.
        arguments: Fingerprint of all arguments, 32 hex characters.
        step: The step key.
        turn: How many new intents the run had seen.
        tool: Name of the tool.
        run_id: The run that asks.
    """

    key: str
    effect: str
    intent: int = 1
    repeat: int = 1
    arguments: str
    step: str
    turn: int = 0
    tool: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRecord:
    """What the ledger knows of one effect: the fields of its request, and what became of it.

    Attributes:
        state: Where it stands.
        attempt: The attempt that it stands for, from 1.
        owner: Whoever claimed that attempt, unique for ever: `process/number`.
        result: The result as tagged JSON (see `effects.values`); None where it was not kept.
        error: The permanent error as JSON, of a failed effect.
        renewed: A compensating effect undid it: an equal call is a new intent.
        maybe_duplicates: How often it was begun again while its outcome was unknown.
        confirmed_duplicates: How many overtaken attempts turned out to have happened.
        created_s: First claim, seconds since the epoch on the store's clock.
        started_s: Claim of this attempt, on the same clock.
        updated_s: Last change, on the same clock.
    """

    key: str
    effect: str
    intent: int
    repeat: int
    arguments: str
    step: str
    turn: int
    tool: str
    run_id: str
    state: State
    attempt: int
    owner: str
    result: bytes | None = None
    error: str | None = None
    renewed: bool = False
    maybe_duplicates: int = 0
    confirmed_duplicates: int = 0
    created_s: float = 0.0
    started_s: float = 0.0
    updated_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """An attempt that is over: `unknown`, `not_applied`, or `late` when it turned out to have happened.

    Attributes:
        key: The record that it belongs to.
        attempt: Its number.
        owner: Who made it.
        outcome: How it ended, as far as anybody knows.
        started_s: When it was claimed, seconds since the epoch on the store's clock.
        ended_s: When the next attempt replaced it, on the same clock.
    """

    key: str
    attempt: int
    owner: str
    outcome: str
    started_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """The caller may cause the effect; it must settle this claim afterwards.

    Attributes:
        record: The record as it was claimed.
    """

    record: EffectRecord


@dataclass(frozen=True, slots=True)
class Found:
    """There is a record already; the caller may not cause the effect on the strength of this claim.

    Attributes:
        record: The record as it is.
        liveness: What is known of its owner.
    """

    record: EffectRecord
    liveness: Liveness


class Verdict(StrEnum):
    """What became of a completion."""

    RECORDED = "recorded"
    """It is in the ledger, from now or from an earlier try."""
    LATE = "late"
    """Another attempt has begun since: a confirmed duplicate, not written."""
    LOST = "lost"
    """The ledger has no such record any more."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to `complete`.

    Attributes:
        verdict: What became of it.
        record: The record as it is now; None when it is lost.
    """

    verdict: Verdict
    record: EffectRecord | None


class Ledger(Protocol):
    """The durable record of side effects.

    Any thread may call any method; each may block on the store, at most for the store's own time-outs. Each
    raises `StoreError` when the store cannot be reached or cannot write: then nothing was granted, though a
    write may have happened whose answer was lost. Every change is one compare-and-set and durable when the
    method returns, as far as the store is. Records that are not settled never expire.
    """

    @property
    def url(self) -> str:
        """Where the records are, without secrets."""
        ...

    def claim(self, request: ClaimRequest, *, over: EffectRecord | None = None) -> Claimed | Found:
        """Ask for the right to cause an effect.

        Args:
            request: The call.
            over: The unsettled record that it saw and wants to take over, under `retry`: granted only while
                the record is still that one, and its owner gone where it is `STARTED`.
        """
        ...

    def complete(self, claim: Claimed, result: bytes | None) -> Completion:
        """Record that the effect happened; asking again after an error is safe.

        Args:
            claim: What was granted.
            result: The result as tagged JSON, or None when it is not kept.
        """
        ...

    def fail(self, claim: Claimed, error: str) -> bool:
        """Record a permanent error, as JSON; False when the claim is no longer the caller's."""
        ...

    def release(self, claim: Claimed) -> bool:
        """Record that the effect certainly did not happen; False when the claim is no longer the caller's."""
        ...

    def mark_unknown(self, claim: Claimed | Found) -> bool:
        """Record that nobody knows; of a `Found` record only when its owner is gone.

        Returns:
            Whether the record is `UNKNOWN` by this call.
        """
        ...

    def resolve(self, record: EffectRecord, *, applied: bool, result: bytes | None = None, force: bool = False) -> bool:
        """Settle an unknown effect, by a check of the callee or by a person.

        Args:
            record: The record as it was seen; nothing is written when it has moved since.
            applied: Whether the effect happened.
            result: Its result as tagged JSON, where it is known.
            force: Settle a `STARTED` record although its owner seems alive.

        Returns:
            Whether it was written.
        """
        ...

    def renew(self, key: str) -> bool:
        """Note that a compensating effect undid this one; False unless it has succeeded."""
        ...

    def abandon(self, claim: Claimed) -> None:
        """Stop vouching for a claim that could not be settled. Touches no store and never raises."""
        ...

    def get(self, key: str) -> EffectRecord | None:
        """The record of one key."""
        ...

    def history(self, effect: str) -> Sequence[EffectRecord]:
        """The records of one effect key, by intent and repeat."""
        ...

    def attempts(self, key: str) -> Sequence[AttemptRecord]:
        """The attempts of one record that are over, oldest first."""
        ...

    def liveness(self, record: EffectRecord) -> Liveness:
        """What can be told of the owner of a record."""
        ...

    def list(
        self, *, state: State | None = None, tool: str | None = None, run_id: str | None = None, limit: int = 100
    ) -> Sequence[EffectRecord]:
        """Records, the last changed first."""
        ...

    def unsettled(self) -> Mapping[str, int]:
        """How many records of each tool are `UNKNOWN`; cheap, however many others there are."""
        ...

    def gc(self, older_than_s: float) -> int:
        """Drop effects whose records are all settled and unchanged for so many seconds.

        Returns:
            How many records went.
        """
        ...

    def close(self) -> None:
        """Let go of connections. Claims stay vouched for while the process lives."""
        ...
