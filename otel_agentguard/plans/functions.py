"""JSON Schema of a function's parameters, from its signature."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

from otel_agentguard.plans.schemas import KEY_PARAMETER

_DEEPEST = 6
_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_IN_TEXT_FORM = frozenset({"Path", "PurePath", "PosixPath", "UUID", "datetime", "date", "time"})
_ARRAYS = frozenset({"Sequence", "Iterable", "Collection", "MutableSequence"})
_ANYTHING: dict[str, Any] = {}


def parameters_schema(function: Callable[..., object], *, hidden: Collection[str] = (KEY_PARAMETER,)) -> dict[str, Any]:
    """Describe what a function may be called with.

    A parameter whose type has no JSON form, such as a session or a context that a framework hands in,
    is neither required nor checked.

    Args:
        function: Function, method, partial, or anything else with a signature.
        hidden: Parameters that are left out, since the guard fills them.

    Returns:
        A JSON Schema of type object; closed unless the function takes `**kwargs`. `{}` where the
        signature cannot be read.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return {}
    hints = _hints(function)
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    closed = True
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            closed = False
        elif parameter.kind is parameter.VAR_POSITIONAL:
            properties[name] = {"type": "array"}
        elif name not in hidden:
            schema, foreign = _schema(hints.get(name, parameter.annotation), definitions, 0)
            has_default = parameter.default is not parameter.empty
            if has_default and parameter.default is None:
                schema = _nullable(schema)
            properties[name] = schema
            if not has_default and not foreign:
                required.append(name)
    whole: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    whole["additionalProperties"] = not closed
    if definitions:
        whole["$defs"] = definitions
    return whole


def _hints(function: Callable[..., object]) -> Mapping[str, Any]:
    target = inspect.unwrap(getattr(function, "func", function))
    if not inspect.isroutine(target) and callable(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # a forward reference to what exists for type checkers only
        return {}


def _schema(hint: Any, definitions: dict[str, Any], depth: int) -> tuple[dict[str, Any], bool]:
    """The schema of a type, and whether the type has no JSON form."""
    if hint is inspect.Parameter.empty or hint is Any or isinstance(hint, str | typing.TypeVar) or depth > _DEEPEST:
        return _ANYTHING, False
    inner = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)  # NewType, `type` statement
    if inner is not None and not isinstance(hint, type):
        return _schema(inner, definitions, depth + 1)
    origin = typing.get_origin(hint)
    if origin is not None:
        return _generic(hint, origin, definitions, depth)
    if hint is None:
        return {"type": "null"}, False
    if isinstance(hint, type):
        if hint in _PLAIN:
            return {"type": _PLAIN[hint]}, False
        return _class(hint, definitions, depth)
    return _ANYTHING, False


def _generic(hint: Any, origin: Any, definitions: dict[str, Any], depth: int) -> tuple[dict[str, Any], bool]:
    arguments = typing.get_args(hint)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return _schema(arguments[0], definitions, depth)
    if origin is typing.Literal:
        return {"enum": [one.value if isinstance(one, Enum) else one for one in arguments]}, False
    if origin in (typing.Union, types.UnionType):
        branches = [_schema(one, definitions, depth + 1) for one in arguments]
        if any(schema == _ANYTHING for schema, _ in branches):
            return _ANYTHING, False
        return {"anyOf": [schema for schema, _ in branches]}, False
    if isinstance(origin, type) and issubclass(origin, Mapping):
        schema: dict[str, Any] = {"type": "object"}
        if len(arguments) == 2 and (values := _schema(arguments[1], definitions, depth + 1)[0]):
            schema["additionalProperties"] = values
        return schema, False
    if isinstance(origin, type) and _is_array(origin):
        schema = {"type": "array"}
        several = origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis)
        if arguments and not several and (items := _schema(arguments[0], definitions, depth + 1)[0]):
            schema["items"] = items
        return schema, False
    return _ANYTHING, False


def _class(hint: type, definitions: dict[str, Any], depth: int) -> tuple[dict[str, Any], bool]:
    if issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}, False
    if issubclass(hint, dict | Mapping) and not typing.is_typeddict(hint):
        return {"type": "object"}, False
    if issubclass(hint, bytes | bytearray) or hint is object:
        return _ANYTHING, False
    if _is_array(hint):
        return {"type": "array"}, False
    if hint.__name__ in _IN_TEXT_FORM:
        return {"type": "string"}, False
    if hint.__name__ == "Decimal":
        return {"type": ["number", "string"]}, False
    for plain in (bool, int, float, str):
        if issubclass(hint, plain):
            return {"type": _PLAIN[plain]}, False
    model_schema = getattr(hint, "model_json_schema", None)
    if model_schema is not None:
        return _model(model_schema, definitions), False
    if typing.is_typeddict(hint):
        keys = set(getattr(hint, "__required_keys__", ()))
        return _record(typing.get_type_hints(hint), keys, definitions, depth), False
    if dataclasses.is_dataclass(hint):
        needed = {
            field.name
            for field in dataclasses.fields(hint)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        }
        try:
            members = typing.get_type_hints(hint)
        except Exception:
            members = {field.name: Any for field in dataclasses.fields(hint)}
        return _record(members, needed, definitions, depth), False
    return _ANYTHING, True


def _record(
    members: Mapping[str, Any], needed: AbstractSet[str], definitions: dict[str, Any], depth: int
) -> dict[str, Any]:
    properties = {name: _schema(hint, definitions, depth + 1)[0] for name, hint in members.items()}
    return {"type": "object", "properties": properties, "required": sorted(needed)}


def _model(model_schema: Callable[[], dict[str, Any]], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a pydantic model, its definitions moved to the root that its references mean."""
    try:
        schema = dict(model_schema())
    except Exception:  # a model with a member that has no JSON form
        return {"type": "object"}
    for name, definition in schema.pop("$defs", {}).items():
        if definitions.setdefault(name, definition) != definition:
            return {"type": "object"}
    return schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema:
        return schema
    branches = schema["anyOf"] if list(schema) == ["anyOf"] else [schema]
    return {"anyOf": [*branches, {"type": "null"}]} if {"type": "null"} not in branches else schema


def _is_array(kind: type) -> bool:
    return issubclass(kind, list | tuple | AbstractSet) or kind.__name__ in _ARRAYS
