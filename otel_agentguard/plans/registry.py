"""The tools that there are, and what each can be called with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from otel_agentguard.annotations import effect_of_annotations
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Effect, ToolSpec
from otel_agentguard.plans.functions import parameters_schema
from otel_agentguard.plans.names import NameIndex
from otel_agentguard.plans.schemas import KEY_PARAMETER, ArgumentSchema, compile_schema

_logger = logging.getLogger("otel_agentguard")


class ToolRegistry(Mapping[str, ToolSpec]):
    """Tools by name, their schemas compiled once; it does not change.

    Args:
        specs: The tools.
        strict: Whether a tool that cannot be checked is an error. If not, it is logged once and known
            by name only; of two tools of one name the later one counts.

    Raises:
        ConfigError: Names the tool whose schema is broken, or which is there twice; strict only.
    """

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool = True) -> None:
        self._specs: dict[str, ToolSpec] = {}
        for spec in specs:
            if not isinstance(spec.name, str) or not spec.name:
                raise ConfigError(f"a tool has the name {spec.name!r}; give it a text")
            if strict and spec.name in self._specs:
                raise ConfigError(f"tool {spec.name!r} is there twice; give each tool its own name")
            self._specs[spec.name] = spec
        self.index = NameIndex(self._specs)
        self._found: dict[str, tuple[ToolSpec, ArgumentSchema | None]] = {}
        self._schemas: dict[str, ArgumentSchema | None] = {}
        if strict:
            for name, spec in self._specs.items():
                self._schemas[name] = compile_schema(spec.schema, tool=name)

    @classmethod
    def of(cls, tools: ToolRegistry | Mapping[str, ToolSpec] | Iterable[ToolSpec] | None) -> ToolRegistry:
        """A registry of whatever holds `ToolSpec`s; one that is a registry already is returned as it is."""
        if isinstance(tools, ToolRegistry):
            return tools
        if tools is None:
            return cls()
        return cls(tools.values() if isinstance(tools, Mapping) else tools)

    @classmethod
    def from_functions(cls, *functions: Callable[..., object] | Iterable[Callable[..., object]]) -> ToolRegistry:
        """Tools from Python functions: names, type hints, defaults and the first line of the docstring.

        Of functions declared with `@tool` also effect and identity, and without the parameter for the key.

        Args:
            functions: Functions, or one iterable of them.
        """
        flat: list[Callable[..., object]] = []
        for one in functions:
            flat += [one] if callable(one) else list(one)
        return cls(_from_function(function) for function in flat)

    @classmethod
    def from_mcp(cls, tools: object) -> ToolRegistry:
        """Tools from an MCP server's answer to `tools/list`.

        Args:
            tools: `ListToolsResult`, its JSON form, or the tools of it; objects or dicts. Of the hints,
                which a server may say what it likes in, only a `readOnlyHint` that no other denies is taken over.
        """
        return cls(_from_mcp(tool) for tool in _members(tools, "tools", "from_mcp"))

    @classmethod
    def from_openai(cls, tools: object) -> ToolRegistry:
        """Tools from OpenAI tool definitions, of Chat Completions or of the Responses API.

        Args:
            tools: The list handed to the API. Hosted tools (`{"type": "web_search"}`) are known by name.
        """
        return cls(_from_openai(tool) for tool in _members(tools, "tools", "from_openai"))

    @classmethod
    def from_langchain(cls, tools: object) -> ToolRegistry:
        """Tools from LangChain, without the arguments that LangChain itself injects.

        Args:
            tools: `BaseTool`s, or a toolkit.
        """
        if callable(getattr(tools, "get_tools", None)):
            tools = tools.get_tools()  # type: ignore[attr-defined]
        return cls(_from_langchain(tool) for tool in _members(tools, "tools", "from_langchain"))

    @classmethod
    def from_dicts(cls, tools: object) -> ToolRegistry:
        """Tools from plain data, such as the `tools` of a run log.

        Args:
            tools: A list of dicts with a `name`, or dicts by name. A dict holds a JSON Schema (`schema`,
                `parameters`, `input_schema` or `inputSchema`), or names of arguments: `required` or
                `required_args`, `optional` or `optional_args`, and by argument `items_schema`. Also
                `description`, `effect`, `repeatable`, `identity`.
        """
        if isinstance(tools, Mapping) and "tools" not in tools:
            return cls(_from_dict({"name": name, **_as_dict(tool, f"tool {name!r}")}) for name, tool in tools.items())
        return cls(_from_dict(_as_dict(tool, "a tool")) for tool in _members(tools, "tools", "from_dicts"))

    def __getitem__(self, name: str) -> ToolSpec:
        return self._specs[name]

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._specs)})"

    def resolve(self, name: str) -> str | None:
        """The tool that is meant where only case, `-`, `_` or the prefix of a server differ; else None."""
        return name if name in self._specs else self.index.resolve(name)

    def find(self, name: str) -> tuple[ToolSpec, ArgumentSchema | None] | None:
        """A tool under any spelling of its name, and what it can be called with; None when there is none."""
        found = self._found.get(name)
        if found is None and (known := self.resolve(name)) is not None:
            found = self._specs[known], self.arguments(known)
            if known == name:
                self._found[name] = found
        return found

    def near(self, name: str, most: int = 3) -> tuple[str, ...]:
        """Tools that may be meant by a name that is not known, nearest first."""
        return self.index.near(name, most)

    def arguments(self, name: str) -> ArgumentSchema | None:
        """What a tool can be called with; None where its schema is broken (not strict only).

        Raises:
            KeyError: There is no such tool.
        """
        if name not in self._schemas:
            try:
                made: ArgumentSchema | None = compile_schema(self._specs[name].schema, tool=name)
            except ConfigError as exc:
                _logger.warning("agentguard: arguments go unchecked: %s", exc)
                made = None
            self._schemas[name] = made
        return self._schemas[name]


def _from_function(function: Callable[..., object]) -> ToolSpec:
    declared = getattr(function, "__agentguard__", None)  # what `@tool` leaves on a function
    key = getattr(declared, "key_param", None)
    schema = parameters_schema(function, hidden=(KEY_PARAMETER, key) if isinstance(key, str) else (KEY_PARAMETER,))
    if declared is not None:
        return ToolSpec(
            name=declared.name,
            schema=schema,
            description=declared.description,
            effect=declared.effect,
            identity=declared.identity,
        )
    bare = getattr(function, "func", function)
    name = getattr(function, "__name__", None) or getattr(bare, "__name__", None) or type(function).__name__
    text = getattr(function, "__doc__", None) if hasattr(function, "__name__") else getattr(bare, "__doc__", None)
    description = text.strip().splitlines()[0] if isinstance(text, str) and text.strip() else ""
    return ToolSpec(name=name, schema=schema, description=description)


def _from_mcp(tool: object) -> ToolSpec:
    schema = _first(tool, "inputSchema", "input_schema") or {}
    annotations = _first(tool, "annotations") or {}
    hints = {
        "readOnlyHint": _first(annotations, "readOnlyHint", "read_only_hint"),
        "destructiveHint": _first(annotations, "destructiveHint", "destructive_hint"),
    }
    return ToolSpec(
        name=_name(tool, "from_mcp"),
        schema=_schema_object(schema),
        description=str(_first(tool, "description") or ""),
        effect=effect_of_annotations(hints),
    )


def _from_openai(tool: object) -> ToolSpec:
    inner = _first(tool, "function")
    if inner is None:
        inner = tool
        if _first(tool, "name") is None and isinstance(hosted := _first(tool, "type"), str) and hosted != "function":
            return ToolSpec(name=hosted)
    return ToolSpec(
        name=_name(inner, "from_openai"),
        schema=_schema_object(_first(inner, "parameters") or {}),
        description=str(_first(inner, "description") or ""),
    )


def _from_langchain(tool: object) -> ToolSpec:
    schema: object = None
    for source in ("tool_call_schema", "args_schema"):
        schema = _first(tool, source)
        if schema is not None:
            break
    if schema is None and isinstance(args := _first(tool, "args"), Mapping):
        schema = {"type": "object", "properties": args}
    return ToolSpec(
        name=_name(tool, "from_langchain"),
        schema=_schema_object(schema or {}),
        description=str(_first(tool, "description") or ""),
    )


def _from_dict(tool: Mapping[str, Any]) -> ToolSpec:
    name = _name(tool, "from_dicts")
    schema = _first(tool, "schema", "parameters", "input_schema", "inputSchema")
    if schema is None:
        schema = _named_arguments(name, tool)
    identity = tool.get("identity")
    try:
        effect = Effect(tool.get("effect") or Effect.UNKNOWN)
    except ValueError:
        effect = Effect.UNKNOWN
    return ToolSpec(
        name=name,
        schema=_schema_object(schema),
        description=str(tool.get("description") or ""),
        effect=effect,
        repeatable=bool(tool.get("repeatable", False)),
        identity=None if identity is None else tuple(_names(name, "identity", identity) or ()),
    )


def _named_arguments(name: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    required = _names(name, "required", _first(tool, "required", "required_args", "required_arguments"))
    optional = _names(name, "optional", _first(tool, "optional", "optional_args", "optional_arguments"))
    if required is None and optional is None:
        return {}
    properties: dict[str, Any] = {one: {} for one in (*(required or ()), *(optional or ()))}
    items = tool.get("items_schema") or {}
    if not isinstance(items, Mapping):
        raise ConfigError(f"tool {name!r}: items_schema is {items!r}; give the schema of the items by argument")
    for argument, schema in items.items():
        if argument in properties:
            properties[argument] = {"type": "array", "items": _element(schema)}
        elif argument == "items" and len(required or ()) == 1:
            properties[required[0]] = {"type": "array", "items": _element(schema)}  # type: ignore[index]
    return {
        "type": "object",
        "properties": properties,
        "required": list(required or ()),
        "additionalProperties": False,
    }


def _element(schema: object) -> object:
    if isinstance(schema, Mapping) and "type" not in schema and ("required" in schema or "properties" in schema):
        return {"type": "object", **schema}
    return schema


def _names(tool: str, what: str, names: object) -> list[str] | None:
    """Names of arguments: a list, or a mapping whose keys they are."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigError(f"tool {tool!r}: {what} is {names!r}; give a list of names")
    listed = list(names)
    if not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"tool {tool!r}: {what} is {listed!r}; give a list of names")
    return listed


def _schema_object(schema: object) -> Mapping[str, object]:
    """A JSON Schema from one, or from a class that can give it (pydantic)."""
    for method in ("model_json_schema", "schema"):
        give = getattr(schema, method, None)
        if callable(give) and not isinstance(schema, Mapping):
            schema = give()
            break
    return schema  # type: ignore[return-value]  # what is no mapping is refused when it is compiled


def _first(source: object, *names: str) -> Any:
    for name in names:
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is not None:
            return value
    return None


def _name(tool: object, where: str) -> str:
    name = _first(tool, "name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}: a tool has no name: {str(tool)[:120]}")
    return name


def _as_dict(tool: object, what: str) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping):
        raise ConfigError(f"from_dicts: {what} is {type(tool).__name__}; give a dict")
    return tool


def _members(tools: object, attribute: str, where: str) -> Iterable[object]:
    inner = _first(tools, attribute) if not isinstance(tools, list | tuple) else None
    if inner is not None and not callable(inner):
        tools = inner
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise ConfigError(f"{where}: cannot read tools from {type(tools).__name__}; give a list of tools")
    return tools
