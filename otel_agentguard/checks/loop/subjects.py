"""Free-text questions about one subject whose answers bring nothing new, in whatever words.

Judged by what the answers add, never by likeness alone: in ordinary work a subject is asked about many
times, and each answer says something.

Answers are read when it matters. Nothing can be found before a subject has been asked about as often as
the limit says, so its latest answers are kept unread until then, and read together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

from otel_agentguard import text
from otel_agentguard.checks.loop.answers import NEW_SHARE, Texts, acknowledges
from otel_agentguard.checks.loop.asked import Asked, judged
from otel_agentguard.checks.loop.heard import Heard
from otel_agentguard.checks.loop.likeness import is_prose
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.events import UNKNOWN_EFFECT, Effect, ToolCall
from otel_agentguard.findings import Finding
from otel_agentguard.protocols import Embedder, RunInfo
from otel_agentguard.reading import surely_writes
from otel_agentguard.stopwords import STOP_WORDS

_MAX_SUBJECTS = 4
_MAX_SUBJECT_WORDS = 64
_SHARED_SUBJECT = 0.5
_SHARED_UNSPACED = 0.3  # half of the pairs of characters straddle two words, and those vary with the wording
_ITEM_WORDS = 2
_CLOSE_MEANING = 0.6
_FEW_LINES = 3
_QUESTION_CHARS = 600
_VALUE_CHARS = 80
_LONGEST_QUESTION_CHARS = 4000
_ANSWER_CHARS = 3000  # two hundred different words or so: a share of 0.15 is known to within 0.03
_MAX_UNREAD = 8
_UNREAD_CHARS = 9000
_READ_CHARS = 6000
_ASKS = frozenset({Effect.READ, Effect.PURE, Effect.UNKNOWN, Effect.GENERATOR, Effect.CURSOR})
_PARTS = re.compile(r"\w+")
_NO_SIGNS = str.maketrans(dict.fromkeys(".,;:!?()[]{}\"'`*|<>=…。、，！？：；「」（）", " "))


class _Told(NamedTuple):
    """An answer that nobody has read yet; without text where it was given before."""

    step: int
    call: bytes | None
    content: str | None


class _Read(NamedTuple):
    """An answer that was read: how long it was, and each of its words once."""

    chars: int
    words: str


class _Question:
    """A question, with what is asked of it as soon as somebody does.

    Attributes:
        text: Its text.
        about: What it is about: its content words, compounds in parts, without the s of a plural.
    """

    __slots__ = ("_names", "about", "text")

    def __init__(self, content: str) -> None:
        self.text = content
        self.about = _about(content)
        self._names: frozenset[str] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The parts of what it names, folded to one case."""
        names = self._names
        if names is None:
            names = self._names = _names(self.text)
        return names


