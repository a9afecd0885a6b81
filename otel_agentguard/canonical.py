"""The canonical form of whole values: equal values have equal bytes, in every process.

Plain JSON data takes one call of orjson. Anything else is walked, without recursion, and written so that
the plain part of it comes out byte for byte as orjson would have written it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import isfinite
from types import NoneType
from typing import Any
from unicodedata import is_normalized, normalize

import orjson
from xxhash import xxh3_128, xxh3_128_digest

from otel_agentguard.forms import LEAF_FORMS, Branch, Opaque, form_of

_LEAVES = frozenset({str, int, bool, NoneType})
_BRANCHES = frozenset({dict, list, tuple})
_PLAIN = _LEAVES | _BRANCHES | {float}
_ONLY_DICT = frozenset({dict})
_BUILTIN = _BRANCHES | {set, frozenset}
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS

# What shared references can make of a small value; beyond it equal containers are hashed once each.
_MAX_BRANCHES = 1 << 18
_MAX_CHILDREN = 1 << 24

# Foreign containers can make children without end as they are read.
_MAX_FOREIGN = 1 << 18
_MAX_FOREIGN_DEPTH = 50_000

_MAX_JSON_DEPTH = 254  # of orjson
_FLUSH_PIECES = 1 << 12


def plain_form(value: object) -> bytes | None:
    """The canonical form of plain JSON data; None when the value needs the walk.

    About half a microsecond for small values.
    """
    kind = type(value)
    tidy: bool | None = False
    if kind in _BRANCHES:
        tidy = _needs_tidying(value)
    elif kind not in _LEAVES:
        return None
    if tidy is None:
        return None
    try:
        data = orjson.dumps(_tidied(value) if tidy else value, None, _OPTIONS)
        # Every part of a text in NFC is in NFC, so the whole document can be asked at once.
        if data.isascii() or tidy or is_normalized("NFC", data.decode()):
            return data
        return orjson.dumps(_tidied(value), None, _OPTIONS)
    except TypeError:  # too deep, a large integer, a lone surrogate, keys that are no text
        return None


def walked_digest(value: object, prefix: bytes = b"") -> tuple[bytes, list[str]]:
    """The 16-byte digest of `prefix` and any value's canonical form, and the types that had no stable form."""
    try:
        return _Walk(prefix, sealed=False).digest(value)
    except _TooLargeError:
        return _Walk(prefix, sealed=True).digest(value)


def _needs_tidying(value: Any) -> bool | None:
    """Whether plain data holds numbers that orjson writes otherwise; None when the data is not plain.

    Goes level by level, so that whole levels are asked in one call.
    """
    try:
        children: Any = value.values() if type(value) is dict else value
        if _LEAVES.issuperset(map(type, children)):
            return None if len(children) > _MAX_CHILDREN else False
        return _needs_tidying_below([children])
    except RuntimeError:  # another thread changed a dict meanwhile
        return None


def _needs_tidying_below(groups: list[Any]) -> bool | None:
    branches = 0
    size = 0
    tidy = False
    while groups:
        branches += len(groups)
        size += sum(map(len, groups))
        if size > _MAX_CHILDREN or branches > _MAX_BRANCHES:
            return None
        kinds = set(map(type, chain.from_iterable(groups)))
        if kinds <= _LEAVES:
            break
        if kinds == _ONLY_DICT:
            groups = [*map(dict.values, chain.from_iterable(groups))]
            continue
        if not kinds <= _PLAIN:
            return None
        others = [child for child in chain.from_iterable(groups) if type(child) not in _LEAVES]
        if float in kinds:
            floats = [child for child in others if type(child) is float]
            if not all(map(isfinite, floats)):
                return None
            tidy = tidy or any(map(float.is_integer, floats))
        groups = [child.values() if type(child) is dict else child for child in others if type(child) is not float]
    return tidy


