"""The engine: events in, findings and actions out, and the runs that must stop.

It knows no framework, no store and no OpenTelemetry. Seams ask `before` and tell `after`; the span
processor and the readers, which come too late to prevent anything, use `observe`.

One call goes through three stages: the checks judge it under the run's lock; callbacks of the
application are asked outside of it; the outcome is settled under the lock again.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar, cast
from uuid import uuid4

from otel_agentguard.config import Settings
from otel_agentguard.errors import RunAborted
from otel_agentguard.events import Event, Outcome, ToolCall, ToolSpec, Trigger, Turn
from otel_agentguard.findings import Action, Finding, by_specificity
from otel_agentguard.forks import new_lock
from otel_agentguard.policy import Policy, severity_of
from otel_agentguard.protocols import Check, Clock, RunInfo, Sink
from otel_agentguard.runs import PASS, ApprovalCallback, ApprovalRequest, Decision, FindingCallback, Run, Tombstone
from otel_agentguard.values import ByteBudget, KeptValues

_logger = logging.getLogger("otel_agentguard")

MAX_RUNS = 20_000
MAX_TOMBSTONES = 10_000
_TIMED_EVERY = 16
_CALLBACK_TIMEOUT_S = 30.0

_T = TypeVar("_T")


class Engine:
    """Runs the checks and remembers which runs must stop.

    Thread safe. Nothing it calls can break the application: what a check, sink or callback raises is
    logged once, counted, and taken as silence.

    Args:
        checks: What judges the runs.
        settings: The settings of runs that have none of their own.
        sinks: Who is told of what happens.
        now_s: The clock.
        on_finding: Asked about each new finding and what would be done.
        approve: Asked before an attended run is stopped.
        policy: Makes actions of findings; the ladder of the settings where it is None.
        enforces: Whether any seam may refuse. Where none may, a run that was stopped can be entered again.
    """

    def __init__(
        self,
        *,
        checks: Sequence[Check],
        settings: Settings | None = None,
        sinks: Sequence[Sink] = (),
        now_s: Clock = time.time,
        on_finding: FindingCallback | None = None,
        approve: ApprovalCallback | None = None,
        policy: Policy | None = None,
        enforces: bool = True,
        budget: ByteBudget | None = None,
    ) -> None:
        self._policy = policy
        self._enforces = enforces
        self.settings = settings or Settings()
        self.now_s = now_s
        self.checks = tuple(checks)
        self._sinks = tuple(sinks)
        self._on_finding = on_finding
        self._approve = approve
        self._lock = new_lock()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._tombstones: OrderedDict[str, Tombstone] = OrderedDict()
        self._by_conversation: dict[str | None, Tombstone] = {}
        self._budget = budget or ByteBudget()
        self._failed_once: set[str] = set()
        self._told_of_eviction = False
        self._timings: deque[tuple[str, float]] = deque(maxlen=256)

    def open(
        self,
        run_id: str | None = None,
        *,
        agent: str = "agent",
        conversation: str | None = None,
        event: str | None = None,
        tools: Mapping[str, ToolSpec] | None = None,
        tools_complete: bool = True,
        parent: Run | None = None,
        settings: Settings | None = None,
        attended: bool | None = None,
    ) -> Run:
        """Start a run, or join the one of this id that is alive.

        Args:
            run_id: Its id; a new one is made when it is None.
            agent: The agent that it begins with.
            conversation: The conversation that it belongs to.
            event: The outside event that it serves.
            tools: What is known of its tools.
            tools_complete: Whether these are all the tools there are, so that a call of another one is wrong.
            parent: The run that it is a child of: that one's stop stops it too.
            settings: Settings of this run alone.
            attended: Whether a person can be asked; the settings say where it is None.

        Raises:
            RunAborted: This run id was stopped, and not released since.
        """
        with self._lock:
            own = None
            if run_id is not None:
                if (own := self._tombstones.get(run_id)) is not None and self._enforces:
                    raise RunAborted(own.finding, run_id=run_id)
                if (alive := self._runs.get(run_id)) is not None:
                    return alive
            grave = own or self._by_conversation.get(conversation)
            info = RunInfo(
                run_id=run_id or uuid4().hex,
                agent=agent,
                settings=settings or self.settings,
                conversation=conversation,
                event=event,
                parent=None if parent is None else parent.run_id,
                opened_s=self.now_s(),
                tools=dict(tools or {}),
                tools_complete=bool(tools) and tools_complete,
            )
            opened = [(check.name, self._contained(f"check {check.name}", check.open, info)) for check in self.checks]
            checks = [(name, check) for name, check in opened if check is not None]
            run = Run(info, checks, KeptValues(self._budget), parent=parent, policy=self._policy)
            if attended is not None:
                run.attended = attended
            stop = None
            if grave is not None:
                run.ladder.remember(grave.ladder)
                if grave is own or event in (None, grave.event):
                    stop = grave.finding
            run.awaits_user = stop if self._enforces else None
            run.touched_s = self.now_s()
            evicted = self._make_room()
            self._runs[info.run_id] = run
        self._finish_evicted(evicted)
        self.tell("run_opened", info)
        if stop is not None and not self._enforces:
            self.tell("found", info, stop, "observe")
        return run

    def close(self, run: Run, *, failed: bool = False) -> None:
        """End a run and drop its state; a stopped one leaves its tombstone. Closing twice is once."""
        with self._lock:
            if run.closed:
                return
            if self._runs.get(run.run_id) is run:
                del self._runs[run.run_id]
        self._finish(run, "failed" if failed else "completed")

    def find(self, run_id: str) -> Run | None:
        """The run of this id that is alive."""
        return self._runs.get(run_id)

    def has_check(self, name: str) -> bool:
        """Whether a check of this name judges the runs."""
        return any(check.name == name for check in self.checks)

    def runs(self) -> list[Run]:
        """The runs that are alive, oldest first."""
        with self._lock:
            return list(self._runs.values())

    def held_bytes(self, check: str) -> int:
        """What a check that tells it (`held_bytes`) remembers of all runs that are alive, bytes."""
        return sum(getattr(one, "held_bytes", 0) for run in self.runs() for name, one in run.checks if name == check)

    def tombstones(self) -> list[Tombstone]:
        """What is left of stopped runs, oldest first."""
        with self._lock:
            return list(self._tombstones.values())

    def grave(self, run_id: str | None, conversation: str | None = None) -> Tombstone | None:
        """What is left of a stopped run, else of the latest one of a conversation."""
        with self._lock:
            found = None if run_id is None else self._tombstones.get(run_id)
            return found or (None if conversation is None else self._by_conversation.get(conversation))

    def restore(self, grave: Tombstone) -> None:
        """Know of a run that was stopped in another process as if it had been stopped here."""
        with self._lock:
            self._keep(grave)

    def release(self, run_id: str) -> bool:
        """Lift the stop of a run, alive or ended.

        Returns:
            Whether there was one.
        """
        with self._lock:
            grave = self._tombstones.pop(run_id, None)
            if grave is not None and self._by_conversation.get(grave.conversation) is grave:
                del self._by_conversation[grave.conversation]
            lifted = grave is not None
            run = self._runs.get(run_id)
        if run is not None:
            with run.lock:
                lifted = lifted or run.stopped is not None
                run.stopped = None
                run.awaits_user = None
        return lifted

    def stop(self, run: Run, finding: Finding) -> None:
        """Mark a run: no seam of it lets anything through from here on."""
        with run.lock:
            self._mark(run, finding)

    def before(
        self, run: Run, event: Event, *, enforce: bool = True, numbered: Callable[[Event], object] | None = None
    ) -> Decision:
        """Number an event and judge it before it happens.

        Args:
            run: The run that it belongs to.
            event: A tool call, model call, message or handoff; gets its step.
            enforce: False only tells what would be done.
            numbered: Called once the event has its step, before anybody hears of a finding.

        Returns:
            What to do. From `BLOCK` on the event must not happen; the engine has counted the attempt.
        """
        weighed = self._weigh_before(run, event, enforce=enforce)
        if numbered is not None:
            numbered(event)
        if weighed is None:
            return PASS
        if isinstance(weighed, Decision):
            return weighed
        return self._settle(run, event, self._consult(run, weighed), enforce=enforce, upcoming=True)

    async def before_async(
        self, run: Run, event: Event, *, enforce: bool = True, numbered: Callable[[Event], object] | None = None
    ) -> Decision:
        """`before`, awaiting the callbacks."""
        weighed = self._weigh_before(run, event, enforce=enforce)
        if numbered is not None:
            numbered(event)
        if weighed is None:
            return PASS
        if isinstance(weighed, Decision):
            return weighed
        asked = await self._consult_async(run, weighed)
        return self._settle(run, event, asked, enforce=enforce, upcoming=True)

    def after(self, run: Run, event: Event, *, enforce: bool = True) -> Decision:
        """Take in an event that has happened; of one that was interrupted nobody is asked.

        Returns:
            `STOP` where the run must end now; `HINT` where the model is to be told something.
        """
        if event.refused:
            self._ran_anyway(event)
        weighed = self._weigh_after(run, event)
        if weighed is None:
            return PASS
        interrupted = getattr(event, "outcome", None) is Outcome.UNKNOWN
        asked = weighed if interrupted else self._consult(run, weighed)
        return self._settle(run, event, asked, enforce=enforce, upcoming=False)

    async def after_async(self, run: Run, event: Event, *, enforce: bool = True) -> Decision:
        """`after`, awaiting the callbacks."""
        if event.refused:
            self._ran_anyway(event)
        weighed = self._weigh_after(run, event)
        if weighed is None:
            return PASS
        asked = await self._consult_async(run, weighed)
        return self._settle(run, event, asked, enforce=enforce, upcoming=False)

    def withdraw(self, run: Run, event: Event) -> None:
        """Take in that an event which was judged is not going to happen after all; nobody is asked anything."""
        self._weigh_after(run, event)

    def observe(self, run: Run, event: Event, *, enforce: bool = False) -> Decision:
        """Judge an event that is over: nothing of it can be prevented.

        Args:
            run: The run that it belongs to.
            event: Any event, complete.
            enforce: Whether a stop marks the run, so that its next seam raises.

        Returns:
            What would have been done.
        """
        weighed = self._weigh_before(run, event, enforce=False)
        upcoming = weighed if isinstance(weighed, list) else []
        first = self._settle(run, event, self._consult(run, upcoming), enforce=enforce, upcoming=True, over=True)
        past = self._weigh_after(run, event) or []
        second = self._settle(run, event, self._consult(run, past), enforce=enforce, upcoming=False, over=True)
        if first is PASS and second is PASS:
            return PASS
        decided = max((first, second), key=lambda decision: decision.action)
        findings = tuple(sorted((*first.findings, *second.findings), key=by_specificity))
        return Decision(decided.action, decided.finding, findings, first.notes + second.notes)

    def tell(self, what: str, *args: object) -> None:
        """Call a method of every sink that has it; what it raises is counted."""
        for sink in self._sinks:
            try:
                if (method := getattr(sink, what, None)) is not None:
                    method(*args)
            except Exception as exc:
                self.failed(f"sink {type(sink).__name__}", exc)

    def failed(self, where: str, exc: BaseException) -> None:
        """Count a contained failure of the guard itself, and log the first one of each place."""
        if where not in self._failed_once and len(self._failed_once) < 1000:
            self._failed_once.add(where)
            _logger.error("agentguard: %s failed; the application goes on without it", where, exc_info=exc)
        for sink in self._sinks:
            try:
                sink.failed(where)
            except Exception:
                _logger.debug("a sink failed while it was told of a failure", exc_info=True)

    def _weigh_before(self, run: Run, event: Event, *, enforce: bool) -> list[_Judged] | Decision | None:
        with run.lock:
            run.step += 1
            event.step = run.step
            if enforce and run.can_stop:
                reason = run.stop_reason()
                if reason is not None:
                    event.refused = True
                    return Decision(Action.STOP, reason)
            if run.awaits_user is not None and enforce and not isinstance(event, Turn):
                self._mark(run, run.awaits_user)
                event.refused = True
                return Decision(Action.STOP, run.stopped)
            return self._ask(run, event, upcoming=True)

    def _weigh_after(self, run: Run, event: Event) -> list[_Judged] | None:
        with run.lock:
            if isinstance(event, Turn):
                event.new_intent = _opens_intent(run, event)
                if event.new_intent:
                    run.awaits_user = None
            judged = self._ask(run, event, upcoming=False)
        if event.repeats and isinstance(event, ToolCall):
            self._take_result(run, event)
        run.touched_s = self.now_s()
        for sink in self._sinks:
            try:
                sink.stepped(run.info, event)
            except Exception as exc:
                self.failed(f"sink {type(sink).__name__}", exc)
        if self._timings:
            self._tell_timings()
        return judged

    def _tell_timings(self) -> None:
        """Tell what was timed; another thread may take the last one at the same moment."""
        with suppress(IndexError):
            while True:
                self.tell("timed", *self._timings.popleft())

    def _ask(self, run: Run, event: Event, *, upcoming: bool) -> list[_Judged] | None:
        judged: list[_Judged] | None = None
        timed = event.step % _TIMED_EVERY == 0
        for name, check in run.checks:
            try:
                ask = check.before if upcoming else check.after
                found = self._timed(name, ask, event) if timed else ask(event)
                if found:
                    new = [_Judged(*run.ladder.judge(f, run.info.progress, upcoming=upcoming)) for f in found]
                    judged = new if judged is None else judged + new
            except Exception as exc:
                self.failed(f"check {name}", exc)
        return judged

    def _timed(self, name: str, ask: Callable[[Event], Sequence[Finding]], event: Event) -> Sequence[Finding]:
        began = time.perf_counter()
        found = ask(event)
        self._timings.append((name, time.perf_counter() - began))
        return found

    def _ran_anyway(self, event: Event) -> None:
        event.refused = False
        if isinstance(event, ToolCall):
            self.tell("executed_after_block", event.agent, event.tool)

    def _take_result(self, run: Run, call: ToolCall) -> None:
        """Keep a copy for refusals before the caller has the result.

        Not under the run's lock: a class may say how it is copied, and so call a tool of the run.
        """
        if call.fingerprint is not None and call.result_known and not call.refused:
            self._contained("values", run.values.put, call.fingerprint, call.result)

    def _consult(self, run: Run, judged: list[_Judged]) -> list[_Judged]:
        if self._on_finding is None and self._approve is None:
            return judged
        flow = self._consulting(run, judged)
        answer: object = None
        while True:
            try:
                where, awaited = flow.send(answer)
            except StopIteration as end:
                return cast("list[_Judged]", end.value)
            answer = self._contained(where, _wait_for, awaited)

    async def _consult_async(self, run: Run, judged: list[_Judged]) -> list[_Judged]:
        if self._on_finding is None and self._approve is None:
            return judged
        flow = self._consulting(run, judged)
        answer: object = None
        while True:
            try:
                where, awaited = flow.send(answer)
            except StopIteration as end:
                return cast("list[_Judged]", end.value)
            try:
                answer = await awaited
            except Exception as exc:
                self.failed(where, exc)
                answer = None

    def _consulting(
        self, run: Run, judged: list[_Judged]
    ) -> Generator[tuple[str, Awaitable[object]], object, list[_Judged]]:
        """Ask the callbacks; what they give to be awaited is yielded, and its result sent back."""
        asked = []
        for one in judged:
            if self._on_finding is not None and one.new:
                answer: object = self._contained("on_finding", self._on_finding, one.finding, one.finding.action)
                if inspect.isawaitable(answer):
                    answer = yield "on_finding", answer
                one = self._answered(run, one, answer)
            approval = self._ask_person(run, one)
            if inspect.isawaitable(approval):
                approval = yield "approve", approval
            asked.append(self._approved(run, one, approval))
        return asked

    def _answered(self, run: Run, one: _Judged, answer: object) -> _Judged:
        if answer is None:
            return one
        if not isinstance(answer, Action):
            self.failed("on_finding", TypeError(f"on_finding returned {answer!r}; it returns an Action or None"))
            return one
        with run.lock:
            run.ladder.answer(one.finding, answer)
        return _Judged(replace(one.finding, action=answer), one.new)

    def _ask_person(self, run: Run, one: _Judged) -> object:
        if one.finding.action is not Action.STOP or self._approve is None or not run.attended:
            return None
        return self._contained("approve", self._approve, ApprovalRequest(run_id=run.run_id, finding=one.finding))

    def _approved(self, run: Run, one: _Judged, answer: object) -> _Judged:
        if not answer:
            return one
        if not isinstance(answer, int | float) or not 0 < answer < float("inf"):
            self.failed("approve", TypeError(f"approve returned {answer!r}; it returns a bool, or how much more"))
            return one
        finding = one.finding
        with run.lock:
            run.ladder.forgive(finding)
            for name, check in run.checks:
                if name == finding.check and (approved := getattr(check, "approved", None)) is not None:
                    finding = self._contained(f"check {name}", approved, finding, float(answer)) or finding
        return _Judged(replace(finding, action=Action.HINT, severity=severity_of(Action.HINT)), one.new)

    def _settle(
        self, run: Run, event: Event, judged: list[_Judged], *, enforce: bool, upcoming: bool, over: bool = False
    ) -> Decision:
        """Do what was decided of an event; of one that is over only a stop can still be done."""
        if not judged:
            return PASS
        decided = max(judged, key=lambda one: one.finding.action).finding
        action = decided.action
        if not run.can_stop and action is Action.STOP:
            action = Action.BLOCK
        fresh = sorted((one.finding for one in judged if one.new), key=by_specificity)
        with run.lock:
            run.findings.extend(fresh)
            if enforce and action is Action.STOP:
                self._mark(run, decided)
            refused = enforce and upcoming and action >= Action.BLOCK and not over
            if refused:
                event.refused = True
        if refused:
            if isinstance(event, ToolCall):
                event.outcome = Outcome.NOT_EXECUTED
                event.served_from = "guard"
            self._weigh_after(run, event)
        for finding in fresh:
            acted = enforce and (not over or (finding.action is Action.STOP and run.can_stop))
            self.tell("found", run.info, finding, "enforce" if acted else "observe")
        notes = tuple(one.message for one in fresh if one.message and one.action >= Action.HINT)
        return Decision(action, decided, tuple(fresh), notes)

    def _mark(self, run: Run, finding: Finding) -> None:
        if run.stopped is None:
            run.stopped = finding

    def _make_room(self) -> list[Run]:
        """Take out the runs that nothing has happened in for longest; one that somebody is inside of only as the last.

        Some go at once, since looking for them means looking at all.
        """
        if len(self._runs) < MAX_RUNS:
            return []
        left = [run for run in self._runs.values() if not run.entries]
        many = max(1, MAX_RUNS // 100) if left else 1
        evicted = heapq.nsmallest(many, left or self._runs.values(), key=lambda run: run.touched_s)
        for run in evicted:
            del self._runs[run.run_id]
        return evicted

    def _finish_evicted(self, evicted: Sequence[Run]) -> None:
        if not evicted:
            return
        if not self._told_of_eviction:
            self._told_of_eviction = True
            _logger.warning("agentguard: %d runs are alive at once; those that were idle longest are dropped", MAX_RUNS)
        self.tell("dropped", "runs", len(evicted))
        for run in evicted:
            self._finish(run, "failed")

    def _finish(self, run: Run, outcome: str) -> None:
        with run.lock:
            if run.closed:
                return
            run.closed = True
            run.stopped = run.stopped or run.awaits_user
            if run.stopped is not None:
                outcome = "stopped_by_guard"
                self._bury(run, run.stopped)
            run.values.clear()
            run.checks = ()
        self.tell("run_closed", run.info, outcome, run.step)

    def _bury(self, run: Run, finding: Finding) -> None:
        grave = Tombstone(run.run_id, run.info.conversation, finding, run.info.event, run.ladder)
        with self._lock:
            self._keep(grave)

    def _keep(self, grave: Tombstone) -> None:
        self._tombstones[grave.run_id] = grave
        if grave.conversation is not None:
            self._by_conversation[grave.conversation] = grave
        while len(self._tombstones) > MAX_TOMBSTONES:
            _, oldest = self._tombstones.popitem(last=False)
            if self._by_conversation.get(oldest.conversation) is oldest:
                del self._by_conversation[oldest.conversation]

    def _contained(self, where: str, call: Callable[..., _T], *args: object) -> _T | None:
        try:
            return call(*args)
        except Exception as exc:
            self.failed(where, exc)
            return None


@dataclass(slots=True)
class _Judged:
    finding: Finding
    new: bool


_NEW_INTENT = frozenset({Trigger.USER, Trigger.TIMER, Trigger.CRON, Trigger.HEARTBEAT})


def _opens_intent(run: Run, turn: Turn) -> bool:
    if turn.replay:
        return False
    if turn.event is not None:
        known = turn.event == run.served_event
        run.served_event = turn.event
        return not known
    return turn.trigger in _NEW_INTENT


def _wait_for(answer: Awaitable[_T]) -> _T:
    """Run an async callback from a sync seam; its own thread, as the caller's may have a loop."""

    async def bounded() -> _T:
        return await asyncio.wait_for(answer, _CALLBACK_TIMEOUT_S)

    with ThreadPoolExecutor(1, thread_name_prefix="agentguard-callback") as pool:
        return pool.submit(asyncio.run, bounded()).result()
