"""Plans of any shape, read into the neutral one."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Plan, PlanStep, ToolSpec

MODEL_TOOLS = frozenset({"LLM"})
"""Names that a plan gives to the model itself as a worker; https://arxiv.org/abs/2305.18323."""

_STEPS = ("steps", "plan", "tasks", "todos", "items", "actions", "tool_calls")
_ID = ("id", "n", "step", "step_id", "step_number", "number", "idx", "index", "task_id")
_TOOL = ("tool", "tool_name", "tool_to_use", "toolName", "function", "action", "name")
_ARGUMENTS = (
    "args", "arguments", "input", "parameters", "params", "action_input", "tool_input", "inputs", "kwargs", "args_hint",
)  # fmt: skip
_GIVING = frozenset(_ARGUMENTS)
_DEPENDS = ("depends_on", "deps", "dependencies", "dependsOn")
_AGENT = ("agent", "assignee", "agent_name", "assigned_to")
_TEXT = ("content", "description", "text", "task", "title", "note", "step_description")
_ONLY_TEXT = frozenset({str})
_NO_TOOL = frozenset({"", "none", "null", "n/a", "na", "-", "no tool", "no_tool"})
_JOINS = frozenset({"join", "finish", "join_finish"})
_MOST_STEPS = 1000

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_REWOO = re.compile(r"^\s*#(E\d+)\s*=\s*([\w.\-]+)\s*\[(.*?)\]\s*$", re.MULTILINE | re.DOTALL)
_NUMBERED_CALL = re.compile(r"^\s*(\d+)[.)]\s*([A-Za-z_][\w.\-]*)\((.*)\)\s*(?:<END_OF_PLAN>)?\s*(?:#.*)?$")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])?\s*(?:\[[ xX~-]?\])?\s*")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.\-]*")
_BARE_REFERENCE = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(\$\{?\d+\}?|#E\d+)""")
_PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s*[=:]\s*(.+?)\s*")


class Hint:
    """Stands for an argument that a plan promises without giving its value; fits every type."""

    __slots__ = ("text",)

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Hint({self.text!r})"


class Known(Protocol):
    """What `parse_plan` asks of a registry."""

    def resolve(self, name: str) -> str | None:
        """The tool that is meant by a name; None when there is none."""
        ...

    def __getitem__(self, name: str) -> ToolSpec: ...


def parse_plan(plan: object, *, tools: Known | None = None) -> tuple[PlanStep, ...]:
    """Read a plan.

    Args:
        plan: One of: `PlanStep`s or a `Plan`; `{"steps": [...]}` or a list of dicts or of objects with
            such attributes (CrewAI's `PlanStep`, pydantic models, dataclasses); the text of LLMCompiler
            (`1. search("x")`, `$1`) or ReWOO (`#E1 = Search[x]`); JSON text of the above; a todo list,
            as lines or items. The first 1,000 steps are read.
        tools: Names the arguments that a text gives by position only, and tells tools from prose in a
            todo list.

    Returns:
        The steps. Those without a number get their place. Where no step of the plan gives arguments,
        it names tools only, and its arguments are None.

    Raises:
        ConfigError: It is none of these.
    """
    if isinstance(plan, Plan):
        plan = plan.steps
    if isinstance(plan, str):
        return _from_text(plan, tools)
    items = _items(plan)
    if all(type(item) is PlanStep for item in items):
        return tuple(items)
    rows: list[Mapping[str, Any] | PlanStep | str] = [_row(item) for item in items]
    dicts = [row for row in rows if isinstance(row, Mapping)]
    gives = any(not _GIVING.isdisjoint(row) for row in dicts) or any(_call_of(row) for row in dicts)
    steps: list[PlanStep] = []
    for place, row in enumerate(rows):
        if isinstance(row, PlanStep):
            steps.append(row)
        elif isinstance(row, str):
            steps.append(_todo(str(place + 1), row, tools))
        else:
            steps.append(_from_mapping(row, place, gives, tools))
    return tuple(steps)


def _items(plan: object) -> Sequence[Any]:
    if isinstance(plan, Mapping):
        inner = next((plan[key] for key in _STEPS if isinstance(plan.get(key), list | tuple)), None)
        plan = inner if inner is not None else [plan]
    elif not isinstance(plan, list | tuple):
        inner = next((v for key in _STEPS if isinstance(v := getattr(plan, key, None), list | tuple)), None)
        if inner is not None:
            plan = inner
        elif isinstance(plan, Iterable) and not isinstance(plan, bytes):
            plan = list(plan)
        else:
            raise ConfigError(f"cannot read a plan from {type(plan).__name__}; give a list of steps, or its text")
    return plan[:_MOST_STEPS]


def _row(item: object) -> Mapping[str, Any] | PlanStep | str:
    if type(item) is dict or isinstance(item, Mapping | PlanStep | str):
        return item
    dump = getattr(item, "model_dump", None)
    if callable(dump):
        return _row(dump())
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    names = (*_ID, *_TOOL, *_ARGUMENTS, *_DEPENDS, *_AGENT, *_TEXT, "optional")
    row = {name: value for name in names if (value := getattr(item, name, None)) is not None and not callable(value)}
    if not row:
        raise ConfigError(f"cannot read a step from {type(item).__name__}; give a dict with 'tool' and 'args'")
    return row


def _from_mapping(row: Mapping[str, Any], place: int, gives: bool, tools: Known | None) -> PlanStep:
    given = _parts(row)
    name = given.get("id")
    step_id = name if type(name) is str else _number(name, place)
    tool, arguments = _call_of(row) or (_tool_of(row), given.get("arguments"))
    text = given.get("text")
    if tool is None and isinstance(text, str) and not any(key in row for key in _TOOL):
        tool = _todo(step_id, text, tools).tool
        gives = False
    if tool is None and arguments is None:
        found: Mapping[str, object] | None = None
    else:
        found = _arguments_of(arguments, tool, gives, tools)
    agent = given.get("agent")
    return PlanStep(
        id=step_id,
        tool=tool,
        arguments=found,
        agent=agent if isinstance(agent, str) and agent else None,
        depends_on=_ids(given.get("depends_on")),
        optional=bool(row.get("optional", False)),
    )


def _number(name: object, place: int) -> str:
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    return str(place + 1) if name is None or isinstance(name, bool | dict | list) else str(name)


def _call_of(row: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The call in a step that looks like a model's tool call."""
    inner = row.get("function")
    if inner is not None and isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
        return inner["name"], inner.get("arguments", {})
    return None


def _tool_of(row: Mapping[str, Any]) -> str | None:
    for key in _TOOL:
        value = row.get(key)
        if isinstance(value, str):
            name = value.strip()
            if key == "tool" and len(name) > 4:
                return name
            if key in ("action", "name") and not _IDENTIFIER.fullmatch(name):
                continue
            if key == "name" and not any(other in row for other in _ARGUMENTS):
                continue
            return None if name.casefold() in _NO_TOOL else name
    return None


def _arguments_of(given: object, tool: str | None, gives: bool, tools: Known | None) -> Mapping[str, object] | None:
    if type(given) is dict or isinstance(given, Mapping):
        return given if set(map(type, given)) <= _ONLY_TEXT else {str(key): v for key, v in given.items()}
    if given is None:
        return {} if gives and tool is not None else None
    if isinstance(given, str):
        return _from_hint(given, tool, tools)
    if isinstance(given, list | tuple):
        if all(isinstance(one, str) and _IDENTIFIER.fullmatch(one) for one in given):
            return {one: Hint() for one in given}
        return _by_position(given, tool, tools)
    dump = getattr(given, "model_dump", None)
    return dump() if callable(dump) else None


def _from_hint(text: str, tool: str | None, tools: Known | None) -> Mapping[str, object] | None:
    """Arguments from a text: JSON, `a=1, b=x`, or a list of names; else nobody knows."""
    text = text.strip()
    if not text:
        return {}
    if text[0] == "{":
        try:
            loaded = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        return loaded if isinstance(loaded, dict) else None
    parts = [part for part in re.split(r"[,;]\s*", text) if part.strip()]
    pairs = [_PAIR.fullmatch(part) for part in parts]
    if all(pairs):
        return {pair[1]: _literal(pair[2]) for pair in pairs if pair is not None}
    if all(_IDENTIFIER.fullmatch(part.strip()) for part in parts) and _are_arguments(parts, tool, tools):
        return {part.strip(): Hint() for part in parts}
    return None


def _are_arguments(parts: Sequence[str], tool: str | None, tools: Known | None) -> bool:
    """Whether words are names of arguments and not the hint itself (`{"args_hint": "weather"}`)."""
    known = _parameters(tool, tools)
    return len(parts) > 1 or any("_" in part for part in parts) or parts[0].strip() in known


def _literal(text: str) -> object:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return Hint(text.strip("\"'"))
    return value


def _ids(depends: object) -> tuple[str, ...]:
    if depends is None or depends == "":
        return ()
    if isinstance(depends, str):
        return tuple(part for part in re.split(r"[,\s]+", depends.strip("[] ")) if part)
    if type(depends) is list:
        return tuple(map(str, depends))
    if isinstance(depends, Iterable):
        return tuple(str(one) for one in depends if one is not None)
    return (str(depends),)


def _from_text(text: str, tools: Known | None) -> tuple[PlanStep, ...]:
    fenced = _FENCE.search(text)
    body = (fenced[1] if fenced else text).strip()
    if body[:1] in ("{", "["):
        try:
            return parse_plan(orjson.loads(body), tools=tools)
        except orjson.JSONDecodeError:
            pass
    rewoo = list(_REWOO.finditer(body))[:_MOST_STEPS]
    if rewoo:
        return tuple(PlanStep(id=m[1], tool=m[2], arguments=_rewoo_input(m[3], m[2], tools)) for m in rewoo)
    lines = [line for line in body.splitlines() if line.strip()][:_MOST_STEPS]
    calls = [match for line in lines if (match := _NUMBERED_CALL.match(line))]
    if calls:
        return tuple(_compiled_call(match, tools) for match in calls)
    items = [_BULLET.sub("", line).strip() for line in lines]
    return tuple(_todo(str(place + 1), item, tools) for place, item in enumerate(items))


def _rewoo_input(text: str, tool: str, tools: Known | None) -> Mapping[str, object] | None:
    text = text.strip()
    if text.startswith("{"):
        try:
            loaded = orjson.loads(text)
        except orjson.JSONDecodeError:
            loaded = None
        if isinstance(loaded, dict):
            return loaded
    return _by_position([text] if text else [], tool, tools)


def _compiled_call(match: re.Match[str], tools: Known | None) -> PlanStep:
    name, inside = match[2], match[3].strip()
    if name in _JOINS:
        return PlanStep(id=match[1])
    quoted = _BARE_REFERENCE.sub(lambda found: found[1] or f'"{found[2]}"', inside)
    try:
        call = ast.parse(f"f({quoted})", mode="eval").body
        assert isinstance(call, ast.Call)  # noqa: S101 - what `f(...)` parses to
        positional = [ast.literal_eval(one) for one in call.args]
        named = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg is not None}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        positional, named = [inside], {}
    if positional and not named and len(positional) == 1 and isinstance(positional[0], dict):
        return PlanStep(id=match[1], tool=name, arguments=positional[0])
    by_position = _by_position(positional, name, tools)
    arguments = None if by_position is None else {**by_position, **named}
    return PlanStep(id=match[1], tool=name, arguments=arguments)


def _by_position(values: Sequence[object], tool: str | None, tools: Known | None) -> dict[str, object] | None:
    """Name values that stand in the order of the parameters; None where the parameters are not known."""
    if not values:
        return {}
    names = _parameters(tool, tools)
    if not names:
        return None
    extra = {f"argument {place + 1}": values[place] for place in range(len(names), len(values))}
    return {**dict(zip(names, values, strict=False)), **extra}


def _parameters(tool: str | None, tools: Known | None) -> tuple[str, ...]:
    if tool is None or tools is None:
        return ()
    name = tools.resolve(tool)
    if name is None:
        return ()
    properties = tools[name].schema.get("properties")
    return tuple(properties) if isinstance(properties, Mapping) else ()


def _todo(step_id: str, text: str, tools: Known | None) -> PlanStep:
    """An item of a todo list: a tool if it is the name of one, else prose."""
    head = re.split(r"[:(]|\s-\s", text, maxsplit=1)[0].strip().strip("`")
    if _IDENTIFIER.fullmatch(head):
        if tools is not None and (name := tools.resolve(head)) is not None:
            return PlanStep(id=step_id, tool=name)
        if "_" in head and head == text.strip().strip("`"):
            return PlanStep(id=step_id, tool=head)
    return PlanStep(id=step_id)


def _parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a step gives, by part; of several names for one part the first of its list counts."""
    parts: dict[str, Any] = {}
    for key, value in row.items():
        part = _PARTS.get(key)
        if part is not None and value is not None:
            if part in parts:
                value = _first(row, _NAMES[part])
            parts[part] = value
    return parts


def _first(row: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((value for key in keys if (value := row.get(key)) is not None), None)


_NAMES = {"id": _ID, "arguments": _ARGUMENTS, "depends_on": _DEPENDS, "agent": _AGENT, "text": _TEXT}
_PARTS = {key: part for part, keys in _NAMES.items() for key in keys}
