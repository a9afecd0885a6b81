"""For tests, ours and users': a clock that is moved by hand, a sink that remembers, events made quickly."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_agentguard.events import Effect, Event, Outcome, ToolCall
from otel_agentguard.findings import Action, Finding, Kind
from otel_agentguard.fingerprint import call_digest, result_digest
from otel_agentguard.policy import severity_of
from otel_agentguard.protocols import RunInfo


class ManualClock:
    """A `Clock` that stands still until it is moved.

    Args:
        now_s: What it shows first, seconds since the epoch.
    """

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """What it shows."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move it forward."""
        self.now_s += seconds


@dataclass(slots=True)
class RecordingSink:
    """A `Sink` that remembers everything it was told; thread safe.

    Attributes:
        opened: Ids of the runs that were opened.
        events: Events that are over, by order of their end.
        findings: Findings, each with the mode that it was found in.
        closed: Runs that ended: id, outcome and number of steps.
        failures: Where parts of the guard failed.
        executed_after: Tools whose body ran although it was refused.
        passed: Tools whose calls passed the guard.
    """

    opened: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    findings: list[tuple[Finding, str]] = field(default_factory=list)
    closed: list[tuple[str, str, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    executed_after: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def run_opened(self, run: RunInfo) -> None:
        """See `Sink`."""
        with self._lock:
            self.opened.append(run.run_id)

    def stepped(self, run: RunInfo, event: Event) -> None:
        """See `Sink`."""
        with self._lock:
            self.events.append(event)

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        """See `Sink`."""
        with self._lock:
            self.findings.append((finding, mode))

    def run_closed(self, run: RunInfo, outcome: str, steps: int) -> None:
        """See `Sink`."""
        with self._lock:
            self.closed.append((run.run_id, outcome, steps))

    def failed(self, where: str) -> None:
        """See `Sink`."""
        with self._lock:
            self.failures.append(where)

    def executed_after_block(self, agent: str, tool: str) -> None:
        """See `Sink`."""
        with self._lock:
            self.executed_after.append(tool)

    def unguarded(self, tool: str) -> None:
        """A call passed the guard."""
        with self._lock:
            self.passed.append(tool)

    def timed(self, check: str, seconds: float) -> None:
        """See `Sink`."""


def tool_call(
    tool: str = "read_file",
    arguments: Mapping[str, object] | None = None,
    result: object = None,
    *,
    agent: str = "agent",
    step: int = 0,
    effect: Effect = Effect.UNKNOWN,
    outcome: Outcome = Outcome.OK,
    at_s: float | None = None,
) -> ToolCall:
    """A tool call that is over, with the digests that a seam would give it.

    Args:
        tool: Name of the tool.
        arguments: Its arguments by name; None for none.
        result: What it returned, or the text of its error.
        agent: Who called it.
        step: Its number; 0 leaves that to the engine.
        effect: What it does to the world.
        outcome: How it ended.
        at_s: When it began and ended, seconds.
    """
    given = dict(arguments or {})
    return ToolCall(
        agent=agent,
        step=step,
        at_s=at_s,
        ended_s=at_s,
        tool=tool,
        fingerprint=call_digest(tool, given),
        arguments=given,
        effect=effect,
        outcome=outcome,
        result=result,
        result_digest=result_digest(outcome is not Outcome.OK, result),
    )


def finding(
    *,
    check: str = "loop",
    kind: Kind = Kind.LOOP,
    step: int = 1,
    action: Action = Action.HINT,
    explanation: str = "made by a test",
) -> Finding:
    """A finding as a check makes it, with a signature for each check and kind.

    Args:
        check: Name of the check.
        kind: What was found.
        step: Where, and its evidence.
        action: What is to be done.
        explanation: What people are told.
    """
    return Finding(
        check=check,
        kind=kind,
        severity=severity_of(action),
        step=step,
        signature=f"{check} {kind}".encode(),
        message="",
        explanation=explanation,
        action=action,
        evidence=(step,),
        count=1,
    )
