"""How an answer differs from the one that the same call gave before."""

from __future__ import annotations

import string
from array import array
from collections.abc import Iterable
from enum import IntEnum

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from otel_agentguard import text
from otel_agentguard.checks.loop.answers import Texts

_MAX_WORDS = 300
_FEW_WORDS = 20
_KNOWN_SHARE = 0.7
_ALIKE_SHARE = 0.85
_STRAY_NAMES = 0.1
_MANY_NAMES = 20


class Grade(IntEnum):
    """What an answer adds to an earlier one, least first; tested in this order."""

    EQUAL = 0
    ORDER = 1
    NUMBERS = 2
    NO_NEW_WORDS = 3
    ALIKE = 4
    NEW = 5


class Answer:
    """What is kept of one answer so that the next can be compared: digests, no text.

    Args:
        digest: 16-byte identity of outcome and result.
        texts: The texts of the call; read here, not kept.
        earlier: The answer before, whose words are these where only numbers have changed.

    Attributes:
        digest: That identity.
        lines: Identity of its lines in any order.
        masked: Identity of its text without numbers.
        words: Its words; None where they are many.
        told: What its names are looked up in besides those words.
    """

    __slots__ = ("digest", "lines", "masked", "told", "words")

    def __init__(self, digest: bytes, texts: Texts, earlier: Answer | None) -> None:
        content = texts.answer
        self.digest = digest
        self.lines = _digest("\n".join(sorted(content.split("\n"))))
        self.masked = _digest(texts.masked)
        if earlier is not None and earlier.masked == self.masked:
            self.words: array[int] | None = earlier.words
            self.told: array[int] | None = earlier.told
            return
        words = text.words(content)
        brief = len(words) <= _MAX_WORDS
        self.words = _packed(words) if brief else None
        self.told = _packed(_told(content, words) - words) if brief else None

    def grade_after(self, earlier: Answer, texts: Texts) -> Grade:
        """How this answer, given later, compares with an earlier one.

        Args:
            earlier: The answer before.
            texts: The texts of the call that got this one.
        """
        if self.digest == earlier.digest:
            return Grade.EQUAL
        if self.lines == earlier.lines:
            return Grade.ORDER
        if self.masked == earlier.masked:
            return Grade.NUMBERS
        return self._grade_words(earlier, texts.answer)

    def _grade_words(self, earlier: Answer, content: str) -> Grade:
        if not self.words or not earlier.words or earlier.told is None:
            return Grade.NEW
        shared = len(set(earlier.words).intersection(self.words))
        if shared < _KNOWN_SHARE * len(self.words):
            return Grade.NEW
        fresh = len(self.words) - shared
        grew = shared == len(earlier.words)
        if fresh and (grew or len(self.words) < _FEW_WORDS):
            return Grade.NEW
        names = _packed([_plain(name) for name in text.names(content) if not _counts(name)])
        told = {*earlier.words, *earlier.told}
        stray = sum(name not in told for name in names)
        if not stray:
            return Grade.NO_NEW_WORDS
        few = len(names) >= _MANY_NAMES and stray <= _STRAY_NAMES * len(names)
        if shared >= _ALIKE_SHARE * len(self.words) and few:
            return Grade.ALIKE
        return Grade.NEW


def _told(content: str, words: Iterable[str]) -> set[str]:
    """The words of a text without signs and capitals, and what stands between its quotes and brackets."""
    raw = set(content.split())
    signed = " ".join([word for word in raw if not word.isalnum()])
    told = raw.union(words, text.parts(signed), text.quoted(content))
    return {word.strip(string.punctuation).casefold() for word in told}


def _plain(word: str) -> str:
    return word.strip(string.punctuation).casefold()


def _counts(name: str) -> bool:
    return not any(sign.isalpha() for sign in name)


def _packed(words: Iterable[str]) -> array[int]:
    return array("I", sorted({xxh3_64_intdigest(word.encode("utf-8", "surrogatepass")) & 0xFFFFFFFF for word in words}))


def _digest(content: str) -> bytes:
    return xxh3_128_digest(content.encode("utf-8", "surrogatepass"))
