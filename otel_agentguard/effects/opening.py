"""The executor of side effects, opened with the first of them, and again after that failed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ownership import watch_forks
from otel_agentguard.errors import AgentGuardError, StoreError
from otel_agentguard.outofband import Breaker

PATIENCE_S = 5.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 15.0


@dataclass(slots=True, eq=False)
class _Attempt:
    """One attempt to open it.

    Attributes:
        until_s: How long callers wait for it, on the clock that never goes back.
        outcome: What it gave.
        is_told: Its being late was told.
    """

    until_s: float
    outcome: Future[EffectExecutor] = field(default_factory=Future)
    is_told: bool = False


class LateExecutor:
    """Opens an executor whose store may be down, or may take a connection and never answer.

    An attempt is made in a thread of its own, one for all who ask, and nobody waits for it longer than
    `patience_s`; it goes on after that. A store that failed, or for which no thread can be started, is left
    alone for a second, then for twice as long each time, at most 15 s: whoever asks then is refused at once.
    Any thread or event loop may ask.

    Args:
        store: What kind of store it is, for messages.
        opened: Opens it; may block.
        at_once: It opens without waiting for anything, so that whoever asks first opens it. That needs no
            thread, and at the exit of the interpreter none can be started (from Python 3.12 on).
        failed: Told of each attempt that failed or is late.
        patience_s: How long a caller waits, seconds.
        breaker: When a store that failed is tried again.
    """

    def __init__(
        self,
        store: str,
        opened: Callable[[], EffectExecutor],
        *,
        at_once: bool = False,
        failed: Callable[[StoreError], object] = lambda _: None,
        patience_s: float = PATIENCE_S,
        breaker: Breaker | None = None,
    ) -> None:
        self._store = store
        self._opened = opened
        self._at_once = at_once
        self._failed = failed
        self._patience_s = patience_s
        self._breaker = breaker or Breaker(failures=1, pause_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        self._lock = threading.Lock()
        self._executor: EffectExecutor | None = None
        self._attempt: _Attempt | None = None
        self._why = ""
        self._closed = False
        watch_forks(self)

    def ready(self) -> EffectExecutor:
        """The executor, open.

        Raises:
            StoreError: The store cannot be asked, so no side effect may happen.
            AgentGuardError: It can never be asked: its driver is missing, say.
        """
        if self._executor is not None:
            return self._executor
        attempt = self._under_way()
        try:
            return attempt.outcome.result(self._left_s(attempt))
        except (TimeoutError, StoreError) as exc:
            raise self._refusal(attempt, exc) from exc

    async def ready_async(self) -> EffectExecutor:
        """`ready` without blocking the event loop."""
        if self._executor is not None:
            return self._executor
        attempt = self._under_way()
        try:
            # Nobody can cancel the outcome: it counts as running from the start.
            async with asyncio.timeout(self._left_s(attempt)):
                return await asyncio.wrap_future(attempt.outcome)
        except (TimeoutError, StoreError) as exc:
            raise self._refusal(attempt, exc) from exc

    def close(self) -> None:
        """Close what is open, and what an attempt under way may still open; nothing is opened any more."""
        with self._lock:
            self._closed = True
            executor = self._executor
        if executor is not None:
            _close(executor)

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """See `Forkable`: the thread of an attempt stays with the parent."""
        if in_child and self._executor is None:
            self._attempt = None
        self._lock.release()

    def _under_way(self) -> _Attempt:
        """The attempt to wait for, begun where there is none."""
        with self._lock:
            if self._attempt is not None:
                return self._attempt
            if self._closed:
                raise StoreError("the guard is shut down, so no side effect may happen")
            if not self._breaker.allows():
                raise StoreError(
                    f"{self._why}; no side effect happens while the store is down, and it is tried again in a moment"
                )
            attempt = self._attempt = _Attempt(time.monotonic() + self._patience_s)
            attempt.outcome.set_running_or_notify_cancel()
        if self._at_once:
            self._try(attempt)
            return attempt
        try:
            threading.Thread(target=self._try, args=(attempt,), name="agentguard-ledger", daemon=True).start()
        except Exception as exc:
            self._gave_up(attempt, StoreError(f"the store ({self._store}) cannot be opened: {exc}"))
        return attempt

    def _try(self, attempt: _Attempt) -> None:
        try:
            executor = self._opened()
        except BaseException as exc:
            self._gave_up(attempt, exc if isinstance(exc, AgentGuardError) else StoreError(f"{self._store}: {exc!r}"))
            if isinstance(exc, Exception):
                return
            raise
        with self._lock:
            self._executor = executor
            closed = self._closed
        if closed:
            _close(executor)
        attempt.outcome.set_result(executor)

    def _gave_up(self, attempt: _Attempt, error: AgentGuardError) -> None:
        with self._lock:
            self._why = str(error)
            self._breaker.failed()
            if self._attempt is attempt:
                self._attempt = None
        if isinstance(error, StoreError) and not attempt.is_told:
            self._failed(error)
        attempt.outcome.set_exception(error)

    def _left_s(self, attempt: _Attempt) -> float:
        return max(0.0, attempt.until_s - time.monotonic())

    def _refusal(self, attempt: _Attempt, error: Exception) -> StoreError:
        """What one caller gets; each has an exception of its own, since others raise theirs at the same time."""
        if isinstance(error, StoreError):
            return StoreError(str(error))
        waited = f"the store ({self._store}) has not answered for {self._patience_s:g} s"
        late = StoreError(f"{waited}; no side effect happens until it does")
        if not attempt.is_told:
            attempt.is_told = True
            self._failed(late)
        return late


def _close(executor: EffectExecutor) -> None:
    executor.close()
    executor.ledger.close()
