"""How an answer differs from the one that the same call gave before."""

from __future__ import annotations

from array import array
from enum import IntEnum

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from otel_agentguard import text

_MAX_WORDS = 256
_KNOWN_SHARE = 0.7


class Grade(IntEnum):
    """What an answer adds to an earlier one, least first; tested in this order."""

    EQUAL = 0
    ORDER = 1
    NUMBERS = 2
    NO_NEW_WORDS = 3
    NEW = 4


class Answer:
    """What is kept of one answer so that the next can be compared: digests, no text.

    Args:
        digest: 16-byte identity of outcome and result.
        result: The result itself; read here, not kept.
    """

    __slots__ = ("digest", "lines", "masked", "names", "words")

    def __init__(self, digest: bytes, result: object) -> None:
        content = text.text_of(result)
        self.digest = digest
        self.lines = xxh3_128_digest("\n".join(sorted(content.split("\n"))).encode())
        self.masked = xxh3_128_digest(text.mask(content).encode())
        words = text.words(content)
        brief = len(words) <= _MAX_WORDS
        self.words = _packed(words) if brief else None
        self.names = _packed(text.names(content)) if brief else None

    def grade_after(self, earlier: Answer) -> Grade:
        """How this answer, given later, compares with an earlier one."""
        if self.digest == earlier.digest:
            return Grade.EQUAL
        if self.lines == earlier.lines:
            return Grade.ORDER
        if self.masked == earlier.masked:
            return Grade.NUMBERS
        if self._adds_no_words(earlier):
            return Grade.NO_NEW_WORDS
        return Grade.NEW

    def _adds_no_words(self, earlier: Answer) -> bool:
        if not self.words or earlier.words is None or self.names is None or earlier.names is None:
            return False
        before = set(earlier.words)
        known = sum(word in before for word in self.words)
        return known >= _KNOWN_SHARE * len(self.words) and before.union(earlier.names).issuperset(self.names)


def _packed(words: frozenset[str]) -> array[int]:
    return array("I", [xxh3_64_intdigest(word.encode("utf-8", "surrogatepass")) & 0xFFFFFFFF for word in words])
