"""The memory check: what is written to long-term memory has to have been observed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from xxhash import xxh3_128_digest

from otel_agentguard import words
from otel_agentguard.events import Event, Memory, MemoryOperation, ToolCall
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.forks import new_lock
from otel_agentguard.memory.claims import normal_value
from otel_agentguard.memory.gate import MemoryGate
from otel_agentguard.memory.recall import MemoryBook
from otel_agentguard.memory.verdicts import SENTENCES, Judgement, MemorySettings, Verdict
from otel_agentguard.protocols import RunInfo

_WAITING_CHARS = 24_576
_WAITING_EVENTS = 256
_OTHER_CHARS = 512

_NOTHING: tuple[Finding, ...] = ()
_WRITES = frozenset({MemoryOperation.WRITE, MemoryOperation.UPDATE})


class MemoryCheck:
    """Makes the gate of each run.

    Attributes:
        book: What all runs stored; `recall` and `revoke` go through it.
        settings: How the gates work.
        in_use: A memory was guarded or written; runs that begin from here on keep all they observe.
        forgotten: How many observations of all runs made room for newer ones.
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
        self.in_use = False
        self.forgotten = 0
        self._lock = new_lock()
        self._now_s = now_s

    def open(self, run: RunInfo) -> MemoryRunCheck:
        """The state of this check for one run; its gate is made when it is first in use."""
        return MemoryRunCheck(self, run)

    def gate_of(self, run: RunInfo) -> MemoryGate:
        """A new gate for a run."""
        return MemoryGate(
            run.run_id,
            settings=self.settings,
            people=run.settings.people,
            book=self.book,
            now_s=self._now_s,
            forgot=self._forgot,
        )

    def _forgot(self, count: int) -> None:
        with self._lock:
            self.forgotten += count


class MemoryRunCheck:
    """The memory check in one run.

    Until a memory is in use, it only holds on to the latest events, 24 KB of text of them, so that a
    program without a memory pays next to nothing.
    """

    __slots__ = ("_check", "_gate", "_lock", "_run", "_waiting", "_waiting_chars")

    def __init__(self, check: MemoryCheck, run: RunInfo) -> None:
        self._check = check
        self._run = run
        self._lock = new_lock()
        self._gate: MemoryGate | None = None
        self._waiting: deque[tuple[Event, int]] | None = None if check.in_use else deque()
        self._waiting_chars = 0

    @property
    def gate(self) -> MemoryGate:
        """Judges; asking for it puts it into use. `gate.recall` serves `r.recall`."""
        if self._gate is None:
            with self._lock:
                if self._gate is None:
                    gate = self._check.gate_of(self._run)
                    self._check.in_use = True
                    waiting, self._waiting = self._waiting, None
                    for event, _ in waiting or ():
                        gate.observe(event)
                    self._gate = gate
        return self._gate

    @property
    def held_bytes(self) -> int:
        """Bytes of text that are held, about; it is looked at for the metrics, in any thread."""
        return self._waiting_chars if self._gate is None else self._gate.observations.held_bytes

    def before(self, event: Event) -> Sequence[Finding]:
        """Nothing is known before an event has happened."""
        return _NOTHING

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in an event; of a write to memory, say whether the evidence holds."""
        if not isinstance(event, Memory) and self._wait(event):
            return _NOTHING
        if not isinstance(event, Memory) or event.operation not in _WRITES:
            self.gate.observe(event)
            return _NOTHING
        try:
            judgement = self.gate.judge(event)
        except Exception:
            self.gate.pass_unchecked(event)
            raise
        return (_finding(event, judgement),) if judgement.reported else _NOTHING

    def _wait(self, event: Event) -> bool:
        """Hold on to an event; False where a gate is there to take it."""
        if self._waiting is None:
            return False
        with self._lock:
            waiting = self._waiting
            if waiting is None:
                return False
            chars = _chars(event)
            if chars <= _WAITING_CHARS:
                waiting.append((event, chars))
                self._waiting_chars += chars
            while self._waiting_chars > _WAITING_CHARS or len(waiting) > _WAITING_EVENTS:
                self._waiting_chars -= waiting.popleft()[1]
            return True


def _chars(event: Event) -> int:
    content = event.result if isinstance(event, ToolCall) else getattr(event, "text", None)
    return len(content) if isinstance(content, str) else _OTHER_CHARS


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
