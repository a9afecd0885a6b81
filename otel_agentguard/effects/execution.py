"""Runs side-effect tools under a ledger, for sync and async callers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from otel_agentguard.effects.calls import EffectCall
from otel_agentguard.effects.decisions import OnDuplicate
from otel_agentguard.effects.drivers import AwaitFlight, Flow, RunBody, StoreThreads, drive, drive_async
from otel_agentguard.effects.flow import Body, CallFlow, effects_inside
from otel_agentguard.effects.ledger import Ledger
from otel_agentguard.effects.ownership import watch_forks
from otel_agentguard.effects.recording import Recorder
from otel_agentguard.effects.reports import (
    Certainty,
    EffectAnswer,
    EffectObserver,
    EffectOutcome,
    Silent,
    in_progress_text,
    mismatch_text,
)
from otel_agentguard.effects.transactions import TransactionLedger, transaction_on
from otel_agentguard.errors import EffectInProgress, EffectMismatch, StoreError


class _Flight:
    """A call that is under way, for calls of the same effect to share."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.landed: Future[EffectAnswer | Exception | None] = Future()


class EffectExecutor:
    """Runs side-effect tools so that no effect happens twice unnoticed.

    Any thread or event loop may call; calls of one effect key that are in flight at once are one.

    Args:
        ledger: Where effects are recorded.
        observer: Is told what happens.
        retry_delays_s: Pauses before each further try to record a completion, seconds.
        max_result_bytes: Results that take more are not kept.
        now_s: A clock for waiting, seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        observer: EffectObserver | None = None,
        retry_delays_s: Sequence[float] = (0.05, 0.2, 0.8),
        max_result_bytes: int = 1 << 20,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger = ledger
        self._recorder = Recorder(
            observer or Silent(), retry_delays_s=retry_delays_s, max_result_bytes=max_result_bytes
        )
        self._now_s = now_s
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight] = {}
        self._threads = StoreThreads()
        watch_forks(self)

    def run(self, call: EffectCall, body: Body, *, tx: object | None = None, enforce: bool = True) -> EffectAnswer:
        """Cause the effect of one call, or answer it from the ledger.

        Args:
            call: The call.
            body: Runs the tool; gets the key for the callee.
            tx: The caller's database connection: effect and record become one transaction there.
            enforce: False to run the body whatever the ledger says, and only report.

        Raises:
            CallBlocked: The outcome of an earlier attempt is unknown, or the tool refuses duplicates.
            EffectMismatch: The key is known with other arguments.
            EffectInProgress: Another call did not finish in time.
            ResultNotStored: The effect happened before, and its result was not kept.
            CompletionNotRecorded: The effect happened now, and the ledger could not be told.
            StoreError: The ledger cannot be asked, so the body did not run.
            BaseException: Whatever the body raised.
        """
        return drive(self._flow(call, body, tx, enforce))

    async def run_async(
        self, call: EffectCall, body: Body, *, tx: object | None = None, enforce: bool = True
    ) -> EffectAnswer:
        """The same as `run` for a body that gives an awaitable; the store is asked in a thread."""
        return await drive_async(self._flow(call, body, tx, enforce), self._threads)

    def settle_parked(self) -> int:
        """Tell the ledger again what it could not be told before.

        Every call does so first; this is for a shutdown.

        Returns:
            How many claims are still not settled.
        """
        return self._recorder.settle_parked()

    def close(self) -> None:
        """Settle what can be settled and end the threads; the ledger stays open."""
        self.settle_parked()
        self._threads.close()

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`: the calls of the parent are none of the child's."""
        if in_child:
            self._flights.clear()
            self._recorder.forget_parked()
            self._threads.renew_lock()
        self._lock.release()

    def _flow(self, call: EffectCall, body: Body, tx: object | None, enforce: bool) -> Flow[EffectAnswer]:
        if tx is not None:
            return self._transacted(call, body, transaction_on(tx), enforce)
        if not enforce:
            return self._alone(call, body).observed()
        if call.spec.on_duplicate is OnDuplicate.ALLOW:
            return self._alone(call, body).answered()
        return self._shared(call, body)

    def _alone(
        self, call: EffectCall, body: Body, ledger: Ledger | None = None, deadline: float | None = None
    ) -> CallFlow:
        return CallFlow(
            call,
            body,
            ledger or self.ledger,
            self._recorder,
            now_s=self._now_s,
            deadline=self._now_s() + call.spec.wait_s if deadline is None else deadline,
        )

    def _transacted(self, call: EffectCall, body: Body, ledger: TransactionLedger, enforce: bool) -> Flow[EffectAnswer]:
        try:
            yield RunBody(ledger.begin)
        except StoreError:
            if enforce:
                raise
            return (yield from self._alone(call, body).observed())
        flow = self._alone(call, body, ledger)
        try:
            answer = yield from (flow.answered() if enforce else flow.observed())
        except BaseException as exc:
            ledger.rollback(exc)
            raise
        yield RunBody(ledger.commit)
        return answer

    def _shared(self, call: EffectCall, body: Body) -> Flow[EffectAnswer]:
        """Lead a flight, or share the one that is under way."""
        if call.effect in effects_inside.get():
            raise EffectInProgress(f"{call.spec.tool} called itself with the same arguments", key=call.effect)
        deadline = self._now_s() + call.spec.wait_s
        while (flight := self._join(call)) is not None:
            landed = yield from self._waited_for(flight, call, deadline)
            if landed is not None:
                return landed
        answer: EffectAnswer | Exception | None = None
        try:
            answer = yield from self._alone(call, body, deadline=deadline).answered()
        except Exception as exc:
            answer = exc
            raise
        finally:
            with self._lock:
                flight = self._flights.pop(call.effect, None)
            if flight is not None:
                flight.landed.set_result(answer)
        return answer

    def _join(self, call: EffectCall) -> _Flight | None:
        """The flight to share; None when this call now leads one."""
        with self._lock:
            flight = self._flights.get(call.effect)
            if flight is None:
                self._flights[call.effect] = _Flight(call.fingerprint)
            return flight

    def _waited_for(self, flight: _Flight, call: EffectCall, deadline: float) -> Flow[EffectAnswer | None]:
        """The answer of a flight; None where its leader was interrupted and somebody else must lead."""
        if flight.fingerprint != call.fingerprint:
            self._recorder.outcome(call, EffectOutcome.MISMATCH)
            raise EffectMismatch(mismatch_text(call), key=call.effect)
        try:
            landed = yield AwaitFlight(flight.landed, max(0.0, deadline - self._now_s()))
        except TimeoutError:
            self._recorder.outcome(call, EffectOutcome.BLOCKED)
            raise EffectInProgress(in_progress_text(call), key=call.effect) from None
        if landed is None:
            return None
        if isinstance(landed, Exception):
            self._recorder.outcome(call, EffectOutcome.WAITED)
            raise landed
        self._recorder.outcome(call, EffectOutcome.WAITED, landed.key, landed.attempt)
        self._recorder.duplicate(call, Certainty.PREVENTED, landed.key)
        return EffectAnswer(
            value=landed.value,
            outcome=EffectOutcome.WAITED,
            key=landed.key,
            attempt=landed.attempt,
            note=f"{call.spec.tool} was under way with the same arguments; this is its one result.",
        )
