"""The memory check: what is written to long-term memory has to have been observed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from xxhash import xxh3_128_digest

from otel_agentguard import words
from otel_agentguard.events import Event, Memory, MemoryOperation
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.memory.claims import normal_value
from otel_agentguard.memory.gate import MemoryGate
from otel_agentguard.memory.recall import MemoryBook
from otel_agentguard.memory.verdicts import SENTENCES, Judgement, MemorySettings, Verdict
from otel_agentguard.protocols import RunInfo

_NOTHING: tuple[Finding, ...] = ()
_WRITES = frozenset({MemoryOperation.WRITE, MemoryOperation.UPDATE})


class MemoryCheck:
    """Makes the gate of each run.

    Attributes:
        book: What all runs stored; `recall` and `revoke` go through it.
        settings: How the gates work.
    """

    name = CheckName.MEMORY.value

    def __init__(
        self,
        settings: MemorySettings | None = None,
        *,
        book: MemoryBook | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings or MemorySettings()
        self.book = book if book is not None else MemoryBook(now_s=now_s)
        self._now_s = now_s

    def open(self, run: RunInfo) -> MemoryRunCheck:
        """Make the gate of a run."""
        gate = MemoryGate(
            run.run_id, settings=self.settings, people=run.settings.people, book=self.book, now_s=self._now_s
        )
        return MemoryRunCheck(gate)


class MemoryRunCheck:
    """The memory check in one run.

    Attributes:
        gate: Judges; `gate.recall` serves `r.recall`.
    """

    __slots__ = ("gate",)

    def __init__(self, gate: MemoryGate) -> None:
        self.gate = gate

    def before(self, event: Event) -> Sequence[Finding]:
        """Nothing is known before an event has happened."""
        return _NOTHING

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in an event; of a write to memory, say whether the evidence holds."""
        if not isinstance(event, Memory) or event.operation not in _WRITES:
            self.gate.observe(event)
            return _NOTHING
        try:
            judgement = self.gate.judge(event)
        except Exception:
            self.gate.pass_unchecked(event)
            raise
        return (_finding(event, judgement),) if judgement.reported else _NOTHING


def _finding(memory: Memory, judgement: Judgement) -> Finding:
    because = "; ".join(SENTENCES[code] for code in judgement.codes)
    if judgement.verdict is Verdict.CONTRADICTED:
        known = f"Not stored: {because}."
        advice = "Keep the corrected value, or cite newer evidence for this one."
        told = f"A memory was not stored: {because}."
    else:
        known = f"Stored as a guess, not as a fact: {because}."
        advice = "Cite the step that shows it, store it as a hypothesis, or look it up first."
        told = f"A memory that was declared a fact is stored as a guess: {because}."
    shown = sorted({*judgement.evidence, memory.step})
    entry = f"{memory.key or ''}\0{normal_value(memory.value)}"
    return Finding(
        check=CheckName.MEMORY.value,
        kind=Kind.MEMORY,
        severity=Severity.WARN,
        step=memory.step,
        signature=xxh3_128_digest(entry.encode("utf-8", "surrogatepass")),
        message=words.to_model(known, advice),
        explanation=f"{told} Look at {words.steps(shown)}; what is marked as a hypothesis passes without a finding.",
        action=Action.HINT,
        evidence=tuple(shown),
        agent=memory.agent,
        count=1,
        score=1.0 - judgement.weight,
    )
