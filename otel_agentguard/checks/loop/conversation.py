"""Agents that take turns and tell each other nothing new, in other words each time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from xxhash import xxh3_128_digest

from otel_agentguard import text, words
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.events import Handoff, Message, Similarity
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.packed import PackedSet, word_identity
from otel_agentguard.protocols import RunInfo

_MAX_WORDS = 2048
_STALE_SHARE = 0.4
_STALE_SHARE_ALONE = 0.7  # where only one of them says anything, as much as makes an answer one without new words
_STALE_SHARE_OF_FRAMES = 0.7  # code, tables and lists repeat their frames and say something new in them
_FRAME = re.compile(r"^\s*(?:```|~~~|\||[-*+] |\d+[.)] )", re.MULTILINE)
_FEW_WORDS = 8  # in a shorter message one word is more than a tenth
_MAX_AGENTS = 6
_MAX_TURNS = 3 * _MAX_AGENTS
_TEXT_CHARS = 8000


class _Turn(NamedTuple):
    """What one agent said.

    Attributes:
        step: When.
        agent: Who.
        words: How many words that carry content.
        known: How many of them had been said before.
        formal: It is as short as a set phrase.
        framed: It holds code, a table or a list.
    """

    step: int
    agent: str
    words: int
    known: int
    formal: bool
    framed: bool


class Conversation:
    """What was said since something last happened.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
    """

    __slots__ = ("_marks", "_run", "_said", "_turns")

    def __init__(self, run: RunInfo, marks: Marks) -> None:
        self._run = run
        self._marks = marks
        self._said: PackedSet | None = None
        self._turns: list[_Turn] = []

    def clear(self) -> None:
        """Something new came in: what is said next may be new too."""
        self._said = None
        self._turns.clear()

    def after(self, message: Message | Handoff) -> Sequence[Finding]:
        """Take in a message, or what was handed over."""
        if not message.text:
            return ()
        if self._turns and self._marks.news > self._turns[-1].step:
            self.clear()
        if self._turns and self._turns[-1].agent == message.agent:
            self._turns.clear()
        self._turns = [*self._turns[1 - _MAX_TURNS :], self._turn(message, message.text)]
        limits = self._run.settings.limits("pingpong")
        agents = sorted({turn.agent for turn in self._turns})
        rounds = len(self._turns) // len(agents)
        if limits.hint is None or len(agents) < 2 or rounds < limits.hint:
            return ()
        late = list(islice(reversed(self._turns), (limits.hint - 1) * len(agents)))
        if not _stale(late, agents):
            return ()
        message.repeats = max(message.repeats, rounds - 1)
        message.similarity = message.similarity or Similarity.NEAR
        return (self._finding(message, agents, rounds, Limits(limits.hint)),)

    def _turn(self, message: Message | Handoff, content: str) -> _Turn:
        said = self._said
        if said is None:
            said = self._said = PackedSet(_MAX_WORDS)
        told = text.content_words(content[:_TEXT_CHARS])
        new = sum(said.add(word_identity(word)) for word in told)
        framed = _FRAME.search(content[:_TEXT_CHARS]) is not None
        return _Turn(message.step, message.agent, len(told), len(told) - new, text.is_short(content), framed)

    def _finding(self, message: Message | Handoff, agents: list[str], rounds: int, limits: Limits) -> Finding:
        evidence = tuple(turn.step for turn in self._turns)
        what = f"{' and '.join(agents)} told each other nothing new in {rounds} rounds"
        return Finding(
            check=CheckName.LOOP,
            kind=Kind.PINGPONG,
            severity=Severity.WARN,
            step=message.step,
            signature=xxh3_128_digest(f"reworded {' '.join(agents)}".encode()),
            message=words.reworded_talk(evidence[0], agents),
            explanation=words.to_people(what, evidence, "loop.pingpong", limits),
            limits=limits,
            evidence=evidence,
            agent=message.agent,
            count=rounds,
            score=0.7,
        )


def _stale(turns: list[_Turn], agents: Sequence[str]) -> bool:
    """Whether what was said lately had been said before.

    A long message is judged by itself, an agent's short ones together. Formal ones, such as "Next speaker: tester",
    say nothing and prove nothing: whoever sends no others leaves the other one alone.
    """
    spoken = [turn for turn in turns if not turn.formal]
    needed = _STALE_SHARE if len({turn.agent for turn in spoken}) == len(agents) else _STALE_SHARE_ALONE
    spoken = spoken or turns
    if any(turn.framed for turn in spoken):
        needed = max(needed, _STALE_SHARE_OF_FRAMES)
    speakers = {turn.agent for turn in spoken}
    if any(turn.known < needed * turn.words for turn in spoken if turn.words >= _FEW_WORDS):
        return False
    brief = [turn for turn in spoken if turn.words < _FEW_WORDS]
    return all(
        sum(turn.known for turn in brief if turn.agent == speaker)
        >= needed * sum(turn.words for turn in brief if turn.agent == speaker)
        for speaker in speakers
    )
