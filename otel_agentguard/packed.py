"""What a run has seen, packed: a few bytes an entry, bounded, the older half dropped when it is full.

A Python dict costs a hundred bytes an entry; a long run would either forget too soon or cost too
much. These are laid out as a dict is, but over flat arrays: entries in the order of their age, and
a sparse index that tells where the entry of a key is.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

_FIRST_SLOTS = 16
_32_BITS = 0xFFFFFFFF

first_32_bits = Struct("<I").unpack_from
"""The number that the first 4 bytes of a digest are, in a tuple of one."""

first_64_bits = Struct("<Q").unpack_from
"""The number that the first 8 bytes of a digest are, in a tuple of one."""


class _Table:
    """Keys, oldest first, and an index of them, of which at most half is in use.

    An entry is known by its position from 1 on; 0 in the index is a free slot. Of a full table the older
    half is dropped, but for entries that were asked for in time: those are put at the end once more.
    """

    __slots__ = ("_index", "_keys", "_limit", "_mask", "_max_entries", "_old")

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._keys = array("Q", [0])
        self._lay_out(_FIRST_SLOTS)

    def _lay_out(self, slots: int) -> None:
        """Index all entries anew."""
        index = array("H", bytes(2 * slots))
        mask = slots - 1
        for entry, key in enumerate(self._keys):
            slot = key & mask
            while index[slot]:
                slot = slot + 1 & mask
            index[slot] = entry
        self._index = index
        self._mask = mask
        self._limit = min(slots // 2, self._max_entries)
        self._old = self._limit // 2 if self._limit == self._max_entries else 0

    def _slot(self, key: int) -> int:
        """Where the index holds the entry of a key, or would."""
        index, keys, mask = self._index, self._keys, self._mask
        slot = key & mask
        while (entry := index[slot]) and keys[entry] != key:
            slot = slot + 1 & mask
        return slot

    def _append(self, key: int, slot: int) -> None:
        keys = self._keys
        entry = self._index[slot] = len(keys)
        keys.append(key)
        if entry == self._limit:
            self._make_room()

    def _make_room(self) -> None:
        if self._old:
            self._drop(self._old)
            self._lay_out(len(self._index))
        else:
            self._lay_out(2 * len(self._index))

    def _drop(self, entries: int) -> None:
        del self._keys[1 : entries + 1]

    @property
    def size_bytes(self) -> int:
        """Bytes that the table takes."""
        return self._index.itemsize * len(self._index) + self._keys.itemsize * len(self._keys)


class PackedSet(_Table):
    """Which keys were seen; 12 bytes an entry, up to 16 while it grows.

    A key is a number of 64 bits, evenly spread as a hash is.

    Args:
        max_entries: Most entries that are kept, a power of two up to 32,768; half as many at least, once it is full.
    """

    __slots__ = ()

    def add(self, key: int) -> bool:
        """Note a key.

        Returns:
            Whether it is new.
        """
        slot = self._slot(key)
        entry = self._index[slot]
        if not entry or entry <= self._old:
            self._append(key, slot)
        return not entry

    def __contains__(self, key: int) -> bool:
        return self._index[self._slot(key)] > 0


class PackedMap(_Table):
    """A value for each key seen; 16 bytes an entry, or 20, and 4 more while it grows.

    A key is a number of 64 bits, evenly spread as a hash is.

    Args:
        max_entries: Most entries that are kept, a power of two up to 32,768; half as many at least, once it is full.
        wide: Values have 64 bits, else 32.
    """

    __slots__ = ("_values",)

    def __init__(self, max_entries: int, *, wide: bool = False) -> None:
        super().__init__(max_entries)
        self._values = array("Q" if wide else "I", [0])

    def get(self, key: int) -> int | None:
        """The value of a key; None when it is not known."""
        entry = self._index[self._slot(key)]
        return self._values[entry] if entry else None

    def put(self, key: int, value: int, *, replace: bool = True) -> int | None:
        """Set the value of a key.

        Args:
            key: Identifies the entry.
            value: A number of at most as many bits as values have.
            replace: False keeps the value of a key that is known.

        Returns:
            The value that it had; None when the key is new.
        """
        index, keys, mask = self._index, self._keys, self._mask
        slot = key & mask
        while entry := index[slot]:  # what `_slot` does, without the call: several are put each step
            if keys[entry] == key:
                break
            slot = slot + 1 & mask
        else:
            entry = index[slot] = len(keys)
            keys.append(key)
            self._values.append(value)
            if entry == self._limit:
                self._make_room()
            return None
        values = self._values
        held = values[entry]
        if replace:
            values[entry] = value
        if entry <= self._old:
            values.append(values[entry])
            self._append(key, slot)
        return held

    def _drop(self, entries: int) -> None:
        super()._drop(entries)
        del self._values[1 : entries + 1]

    @property
    def size_bytes(self) -> int:
        """Bytes that the table takes."""
        return super().size_bytes + self._values.itemsize * len(self._values)


class Origin(NamedTuple):
    """Where an answer to a call comes from.

    Attributes:
        step: When it was made.
        mark: Tells its result from others; 0 where that is unknown.
    """

    step: int
    mark: int


class PackedOutcomes:
    """What each call came to; 20 bytes a call.

    Args:
        max_calls: Most calls that are kept, as `PackedMap` counts them.
    """

    __slots__ = ("_map",)

    def __init__(self, max_calls: int) -> None:
        self._map = PackedMap(max_calls, wide=True)

    def get(self, fingerprint: bytes) -> Origin | None:
        """What is kept of a call; None when it is not known."""
        kept = self._map.get(*first_64_bits(fingerprint))
        return None if kept is None else _origin(kept)

    def put(self, fingerprint: bytes, step: int, mark: int) -> Origin | None:
        """Keep what a call came to, as `Origin` tells it.

        Returns:
            What it came to before; None when it is new.
        """
        (key,) = first_64_bits(fingerprint)
        kept = self._map.put(key, (step & _32_BITS) << 32 | mark)
        return None if kept is None else _origin(kept)


def _origin(kept: int) -> Origin:
    return Origin(kept >> 32, kept & _32_BITS)


def mark_of(digest: bytes | None) -> int:
    """What `Origin` keeps of the digest of a result: 32 bits."""
    return 0 if digest is None else first_32_bits(digest)[0] or 1


def word_identity(word: str) -> int:
    """64 bits that are the same in every process, unlike `hash()` of a text."""
    return xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
