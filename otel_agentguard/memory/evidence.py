"""What a memory cites: does the step exist, does its producer count, does the quote stand there?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_agentguard.events import Evidence
from otel_agentguard.memory.observations import Observations
from otel_agentguard.memory.passages import index_keys, quotable
from otel_agentguard.memory.shelves import EVIDENCE, Producer
from otel_agentguard.memory.verdicts import Reason

_MAX_CITED = 64


@dataclass(frozen=True, slots=True)
class Cited:
    """What is left of the cited evidence.

    Attributes:
        steps: Steps that count, oldest first.
        quoted: Every one of them was quoted word for word.
        codes: What is wrong with the others.
        unknown: Some of it can no longer be looked at.
    """

    steps: tuple[int, ...] = ()
    quoted: bool = False
    codes: tuple[Reason, ...] = ()
    unknown: bool = False


def cited(evidence: Sequence[Evidence], observations: Observations) -> Cited:
    """Check what a memory cites.

    A quote that stands in another step than the cited one counts from there: models do not know step numbers.

    Args:
        evidence: The citations; the first 64 are looked at.
        observations: What was observed.
    """
    steps: set[int] = set()
    quoted = True
    codes: dict[Reason, None] = {}
    for one in evidence[:_MAX_CITED]:
        found = _check(one, observations)
        if isinstance(found, Reason):
            codes[found] = None
        else:
            steps.add(found)
            quoted = quoted and bool(one.quote)
    return Cited(tuple(sorted(steps)), quoted and bool(steps), tuple(codes), Reason.EVIDENCE_UNKNOWN in codes)


def _check(one: Evidence, observations: Observations) -> int | Reason:
    wrong = _wrong(one, observations)
    if wrong is None:
        return one.step
    if one.quote and wrong is not Reason.EVIDENCE_UNKNOWN:
        plain = quotable(one.quote)
        for hit in observations.search(index_keys(one.quote), EVIDENCE):
            if hit.observation.contains(plain):
                return hit.observation.step
    return wrong


def _wrong(one: Evidence, observations: Observations) -> Reason | None:
    producer = observations.producer_of(one.step)
    if producer is Producer.NONE:
        return Reason.NO_SUCH_STEP
    if producer is None or producer is Producer.UNCAPTURED:
        return Reason.EVIDENCE_UNKNOWN
    if producer not in EVIDENCE:
        return Reason.NOT_EVIDENCE
    observed = observations.at(one.step)
    if observed is None:
        return Reason.EVIDENCE_UNKNOWN if observations.dropped else Reason.NOT_SHOWN
    if one.quote and not observed.contains(quotable(one.quote)):
        return Reason.EVIDENCE_UNKNOWN if observed.cut else Reason.QUOTE_NOT_FOUND
    return None
