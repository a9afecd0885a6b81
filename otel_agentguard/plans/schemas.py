"""Schemas of arguments, compiled once, and what violates them.

jsonschema finds and explains errors; where jsonschema-rs is installed it answers first whether there
are any, some hundred times faster.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import orjson
import referencing
from jsonschema import validators

from otel_agentguard.errors import ConfigError
from otel_agentguard.forks import new_lock
from otel_agentguard.plans.plain_schemas import is_plainly_sound
from otel_agentguard.plans.references import Path, Scan
from otel_agentguard.plans.report import ErrorCode, cut, shorten

try:
    _fast: Any = import_module("jsonschema_rs")
except ImportError:
    _fast = None

KEY_PARAMETER = "idempotency_key"
"""The argument that the guard fills; a model neither sees nor gives it."""

_RANK = {code: rank for rank, code in enumerate(ErrorCode)}
_MOST_COMPILED = 1024
_MOST_VIOLATIONS = 64
_OPEN_KEYWORDS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames", "allOf", "anyOf", "oneOf"}
    | {"if", "then", "else", "not", "$ref", "$dynamicRef", "dependentSchemas", "dependencies"}
)
_ABOUT_WHOLE_VALUES = frozenset({"enum", "const", "not", "oneOf", "contains", "uniqueItems", "if", "unevaluatedItems"})


@dataclass(frozen=True, slots=True)
class Violation:
    """One argument that does not fit.

    Attributes:
        code: What kind of error.
        path: Where it stands in the arguments; the missing or surplus name included.
        got: JSON type or shortened value; a name for surplus arguments.
        expected: What fits.
        available: What there is to choose from: names of arguments, or values of an enumeration.
    """

    code: ErrorCode
    path: Path
    got: str
    expected: str
    available: tuple[str, ...] = ()


class ArgumentSchema:
    """The arguments of one tool; made by `compile_schema`.

    Attributes:
        anything: Nothing is known of the arguments, so that none can be wrong.
    """

    __slots__ = ("_fast", "_validator", "anything")

    def __init__(self, schema: Mapping[str, object]) -> None:
        prepared = _prepared(schema)
        self.anything = not prepared
        cls = validators.validator_for(prepared, default=jsonschema.Draft202012Validator)
        self._validator = _tolerant(cls)(prepared, registry=referencing.Registry())
        self._fast = None if self.anything else _fast_validator(prepared)

    def violations(self, arguments: Mapping[str, object], scan: Scan | None = None) -> list[Violation]:
        """What does not fit, all at once.

        Args:
            arguments: The arguments by name.
            scan: What stands in them; values whose type is not known yet fit everywhere.

        Raises:
            Exception: Whatever a schema that is itself broken makes jsonschema raise.
        """
        if self.anything:
            return []
        if self._fast is not None and (scan is None or not scan.untyped):
            try:
                if self._fast.is_valid(arguments):
                    return []
            except Exception:  # noqa: S110 - a value that the fast one cannot take is for the other one to judge
                pass
        found: dict[tuple[ErrorCode, Path], Violation] = {}
        for error in self._validator.iter_errors(arguments):
            if scan is not None and _excused(error, (), scan):
                continue
            for violation in _explained(error, ()):
                found.setdefault((violation.code, violation.path), violation)
            if len(found) >= _MOST_VIOLATIONS:
                break
        return sorted(found.values(), key=lambda violation: _RANK[violation.code])

    def try_out(self) -> None:
        """Let jsonschema walk the schema once, so that what is broken in it raises here.

        Raises:
            Exception: Whatever it makes jsonschema raise.
        """
        next(self._validator.iter_errors({}), None)


def compile_schema(schema: Mapping[str, object], *, tool: str) -> ArgumentSchema:
    """Compile a schema; equal schemas are compiled once in a process.

    Args:
        schema: JSON Schema of the arguments of a tool; without keywords it allows everything. An
            object schema that lists `properties` and does not say otherwise allows no others.
            A `pattern` that Python cannot compile is left out.
        tool: Name of the tool, for the error.

    Raises:
        ConfigError: The schema is no schema, or refers to something outside of itself.
    """
    if not isinstance(schema, Mapping):
        raise ConfigError(f"tool {tool!r}: its schema is {type(schema).__name__}; give a JSON Schema object")
    try:
        key: bytes | None = orjson.dumps(schema, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):
        key = None
    if key is not None and (known := _compiled.get(key)) is not None:
        return known
    try:
        made = _checked(schema)
    except ConfigError as exc:
        raise ConfigError(f"tool {tool!r}: {exc}; mend the schema, or leave it out to check the name alone") from exc
    if key is not None:
        _compiled.put(key, made)
    return made


class _Compiled:
    def __init__(self) -> None:
        self._lock = new_lock()
        self._kept: OrderedDict[bytes, ArgumentSchema] = OrderedDict()

    def get(self, key: bytes) -> ArgumentSchema | None:
        with self._lock:
            made = self._kept.get(key)
            if made is not None:
                self._kept.move_to_end(key)
            return made

    def put(self, key: bytes, made: ArgumentSchema) -> None:
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > _MOST_COMPILED:
                self._kept.popitem(last=False)


_compiled = _Compiled()


def _checked(schema: Mapping[str, object]) -> ArgumentSchema:
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ConfigError(f"the schema of arguments is of type {kind!r}, not 'object'")
    try:
        prepared = _prepared(schema)
        cls = validators.validator_for(prepared, default=jsonschema.Draft202012Validator)
        if not is_plainly_sound(prepared):
            cls.check_schema(prepared)
        _check_references(prepared)
        made = ArgumentSchema(schema)
        made.try_out()
    except jsonschema.SchemaError as exc:
        where = "/".join(map(str, exc.absolute_path)) or "its root"
        raise ConfigError(f"the schema is broken at {where}: {shorten(exc.message, 200)}") from exc
    except RecursionError as exc:
        raise ConfigError("the schema refers to itself without end") from exc
    except ConfigError:
        raise
    except Exception as exc:
        raise ConfigError(f"the schema is broken: {type(exc).__name__}: {shorten(str(exc), 200)}") from exc
    return made


def _prepared(schema: Mapping[str, object]) -> dict[str, Any]:
    """A copy without the guard's own parameter, closed where it lists its properties."""
    copy: dict[str, Any] = _without_bad_patterns(schema)
    properties = copy.get("properties")
    if isinstance(properties, dict):
        properties.pop(KEY_PARAMETER, None)
        if _OPEN_KEYWORDS.isdisjoint(copy):
            copy["additionalProperties"] = False
    required = copy.get("required")
    if isinstance(required, list) and KEY_PARAMETER in required:
        copy["required"] = [name for name in required if name != KEY_PARAMETER]
    if list(copy) == ["type"]:
        return {}
    return copy