@dataclass(slots=True, eq=False)
class _Subject(Asked):
    """Questions about one subject.

    Attributes:
        question: The latest one.
        latest: What the latest one is about.
        words: What they are all about.
        names: What any of them names.
        core: What all of them name; None while there is one question, whose names nobody needed.
        meaning: What they mean, where an embedder is in use.
        unread: The latest answers, oldest first.
        unread_chars: Characters of those.
        read: The answers before those, as far as they are kept.
        digests: Identities of the latest answers.
    """

    question: str = ""
    latest: frozenset[str] = frozenset()
    words: set[str] = field(default_factory=set)
    names: frozenset[str] = frozenset()
    core: frozenset[str] | None = None
    meaning: Sequence[float] | None = None
    unread: list[_Told] = field(default_factory=list)
    unread_chars: int = 0
    read: list[_Read] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def is_about(self, question: _Question, *, unspaced: bool) -> bool:
        """Whether a question is one about this subject, by its words."""
        shared = len(question.about & self.words)
        needed = _SHARED_UNSPACED if unspaced else _SHARED_SUBJECT
        return 0 < shared >= needed * min(len(question.about), len(self.words)) and self.may_name(question)

    def may_name(self, question: _Question) -> bool:
        """Whether a question names the same things: one that puts another name in the place of one asks anew."""
        if self.core is None:
            self.core = self.names = _names(self.question)
        return self.core <= question.names or not question.names - self.names - self.words

    def widen(self, question: _Question) -> None:
        """Take in the words of a question."""
        self.question = question.text
        self.latest = question.about
        if self.core is not None:
            self.core &= question.names
            if len(self.names) < _MAX_SUBJECT_WORDS:
                self.names |= question.names
        if len(self.words) < _MAX_SUBJECT_WORDS:
            self.words |= question.about

    def tell(self, told: _Told) -> None:
        """Keep an answer until it is read."""
        self.unread.append(told)
        self.unread_chars += len(told.content or "")

    def read_all(self) -> int:
        """Count what the unread answers bring.

        Returns:
            How many of them are not those of before, and yet brought nothing new.
        """
        idle = 0
        known = set(" ".join([read.words for read in self.read]).split()) if self.unread_chars else set()
        for told in self.unread:
            adds = False
            if told.content is not None:
                said = _plain_words(told.content)
                fresh = said - known - STOP_WORDS
                adds = len(fresh) > NEW_SHARE * len(said) or _has_new_line(told.content, fresh)
                known |= said
                idle += not adds and self.count > 0
                self.read.append(_Read(len(told.content), " ".join(said)))
            if adds:
                self.begin()
            self.note(told.step, told.call)
        self.unread.clear()
        self.unread_chars = 0
        spare = sum([read.chars for read in self.read]) - _READ_CHARS
        while spare > 0 and len(self.read) > 1:
            spare -= self.read.pop(0).chars
        return idle


class Subjects:
    """The subjects of one run.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
        heard: What was said to the agents.
        embedder: Tells the meaning of texts; without one subjects are told apart by their words.
    """

    __slots__ = ("_embedder", "_heard", "_marks", "_prepare", "_run", "_subjects")

    def __init__(self, run: RunInfo, marks: Marks, heard: Heard, embedder: Embedder | None = None) -> None:
        self._run = run
        self._marks = marks
        self._heard = heard
        self._embedder = embedder
        self._prepare = getattr(embedder, "prepare", None)
        self._subjects: list[_Subject] = []

    def before(self, call: ToolCall) -> None:
        """Let a late embedder find the meaning of a question while its call runs."""
        if self._prepare is None or (asked := question_of(call, Texts(call).strings)) is None:
            return
        if self._lexically(_Question(asked)) is None:
            self._prepare([asked])

    def after(self, call: ToolCall, asked: str, texts: Texts) -> Sequence[Finding]:
        """Take in a question with its answer."""
        if call.effect is UNKNOWN_EFFECT and (not texts.answer.strip() or acknowledges(texts.answer)):
            return ()
        subject = next((subject for subject in self._subjects if subject.question == asked), None)
        if subject is None:
            question = _Question(asked)
            if not question.about:
                return ()
            subject = self._subject_of(question)
            subject.widen(question)
        if self._marks.write > subject.step or self._marks.intent > subject.step:
            self._run.progress -= subject.read_all()
            subject.begin()
        subject.step = call.step
        self._tell(subject, call, texts)
        if self._may_climb(call, subject) or subject.unread_chars > _UNREAD_CHARS:
            self._run.progress -= subject.read_all()
            return judged(self._run, call, subject, "prose")
        return ()

    def _may_climb(self, call: ToolCall, subject: _Subject) -> bool:
        """Whether the unread answers can bring the subject to its next limit, or are many."""
        count = subject.count + len(subject.unread)
        if len(subject.unread) >= _MAX_UNREAD:
            return True
        limits = self._run.settings.limits("semantic", call.tool)
        return any(limit is not None and subject.count < limit <= count for limit in (limits.hint, limits.stop))

    def _tell(self, subject: _Subject, call: ToolCall, texts: Texts) -> None:
        """Keep an answer unread, where the same was not given lately."""
        digest = call.result_digest or b""
        content = None
        if digest not in subject.digests:
            subject.digests = [*subject.digests[1 - _MAX_UNREAD :], digest]
            content = text.text_of(texts.answer, _ANSWER_CHARS)[:_ANSWER_CHARS]
        subject.tell(_Told(call.step, call.fingerprint, content))
        subjects = self._subjects
        if subject is not subjects[-1]:
            subjects.remove(subject)
            subjects.append(subject)
        if sum([other.unread_chars for other in subjects]) - subject.unread_chars > _UNREAD_CHARS:
            self._run.progress -= subjects[0].read_all()

    def _subject_of(self, question: _Question) -> _Subject:
        if (known := self._lexically(question)) is not None:
            return known
        meaning = self._meaning(question.text)
        if meaning is not None:
            for subject in self._subjects:
                if subject.meaning is None:
                    subject.meaning = self._meaning(subject.question)
                if subject.meaning is None or not subject.may_name(question):
                    continue
                if _dot(meaning, subject.meaning) >= _CLOSE_MEANING:
                    return subject
        if len(self._subjects) == _MAX_SUBJECTS:
            del self._subjects[0]
        new = _Subject(0, meaning=meaning)
        self._subjects.append(new)
        return new

    def _lexically(self, question: _Question) -> _Subject | None:
        unspaced = text.is_unspaced(question.text)
        for subject in reversed(self._subjects):
            if subject.is_about(question, unspaced=unspaced):
                return None if self._is_next_item(question.about, subject) else subject
        return None

    def _is_next_item(self, about: frozenset[str], subject: _Subject) -> bool:
        """Whether a question puts something that a tool told of in the place of something else."""
        fresh = about - subject.latest
        if len(fresh) > _ITEM_WORDS or len(fresh) != len(subject.latest - about):
            return False
        return self._heard.told(fresh - subject.words, by_tools=True)

    def _meaning(self, question: str) -> list[float] | None:
        """The meaning as a vector of length 1; None without an embedder, or where it does not know yet."""
        vector = self._embedder.embed([question])[0] if self._embedder is not None else None
        if vector is None:
            return None
        numbers = list(map(float, vector))
        length = _dot(numbers, numbers) ** 0.5
        return [number / length for number in numbers] if length else None


