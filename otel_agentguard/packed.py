"""What a run has seen, packed: a few bytes an entry, bounded, the least recently used of a bucket replaced.

A Python dict costs a hundred bytes an entry; a long run would either forget too soon or cost too
much. They are hash tables of small buckets over flat arrays, keyed by 64 bits. A bucket is
filled from its first place on; when all its places are taken, their order tells their age.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

_WAYS = 8
_LAST = _WAYS - 1
_FIRST_BUCKETS = 4
_MASK = 0xFFFFFFFFFFFFFFFF
_32_BITS = 0xFFFFFFFF


class PackedSet:
    """Which keys were seen; 8 bytes an entry.

    Args:
        max_entries: Most entries that are kept, a power of two.
    """

    __slots__ = ("_buckets", "_keys", "_max_buckets")

    def __init__(self, max_entries: int) -> None:
        self._max_buckets = max(max_entries // _WAYS, _FIRST_BUCKETS)
        self._buckets = _FIRST_BUCKETS
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))

    def add(self, key: int) -> bool:
        """Note a key.

        Returns:
            Whether it is new.
        """
        key = (key & _MASK) or 1
        keys = self._keys
        first = (key % self._buckets) * _WAYS
        bucket = keys[first : first + _WAYS]
        if key in bucket:
            if bucket[_LAST]:
                _renew(keys, first, bucket.index(key), key)
            return False
        if not bucket[_LAST]:
            keys[first + bucket.index(0)] = key
            return True
        if self._buckets < self._max_buckets:
            self._grow()
            return self.add(key)
        keys[first : first + _LAST] = bucket[1:]
        keys[first + _LAST] = key
        return True

    def __contains__(self, key: int) -> bool:
        key = (key & _MASK) or 1
        first = (key % self._buckets) * _WAYS
        return key in self._keys[first : first + _WAYS]

    def _grow(self) -> None:
        old = self._keys
        self._buckets *= 2
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))
        for key in filter(None, old):
            self.add(key)

    @property
    def size_bytes(self) -> int:
        """Bytes that the table takes."""
        return self._keys.itemsize * len(self._keys)


class PackedMap:
    """A value for each key seen; 12 bytes an entry, or 16.

    Args:
        max_entries: Most entries that are kept, a power of two.
        wide: Values have 64 bits, else 32.
    """

    __slots__ = ("_buckets", "_keys", "_max_buckets", "_values")

    def __init__(self, max_entries: int, *, wide: bool = False) -> None:
        self._max_buckets = max(max_entries // _WAYS, _FIRST_BUCKETS)
        self._buckets = _FIRST_BUCKETS
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))
        self._values = array("Q" if wide else "I", [0]) * (_WAYS * self._buckets)

    def get(self, key: int) -> int | None:
        """The value of a key; None when it is not known."""
        key = (key & _MASK) or 1
        first = (key % self._buckets) * _WAYS
        bucket = self._keys[first : first + _WAYS]
        return self._values[first + bucket.index(key)] if key in bucket else None

    def put(self, key: int, value: int, *, replace: bool = True) -> int | None:
        """Set the value of a key.

        Args:
            key: Identifies the entry.
            value: A number of at most as many bits as values have.
            replace: False keeps the value of a key that is known.

        Returns:
            The value that it had; None when the key is new.
        """
        key = (key & _MASK) or 1
        keys = self._keys
        first = (key % self._buckets) * _WAYS
        bucket = keys[first : first + _WAYS]
        if key in bucket:
            place = bucket.index(key)
            held = self._values[first + place]
            if replace:
                self._values[first + place] = value
            if bucket[_LAST]:
                _renew(self._values, first, place, value if replace else held)
                _renew(keys, first, place, key)
            return held
        if not bucket[_LAST]:
            place = first + bucket.index(0)
            keys[place] = key
            self._values[place] = value
            return None
        if self._buckets < self._max_buckets:
            self._grow()
            return self.put(key, value, replace=replace)
        values, last = self._values, first + _LAST
        keys[first:last] = bucket[1:]
        keys[last] = key
        values[first:last] = values[first + 1 : last + 1]
        values[last] = value
        return None

    def _grow(self) -> None:
        old = [(key, value) for key, value in zip(self._keys, self._values, strict=True) if key]
        self._buckets *= 2
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))
        self._values = array(self._values.typecode, [0]) * (_WAYS * self._buckets)
        for key, value in old:
            self.put(key, value)

    @property
    def size_bytes(self) -> int:
        """Bytes that the table takes."""
        return self._keys.itemsize * len(self._keys) + self._values.itemsize * len(self._values)


class Origin(NamedTuple):
    """Where an answer to a call comes from.

    Attributes:
        step: When it was made.
        mark: Tells its result from others; 0 where that is unknown.
    """

    step: int
    mark: int


class PackedOutcomes:
    """What each call came to; 16 bytes a call.

    Args:
        max_calls: Most calls that are kept, a power of two.
    """

    __slots__ = ("_map",)

    def __init__(self, max_calls: int) -> None:
        self._map = PackedMap(max_calls, wide=True)

    def get(self, fingerprint: bytes) -> Origin | None:
        """What is kept of a call; None when it is not known."""
        kept = self._map.get(int.from_bytes(fingerprint[:8], "little"))
        return None if kept is None else Origin(kept >> 32, kept & _32_BITS)

    def put(self, fingerprint: bytes, made: Origin) -> None:
        """Keep what a call came to, in place of what it came to before."""
        self._map.put(int.from_bytes(fingerprint[:8], "little"), (made.step & _32_BITS) << 32 | made.mark)


def mark_of(digest: bytes | None) -> int:
    """What `Origin` keeps of the digest of a result: 32 bits."""
    return 0 if digest is None else int.from_bytes(digest[:4], "little") or 1


def word_identity(word: str) -> int:
    """64 bits that are the same in every process, unlike `hash()` of a text."""
    return xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))


def _renew(places: array[int], first: int, gone: int, latest: int) -> None:
    """Drop the entry at place `gone` of a full bucket, and put `latest` at its end."""
    last = first + _LAST
    gone += first
    places[gone:last] = places[gone + 1 : last + 1]
    places[last] = latest