def _tidied(value: Any, depth: int = 0) -> Any:
    """A copy of plain data with whole floats as integers and text in NFC.

    Raises:
        TypeError: It is too deep, or two of its keys become one.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else normalize("NFC", value)
    if kind is float:
        return int(value) if value.is_integer() else value
    if kind not in _BRANCHES:
        return value
    if depth > _MAX_JSON_DEPTH:
        raise TypeError(depth)
    if kind is dict:
        copy = {_tidied(key): _tidied(child, depth + 1) for key, child in list(value.items())}
        if len(copy) < len(value):
            raise TypeError(depth)
        return copy
    return [_tidied(child, depth + 1) for child in value]


class _TooLargeError(Exception):
    """The value written out would be far larger than it is in memory."""


class _Frame:
    """A branch that is being written.

    Attributes:
        owner: The value; held, so that its `id` stays its own.
        outer: Where its form goes when it is finished; None when it is written in place.
        items: Finished children of a branch without order.
    """

    __slots__ = ("branch", "items", "outer", "owner", "parts")

    def __init__(self, owner: object, branch: Branch, outer: list[bytes] | None) -> None:
        self.owner = owner
        self.branch = branch
        self.parts: Iterator[tuple[bytes, object]] = branch.parts
        self.outer = outer
        self.items: list[bytes] = []


class _Walk:
    """Writes one value into a hasher.

    A sealed walk writes the digest of each branch in place of the branch, and each branch once: a value whose
    parts are shared stays as small as it is in memory.
    """

    def __init__(self, prefix: bytes, *, sealed: bool) -> None:
        self._hasher = xxh3_128(prefix)
        self._root: list[bytes] = []
        self._out = self._root
        self._frames: list[_Frame] = []
        self._path: dict[int, int] = {}
        self._sealed = sealed
        self._seals: dict[int, tuple[bytes, object]] = {}
        self._branches = 0
        self._children = 0
        self._foreign = 0
        self._opaque: dict[str, None] = {}

    def digest(self, value: object) -> tuple[bytes, list[str]]:
        """Write the value; once per walk."""
        self._put(value)
        while self._frames:
            self._go_on(self._frames[-1])
        self._flush()
        return self._hasher.digest(), list(self._opaque)

    def _go_on(self, frame: _Frame) -> None:
        gathered = frame.branch.gathered
        for prefix, child in frame.parts:
            if gathered:
                self._out = []
            elif prefix:
                self._out.append(prefix)
            if self._put(child):
                return
            if gathered:
                frame.items.append(b"".join(self._out))
        self._close(self._frames.pop())

    def _put(self, value: object) -> bool:
        """Write a value; True when that opened a branch, whose children come next."""
        kind = type(value)
        if kind in _LEAVES:
            self._out.append(LEAF_FORMS[kind](value))
            return False
        identity = id(value)
        if (depth := self._path.get(identity)) is not None:
            self._out.append(b"!^" if self._sealed else b"!^%d" % (len(self._frames) - depth))
            return False
        if identity in self._seals:
            self._out.append(self._seals[identity][0])
            return False
        if (flat := _flat_form(value)) is not None:
            self._count(len(value))  # type: ignore[arg-type]  # what has a flat form is a dict, list or tuple
            if self._sealed:
                flat = _seal(flat)
                self._seals[identity] = flat, value
            self._out.append(flat)
            return False
        form = form_of(value)
        if isinstance(form, Branch) and kind not in _BUILTIN:
            form = self._bounded(value, form)
        if isinstance(form, Branch):
            self._open(value, form)
            return True
        if isinstance(form, Opaque):
            self._opaque[form.name] = None
            form = form.form
        self._out.append(form)
        if len(self._out) > _FLUSH_PIECES:
            self._flush()
        return False

    def _bounded(self, value: object, branch: Branch) -> Branch | Opaque:
        self._foreign += 1
        if self._foreign <= _MAX_FOREIGN and len(self._frames) <= _MAX_FOREIGN_DEPTH:
            return branch
        return Opaque(f"{type(value).__module__}.{type(value).__qualname__}")

    def _count(self, children: int) -> None:
        self._branches += 1
        self._children += children
        if not self._sealed and (self._branches > _MAX_BRANCHES or self._children > _MAX_CHILDREN):
            raise _TooLargeError

    def _open(self, value: object, branch: Branch) -> None:
        self._count(branch.size)
        frame = _Frame(value, branch, self._out if self._sealed or branch.gathered else None)
        if frame.outer is not None:
            self._out = []
        if not branch.gathered:
            self._out.append(branch.opening)
        self._path[id(value)] = len(self._frames)
        self._frames.append(frame)

    def _close(self, frame: _Frame) -> None:
        branch = frame.branch
        if branch.gathered:
            self._out = [branch.opening, b",".join(sorted(frame.items))]
        self._out.append(branch.closing)
        del self._path[id(frame.owner)]
        if frame.outer is not None:
            data = b"".join(self._out)
            self._out = frame.outer
            if self._sealed:
                data = _seal(data)
                self._seals[id(frame.owner)] = data, frame.owner
            self._out.append(data)
        if self._frames and self._frames[-1].branch.gathered:
            self._frames[-1].items.append(b"".join(self._out))
        elif len(self._out) > _FLUSH_PIECES:
            self._flush()

    def _flush(self) -> None:
        if self._out is self._root:
            self._hasher.update(b"".join(self._out))
            self._out.clear()


def _flat_form(value: Any) -> bytes | None:
    """The form of plain data without nesting; None for everything else."""
    kind = type(value)
    if kind not in _BRANCHES:
        return None
    children = value.values() if kind is dict else value
    return plain_form(value) if _BRANCHES.isdisjoint(map(type, children)) else None


def _seal(data: bytes) -> bytes:
    return b"!@" + xxh3_128_digest(data)
