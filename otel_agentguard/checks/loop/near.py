"""Near repeats: calls of one tool that differ a little and come to the same outcome.

Only hints: a likeness never refuses a call. A call is compared with the members of one family, the
recent calls of the same tool with the same outcome, so a healthy run pays for one lookup a step.
"""

from __future__ import annotations

import re
import string
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from xxhash import xxh3_128_digest

from otel_agentguard import text, words
from otel_agentguard.checks.loop.answers import LEFT_OUT, Texts, acknowledges
from otel_agentguard.checks.loop.changes import CHANGING
from otel_agentguard.checks.loop.heard import Heard
from otel_agentguard.checks.loop.likeness import Form, Likeness, changed_words, form_of, likeness, size_of
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.events import OK, Similarity, ToolCall
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.protocols import RunInfo
from otel_agentguard.reading import surely_writes

NEAR_ROWS = ("near_words", "near_token", "near_entity_error", "near_entity", "same_error")
_MAX_FAMILIES = 24
_MAX_MEMBERS = 4
_MAX_EVIDENCE = 10
_MASKED_CHARS = 4000
_MAX_CHARS = 8000
_QUOTED = re.compile(r"'[^'\n]{0,80}'|\"[^\"\n]{0,80}\"|`[^`\n]{0,80}`|\[[^\]\n]{0,80}\]")

_TEXTLESS = b"?"
_ECHO = b"="
_ECHO_MIN_CHARS = 8
_ECHO_CHARS = 200
_NO_SIGNS = str.maketrans(dict.fromkeys(set(f"{text.PUNCTUATION}{LEFT_OUT}") - {"_", "#"}, " "))
_WORD = re.compile(r"[\w#]+")
_MAX_QUOTED = 64
_MAX_TOLD = 256
_MAX_NEWS = 6  # as often as unrelated calls may fail alike: told that much, an agent gets no further
_NOTHING_TOLD: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class _Member:
    """A call as it is compared.

    `counts[likeness]` is how many calls are linked to it by that likeness or a closer one.
    """

    form: Form
    counts: list[int] = field(default_factory=lambda: [1, 1, 1, 1])


class _First(NamedTuple):
    """The only call so far of one tool with one outcome.

    `told` holds the words that its error quotes, and those that earlier ones did; `news` is how often one of them
    told something new; `size` is how many characters are kept of it.
    """

    step: int
    form: Form
    named: bytes
    kind: bytes
    told: frozenset[str] = _NOTHING_TOLD
    news: int = 0
    size: int = 0


@dataclass(slots=True, eq=False)
class _Family:
    """Several calls of one tool with one outcome."""

    step: int
    members: deque[_Member]
    named: bytes
    kinds: set[bytes]
    evidence: list[int]
    told: frozenset[str]
    news: int
    doubted: bool = False

    @classmethod
    def of(cls, first: _First) -> _Family:
        """The family that a first call begins."""
        members = deque([_Member(first.form)], maxlen=_MAX_MEMBERS)
        return cls(first.step, members, first.named, {first.kind}, [first.step], first.told, first.news)

    @property
    def size(self) -> int:
        """Characters that are kept of it."""
        return sum(size_of(member.form) for member in self.members)


