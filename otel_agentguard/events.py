"""What happens in a run.

Decoders build these once, at the edge; everything inside reads them. Events are mutable for one
reason: a call is told twice, before and after its body, and one object carries both halves. Only
whoever made an event fills it, only checks write its marks, and nobody changes it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final


class Effect(StrEnum):
    """What a tool does to the world."""

    PURE = "pure"
    READ = "read"
    WRITE = "write"
    SIDE_EFFECT = "side_effect"
    WAIT = "wait"
    CURSOR = "cursor"
    GENERATOR = "generator"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """How a call ended, as far as anybody knows."""

    OK = "ok"
    FAILED = "failed"
    DENIED = "denied"
    NOT_EXECUTED = "not_executed"
    UNKNOWN = "unknown"


# What is asked of each call several times over: Python 3.11 looks a member of an enum up slowly.
OK: Final = Outcome.OK
NOT_EXECUTED: Final = Outcome.NOT_EXECUTED
SIDE_EFFECT: Final = Effect.SIDE_EFFECT
UNKNOWN_EFFECT: Final = Effect.UNKNOWN


class Form(Enum):
    """What the form of a call says about what it does."""

    READS = auto()
    WRITES = auto()
    UNSURE = auto()


class Trigger(StrEnum):
    """Who or what opened a turn."""

    USER = "user"
    TIMER = "timer"
    CRON = "cron"
    HEARTBEAT = "heartbeat"
    EVENT = "event"
    WEBHOOK = "webhook"
    QUEUE = "queue"
    WORKFLOW = "workflow"
    BATCH = "batch"
    NEW_RUN = "new_run"
    NEW_SESSION = "new_session"
    COMPACTION = "compaction"
    UNKNOWN = "unknown"


class Similarity(StrEnum):
    """How a call equals an earlier one; the strongest that holds."""

    EXACT = "exact"
    MASKED = "masked"
    NEAR = "near"
    SEMANTIC = "semantic"


@dataclass(slots=True, kw_only=True, eq=False)
class Event:
    """What every event has.

    Attributes:
        agent: Name of the agent that acted.
        step: 1-based position in the run; 0 until the engine has numbered it.
        at_s: When it began, seconds of any clock that one run keeps to; None when not recorded.
        repeats: Mark: how many earlier events it repeats without progress in between.
        similarity: Mark: how alike it is to those.
        refused: Mark, set by the engine: the guard kept it from happening.
        plan_errors: Mark: codes of what the plan check found wrong with a plan or a call.
    """

    agent: str = "agent"
    step: int = 0
    at_s: float | None = None
    repeats: int = 0
    similarity: Similarity | None = None
    refused: bool = False
    plan_errors: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class ToolCall(Event):
    """One call of one tool.

    Attributes:
        tool: Name of the tool.
        fingerprint: 16-byte identity of tool and arguments; None when the arguments are unknown,
            and two unknowns are never equal.
        arguments: The arguments by name; None when they were not captured.
        effect: What the tool does to the world.
        touches: Resources that the call reads or writes; None when nobody said.
        scope: Working directory, tenant or the like that the identity lives in.
        call_id: The id that the model gave the call.
        batch: Calls with one value came from one model turn.
        outcome: None until the call has ended.
        result: What it returned, or the text of its error; None until it has ended.
        result_known: False when the result was redacted, truncated or not captured.
        result_digest: 16-byte identity of outcome and result; None when the result is unknown.
        served_from: None when the body ran; `"cache"`, `"replay"` or `"guard"` when it did not.
        ended_s: When it ended, on the clock of `at_s`.
        claimed: The ledger answers for this side effect, so that no check needs to.
        redundant: Mark: repeats an earlier identical call with no change of state in between.
        again: Mark: a state-changing call made again with no new intent in between.
        form: Mark: what the form of its arguments says; None until that is asked.
    """

    tool: str
    fingerprint: bytes | None = None
    arguments: Mapping[str, object] | None = None
    effect: Effect = Effect.UNKNOWN
    touches: tuple[str, ...] | None = None
    scope: str = ""
    call_id: str | None = None
    batch: str | None = None
    outcome: Outcome | None = None
    result: object = None
    result_known: bool = True
    result_digest: bytes | None = None
    served_from: str | None = None
    ended_s: float | None = None
    claimed: bool = False
    redundant: bool = False
    again: bool = False
    form: Form | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Message(Event):
    """Text that an agent sent to another one or to the user.

    Attributes:
        text: The text; None when it was not captured.
        to: The agent that it is for, where that is known.
        digest: 16-byte identity of the text; None when it is unknown.
        payload: Structured content, where the message is not just text.
    """

    text: str | None = None
    to: str | None = None
    digest: bytes | None = None
    payload: object = None


@dataclass(slots=True, kw_only=True, eq=False)
class ModelCall(Event):
    """One request to a model and its answer.

    Attributes:
        model: Name of the model.
        request_digest: 16-byte identity of messages and tools; None when unknown.
        answer_digest: 16-byte identity of the answer; None until it has ended, or when unknown.
        input_tokens: Tokens read; None when not reported.
        output_tokens: Tokens written; None when not reported.
        outcome: None until the call has ended.
    """

    model: str = ""
    request_digest: bytes | None = None
    answer_digest: bytes | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    outcome: Outcome | None = None
    ended_s: float | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Handoff(Event):
    """Control passes from `agent` to another agent.

    Attributes:
        to: The agent that goes on.
        digest: 16-byte identity of what was handed over; None when unknown.
        text: What was handed over; None when it was not captured.
    """

    to: str
    digest: bytes | None = None
    text: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Turn(Event):
    """Something from outside sets the agent to work.

    Attributes:
        trigger: Who or what.
        text: What a user said; None when not captured.
        event: Identity of the outside event; the same one delivered twice is no new intent.
        replay: The turn re-runs recorded steps.
        new_intent: Mark, written by the engine: repeats of earlier work are legitimate now.
    """

    trigger: Trigger = Trigger.USER
    text: str | None = None
    event: str | None = None
    replay: bool = False
    new_intent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One step of a plan, in the neutral shape.

    Attributes:
        id: Name of the step, unique in the plan.
        tool: The tool to call; None for prose.
        arguments: Arguments by name, references unresolved; None when the plan names the tool only.
        agent: Who is to do it, where the plan says.
        depends_on: Steps that come first.
        optional: It may be left out without that being drift.
    """

    id: str
    tool: str | None = None
    arguments: Mapping[str, object] | None = None
    agent: str | None = None
    depends_on: tuple[str, ...] = ()
    optional: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Plan(Event):
    """A plan was made or replaced.

    Attributes:
        steps: Its steps in order.
        digest: 16-byte identity of the steps.
    """

    steps: Sequence[PlanStep] = ()
    digest: bytes | None = None


