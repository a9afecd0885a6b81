"""Where observed text lies: in blocks that are dropped as a whole, each with an index of its passages."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass, field
from enum import IntEnum

from otel_agentguard.memory.passages import KEY_BITS, index_keys, quotable
from otel_agentguard.memory.stems import language

PASSAGE = 400
"""Characters of a passage, about."""

_OVERLAP = 80
_BLOCKS = 8
_WHOLE = 4000
_SAMPLE = 300
_PLACE_BITS = 64 - KEY_BITS
_PLACE_MASK = (1 << _PLACE_BITS) - 1


class Producer(IntEnum):
    """Who made an event; only what a user, a tool or an outside event says is evidence."""

    NONE = 0
    USER = 1
    TOOL = 2
    OUTSIDE = 3
    AGENT = 4
    PLAN = 5
    RECALLED = 6
    FAILED = 7
    UNCAPTURED = 8
    OTHER = 9


EVIDENCE = frozenset({Producer.USER, Producer.TOOL, Producer.OUTSIDE})


@dataclass(slots=True, eq=False)
class Observation:
    """One thing that was observed.

    Attributes:
        step: Where in the run.
        producer: Who made it.
        text: What was observed.
        about: The name of the tool, a line break, and its short arguments; empty for what a user said.
        resources: What it was read from.
        digest: Identity of the content; with `resources` it is the version of a file.
        cut: Its middle was left out because it is longer than `MAX_TEXT`.
        block: The part of the store that it lies in; None before it is stored.
        first: Number of its first passage there.
    """

    step: int
    producer: Producer
    text: str
    about: str = ""
    resources: tuple[str, ...] = ()
    digest: bytes | None = None
    cut: bool = False
    block: Block | None = field(default=None, repr=False)
    first: int = 0
    _language: str | None = None
    _passages: tuple[tuple[int, int], ...] = ()

    @property
    def passages(self) -> tuple[tuple[int, int], ...]:
        """Begin and end of each passage in the text."""
        if not self._passages:
            self._passages = tuple(_passages(self.text))
        return self._passages

    @property
    def language(self) -> str:
        """What its beginning is written in; empty where that does not tell."""
        if self._language is None:
            self._language = language(self.text[:_SAMPLE])
        return self._language

    def contains(self, quote: str) -> bool:
        """Whether a quote, brought to `quotable` form, stands in the text at the bounds of words."""
        if not quote:
            return False
        if len(self.text) <= _WHOLE:
            return stands_in(quote, quotable(self.text))
        longest = max(quote.split(), key=len)
        reach = 3 * len(quote) + PASSAGE
        for begin, end in self.passages:
            if longest in self.text[begin:end].casefold():
                around = self.text[max(0, begin - reach) : end + reach]
                if stands_in(quote, quotable(around)):
                    return True
        return False


@dataclass(slots=True, eq=False)
class Block:
    """A part of a shelf that is dropped as a whole.

    Its index is one number a key and passage: the key above, the passage below, sorted when it is searched.
    """

    size: int = 0
    observations: list[Observation] = field(default_factory=list)
    passages: list[tuple[Observation, int]] = field(default_factory=list)
    postings: MutableSequence[int] = field(default_factory=list)
    ordered: bool = True

    def index(self, observation: Observation) -> None:
        """Make the passages of an observation findable."""
        observation.first = len(self.passages)
        for place, (begin, end) in enumerate(observation.passages):
            number = len(self.passages)
            self.passages.append((observation, place))
            keys = index_keys(observation.text[begin:end])
            if place == 0:
                keys |= index_keys(observation.about)
            self.postings.extend([key << _PLACE_BITS | number for key in keys])
        self.ordered = False

    def seal(self) -> None:
        """Nothing is added any more: pack the index."""
        self.postings = array("Q", sorted(self.postings))
        self.ordered = True

    def range_of(self, key: int) -> tuple[int, int]:
        """Where the postings of a key begin and end."""
        self._order()
        begin = key << _PLACE_BITS
        low = bisect_left(self.postings, begin)
        if low == len(self.postings) or self.postings[low] >> _PLACE_BITS != key:
            return low, low
        return low, bisect_left(self.postings, begin + _PLACE_MASK + 1, low)

    def numbers(self, low: int, high: int) -> list[int]:
        """Numbers of the passages of a range of postings."""
        return [posting & _PLACE_MASK for posting in self.postings[low:high]]

    def holds(self, key: int, number: int) -> bool:
        """Whether a passage has a key."""
        self._order()
        posting = key << _PLACE_BITS | number
        at = bisect_left(self.postings, posting)
        return at < len(self.postings) and self.postings[at] == posting

    def _order(self) -> None:
        if not self.ordered:
            self.postings = sorted(self.postings)
            self.ordered = True

    @property
    def index_bytes(self) -> int:
        """Bytes that the index takes, about."""
        return len(self.postings) * (8 if isinstance(self.postings, array) else 40)


class Shelf:
    """Observations of one sort, oldest dropped first."""

    __slots__ = ("blocks", "cut", "dropped", "limit", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.blocks: deque[Block] = deque()
        self.size = 0
        self.dropped = 0
        self.cut = 0

    def add(self, observation: Observation, *, index: bool) -> list[Observation]:
        """Keep one; returns what was dropped for it."""
        size = sys.getsizeof(observation.text) + sys.getsizeof(observation.about)
        if not self.blocks or self.blocks[-1].size + size > self.limit // _BLOCKS:
            if self.blocks and self.blocks[-1].postings:
                self.blocks[-1].seal()
            self.blocks.append(Block())
        block = self.blocks[-1]
        block.observations.append(observation)
        observation.block = block
        block.size += size
        self.size += size
        self.cut += observation.cut
        if index:
            block.index(observation)
        gone: list[Observation] = []
        while self.size > self.limit and len(self.blocks) > 1:
            oldest = self.blocks.popleft()
            self.size -= oldest.size
            gone += oldest.observations
        self.dropped += len(gone)
        return gone

    def index_all(self) -> None:
        """Index what was kept before anything was searched."""
        for block in self.blocks:
            for observation in block.observations:
                block.index(observation)
            if block is not self.blocks[-1]:
                block.seal()

    def latest_first(self) -> Iterator[Observation]:
        """What is kept, latest first."""
        for block in reversed(self.blocks):
            yield from reversed(block.observations)


def stands_in(quote: str, text: str) -> bool:
    """Whether a quote stands in a text at the bounds of words; both in `quotable` form."""
    return f" {quote} " in f" {text} "


def _passages(text: str) -> Iterator[tuple[int, int]]:
    """Bounds of passages: about `PASSAGE` characters from a line, a sentence or a space on, and a bit of the next."""
    begin = 0
    while len(text) - begin > PASSAGE + PASSAGE // 2:
        window = text[begin : begin + PASSAGE]
        end = window.rfind("\n", PASSAGE // 2)
        if end < 0:
            end = window.rfind(". ", PASSAGE // 2)
        if end < 0:
            end = window.rfind(" ", PASSAGE // 2)
        step = end + 1 if end >= 0 else PASSAGE
        yield begin, begin + step + _OVERLAP
        begin += step
    yield begin, len(text)
