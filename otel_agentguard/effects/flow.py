"""The way of one call through the ledger."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from typing import Any, assert_never

from otel_agentguard.effects.calls import Applied, EffectCall, StillUnknown
from otel_agentguard.effects.decisions import Decision, OnDuplicate, Place, decide, next_copy, place_in
from otel_agentguard.effects.drivers import AskStore, Flow, Pause, RunBody
from otel_agentguard.effects.failures import describe, rebuild
from otel_agentguard.effects.ledger import (
    Claimed,
    ClaimRequest,
    Completion,
    EffectRecord,
    Found,
    Ledger,
    State,
    Verdict,
)
from otel_agentguard.effects.recording import Recorder, stored_result
from otel_agentguard.effects.reports import (
    Certainty,
    EffectAnswer,
    EffectOutcome,
    in_progress_text,
    mismatch_text,
    not_recorded_text,
    refusal,
)
from otel_agentguard.effects.transactions import TransactionLedger
from otel_agentguard.errors import (
    CallBlocked,
    CompletionNotRecorded,
    EffectInProgress,
    EffectMismatch,
    NotApplied,
    ResultNotStored,
    StoreError,
)

_logger = logging.getLogger(__name__)

effects_inside: ContextVar[frozenset[str]] = ContextVar("agentguard_effects", default=frozenset())
"""The effect keys whose bodies this thread or task is inside of."""

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1

Body = Callable[[str], Any]
"""The tool, bound to its arguments; it is given the key for the callee."""


class _ClaimWork:
    """A claim in a thread; one that is granted after its caller has gone is given back."""

    def __init__(self, ledger: Ledger, request: ClaimRequest, over: EffectRecord | None) -> None:
        self._ledger = ledger
        self._request = request
        self._over = over
        self._lock = threading.Lock()
        self._left = False
        self._granted: Claimed | None = None

    def __call__(self) -> Claimed | Found:
        answer = self._ledger.claim(self._request, over=self._over)
        if isinstance(answer, Claimed):
            with self._lock:
                self._granted = answer
                left = self._left
            if left:
                self._ledger.release(answer)
        return answer

    def leave(self) -> Claimed | None:
        """The caller goes; the claim that it must give back itself, if there is one."""
        with self._lock:
            self._left = True
            return self._granted


class CallFlow:
    """One call on its way through the ledger.

    Args:
        call: The call; it is numbered here.
        body: Runs the tool.
        ledger: Where its effect is recorded.
        recorder: Tells the ledger and the observer how it ended.
        now_s: A clock for waiting, seconds.
        deadline: When waiting ends, on that clock.
    """

    def __init__(
        self,
        call: EffectCall,
        body: Body,
        ledger: Ledger,
        recorder: Recorder,
        *,
        now_s: Callable[[], float],
        deadline: float,
    ) -> None:
        self._call = call
        self._body = body
        self._ledger = ledger
        self._recorder = recorder
        self._now_s = now_s
        self._deadline = deadline
        self._in_transaction = isinstance(ledger, TransactionLedger)
        self._pause_s = _FIRST_PAUSE_S
        self._waited = False
        self._copied = False
        self._placed = False
        call.run.lead(call)
        allow = call.spec.on_duplicate is OnDuplicate.ALLOW
        self._place = Place(repeat=call.occurrence) if allow else Place()

    def _ask(self, work: Callable[[], Any]) -> AskStore | RunBody:
        # A connection of the caller is used in the caller's own thread.
        return RunBody(work) if self._in_transaction else AskStore(work)

    def answered(self) -> Flow[EffectAnswer]:
        """Answer from the ledger, or run the body under a claim."""
        if self._recorder.has_parked:
            yield AskStore(self._recorder.settle_parked)
        over: EffectRecord | None = None
        found: Found | None
        while True:
            claim = yield from self._claimed(over)
            if isinstance(claim, Claimed):
                return (yield from self._executed(claim, over))
            over, found = None, claim
            while found is not None:
                if not self._placed and found.record.step != self._call.step:
                    found = yield from self._placed_anew(found)
                    continue
                decision = self._decision(found)
                match decision:
                    case Decision.CLAIM:
                        break
                    case Decision.TAKE_OVER:
                        over = found.record
                        break
                    case Decision.VERIFY:
                        answer = yield from self._verified(found)
                        if answer is not None:
                            return answer
                        break
                    case Decision.WAIT:
                        found = yield from self._looked_again(found)
                    case Decision.DUPLICATE if self._may_copy():
                        yield from self._move_to_copy(found)
                        break
                    case Decision.BLOCK:
                        found = yield from self._blocked(found)
                    case Decision.REPLAY | Decision.DUPLICATE | Decision.RAISE | Decision.MISMATCH:
                        return self._replayed(found.record, decision)
                    case _:
                        assert_never(decision)

    def _decision(self, found: Found) -> Decision:
        return decide(
            found.record,
            found.liveness,
            step=self._call.step,
            arguments=self._call.fingerprint,
            on_unknown=self._call.spec.on_unknown,
        )

    def _claimed(self, over: EffectRecord | None) -> Flow[Claimed | Found]:
        work = _ClaimWork(self._ledger, self._call.request_at(self._place), over)
        try:
            claim: Claimed | Found = yield self._ask(work)
            return claim
        except Exception:
            raise
        except BaseException:
            granted = work.leave()
            if granted is not None:
                yield self._ask(
                    lambda: self._recorder.end(self._ledger, granted, lambda: self._ledger.release(granted))
                )
            raise

    def _placed_anew(self, found: Found) -> Flow[Found | None]:
        """Look where this call belongs; None when it must claim at another place."""
        call = self._call
        history = yield self._ask(lambda: self._ledger.history(call.effect))
        self._placed = True
        known = any(record.step == call.step for record in history)
        if call.spec.on_duplicate is OnDuplicate.ALLOW and not known and history:
            self._place = next_copy(history, history[-1].intent)
            self._copied = True
        else:
            self._place = place_in(history, step=call.step, run_id=call.run.run_id, turn=call.run.intents)
        return found if call.key_at(self._place) == found.record.key else None

    def _may_copy(self) -> bool:
        return not self._waited and self._call.spec.on_duplicate in {OnDuplicate.WARN, OnDuplicate.ALLOW}

    def _move_to_copy(self, found: Found) -> Generator[Any, Any, None]:
        history = yield self._ask(lambda: self._ledger.history(self._call.effect))
        self._place = next_copy(history, found.record.intent)
        self._copied = True

    def _looked_again(self, found: Found) -> Flow[Found | None]:
        """Wait a little for the owner; None when the record has gone."""
        if self._now_s() >= self._deadline:
            self._recorder.outcome(self._call, EffectOutcome.BLOCKED, found.record.key, found.record.attempt)
            raise EffectInProgress(in_progress_text(self._call), key=found.record.key)
        self._waited = True
        yield Pause(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)
        again: Found | None = yield self._ask(lambda: self._look(found.record.key))
        return again

    def _look(self, key: str) -> Found | None:
        record = self._ledger.get(key)
        return Found(record, self._ledger.liveness(record)) if record is not None else None

    def _replayed(self, record: EffectRecord, decision: Decision) -> EffectAnswer:
        """Answer from a record that is settled, or refuse."""
        call, recorder = self._call, self._recorder
        if decision is Decision.MISMATCH:
            recorder.outcome(call, EffectOutcome.MISMATCH, record.key, record.attempt)
            raise EffectMismatch(mismatch_text(call), key=record.key)
        if decision is Decision.RAISE:
            recorder.outcome(call, EffectOutcome.FAILED, record.key, record.attempt)
            raise rebuild(record.error, call.spec.permanent, key=record.key)
        note = ""
        if decision is Decision.DUPLICATE:
            recorder.duplicate(call, Certainty.PREVENTED, record.key)
            note = f"{call.spec.tool} was already done with these arguments; this is its earlier result."
            if call.spec.on_duplicate is OnDuplicate.BLOCK and not self._waited:
                self._refuse_duplicate(record)
        outcome = EffectOutcome.WAITED if self._waited else EffectOutcome.REPLAYED
        recorder.outcome(call, outcome, record.key, record.attempt)
        value = stored_result(call, record)
        self._note_success(record.key)
        return EffectAnswer(value=value, outcome=outcome, key=record.key, attempt=record.attempt, note=note)

    def _note_success(self, key: str) -> Sequence[str]:
        return self._call.run.succeeded(self._call, key)

    def _refuse_duplicate(self, record: EffectRecord) -> None:
        call = self._call
        self._recorder.outcome(call, EffectOutcome.BLOCKED, record.key, record.attempt)
        message = f"{call.spec.tool} was already done with these arguments and is not done again."
        finding = refusal(call, record, message, f"{call.spec.tool} succeeded as {record.key}; it refuses duplicates")
        earlier = None
        with contextlib.suppress(ResultNotStored):
            earlier = stored_result(call, record)
        raise CallBlocked(message, finding=finding, earlier_result=earlier)

    def _blocked(self, found: Found) -> Flow[Found | None]:
        """Refuse for an unknown outcome; a record to look at where the owner has settled it meanwhile."""
        call, record = self._call, found.record
        if record.state is State.STARTED:
            marked = yield self._ask(lambda: self._ledger.mark_unknown(found))
            if not marked:
                again: Found | None = yield self._ask(lambda: self._look(record.key))
                return again
            self._recorder.outcome(call, EffectOutcome.UNKNOWN, record.key, record.attempt)
        self._recorder.outcome(call, EffectOutcome.BLOCKED, record.key, record.attempt)
        message = (
            f"{call.spec.tool} was begun before with these arguments and nobody knows whether it happened, "
            "so it is not done again. Do not try another way; tell the user that it must be looked at."
        )
        explanation = (
            f"{call.spec.tool} of run {record.run_id} stopped between effect and record (attempt {record.attempt}); "
            f"look at the callee, then: otel-agentguard ledger resolve {record.key}"
        )
        raise CallBlocked(message, finding=refusal(call, record, message, explanation))

    def _verified(self, found: Found) -> Flow[EffectAnswer | None]:
        """Ask the callee what happened; None when the claim is to be asked for again."""
        call, record = self._call, found.record
        verify = call.spec.verify
        said: object = StillUnknown()
        if verify is not None:
            try:
                said = yield RunBody(lambda: verify(record.key, call.arguments))
            except Exception:
                _logger.exception("verify of %s failed; the outcome stays unknown", call.spec.tool)
        if isinstance(said, Applied):
            data = self._recorder.encoded(call, said.result)
            written = yield self._ask(lambda: self._ledger.resolve(record, applied=True, result=data))
            if not written:
                return None
            self._recorder.outcome(call, EffectOutcome.REPLAYED, record.key, record.attempt)
            self._note_success(record.key)
            return EffectAnswer(
                value=said.result,
                outcome=EffectOutcome.REPLAYED,
                key=record.key,
                attempt=record.attempt,
                note=f"{call.spec.tool} had been done already; this is what its callee says of it.",
            )
        if isinstance(said, NotApplied) or said is NotApplied:
            yield self._ask(lambda: self._ledger.resolve(record, applied=False))
            now = yield self._ask(lambda: self._ledger.get(record.key))
            if now is not None and now.maybe_duplicates > record.maybe_duplicates:
                self._recorder.duplicate(call, Certainty.POSSIBLE, record.key)
            return None
        yield from self._blocked(found)
        return None

    def _executed(self, claim: Claimed, over: EffectRecord | None) -> Flow[EffectAnswer]:
        """Run the body under a claim and record how it ended."""
        self._report_begun(claim.record, over)
        try:
            result = yield from self._run(claim)
            return (yield from self._recorded(claim, result))
        except BaseException:
            # Settled or parked by now, unless an interrupt struck in between: then nobody will settle it.
            self._ledger.abandon(claim)
            raise

    def _report_begun(self, record: EffectRecord, over: EffectRecord | None) -> None:
        if over is not None and record.attempt > over.attempt:
            self._recorder.duplicate(self._call, Certainty.POSSIBLE, record.key)
        if self._copied:
            warned = self._call.spec.on_duplicate is OnDuplicate.WARN
            self._recorder.duplicate(self._call, Certainty.CONFIRMED if warned else Certainty.POSSIBLE, record.key)

    def _run(self, claim: Claimed) -> Flow[Any]:
        token = effects_inside.set(effects_inside.get() | {self._call.effect})
        try:
            return (yield RunBody(lambda: self._body(claim.record.key)))
        except BaseException as exc:
            yield from self._ended(claim, exc)
            raise
        finally:
            with contextlib.suppress(ValueError):  # A coroutine that is closed ends in another context.
                effects_inside.reset(token)

    def _recorded(self, claim: Claimed, result: object) -> Flow[EffectAnswer]:
        call, ledger, recorder, key = self._call, self._ledger, self._recorder, claim.record.key
        data = recorder.encoded(call, result)
        if self._in_transaction:
            # Not tried again and not parked: what fails here undoes the effect too.
            return (yield from self._completed(claim, ledger.complete(claim, data), result))
        try:
            completion: Completion = yield self._ask(lambda: recorder.complete(ledger, claim, data))
        except StoreError as exc:
            raise CompletionNotRecorded(not_recorded_text(call, claim.record), key=key) from exc
        except BaseException:
            # Interrupted on its way to the ledger, where it may or may not have arrived.
            yield self._ask(lambda: recorder.end(ledger, claim, lambda: ledger.complete(claim, data)))
            raise
        return (yield from self._completed(claim, completion, result))

    def _ended(self, claim: Claimed, error: BaseException) -> Generator[Any, Any, None]:
        """Record that the body raised; in a transaction its undoing is record enough."""
        call, ledger, record = self._call, self._ledger, claim.record
        work: Callable[[], object]
        if self._in_transaction:
            ledger.abandon(claim)
            self._recorder.outcome(call, EffectOutcome.NOT_APPLIED, record.key, record.attempt)
            return
        if isinstance(error, NotApplied):
            outcome, work = EffectOutcome.NOT_APPLIED, lambda: ledger.release(claim)
        elif isinstance(error, call.spec.permanent):
            text = describe(error, keep=call.spec.keep_result)
            outcome, work = EffectOutcome.FAILED, lambda: ledger.fail(claim, text)
        else:
            outcome, work = EffectOutcome.UNKNOWN, lambda: ledger.mark_unknown(claim)
        self._recorder.outcome(call, outcome, record.key, record.attempt)
        yield self._ask(lambda: self._recorder.end(ledger, claim, work))

    def _completed(self, claim: Claimed, completion: Completion, result: object) -> Flow[EffectAnswer]:
        call, recorder, record = self._call, self._recorder, claim.record
        if completion.verdict is Verdict.LOST:
            raise CompletionNotRecorded(not_recorded_text(call, record), key=record.key)
        if completion.verdict is Verdict.LATE:
            return (yield from self._late(record, result))
        for undone in self._note_success(record.key):
            yield self._ask(lambda key=undone: self._renewed(key))  # type: ignore[misc]
        recorder.outcome(call, EffectOutcome.EXECUTED, record.key, record.attempt)
        return EffectAnswer(value=result, outcome=EffectOutcome.EXECUTED, key=record.key, attempt=record.attempt)

    def _renewed(self, key: str) -> None:
        try:
            self._ledger.renew(key)
        except StoreError:
            _logger.exception("could not note that %s was undone; an equal call is answered from the ledger", key)
            self._recorder.failure("ledger")

    def _late(self, record: EffectRecord, result: object) -> Flow[EffectAnswer]:
        """Another attempt has begun: a confirmed duplicate. The winner's result is the result."""
        call, recorder = self._call, self._recorder
        recorder.outcome(call, EffectOutcome.LATE, record.key, record.attempt)
        recorder.duplicate(call, Certainty.CONFIRMED, record.key)
        value, attempt = result, record.attempt
        found = yield self._ask(lambda: self._look(record.key))
        while found is not None and self._decision(found) is Decision.WAIT and self._now_s() < self._deadline:
            found = yield from self._looked_again(found)
        if found is not None and found.record.state is State.SUCCEEDED:
            with contextlib.suppress(ResultNotStored):
                value, attempt = stored_result(call, found.record), found.record.attempt
        self._note_success(record.key)
        return EffectAnswer(value=value, outcome=EffectOutcome.LATE, key=record.key, attempt=attempt)

    def observed(self) -> Flow[EffectAnswer]:
        """Run the body whatever the ledger says; claim and record where it lets us."""
        claim: Claimed | Found | None = None
        over: EffectRecord | None = None
        try:
            claim = yield from self._claimed(None)
            if isinstance(claim, Found) and claim.record.step != self._call.step:
                here = yield from self._placed_anew(claim)
                claim = here or (yield from self._claimed(None))
            if isinstance(claim, Found) and self._decision(claim) is Decision.TAKE_OVER:
                over = claim.record
                claim = yield from self._claimed(over)
        except StoreError:
            _logger.exception("no claim for %s; it runs all the same in observe mode", self._call.spec.tool)
            self._recorder.failure("ledger")
        if isinstance(claim, Claimed):
            return (yield from self._executed_leniently(claim, over))
        key = self._call.key_at(self._place)
        if claim is not None:
            self._report_unheeded(claim)
        value = yield RunBody(lambda: self._body(key))
        self._recorder.outcome(self._call, EffectOutcome.EXECUTED, key)
        return EffectAnswer(value=value, outcome=EffectOutcome.EXECUTED, key=key)

    def _executed_leniently(self, claim: Claimed, over: EffectRecord | None) -> Flow[EffectAnswer]:
        result: list[object] = []
        inner = self._body

        def body(key: str) -> Any:
            return _kept(inner(key), result)

        self._body = body
        try:
            return (yield from self._executed(claim, over))
        except CompletionNotRecorded as exc:
            _logger.warning("%s", exc)
            self._recorder.failure("ledger")
            return EffectAnswer(value=result[0], outcome=EffectOutcome.EXECUTED, key=claim.record.key)

    def _report_unheeded(self, found: Found) -> None:
        """Tell what enforcing would have come to, and the duplicate that comes of not enforcing."""
        outcome, certainty = _UNHEEDED[self._decision(found)]
        record = found.record
        self._recorder.outcome(self._call, outcome, record.key, record.attempt, enforced=False)
        if certainty is not None:
            self._recorder.duplicate(self._call, certainty, record.key)


_UNHEEDED: dict[Decision, tuple[EffectOutcome, Certainty | None]] = {
    Decision.REPLAY: (EffectOutcome.REPLAYED, Certainty.CONFIRMED),
    Decision.DUPLICATE: (EffectOutcome.REPLAYED, Certainty.CONFIRMED),
    Decision.RAISE: (EffectOutcome.FAILED, None),
    Decision.MISMATCH: (EffectOutcome.MISMATCH, Certainty.POSSIBLE),
    Decision.WAIT: (EffectOutcome.WAITED, Certainty.POSSIBLE),
    Decision.BLOCK: (EffectOutcome.BLOCKED, Certainty.POSSIBLE),
    Decision.VERIFY: (EffectOutcome.BLOCKED, Certainty.POSSIBLE),
    Decision.TAKE_OVER: (EffectOutcome.EXECUTED, Certainty.POSSIBLE),
    Decision.CLAIM: (EffectOutcome.EXECUTED, None),
}


def _kept(value: Any, into: list[object]) -> Any:
    if not hasattr(value, "__await__"):
        into.append(value)
        return value

    async def awaited() -> Any:
        into.append(await value)
        return into[0]

    return awaited()
