"""The schema check: what one agent sends another has the form that the other one expects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import orjson
import referencing
from jsonschema import validators
from jsonschema.exceptions import SchemaError, best_match  # type: ignore[import-untyped]
from xxhash import xxh3_128_digest

from otel_agentguard import words
from otel_agentguard.config import Settings
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Event, Handoff, Message
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.protocols import RunInfo

Edge = tuple[str, str]
Schema = Mapping[str, object] | type[Any]

ANYBODY = "*"
"""Stands for every agent on one side of an edge."""

_NOTHING: tuple[Finding, ...] = ()
_ARROW = "->"
_MAX_CHARS = 1_000_000
_MAX_FAULTS = 5
_MAX_ERRORS = 32
_MAX_SHOWN = 120
_MAX_MODEL_DEPTH = 8
_DUMP = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One place in which a message does not fit.

    Attributes:
        path: Where, as in `$.lines[2].price`; `$` is the whole message.
        got: What stands there: its JSON type, never its content.
        expected: What would fit.
    """

    path: str
    got: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path}: got {self.got}, expected {self.expected}"


class SchemaCheck:
    """Keeps a malformed message from the agent that it is for.

    Args:
        schemas: What is expected by edge: `(from, to)`, or `"from->to"`. A schema is a JSON Schema, or
            a pydantic model (anything with `model_validate`), whose validators are run under the lock
            of the run. `"*"` on one side stands for every agent; the most specific edge holds.
        action: What is done about a message that does not fit.

    Raises:
        ConfigError: An edge or a schema is none, or a schema refers to something outside of itself.
    """

    name = CheckName.SCHEMA.value

    def __init__(self, schemas: Mapping[Edge | str, Schema], *, action: Action = Action.BLOCK) -> None:
        self._action = action
        self._forms: dict[Edge, _Form] = {}
        for edge, schema in schemas.items():
            known = _edge(edge)
            self._forms[known] = _form(known, schema)

    @classmethod
    def for_settings(cls, settings: Settings) -> Self:
        """The check with the schema files that the settings name.

        Raises:
            ConfigError: A file cannot be read, or holds no schema.
        """
        return cls({edge: _read(edge, Path(file)) for edge, file in settings.schemas.items()})

    def open(self, run: RunInfo) -> SchemaRun:
        """The check in one run; it remembers nothing."""
        return SchemaRun(self._forms, self._action)


class SchemaRun:
    """The schema check in one run."""

    __slots__ = ("_action", "_forms")

    def __init__(self, forms: Mapping[Edge, _Form], action: Action) -> None:
        self._forms = forms
        self._action = action

    def before(self, event: Event) -> Sequence[Finding]:
        """Judge a message or a handoff before it is sent."""
        if not isinstance(event, Message | Handoff):
            return _NOTHING
        found = self._form_for(event.agent, event.to)
        if found is None:
            return _NOTHING
        edge, form = found
        faults = _faults(event, form)
        return (self._finding(event, edge, faults),) if faults else _NOTHING

    def after(self, event: Event) -> Sequence[Finding]:
        """Nothing is left to say once it was sent."""
        return _NOTHING

    def _form_for(self, sender: str, receiver: str | None) -> tuple[Edge, _Form] | None:
        receivers = (ANYBODY,) if receiver is None else (receiver, ANYBODY)
        for edge in ((one, other) for one in (sender, ANYBODY) for other in receivers):
            if (form := self._forms.get(edge)) is not None:
                return edge, form
        return None

    def _finding(self, event: Message | Handoff, edge: Edge, faults: Sequence[Fault]) -> Finding:
        name = _ARROW.join(edge)
        shown = [str(fault) for fault in faults[:_MAX_FAULTS]]
        if more := len(faults) - len(shown):
            shown.append(f"and {more} more")
        places = " ".join((name, *(f"{fault.path} {fault.expected}" for fault in faults)))
        return Finding(
            check=CheckName.SCHEMA.value,
            kind=Kind.SCHEMA,
            severity=Severity.WARN,
            step=event.step,
            signature=xxh3_128_digest(places.encode("utf-8", "surrogatepass")),
            message=words.malformed_message(event.to, shown),
            explanation=words.malformed_to_people(event.agent, event.to, shown, f'schema."{name}"'),
            action=self._action,
            evidence=(event.step,),
            agent=event.agent,
            count=1,
        )


class _Form(Protocol):
    """What a message has to look like."""

    def faults(self, value: object) -> list[Fault]:
        """Where a value does not fit, by path; empty where it does."""
        ...


class _JsonForm:
    """A form given as JSON Schema."""

    def __init__(self, edge: Edge, schema: Mapping[str, object]) -> None:
        cls = validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            cls.check_schema(schema)
        except SchemaError as exc:
            raise ConfigError(f"schema {_ARROW.join(edge)!r} is no JSON Schema: {exc.message}") from exc
        outside = sorted({name for name in _references(schema) if not name.startswith("#")} - set(_ids(schema)))
        if outside:
            raise ConfigError(
                f"schema {_ARROW.join(edge)!r} refers to {outside[0]!r}, outside of itself; put that under $defs"
            )
        self._validator = cls(schema, registry=referencing.Registry())

    def faults(self, value: object) -> list[Fault]:
        """See `_Form`."""
        found: set[Fault] = set()
        for number, error in enumerate(self._validator.iter_errors(value)):
            if number >= _MAX_ERRORS:
                break
            found.update(_explained(best_match([error])))
        return sorted(found)


