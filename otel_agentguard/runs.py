"""A run that is alive, what is left of one that was stopped, and what is decided about its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from otel_agentguard.findings import Action, Finding
from otel_agentguard.forks import new_lock
from otel_agentguard.policy import Ladder, Policy
from otel_agentguard.protocols import RunCheck, RunInfo
from otel_agentguard.seen import SeenEvents
from otel_agentguard.values import KeptValues

FindingCallback = Callable[[Finding, Action], "Action | Awaitable[Action | None] | None"]
ApprovalCallback = Callable[["ApprovalRequest"], "bool | float | Awaitable[bool | float]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What a person is asked before an attended run is stopped.

    The answer is False to stop it, or True to let it go on. A number says how much more a budget that ran
    out allows, as a share of what it allowed at first: True is 1.0, as much again; 0.5 is half as much more.

    Attributes:
        run_id: The run.
        finding: Why it would be stopped.
    """

    run_id: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Decision:
    """What a seam is to do.

    Attributes:
        action: The highest action that was found.
        finding: The finding that decided; None when nothing was found.
        findings: What is new at this step, most specific first.
        notes: Texts for the model, from findings at the ladder's hint step and above.
    """

    action: Action
    finding: Finding | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


PASS = Decision(Action.ALLOW)


@dataclass(slots=True)
class Tombstone:
    """What is left of a stopped run.

    Attributes:
        run_id: The run.
        conversation: Its conversation, where one was known.
        finding: Why it was stopped.
        event: The outside event that it served.
        ladder: Where its signatures stood.
    """

    run_id: str
    conversation: str | None
    finding: Finding
    event: str | None
    ladder: Ladder


class Run:
    """The state of one run that is alive; owned by the engine, dropped as a whole.

    Attributes:
        info: What checks and sinks may know.
        parent: The run that this one is a child of.
        step: Number of the latest event.
        stopped: Why the run must end; None while it may go on.
        awaits_user: Why the conversation was stopped earlier; only a new user turn lifts that.
        served_event: The outside event that the latest turn served.
        can_stop: False for a run known only by its thread: it is refused calls, but never ended.
        attended: Whether a person can be asked.
        findings: The latest findings.
        seen: What was told of it lately, so that what several sides report counts once.
        entries: How often `run()` has entered it and not left it yet.
        touched_s: When something last happened in it, on the clock of the engine.
    """

    __slots__ = (
        "__weakref__",
        "attended",
        "awaits_user",
        "can_stop",
        "checks",
        "closed",
        "entries",
        "findings",
        "info",
        "ladder",
        "lock",
        "parent",
        "pending_notes",
        "seen",
        "served_event",
        "step",
        "stopped",
        "touched_s",
        "values",
    )

    def __init__(
        self,
        info: RunInfo,
        checks: Sequence[tuple[str, RunCheck]],
        values: KeptValues,
        *,
        parent: Run | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.info = info
        self.checks = checks
        self.values = values
        self.parent = parent
        self.lock = new_lock()
        self.ladder = Ladder(policy)
        self.step = 0
        self.stopped: Finding | None = None
        self.awaits_user: Finding | None = None
        self.served_event = info.event
        self.can_stop = True
        self.attended = info.settings.attended
        self.closed = False
        self.entries = 0
        self.touched_s = 0.0
        self.findings: deque[Finding] = deque(maxlen=64)
        self.pending_notes: deque[str] = deque(maxlen=16)
        self.seen = SeenEvents()

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.info.run_id

    def stop_reason(self) -> Finding | None:
        """Why this run must end: its own stop or that of a run above it."""
        run: Run | None = self
        while run is not None:
            if run.stopped is not None:
                return run.stopped
            run = run.parent
        return None

    def drain_notes(self) -> list[str]:
        """Notes that no seam has delivered, oldest first; each is given out once."""
        with self.lock:
            notes = list(self.pending_notes)
            self.pending_notes.clear()
        return notes
