"""Work that must not be done where it comes up: a thread that takes it later, a breaker for what keeps failing."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

_LINGER_S = 30.0

Job = Callable[[], None]
Failed = Callable[[str, BaseException], None]


@runtime_checkable
class WorksLater(Protocol):
    """A part of the guard that works out of band, and hands texts to something that may be outside of the process.

    Attributes:
        redact: Applied to every text before it is handed over.
    """

    redact: Callable[[str], str] | None

    def tell_failures_to(self, failed: Failed) -> None:
        """Have its failures counted."""
        ...

    def close(self) -> None:
        """Begin nothing more."""
        ...


class Worker:
    """One thread that works off jobs in their order; it is started by the first one and ends when it has idled.

    Args:
        name: Name of the thread.
        most_waiting: Jobs that may wait; further ones are not taken.
        failed: Told what a job raised, with `name`; None lets it go.
    """

    def __init__(self, name: str, *, most_waiting: int = 32, failed: Failed | None = None) -> None:
        self._name = name
        self._most_waiting = most_waiting
        self.failed = failed
        self._thread: threading.Thread | None = None
        self._jobs: deque[Job] = deque()
        self._reset()

    def submit(self, job: Job) -> bool:
        """Have a job done later.

        Returns:
            False where too many are waiting, the worker is closed, or no thread can be started; the job is
            dropped then.
        """
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if self._closed or len(self._jobs) >= self._most_waiting or not self._has_thread():
                return False
            self._jobs.append(job)
            self._changed.notify_all()
            return True

    def idle(self, timeout_s: float = 10.0) -> bool:
        """Wait until every job is done; whether that came about in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Drop what waits, and give what is under way a moment to end."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _reset(self) -> None:
        """Begin anew: at first, and in a child process, which has the locks of its parent but not the thread."""
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._jobs = deque()
        self._thread = None
        self._busy = False
        self._closed = False

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=f"agentguard-{self._name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception as exc:
                if self.failed is not None:
                    self.failed(self._name, exc)

    def _next(self) -> Job | None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._jobs or self._closed, _LINGER_S)
            if self._closed or not self._jobs:
                self._thread = None
                return None
            self._busy = True
            return self._jobs.popleft()


class Breaker:
    """Leaves alone for a while what has failed several times in a row.

    Args:
        failures: Failures in a row that open it.
        pause_s: For how long, seconds; twice as long each time that the next attempt fails too.
        longest_s: Longest pause, seconds.
        now_s: A clock that never goes back, seconds.
    """

    def __init__(
        self,
        *,
        failures: int = 3,
        pause_s: float = 60.0,
        longest_s: float = 900.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = failures
        self._first_pause_s = pause_s
        self._longest_s = longest_s
        self._now_s = now_s
        self._failures = 0
        self._pause_s = pause_s
        self._until_s: float | None = None

    def allows(self) -> bool:
        """Whether an attempt may be made now."""
        return self._until_s is None or self._now_s() >= self._until_s

    def succeeded(self) -> None:
        """An attempt went well: everything is as at first."""
        self._failures = 0
        self._pause_s = self._first_pause_s
        self._until_s = None

    def failed(self) -> None:
        """An attempt failed."""
        self._failures += 1
        if self._failures >= self._most:
            self._until_s = self._now_s() + self._pause_s
            self._pause_s = min(2 * self._pause_s, self._longest_s)
