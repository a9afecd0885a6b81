"""How values of single types are written in the canonical form.

Plain JSON data is written as JSON. Everything else begins with `!` and a tag: outside of a quoted string
no JSON text holds a `!`, so data cannot imitate a tagged value. A value that Python holds equal to plain
data of the same kind is that data: an `IntEnum` member is its number, a `NamedTuple` a list.
"""

from __future__ import annotations

import datetime as dt
import math
import unicodedata
from collections import UserString
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from operator import itemgetter
from pathlib import PurePath
from types import NoneType
from typing import Any
from uuid import UUID

import orjson

_INT_RANGE = range(-(2**63), 2**64)
_MAX_ATTRIBUTE_NODES = 1_000
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: subtracted from naive values
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(slots=True, frozen=True)
class Branch:
    """A value with children, ready to be written.

    Attributes:
        opening: Written before the children.
        parts: Each child with what is written before it.
        closing: Written after the children.
        size: Number of children.
        gathered: The children have no order: they are written sorted by their own form.
    """

    opening: bytes
    parts: Iterator[tuple[bytes, object]]
    closing: bytes
    size: int
    gathered: bool = False


@dataclass(slots=True, frozen=True)
class Opaque:
    """A value without a stable form of its own.

    Attributes:
        name: Qualified name of its type, or of itself where it is a function or a class.
    """

    name: str

    @property
    def form(self) -> bytes:
        """The bytes that stand for it: the same for all values of its type."""
        return b"!x" + string(self.name)


def form_of(value: object) -> bytes | Branch | Opaque:
    """The form of a value: finished bytes, or a branch whose children are still to be written.

    Runs code of foreign types (`model_dump`, iteration, properties); what that raises makes the value opaque.
    """
    try:
        kind = type(value)
        if (writer := LEAF_FORMS.get(kind)) is not None:
            return writer(value)
        if (brancher := _BRANCH_FORMS.get(kind)) is not None:
            return brancher(value)
        return _form_by_kind(value)
    except Exception:
        return Opaque(_qualified_name(type(value)))


