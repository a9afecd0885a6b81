"""Asks a store and never waits for it longer than was said."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from otel_agentguard.errors import StoreError

T = TypeVar("T")

MAX_PENDING = 1_000
_FIRST_REST_S = 1.0
_LONGEST_REST_S = 60.0
_AT_EXIT_S = 1.0

_Job = tuple[Callable[[], object], "Future[object] | None"]


class Patience:
    """One thread that talks to a store, so that callers need not wait for it.

    A question is asked in that thread and given up after `timeout_s`. A store that failed or was late is
    left alone for a second, then for twice as long each time, at most a minute: questions are then not
    asked at all, and what is to be written waits in a bounded queue. A thread that cannot be started counts
    as a failure, and what was to be done is dropped. Thread safe; a forked child has a thread of its own.

    Args:
        failed: Told of every failure, in whatever thread it is noticed; says and counts it.
        timeout_s: How long a question may take, seconds.
        now_s: A clock that only goes forward, seconds.
    """

    def __init__(
        self,
        failed: Callable[[BaseException], object],
        *,
        timeout_s: float = 0.25,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout_s = timeout_s
        self.dropped = 0
        self._failed = failed
        self._now_s = now_s
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._rests_until_s = 0.0
        self._rest_s = _FIRST_REST_S

    @property
    def is_resting(self) -> bool:
        """Whether the store is left alone because it failed."""
        return self._now_s() < self._rests_until_s

    def ask(self, work: Callable[[], T], default: T) -> T:
        """The answer of the store, or `default` where it fails, is late, or is left alone."""
        future = self._put_question(work)
        if future is None:
            return default
        try:
            return future.result(self.timeout_s)
        except TimeoutError:
            self._was_late(future)
        except Exception as exc:
            self._fail(exc)
        return default

    async def ask_async(self, work: Callable[[], T], default: T) -> T:
        """`ask` without blocking the event loop."""
        future = self._put_question(work)
        if future is None:
            return default
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            self._was_late(future)
        except Exception as exc:
            self._fail(exc)
        return default

    def later(self, work: Callable[[], object]) -> bool:
        """Have something done when there is time; False where too much waits already, or nothing is taken any more."""
        if self._put(work, None):
            return True
        with self._lock:
            self.dropped += 1
        return False

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is left to do; False where that took too long."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._jobs and not self._busy, timeout_s)

    def close(self, timeout_s: float = _AT_EXIT_S) -> bool:
        """Take nothing more, and wait until what was taken is done; False where that took too long."""
        atexit.unregister(self.close)
        if self._pid != os.getpid():
            return True
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        return self.flush(timeout_s)

    def _put_question(self, work: Callable[[], T]) -> Future[T] | None:
        future: Future[T] = Future()
        return future if self._put(work, future) else None

    def _put(self, work: Callable[[], T], future: Future[T] | None) -> bool:
        """Put in line; questions, which have a future, ahead of what only needs to be written some time."""
        if self._pid != os.getpid():
            self._begin()
        try:
            with self._lock:
                if self._closed or (self.is_resting if future is not None else len(self._jobs) >= MAX_PENDING):
                    return False
                self._see_to_thread()
                put = self._jobs.append if future is None else self._jobs.appendleft
                put((work, future))  # type: ignore[arg-type]
                self._lock.notify_all()
        except RuntimeError as exc:
            self._fail(StoreError(f"the store is not asked: {exc}"))
            return False
        return True

    def _was_late(self, future: Future[T]) -> None:
        future.cancel()
        self._fail(StoreError(f"the store did not answer within {self.timeout_s:g} s"))

    def _fail(self, exc: BaseException) -> None:
        with self._lock:
            if not self.is_resting:
                self._rests_until_s = self._now_s() + self._rest_s
                self._rest_s = min(self._rest_s * 2, _LONGEST_REST_S)
        self._failed(exc)

    def _see_to_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._work, name="agentguard-store", daemon=True)
            thread.start()
            self._thread = thread
            atexit.unregister(self.close)
            atexit.register(self.close)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            work, future = job
            try:
                self._do(work, future)
            finally:
                with self._lock:
                    self._busy = False
                    self._lock.notify_all()

    def _next(self) -> _Job | None:
        with self._lock:
            while True:
                rest_s = self._rests_until_s - self._now_s()
                if self._jobs and (rest_s <= 0 or self._closed):
                    self._busy = True
                    return self._jobs.popleft()
                if self._closed:
                    return None
                self._lock.wait(rest_s if self._jobs else None)

    def _do(self, work: Callable[[], object], future: Future[object] | None) -> None:
        if future is not None and not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except Exception as exc:
            if future is None:
                self._fail(exc)
            else:
                with suppress(Exception):
                    future.set_exception(exc)
            return
        self._rest_s = _FIRST_REST_S
        if future is not None:
            with suppress(Exception):
                future.set_result(result)
