"""The parts of dedup as one object, which a guard holds and which hears of everything as a sink."""

from __future__ import annotations

import time
from collections.abc import Callable

from otel_agentguard.config import Settings
from otel_agentguard.dedup.answers import Answers
from otel_agentguard.dedup.hints import hints
from otel_agentguard.dedup.journal import Journals
from otel_agentguard.dedup.marks import StopMarks
from otel_agentguard.dedup.past import AudienceOf, Past, Redact
from otel_agentguard.dedup.patience import Patience
from otel_agentguard.dedup.resources import Resources
from otel_agentguard.events import Event
from otel_agentguard.findings import Action, Finding
from otel_agentguard.protocols import Clock, RunInfo, Sink, Store
from otel_agentguard.values import ByteBudget


class Dedup(Sink):
    """Answers calls from what is known, and remembers what was read; a `Sink`.

    Args:
        answers: The cached answers.
        journals: What each run has read and repeated.
        past: What earlier sessions left; None without a store that outlives the process.
        marks: Stops that outlive the process; None likewise.
        stop_of: Why a run was stopped, by its id; None where it was not.
        failed: Told where a part of the guard failed.
        is_on: See below.

    Attributes:
        is_on: Whether calls are answered and remembered; else only visits and stops are.
        answers: As above.
        journals: As above.
        past: As above.
        marks: As above.
    """

    def __init__(
        self,
        answers: Answers,
        journals: Journals,
        *,
        past: Past | None = None,
        marks: StopMarks | None = None,
        stop_of: Callable[[str], Finding | None] | None = None,
        failed: Callable[[str, BaseException], object] | None = None,
        is_on: bool = True,
    ) -> None:
        self.is_on = is_on
        self.answers = answers
        self.journals = journals
        self.past = past
        self.marks = marks
        self._stop_of = stop_of
        self._failed = failed

    def hints(self, run: RunInfo, *, max_chars: int = 2000) -> str:
        """What the model of a run should know before its next turn; see `hints`."""
        try:
            return hints(self.journals, run.run_id, max_chars=max_chars)
        except Exception as exc:
            self._fail(exc)
            return ""

    def visit(self, run: RunInfo, name: str, *, purpose: str | None = None, summary: str | None = None) -> None:
        """The agent of a run says why it read something, and what it found."""
        try:
            is_news = self.journals.visit(run, name, purpose=purpose, summary=summary)
            if self.past is not None:
                self.past.visit(run, name, purpose=purpose, summary=summary, count=int(is_news))
        except Exception as exc:
            self._fail(exc)

    def stepped(self, run: RunInfo, event: Event) -> None:
        """See `Sink`."""
        if not self.is_on:
            return
        self.answers.stepped(run, event)
        self.journals.stepped(run, event)
        if self.past is not None:
            self.past.stepped(run, event)

    def run_closed(self, run: RunInfo, outcome: str, steps: int) -> None:
        """See `Sink`."""
        self.answers.forget(run.run_id)
        self.journals.forget(run.run_id)
        if self.past is not None:
            self.past.forget(run.run_id)
        if self.marks is not None and self._stop_of is not None and outcome == "stopped_by_guard":
            finding = self._stop_of(run.run_id)
            if finding is not None:
                self.marks.stopped(run, finding)

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        """See `Sink`. A stop is marked at once, for the case that the process does not live to the run's end."""
        if self.marks is not None and mode == "enforce" and finding.action is Action.STOP:
            self.marks.stopped(run, finding)

    def close(self) -> None:
        """Write what is left; waits a second at most."""
        if self.past is not None:
            self.past.close()

    def _fail(self, exc: BaseException) -> None:
        if self._failed is not None:
            self._failed("dedup", exc)


def make_dedup(
    settings: Settings,
    *,
    store: Store | None = None,
    key: bytes | None = None,
    tell: Callable[..., object] | None = None,
    failed: Callable[[str, BaseException], object] | None = None,
    redact: Redact | None = None,
    audience_of: AudienceOf | None = None,
    stop_of: Callable[[str], Finding | None] | None = None,
    resources: Resources | None = None,
    timeout_s: float = 0.25,
    now_s: Clock = time.time,
    budget: ByteBudget | None = None,
    is_on: bool = True,
) -> Dedup:
    """Put the parts together.

    Args:
        settings: The settings of the guard.
        store: Notes that outlive the process, as a `LateStore` where it may be down; None for none.
        key: Secret of the digests in the store; the store's own where it is None.
        tell: Calls a method that a sink may have.
        failed: Told where a part of the guard failed.
        redact: Applied to every text of content before it is stored.
        audience_of: Who may see what a run leaves; sessions of one namespace where it is None.
        stop_of: Why a run was stopped, by its id.
        resources: Looks at files and other resources.
        timeout_s: How long a call may wait for the store, seconds.
        now_s: Wall clock, seconds since the epoch.
        budget: What all runs may keep together; one of its own where it is None.
        is_on: Whether calls are answered and remembered, as the dedup check asks for.
    """
    looking = resources or Resources()
    answers = Answers(now_s=now_s, resources=looking, tell=tell, failed=failed, budget=budget)
    journals = Journals(looking)
    if store is None:
        return Dedup(answers, journals, failed=failed, is_on=is_on)

    def store_failed(exc: BaseException) -> None:
        if failed is not None:
            failed("store", exc)

    patience = Patience(store_failed, timeout_s=timeout_s)
    past = Past(
        store,
        patience,
        key=key,
        now_s=now_s,
        store_content=settings.store_content,
        redact=redact,
        audience_of=audience_of,
        failed=failed,
    )
    marks = StopMarks(store, patience, namespace=settings.namespace, now_s=now_s)
    return Dedup(answers, journals, past=past, marks=marks, stop_of=stop_of, failed=failed, is_on=is_on)
