"""Which run the code that is executing belongs to.

A run and the agent that acts travel as one value in the OpenTelemetry context, so that they go
wherever that context is carried: into tasks, `asyncio.to_thread` and frameworks that copy it. Code
outside of every run belongs to an implicit run, found by what is there to tell callers apart.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable
from contextvars import Token
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context

from otel_agentguard.effects.calls import RunEffects
from otel_agentguard.engine import Engine
from otel_agentguard.forks import new_lock
from otel_agentguard.runs import Run
from otel_agentguard.semconv import BAGGAGE_RUN_ID

SCOPE_KEY = context.create_key("agentguard-scope")
IDLE_S = 900.0
MAX_UNRECORDED = 1_000
_SWEEP_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an event happens.

    Attributes:
        run: The run; None where only a flag is set, or while no guard is installed.
        agent: The agent that acts; None means the one that the run began with.
        run_id: Id of the run, known also while no guard is installed.
        explicit: The run was opened with `run()`, whose exit turns `RunStopped` into `RunAborted`.
        unguarded: Calls pass the guard.
        fresh: Calls are not answered from the cache.
        effects: The side effects of the run, while no guard is installed that knows them.
        left: The run that this code began in, where that has ended meanwhile and no other was entered since.
    """

    run: Run | None = None
    agent: str | None = None
    run_id: str | None = None
    explicit: bool = False
    unguarded: bool = False
    fresh: bool = False
    effects: RunEffects | None = None
    left: Run | None = None


NOWHERE = Scope()


def scope(ctx: Context | None = None) -> Scope:
    """The scope that a context carries, the current one where none is given."""
    found = (context.get_current() if ctx is None else ctx).get(SCOPE_KEY)
    return living(found) if isinstance(found, Scope) else NOWHERE


def living(there: Scope) -> Scope:
    """A scope as it is by now: a task that outlives its run is guarded like code outside of every run."""
    run = there.run
    if run is None or not run.closed or run.stopped is not None:
        return there
    return replace(there, run=None, explicit=False, left=run)


def attach(there: Scope) -> Token[Context]:
    """Make a scope the current one; `opentelemetry.context.detach` takes the token back."""
    return context.attach(context.set_value(SCOPE_KEY, there))


def narrowed(
    *, agent: str | None = None, unguarded: bool | None = None, fresh: bool | None = None, run: Run | None = None
) -> Scope:
    """The current scope with some of it replaced."""
    here = scope()
    return replace(
        here,
        run=here.run if run is None else run,
        run_id=here.run_id if run is None else run.run_id,
        agent=here.agent if agent is None else agent,
        unguarded=here.unguarded if unguarded is None else unguarded,
        fresh=here.fresh if fresh is None else fresh,
    )


def within(run: Run, here: Scope, ctx: Context) -> Context:
    """A context whose code belongs to a run, where a scope names none yet."""
    return ctx if here.run is not None else context.set_value(SCOPE_KEY, replace(here, run=run, run_id=run.run_id), ctx)


