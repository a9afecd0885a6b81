"""Runs for tests of the loop check: events made quickly, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.config import LoopSettings, Settings, ToolSettings
from otel_agentguard.engine import Decision, Engine, Run
from otel_agentguard.events import (
    Compaction,
    Effect,
    Event,
    Handoff,
    Message,
    ModelCall,
    Outcome,
    ToolCall,
    Trigger,
    Turn,
)
from otel_agentguard.findings import Action, Finding, Kind, Limits, Severity
from otel_agentguard.fingerprint import digest, text_digest
from otel_agentguard.testing import tool_call

WORDS = (
    "amber birch cedar dune ember fjord grove heath islet juniper kelp lagoon meadow nectar orchard prairie quarry "
    "reef savanna tundra umber valley willow yarrow zephyr"
).split()
"""Words that have nothing in common."""

TEXT = "The gate of the garden opens at eight and nobody sells tickets there."

REWORDED = [
    "Could you please confirm the delivery date for the Hamburg warehouse?",
    "I need the delivery date of the Hamburg warehouse confirmed by you first.",
    "Please confirm the Hamburg delivery date, then I confirm the warehouse.",
    "First confirm the delivery date for the Hamburg warehouse, please.",
    "The delivery date of the Hamburg warehouse, please confirm it.",
    "Please, you confirm the Hamburg warehouse delivery date.",
    "Confirm the delivery date for the Hamburg warehouse.",
    "You confirm the date of the Hamburg delivery.",
    "Please confirm the warehouse delivery date.",
    "The Hamburg warehouse date has to be confirmed: please confirm.",
]
"""One request in ever other words."""

FERRY = [
    "which crew did the old ferry of Ulm have",
    "how large was the crew on the ferry of Ulm",
    "number of sailors in the crew of the Ulm ferry",
    "the Ulm ferry and how many were in its crew",
    "old ferry of Ulm: people in the crew",
    "tell me the crew of the ferry in Ulm",
    "crew size of the ferry at Ulm",
    "Ulm ferry, crew",
]
"""One question in ever other words."""


Events: TypeAlias = "Event | Iterable[Events]"
"""Events, in lists of any depth."""


class Seen(NamedTuple):
    """What a test looks at in a finding."""

    step: int
    kind: Kind
    action: Action


class Watch:
    """One run that is observed: every body runs, and the findings tell what would have been done.

    Args:
        settings: Settings of the run.
        tools: Limits of single tools, by tool and row.
        rows: Limits by row.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        tools: dict[str, dict[str, Limits]] | None = None,
        **rows: Limits,
    ) -> None:
        own = {name: ToolSettings(limits=limits) for name, limits in (tools or {}).items()}
        self.engine = Engine(
            checks=[LoopCheck()], settings=settings or Settings(loop=LoopSettings(**rows), tools=own), now_s=lambda: 0.0
        )
        self.run = self.engine.open("r")
        self.findings: list[Finding] = []

    def add(self, *events: Events) -> list[Seen]:
        """Let events happen; findings of severity `warn` and above of this call."""
        found = []
        for event in flat(events):
            found += [f for f in self.engine.observe(self.run, event).findings if f.severity is not Severity.INFO]
        self.findings += found
        return [Seen(f.step, f.kind, f.action) for f in found]


class Play:
    """One run whose seams enforce: what is refused does not run."""

    def __init__(self, engine: Engine | None = None, *, run: Run | None = None) -> None:
        self.engine = engine or Engine(checks=[LoopCheck()], now_s=lambda: 0.0)
        self.run = run or self.engine.open("r")
        self.ran = 0

    def do(self, event: Event) -> Decision:
        """Ask, and run the body where that is allowed."""
        before = self.engine.before(self.run, event)
        if before.action >= Action.BLOCK:
            return before
        self.ran += 1
        after = self.engine.after(self.run, event)
        return after if after.action > before.action else before

    def actions(self, events: Iterable[Event]) -> list[Action]:
        """What was done with each event."""
        return [self.do(event).action for event in events]


def flat(events: Iterable[Events]) -> Iterable[Event]:
    """The events of lists in lists."""
    for event in events:
        if isinstance(event, Event):
            yield event
        else:
            yield from flat(event)


def found(*events: Events, **rows: Limits) -> list[Seen]:
    """What is found in a run of these events."""
    return Watch(**rows).add(*events)


def first(*events: Events, **rows: Limits) -> Seen | None:
    """The first finding in a run of these events."""
    return next(iter(found(*events, **rows)), None)


def read(path: str = "a.txt", result: object = TEXT, **more: object) -> ToolCall:
    """A declared read."""
    return tool_call("read_file", {"path": path}, result, effect=Effect.READ, **more)  # type: ignore[arg-type]


def ask(
    tool: str, result: object, /, *, at: float | None = None, agent: str = "agent", **arguments: object
) -> ToolCall:
    """A call of which nobody knows what it does."""
    return tool_call(tool, arguments, result, agent=agent, at_s=at)


def fail(
    tool: str = "connect", error: str = "Error: connection refused by the server", /, **arguments: object
) -> ToolCall:
    """A call that fails."""
    return tool_call(tool, arguments, error, outcome=Outcome.FAILED)


def write(path: str = "a.txt", content: str = "x = 1", result: object = "ok", **more: object) -> ToolCall:
    """A declared write."""
    arguments = {"path": path, "content": content}
    return tool_call("write_file", arguments, result, effect=Effect.WRITE, **more)  # type: ignore[arg-type]


def wait() -> ToolCall:
    """A declared wait."""
    return tool_call("sleep", {"seconds": 60}, None, effect=Effect.WAIT)


def say(agent: str, text: str) -> Message:
    """A message."""
    return Message(agent=agent, text=text, digest=text_digest(text))


def hand(agent: str, to: str, text: str) -> Handoff:
    """A handoff."""
    return Handoff(agent=agent, to=to, text=text, digest=text_digest(text))


def request(prompt: object, answer: object, agent: str = "agent") -> ModelCall:
    """A request to a model with its answer."""
    return ModelCall(
        agent=agent, model="m", request_digest=digest(prompt), answer_digest=digest(answer), outcome=Outcome.OK
    )


def turn(trigger: Trigger = Trigger.USER, **more: object) -> Turn:
    """Something from outside sets the agent to work."""
    return Turn(trigger=trigger, **more)  # type: ignore[arg-type]


def compaction() -> Compaction:
    """The context is summarised."""
    return Compaction()
