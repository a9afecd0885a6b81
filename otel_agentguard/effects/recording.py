"""Tells the ledger and the observer how effects ended, and does not give up at the first failure."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from otel_agentguard.effects.calls import EffectCall
from otel_agentguard.effects.ledger import Claimed, Completion, EffectRecord, Ledger
from otel_agentguard.effects.reports import Certainty, EffectObserver, EffectOutcome
from otel_agentguard.effects.values import Unstorable, decode, encode
from otel_agentguard.errors import ResultNotStored, StoreError

_logger = logging.getLogger(__name__)

_MOST_PARKED = 256


class Recorder:
    """What the calls of one executor share.

    Args:
        observer: Is told what happens.
        retry_delays_s: Pauses before each further try to record a completion, seconds.
        max_result_bytes: Results that take more are not kept.
    """

    def __init__(self, observer: EffectObserver, *, retry_delays_s: Sequence[float], max_result_bytes: int) -> None:
        self._observer = observer
        self._retry_delays_s = tuple(retry_delays_s)
        self._max_result_bytes = max_result_bytes
        self._parked: deque[Callable[[], object]] = deque(maxlen=_MOST_PARKED)

    def encoded(self, call: EffectCall, result: object) -> bytes | None:
        """A result as it is stored; None where it is not to be kept, or cannot be."""
        if not call.spec.keep_result:
            return None
        try:
            return encode(result, max_bytes=self._max_result_bytes)
        except Unstorable as exc:
            _logger.info("%s: its result is not kept: %s", call.spec.tool, exc)
        except Exception:
            _logger.exception("%s: its result is not kept", call.spec.tool)
        return None

    def complete(self, ledger: Ledger, claim: Claimed, result: bytes | None) -> Completion:
        """Tell the ledger of a success, again and again for a while.

        Raises:
            StoreError: It could not be told; the completion is parked.
        """
        for delay_s in self._retry_delays_s:
            try:
                return ledger.complete(claim, result)
            except StoreError as exc:
                _logger.warning("the success of %s is not recorded yet: %s", claim.record.tool, exc)
                time.sleep(delay_s)
        try:
            return ledger.complete(claim, result)
        except StoreError:
            self._park(ledger, claim, lambda: ledger.complete(claim, result))
            raise

    def end(self, ledger: Ledger, claim: Claimed, work: Callable[[], object]) -> None:
        """Tell the ledger how a claim ended without success; the error of the body matters more than ours."""
        try:
            work()
        except StoreError:
            _logger.exception("the end of %s is not recorded yet", claim.record.tool)
            self._park(ledger, claim, work)
            self.failure("ledger")

    def _park(self, ledger: Ledger, claim: Claimed, work: Callable[[], object]) -> None:
        ledger.abandon(claim)
        self._parked.append(work)

    @property
    def has_parked(self) -> bool:
        """Whether the ledger has not been told everything."""
        return bool(self._parked)

    def settle_parked(self) -> int:
        """Tell the ledger what it could not be told before.

        Returns:
            How much is still untold.
        """
        for _ in range(len(self._parked)):
            try:
                work = self._parked.popleft()
            except IndexError:  # Another thread is at it too.
                break
            try:
                work()
            except StoreError:
                self._parked.appendleft(work)
                break
        return len(self._parked)

    def forget_parked(self) -> None:
        """After a fork, in the child: the parent tells its own."""
        self._parked.clear()

    def outcome(
        self, call: EffectCall, outcome: EffectOutcome, key: str = "", attempt: int = 0, *, enforced: bool = True
    ) -> None:
        """Tell the observer how a call ended."""
        self._tell(lambda: self._observer.effect(call, outcome, key=key, attempt=attempt, enforced=enforced))

    def duplicate(self, call: EffectCall, certainty: Certainty, key: str) -> None:
        """Tell the observer of a duplicate."""
        self._tell(lambda: self._observer.duplicate(call, certainty, key=key))

    def failure(self, where: str) -> None:
        """Tell the observer of a failure of ours."""
        self._tell(lambda: self._observer.failed(where))

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception:
            _logger.exception("an observer of effects failed; the call goes on")


def stored_result(call: EffectCall, record: EffectRecord) -> object:
    """The result that a record holds, as the tool would return it.

    Raises:
        ResultNotStored: It was not kept, or nothing says how to rebuild it.
    """
    if record.result is None:
        raise ResultNotStored(
            f"{call.spec.tool} happened already ({record.key}) and is not done again, but its result was not kept",
            key=record.key,
        )
    try:
        return decode(record.result, call.spec.returns, decoder=call.spec.decode)
    except Exception as exc:
        raise ResultNotStored(
            f"{call.spec.tool} happened already ({record.key}) and is not done again: {exc}", key=record.key
        ) from exc
