"""What was really observed in a run: bounded, and found by its words.

Text is kept as it came and cut into passages. A passage is found by the stems, numbers and pairs of
characters in it: postings of eight bytes in sorted arrays, so that the index is about as large as the text.
Indexing begins with the first search; a run that never writes to memory pays for keeping the text alone.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from math import log2
from operator import attrgetter, itemgetter

from otel_agentguard.errors import ConfigError
from otel_agentguard.memory.matching import Reading
from otel_agentguard.memory.passages import index_keys, quotable
from otel_agentguard.memory.shelves import EVIDENCE, Observation, Producer, Shelf, stands_in

MAX_BYTES = 1 << 20
"""Text that one run keeps by default."""

MAX_TEXT = 64 * 1024
"""Characters of one observation that are kept: three quarters from its head, the rest from its end."""

_MIN_BYTES = 4096
_MAX_STEPS = 65_536
_MAX_DEEDS = 256
_MAX_DEED_TEXT = 2000
_MAX_RECALLED = 512
_MAX_RECALLED_BYTES = 128 * 1024
_KEPT_READINGS = 64
_COMMON = 200
_CANDIDATES = 24
_WORTH_READING = 0.4


@dataclass(slots=True, eq=False)
class Deed:
    """A call that may have changed something and succeeded.

    Attributes:
        step: Where in the run.
        text: Name, arguments and result of the call, at most 2,000 characters.
        declared: The tool was declared to change something.
    """

    step: int
    text: str
    declared: bool = False
    _keys: frozenset[int] | None = None

    def keys(self) -> frozenset[int]:
        """What it is found by."""
        if self._keys is None:
            self._keys = frozenset(index_keys(self.text))
        return self._keys


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that shares words with what was searched.

    Attributes:
        score: Higher is better; rare words weigh more.
        observation: Where it stands.
        place: Which of its passages.
    """

    score: float
    observation: Observation
    place: int