def question_of(call: ToolCall, strings: Sequence[str]) -> str | None:
    """The free text among the arguments of a call that only asks, and what else it asks for.

    Its beginning, which tells the subject; with numbers and short values, since page 2 is not page 3.

    Args:
        call: The call.
        strings: The texts among its arguments.
    """
    if call.effect not in _ASKS:
        return None
    prose = [value for value in strings if _is_question(value)]
    if not prose or (call.effect is UNKNOWN_EFFECT and surely_writes(call)):
        return None
    beside: list[str] = []
    for value in (call.arguments or {}).values():
        if type(value) is int:
            beside.append(str(value))
        elif isinstance(value, str) and value not in prose:
            beside.append(value)
    return " ".join([*(value for value in beside if len(value) <= _VALUE_CHARS), *prose])[:_QUESTION_CHARS]


def _is_question(value: str) -> bool:
    return len(value) < _LONGEST_QUESTION_CHARS and is_prose(value)


def _about(question: str) -> frozenset[str]:
    parts = " ".join(text.content_words(question)).replace("-", " ").split()
    return frozenset([part.removesuffix("s") for part in parts])


def _names(question: str) -> frozenset[str]:
    return frozenset(_PARTS.findall(" ".join(text.names(question)).casefold()))


def _has_new_line(content: str, fresh: frozenset[str]) -> bool:
    """Whether a line of several is mostly new, as one more entry of a list is."""
    if not fresh or content.count("\n") < _FEW_LINES - 1:
        return False
    for line in content.lower().split("\n"):
        if any(map(line.__contains__, fresh)):
            told = _plain_words(line) - STOP_WORDS
            if 2 * len(told & fresh) >= len(told) > 0:
                return True
    return False


def _plain_words(content: str) -> frozenset[str]:
    """The words of an answer without case and signs, which vary with the order of the words."""
    return text.words(content.lower().translate(_NO_SIGNS))


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    return float(sum(map(mul, one, other)))
