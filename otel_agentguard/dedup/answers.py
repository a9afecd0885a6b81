"""Answers calls of pure and reading tools from what the run knows already, where that is still true."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from otel_agentguard import words
from otel_agentguard.copies import keep_error
from otel_agentguard.dedup.asked import Asked, Known, Parts
from otel_agentguard.dedup.asking import asks_fresh
from otel_agentguard.dedup.cache import AnswerCache, working_directory
from otel_agentguard.dedup.flight import MAX_WAIT_S, Landing
from otel_agentguard.dedup.generations import Generations
from otel_agentguard.dedup.resources import Resources
from otel_agentguard.dedup.rules import Answer, Rule, Source
from otel_agentguard.dedup.writes import Writes
from otel_agentguard.events import Compaction, Event, ToolCall
from otel_agentguard.forks import in_child, new_lock
from otel_agentguard.protocols import Clock, RunInfo
from otel_agentguard.values import RUN_BYTES, ByteBudget

T = TypeVar("T")

_MAX_RUNS = 20_000
_TRIES = 3
_MISS: Final = Source.MISS


class Answers:
    """The answers of all runs of a process. Thread safe.

    It must hear of every event that is over (`stepped`), since what a call wrote makes answers untrue in
    every run. Whatever fails in here is told to `failed`, and the body runs.

    Args:
        now_s: Wall clock, seconds since the epoch.
        resources: Looks at files and other resources; where it is None, at files.
        tell: Calls a method that a sink may have: `dedup(tool, outcome)`, `saved(calls, seconds)`.
        failed: Told where a part of the guard failed.
        max_run_bytes: Most that one run may keep.
        budget: What all runs may keep together, refusals' earlier results too; one of their own where it is None.
        max_wait_s: How long an equal call waits for the one that executes, before it executes too, seconds.
    """

    def __init__(
        self,
        *,
        now_s: Clock = time.time,
        resources: Resources | None = None,
        tell: Callable[..., object] | None = None,
        failed: Callable[[str, BaseException], object] | None = None,
        max_run_bytes: int = RUN_BYTES,
        budget: ByteBudget | None = None,
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        self.budget = budget or ByteBudget()
        self._parts = Parts(
            generations=Generations(),
            resources=resources or Resources(),
            now_s=now_s,
            tell=tell or _nobody,
            failed=failed or _nobody,
        )
        self._writes = Writes(self._parts.generations, self._parts.resources)
        self._max_run_bytes = max_run_bytes
        self._max_wait_s = max_wait_s
        self._runs: OrderedDict[str, Known] = OrderedDict()
        self._lock = new_lock()
        in_child(self._forget_flights)

    @property
    def resources(self) -> Resources:
        """Looks at files and other resources."""
        return self._parts.resources

    def answer(
        self, run: RunInfo, call: ToolCall, rule: Rule, body: Callable[[], T], *, fresh: bool = False
    ) -> Answer[T]:
        """Answer a call, by its body or in its place.

        Sets `call.served_from` where the body did not run. Blocks while an equal call executes, but never
        in a thread that runs an event loop.

        Args:
            run: The run that it belongs to.
            call: The call, with its step.
            rule: What may be done with answers of its tool.
            body: Runs the tool.
            fresh: The caller wants no earlier answer.

        Raises:
            BaseException: What the body raised, now or (that something does not exist) a moment ago.
        """
        asked = self._find(run, call, rule, fresh=fresh)
        if asked is None:
            return Answer(body())
        if isinstance(asked, Answer):
            return asked
        for _ in range(_TRIES):
            flight, leads = asked.board()
            if flight is None:
                break
            if leads:
                return Answer(asked.execute(flight, body))
            if flight.would_block_loop():
                break
            outcome = flight.wait(self._max_wait_s)
            if outcome.landing is Landing.SHARED:
                return asked.share(outcome)
            if outcome.landing is Landing.NOT_SHARED:
                break
        asked.tell(asked.missed)
        return Answer(body())

    async def answer_async(
        self, run: RunInfo, call: ToolCall, rule: Rule, body: Callable[[], Awaitable[T]], *, fresh: bool = False
    ) -> Answer[T]:
        """`answer` for a coroutine: it waits without blocking, and a cancelled one lets others lead."""
        asked = self._find(run, call, rule, fresh=fresh)
        if asked is None:
            return Answer(await body())
        if isinstance(asked, Answer):
            return asked
        for _ in range(_TRIES):
            flight, leads = asked.board()
            if flight is None:
                break
            if leads:
                return Answer(await asked.execute_async(flight, body))
            outcome = await flight.wait_async(self._max_wait_s)
            if outcome.landing is Landing.SHARED:
                return asked.share(outcome)
            if outcome.landing is Landing.NOT_SHARED:
                break
        asked.tell(asked.missed)
        return Answer(await body())

    def began(self, run: RunInfo, call: ToolCall) -> None:
        """The body of a call is about to run; to be told of every call that `answer` does not see.

        What it may write makes answers untrue from now on; `stepped` ends it.
        """
        try:
            self._writes.began(call, dry=run.settings.loop.dry_commands)
        except Exception as exc:
            self._parts.fail(exc)

    def stepped(self, run: RunInfo, event: Event) -> None:
        """An event is over. See `Sink`."""
        if isinstance(event, ToolCall):
            self._writes.ended(event, dry=run.settings.loop.dry_commands)
        elif isinstance(event, Compaction) and (known := self._runs.get(run.run_id)) is not None:
            known.compacted = event.step

    def forget(self, run_id: str) -> None:
        """The run is over: drop its answers."""
        known = self._runs.pop(run_id, None)
        if known is not None:
            known.cache.clear()

    def _find(self, run: RunInfo, call: ToolCall, rule: Rule, *, fresh: bool) -> Answer[Any] | Asked | None:
        """An earlier answer, else what can get one; None where the call has no identity.

        Raises:
            Exception: The earlier answer is that something does not exist.
        """
        if call.fingerprint is None:
            return None
        keeps = rule.pure or bool(call.touches) or rule.ttl_s is not None
        folder = "" if rule.pure or not keeps else working_directory()
        if folder is None:
            return None
        key = call.fingerprint, folder
        known = self._runs.get(run.run_id) or self._open(run.run_id)
        fresh = fresh or asks_fresh(call.arguments)
        entry, missed = None, _MISS
        value: Any = None
        try:
            if keeps and not fresh:
                entry, missed = known.cache.find(key)
            if entry is not None and entry.value is not None:
                value = entry.value.give()
        except Exception as exc:
            self._parts.fail(exc)
            entry = None
        if entry is None:
            return Asked(self._parts, known, call, rule, key, keeps=keeps, fresh=fresh, missed=missed)
        call.served_from = "cache"
        self._parts.tell("dedup", rule.tool, Source.HIT.value)
        self._parts.tell("saved", 0, entry.took_s)
        if entry.error is not None:
            raise keep_error(entry.error) or entry.error
        # Where the model has lost that step to a compaction, the answer is whole and points nowhere.
        return Answer(value, "" if entry.step <= known.compacted else words.served_again(entry.step))

    def _forget_flights(self) -> None:
        for known in self._runs.values():
            known.cache.flights.forget()

    def _open(self, run_id: str) -> Known:
        with self._lock:
            known = self._runs.get(run_id)
            if known is None:
                cache = AnswerCache(
                    generations=self._parts.generations,
                    resources=self._parts.resources,
                    budget=self.budget,
                    now_s=self._parts.now_s,
                    max_bytes=self._max_run_bytes,
                )
                while len(self._runs) >= _MAX_RUNS:
                    self._runs.popitem(last=False)[1].cache.clear()
                known = self._runs[run_id] = Known(cache)
            return known


def _nobody(*_: object) -> None:
    """Nobody listens."""
