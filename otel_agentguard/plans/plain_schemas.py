"""Schemas that are obviously sound, so that nobody has to walk the meta-schema for them.

The full check takes jsonschema 2 ms a tool; nearly all tools use a few keywords of JSON Schema only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return isinstance(value, list) and bool(value) and _are_names(value) and _TYPES.issuperset(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value) and len(set(value)) == len(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_anything(_: Any) -> bool:
    return True


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("#")


def _are_values(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _are_members(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(is_plainly_sound, value.values()))


def _are_branches(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_plainly_sound, value))


def is_plainly_sound(schema: Any) -> bool:
    """Whether a schema of the current draft holds common keywords only, each with a value of its kind.

    Args:
        schema: At most 64 deep.

    Returns:
        False also for sound schemas that use anything rarer; those want the full check.
    """
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, Mapping):
        return False
    return all((fits := _KEYWORDS.get(keyword)) is not None and fits(value) for keyword, value in schema.items())


_KEYWORDS: Mapping[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "properties": _are_members,
    "$defs": _are_members,
    "definitions": _are_members,
    "required": _are_names,
    "additionalProperties": is_plainly_sound,
    "items": is_plainly_sound,
    "anyOf": _are_branches,
    "oneOf": _are_branches,
    "allOf": _are_branches,
    "enum": _are_values,
    "const": _is_anything,
    "default": _is_anything,
    "$ref": _is_reference,
    "title": _is_text,
    "description": _is_text,
    "format": _is_text,
    "pattern": _is_text,
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "minLength": _is_count,
    "maxLength": _is_count,
    "minItems": _is_count,
    "maxItems": _is_count,
    "uniqueItems": _is_flag,
}
