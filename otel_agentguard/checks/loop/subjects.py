"""Calls that ask about one subject and bring nothing new, in whatever words.

Two ways to share a subject: free text about the same things, or lookups that fail or come back
empty and share one rare identifier. Judged by what the answers add, never by likeness alone: in
ordinary work a subject is asked about many times, and each answer says something.

Answers are read when it matters. Nothing can be found before a subject has been asked about as often as
the limit says, so its latest answers are kept unread until then, and read together.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

from xxhash import xxh3_128_digest

from otel_agentguard import text, words
from otel_agentguard.checks.loop.answers import Texts
from otel_agentguard.checks.loop.likeness import is_prose
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.events import Effect, Outcome, Similarity, ToolCall
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.protocols import Embedder, RunInfo

_MAX_SUBJECTS = 4
_MAX_SUBJECT_WORDS = 64
_MAX_IDENTIFIERS = 64
_MAX_IDENTIFIERS_A_CALL = 8
_MAX_EVIDENCE = 10
_SHARED_SUBJECT = 0.5
_CLOSE_MEANING = 0.6
_NEW_SHARE = 0.15
_QUESTION_CHARS = 600
_ANSWER_CHARS = 4000
_MAX_UNREAD = 8
_UNREAD_CHARS = 16_000
_READ_CHARS = 6000
_SAYS_LITTLE_CHARS = 40
_RARE_CHARS = 6
_LOOKUP_CHARS = 400
_JOINED = re.compile(r"\w++(?:[-./:]++\w++)*+")
_JOINT = re.compile(r"[-./:]")
_RARE = re.compile(r"[^\W\d]+_\w+|[a-z]+[A-Z]\w*|[^\W\d]+\d\w*")
_QUOTED = re.compile(r"'[^']{0,400}'|\"[^\"]{0,400}\"")
_CHANGES = frozenset({Effect.WRITE, Effect.SIDE_EFFECT})


@dataclass(slots=True, eq=False)
class _Asked:
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


@dataclass(slots=True, eq=False)
class _Lookup(_Asked):
    """Lookups of one identifier.

    Attributes:
        errors: Identities of the errors that they came to.
    """

    errors: list[int] = field(default_factory=list)


class _Told(NamedTuple):
    """An answer that nobody has read yet; without text where it was given before."""

    step: int
    call: bytes | None
    content: str | None


@dataclass(slots=True, eq=False)
class _Subject(_Asked):
    """Questions about one subject.

    Attributes:
        question: The latest one.
        words: What they are about.
        meaning: What they mean, where an embedder is in use.
        unread: The latest answers, oldest first.
        read: Answers before those, as far as they are kept.
        digests: Identities of the latest answers.
    """

    question: str = ""
    words: set[str] = field(default_factory=set)
    meaning: Sequence[float] | None = None
    unread: list[_Told] = field(default_factory=list)
    read: deque[str] = field(default_factory=deque)
    digests: deque[bytes] = field(default_factory=lambda: deque(maxlen=_MAX_UNREAD))

    def unread_chars(self) -> int:
        """Characters of the unread answers."""
        return sum([len(told.content) for told in self.unread if told.content])

    def read_all(self) -> None:
        """Count what the unread answers bring."""
        known: set[str] | None = None
        for told in self.unread:
            adds = False
            if told.content is not None:
                if known is None:
                    known = set(text.words("\n".join(self.read)))
                said = text.words(told.content)
                adds = len(said - known) > _NEW_SHARE * len(said)
                known |= said
                self.read.append(told.content)
            if adds:
                self.begin()
            self.note(told.step, told.call)
        self.unread.clear()
        spare = sum(map(len, self.read)) - _READ_CHARS
        while spare > 0 and len(self.read) > 1:
            spare -= len(self.read.popleft())


class Subjects:
    """The subjects of one run.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
        embedder: Tells the meaning of texts; without one subjects are told apart by their words.
    """

    __slots__ = ("_embedder", "_identifiers", "_marks", "_prepare", "_run", "_subjects")

    def __init__(self, run: RunInfo, marks: Marks, embedder: Embedder | None = None) -> None:
        self._run = run
        self._marks = marks
        self._embedder = embedder
        self._prepare = getattr(embedder, "prepare", None)
        self._subjects: list[_Subject] = []
        self._identifiers: OrderedDict[str, _Lookup] = OrderedDict()

    def before(self, call: ToolCall) -> None:
        """Let a late embedder find the meaning of a question while its call runs."""
        if self._prepare is not None and (question := _question_of(call)) is not None:
            about = text.content_words(question)
            if self._lexically(about) is None:
                self._prepare([question])

    def after(self, call: ToolCall, texts: Texts) -> Sequence[Finding]:
        """Take in a call with its result."""
        if call.refused or call.served_from is not None or call.outcome is Outcome.NOT_EXECUTED:
            return ()
        if not call.arguments or call.result_digest is None:
            return ()
        if call.outcome is Outcome.OK and (question := _question_of(call)) is not None:
            return self._ask(call, question, texts)
        return self._look_up(call, texts)

    def _ask(self, call: ToolCall, question: str, texts: Texts) -> Sequence[Finding]:
        subject = next((subject for subject in self._subjects if subject.question == question), None)
        if subject is None:
            about = text.content_words(question)
            if not about:
                return ()
            subject = self._subject_of(about, question)
            subject.question = question
            if len(subject.words) < _MAX_SUBJECT_WORDS:
                subject.words |= about
        if self._marks.write > subject.step or self._marks.intent > subject.step:
            subject.read_all()
            subject.begin()
        subject.step = call.step
        self._tell(subject, call, texts)
        if self._may_climb(call, subject) or subject.unread_chars() > _UNREAD_CHARS:
            subject.read_all()
            return self._judge(call, subject, "prose")
        return ()

    def _may_climb(self, call: ToolCall, subject: _Subject) -> bool:
        """Whether the unread answers can bring the subject to its next limit, or are many."""
        limits = self._run.settings.limits("semantic", call.tool)
        ahead = [limit for limit in (limits.hint, limits.stop) if limit is not None and limit > subject.count]
        unread = len(subject.unread)
        return unread >= _MAX_UNREAD or (bool(ahead) and subject.count + unread >= min(ahead))

    def _tell(self, subject: _Subject, call: ToolCall, texts: Texts) -> None:
        """Keep an answer unread, where the same was not given lately."""
        digest = call.result_digest or b""
        content = None
        if digest not in subject.digests:
            subject.digests.append(digest)
            content = text.text_of(texts.answer, _ANSWER_CHARS)[:_ANSWER_CHARS]
        subject.unread.append(_Told(call.step, call.fingerprint, content))
        if subject is not self._subjects[-1]:
            self._subjects.remove(subject)
            self._subjects.append(subject)
        others = self._subjects[:-1]
        if sum([other.unread_chars() for other in others]) > _UNREAD_CHARS:
            others[0].read_all()

    def _subject_of(self, about: frozenset[str], question: str) -> _Subject:
        if (known := self._lexically(about)) is not None:
            return known
        meaning = self._meaning(question)
        if meaning is not None:
            for subject in self._subjects:
                if subject.meaning is None:
                    subject.meaning = self._meaning(subject.question)
                if subject.meaning is not None and _dot(meaning, subject.meaning) >= _CLOSE_MEANING:
                    return subject
        if len(self._subjects) == _MAX_SUBJECTS:
            del self._subjects[0]
        new = _Subject(0, words=set(about), meaning=meaning)
        self._subjects.append(new)
        return new

    def _lexically(self, about: frozenset[str]) -> _Subject | None:
        best = max(self._subjects, key=lambda subject: _overlap(about, subject.words), default=None)
        return best if best is not None and _overlap(about, best.words) >= _SHARED_SUBJECT else None

    def _meaning(self, question: str) -> list[float] | None:
        """The meaning as a vector of length 1; None without an embedder, or where it does not know yet."""
        vector = self._embedder.embed([question])[0] if self._embedder is not None else None
        if vector is None:
            return None
        numbers = list(map(float, vector))
        length = _dot(numbers, numbers) ** 0.5
        return [number / length for number in numbers] if length else None

    def _look_up(self, call: ToolCall, texts: Texts) -> Sequence[Finding]:
        asked = texts.asked[:_ANSWER_CHARS]
        if call.outcome is Outcome.OK:
            if not (text.is_empty_answer(texts.answer) or texts.echoes):
                self._found(asked)
                return ()
            error = None
        else:
            if len(asked) > _LOOKUP_CHARS:
                return ()
            error = _error_of(texts)
        findings: Sequence[Finding] = ()
        for identifier in _identifiers(asked):
            lookup = self._identifiers.get(identifier)
            if lookup is None or self._marks.write > lookup.step:
                lookup = self._begin(identifier, call.step)
            if error is not None and not self._same_failure(lookup, error):
                continue
            lookup.step = call.step
            lookup.note(call.step, call.fingerprint)
            findings = findings or self._judge(call, lookup, identifier)
        return findings

    def _begin(self, identifier: str, step: int) -> _Lookup:
        lookup = self._identifiers[identifier] = _Lookup(step)
        if len(self._identifiers) > _MAX_IDENTIFIERS:
            self._identifiers.popitem(last=False)
        return lookup

    def _found(self, asked: str) -> None:
        """An answer said something: what was asked about is no longer sought in vain."""
        if any(identifier in asked for identifier in self._identifiers):
            for identifier in _identifiers(asked):
                self._identifiers.pop(identifier, None)

    def _same_failure(self, lookup: _Lookup, error: int) -> bool:
        """Whether a failure says no more than those before."""
        known = not lookup.errors or error in lookup.errors
        if error not in lookup.errors and len(lookup.errors) < _MAX_EVIDENCE:
            lookup.errors.append(error)
        return known

    def _judge(self, call: ToolCall, asked: _Asked, subject: str) -> Sequence[Finding]:
        limits = self._run.settings.limits("semantic", call.tool)
        if limits.hint is None or asked.count < limits.hint or not asked.varied:
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


def _question_of(call: ToolCall) -> str | None:
    """The free text among the arguments of a call that only asks; its beginning, which tells the subject."""
    if call.effect in _CHANGES or not call.arguments:
        return None
    prose = [value for value in call.arguments.values() if isinstance(value, str) and _is_question(value)]
    return " ".join(prose)[:_QUESTION_CHARS] if prose else None


def _is_question(value: str) -> bool:
    return len(value) < _ANSWER_CHARS and is_prose(value)


def _overlap(one: frozenset[str], other: set[str]) -> float:
    return len(one & other) / min(len(one), len(other)) if one and other else 0.0


def _identifiers(asked: str) -> list[str]:
    """The names in a call that are rare by their form: joined by signs, mixed with digits, or in camel case."""
    found: set[str] = set()
    for run in _JOINED.findall(asked):
        if len(run) >= _RARE_CHARS:
            found.update([run] if _JOINT.search(run) else _RARE.findall(run))
    return sorted(name for name in found if len(name) >= _RARE_CHARS)[:_MAX_IDENTIFIERS_A_CALL]


def _error_of(texts: Texts) -> int | None:
    """Identity of an error; None where it says too little to tell it from another."""
    if len(texts.answer) <= _SAYS_LITTLE_CHARS:
        return None
    return hash(_QUOTED.sub("", text.text_of(texts.masked, _ANSWER_CHARS)))


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    return float(sum(map(mul, one, other)))