class Observations:
    """The observed text of one run, the deeds that succeeded, and what was recalled. Not thread safe."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, forgot: Callable[[int], object] | None = None) -> None:
        """Make an empty store.

        Args:
            max_bytes: Text that is kept; a quarter of it is for what users said, so that large results of
                tools cannot push that out.
            forgot: Told how many observations made room for new ones.

        Raises:
            ConfigError: The limit is below 4,096.
        """
        if max_bytes < _MIN_BYTES:
            raise ConfigError(f"max_bytes={max_bytes} keeps nothing; the least is {_MIN_BYTES}")
        self._forgot = forgot
        self._users = Shelf(max_bytes // 4)
        self._tools = Shelf(max_bytes - max_bytes // 4)
        self._by_step: dict[int, Observation] = {}
        self._kinds = bytearray()
        self._first_step = 1
        self._indexing = False
        self._readings: OrderedDict[tuple[Observation, int], Reading] = OrderedDict()
        self._recalled: OrderedDict[str, int] = OrderedDict()
        self._recalled_size = 0
        self.deeds: deque[Deed] = deque(maxlen=_MAX_DEEDS)
        self.uncaptured: set[Producer] = set()

    @property
    def held_bytes(self) -> int:
        """Bytes of text and index that are held, about. Any thread may ask."""
        blocks = (*self._users.blocks, *self._tools.blocks)
        index = sum(block.index_bytes for block in blocks)
        return self._users.size + self._tools.size + index + self._recalled_size + len(self._kinds)

    @property
    def dropped(self) -> int:
        """Observations that were dropped because of the limit."""
        return self._users.dropped + self._tools.dropped

    def lost(self, producers: Collection[Producer]) -> bool:
        """Whether something that these producers said is not known: dropped, cut, or never captured."""
        for shelf, members in ((self._users, {Producer.USER}), (self._tools, EVIDENCE - {Producer.USER})):
            if members & set(producers) and (shelf.dropped or shelf.cut):
                return True
        return bool(self.uncaptured & set(producers))

    def note(self, step: int, producer: Producer) -> None:
        """Remember who made a step; the latest 65,536 steps are known."""
        at = step - self._first_step
        if at < 0:
            return
        if at >= len(self._kinds):
            self._kinds.extend(bytes(at + 1 - len(self._kinds)))
        self._kinds[at] = producer
        if len(self._kinds) > _MAX_STEPS + _MAX_STEPS // 8:
            surplus = len(self._kinds) - _MAX_STEPS
            del self._kinds[:surplus]
            self._first_step += surplus

    def producer_of(self, step: int) -> Producer | None:
        """Who made a step; None where it is too long ago to know, `NONE` where there was no such step."""
        at = step - self._first_step
        if at < 0:
            return None if step >= 1 else Producer.NONE
        return Producer(self._kinds[at]) if at < len(self._kinds) else Producer.NONE

    def add(
        self,
        step: int,
        producer: Producer,
        text: str,
        *,
        about: str = "",
        resources: tuple[str, ...] = (),
        digest: bytes | None = None,
    ) -> None:
        """Keep what a user, a tool or an outside event said."""
        self.note(step, producer)
        if not text or text.isspace():
            return
        cut = len(text) > MAX_TEXT
        if cut:
            head = MAX_TEXT * 3 // 4
            text = text[:head] + "\n" + text[head - MAX_TEXT :]
        observation = Observation(step, producer, text, about, resources, digest, cut)
        shelf = self._users if producer is Producer.USER else self._tools
        dropped = shelf.add(observation, index=self._indexing)
        for gone in dropped:
            self._by_step.pop(gone.step, None)
        if dropped and self._forgot is not None:
            self._forgot(len(dropped))
        self._by_step[step] = observation

    def at(self, step: int) -> Observation | None:
        """What was observed at a step, as far as it is kept."""
        return self._by_step.get(step)

    def done(self, step: int, text: str, *, declared: bool = False) -> None:
        """Remember a call that may have changed something and succeeded.

        Args:
            step: Where in the run.
            text: Name, arguments and result of the call, underscores as spaces.
            declared: The tool was declared to change something.
        """
        self.deeds.append(Deed(step, text[:_MAX_DEED_TEXT], declared))

    def recalled(self, text: str, step: int) -> None:
        """Remember a text that came out of the long-term memory; the same words seen later prove nothing."""
        plain = quotable(text[:MAX_TEXT])
        if not plain or plain in self._recalled:
            return
        self._recalled[plain] = step
        self._recalled_size += sys.getsizeof(plain)
        while len(self._recalled) > _MAX_RECALLED or self._recalled_size > _MAX_RECALLED_BYTES:
            oldest, _ = self._recalled.popitem(last=False)
            self._recalled_size -= sys.getsizeof(oldest)

    def recalls_like(self, text: str) -> list[tuple[str, int]]:
        """Recalled texts that hold a text or are held by it, with the step of their recall."""
        plain = quotable(text)
        if not plain:
            return []
        return [
            (known, step)
            for known, step in self._recalled.items()
            if stands_in(plain, known) or stands_in(known, plain)
        ]

    def search(self, keys: Iterable[int], producers: Collection[Producer], *, most: int = 8) -> list[Hit]:
        """The passages that share most with a set of keys (see `index_keys`), best first, latest of equals first."""
        self._start_indexing()
        wanted = list(keys)
        found: list[Hit] = []
        for shelf, members in ((self._users, {Producer.USER}), (self._tools, EVIDENCE - {Producer.USER})):
            if members & set(producers):
                found += self._search_shelf(shelf, wanted, producers)
        found.sort(key=lambda hit: (hit.score, hit.observation.step), reverse=True)
        return [hit for hit in found[:most] if hit.score >= _WORTH_READING * found[0].score]

    def search_in(self, keys: Iterable[int], steps: Iterable[int], *, most: int = 8) -> list[Hit]:
        """The passages of some steps that share most with a set of keys, best first."""
        self._start_indexing()
        wanted = list(keys)
        hits: list[Hit] = []
        for observation in map(self._by_step.get, steps):
            if observation is None or observation.block is None:
                continue
            for place in range(len(observation.passages)):
                score = sum(observation.block.holds(key, observation.first + place) for key in wanted)
                if score:
                    hits.append(Hit(float(score), observation, place))
        return sorted(hits, key=lambda hit: hit.score, reverse=True)[:most]

    def reading(self, hit: Hit) -> Reading:
        """A found passage, read; the latest 64 readings are kept."""
        key = (hit.observation, hit.place)
        reading = self._readings.get(key)
        if reading is None:
            begin, end = hit.observation.passages[hit.place]
            reading = self._readings[key] = Reading(hit.observation.text[begin:end])
            if len(self._readings) > _KEPT_READINGS:
                self._readings.popitem(last=False)
        else:
            self._readings.move_to_end(key)
        return reading

    def latest(self, producers: Collection[Producer], *, most: int) -> list[Observation]:
        """The latest observations of some producers, latest first."""
        newest: list[Observation] = []
        for shelf in (self._users, self._tools):
            newest += islice((one for one in shelf.latest_first() if one.producer in producers), most)
        return nlargest(most, newest, key=attrgetter("step"))

    def _start_indexing(self) -> None:
        if not self._indexing:
            self._indexing = True
            self._users.index_all()
            self._tools.index_all()

    def _search_shelf(self, shelf: Shelf, wanted: list[int], producers: Collection[Producer]) -> list[Hit]:
        scores: dict[tuple[int, int], float] = {}
        for frequency, key, ranges in sorted(self._ranges(shelf, wanted), key=itemgetter(0)):
            weight = 1 / log2(1 + frequency) if frequency > 1 else 1.5
            if frequency > _COMMON and scores:
                if len(scores) > 2 * _CANDIDATES:
                    scores = dict(nlargest(2 * _CANDIDATES, scores.items(), key=itemgetter(1)))
                for at, number in scores:
                    if shelf.blocks[at].holds(key, number):
                        scores[at, number] += weight
                continue
            left = _COMMON
            for at, low, high in ranges:
                for number in shelf.blocks[at].numbers(max(low, high - left), high):
                    scores[at, number] = scores.get((at, number), 0.0) + weight
                left -= high - low
                if left <= 0:
                    break
        hits = []
        for (at, number), score in nlargest(_CANDIDATES, scores.items(), key=itemgetter(1)):
            observation, place = shelf.blocks[at].passages[number]
            if observation.producer in producers:
                hits.append(Hit(score, observation, place))
        return hits

    @staticmethod
    def _ranges(shelf: Shelf, wanted: list[int]) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
        """Of each key how many passages have it, and where its postings are, in the latest block first."""
        for key in wanted:
            ranges = []
            frequency = 0
            for at in range(len(shelf.blocks) - 1, -1, -1):
                low, high = shelf.blocks[at].range_of(key)
                if high > low:
                    ranges.append((at, low, high))
                    frequency += high - low
            if ranges:
                yield frequency, key, ranges
