"""Replays a recorded run through the engine: what the guard would have seen, and what it would have done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otel_agentguard.config import Settings
from otel_agentguard.engine import Engine
from otel_agentguard.events import Event, Handoff, Message, ModelCall, ToolCall
from otel_agentguard.findings import Action, Finding, Severity, by_specificity
from otel_agentguard.protocols import Check
from otel_agentguard.readers.runlog import RecordedRun
from otel_agentguard.runs import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the guard makes of a recorded run.

    Attributes:
        id: What the record calls the run.
        steps: How many events it has.
        findings: What was found, by step, the most specific first within one; the action of each is
            what the guard would have done.
        first_step: Step of the first finding of severity `warn` or above; None where there is none.
        stopped_at: First step that would have been refused; None where none would.
        redundant_steps: Tool calls that repeat an earlier identical call with no change in between.
        duplicate_effect_steps: State-changing calls made again with nothing to justify it.
        wasted_calls: Redundant tool calls whose body ran.
        wasted_tokens: Tokens of the model calls that led to nothing but those, or that repeat an
            earlier model call; None where the record has no tokens.
    """

    id: str
    steps: int
    findings: tuple[Finding, ...]
    first_step: int | None
    stopped_at: int | None
    redundant_steps: tuple[int, ...]
    duplicate_effect_steps: tuple[int, ...]
    wasted_calls: int
    wasted_tokens: int | None

    @property
    def has_warning(self) -> bool:
        """Whether a finding of severity `warn` or above is among them."""
        return self.first_step is not None


class Replayer:
    """Replays runs one after the other, each as if it were the only one.

    Args:
        checks: What judges the events.
        settings: Limits and the like.
        on_failure: Told where the guard itself failed, such as `check loop`; it goes on without that.
    """

    def __init__(
        self, checks: Sequence[Check], settings: Settings, *, on_failure: Callable[[str], None] | None = None
    ) -> None:
        self._checks = checks
        self._settings = settings
        self._on_failure = on_failure
        self._logged: set[str] = set()

    def replay(self, record: RecordedRun) -> Replay:
        """Take one run through the engine, to its end, whatever would have been refused on the way."""
        clock = _RecordedClock()
        clock.advance(next((event.at_s for event in record.events if event.at_s is not None), None))
        engine = _CountingEngine(self._checks, self._settings, clock, self._on_failure, self._logged)
        run = engine.open(record.id, tools=record.tools)
        findings: list[Finding] = []
        refusals = _Refusals()
        for event in record.events:
            clock.advance(event.at_s)
            upcoming = engine.before(run, event, enforce=False)
            past = engine.after(run, event, enforce=False)
            refusals.note(event, upcoming, past)
            findings += sorted((*upcoming.findings, *past.findings), key=by_specificity)
        engine.close(run)
        calls = [event for event in record.events if isinstance(event, ToolCall)]
        redundant = [event for event in calls if event.redundant]
        return Replay(
            id=record.id,
            steps=len(record.events),
            findings=tuple(findings),
            first_step=min((f.step for f in findings if f.severity is not Severity.INFO), default=None),
            stopped_at=refusals.first,
            redundant_steps=tuple(event.step for event in redundant),
            duplicate_effect_steps=tuple(event.step for event in calls if event.again),
            wasted_calls=sum(event.served_from is None for event in redundant),
            wasted_tokens=_wasted_tokens(record.events),
        )


class _CountingEngine(Engine):
    """An engine without sinks that tells a callback of its failures, and logs each place once a scan."""

    def __init__(
        self,
        checks: Sequence[Check],
        settings: Settings,
        now_s: Callable[[], float],
        on_failure: Callable[[str], None] | None,
        logged: set[str],
    ) -> None:
        super().__init__(checks=checks, settings=settings, now_s=now_s)
        self._on_failure = on_failure
        self._failed_once = logged

    def failed(self, where: str, exc: BaseException) -> None:
        super().failed(where, exc)
        if self._on_failure is not None:
            self._on_failure(where)


class _RecordedClock:
    """The time of the record; it stands still where that is silent, and never goes back."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def advance(self, at_s: float | None) -> None:
        if at_s is not None:
            self._now_s = max(self._now_s, at_s)


class _Refusals:
    """Which step would have been the first to be refused.

    A refused call, and every seam after a stop: that of the next tool, model, message or handoff.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._stopped = False

    def note(self, event: Event, upcoming: Decision, past: Decision) -> None:
        if self.first is not None:
            return
        at_seam = isinstance(event, ToolCall | ModelCall | Message | Handoff)
        if upcoming.action >= Action.BLOCK or (self._stopped and at_seam):
            self.first = event.step
        self._stopped = self._stopped or past.action is Action.STOP


def _wasted_tokens(events: Sequence[Event]) -> int | None:
    """Tokens of model calls that repeat, or that drew only redundant tool calls before the next one."""
    known = False
    wasted = 0
    request: ModelCall | None = None
    drew: list[bool] = []

    def settled() -> int:
        if request is None or not (request.repeats > 0 or (drew and all(drew))):
            return 0
        return _tokens(request)

    for event in events:
        if isinstance(event, ModelCall):
            wasted += settled()
            known = known or event.input_tokens is not None or event.output_tokens is not None
            request, drew = event, []
        elif isinstance(event, ToolCall):
            drew.append(event.redundant)
    wasted += settled()
    return wasted if known else None


def _tokens(call: ModelCall) -> int:
    return (call.input_tokens or 0) + (call.output_tokens or 0)
