"""Results of effects as tagged JSON, and back.

JSON values are themselves. What JSON lacks is an object with the tag `$t` that names its type and `v` that
holds its content. Nothing is ever imported or called because a stored name says so: dataclasses, models
and enums come back by the return annotation of the tool, or by the `decode` that it names.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

_TAG = "$t"
_MAX_DEPTH = 60
_SAFE_INTEGER = 2**53


class Unstorable(TypeError):
    """The value has no JSON form."""


class NotRebuilt(ValueError):
    """The stored value needs a type that nobody named."""


def encode(value: object, *, max_bytes: int = 1 << 20) -> bytes:
    """Write a value as tagged JSON.

    Raises:
        Unstorable: Some part has no JSON form, or it takes more than `max_bytes`.
    """
    # Copied, since it is kept for long: what orjson 3.13 gives holds on to a buffer of 4 KiB.
    data = bytes(memoryview(orjson.dumps(_tagged(value, 0))))
    if len(data) > max_bytes:
        raise Unstorable(f"a result of {len(data)} bytes is over the limit of {max_bytes}")
    return data


def decode(data: bytes, annotation: object = None, *, decoder: Callable[[Any], object] | None = None) -> object:
    """Read a value that `encode` wrote.

    Args:
        data: Tagged JSON.
        annotation: The type that it had, as an annotation whose names are resolved; None when unknown.
        decoder: Rebuilds the value from its plain form instead.

    Raises:
        NotRebuilt: Neither says how to rebuild it.
    """
    tree = orjson.loads(data)
    if decoder is not None:
        return decoder(_plain(tree, strict=False))
    return _rebuilt(tree, annotation)


def canonical(value: object) -> bytes:
    """The one JSON text of a value: sorted keys, tuples as arrays, `1.0` as `1`.

    Raises:
        Unstorable: Some part has no JSON form.
    """
    return orjson.dumps(_normal(_tagged(value, 0)), option=orjson.OPT_SORT_KEYS)


def _tag(name: str, content: object, **more: object) -> dict[str, object]:
    return {_TAG: name, "v": content, **more}


def _tagged(value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise Unstorable(f"a value nested over {_MAX_DEPTH} deep or in itself has no JSON form")
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _tagged_text(typing.cast(str, value))
    if kind is int:
        number = typing.cast(int, value)
        return number if -(2**63) <= number < 2**63 else _tag("int", str(number))
    if kind is float:
        return value if math.isfinite(typing.cast(float, value)) else _tag("float", repr(value))
    if kind is dict:
        return _tagged_mapping(typing.cast("dict[object, object]", value), depth)
    if kind is list:
        return [_tagged(item, depth + 1) for item in typing.cast("list[object]", value)]
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value, depth)
    return _tagged_object(value, depth)


def _tagged_text(text: str) -> object:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _tag("text", text.encode("utf-8", "surrogatepass").hex())
    return text


def _tagged_mapping(mapping: Mapping[Any, object], depth: int) -> object:
    if _TAG not in mapping and all(type(name) is str and name.isascii() for name in mapping):
        return {name: _tagged(item, depth + 1) for name, item in mapping.items()}
    return _tag("dict", [[_tagged(k, depth + 1), _tagged(item, depth + 1)] for k, item in mapping.items()])


def _tagged_items(name: str) -> Callable[[Any, int], object]:
    return lambda value, depth: _tag(name, [_tagged(item, depth + 1) for item in value])


def _tagged_set(name: str) -> Callable[[Any, int], object]:
    def write(value: Iterable[object], depth: int) -> object:
        return _tag(name, sorted((_tagged(item, depth + 1) for item in value), key=_sort_key))

    return write


def _sort_key(tree: object) -> bytes:
    return orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)


def _tagged_by(name: str, convert: Callable[[Any], str]) -> Callable[[Any, int], object]:
    return lambda value, _: _tag(name, convert(value))


_WRITERS: dict[type, Callable[[Any, int], object]] = {
    tuple: _tagged_items("tuple"),
    set: _tagged_set("set"),
    frozenset: _tagged_set("frozenset"),
    bytes: _tagged_by("bytes", lambda value: base64.b64encode(value).decode()),
    dt.datetime: _tagged_by("datetime", dt.datetime.isoformat),
    dt.date: _tagged_by("date", dt.date.isoformat),
    dt.time: _tagged_by("time", dt.time.isoformat),
    dt.timedelta: lambda value, _: _tag("timedelta", [value.days, value.seconds, value.microseconds]),
    decimal.Decimal: _tagged_by("decimal", str),
    uuid.UUID: _tagged_by("uuid", str),
    pathlib.PosixPath: _tagged_by("path", str),
    pathlib.WindowsPath: _tagged_by("path", str),
}

_READERS: dict[str, Callable[[Any], object]] = {
    "int": int,
    "float": float,
    "text": lambda v: bytes.fromhex(v).decode("utf-8", "surrogatepass"),
    "bytes": base64.b64decode,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "timedelta": lambda v: dt.timedelta(*v),
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "path": pathlib.Path,
}

_CONTAINERS: dict[str, Callable[[Iterable[Any]], object]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_OBJECTS = frozenset({"dataclass", "model", "enum", "namedtuple"})


def _tagged_object(value: Any, depth: int) -> object:
    kind = type(value)
    if isinstance(value, enum.Enum):
        return _tag("enum", _tagged(value.value, depth + 1), n=kind.__qualname__)
    if _is_model(kind):
        return _tag("model", _tagged(value.model_dump(by_alias=True, round_trip=True), depth + 1), n=kind.__qualname__)
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return _tag("dataclass", _tagged_mapping(fields, depth), n=kind.__qualname__)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _tag("namedtuple", [_tagged(item, depth + 1) for item in value], n=kind.__qualname__)
    raise Unstorable(f"a value of type {kind.__qualname__} has no JSON form")


def _is_model(kind: object) -> bool:
    return hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def _normal(tree: object) -> object:
    match tree:
        case float() if tree.is_integer() and abs(tree) < _SAFE_INTEGER:
            return int(tree)
        case list():
            return [_normal(item) for item in tree]
        case {"$t": "tuple" | "namedtuple", "v": items}:
            return _normal(items)
        case {"$t": "dataclass" | "model" | "enum", "v": content}:
            return _normal(content)
        case {"$t": "dict", "v": pairs}:
            return _tag("dict", sorted((_normal(pair) for pair in typing.cast("list[object]", pairs)), key=_sort_key))
        case dict():
            return {name: _normal(item) for name, item in tree.items()}
        case _:
            return tree


def _plain(tree: object, *, strict: bool) -> object:
    """Undo the tags; objects become their content, unless `strict`."""
    if isinstance(tree, list):
        return [_plain(item, strict=strict) for item in tree]
    if not isinstance(tree, dict):
        return tree
    name = tree.get(_TAG)
    if name is None:
        return {key: _plain(item, strict=strict) for key, item in tree.items()}
    content = tree["v"]
    if name in _OBJECTS:
        if strict:
            raise NotRebuilt(
                f"the result was a {tree['n']} and nothing says how to rebuild it: "
                "annotate what the tool returns, or name @tool(decode=...)"
            )
        return _plain(content, strict=strict)
    if name == "dict":
        return {_plain(key, strict=strict): _plain(item, strict=strict) for key, item in content}
    if name in _CONTAINERS:
        return _CONTAINERS[name](_plain(item, strict=strict) for item in content)
    reader = _READERS.get(name)
    if reader is None:
        raise NotRebuilt(f"a newer version stored the result as {name!r}")
    return reader(content)


def _rebuilt(tree: object, annotation: object) -> object:
    """Undo the tags by an annotation; what it does not explain must need no explanation."""
    annotation = _unwrapped(annotation)
    name = tree.get(_TAG) if isinstance(tree, dict) else None
    if _is_union(annotation):
        return _rebuilt_union(tree, typing.get_args(annotation))
    if name in _OBJECTS and isinstance(tree, dict):
        return _rebuilt_object(tree, annotation)
    arguments = typing.get_args(annotation)
    if isinstance(tree, list) and arguments:
        return [_rebuilt(item, arguments[0]) for item in tree]
    if name in _CONTAINERS and isinstance(tree, dict) and arguments:
        return _rebuilt_container(tree, arguments)
    if name == "dict" and isinstance(tree, dict) and len(arguments) == 2:
        return {_rebuilt(key, arguments[0]): _rebuilt(item, arguments[1]) for key, item in tree["v"]}
    if isinstance(tree, dict) and name is None:
        return {key: _rebuilt(item, _hint_of(annotation, arguments, key)) for key, item in tree.items()}
    return _plain(tree, strict=True)


def _unwrapped(annotation: object) -> object:
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        else:
            return annotation


def _is_union(annotation: object) -> bool:
    return typing.get_origin(annotation) in {typing.Union, types.UnionType}


def _rebuilt_union(tree: object, members: Iterable[object]) -> object:
    wanted = tree.get("n") if isinstance(tree, dict) else None
    ordered = sorted(members, key=lambda member: getattr(member, "__qualname__", None) != wanted)
    for member in ordered:
        try:
            return _rebuilt(tree, member)
        except (NotRebuilt, TypeError, ValueError):
            continue
    return _plain(tree, strict=True)


def _rebuilt_object(tree: Mapping[str, Any], annotation: Any) -> object:
    match tree[_TAG]:
        case "model" if _is_model(annotation):
            return annotation.model_validate(_plain(tree["v"], strict=False))
        case "dataclass" if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            hints = _hints(annotation)
            content = tree["v"]
            pairs = content["v"] if _TAG in content else content.items()
            return annotation(**{key: _rebuilt(item, hints.get(key)) for key, item in pairs})
        case "enum" if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return annotation(_plain(tree["v"], strict=True))
        case "namedtuple" if isinstance(annotation, type) and hasattr(annotation, "_make"):
            return _rebuilt_namedtuple(tree["v"], annotation)
    return _plain(tree, strict=True)


def _rebuilt_namedtuple(items: list[object], annotation: Any) -> object:
    hints = _hints(annotation)
    return annotation(*(_rebuilt(item, hints.get(name)) for name, item in zip(annotation._fields, items, strict=True)))


def _rebuilt_container(tree: Mapping[str, Any], arguments: tuple[object, ...]) -> object:
    items = tree["v"]
    repeated = tree[_TAG] != "tuple" or (len(arguments) == 2 and arguments[1] is Ellipsis)
    hints = [arguments[0]] * len(items) if repeated else list(arguments)
    hints += [None] * (len(items) - len(hints))
    return _CONTAINERS[tree[_TAG]](_rebuilt(item, hint) for item, hint in zip(items, hints, strict=False))


def _hint_of(annotation: object, arguments: tuple[object, ...], key: str) -> object:
    if typing.is_typeddict(annotation):
        return _hints(annotation).get(key)
    return arguments[1] if len(arguments) == 2 else None


def _hints(annotation: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(annotation, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
