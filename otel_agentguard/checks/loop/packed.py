"""What a run has seen, packed: a few bytes an entry, bounded, the oldest of a bucket replaced.

A Python dict costs a hundred bytes an entry; a long run would either forget too soon or cost too
much. Both classes are hash tables of fixed buckets over flat arrays, keyed by 64 bits.
"""

from __future__ import annotations

from array import array

from xxhash import xxh3_64_intdigest

_WAYS = 4
_FIRST_BUCKETS = 16
_MASK = 0xFFFFFFFFFFFFFFFF


class PackedSet:
    """Which keys were seen; 8 bytes an entry.

    Args:
        max_entries: Most entries that are kept, a power of two.
    """

    __slots__ = ("_buckets", "_count", "_keys", "_max_buckets", "_turn")

    def __init__(self, max_entries: int) -> None:
        self._max_buckets = max(max_entries // _WAYS, _FIRST_BUCKETS)
        self._buckets = _FIRST_BUCKETS
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))
        self._count = 0
        self._turn = 0

    def add(self, key: int) -> bool:
        """Note a key.

        Returns:
            Whether it is new.
        """
        key = (key & _MASK) or 1
        keys = self._keys
        first = (key % self._buckets) * _WAYS
        for place in range(first, first + _WAYS):
            held = keys[place]
            if held == key:
                return False
            if not held:
                keys[place] = key
                self._count += 1
                return True
        if self._buckets < self._max_buckets and self._count * 2 > len(keys):
            self._grow()
            return self.add(key)
        self._turn = (self._turn + 1) % _WAYS
        keys[first + self._turn] = key
        return True

    def _grow(self) -> None:
        old = self._keys
        self._buckets *= 2
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))
        self._count = 0
        for key in old:
            if key:
                self._place(key)

    def _place(self, key: int) -> None:
        first = (key % self._buckets) * _WAYS
        for place in range(first, first + _WAYS):
            if not self._keys[place]:
                self._keys[place] = key
                self._count += 1
                return

    @property
    def size_bytes(self) -> int:
        """Bytes that the table takes."""
        return self._keys.itemsize * len(self._keys)


class PackedMap:
    """A 32-bit value for each key seen; 12 bytes an entry.

    Args:
        max_entries: Most entries that are kept, a power of two.
    """

    __slots__ = ("_buckets", "_count", "_keys", "_max_buckets", "_turn", "_values")

    def __init__(self, max_entries: int) -> None:
        self._max_buckets = max(max_entries // _WAYS, _FIRST_BUCKETS)
        self._buckets = _FIRST_BUCKETS
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))
        self._values = array("I", bytes(4 * _WAYS * self._buckets))
        self._count = 0
        self._turn = 0

    def get(self, key: int) -> int | None:
        """The value of a key; None when it is not known."""
        key = (key & _MASK) or 1
        first = (key % self._buckets) * _WAYS
        for place in range(first, first + _WAYS):
            if self._keys[place] == key:
                return self._values[place]
        return None

    def put(self, key: int, value: int) -> int | None:
        """Set the value of a key.

        Returns:
            The value that it had; None when the key is new.
        """
        key = (key & _MASK) or 1
        keys = self._keys
        first = (key % self._buckets) * _WAYS
        for place in range(first, first + _WAYS):
            held = keys[place]
            if held == key:
                earlier = self._values[place]
                self._values[place] = value
                return earlier
            if not held:
                keys[place] = key
                self._values[place] = value
                self._count += 1
                return None
        if self._buckets < self._max_buckets and self._count * 2 > len(keys):
            self._grow()
            return self.put(key, value)
        self._turn = (self._turn + 1) % _WAYS
        keys[first + self._turn] = key
        self._values[first + self._turn] = value
        return None

    def _grow(self) -> None:
        old = [(key, value) for key, value in zip(self._keys, self._values, strict=True) if key]
        self._buckets *= 2
        self._keys = array("Q", bytes(8 * _WAYS * self._buckets))
        self._values = array("I", bytes(4 * _WAYS * self._buckets))
        self._count = 0
        for key, value in old:
            self.put(key, value)

    @property
    def size_bytes(self) -> int:
        """Bytes that the table takes."""
        return self._keys.itemsize * len(self._keys) + self._values.itemsize * len(self._values)


def word_identity(word: str) -> int:
    """64 bits that are the same in every process, unlike `hash()` of a text."""
    return xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
