"""Equal calls at the same time: one executes, the others take its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import Enum, auto

from otel_agentguard.copies import Kept, keep_error
from otel_agentguard.dedup.resources import Seen
from otel_agentguard.dedup.rules import NotKept
from otel_agentguard.forks import new_lock

MAX_WAIT_S = 60.0

_leading: ContextVar[tuple[int, ...]] = ContextVar("agentguard_leading", default=())


class Landing(Enum):
    """How a flight ended for those who joined it."""

    SHARED = auto()
    """Its outcome is theirs."""
    ABANDONED = auto()
    """Its leader was interrupted, or what it read was written meanwhile: one of them is to lead again."""
    NOT_SHARED = auto()
    """Its outcome is nothing that several can have: each executes for itself."""


@dataclass(slots=True)
class Outcome:
    """What the leader came to.

    Attributes:
        landing: What that means for the others.
        value: The answer, where it returned.
        error: A copy of the error, where it raised.
    """

    landing: Landing
    value: Kept | None = None
    error: Exception | None = None


_ABANDONED = Outcome(Landing.ABANDONED)
_NOT_SHARED = Outcome(Landing.NOT_SHARED)


class Flight:
    """One execution that equal calls may share.

    Attributes:
        began: Where the counter of writes stood when it began.
        reads: The state of what it reads, as it was then.
        joined: How many wait for it.
    """

    __slots__ = ("_future", "_leader", "_token", "began", "joined", "reads")

    def __init__(self, began: int, reads: Sequence[Seen]) -> None:
        self.began = began
        self.reads = reads
        self.joined = 0
        self._future: Future[Outcome] | None = None
        self._leader = threading.get_ident()
        self._token: Token[tuple[int, ...]] | None = None

    def join(self) -> None:
        """One more waits for it; called under the lock that it is found under, so that it cannot land meanwhile."""
        self.joined += 1
        if self._future is None:
            self._future = Future()

    def lead(self) -> None:
        """Note that this context executes it, so that a call inside of it does not wait for itself."""
        self._token = _leading.set((*_leading.get(), id(self)))

    def is_led_here(self) -> bool:
        """Whether this code runs inside the execution."""
        return id(self) in _leading.get()

    def would_block_loop(self) -> bool:
        """Whether waiting in this thread would keep an event loop from running, on which the leader may need it."""
        if threading.get_ident() == self._leader:
            return True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    def step_down(self) -> None:
        """This context executes it no more."""
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _leading.reset(token)
        except ValueError:  # it ends in another context, whose own value is right
            return

    def land(self, outcome: Outcome) -> None:
        """Give the outcome to those who joined, when nobody can join any more. The first one counts."""
        self.step_down()
        if self._future is not None and not self._future.done():
            self._future.set_result(outcome)

    def wait(self, timeout_s: float) -> Outcome:
        """Wait for the outcome in a thread."""
        if self._future is None:
            return _NOT_SHARED
        try:
            return self._future.result(timeout_s)
        except FutureTimeoutError:
            return _NOT_SHARED

    async def wait_async(self, timeout_s: float) -> Outcome:
        """Wait for the outcome in a coroutine."""
        if self._future is None:
            return _NOT_SHARED
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(asyncio.wrap_future(self._future))
        except TimeoutError:
            return _NOT_SHARED


class Flights:
    """The executions of one run that are going on; thread safe."""

    __slots__ = ("_flights", "_lock")

    def __init__(self) -> None:
        self._lock = new_lock()
        self._flights: dict[Hashable, Flight] = {}

    def board(self, key: Hashable, new: Flight) -> Flight:
        """Lead `new`, where no equal call is going on, else join that one."""
        with self._lock:
            there = self._flights.get(key)
            if there is None:
                self._flights[key] = new
                return new
            there.join()
            return there

    def replace(self, key: Hashable, new: Flight) -> None:
        """Let those who come from here on join `new` instead."""
        with self._lock:
            self._flights[key] = new

    def leave(self, key: Hashable, flight: Flight) -> bool:
        """Nobody joins it any more; whether anybody has."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
            return flight.joined > 0

    def forget(self) -> None:
        """Nobody joins any of them any more: in a forked child those of the parent never land."""
        self._flights = {}


def outcome_of(value: Kept | None, error: BaseException | None, *, stable: bool) -> Outcome:
    """What those who joined get.

    Args:
        value: The answer, where it could be kept.
        error: What was raised, if anything.
        stable: Nothing that was read was written meanwhile.
    """
    if not stable or (error is not None and not isinstance(error, Exception)):
        return _ABANDONED
    if error is not None:
        copied = None if isinstance(error, NotKept) else keep_error(error)
        return _NOT_SHARED if copied is None else Outcome(Landing.SHARED, error=copied)
    return _NOT_SHARED if value is None else Outcome(Landing.SHARED, value=value)