class _ModelForm:
    """A form given as a pydantic model, or whatever validates as one does."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def faults(self, value: object) -> list[Fault]:
        """See `_Form`.

        Raises:
            Exception: What the model raises besides its validation error.
        """
        try:
            self._model.model_validate(value)
        except ValueError as exc:
            errors: Callable[[], Iterable[Mapping[str, Any]]] | None = getattr(exc, "errors", None)
            if errors is None:
                raise
            return sorted({_model_fault(error) for error in errors()})
        return []


def _faults(event: Message | Handoff, form: _Form) -> list[Fault]:
    """Where an event does not fit; empty also where its content was not captured or is too long to look at."""
    payload = event.payload if isinstance(event, Message) else None
    if payload is not None:
        return form.faults(_plain(payload))
    if event.text is None or len(event.text) > _MAX_CHARS:
        return []
    as_text = form.faults(event.text)
    if not as_text:
        return []
    try:
        value = orjson.loads(_unfenced(event.text))
    except ValueError:
        return [Fault("$", "text that is no JSON", fault.expected) for fault in as_text]
    return form.faults(value)


def _unfenced(text: str) -> str:
    """The content of the one code block that a model may put around its JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") : -3]
    return text


def _plain(value: object) -> object:
    return orjson.loads(orjson.dumps(value, _as_data, _DUMP))


def _as_data(value: Any) -> object:
    if callable(dump := getattr(type(value), "model_dump", None)):
        return dump(value)
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a message holds {type(value).__qualname__}, which has no JSON form")


def _edge(edge: object) -> Edge:
    parts = edge.split(_ARROW) if isinstance(edge, str) else edge
    if isinstance(parts, tuple | list) and len(parts) == 2 and all(isinstance(one, str) for one in parts):
        sender, receiver = parts[0].strip(), parts[1].strip()
        if sender and receiver:
            return sender, receiver
    raise ConfigError(f'{edge!r} is no edge; give ("coder", "reviewer") or "coder->reviewer"')


def _form(edge: Edge, schema: object) -> _Form:
    if hasattr(schema, "model_validate"):
        return _ModelForm(schema)
    if isinstance(schema, Mapping):
        return _JsonForm(edge, schema)
    raise ConfigError(f"schema {_ARROW.join(edge)!r} is {schema!r}; give a JSON Schema or a pydantic model")


def _read(edge: str, file: Path) -> Mapping[str, object]:
    try:
        schema = orjson.loads(file.read_bytes())
    except OSError as exc:
        raise ConfigError(f"schema {edge!r}: cannot read '{file}': {exc.strerror}") from exc
    except ValueError as exc:
        raise ConfigError(f"schema {edge!r}: '{file}' is not JSON: {exc}") from exc
    if not isinstance(schema, dict):
        raise ConfigError(f"schema {edge!r}: '{file}' holds no JSON Schema object")
    return schema


def _references(schema: object) -> Iterator[str]:
    yield from _values_of("$ref", schema)


def _ids(schema: object) -> Iterator[str]:
    yield from _values_of("$id", schema)


def _values_of(name: str, schema: object) -> Iterator[str]:
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            if isinstance(found := node.get(name), str):
                yield found
            pending += node.values()
        elif isinstance(node, list | tuple):
            pending += node


def _explained(error: Any) -> list[Fault]:
    """What an error of jsonschema says, as places with what they hold."""
    at = _path(error.absolute_path)
    wanted = error.validator_value
    match error.validator:
        case "required":
            missing = [name for name in wanted if name not in error.instance]
            return [Fault(_below(at, name), "nothing", _type_in(error.schema, name)) for name in missing]
        case "additionalProperties":
            known = error.schema.get("properties", {})
            allowed = [re.compile(one) for one in error.schema.get("patternProperties", {})]
            surplus = [
                name for name in error.instance if name not in known and not any(one.search(name) for one in allowed)
            ]
            return [Fault(_below(at, name), "a field", f"only {_list(known) or 'no field'}") for name in surplus]
        case "type":
            return [Fault(at, _kind(error.instance), _list(wanted if isinstance(wanted, list) else [wanted]))]
        case "enum":
            return [Fault(at, f"another {_kind(error.instance)}", _list(map(_json, wanted)))]
        case "const":
            return [Fault(at, f"another {_kind(error.instance)}", _json(wanted))]
        case _:
            return [Fault(at, _kind(error.instance), _rule(error.validator, wanted))]


_RULES: Mapping[str, str] = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "text that matches {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} fields",
    "maxProperties": "at most {} fields",
}


def _rule(keyword: str, wanted: object) -> str:
    rule = _RULES.get(keyword)
    return f"{keyword} {_json(wanted)}" if rule is None else rule.format(_json(wanted))


def _type_in(schema: Mapping[str, Any], name: str) -> str:
    kind = schema.get("properties", {}).get(name)
    kind = kind.get("type") if isinstance(kind, Mapping) else None
    return "a value" if kind is None else _list(kind if isinstance(kind, list) else [kind])


def _model_fault(error: Mapping[str, Any]) -> Fault:
    path = _path(list(error.get("loc", ()))[:_MAX_MODEL_DEPTH])
    got = "nothing" if error.get("type") == "missing" else _kind(error.get("input"))
    return Fault(path, got, _shortened(str(error.get("msg", "another value"))))


def _path(parts: Iterable[object]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _below(path: str, name: object) -> str:
    return f"{path}.{name}"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return f"string of {len(value):,} characters"
        case Mapping():
            return "object"
        case list() | tuple():
            return f"array of {len(value):,} items"
        case _:
            return type(value).__name__


def _list(names: Iterable[object]) -> str:
    return _shortened(" or ".join(map(str, names)))


def _json(value: object) -> str:
    return _shortened(orjson.dumps(value).decode())


def _shortened(shown: str) -> str:
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 1]}…"
