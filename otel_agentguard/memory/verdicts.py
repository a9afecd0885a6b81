"""What the gate says of a write, and the stamp that is stored beside what was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from otel_agentguard.errors import ConfigError

STAMP = "agentguard_"
"""Prefix of the names under which a stamp is stored; its values are text and numbers only, as every store takes."""

DAY_S = 86_400.0


class Verdict(StrEnum):
    """What the evidence of a memory is worth."""

    VERIFIED = "verified"
    UNSUPPORTED = "unsupported"
    UNVERIFIABLE = "unverifiable"
    CONTRADICTED = "contradicted"
    DUPLICATE = "duplicate"


class MemoryKind(StrEnum):
    """What a memory is; an intent is a guess or a plan and never a premise."""

    FACT = "fact"
    INTENT = "intent"
    PREFERENCE = "preference"
    PROCEDURE = "procedure"


class Reason(StrEnum):
    """Why; a closed set without content, fit for labels and for people who must not see the content."""

    EVIDENCE_FOUND = "evidence_found"
    NO_SUCH_STEP = "no_such_step"
    NO_EVIDENCE = "no_evidence"
    NOT_EVIDENCE = "not_evidence"
    QUOTE_NOT_FOUND = "quote_not_found"
    VALUE_NOT_FOUND = "value_not_found"
    OPPOSITE_SAID = "opposite_said"
    VALUE_OF_SOMETHING_ELSE = "value_of_something_else"
    NOT_SHOWN = "not_shown"
    NOT_SHOWN_AS_DONE = "not_shown_as_done"
    EVIDENCE_GUESSES = "evidence_guesses"
    ONLY_RECALLED = "only_recalled"
    MARKED_AS_GUESS = "marked_as_guess"
    WORDED_AS_GUESS = "worded_as_guess"
    EVIDENCE_UNKNOWN = "evidence_unknown"
    OTHER_LANGUAGE = "other_language"
    SUPERSEDED = "superseded"
    PLACEHOLDER = "placeholder"
    KNOWN_ALREADY = "known_already"
    GATE_FAILED = "gate_failed"


SENTENCES: Mapping[Reason, str] = {
    Reason.EVIDENCE_FOUND: "the evidence shows it",
    Reason.NO_SUCH_STEP: "it cites a step that this run does not have",
    Reason.NO_EVIDENCE: "no tool and no user has said anything in this run that could show it",
    Reason.NOT_EVIDENCE: "it cites no evidence but the agent's own words, a plan, a recalled memory or a failed call",
    Reason.QUOTE_NOT_FOUND: "the quote does not stand in what it cites",
    Reason.VALUE_NOT_FOUND: "a number, date, id, path or name of it does not occur in the evidence",
    Reason.OPPOSITE_SAID: "the evidence says the opposite",
    Reason.VALUE_OF_SOMETHING_ELSE: "the evidence has that number for something else",
    Reason.NOT_SHOWN: "the evidence does not say it",
    Reason.NOT_SHOWN_AS_DONE: "it says that something was done, and no succeeded call and no statement shows that",
    Reason.EVIDENCE_GUESSES: "the evidence itself only guesses",
    Reason.ONLY_RECALLED: "only the long-term memory itself says so, read back",
    Reason.MARKED_AS_GUESS: "it was stored as a guess",
    Reason.WORDED_AS_GUESS: "it is worded as a guess or a plan",
    Reason.EVIDENCE_UNKNOWN: "the evidence is no longer kept, or was never captured",
    Reason.OTHER_LANGUAGE: "the evidence is in another language and cannot be compared by its words",
    Reason.SUPERSEDED: "it was corrected later",
    Reason.PLACEHOLDER: "a word of protocol would replace what is stored",
    Reason.KNOWN_ALREADY: "it is stored already",
    Reason.GATE_FAILED: "the check of memory failed; nothing was checked",
}
"""Each reason as a sentence for people and models; none repeats what was claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How the memory gate works.

    Attributes:
        max_bytes: Observed text that is kept a run, bytes.
        intent_ttl_s: How long an unverified entry lives, seconds.
        fact_ttl_s: How long a verified one lives, seconds; None for ever.
        unsupported_weight: Weight of an entry without support, 0 to 1.

    Raises:
        ConfigError: A value is out of range.
    """

    max_bytes: int = 1 << 20
    intent_ttl_s: float = 7 * DAY_S
    fact_ttl_s: float | None = None
    unsupported_weight: float = 0.3

    def __post_init__(self) -> None:
        if self.max_bytes < 4096:
            raise ConfigError(f"max_bytes={self.max_bytes} keeps nothing; the least is 4096")
        if self.intent_ttl_s <= 0 or (self.fact_ttl_s is not None and self.fact_ttl_s <= 0):
            raise ConfigError("a time to live is above 0 seconds; fact_ttl_s=None means for ever")
        if not 0 <= self.unsupported_weight < 1:
            raise ConfigError(f"unsupported_weight={self.unsupported_weight} is not from 0 up to, but below, 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the gate makes of one write.

    Attributes:
        verdict: What the evidence is worth.
        kind: What it is stored as.
        weight: How far it may be trusted when it is recalled, 0 to 1.
        reasons: Why, as sentences; they may name values of the claim.
        codes: Why, without content.
        evidence: Steps that show it, or that speak against it, oldest first.
        run: The run that wrote it.
        writer: The agent that wrote it.
        created_s: When, seconds since the epoch.
        expires_s: When it is no longer recalled, seconds since the epoch; None for never.
        sources: What it was read from, as (resource, version); a changed version makes it stale.
        linked: Key of the entry that already says so, for a duplicate.
        reported: It was declared a fact and is not to pass in silence.
    """

    verdict: Verdict
    kind: MemoryKind
    weight: float
    reasons: tuple[str, ...]
    codes: tuple[Reason, ...]
    evidence: tuple[int, ...] = ()
    run: str = ""
    writer: str = ""
    created_s: float = 0.0
    expires_s: float | None = None
    sources: tuple[tuple[str, str], ...] = ()
    linked: str | None = None
    reported: bool = False

    @property
    def verified(self) -> bool:
        """Whether it may serve as a premise."""
        return self.weight >= 1.0 and self.kind is not MemoryKind.INTENT

    @property
    def stored(self) -> bool:
        """Whether it is to be stored at all; what was contradicted is not."""
        return self.verdict is not Verdict.CONTRADICTED

    def stamp(self) -> dict[str, str | float | bool]:
        """What is stored beside the entry: flat, written by code and never by a model."""
        stamp: dict[str, str | float | bool] = {
            f"{STAMP}status": self.verdict.value,
            f"{STAMP}kind": self.kind.value,
            f"{STAMP}verified": self.verified,
            f"{STAMP}weight": self.weight,
            f"{STAMP}evidence": ",".join(map(str, self.evidence)),
            f"{STAMP}run": self.run,
            f"{STAMP}writer": self.writer,
            f"{STAMP}created_s": self.created_s,
        }
        if self.expires_s is not None:
            stamp[f"{STAMP}expires_s"] = self.expires_s
        if self.sources:
            stamp[f"{STAMP}sources"] = "\n".join(f"{version} {resource}" for resource, version in self.sources)
        return stamp
