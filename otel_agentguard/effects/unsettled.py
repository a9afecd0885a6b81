"""How many side effects wait for somebody to settle them, told without anybody waiting for the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from otel_agentguard.effects.opening import LateExecutor
from otel_agentguard.outofband import Failed, Worker

_EVERY_S = 10.0
_WAIT_S = 0.5
_GIVEN_UP_S = 60.0


class Unsettled:
    """Asks the ledger for its unknown effects when somebody reads the metrics, in a thread and now and then.

    Whoever reads waits for half a second at most, and sees what is known by then: while the store is down,
    what it said last. Where nobody may wait, it is only asked, and the answer is told when it comes. Thread safe.

    Args:
        late: Where the ledger is.
        tell: Told the counts of all tools that have any, in one thread.
        failed: Told what the ledger raised.
        every_s: How old a count may be, seconds.
        wait_s: How long a reader waits, seconds.
        now_s: A clock that never goes back, seconds.
    """

    def __init__(
        self,
        late: LateExecutor,
        tell: Callable[[Mapping[str, int]], object],
        *,
        failed: Failed | None = None,
        every_s: float = _EVERY_S,
        wait_s: float = _WAIT_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._late = late
        self._tell = tell
        self._every_s = every_s
        self._wait_s = wait_s
        self._now_s = now_s
        self._worker = Worker("store", most_waiting=1, failed=failed)
        self._answered = threading.Event()
        self._answered.set()
        self._asked_s: float | None = None

    def look(self) -> None:
        """Tell how many there are, where that is not known from just now; waits for the answer."""
        self.ask()
        self._answered.wait(self._wait_s)

    def ask(self) -> None:
        """The same without waiting."""
        if self._is_due():
            self._asked_s = self._now_s()
            self._answered.clear()
            if not self._worker.submit(self._question):
                self._answered.set()

    def close(self) -> None:
        """Ask nothing more."""
        self._worker.close()

    def _is_due(self) -> bool:
        if self._asked_s is None:
            return True
        # A question that was never answered was asked by the parent of this process, say.
        most_s = self._every_s if self._answered.is_set() else _GIVEN_UP_S
        return self._now_s() - self._asked_s >= most_s

    def _question(self) -> None:
        try:
            self._tell(self._late.ready().ledger.unsettled())
        finally:
            self._answered.set()