def _without_bad_patterns(value: Any, depth: int = 0) -> Any:
    if depth > 64:
        raise ConfigError("the schema is nested more than 64 deep")
    if isinstance(value, Mapping):
        return {
            str(key): _without_bad_patterns(item, depth + 1)
            for key, item in value.items()
            if not (key == "pattern" and isinstance(item, str) and not _compiles(item))
        }
    if isinstance(value, list | tuple):
        return [_without_bad_patterns(item, depth + 1) for item in value]
    return value


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _check_references(schema: Mapping[str, Any]) -> None:
    for target in _reference_targets(schema):
        if not target.startswith("#"):
            raise ConfigError(f"the schema refers to {target!r}, which is outside of it")
        if target.startswith("#/") and not _points_at_something(schema, target):
            raise ConfigError(f"the schema refers to {target!r}, which it does not have")


def _reference_targets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target
        for key, item in value.items():
            if key not in {"enum", "const", "default", "examples"}:
                yield from _reference_targets(item)
    elif isinstance(value, list):
        for item in value:
            yield from _reference_targets(item)


def _points_at_something(schema: Any, pointer: str) -> bool:
    for part in pointer[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~").replace("%25", "%")
        if isinstance(schema, dict) and part in schema:
            schema = schema[part]
        elif isinstance(schema, list) and part.isdecimal() and int(part) < len(schema):
            schema = schema[int(part)]
        else:
            return False
    return True


def _tolerant(cls: Any) -> Any:
    """The validator class of a draft, for which tuples are arrays and any mapping is an object."""
    known = _tolerant_classes.get(cls)
    if known is None:
        checker = cls.TYPE_CHECKER.redefine_many(
            {
                "array": lambda _, value: isinstance(value, list | tuple),
                "object": lambda _, value: isinstance(value, Mapping),
            }
        )
        known = _tolerant_classes[cls] = validators.extend(cls, type_checker=checker)
    return known


_tolerant_classes: dict[Any, Any] = {}


def _fast_validator(schema: Mapping[str, Any]) -> Any:
    if _fast is None:
        return None
    if any(not target.startswith("#") for target in _reference_targets(schema)):
        return None  # it would fetch them from the network
    try:
        return _fast.validator_for(schema, validate_formats=False)
    except Exception:
        return None


def _excused(error: jsonschema.ValidationError, above: Path, scan: Scan) -> bool:
    """Whether an error is only about values that are not known yet."""
    path = (*above, *error.relative_path)
    if any(path[:depth] in scan.untyped for depth in range(len(path) + 1)):
        return True
    if path in scan.partial and error.validator != "type":
        return True
    if error.validator in {"anyOf", "oneOf"} and error.context:
        branches: dict[object, bool] = {}
        for inner in error.context:
            branch = inner.schema_path[0] if inner.schema_path else None
            branches[branch] = branches.get(branch, True) and _excused(inner, path, scan)
        if any(branches.values()):
            return True
    if error.validator in _ABOUT_WHOLE_VALUES:
        return any(known[: len(path)] == path for known in (*scan.untyped, *scan.partial))
    return False


def _explained(error: jsonschema.ValidationError, above: Path) -> Iterable[Violation]:
    path = (*above, *error.relative_path)
    value, instance = error.validator_value, error.instance
    match error.validator:
        case "required":
            for name in value:
                if name not in instance:
                    expected = describe(error.schema.get("properties", {}).get(name, {}))
                    yield Violation(ErrorCode.MISSING_ARGUMENT, (*path, name), "nothing", expected)
        case "dependentRequired" | "dependencies" if isinstance(value, Mapping):
            for given, needed in value.items():
                if given in instance and isinstance(needed, list):
                    for name in needed:
                        if name not in instance:
                            code = ErrorCode.MISSING_ARGUMENT
                            yield Violation(code, (*path, name), "nothing", f"a value, since `{given}` is given")
        case "additionalProperties" | "unevaluatedProperties" if value is False:
            names = tuple(error.schema.get("properties", {}))
            patterns = tuple(error.schema.get("patternProperties", {}))
            for name in instance:
                if name not in names and not any(re.search(pattern, name) for pattern in patterns):
                    expected = "one of the arguments there are" if names else "no arguments"
                    yield Violation(ErrorCode.UNKNOWN_ARGUMENT, (*path, name), f"`{shorten(name)}`", expected, names)
        case "type":
            yield Violation(ErrorCode.WRONG_TYPE, path, type_of(instance), describe({"type": value}))
        case "enum" | "const":
            allowed = cut([_plain(item) for item in (value if error.validator == "enum" else [value])])
            yield Violation(ErrorCode.ENUM, path, _plain(instance), f"one of {', '.join(allowed)}", allowed)
        case "anyOf" | "oneOf" if error.context:
            yield from _branches(error, path)
        case _:
            yield Violation(ErrorCode.CONSTRAINT, path, _measured(error), _constraint(error))


def _branches(error: jsonschema.ValidationError, path: Path) -> Iterable[Violation]:
    """Speak of the one alternative that was meant, if that can be told."""
    branches: dict[object, list[jsonschema.ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.schema_path[0], []).append(inner)
    shaped = [
        inners
        for inners in branches.values()
        if not any(inner.validator == "type" and not inner.relative_path for inner in inners)
    ]
    if len(shaped) == 1:
        for inner in shaped[0]:
            yield from _explained(inner, path)
    elif not shaped:
        yield Violation(ErrorCode.WRONG_TYPE, path, type_of(error.instance), describe(error.schema))
    else:
        forms = f"{describe(error.schema)} as the schema says"
        yield Violation(ErrorCode.CONSTRAINT, path, type_of(error.instance), forms)


_BOUNDS: Mapping[str, str] = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} members",
    "maxProperties": "at most {} members",
    "pattern": "text that matches {}",
}


