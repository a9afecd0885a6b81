"""Every extension point, on one page.

Third parties register a `Check`, `Sink` or `Store` under the entry points `otel_agentguard_checks`,
`otel_agentguard_sinks` and `otel_agentguard_stores`; our own use the same door.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from otel_agentguard.config import Settings
from otel_agentguard.events import Event, ToolSpec
from otel_agentguard.findings import Finding
from otel_agentguard.notes import LoggedCall, StopMark, Visit


@dataclass(slots=True, kw_only=True, eq=False)
class RunInfo:
    """What checks and sinks may know of a run.

    Attributes:
        run_id: Identifies the run, unique for ever.
        agent: The agent that it began with.
        conversation: The conversation that it belongs to, where one is known.
        event: The outside event that it serves, where one was given.
        parent: Id of the run that it is a child of.
        opened_s: When it was opened, on the clock of the engine; None where nobody said.
        settings: The settings of this run.
        tools: What is known of its tools; filled as they are declared.
        tools_complete: Whether `tools` are all there are, so that a call of another one is wrong.
        plan_drift: How far the run has strayed from its plan, 0 to 1; the plan check writes it.
        progress: How often the run learned something new; the loop check counts, the ladder decays by it.
    """

    run_id: str
    agent: str
    settings: Settings
    conversation: str | None = None
    event: str | None = None
    parent: str | None = None
    opened_s: float | None = None
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    tools_complete: bool = False
    plan_drift: float | None = None
    progress: int = 0


class RunCheck(Protocol):
    """One check in one run; all its state of that run lives here and is dropped with the run."""

    def before(self, event: Event) -> Sequence[Finding]:
        """Judge a tool call, model call, message or handoff that has not happened.

        Called under the run's lock, from the thread of the caller: no I/O, no callback, no waiting.
        A finding whose action is at least `BLOCK` keeps the body from running.
        """
        ...

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in an event that has happened, tool calls with their result.

        Called under the run's lock. Refused events come too, marked `refused`: an attempt, no result.
        """
        ...


class ApprovableCheck(RunCheck, Protocol):
    """A check in one run that takes part when a person lets the run go on after a stop of its own."""

    def approved(self, finding: Finding, share: float) -> Finding:
        """A person said yes to this finding, which would have stopped the run.

        Called under the run's lock.

        Args:
            finding: A finding of this check.
            share: How much more is allowed, as a share of what was allowed at first; a plain yes is 1.

        Returns:
            The finding as it is reported in place of the stop.
        """
        ...


class Check(Protocol):
    """Makes the state of one check for each run.

    Attributes:
        name: Closed set for ours (`CheckName`); labels metrics and findings.
    """

    @property
    def name(self) -> str:
        """Labels metrics and findings."""
        ...

    def open(self, run: RunInfo) -> RunCheck | None:
        """Make the state of one run, None where nothing in it is to be checked; called once, before its first event."""
        ...


class Sink(Protocol):
    """Carries what happened out of the guard; a class below this one says only what it cares for.

    Called outside the run's lock, from the thread of the caller. A sink must not block for long; what
    it raises is counted and swallowed.
    """

    def run_opened(self, run: RunInfo) -> None:
        """A run begins."""
        return

    def stepped(self, run: RunInfo, event: Event) -> None:
        """An event is over; its marks are set."""
        return

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        """A finding that is new on the ladder; `mode` is `enforce` or `observe`."""
        return

    def run_closed(self, run: RunInfo, outcome: str, steps: int) -> None:
        """The run is over: `completed`, `failed` or `stopped_by_guard`."""
        return

    def failed(self, where: str) -> None:
        """A part of the guard failed and was contained."""
        return

    def executed_after_block(self, agent: str, tool: str) -> None:
        """A body ran although its seam was told to refuse it."""
        return

    def timed(self, check: str, seconds: float) -> None:
        """How long one step of one check took; a sample, not every step."""
        return


@dataclass(slots=True, kw_only=True, eq=False)
class EndedSpan:
    """A span that is over, as a decoder sees it: live or from a recorded trace.

    Attributes:
        name: Its name.
        attributes: Its attributes as they were recorded.
        started_ns: Start, nanoseconds since the epoch.
        ended_ns: End, nanoseconds since the epoch.
        failed: Its status is an error.
        error: Text of the error, where it was recorded.
        max_value_chars: Length at which text values were cut; None for no limit.
    """

    name: str
    attributes: Mapping[str, object]
    started_ns: int = 0
    ended_ns: int = 0
    failed: bool = False
    error: str | None = None
    max_value_chars: int | None = None


class Decoder(Protocol):
    """Reads spans of one vocabulary; pure, and must accept any attributes.

    Attributes:
        name: Name of the vocabulary.
        markers: Attributes of which every span of the vocabulary that matters carries one.
    """

    @property
    def name(self) -> str:
        """Name of the vocabulary."""
        ...

    @property
    def markers(self) -> tuple[str, ...]:
        """Attributes of which every span that matters carries one."""
        ...

    def decode(self, span: EndedSpan) -> Event | None:
        """The event that the span tells of; None where it tells of none.

        `agent` is empty where the span does not name one. A tool call has no fingerprint yet, because
        that depends on settings of its run.
        """
        ...

    def agent(self, name: str, attributes: Mapping[str, object]) -> str | None:
        """The agent that acts in spans below the one of this name; None where it does not say."""
        ...

    def conversation(self, attributes: Mapping[str, object]) -> str | None:
        """The conversation that the span belongs to; None where it does not say."""
        ...


