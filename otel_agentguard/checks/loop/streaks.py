"""How often each call has come to the same outcome while nothing could have changed it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from otel_agentguard.checks.loop.answers import Texts
from otel_agentguard.checks.loop.grades import Answer, Grade
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.events import OK, Outcome

_MAX_STREAKS = 64
_MAX_EVIDENCE = 8
_MAX_TALLY = 8


@dataclass(slots=True, eq=False)
class Streak:
    """Repetition of one call.

    Attributes:
        step: When it happened last.
        outcome: How it ended last.
        agents: Identities of those who have made this call.
        digest: Identity of its latest result; None while only the first, other one is known.
        tally: Times that each result has come since the streak began.
        count: Times that the latest result has come, results that say no more included.
        numbers: Times in a row in which at most numbers changed, back to back.
        alike: Times in a row in which the result was nearly the one before.
        tight: Times in a row without a real wait in between.
        grade: How the latest result compares with the one before.
        doubted: An unknown call brought something new in between, so the limits are one higher.
        spared: The re-read after a compaction was already forgiven once.
        own_repeat: Some agent has made it twice by itself.
        ungraded: The first result differed from the second and was not kept; it counts as of the
            grade of the third.
        answer: What the next result is compared with.
        evidence: Steps of the streak: the first and the latest ones.
    """

    step: int
    outcome: Outcome
    agents: tuple[int, ...]
    digest: bytes | None = None
    tally: dict[bytes, int] = field(default_factory=dict)
    count: int = 1
    numbers: int = 1
    alike: int = 1
    tight: int = 1
    grade: Grade = Grade.EQUAL
    doubted: bool = False
    spared: bool = False
    own_repeat: bool = False
    ungraded: bool = False
    answer: Answer | None = None
    evidence: list[int] = field(default_factory=list)

    @property
    def failing(self) -> bool:
        """Whether the latest outcome is a failure."""
        return self.outcome is not OK

    def broken_by(self, marks: Marks) -> bool:
        """Whether something since the last time could have changed the outcome."""
        if marks.write > self.step:
            return True
        return marks.intent > self.step and not self.failing

    def spared_by(self, marks: Marks) -> bool:
        """Whether the next time is the one re-read that a compaction excuses."""
        return marks.compaction > self.step and not self.spared and not self.failing

    def restart(self, step: int) -> None:
        """Begin anew with the outcome of this step as the first."""
        self.count = self.numbers = self.alike = self.tight = 1
        self.doubted = self.spared = False
        self.tally.clear()
        self.grade = Grade.NEW
        self.evidence = [step]

    def note(self, step: int) -> None:
        """Add a step to the evidence."""
        self.evidence.append(step)
        if len(self.evidence) > _MAX_EVIDENCE:
            del self.evidence[1]

    def take(self, digest: bytes, answer: Answer | None, texts: Texts, *, known: bool, back_to_back: bool) -> None:
        """Count one more result.

        Args:
            digest: Its identity.
            answer: Its comparable form; None when it equals the latest one, or is not to be compared.
            texts: The texts of the call.
            known: Whether this call has given this result at any time in the run.
            back_to_back: Nothing new was learned since the last time.
        """
        if digest in self.tally:
            if self.ungraded:
                del self.evidence[0]  # it came to something else
            self.grade = Grade.EQUAL
            self.tally[digest] += 1
            self.numbers += 1
            self.alike += 1
        else:
            self.grade = Grade.NEW
            if answer is not None and self.answer is not None:
                self.grade = answer.grade_after(self.answer, texts)
            self._take_other(digest, known=known, back_to_back=back_to_back)
        self.ungraded = self.digest is None
        if answer is not None:
            self.answer = answer
        self.digest = digest
        self.count = self.tally[digest]

    def _take_other(self, digest: bytes, *, known: bool, back_to_back: bool) -> None:
        if len(self.tally) >= _MAX_TALLY:
            self.tally.clear()
        match self.grade:
            case Grade.ORDER | Grade.NO_NEW_WORDS:
                self.tally[digest] = self.count + 1 + self.ungraded
                self.tight += self.ungraded
                self.numbers += 1
                self.alike += 1 + self.ungraded
            case Grade.NUMBERS:
                self.numbers = self.numbers + 1 + self.ungraded if back_to_back else 1
                self.tally = {digest: 1}
                self.alike += 1
            case Grade.ALIKE:
                self.alike += 1 + self.ungraded
                self.numbers = 1
                self.tally = {digest: 1}
            case _:
                self.numbers = 1
                self.alike = 1
                self.tight = 1
                if known:
                    self.tally[digest] = 1
                else:
                    self.tally = {digest: 1}
                    self.doubted = self.spared = False
                    self.evidence = self.evidence[-1:] if self.digest is not None else self.evidence


class Streaks(OrderedDict[bytes, Streak]):
    """The calls of one run that happened at least twice, least recently used dropped."""

    __slots__ = ()

    def put(self, key: bytes, streak: Streak) -> None:
        """Start to follow a call."""
        self[key] = streak
        if len(self) > _MAX_STREAKS:
            self.popitem(last=False)
