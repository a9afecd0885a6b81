"""Calls that ask about one subject and bring nothing new, in whatever words.

Two ways to share a subject: free text about the same things, or lookups that fail or come back
empty and share one rare identifier. Judged by what the answers add, never by likeness alone: in
ordinary work a subject is asked about many times, and each answer says something.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_128_digest

from otel_agentguard import text, words
from otel_agentguard.checks.loop.answers import echoes, own_words
from otel_agentguard.checks.loop.likeness import is_prose
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.checks.loop.packed import PackedSet, word_identity
from otel_agentguard.events import Effect, Outcome, Similarity, ToolCall
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.protocols import Embedder, RunInfo

_MAX_SUBJECTS = 4
_MAX_SUBJECT_WORDS = 64
_MAX_KNOWN_WORDS = 1024
_MAX_IDENTIFIERS = 64
_MAX_IDENTIFIERS_A_CALL = 8
_MAX_EVIDENCE = 10
_SHARED_SUBJECT = 0.5
_CLOSE_MEANING = 0.6
_NEW_SHARE = 0.15
_ANSWER_CHARS = 4000
_SAYS_LITTLE_CHARS = 40
_RARE_CHARS = 6
_LOOKUP_CHARS = 400
_IDENTIFIER = re.compile(r"\w+(?:[-./:]+\w+)+|[^\W\d]+_\w+|[a-z]+[A-Z]\w*|[^\W\d]+\d\w*")
_QUOTED = re.compile(r"'[^']{0,400}'|\"[^\"]{0,400}\"")
_CHANGES = frozenset({Effect.WRITE, Effect.SIDE_EFFECT})


@dataclass(slots=True, eq=False)
class _Asked:
    step: int
    count: int = 1
    calls: set[bytes] = field(default_factory=set)
    evidence: list[int] = field(default_factory=list)

    def note(self, call: ToolCall) -> None:
        self.step = call.step
        self.evidence.append(call.step)
        if len(self.evidence) > _MAX_EVIDENCE:
            del self.evidence[1]
        if call.fingerprint is not None and len(self.calls) < _MAX_EVIDENCE:
            self.calls.add(call.fingerprint)


@dataclass(slots=True, eq=False)
class _Lookup(_Asked):
    errors: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Subject(_Asked):
    words: set[str] = field(default_factory=set)
    meaning: Sequence[float] | None = None
    known: PackedSet = field(default_factory=lambda: PackedSet(_MAX_KNOWN_WORDS))


class Subjects:
    """The subjects of one run.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
        embedder: Tells the meaning of texts; without one subjects are told apart by their words.
    """

    __slots__ = ("_embedder", "_identifiers", "_marks", "_run", "_subjects")

    def __init__(self, run: RunInfo, marks: Marks, embedder: Embedder | None = None) -> None:
        self._run = run
        self._marks = marks
        self._embedder = embedder
        self._subjects: deque[_Subject] = deque(maxlen=_MAX_SUBJECTS)
        self._identifiers: OrderedDict[str, _Lookup] = OrderedDict()

    def after(self, call: ToolCall) -> Sequence[Finding]:
        """Take in a call with its result."""
        if call.refused or call.served_from is not None or call.outcome is Outcome.NOT_EXECUTED:
            return ()
        if call.arguments is None or call.result_digest is None:
            return ()
        texts = [value for value in call.arguments.values() if isinstance(value, str)]
        if not texts:
            return ()
        prose = [value for value in texts if len(value) < _ANSWER_CHARS and is_prose(value)]
        if prose and call.effect not in _CHANGES and call.outcome is Outcome.OK:
            return self._ask(call, " ".join(prose))
        return self._look_up(call, own_words(call.arguments)[:_ANSWER_CHARS])

    def _ask(self, call: ToolCall, question: str) -> Sequence[Finding]:
        about = set(text.content_words(question))
        if not about:
            return ()
        subject = self._subject_of(about, question)
        if subject is None:
            subject = _Subject(call.step, words=about, meaning=self._meaning(question))
            self._subjects.append(subject)
            self._adds(subject, call)
            subject.note(call)
            return ()
        if self._marks.write > subject.step or self._marks.intent > subject.step or self._adds(subject, call):
            subject.count = 1
            subject.evidence.clear()
            subject.calls.clear()
        else:
            subject.count += 1
        subject.note(call)
        if len(subject.words) < _MAX_SUBJECT_WORDS:
            subject.words |= about
        return self._judge(call, subject, "prose")

    def _subject_of(self, about: set[str], question: str) -> _Subject | None:
        best = max(self._subjects, key=lambda subject: _overlap(about, subject.words), default=None)
        if best is not None and _overlap(about, best.words) >= _SHARED_SUBJECT:
            return best
        meaning = self._meaning(question)
        if meaning is None:
            return None
        for subject in self._subjects:
            if subject.meaning is not None and _cosine(meaning, subject.meaning) >= _CLOSE_MEANING:
                return subject
        return None

    def _meaning(self, question: str) -> Sequence[float] | None:
        return self._embedder.embed([question])[0] if self._embedder is not None else None

    def _adds(self, subject: _Subject, call: ToolCall) -> bool:
        """Whether the answer says something that no earlier one on this subject said."""
        told = text.words(text.text_of(call.result, _ANSWER_CHARS)[:_ANSWER_CHARS])
        new = sum(subject.known.add(word_identity(word)) for word in told)
        return new > _NEW_SHARE * len(told)

    def _look_up(self, call: ToolCall, asked: str) -> Sequence[Finding]:
        if call.outcome is not Outcome.OK and len(asked) > _LOOKUP_CHARS:
            return ()
        content = text.text_of(call.result, _ANSWER_CHARS)
        findings: Sequence[Finding] = ()
        for identifier in _identifiers(asked):
            lookup = self._identifiers.get(identifier)
            if lookup is not None and self._marks.write > lookup.step:
                lookup = None
            tells = self._tells(call, lookup, content, asked)
            if tells is None:
                continue
            if tells:
                self._identifiers.pop(identifier, None)
                continue
            if lookup is None:
                lookup = _Lookup(call.step, count=0)
                self._identifiers[identifier] = lookup
                if len(self._identifiers) > _MAX_IDENTIFIERS:
                    self._identifiers.popitem(last=False)
            lookup.count += 1
            lookup.note(call)
            findings = findings or self._judge(call, lookup, identifier)
        return findings

    def _tells(self, call: ToolCall, lookup: _Lookup | None, content: str, asked: str) -> bool | None:
        """Whether the answer says something about what was asked; None where it says something else."""
        if call.outcome is Outcome.OK:
            return not (text.is_empty_answer(content) or echoes(content, asked))
        if len(content) <= _SAYS_LITTLE_CHARS:
            return False
        error = hash(text.mask(_QUOTED.sub("", content)))
        if lookup is None or not lookup.errors or error in lookup.errors:
            if lookup is not None and len(lookup.errors) < _MAX_EVIDENCE:
                lookup.errors.add(error)
            return False
        lookup.errors.add(error)
        return None

    def _judge(self, call: ToolCall, asked: _Asked, subject: str) -> Sequence[Finding]:
        limits = self._run.settings.limits("semantic", call.tool)
        if limits.hint is None or asked.count < limits.hint or len(asked.calls) < 2:
            return ()
        call.repeats = max(call.repeats, asked.count - 1)
        call.similarity = call.similarity or Similarity.SEMANTIC
        evidence = tuple(asked.evidence)
        return (
            Finding(
                check=CheckName.LOOP,
                kind=Kind.SEMANTIC,
                severity=Severity.WARN,
                step=call.step,
                signature=xxh3_128_digest(f"semantic {subject} {evidence[0]}".encode()),
                message=words.same_subject(evidence[0], asked.count),
                explanation=words.to_people(
                    f"{asked.count} calls on one subject brought nothing new", evidence, "loop.semantic", limits
                ),
                limits=Limits(limits.hint, None, limits.stop),
                evidence=evidence,
                agent=call.agent,
                tool=call.tool,
                count=asked.count,
                score=0.6,
            ),
        )


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / min(len(one), len(other)) if one and other else 0.0


def _identifiers(asked: str) -> list[str]:
    """The names in a call that are rare by their form: joined by signs, mixed with digits, or in camel case."""
    return sorted({name for name in _IDENTIFIER.findall(asked) if len(name) >= _RARE_CHARS})[:_MAX_IDENTIFIERS_A_CALL]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    norm = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    return float(dot / norm) if norm else 0.0