class Embedder(Protocol):
    """Tells the meaning of texts as vectors."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float] | None]:
        """One vector for each text, all of one length; None for a text whose vector is not known yet.

        Called under the run's lock for short texts, from any thread, so it must answer within a millisecond
        and must not wait. What takes longer answers None, finds the vector in a thread of its own, and gives
        it when the text is asked for again.
        """
        ...


class LateEmbedder(Embedder, Protocol):
    """An embedder that takes longer than it may be waited for."""

    def prepare(self, texts: Sequence[str]) -> None:
        """Take in texts that will be asked for soon, such as the arguments of a call that is about to run.

        Called under the run's lock, like `embed`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What happened at one step, as a judge reads it: shortened, and redacted where the guard redacts.

    Attributes:
        step: The step.
        agent: Who acted.
        what: The kind of event, with the name of the tool or of the receiver.
        said: Arguments of a call, or the text of a message.
        answered: Result of a call; empty for a message.
    """

    step: int
    agent: str
    what: str
    said: str
    answered: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What a judge is asked: whether a part of a run goes round in circles.

    Attributes:
        run_id: The run.
        finding: What made the guard suspicious; `evidence` names the steps.
        excerpts: The steps from the first of those on, the latest ones where there are many.
    """

    run_id: str
    finding: Finding
    excerpts: tuple[Excerpt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says.

    Attributes:
        loop: Whether the run goes round in circles.
        confidence: How sure the judge is, 0 to 1.
        reason: Why, in a sentence for people. It never reaches the model of the run: what was judged may have
            talked the judge into it.
    """

    loop: bool
    confidence: float = 1.0
    reason: str = ""


class Judge(Protocol):
    """Takes a second look at what the cheap layers suspect."""

    def judge(self, question: Suspicion) -> Verdict:
        """Say whether the suspicion holds.

        Called from one thread of the guard, outside of every lock; it may take its time and should have
        a time limit of its own, since the next question waits for it. What it raises is counted, and
        after some failures in a row it is left alone for a while.
        """
        ...


class Store(Protocol):
    """Keeps what one session leaves for later ones.

    Thread safe, and safe to open from several processes. Every method may block and may raise
    `StoreError`; callers that must not wait ask it through `Patience`. What an audience left is shown to
    that audience only. Beyond its limits the least recently used goes; visits and calls older than the
    retention are not shown and go in time.
    """

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        ...

    def secret(self) -> bytes:
        """A random key of 32 bytes, made when first asked for, the same for everybody who opens the store."""
        ...

    def record(self, visits: Sequence[Visit], calls: Sequence[LoggedCall]) -> None:
        """Keep visits and calls.

        What is known of a resource or call is replaced; counts add up, the first time stays, and None
        replaces nothing but versions, results and excerpts.
        """
        ...

    def visits(self, audience: str, *, resources: Sequence[str] | None = None, limit: int = 100) -> Sequence[Visit]:
        """What was read, the latest first.

        Args:
            audience: Digest of the audience.
            resources: Only these; None for all.
            limit: Most that are given.
        """
        ...

    def calls(
        self,
        audience: str,
        *,
        call: str | None = None,
        resource: str | None = None,
        tool: str | None = None,
        limit: int = 100,
    ) -> Sequence[LoggedCall]:
        """What was called, the latest first.

        Args:
            audience: Digest of the audience.
            call: Only this call.
            resource: Only calls that touched this.
            tool: Only calls of this tool.
            limit: Most that are given.

        Raises:
            ValueError: Not exactly one of `call`, `resource` and `tool` is given.
        """
        ...

    def put_stop(self, mark: StopMark) -> None:
        """Keep the mark of a stopped run; an earlier one of the same run is replaced."""
        ...

    def find_stop(
        self, namespace: str, *, run_id: str | None = None, conversation: str | None = None
    ) -> StopMark | None:
        """The mark of a run, else the latest one of a conversation; None where neither is marked."""
        ...

    def stops(self, namespace: str, *, limit: int = 100) -> Sequence[StopMark]:
        """The marks of an application, the latest first."""
        ...

    def release_stop(self, namespace: str, run_id: str) -> bool:
        """Take the mark of a run away.

        Returns:
            Whether there was one.
        """
        ...

    def gc(self, older_than_s: float) -> int:
        """Drop visits, calls and marks that are older than so many seconds.

        Returns:
            How many went.
        """
        ...

    def close(self) -> None:
        """Let go of connections; the next use opens them again."""
        ...


def lacking(part: object, protocol: type) -> list[str]:
    """The methods of a protocol that an object does not have; for a class, of which no object was made, all of them."""
    wanted = [name for name, member in vars(protocol).items() if inspect.isfunction(member) and name[0] != "_"]
    return [name for name in wanted if isinstance(part, type) or not callable(getattr(part, name, None))]


def is_check(part: object) -> bool:
    """Whether an object can be used as a `Check`."""
    return not lacking(part, Check) and isinstance(getattr(part, "name", None), str)


class Clock(Protocol):
    """Wall clock, seconds since the epoch."""

    def __call__(self) -> float:
        """The time now."""
        ...
