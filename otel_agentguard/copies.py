"""Answers that can be given out more than once, so that no caller can change another one's.

What cannot change is handed out as it is. Data made of dicts, lists and plain values is kept as JSON
and parsed anew each time. Anything else is copied deeply, when it is small. What stands for something
outside of itself (a file, a connection, an iterator that somebody has begun) is not kept.
"""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from math import isfinite
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Protocol
from uuid import UUID

import orjson

MAX_COPIED_BYTES = 65_536
MAX_DEPTH = 32

_BASE_BYTES = 64
_PLAIN = (str, bytes, int, float, bool, type(None), complex)
_FROZEN = frozenset((*_PLAIN, date, datetime, time, timedelta, timezone, Decimal, Fraction, UUID, range))
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_HANDLE_METHODS = ("__enter__", "__aenter__", "__next__", "__anext__", "__await__", "fileno")
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1


class Kept(Protocol):
    """A value that is kept.

    Attributes:
        size_bytes: Roughly what it takes in memory.
    """

    @property
    def size_bytes(self) -> int:
        """See above."""
        ...

    def give(self) -> object:
        """The value, for one more caller. Thread safe."""
        ...


class _AsItIs:
    __slots__ = ("_value", "size_bytes")

    def __init__(self, value: object, size_bytes: int) -> None:
        self._value = value
        self.size_bytes = size_bytes

    def give(self) -> object:
        return self._value


class _AsJson:
    __slots__ = ("_data", "size_bytes")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = _BASE_BYTES + len(data)

    def give(self) -> object:
        return orjson.loads(self._data)


class _AsCopy:
    __slots__ = ("_value", "size_bytes")

    def __init__(self, value: object, size_bytes: int) -> None:
        self._value = value
        self.size_bytes = size_bytes

    def give(self) -> object:
        return copy.deepcopy(self._value)


def keep(value: object) -> Kept | None:
    """Keep a value.

    Returns:
        None where no true copy of it can be had.
    """
    if is_frozen(value):
        return _AsItIs(value, _BASE_BYTES + _weight(value, sys.maxsize))
    if type(value) in (dict, list) and _is_data(value, MAX_DEPTH):
        try:
            # Copied, since it is kept for long: what orjson 3.13 gives holds on to a buffer of 4 KiB.
            return _AsJson(bytes(memoryview(orjson.dumps(value))))
        except TypeError:
            pass  # a lone surrogate; a copy will do
    return _copied(value)


def keep_error(error: Exception) -> Exception | None:
    """A copy of an error without the frames that it was raised through; None where it cannot be copied."""
    try:
        copied = copy.copy(error)
        if type(copied) is not type(error) or str(copied) != str(error):
            return None
        copied.__traceback__ = copied.__cause__ = copied.__context__ = None
    except Exception:
        return None
    return copied


def is_frozen(value: object, depth: int = MAX_DEPTH) -> bool:
    """Whether nobody can change a value, nor anything in it."""
    kind = type(value)
    if kind in _FROZEN or isinstance(value, Enum | PurePath):
        return True
    if depth == 0:
        return False
    if kind in (tuple, frozenset):
        return all(is_frozen(part, depth - 1) for part in value)  # type: ignore[attr-defined]
    if isinstance(value, tuple) and hasattr(kind, "_fields") and not hasattr(value, "__dict__"):
        return all(is_frozen(part, depth - 1) for part in value)
    if is_dataclass(value) and not isinstance(value, type) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        known = {field.name for field in fields(value)}
        if getattr(value, "__dict__", {}).keys() <= known:
            return all(is_frozen(getattr(value, name), depth - 1) for name in known)
    return False


def _is_data(value: object, depth: int) -> bool:
    """Whether JSON gives back exactly this: no tuples, no subclasses, no keys but text."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if isinstance(value, int):
        return kind is int and _MIN_INT <= value <= _MAX_INT
    if isinstance(value, float):
        return kind is float and isfinite(value)
    if depth == 0:
        return False
    if isinstance(value, dict):
        return kind is dict and all(type(k) is str and _is_data(v, depth - 1) for k, v in value.items())
    return isinstance(value, list) and kind is list and all(_is_data(part, depth - 1) for part in value)


def _copied(value: object) -> Kept | None:
    kind = type(value)
    if kind is object or isinstance(value, _SHARED) or is_handle(value):
        return None
    size = _weight(value, MAX_COPIED_BYTES)
    if size > MAX_COPIED_BYTES:
        return None
    try:
        copied = copy.deepcopy(value)
    except Exception:
        return None
    return None if copied is value or type(copied) is not kind else _AsCopy(copied, _BASE_BYTES + size)


def is_handle(value: object) -> bool:
    """Whether a value stands for something outside of itself, or is used up by its reader."""
    if isinstance(value, Iterator | AsyncIterator | Awaitable):
        return True
    kind = type(value)
    return any(hasattr(kind, name) for name in _HANDLE_METHODS)


def _weight(value: object, limit: int) -> int:
    """Bytes of a value and of what it refers to, at most a little over `limit`; code is not counted."""
    total = 0
    pending = [value]
    seen: set[int] = set()
    while pending and total <= limit:
        node = pending.pop()
        if id(node) in seen or isinstance(node, _SHARED):
            continue
        seen.add(id(node))
        total += sys.getsizeof(node)
        if type(node) not in _FROZEN:
            pending.extend(gc.get_referents(node))
    return total