def string(text: str) -> bytes:
    """A text in NFC as JSON; lone surrogates, which JSON cannot carry, as a tagged form."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    try:
        return orjson.dumps(text)
    except TypeError:
        return _sized(b"!s", text.encode("utf-8", "surrogatepass"))


def sequence(items: Iterable[object], size: int, opening: bytes = b"[", closing: bytes = b"]") -> Branch:
    """A branch of children in order."""
    return Branch(opening, _separated(items), closing, size)


def mapping(items: Sequence[tuple[Any, object]], opening: bytes = b"{") -> Branch:
    """A branch of keys and values, in an order that does not depend on theirs.

    Keys that are no text keep their type: such a mapping is written as its pairs without order.
    """
    if not all(isinstance(key, str) for key, _ in items):
        return _gathered(b"!k{", [[key, value] for key, value in items])
    keyed = sorted(((_nfc(key), key, value) for key, value in items), key=itemgetter(0, 1))
    parts = ((b"," * bool(place) + string(key) + b":", value) for place, (key, _, value) in enumerate(keyed))
    return Branch(opening, parts, b"}", len(items))


def _separated(items: Iterable[object]) -> Iterator[tuple[bytes, object]]:
    separator = b""
    for item in items:
        yield separator, item
        separator = b","


def _gathered(opening: bytes, items: Sequence[object]) -> Branch:
    return Branch(opening, iter([(b"", item) for item in items]), b"}", len(items), gathered=True)


def _nfc(key: str) -> str:
    text = str.__str__(key)
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _sized(tag: bytes, raw: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(raw), raw)


def _int(value: int) -> bytes:
    return b"%d" % value if value in _INT_RANGE else b"!i%x" % value


def _float(value: float) -> bytes:
    if not math.isfinite(value):
        return b"!f" + repr(value).encode()
    return _int(int(value)) if value.is_integer() else orjson.dumps(value)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return b"!D" + str(value).encode()
    text = "".join(map(str, digits)).lstrip("0")
    exponent += len(text)
    text = text.rstrip("0")
    if not text:
        return b"!D0"
    return b"!D%b.%be%d" % (b"-" * sign, text.encode(), exponent)


def _datetime(value: dt.datetime) -> bytes:
    offset = value.utcoffset()
    micros = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if offset is not None:
        micros -= offset // _MICROSECOND
    nanos = getattr(value, "nanosecond", 0)  # pandas.Timestamp
    return b"%b%d.%d" % (b"!tn" if offset is None else b"!tu", micros, nanos)


def _timedelta(value: dt.timedelta) -> bytes:
    return b"!p%d.%d" % (value // _MICROSECOND, getattr(value, "nanoseconds", 0))


def _named(tag: bytes, text: str) -> bytes:
    return tag + string(text)


LEAF_FORMS: dict[type, Callable[[Any], bytes]] = {
    str: string,
    int: _int,
    float: _float,
    bool: lambda value: b"true" if value else b"false",
    NoneType: lambda _: b"null",
    bytes: lambda value: _sized(b"!b", value),
    bytearray: lambda value: _sized(b"!b", bytes(value)),
    memoryview: lambda value: _sized(b"!b", value.tobytes()),
    dt.datetime: _datetime,
    dt.date: lambda value: b"!y%d" % value.toordinal(),
    dt.time: lambda value: _named(b"!h", value.isoformat()),
    dt.timedelta: _timedelta,
    Decimal: _decimal,
    UUID: lambda value: b"!u" + value.hex.encode(),
    complex: lambda value: b"!c" + _float(value.real) + b"," + _float(value.imag) + b";",
    Fraction: lambda value: b"!q%x/%x" % (value.numerator, value.denominator),
    range: lambda value: b"!r%x,%x,%x;" % (value.start, value.stop, value.step),
}
"""What is written at once, by exact type."""

_LEAF_BASES: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (str, lambda value: string(str.__str__(value))),
    (int, lambda value: _int(int.__int__(value))),
    (float, lambda value: _float(float.__float__(value))),
    (bytes, LEAF_FORMS[bytes]),
    (bytearray, LEAF_FORMS[bytearray]),
    (dt.datetime, _datetime),
    (dt.date, LEAF_FORMS[dt.date]),
    (dt.time, LEAF_FORMS[dt.time]),
    (dt.timedelta, _timedelta),
    (Decimal, _decimal),
    (UUID, LEAF_FORMS[UUID]),
    (Fraction, LEAF_FORMS[Fraction]),
    (PurePath, lambda value: _named(b"!P", str(value))),
    (UserString, lambda value: string(str(value))),
)

_BRANCH_FORMS: dict[type, Callable[[Any], Branch]] = {
    dict: lambda value: mapping(list(value.items())),
    list: lambda value: sequence(value, len(value)),
    tuple: lambda value: sequence(value, len(value)),
    set: lambda value: _gathered(b"!S{", list(value)),
    frozenset: lambda value: _gathered(b"!S{", list(value)),
}

_LEAF_TYPES = (Enum, *(base for base, _ in _LEAF_BASES))


def _form_by_kind(value: Any) -> bytes | Branch | Opaque:
    if isinstance(value, _LEAF_TYPES):
        if isinstance(value, Enum) and not isinstance(value, (str, int)):
            return sequence([type(value).__qualname__, _enum_name(value)], 2, b"!e[")
        return next(writer for base, writer in _LEAF_BASES if isinstance(value, base))(value)
    if isinstance(value, type) or (callable(value) and isinstance(getattr(value, "__qualname__", None), str)):
        return Opaque(_qualified_name(value))
    if (declared := _declared_fields(value)) is not None:
        return sequence([type(value).__qualname__, declared], 2, b"!o[")
    if (numbers := _numpy_form(value)) is not None:
        return numbers
    if isinstance(value, Mapping):
        return mapping(list(islice(value.items(), len(value))))
    if isinstance(value, AbstractSet):
        return _gathered(b"!S{", list(islice(value, len(value))))
    if isinstance(value, Sequence):
        return sequence(list(islice(value, len(value))), len(value))
    if isinstance(value, BaseException):
        return sequence([type(value).__qualname__, list(value.args)], 2, b"!E[")
    attributes = _attributes(value)
    if attributes and _is_data(attributes):
        return sequence([type(value).__qualname__, attributes], 2, b"!o[")
    return Opaque(_qualified_name(value))


def _enum_name(value: Enum) -> object:
    name = value.name
    return name if isinstance(name, str) else value.value


def _declared_fields(value: Any) -> object:
    """What a pydantic model, dataclass or attrs class holds; fields that its own equality skips are left out."""
    cls = type(value)
    if callable(getattr(cls, "model_dump", None)):
        return value.model_dump()
    if is_dataclass(cls):
        return {f.name: getattr(value, f.name) for f in fields(cls) if f.compare}
    if (declared := getattr(cls, "__attrs_attrs__", None)) is not None:
        return {f.name: getattr(value, f.name) for f in declared if f.eq}
    return None


def _numpy_form(value: Any) -> bytes | Branch | None:
    """Arrays and scalars of numpy, and what turns into an array (data frames, tensors), without importing it."""
    cls = type(value)
    if not hasattr(cls, "__array__"):
        return None
    if not hasattr(cls, "tobytes"):
        columns = getattr(value, "columns", None)
        labels = None if columns is None else list(columns)
        return sequence([cls.__qualname__, labels, value.__array__()], 3, b"!A[")
    dtype = value.dtype
    if any(base.__module__ == "numpy" and base.__name__ == "generic" for base in cls.__mro__):
        return _numpy_scalar(value)
    content: object = value.tolist()
    if dtype.kind in "biufcmM" and dtype.itemsize <= 8 * (1 + (dtype.kind == "c")):
        content = (value + 0 if dtype.kind in "fc" else value).tobytes()  # adding 0 makes -0.0 a plain zero
    return sequence([dtype.str, list(value.shape), content], 3, b"!a[")


def _numpy_scalar(value: Any) -> bytes | Branch | None:
    dtype = value.dtype
    if dtype.kind in "mM":
        return sequence([dtype.str, value.tobytes()], 2, b"!n[")
    plain = value.item()
    if type(plain) is type(value):  # longdouble has no Python equal, and its bytes hold padding
        return sequence([dtype.str, str(value)], 2, b"!n[")
    form = form_of(plain)
    return form.form if isinstance(form, Opaque) else form


def _attributes(value: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{cls.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    found.update(getattr(value, "__dict__", {}))
    return found


def _is_data(attributes: dict[str, object]) -> bool:
    """Whether attributes hold data all the way down; a service object that holds a socket does not."""
    pending: list[Any] = [attributes]
    seen = {id(attributes)}
    for node in pending:
        if type(node) in LEAF_FORMS or isinstance(node, _LEAF_TYPES) or hasattr(type(node), "__array__"):
            continue
        if isinstance(node, Mapping):
            children = [*node.keys(), *node.values()]
        elif isinstance(node, (Sequence, AbstractSet)):
            children = list(node)
        elif callable(node) or isinstance(node, Iterator) or not (children := list(_attributes(node).values())):
            return False
        fresh = [child for child in children if id(child) not in seen]
        seen.update(map(id, fresh))
        pending.extend(fresh)
        if len(pending) > _MAX_ATTRIBUTE_NODES:
            return False
    return True


def _qualified_name(value: object) -> str:
    named: Any = value if isinstance(getattr(value, "__qualname__", None), str) else type(value)
    return f"{getattr(named, '__module__', None)}.{named.__qualname__}"