def _constraint(error: jsonschema.ValidationError) -> str:
    words = _BOUNDS.get(str(error.validator))
    if words is not None:
        return words.format(error.validator_value)
    if error.validator == "uniqueItems":
        return "items that differ"
    return f"a value that satisfies {error.validator}" if error.validator else "no value here"


def _measured(error: jsonschema.ValidationError) -> str:
    instance = error.instance
    match error.validator:
        case "minLength" | "maxLength":
            return f"{len(instance)} characters"
        case "minItems" | "maxItems" | "minProperties" | "maxProperties":
            return f"{len(instance)}"
        case _:
            return _plain(instance)


def _plain(value: object) -> str:
    if isinstance(value, str):
        return shorten(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return shorten(repr(value)) if not isinstance(value, int) or value.bit_length() < 1024 else "a huge integer"
    return type_of(value)


def type_of(value: object) -> str:
    """The JSON type of a value, in the words of JSON Schema."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((str, "string"), (int, "integer"), (float, "number"), (Mapping, "object")):
        if isinstance(value, kind):
            return name
    return "array" if isinstance(value, list | tuple) else type(value).__name__


def describe(schema: object) -> str:
    """What a schema asks for, in a few words."""
    if not isinstance(schema, Mapping):
        return "a value"
    if "enum" in schema and isinstance(schema["enum"], list):
        return f"one of {', '.join(cut([_plain(item) for item in schema['enum']]))}"
    for word in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(word), list):
            return " or ".join(dict.fromkeys(describe(branch) for branch in branches))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind)
    if kind == "array" and isinstance(items := schema.get("items"), Mapping) and "type" in items:
        return f"array of {describe(items)}"
    return str(kind) if kind else "a value"


def argument_path(path: Sequence[str | int]) -> str:
    """A path in arguments as text: `args.items[0].sku`."""
    return "args" + "".join(f"[{part}]" if isinstance(part, int) else f".{shorten(part)}" for part in path)