class Near:
    """The near repeats of one run.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
        heard: What was said to the agents.
    """

    __slots__ = ("_errors", "_families", "_heard", "_kept_chars", "_marks", "_run")

    def __init__(self, run: RunInfo, marks: Marks, heard: Heard) -> None:
        self._run = run
        self._marks = marks
        self._errors: dict[int, None] = {}
        self._families: OrderedDict[tuple[str, bytes], _Family | _First] = OrderedDict()
        self._kept_chars = 0
        self._heard = heard

    def after(self, call: ToolCall, texts: Texts) -> Sequence[Finding]:
        """Take in a call that ran, with its result; asked before the exact layer notes its effect."""
        if call.fingerprint is None or call.arguments is None:
            return ()
        failing = self._fails(call, texts)
        if not failing and call.effect in CHANGING:
            return ()
        outcome, named = self._outcome(call, texts, failing=failing)
        key = (call.tool, outcome)
        family = self._families.get(key)
        form = form_of(call.arguments)
        told = _quoted_words(texts) if failing else _NOTHING_TOLD
        if failing and family is None:
            family = self._adopt_textless(key, form, named, told)
        known, news = (_NOTHING_TOLD, 0) if family is None else (family.told, family.news)
        tells_more = bool(told) and news < _MAX_NEWS and _tells_more(call, told - known)
        if family is None or tells_more or self._broken(family, failing=failing):
            told, news = _latest(told, known), news + tells_more
            self._keep(key, _First(call.step, form, named, call.fingerprint, told, news, size_of(form)))
            if not failing:
                self._heard.add(texts.answer, from_tool=True)
            return ()
        self._forget(key)
        if isinstance(family, _First):
            family = _Family.of(family)
        family.told = _latest(told, known)
        links = [(likeness(member.form, form, failing=failing), member) for member in family.members]
        if named != family.named:
            links = [(max(likest, Likeness.TOKEN), member) for likest, member in links]
        likest = min(likest for likest, _ in links)
        latest, family.named = family.members[-1].form, named
        acknowledged = not failing and acknowledges(texts.answer)
        joined = self._join(family, call, links, form, acknowledged=acknowledged)
        self._keep(key, family)
        if len(family.kinds) < 2:
            return ()
        rows = _rows(call, texts, likest, failing=failing, acknowledged=acknowledged)
        return self._judge(family, call, joined, latest, rows, failing=failing)

    def _fails(self, call: ToolCall, texts: Texts) -> bool:
        """Whether a call failed, or says what an earlier failure said: behind a pipe the status is lost."""
        if call.outcome is OK:
            return bool(self._errors) and hash((call.tool, texts.answer)) in self._errors
        if not text.is_short(texts.answer):
            self._errors[hash((call.tool, texts.answer))] = None
            if len(self._errors) > _MAX_FAMILIES:
                del self._errors[next(iter(self._errors))]
        return True

    def _outcome(self, call: ToolCall, texts: Texts, *, failing: bool) -> tuple[bytes, bytes]:
        """Identity of the outcome without the caller's own words; for failures with and without quoted names."""
        result = call.result
        if not failing and isinstance(result, str) and len(result) > _MASKED_CHARS:
            return call.result_digest or b"", b""
        if failing and not texts.answer:
            return _TEXTLESS, b""
        if failing:
            masked = text.text_of(texts.masked, 2 * _MASKED_CHARS)
            return _digest(_only_words(_QUOTED.sub(" ", masked))) + b"!", _digest(_only_words(masked))
        if _says_back(texts):
            return _ECHO, b""
        bare = texts.bare
        return _digest("\n".join(sorted(bare.split("\n"))) if "\n" in bare else bare), b""

    def _adopt_textless(self, key: tuple[str, bytes], form: Form, named: bytes, told: frozenset[str]) -> _Family | None:
        """Continue a family whose failures had no text, where this call asks for the same thing."""
        textless = (key[0], _TEXTLESS)
        family = self._families.get(textless)
        if family is None:
            return None
        if isinstance(family, _First):
            family = _Family.of(family)
        if min(likeness(member.form, form, failing=True) for member in family.members) is not Likeness.WORDS:
            return None
        self._forget(textless)
        family.named, family.told = named, told
        return family

    def _broken(self, family: _Family | _First, *, failing: bool) -> bool:
        if self._marks.write > family.step:
            return True
        return self._marks.intent > family.step and not failing

    def _keep(self, key: tuple[str, bytes], family: _Family | _First) -> None:
        families = self._families
        if key in families:
            self._forget(key)
        families[key] = family
        chars = self._kept_chars + family.size
        while len(families) > _MAX_FAMILIES or (chars > _MAX_CHARS and len(families) > 1):
            _, oldest = families.popitem(last=False)
            chars -= oldest.size
        self._kept_chars = chars

    def _forget(self, key: tuple[str, bytes]) -> None:
        if (family := self._families.pop(key, None)) is not None:
            self._kept_chars -= family.size

    def _join(
        self,
        family: _Family,
        call: ToolCall,
        links: Sequence[tuple[Likeness, _Member]],
        form: Form,
        *,
        acknowledged: bool,
    ) -> _Member:
        changed = self._marks.stir if call.outcome is not OK else self._marks.doubt
        family.doubted = family.doubted or changed > family.step
        if self._marks.news > family.step:
            # Work went on in between: unrelated calls have nothing in common then, nor have acknowledged records.
            apart = Likeness.ENTITY if acknowledged else Likeness.OTHER
            for member in family.members:
                member.counts[apart:] = [0] * (len(Likeness) - apart)
        counts = [
            1 + max((member.counts[kind] for likest, member in links if likest <= kind), default=0)
            for kind in range(len(Likeness))
        ]
        joined = next((member for _, member in links if member.form == form), None)
        if joined is None:
            joined = _Member(form)
            family.members.append(joined)
        joined.counts = counts
        if len(family.kinds) < _MAX_MEMBERS:
            family.kinds.add(call.fingerprint or b"")
        family.step = call.step
        family.evidence.append(call.step)
        if len(family.evidence) > _MAX_EVIDENCE:
            del family.evidence[1]
        return joined

    def _judge(
        self,
        family: _Family,
        call: ToolCall,
        joined: _Member,
        latest: Form,
        rows: Sequence[tuple[str, Likeness]],
        *,
        failing: bool,
    ) -> Sequence[Finding]:
        for row, kind in rows:
            limits = self._run.settings.limits(row, call.tool)
            if family.doubted:
                limits = limits.raised_by(1)
            count = joined.counts[kind]
            if limits.hint is None or count < limits.hint:
                continue
            if not failing and row != "near_words" and self._heard.told(changed_words(latest, joined.form)):
                continue
            call.repeats = max(call.repeats, count - 1)
            call.similarity = call.similarity or Similarity.NEAR
            return (self._finding(family, call, row, count, limits, failing=failing),)
        return ()

    def _finding(
        self, family: _Family, call: ToolCall, row: str, count: int, limits: Limits, *, failing: bool
    ) -> Finding:
        evidence = tuple(family.evidence)
        outcome = "failed the same way" if failing else "gave the same result"
        return Finding(
            check=CheckName.LOOP,
            kind=Kind.NEAR,
            severity=Severity.WARN,
            step=call.step,
            signature=xxh3_128_digest(f"{row} {call.tool} {family.evidence[0]}".encode()),
            message=words.near_calls(family.evidence[0], count, failing=failing),
            explanation=words.to_people(
                f"{count} nearly equal calls of {call.tool} {outcome}", evidence, f"loop.{row}", limits
            ),
            limits=Limits(limits.hint, limits.block, None),
            evidence=evidence,
            agent=call.agent,
            tool=call.tool,
            count=count,
            score=0.8,
        )


