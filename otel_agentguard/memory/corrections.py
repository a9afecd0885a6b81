"""Values that somebody corrected: they must not come in again by another path."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_agentguard.memory.claims import Claim, Clause, Item, key_words, normal_value, read_claim
from otel_agentguard.memory.lexicon import CORRECTION, CORRECTION_WORDS
from otel_agentguard.memory.text import Polarity, TokenKind

_MAX_KEPT = 256
_MAX_TEXT = 1500
_LOOK_BACK = 20

_Values = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Superseded:
    """A value that no longer holds.

    Attributes:
        step: Since when.
        labels: Stems that say what it was a value of; empty where nothing says so.
        old: The numbers, names and ids that no longer hold, as (kind, form).
        new: Those that hold instead.
        value: The whole value in normal form, where an entry was updated; empty otherwise.
        key: The entry, where an entry was updated.
    """

    step: int
    labels: frozenset[str]
    old: _Values
    new: _Values
    value: str = ""
    key: str | None = None


class Corrections:
    """What was corrected in one run; the latest 256 are kept."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[Superseded] = deque(maxlen=_MAX_KEPT)

    def said(self, text: str, step: int, earlier: Sequence[str]) -> None:
        """Look for a correction in what a user said.

        Args:
            text: What was said.
            step: When.
            earlier: What users said before, latest first; twenty of them are looked at.
        """
        if len(text) > _MAX_TEXT:
            return
        claim = read_claim(text)
        for clause in claim.clauses:
            self._denied_beside(clause, claim, step)  # a correction in itself, whatever words introduce it
        if CORRECTION.search(text) is None:
            return
        for clause in claim.clauses:
            for item in clause.items:
                if item.hard and item.polarity is not Polarity.NEGATED:
                    self._replaces(item, _labels(clause), step, earlier[:_LOOK_BACK])

    def updated(self, key: str | None, old: object, new: object, step: int) -> None:
        """An entry was given another value, and the evidence for it holds."""
        was, now = _values(read_claim(old).clauses), _values(read_claim(new).clauses)
        value = normal_value(old)
        if value != normal_value(new):
            self._kept.append(Superseded(step, key_words(key or ""), was - now, now - was, value, key))

    def against(self, claim: Claim, key: str | None, value: object) -> Superseded | None:
        """The latest correction that a claim goes against, or None."""
        if not self._kept:
            return None
        written, words = normal_value(value), key_words(key or "")
        for correction in reversed(self._kept):
            if _returns(correction, claim, key, written, words):
                return correction
        return None

    def _denied_beside(self, clause: Clause, claim: Claim, step: int) -> None:
        """`Room 21, not 12`: what is denied beside another value of its kind no longer holds."""
        denied = [
            item
            for item in clause.items
            if item.hard and item.polarity is Polarity.NEGATED and not (item.name and claim.language == "de")
        ]
        if not denied:
            return
        stated = [
            item
            for other in claim.clauses
            for item in other.items
            if item.hard and item.polarity is not Polarity.NEGATED
        ]
        for item in denied:
            new = frozenset(form for other in stated if _kind(other) == _kind(item) for form in _forms(other))
            if new:
                labels = frozenset(s for s in clause.labels if s not in CORRECTION_WORDS) - {item.word.stem}
                self._kept.append(Superseded(step, labels, frozenset(_forms(item)), new))

    def _replaces(self, item: Item, labels: frozenset[str], step: int, earlier: Sequence[str]) -> None:
        new = frozenset(_forms(item))
        for place, text in enumerate(earlier):
            clauses = read_claim(text[:_MAX_TEXT]).clauses
            rivals = [
                (other, clause)
                for clause in clauses
                for other in clause.items
                if other.hard and _kind(other) == _kind(item) and not new & frozenset(_forms(other))
            ]
            if not labels and (place > 0 or len(rivals) != 1):
                return
            for other, clause in rivals:
                theirs = _labels(clause)
                if not labels or labels & theirs:
                    self._kept.append(Superseded(step, labels | theirs, frozenset(_forms(other)), new))
                    return


def _returns(correction: Superseded, claim: Claim, key: str | None, written: str, words: frozenset[str]) -> bool:
    if correction.value:
        related = key == correction.key or (bool(words & correction.labels) and key is not None)
        if written == correction.value and related:
            return True
    if not correction.old:
        return False
    said = _values(claim.clauses)
    if not said & correction.old or said & correction.new:
        return False
    if not correction.labels:
        return True
    return any(
        _values([clause]) & correction.old and (clause.labels | words) & correction.labels for clause in claim.clauses
    )


def _labels(clause: Clause) -> frozenset[str]:
    words = (item.word for item in clause.items if not item.hard)
    return frozenset(word.stem for word in words if word.text.casefold() not in CORRECTION_WORDS)


def _values(clauses: Iterable[Clause]) -> _Values:
    return frozenset(
        form
        for clause in clauses
        for item in clause.items
        if item.hard and item.polarity is not Polarity.NEGATED
        for form in _forms(item)
    )


def _forms(item: Item) -> list[tuple[str, str]]:
    word = item.word
    if word.kind is TokenKind.DATE:
        return [(_kind(item), f"{month}-{day}") for _, month, day in word.days]
    return [(_kind(item), form) for form in word.forms or (word.stem,)]


def _kind(item: Item) -> str:
    return item.word.kind.value