class MemoryOperation(StrEnum):
    """What was done to the long-term memory."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a memory comes from.

    Attributes:
        step: The step of this run that shows it.
        quote: Words of that step.
    """

    step: int
    quote: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Memory(Event):
    """The long-term memory was read or written.

    Attributes:
        operation: What was done.
        key: Name of the entry, where there is one.
        value: What was stored or recalled.
        source: Who is said to have stated it: `user`, `tool`, `inferred`, `unknown` or None.
        kind: `fact`, `intent`, `preference` or `procedure`.
        evidence: Steps that show it.
        supersedes: The entry that it corrects.
        hypothesis: The writer marked it as unproven.
        verdict: Mark of a write: what its evidence is worth, a value of `memory.Verdict`; None until it was judged.
        weight: Mark of a write: how far it may be trusted when it is recalled, 0 to 1.
        reasons: Mark of a write: why, as sentences; they may name values of the claim.
        stamp: Mark of a write: what is stored beside the value, flat, by names that begin with `agentguard_`.
    """

    operation: MemoryOperation
    key: str | None = None
    value: object = None
    source: str | None = None
    kind: str = "fact"
    evidence: Sequence[Evidence] = ()
    supersedes: str | None = None
    hypothesis: bool = False
    verdict: str | None = None
    weight: float | None = None
    reasons: tuple[str, ...] = ()
    stamp: Mapping[str, object] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Crash(Event):
    """The process died here; known from a record, never seen live."""


@dataclass(slots=True, kw_only=True, eq=False)
class Resume(Event):
    """The run went on after a crash or an interruption.

    Attributes:
        attempt: Which attempt this is; None when not recorded.
        run: The run id from here on, where it changed.
    """

    attempt: int | None = None
    run: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Compaction(Event):
    """The model's context was summarised: it may have lost what it read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a registry knows of a tool.

    Attributes:
        name: Its name.
        schema: JSON Schema of its arguments.
        description: What it is for.
        effect: What it does to the world.
        repeatable: Equal calls of it are two intended effects, not a repeat.
        identity: The arguments that make a side effect the same; None means all.
    """

    name: str
    schema: Mapping[str, object] = field(default_factory=dict)
    description: str = ""
    effect: Effect = Effect.UNKNOWN
    repeatable: bool = False
    identity: tuple[str, ...] | None = None