class ImplicitRuns:
    """The runs of code outside of every `run()`, each dropped after 15 minutes without an event.

    The run of a trace ends with its root span. Nobody hears of the end of a span that is not recorded, so of
    traces of such spans only the latest are known, at most 1,000.

    Thread safe. A run known only by its thread is refused calls but never ended, since the thread
    serves other people next.

    Args:
        engine: Where the runs are opened.
        trust_baggage: Whether a run id that arrives in baggage is believed.
    """

    def __init__(self, engine: Engine, *, trust_baggage: bool = False) -> None:
        self._engine = engine
        self._trust_baggage = trust_baggage
        self._lock = new_lock()
        self._named: dict[tuple[str, str | int], Run] = {}
        self._by_owner: WeakKeyDictionary[asyncio.Task[object] | threading.Thread, Run] = WeakKeyDictionary()
        self._owned: dict[str, Run] = {}
        self._unrecorded: set[int] = set()
        self._swept_s = engine.now_s()

    def current(self, ctx: Context | None = None) -> Run:
        """The implicit run of the code that is executing, or would be in a context.

        Raises:
            RunAborted: The run id that arrived in baggage was stopped.
        """
        if self._trust_baggage and isinstance(arrived := baggage.get_baggage(BAGGAGE_RUN_ID, ctx), str) and arrived:
            return self._run_named("baggage", arrived, lambda: self._engine.open(arrived))
        span = trace.get_current_span(ctx)
        told = span.get_span_context()
        if told.is_valid:
            return self.of_trace(told.trace_id, is_recorded=span.is_recording())
        task = _current_task()
        owner = threading.current_thread() if task is None else task
        with self._lock:
            known = self._live(self._by_owner.get(owner))
            if known is not None and known.stopped is not None and known.run_id not in self._owned:
                known = None
            return known or self._open_for(owner, can_stop=task is not None)

    def lend(self, run: Run) -> None:
        """Let the code of this task or thread belong to a run that an adapter knows, as long as that goes on.

        Another run that is lent later takes its place, so that a thread serves one conversation after the other.
        """
        owner = _current_task() or threading.current_thread()
        with self._lock:
            self._by_owner[owner] = run

    def of_trace(self, trace_id: int, *, is_recorded: bool = True) -> Run:
        """The implicit run of a trace.

        Args:
            trace_id: The trace.
            is_recorded: Whether its spans are recorded, so that `end_trace` will be called.
        """
        run = self._run_named("trace", trace_id, self._engine.open)
        if not is_recorded and trace_id not in self._unrecorded:
            self._note_unrecorded(trace_id)
        return run

    def of_conversation(self, conversation: str, *, trace_id: int | None = None) -> Run:
        """The implicit run of a conversation that an adapter or a span knows.

        Args:
            conversation: Its id.
            trace_id: A trace that is part of it: from here on that is its run too, whoever tells of
                an event. A run that the trace had already becomes the conversation's where that had none.
        """
        by_trace, by_conversation = ("trace", trace_id or 0), ("conversation", conversation)
        known = self._named.get(by_conversation)
        if trace_id is None or (known is not None and known is self._named.get(by_trace)):
            return self._run_named("conversation", conversation, lambda: self._engine.open(conversation=conversation))
        with self._lock:
            run, begun = self._live(known), self._live(self._named.get(by_trace))
            if run is None and begun is not None and begun.info.conversation is None:
                run, begun.info.conversation = begun, conversation
            self._sweep()
            run = run or self._engine.open(conversation=conversation)
            self._named[by_trace] = self._named[by_conversation] = run
            if begun is not None and begun is not run:
                self._named["left", trace_id] = begun
            return run

    def renew(self, stopped: Run) -> Run:
        """A new run in place of a stopped one, which a new user turn has ended.

        It is not stopped, and it remembers where the signatures of the old one stood.
        """
        conversation = stopped.info.conversation
        self._engine.close(stopped)
        with self._lock:
            run = self._engine.open(conversation=conversation, agent=stopped.info.agent)
            run.can_stop = stopped.can_stop
            run.ladder.remember(stopped.ladder)
            for name in [name for name, known in self._named.items() if known is stopped]:
                self._named[name] = run
            if self._owned.pop(stopped.run_id, None) is not None:
                self._owned[run.run_id] = run
            for owner in [owner for owner, known in self._by_owner.items() if known is stopped]:
                self._by_owner[owner] = run
        return run

    def has_trace(self, trace_id: int) -> bool:
        """Whether a trace has a run; asked at the end of every root span, so it takes no lock."""
        return ("trace", trace_id) in self._named

    def end_trace(self, trace_id: int, *, failed: bool) -> None:
        """Drop the run of a trace whose root has ended here; that of a conversation goes on."""
        with self._lock:
            self._unrecorded.discard(trace_id)
            ended = [self._named.pop((by, trace_id), None) for by in ("trace", "left")]
        for run in ended:
            if run is not None and run.info.conversation is None:
                self._engine.close(run, failed=failed)

    def close(self) -> None:
        """Drop all of them."""
        with self._lock:
            runs = [*self._named.values(), *self._owned.values()]
            self._named.clear()
            self._unrecorded.clear()
            self._owned.clear()
            self._by_owner.clear()
        for run in runs:
            self._engine.close(run)

    def _run_named(self, by: str, name: str | int, opened: Callable[[], Run]) -> Run:
        key = (by, name)
        known = self._named.get(key)
        if known is not None and (alive := self._live(known)) is not None:
            return alive
        with self._lock:
            run = self._live(self._named.get(key))
            if run is None:
                self._sweep()
                run = self._named[key] = opened()
            return run

    def _note_unrecorded(self, trace_id: int) -> None:
        """Take the traces for ended in which nothing has happened for longest; some at once, as all are looked at."""
        with self._lock:
            self._unrecorded.add(trace_id)
            if len(self._unrecorded) <= MAX_UNRECORDED:
                return
            ended = heapq.nsmallest(max(1, MAX_UNRECORDED // 10), self._unrecorded, key=self._touched_s)
        for one in ended:
            self.end_trace(one, failed=False)

    def _touched_s(self, trace_id: int) -> float:
        run = self._named.get(("trace", trace_id))
        return 0.0 if run is None else run.touched_s

    def _open_for(self, owner: asyncio.Task[object] | threading.Thread, *, can_stop: bool) -> Run:
        self._sweep()
        run = self._engine.open()
        run.can_stop = can_stop
        self._by_owner[owner] = run
        self._owned[run.run_id] = run
        if isinstance(owner, asyncio.Task):
            owner.add_done_callback(self._task_ended)
        return run

    def _task_ended(self, task: asyncio.Task[object]) -> None:
        run = self._by_owner.pop(task, None)
        if run is not None and self._owned.pop(run.run_id, None) is not None:
            self._engine.close(run)

    def _live(self, run: Run | None) -> Run | None:
        if run is None or run.closed:
            return None
        if run.touched_s < self._engine.now_s() - IDLE_S:
            self._engine.close(run)
            return None
        return run

    def _sweep(self) -> None:
        now = self._engine.now_s()
        if now - self._swept_s < _SWEEP_EVERY_S:
            return
        self._swept_s = now
        for key in [key for key, run in self._named.items() if self._live(run) is None]:
            del self._named[key]
        for run in [run for run in self._owned.values() if self._live(run) is None]:
            del self._owned[run.run_id]


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
