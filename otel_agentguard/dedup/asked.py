"""One call that has no earlier answer: it executes alone, ahead of equal ones, or takes the answer of one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from otel_agentguard.copies import Kept, is_handle, keep, keep_error
from otel_agentguard.dedup.cache import NOT_FOUND_S, AnswerCache, Entry, can_be_kept
from otel_agentguard.dedup.flight import Flight, Outcome, outcome_of
from otel_agentguard.dedup.generations import Generations
from otel_agentguard.dedup.resources import Resources, Seen
from otel_agentguard.dedup.rules import Answer, Rule, Source
from otel_agentguard.events import ToolCall
from otel_agentguard.protocols import Clock

T = TypeVar("T")

CallKey = tuple[bytes, str]
"""Fingerprint of a call, and the working directory, which is empty for a pure one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all calls of a process share.

    Attributes:
        generations: What has been written when.
        resources: Looks at files.
        now_s: Wall clock, seconds since the epoch.
        tell: Calls a method that a sink may have.
        failed: Told where a part of the guard failed.
    """

    generations: Generations
    resources: Resources
    now_s: Clock
    tell: Callable[..., object]
    failed: Callable[[str, BaseException], object]

    def fail(self, exc: BaseException) -> None:
        """Tell of a contained failure."""
        self.failed("dedup", exc)


@dataclass(slots=True, eq=False)
class Known:
    """What is known of one run.

    Attributes:
        cache: Its answers.
        compacted: Step of its latest compaction, 0 for none.
    """

    cache: AnswerCache
    compacted: int = 0


class Asked:
    """One call on its way to an answer.

    Attributes:
        keeps: Whether anything says how long an answer to it is true.
        missed: Why there was no earlier answer.
    """

    __slots__ = ("_cache", "_call", "_fresh", "_key", "_parts", "_rule", "keeps", "missed")

    def __init__(
        self,
        parts: Parts,
        known: Known,
        call: ToolCall,
        rule: Rule,
        key: CallKey,
        *,
        keeps: bool,
        fresh: bool,
        missed: Source,
    ) -> None:
        self._parts = parts
        self._cache = known.cache
        self._call = call
        self._rule = rule
        self._key = key
        self._fresh = fresh
        self.keeps = keeps
        self.missed = missed

    def board(self) -> tuple[Flight | None, bool]:
        """Lead an execution, or join the one that is going on.

        Returns:
            None where the call must execute by itself; else the execution, and whether it is ours to lead.
        """
        parts, flights = self._parts, self._cache.flights
        try:
            began = parts.generations.now
            touches = None if self._rule.pure else self._call.touches
            reads = parts.resources.look(touches, self._key[1]) if touches else ()
            if reads is None:
                self.missed = Source.UNCACHEABLE
                return None, False
            new = Flight(began, reads)
            if self._fresh:
                flights.replace(self._key, new)
                return new, True
            there = flights.board(self._key, new)
            if there is new:
                return new, True
            if there.is_led_here():
                return None, False
            if self._is_as_at_start(there, reads):
                return there, False
            flights.replace(self._key, new)
            return new, True
        except Exception as exc:
            parts.fail(exc)
            return None, False

    def execute(self, flight: Flight, body: Callable[[], T]) -> T:
        """Run the body, keep what it returned, and give it to those who joined."""
        flight.lead()
        made_s, started = self._parts.now_s(), time.perf_counter()
        try:
            value = body()
        except BaseException as exc:
            self._raised(flight, exc, made_s, time.perf_counter() - started)
            raise
        self._returned(flight, value, made_s, time.perf_counter() - started)
        return value

    async def execute_async(self, flight: Flight, body: Callable[[], Awaitable[T]]) -> T:
        """`execute` for a coroutine."""
        flight.lead()
        made_s, started = self._parts.now_s(), time.perf_counter()
        try:
            value = await body()
        except BaseException as exc:
            self._raised(flight, exc, made_s, time.perf_counter() - started)
            raise
        self._returned(flight, value, made_s, time.perf_counter() - started)
        return value

    def share(self, outcome: Outcome) -> Answer[Any]:
        """The outcome of the execution that this call joined; raises its error."""
        self._call.served_from = "cache"
        self.tell(Source.COALESCED)
        if outcome.error is not None:
            raise keep_error(outcome.error) or outcome.error
        return Answer(None if outcome.value is None else outcome.value.give())

    def tell(self, source: Source) -> None:
        """Count what became of the call; one that nothing says how long to keep is counted only where it shared."""
        if self.keeps or source is Source.COALESCED:
            self._parts.tell("dedup", self._rule.tool, source.value)

    def _is_as_at_start(self, flight: Flight, reads: Sequence[Seen]) -> bool:
        """Whether what an execution may have read already is what a new one would read."""
        if self._rule.pure:
            return True
        if not self._is_unwritten(flight):
            return False
        return [(seen.stamp, seen.young) for seen in reads] == [(seen.stamp, seen.young) for seen in flight.reads]

    def _is_unwritten(self, flight: Flight) -> bool:
        """Whether no call that the guard saw wrote what is read since the execution began."""
        generations = self._parts.generations
        if not flight.reads:
            return generations.now == flight.began
        return generations.unchanged(flight.began, [seen.key for seen in flight.reads])

    def _is_stable(self, flight: Flight) -> bool:
        """Whether what is read is as it was when the execution began."""
        return self._rule.pure or (self._is_unwritten(flight) and self._parts.resources.same(flight.reads))

    def _returned(self, flight: Flight, value: object, made_s: float, took_s: float) -> None:
        if not self.keeps and not self._cache.flights.leave(self._key, flight):
            flight.step_down()
            return
        kept: Kept | None = None
        stable = False
        try:
            stable = self._is_stable(flight)
            if self.keeps:
                kept = keep(value)
                if kept is None or not (stable and self._put(flight, kept, None, made_s, took_s)):
                    self.missed = Source.UNCACHEABLE
            self._cache.flights.leave(self._key, flight)
            if kept is None and flight.joined and not is_handle(value):
                kept = keep(value)
        except Exception as exc:
            self._parts.fail(exc)
        finally:
            self._cache.flights.leave(self._key, flight)
            flight.land(outcome_of(kept, None, stable=stable))
        self.tell(self.missed)

    def _raised(self, flight: Flight, error: BaseException, made_s: float, took_s: float) -> None:
        stable = False
        try:
            stable = self._is_stable(flight)
            if stable and self.keeps and isinstance(error, Exception) and is_not_found(error):
                copied = keep_error(error)
                if copied is not None:
                    self._put(flight, None, copied, made_s, took_s)
        except Exception as exc:
            self._parts.fail(exc)
        finally:
            self._cache.flights.leave(self._key, flight)
            flight.land(outcome_of(None, error, stable=stable))
        self.tell(self.missed)

    def _put(self, flight: Flight, value: Kept | None, error: Exception | None, made_s: float, took_s: float) -> bool:
        reads = tuple(flight.reads) or None
        if not self._rule.pure and not can_be_kept(reads, self._parts.generations, flight.began):
            return False
        ttl_s = self._rule.ttl_s
        if error is not None:
            ttl_s = NOT_FOUND_S if ttl_s is None else min(ttl_s, NOT_FOUND_S)
        entry = Entry(
            value=value,
            error=error,
            step=self._call.step,
            took_s=took_s,
            began=flight.began,
            made_s=made_s,
            expires_s=None if ttl_s is None else made_s + ttl_s,
            reads=reads,
            pure=self._rule.pure,
        )
        return self._cache.put(self._key, entry)


def is_not_found(error: BaseException) -> bool:
    """Whether an error says that what was asked for does not exist: a missing file, or HTTP status 404 or 410."""
    if isinstance(error, FileNotFoundError):
        return True
    response = getattr(error, "response", None)
    return any(getattr(one, "status_code", None) in (404, 410) for one in (error, response) if one is not None)
