"""How often each call has come to the same outcome while nothing could have changed it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from otel_agentguard.checks.loop.grades import Answer, Grade

_MAX_STREAKS = 64
_MAX_EVIDENCE = 8


@dataclass(slots=True, eq=False)
class Streak:
    """Repetition of one call.

    Attributes:
        step: When it happened last.
        digest: Identity of its latest outcome.
        count: Times in a row with the same outcome: equal, in another order, or in known words.
        numbers: Times in a row in which at most numbers changed, back to back.
        tight: Times in a row without a real wait in between.
        doubted: An unknown call brought something new in between, so the limits are one higher.
        spared: The re-read after a compaction was already forgiven once.
        failing: The latest outcome is a failure.
        agents: Who has made this call.
        own_repeat: Some agent has made it twice by itself.
        answer: What later answers are compared with; None until the second outcome differs.
        evidence: The latest steps of the streak.
        redundant_said: The first redundant repeat was reported.
    """

    step: int
    digest: bytes | None
    agents: set[str]
    count: int = 1
    numbers: int = 1
    tight: int = 1
    doubted: bool = False
    spared: bool = False
    failing: bool = False
    own_repeat: bool = False
    answer: Answer | None = None
    grade: Grade = Grade.EQUAL
    evidence: list[int] = field(default_factory=list)
    redundant_said: bool = False

    def restart(self, step: int) -> None:
        """Begin anew: something could have changed the outcome."""
        self.count = self.numbers = self.tight = 1
        self.doubted = False
        self.spared = False
        self.evidence = [step]
        self.grade = Grade.EQUAL

    def note(self, step: int) -> None:
        """Add a step to the evidence."""
        self.evidence.append(step)
        if len(self.evidence) > _MAX_EVIDENCE:
            del self.evidence[1]


class Streaks:
    """The calls of one run that happened at least twice, least recently used dropped."""

    __slots__ = ("_streaks", "dropped")

    def __init__(self) -> None:
        self._streaks: OrderedDict[bytes, Streak] = OrderedDict()
        self.dropped = 0

    def get(self, key: bytes) -> Streak | None:
        """The streak of a call, or None where it happened once at most."""
        return self._streaks.get(key)

    def put(self, key: bytes, streak: Streak) -> None:
        """Start to follow a call."""
        self._streaks[key] = streak
        if len(self._streaks) > _MAX_STREAKS:
            self._streaks.popitem(last=False)
            self.dropped += 1

    def touch(self, key: bytes) -> None:
        """Mark a call as used."""
        self._streaks.move_to_end(key)
