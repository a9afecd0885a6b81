"""The gate of one run: what was observed on one side, what is to be remembered on the other.

A guess is not a fact. A fact passes when what a tool, a user or an outside event said in this run shows it;
what does not pass is stored as an intent, with less weight and an end, and never serves as a premise.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from otel_agentguard.events import Event, Memory, MemoryOperation
from otel_agentguard.memory.claims import Claim, is_placeholder, normal_value, read_claim, text_of
from otel_agentguard.memory.corrections import Corrections
from otel_agentguard.memory.evidence import Cited, cited
from otel_agentguard.memory.intake import PEOPLE, Intake
from otel_agentguard.memory.observations import Observations
from otel_agentguard.memory.recall import MemoryBook, Recalled
from otel_agentguard.memory.shelves import EVIDENCE, Producer
from otel_agentguard.memory.support import Scope, Support, find_support, in_other_language
from otel_agentguard.memory.verdicts import (
    SENTENCES,
    Judgement,
    MemoryKind,
    MemorySettings,
    Reason,
    Verdict,
)

_logger = logging.getLogger("otel_agentguard")

_INFERRED = "inferred"
_MAX_KNOWN = 1024
_MOST_CONTENT = 3
_PRODUCERS = {"user": frozenset({Producer.USER}), "tool": frozenset({Producer.TOOL, Producer.OUTSIDE})}
_WRITES = frozenset({MemoryOperation.WRITE, MemoryOperation.UPDATE})
_DECLARED_FACT = frozenset({MemoryKind.FACT, MemoryKind.PREFERENCE})


@dataclass(frozen=True, slots=True)
class _Known:
    """An entry of the long-term memory that this run wrote or read."""

    value: object
    written: str
    weight: float


class MemoryGate:
    """Judges the memory writes of one run.

    Not thread safe: the engine calls it under the run's lock. It does no I/O.

    Attributes:
        run_id: The run.
        observations: What was observed in it.
        book: What all runs have stored, for `recall`; None where nothing is kept.
        failures: Writes that could not be checked because the gate itself failed; they went through as intents.
    """

    def __init__(
        self,
        run_id: str = "",
        *,
        settings: MemorySettings | None = None,
        people: frozenset[str] = PEOPLE,
        book: MemoryBook | None = None,
        now_s: Callable[[], float] = time.time,
        forgot: Callable[[int], object] | None = None,
    ) -> None:
        """Make the gate of a run that has seen nothing yet.

        Args:
            run_id: The run; it is stored with every entry, so that a poisoned run can be revoked.
            settings: How it works.
            people: Names of agents whose messages are those of users.
            book: Where to keep what was judged.
            now_s: The clock, seconds since the epoch.
            forgot: Told how many observations made room for new ones.
        """
        self.run_id = run_id
        self.settings = settings or MemorySettings()
        self.observations = Observations(max_bytes=self.settings.max_bytes, forgot=forgot)
        self.book = book
        self.failures = 0
        self._now_s = now_s
        self._intake = Intake(self.observations, people, book.trust if book is not None else None)
        self._corrections = Corrections()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._step = 0

    def submit(self, event: Event) -> Judgement | None:
        """Take in an event of any kind, and judge it where it is a write to memory. Never raises.

        An event without a step gets the next one. What the verdict is, is also marked on the event.

        Returns:
            What the gate makes of a write; None for everything else.
        """
        event.step = event.step or self._step + 1
        self._step = max(self._step, event.step)
        if isinstance(event, Memory) and event.operation in _WRITES:
            try:
                return self.judge(event)
            except Exception:
                if not self.failures:
                    _logger.exception(
                        "agentguard: the memory gate failed; what it could not check is stored as an intent"
                    )
                return self.pass_unchecked(event)
        try:
            self.observe(event)
        except Exception:
            self.observations.uncaptured |= EVIDENCE
            _logger.warning("agentguard: an event could not be taken in by the memory gate", exc_info=True)
        return None

    def observe(self, event: Event) -> None:
        """Take in an event that is no write to memory."""
        if isinstance(event, Memory):
            self._take_memory(event)
        else:
            self._intake.take(event)

    def judge(self, memory: Memory) -> Judgement:
        """Judge a write, mark the event with the verdict, and keep the entry in the book.

        Raises:
            Exception: Whatever goes wrong inside; `pass_unchecked` is the way on.
        """
        self._intake.catch_up(self._corrections)
        self.observations.note(memory.step, Producer.RECALLED)
        judgement = self._judged(memory)
        self._settle(memory, judgement)
        return judgement

    def pass_unchecked(self, memory: Memory) -> Judgement:
        """Let a write through as an intent because the gate itself failed, and count that."""
        self.failures += 1
        judgement = self._stamped(memory, Verdict.UNVERIFIABLE, Reason.GATE_FAILED)
        _mark(memory, judgement)
        return judgement

    def recall(self, query: str = "", *, limit: int = 10, include_unverified: bool = False) -> list[Recalled]:
        """What the book knows; from here on the recalled words are no evidence in this run.

        Args:
            query: Words to look for; without any the latest entries come first.
            limit: At most so many.
            include_unverified: Also guesses and stale entries, last and marked so.
        """
        if self.book is None:
            return []
        found = self.book.recall(query, limit=limit, include_unverified=include_unverified)
        for entry in found:
            self.recalled(entry.value)
        return found

    def recalled(self, value: object) -> None:
        """Remember that a value came out of the long-term memory: the same words seen later prove nothing."""
        for entry in value if isinstance(value, list | tuple) else (value,):
            self.observations.recalled(text_of(entry), self._step)

    def _take_memory(self, memory: Memory) -> None:
        self.observations.note(memory.step, Producer.RECALLED)
        self._step = max(self._step, memory.step)
        if memory.operation is MemoryOperation.DELETE:
            if memory.key is not None:
                self._known.pop(memory.key, None)
                if self.book is not None:
                    self.book.forget(memory.key)
            return
        if memory.value is None:
            return
        self.recalled(memory.value)
        if memory.key is not None and memory.key not in self._known:
            self._keep(memory.key, memory.value, self.settings.unsupported_weight)

    def _judged(self, memory: Memory) -> Judgement:
        known = self._known.get(memory.supersedes or memory.key or "")
        if known is not None and self._is_hollow(memory, known):
            return self._stamped(memory, Verdict.CONTRADICTED, Reason.PLACEHOLDER)
        if memory.hypothesis or _kind(memory) is MemoryKind.INTENT:
            return self._stamped(memory, Verdict.UNSUPPORTED, Reason.MARKED_AS_GUESS)
        claim = read_claim(memory.value, memory.key)
        if claim.guess:
            return self._stamped(memory, Verdict.UNSUPPORTED, Reason.WORDED_AS_GUESS, detail=claim.guess[0])
        against = self._corrections.against(claim, memory.key, memory.value)
        if against is not None and not find_support(claim, self.observations, Scope(after=against.step)).holds:
            return self._stamped(memory, Verdict.CONTRADICTED, Reason.SUPERSEDED, steps=(against.step,))
        return self._linked(memory, self._weighed(memory, claim))

    def _weighed(self, memory: Memory, claim: Claim) -> Judgement:
        """Rules 1 to 5: is there evidence, is it evidence, and does it say so?"""
        evidence = Cited()
        if memory.evidence:
            evidence = cited(memory.evidence, self.observations)
            if not evidence.steps:
                verdict = Verdict.UNVERIFIABLE if evidence.unknown else Verdict.UNSUPPORTED
                return self._stamped(memory, verdict, *evidence.codes)
            scope = Scope(steps=frozenset(evidence.steps), quoted=evidence.quoted)
        else:
            scope = Scope(strict=memory.source == _INFERRED)
        support = find_support(claim, self.observations, scope)
        if support.holds:
            return self._stamped(memory, Verdict.VERIFIED, Reason.EVIDENCE_FOUND, steps=support.steps)
        lost = evidence.unknown or self.observations.lost(_PRODUCERS.get(memory.source or "", EVIDENCE))
        verdict, code = self._short_of(claim, support, lost=lost)
        return self._stamped(memory, verdict, code, steps=evidence.steps, detail=", ".join(support.missing[:5]))

    def _short_of(self, claim: Claim, support: Support, *, lost: bool) -> tuple[Verdict, Reason]:
        """Why what was observed does not show a claim, the most telling reason first."""
        if support.opposed:
            return Verdict.UNSUPPORTED, Reason.OPPOSITE_SAID
        if support.swapped:
            return Verdict.UNSUPPORTED, Reason.VALUE_OF_SOMETHING_ELSE
        if lost:
            return Verdict.UNVERIFIABLE, Reason.EVIDENCE_UNKNOWN
        digits = any(character.isdecimal() for value in support.missing for character in value)
        if not digits and in_other_language(claim, self.observations):
            return Verdict.UNVERIFIABLE, Reason.OTHER_LANGUAGE
        if not self.observations.latest(EVIDENCE, most=1):
            return Verdict.UNSUPPORTED, Reason.NO_EVIDENCE
        if support.recalled:
            return Verdict.UNSUPPORTED, Reason.ONLY_RECALLED
        if support.undone:
            return Verdict.UNSUPPORTED, Reason.NOT_SHOWN_AS_DONE
        if support.missing:
            return Verdict.UNSUPPORTED, Reason.VALUE_NOT_FOUND
        if support.guessed:
            return Verdict.UNSUPPORTED, Reason.EVIDENCE_GUESSES
        return Verdict.UNSUPPORTED, Reason.NOT_SHOWN

    def _linked(self, memory: Memory, judgement: Judgement) -> Judgement:
        """A write of what is stored already links to that; it gains weight only by evidence of its own."""
        known = self._known.get(memory.key or normal_value(memory.value))
        if known is None or known.written != normal_value(memory.value):
            return judgement
        if judgement.weight > known.weight:
            return judgement
        link = self._stamped(memory, Verdict.DUPLICATE, Reason.KNOWN_ALREADY, steps=judgement.evidence)
        kind = _kind(memory) if known.weight >= 1 else MemoryKind.INTENT
        return replace(link, weight=known.weight, kind=kind, linked=memory.key, reported=False)

    def _is_hollow(self, memory: Memory, known: _Known) -> bool:
        """A word of protocol would overwrite content."""
        if not is_placeholder(memory.value) or known.written == normal_value(memory.value):
            return False
        clauses = read_claim(known.value).clauses
        return sum(len(clause.items) for clause in clauses) >= _MOST_CONTENT

    def _stamped(
        self, memory: Memory, verdict: Verdict, *codes: Reason, steps: tuple[int, ...] = (), detail: str = ""
    ) -> Judgement:
        settings = self.settings
        declared = _kind(memory)
        verified = verdict is Verdict.VERIFIED
        now_s = self._now_s()
        lives_s = settings.fact_ttl_s if verified else settings.intent_ttl_s
        weight = {Verdict.VERIFIED: 1.0, Verdict.CONTRADICTED: 0.0}.get(verdict, settings.unsupported_weight)
        guess = Reason.MARKED_AS_GUESS in codes or Reason.WORDED_AS_GUESS in codes
        reasons = [SENTENCES[code] for code in codes]
        if detail:
            reasons[0] = f"{reasons[0]}: {detail}"
        return Judgement(
            verdict=verdict,
            kind=declared if verified else MemoryKind.INTENT,
            weight=weight,
            reasons=tuple(reasons),
            codes=codes,
            evidence=steps,
            run=self.run_id,
            writer=memory.agent,
            created_s=now_s,
            expires_s=None if lives_s is None else now_s + lives_s,
            sources=self._sources(steps) if verified else (),
            reported=verdict is Verdict.CONTRADICTED
            or (verdict is Verdict.UNSUPPORTED and declared in _DECLARED_FACT and not guess),
        )

    def _sources(self, steps: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
        read_from = (one for step in steps if (one := self.observations.at(step)) is not None and one.digest)
        return tuple((resource, one.digest.hex()[:16]) for one in read_from for resource in one.resources if one.digest)

    def _settle(self, memory: Memory, judgement: Judgement) -> None:
        _mark(memory, judgement)
        if judgement.verdict is Verdict.CONTRADICTED:
            return
        if judgement.verdict is Verdict.VERIFIED:
            replaced = self._known.get(memory.supersedes or memory.key or "")
            if replaced is not None and (memory.supersedes or memory.operation is MemoryOperation.UPDATE):
                self._corrections.updated(memory.supersedes or memory.key, replaced.value, memory.value, memory.step)
        if judgement.verdict is not Verdict.DUPLICATE:
            self._keep(memory.key or normal_value(memory.value), memory.value, judgement.weight)
        if self.book is not None:
            self.book.add(memory.value, judgement, key=memory.key)

    def _keep(self, name: str, value: object, weight: float) -> None:
        known = self._known.get(name)
        if known is not None and known.weight > weight:
            return
        self._known[name] = _Known(value, normal_value(value), weight)
        self._known.move_to_end(name)
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)


def _kind(memory: Memory) -> MemoryKind:
    try:
        return MemoryKind(memory.kind)
    except ValueError:
        return MemoryKind.FACT


def _mark(memory: Memory, judgement: Judgement) -> None:
    memory.verdict = judgement.verdict.value
    memory.weight = judgement.weight
    memory.reasons = judgement.reasons
    memory.stamp = judgement.stamp()
