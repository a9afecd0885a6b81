"""One flow of steps for sync and async callers.

The executor's logic is written once, as a generator that asks for what may block: a call of the store, a
pause, the body of the tool. A driver grants it in the caller's own way and hands back what came of it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, assert_never

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AskStore:
    """Call the store; async drivers do it in a thread."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RunBody:
    """Call the user's code, in the caller's own thread or task; an awaitable is awaited."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class AwaitFlight:
    """Wait for the call that shares its execution; `TimeoutError` when it takes too long."""

    future: Future[Any]
    timeout_s: float


Step = AskStore | Pause | RunBody | AwaitFlight
Flow = Generator[Step, Any, T]


class _Carried(BaseException):
    """Carries an exception through a generator to which it means something else."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def _advance(flow: Flow[T], answer: Any, failure: BaseException | None) -> Step:
    """Hand a flow what came of its last step.

    Raises:
        StopIteration: It is through.
    """
    if failure is None:
        return flow.send(answer)
    if isinstance(failure, (GeneratorExit, StopIteration)):
        failure = _Carried(failure)
    return flow.throw(failure)


def drive(flow: Flow[T]) -> T:
    """Carry a flow out in this thread.

    Raises:
        TypeError: The user's code gave an awaitable.
    """
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = _advance(flow, answer, failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except _Carried as carried:
            raise carried.error from carried.error.__cause__
        finally:
            answer = failure = None
        try:
            answer = _do(step)
        except BaseException as exc:
            failure = exc


def _do(step: Step) -> Any:
    match step:
        case Pause(seconds):
            time.sleep(seconds)
            return None
        case AwaitFlight(future, timeout_s):
            return future.result(timeout_s)
        case AskStore(work):
            return work()
        case RunBody(work):
            answer = work()
            if inspect.isawaitable(answer):
                if inspect.iscoroutine(answer):
                    answer.close()
                raise TypeError("a coroutine function was given where a plain function is needed")
            return answer
        case _:
            assert_never(step)


async def drive_async(flow: Flow[T], threads: StoreThreads) -> T:
    """Carry a flow out in this task."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        closing = isinstance(failure, GeneratorExit)
        try:
            step = _advance(flow, answer, failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except _Carried as carried:
            raise carried.error from carried.error.__cause__
        finally:
            answer = failure = None
        try:
            # A coroutine that is being closed must not wait for anything any more.
            answer = _do(step) if closing else await _do_async(step, threads)
        except BaseException as exc:
            failure = exc


async def _do_async(step: Step, threads: StoreThreads) -> Any:
    match step:
        case Pause(seconds):
            await asyncio.sleep(seconds)
            return None
        case AwaitFlight(future, timeout_s):
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(asyncio.wrap_future(future))
        case AskStore(work):
            return await threads.call(work)
        case RunBody(work):
            answer = work()
            return await answer if inspect.isawaitable(answer) else answer
        case _:
            assert_never(step)


class StoreThreads:
    """The few threads in which async callers wait for a store.

    They are not the event loop's own: those may all be held by tools that wait for one another. Where no
    thread can be started, at the exit of the interpreter say, the caller does the work: what was done
    must be recorded, and that its event loop stands still for a moment is the smaller harm.
    """

    def __init__(self, *, max_threads: int = 4) -> None:
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def call(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do `work` in a thread; it goes on when the waiting task is cancelled."""
        return _uncancelled(self._submit(work))

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        job = _Job(work)
        try:
            with self._lock:
                if self._pool is None or self._pid != os.getpid():
                    self._pool = ThreadPoolExecutor(self._max_threads, thread_name_prefix="agentguard-store")
                    self._pid = os.getpid()
                self._pool.submit(job.do)
        except RuntimeError:
            job.do()
        return job.outcome

    def renew_lock(self) -> None:
        """After a fork, in the child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let the threads end; a later call starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)


class _Job(Generic[T]):
    """Work that is done once: a pool that can start no thread raises, and may have put it in line all the same."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.outcome: Future[T] = Future()
        self.outcome.set_running_or_notify_cancel()
        self._work = work
        self._taken = threading.Lock()

    def do(self) -> None:
        if not self._taken.acquire(blocking=False):
            return
        try:
            answer = self._work()
        except BaseException as exc:
            self.outcome.set_exception(exc)
        else:
            self.outcome.set_result(answer)


async def _uncancelled(future: Future[T]) -> T:
    return await asyncio.shield(asyncio.wrap_future(future))
