"""The state machine over any store.

`MachineLedger` turns the moves of `TRANSITIONS` into four things that a store must be able to do: create a
record unless there is one, change a record if it is still the one that was seen, read, and count a late
completion. A store adds how it does these atomically and how it tells whether an owner lives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from otel_agentguard.effects.ledger import (
    TRANSITIONS,
    AttemptRecord,
    Claimed,
    ClaimRequest,
    Completion,
    Counts,
    EffectRecord,
    Found,
    Liveness,
    Move,
    Standing,
    State,
    Verdict,
    transition_for,
)
from otel_agentguard.effects.ownership import Claims


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One compare-and-set.

    Attributes:
        seen: The record as the mover saw it; it must still be at that attempt, with that owner.
        sources: The states in which it applies.
        target: The state that follows.
        gone: Apply it only if the owner shows no sign of life, judged in the same transaction.
        counted: How many possible duplicates to count, 0 or 1.
        result: The result to write.
        error: The error to write.
        next: The attempt that begins; None where none does.
    """

    seen: EffectRecord
    sources: tuple[State, ...]
    target: State
    gone: bool = False
    counted: int = 0
    result: bytes | None = None
    error: str | None = None
    next: NextAttempt | None = None

    def fits(self, record: EffectRecord) -> bool:
        """Whether the record is still the one that the mover saw."""
        same = (record.attempt, record.owner) == (self.seen.attempt, self.seen.owner)
        return same and record.state in self.sources

    def applied(self, *, now_s: float, maybe_duplicates: int, confirmed_duplicates: int) -> EffectRecord:
        """The record after the change.

        Args:
            now_s: When it was made, on the store's clock.
            maybe_duplicates: What the record counts now.
            confirmed_duplicates: Likewise.
        """
        record = replace(
            self.seen,
            state=self.target,
            result=self.result,
            error=self.error,
            maybe_duplicates=maybe_duplicates,
            confirmed_duplicates=confirmed_duplicates,
            updated_s=now_s,
        )
        if self.next is None:
            return record
        return replace(
            record,
            attempt=record.attempt + 1,
            owner=self.next.owner,
            run_id=self.next.run_id,
            turn=self.next.turn,
            step=self.next.step,
            started_s=now_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAttempt:
    """The attempt that replaces the one in the record.

    Attributes:
        owner: Who makes it.
        run_id: In which run.
        turn: How many new intents that run had seen.
        step: The step key of the record from now on.
        old_outcome: What the attempt row of the replaced attempt says.
    """

    owner: str
    run_id: str
    turn: int
    step: str
    old_outcome: str


_OLD_OUTCOMES = {State.RETRYABLE: "not_applied", State.STARTED: "unknown", State.UNKNOWN: "unknown"}


def change_for(move: Move, record: EffectRecord, *, owner_is: Liveness, force: bool = False) -> Change | None:
    """Read the compare-and-set of a move by somebody else off the table.

    Args:
        move: What is asked.
        record: The record as the mover saw it.
        owner_is: What is known of its owner.
        force: Do without the condition that the owner is gone.

    Returns:
        None where the table has no row for the state that was seen.
    """
    row = transition_for(move, record.state)
    if row is None or row.target is None:
        return None
    counted = row.counts is Counts.ALWAYS or (row.counts is Counts.UNLESS_DEAD and owner_is is not Liveness.DEAD)
    return Change(
        seen=record,
        sources=(record.state,),
        target=row.target,
        gone=row.standing is Standing.HEIR and not force,
        counted=int(counted),
    )


def settlement_for(move: Move, record: EffectRecord) -> Change:
    """Read the compare-and-set of a move by the owner off the table: all its sources at once."""
    rows = [row for row in TRANSITIONS if row.move is move]
    target = rows[0].target
    if target is None or any(row.target is not target or row.standing is not Standing.OWNER for row in rows):
        raise ValueError(f"{move} is no settlement by an owner")
    sources = tuple(row.source for row in rows if row.source is not None)
    return Change(seen=record, sources=sources, target=target)


class MachineLedger(ABC):
    """What all ledgers share; see `Ledger` for the contract of the public methods."""

    def __init__(self) -> None:
        self.claims = Claims()

    @property
    @abstractmethod
    def url(self) -> str:
        """See `Ledger`."""

    @abstractmethod
    def _create(self, request: ClaimRequest, owner: str) -> EffectRecord:
        """Write a first attempt unless there is a record; the record that is there now."""

    @abstractmethod
    def _change(self, change: Change) -> EffectRecord | None:
        """Apply a change; the record after it, or None where it did not apply."""

    @abstractmethod
    def _count_late(self, key: str, attempt: int) -> None:
        """Count a confirmed duplicate, once an attempt, and mark the attempt as `late`."""

    @abstractmethod
    def _liveness_elsewhere(self, record: EffectRecord) -> Liveness:
        """What can be told of an owner in another process."""

    @abstractmethod
    def get(self, key: str) -> EffectRecord | None:
        """See `Ledger`."""

    @abstractmethod
    def history(self, effect: str) -> Sequence[EffectRecord]:
        """See `Ledger`."""

    @abstractmethod
    def attempts(self, key: str) -> Sequence[AttemptRecord]:
        """See `Ledger`."""

    @abstractmethod
    def unsettled(self) -> Mapping[str, int]:
        """See `Ledger`."""

    @abstractmethod
    def list(
        self, *, state: State | None = None, tool: str | None = None, run_id: str | None = None, limit: int = 100
    ) -> Sequence[EffectRecord]:
        """See `Ledger`."""

    @abstractmethod
    def renew(self, key: str) -> bool:
        """See `Ledger`."""

    @abstractmethod
    def gc(self, older_than_s: float) -> int:
        """See `Ledger`."""

    @abstractmethod
    def close(self) -> None:
        """See `Ledger`."""

    def claim(self, request: ClaimRequest, *, over: EffectRecord | None = None) -> Claimed | Found:
        """See `Ledger`."""
        owner = self.claims.owner_for(request.key)
        # Before the write: from the moment others can see the claim, it must count as running.
        self.claims.begin(owner)
        try:
            claimed = self._claim(request, owner, over)
        except BaseException:
            self.claims.end(owner)
            self.claims.unanswered(request.key, owner)
            raise
        if not isinstance(claimed, Claimed):
            self.claims.end(owner)
        return claimed

    def _claim(self, request: ClaimRequest, owner: str, over: EffectRecord | None) -> Claimed | Found:
        record = over if over is not None else self._create(request, owner)
        if record.owner != owner:
            move = Move.CLAIM if over is None else Move.TAKE_OVER
            change = change_for(move, record, owner_is=Liveness.LAPSED)
            if change is not None:
                begun = self._apply(replace(change, next=_next_attempt(record, request, owner)))
                record = begun or self.get(request.key) or self._create(request, owner)
            elif over is not None:
                record = self.get(request.key) or self._create(request, owner)
        if record.owner == owner and record.state is State.STARTED:
            return Claimed(record)
        return Found(record, self.liveness(record))

    def _apply(self, change: Change) -> EffectRecord | None:
        if change.gone and self.claims.is_mine(change.seen.owner):
            # This process lives, so to the store all its claims do; only it knows which of them ended.
            if self.claims.is_running(change.seen.owner):
                return None
            change = replace(change, gone=False)
        return self._change(change)

    def complete(self, claim: Claimed, result: bytes | None) -> Completion:
        """See `Ledger`."""
        record = self._settle(Move.COMPLETE, claim, result=result)
        if record is not None:
            return Completion(Verdict.RECORDED, record)
        now = self.get(claim.record.key)
        if now is None:
            verdict = Verdict.LOST
        elif (now.owner, now.attempt) == (claim.record.owner, claim.record.attempt):
            verdict = Verdict.RECORDED
        else:
            self._count_late(now.key, claim.record.attempt)
            now = self.get(now.key)
            verdict = Verdict.LATE
        self.claims.end(claim.record.owner)
        return Completion(verdict, now)

    def fail(self, claim: Claimed, error: str) -> bool:
        """See `Ledger`."""
        return self._settle(Move.FAIL, claim, error=error) is not None

    def release(self, claim: Claimed) -> bool:
        """See `Ledger`."""
        return self._settle(Move.RELEASE, claim) is not None

    def mark_unknown(self, claim: Claimed | Found) -> bool:
        """See `Ledger`."""
        if isinstance(claim, Claimed):
            return self._settle(Move.MARK_UNKNOWN, claim) is not None
        change = change_for(Move.LAPSE, claim.record, owner_is=claim.liveness)
        return change is not None and self._apply(change) is not None

    def _settle(
        self, move: Move, claim: Claimed, *, result: bytes | None = None, error: str | None = None
    ) -> EffectRecord | None:
        record = self._change(replace(settlement_for(move, claim.record), result=result, error=error))
        self.claims.end(claim.record.owner)
        return record

    def resolve(self, record: EffectRecord, *, applied: bool, result: bytes | None = None, force: bool = False) -> bool:
        """See `Ledger`."""
        move = Move.RESOLVE_APPLIED if applied else Move.RESOLVE_NOT_APPLIED
        change = change_for(move, record, owner_is=self.liveness(record), force=force)
        return change is not None and self._apply(replace(change, result=result)) is not None

    def abandon(self, claim: Claimed) -> None:
        """See `Ledger`."""
        self.claims.end(claim.record.owner)

    def liveness(self, record: EffectRecord) -> Liveness:
        """See `Ledger`."""
        if self.claims.is_mine(record.owner):
            return Liveness.ALIVE if self.claims.is_running(record.owner) else Liveness.DEAD
        return self._liveness_elsewhere(record)


def _next_attempt(record: EffectRecord, request: ClaimRequest, owner: str) -> NextAttempt:
    # The step stays the first one of a run, so that the run, resumed, still finds it at its place; the turn
    # moves on, since a new intent is one that comes after the attempt that succeeds.
    return NextAttempt(
        owner=owner,
        run_id=request.run_id,
        turn=request.turn,
        step=record.step if record.run_id == request.run_id else request.step,
        old_outcome=_OLD_OUTCOMES[record.state],
    )


def request_of(record: EffectRecord) -> ClaimRequest:
    """The request that a record answers."""
    return ClaimRequest(
        key=record.key,
        effect=record.effect,
        intent=record.intent,
        repeat=record.repeat,
        arguments=record.arguments,
        step=record.step,
        turn=record.turn,
        tool=record.tool,
        run_id=record.run_id,
    )


def first_record(request: ClaimRequest, owner: str, now_s: float) -> EffectRecord:
    """The record that the first claim of a key makes."""
    return EffectRecord(
        key=request.key,
        effect=request.effect,
        intent=request.intent,
        repeat=request.repeat,
        arguments=request.arguments,
        step=request.step,
        turn=request.turn,
        tool=request.tool,
        run_id=request.run_id,
        state=State.STARTED,
        attempt=1,
        owner=owner,
        created_s=now_s,
        started_s=now_s,
        updated_s=now_s,
    )
