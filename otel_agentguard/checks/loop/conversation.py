"""Agents that take turns and tell each other nothing new, in other words each time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from xxhash import xxh3_128_digest

from otel_agentguard import text, words
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.checks.loop.packed import PackedSet, word_identity
from otel_agentguard.events import Message, Similarity
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.protocols import RunInfo

_MAX_WORDS = 2048
_STALE_SHARE = 0.4
_MAX_AGENTS = 6
_MAX_TURNS = 3 * _MAX_AGENTS
_TEXT_CHARS = 8000


class Conversation:
    """What was said since something last happened.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
    """

    __slots__ = ("_marks", "_run", "_said", "_stale", "_turns")

    def __init__(self, run: RunInfo, marks: Marks) -> None:
        self._run = run
        self._marks = marks
        self._said: PackedSet | None = None
        self._turns: deque[tuple[int, str]] = deque(maxlen=_MAX_TURNS)
        self._stale = 0

    def clear(self) -> None:
        """Something new came in: what is said next may be new too."""
        self._said = None
        self._turns.clear()
        self._stale = 0

    def after(self, message: Message) -> Sequence[Finding]:
        """Take in a message."""
        if message.text is None:
            return ()
        if self._turns and self._marks.news > self._turns[-1][0]:
            self.clear()
        if self._turns and self._turns[-1][1] == message.agent:
            self._stale = 0
            self._turns.clear()
        share = self._known_share(message.text[:_TEXT_CHARS])
        self._stale = self._stale + 1 if share >= _STALE_SHARE else 0
        self._turns.append((message.step, message.agent))
        agents = {agent for _, agent in self._turns}
        rounds = len(self._turns) // len(agents)
        limits = self._run.settings.limits("pingpong")
        if limits.hint is None or len(agents) < 2 or rounds < limits.hint:
            return ()
        if self._stale < (limits.hint - 1) * len(agents):
            return ()
        message.repeats = max(message.repeats, rounds - 1)
        message.similarity = message.similarity or Similarity.NEAR
        return (self._finding(message, sorted(agents), rounds, limits),)

    def _known_share(self, content: str) -> float:
        said = self._said
        if said is None:
            said = self._said = PackedSet(_MAX_WORDS)
        told = text.content_words(content)
        if not told:
            return 1.0
        new = sum(said.add(word_identity(word)) for word in told)
        return 1.0 - new / len(told)

    def _finding(self, message: Message, agents: list[str], rounds: int, limits: Limits) -> Finding:
        evidence = tuple(step for step, _ in self._turns)
        hint = Limits(limits.hint)
        what = f"{' and '.join(agents)} told each other nothing new in {rounds} rounds"
        return Finding(
            check=CheckName.LOOP,
            kind=Kind.PINGPONG,
            severity=Severity.WARN,
            step=message.step,
            signature=xxh3_128_digest(f"reworded {' '.join(agents)}".encode()),
            message=words.reworded_talk(evidence[0], agents),
            explanation=words.to_people(what, evidence, "loop.pingpong", hint),
            limits=hint,
            evidence=evidence,
            agent=message.agent,
            count=rounds,
            score=0.7,
        )
