"""What checks say, and what the guard does about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Action(IntEnum):
    """What the guard does, in rising order; actions combine by `max`."""

    ALLOW = 0
    HINT = 1
    REUSE = 2
    BLOCK = 3
    STOP = 4

    def __str__(self) -> str:
        return _ACTION_NAMES[self]


_ACTION_NAMES = tuple(action.name.lower() for action in Action)


@dataclass(frozen=True, slots=True)
class Limits:
    """At which ordinal of a repeated event each action begins.

    Attributes:
        hint: First ordinal that earns a note; None for never.
        block: First ordinal that is refused; None for never.
        stop: First ordinal that ends the run; None for never.

    Raises:
        ValueError: A limit is below 2, or they do not rise.
    """

    hint: int | None = None
    block: int | None = None
    stop: int | None = None

    def __post_init__(self) -> None:
        given = [n for n in (self.hint, self.block, self.stop) if n is not None]
        if any(n < 2 for n in given):
            raise ValueError(f"a limit is the ordinal of a repeat and at least 2: {self}")
        if given != sorted(given):
            raise ValueError(f"limits rise from hint to block to stop: {self}")

    def action_at(self, ordinal: float) -> Action:
        """The action that this ordinal has reached."""
        if self.stop is not None and ordinal >= self.stop:
            return Action.STOP
        if self.block is not None and ordinal >= self.block:
            return Action.BLOCK
        if self.hint is not None and ordinal >= self.hint:
            return Action.HINT
        return Action.ALLOW

    def raised_by(self, extra: int) -> Limits:
        """The same limits, each `extra` later."""
        return Limits(*(None if n is None else n + extra for n in (self.hint, self.block, self.stop)))


class Severity(StrEnum):
    """How bad a finding is: `info` needs nobody, `warn` a look, `error` a person."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class CheckName(StrEnum):
    """The checks; near and semantic layers report under `loop`."""

    LOOP = "loop"
    DEDUP = "dedup"
    PLAN = "plan"
    MEMORY = "memory"
    EFFECTS = "effects"
    BUDGET = "budget"
    SCHEMA = "schema"


class Kind(StrEnum):
    """Kinds of findings, most specific first: findings of one step are ordered so."""

    DUPLICATE_SIDE_EFFECT = "duplicate_side_effect"
    PLAN = "plan"
    MEMORY = "memory"
    SCHEMA = "schema"
    STALE_CACHE = "stale_cache"
    BUDGET = "budget"
    PINGPONG = "pingpong"
    CYCLE = "cycle"
    LOOP = "loop"
    NEAR = "near"
    SEMANTIC = "semantic"
    PLAN_DRIFT = "plan_drift"
    REDUNDANT = "redundant"


_ORDER = {kind: place for place, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check saw.

    Attributes:
        check: Who says so; a third-party check gives its own name.
        kind: What it is.
        severity: How bad it is.
        step: The step at which it was seen.
        signature: What repeats; the ladder and "say it once" are kept per check and signature.
        evidence: The steps that show it, oldest first.
        message: Text for the model: what is known, and what to do next.
        explanation: Text for people: what repeated, since when, how to override.
        action: What is done; where `limits` is given the policy sets it, else it is what the check asks for.
        limits: The row of limits that `count` is measured against; None where the check decides alone.
        agent: Whose event it was.
        tool: The tool, where one is involved.
        count: How often it has happened, this time included.
        score: How sure the check is, 0 to 1.
    """

    check: str
    kind: Kind
    severity: Severity
    step: int
    signature: bytes
    message: str
    explanation: str
    action: Action = Action.ALLOW
    limits: Limits | None = None
    evidence: tuple[int, ...] = field(default=())
    agent: str = ""
    tool: str | None = None
    count: int = 0
    score: float = 1.0


def by_specificity(finding: Finding) -> int:
    """Sort key: the most specific kind first."""
    return _ORDER[finding.kind]