def _rows(
    call: ToolCall, texts: Texts, likest: Likeness, *, failing: bool, acknowledged: bool
) -> list[tuple[str, Likeness]]:
    """The rows that a call so like others may stand in, with the likeness that each of them counts."""
    rows: list[tuple[str, Likeness]] = []
    silent = not failing and text.is_short(texts.answer)
    if likest is Likeness.WORDS:
        rows.append(("near_token" if silent else "near_words", Likeness.WORDS))
    if failing:
        if likest <= Likeness.TOKEN:
            rows.append(("near_token", Likeness.TOKEN))
        if likest <= Likeness.ENTITY:
            rows.append(("near_entity_error", Likeness.ENTITY))
        rows.append(("same_error", Likeness.OTHER))
    elif likest <= Likeness.ENTITY and not surely_writes(call):
        # Changes that are merely acknowledged and differ in one value are a batch of records: work, as a fan-out is.
        if likest <= Likeness.TOKEN and not acknowledged:
            rows.append(("near_token", Likeness.TOKEN))
        rows.append(("near_entity", Likeness.ENTITY))
    return rows


def _quoted_words(texts: Texts) -> frozenset[str]:
    quoted = _QUOTED.findall(texts.masked[:_MASKED_CHARS])
    said = dict.fromkeys(_WORD.findall(" ".join(quoted).casefold()))
    return frozenset(islice(said, _MAX_QUOTED)) if said else _NOTHING_TOLD


def _tells_more(call: ToolCall, quoted: frozenset[str]) -> bool:
    """Whether words that an error quotes for the first time are not the caller's own: it tells of something."""
    if not quoted:
        return False
    said = text.mask(text.text_of(call.arguments, _MASKED_CHARS)).casefold()
    return not quoted.issubset(_WORD.findall(said))


def _latest(told: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """Both together; where that is too much, the later ones."""
    if told <= known:
        return known
    return told | known if len(told) + len(known) <= _MAX_TOLD else told


def _says_back(texts: Texts) -> bool:
    """Whether a short answer is made of the caller's own words alone, such as that of a command that prints them."""
    answer = texts.answer
    if not _ECHO_MIN_CHARS <= len(answer) <= _ECHO_CHARS or not texts.strings:
        return False
    asked = texts.asked[:_MASKED_CHARS]
    return all(word.strip(string.punctuation) in asked for word in answer.split()) and text.is_echo(answer, asked)


def _only_words(masked: str) -> str:
    """The words of an error, without signs, since data is shown in many ways."""
    return " ".join(masked.translate(_NO_SIGNS).split())


def _digest(content: str) -> bytes:
    return xxh3_128_digest(content.encode("utf-8", "surrogatepass"))
