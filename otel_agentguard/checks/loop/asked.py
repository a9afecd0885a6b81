"""Calls in a row that brought nothing new, about one thing: what the semantic layer counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_128_digest

from otel_agentguard import words
from otel_agentguard.events import Similarity, ToolCall
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.protocols import RunInfo

_MAX_EVIDENCE = 10


@dataclass(slots=True, eq=False)
class Asked:
    """What was asked about one thing without learning anything new.

    Attributes:
        step: When it was asked about last.
        count: How many calls in a row, the first of which may have brought something.
        call: Identity of the first of them.
        varied: They are not all the same call, which the exact layer would count.
        evidence: Their steps.
    """

    step: int
    count: int = 0
    call: bytes | None = None
    varied: bool = False
    evidence: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """Start counting anew."""
        self.count = 0
        self.varied = False
        self.evidence.clear()

    def note(self, step: int, call: bytes | None) -> None:
        """Count one more."""
        if not self.count:
            self.call = call
        self.varied = self.varied or call != self.call
        self.count += 1
        self.evidence.append(step)
        if len(self.evidence) > _MAX_EVIDENCE:
            del self.evidence[1]


def judged(run: RunInfo, call: ToolCall, asked: Asked, subject: str) -> Sequence[Finding]:
    """The finding that this many calls on one subject are worth.

    Args:
        run: The run.
        call: The latest of the calls; it gets its marks.
        asked: The calls.
        subject: Tells the subject from others.
    """
    limits = run.settings.limits("semantic", call.tool)
    if limits.hint is None or asked.count < limits.hint or not asked.varied:
        return ()
    call.repeats = max(call.repeats, asked.count - 1)
    call.similarity = call.similarity or Similarity.SEMANTIC
    evidence = tuple(asked.evidence)
    what = f"{asked.count} calls on one subject brought nothing new"
    return (
        Finding(
            check=CheckName.LOOP,
            kind=Kind.SEMANTIC,
            severity=Severity.WARN,
            step=call.step,
            signature=xxh3_128_digest(f"semantic {subject} {evidence[0]}".encode()),
            message=words.same_subject(evidence[0], asked.count),
            explanation=words.to_people(what, evidence, "loop.semantic", limits),
            limits=Limits(limits.hint, None, limits.stop),
            evidence=evidence,
            agent=call.agent,
            tool=call.tool,
            count=asked.count,
            score=0.6,
        ),
    )
