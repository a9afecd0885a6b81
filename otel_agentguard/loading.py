"""Where settings come from.

An argument beats the environment, which beats OpenTelemetry's declarative configuration, which beats
`agentguard.toml`, which beats the default. A key is the dotted path of the file: `loop.same.hint`,
`tools.NAME.same.hint`, `budget.steps`. In the environment it is upper-cased with `__` for the dots and
`AGENTGUARD_` in front. `AGENTGUARD_MODE` alone beats everything, so that whoever operates a program can turn
its guard off without touching its code.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

from otel_agentguard.config import LOOP_ROWS, Budget, LoopSettings, Mode, Settings, ToolSettings
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Effect
from otel_agentguard.findings import Limits

_logger = logging.getLogger("otel_agentguard")

FILE_NAME = "agentguard.toml"
DECLARATIVE_FILE = "OTEL_CONFIG_FILE"
PREFIX = "AGENTGUARD_"

_Key = tuple[str, ...]
_Parser = Callable[[object], object]
_LIMIT_NAMES = ("hint", "block", "stop")
_HIDDEN = frozenset({"fingerprint_key"})
_NEVER = frozenset({"never", "none"})
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class _Given:
    value: object
    source: str


def load(
    arguments: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
    defaults: Mapping[str, object] | None = None,
    declared: Mapping[str, object] | None = None,
) -> Settings:
    """Settings from all places where they can be given.

    Args:
        arguments: Values by key, dotted (`loop.same.hint`) or nested; parts may be `Limits`,
            `LoopSettings`, `ToolSettings` and `Budget`. `limits` is another name of `loop`. None
            means not given.
        environ: The environment; an empty variable counts as not set.
        file: The settings file; None looks for `agentguard.toml` in the working directory.
        defaults: What holds where nobody says otherwise, in place of the defaults of `Settings`.
        declared: What stands under our name in OpenTelemetry's declarative configuration.

    Raises:
        ConfigError: A key is unknown, a value does not fit, or the file cannot be read.
    """
    given: dict[_Key, _Given] = {}
    for layer in (
        _from_mapping(defaults or {}, "default"),
        _from_file(file),
        _from_declared(declared or {}, environ.get(DECLARATIVE_FILE)),
        _from_environment(environ),
        _from_mapping(arguments or {}, "argument"),
    ):
        given.update(layer)
    settings = _applied(Settings(), given)
    if forced := environ.get(f"{PREFIX}MODE"):
        mode = _parsed(("mode",), _Given(forced, f"{PREFIX}MODE"))
        settings = replace(settings, mode=mode, mode_forced=mode)
    return settings


def with_values(settings: Settings, values: Mapping[str, object]) -> Settings:
    """Settings with single values changed.

    Args:
        settings: Where the rest comes from.
        values: New values by dotted key, text as on a command line: `{"loop.same.hint": "4"}`.

    Raises:
        ConfigError: A key is unknown or a value does not fit.
    """
    return _applied(settings, _from_mapping(values, "as given"))


def value_of(settings: Settings, dotted: str) -> object:
    """The value that a key has; None where it is not set."""
    match _split(dotted):
        case ("loop", *rest):
            return dict(_flat((), settings.loop)).get(tuple(rest))
        case ("budget", *rest):
            return dict(_flat((), settings.budget)).get(tuple(rest))
        case ("tools", name, row, limit):
            return getattr(settings.limits(row, name), limit, None)
        case ("tools", name, field):
            return getattr(settings.tools.get(name, ToolSettings()), field, None)
        case (name, *_):
            return getattr(settings, name, None)
        case _:
            return None


def known_keys() -> list[str]:
    """Every key, with `ROW` for a row of the loop check, and `NAME`, `FROM` and `TO` for tools and agents."""
    return [
        *_TOP,
        *(f"loop.{name}" for name in _LOOP),
        *(f"loop.ROW.{name}" for name in _LIMIT_NAMES),
        *(f"tools.NAME.{name}" for name in _TOOL),
        *(f"tools.NAME.ROW.{name}" for name in _LIMIT_NAMES),
        *(f"budget.{name}" for name in _BUDGET),
        *(f"budget.agents.NAME.{name}" for name in _BUDGET),
        "schema.FROM->TO.file",
    ]


def _from_mapping(values: Mapping[str, object], source: str) -> dict[_Key, _Given]:
    given = {}
    for name, value in values.items():
        if value is None:
            continue
        key = _split("loop" if name == "limits" else name)
        given.update({path: _Given(leaf, source) for path, leaf in _flat(key, value)})
    return given


def _from_file(file: Path | None) -> dict[_Key, _Given]:
    path = file or Path(FILE_NAME)
    if file is None and not path.is_file():
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"cannot read the settings file '{path}': {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the settings file '{path}' is not TOML: {exc}") from exc
    return _beside(path, {key: _Given(value, str(path)) for key, value in _flat((), content)})


def _from_declared(values: Mapping[str, object], file: str | None) -> dict[_Key, _Given]:
    if values.get("mode") is False:
        values = {**values, "mode": Mode.OFF.value}  # what a bare `off` is in YAML
    where = file or "the declarative configuration"
    given = _from_mapping(values, f"under 'agentguard' in {where}")
    return _beside(Path(file), given) if file else given


def _beside(file: Path, given: dict[_Key, _Given]) -> dict[_Key, _Given]:
    """The same, where files that a settings file names are looked for in its folder."""
    for key, one in given.items():
        if key[0] == "schema" and key[-1] == "file" and isinstance(one.value, str):
            given[key] = _Given(str(file.parent / one.value), one.source)
    return given


def _from_environment(environ: Mapping[str, str]) -> dict[_Key, _Given]:
    given = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or not value:
            continue
        key = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if (section := _of_names(key)) is not None:
            raise ConfigError(f"{name}: what has a name of yours goes into {FILE_NAME}, under [{section}]")
        if _parser_of(key) is None and not _meant_for_us(key):
            _logger.warning("agentguard: %s is no setting and was ignored", name)
            continue
        given[key] = _Given(value, name)
    return given


def _of_names(key: _Key) -> str | None:
    """The section of keys that hold a name, whose case a variable would not keep."""
    if key[:2] == ("budget", "agents"):
        return "budget.agents.NAME"
    return {"tools": "tools.NAME", "schema": 'schema."FROM->TO"'}.get(key[0])


def _meant_for_us(key: _Key) -> bool:
    # Other programs use the prefix too: only what looks like a slip of the pen is an error.
    return key[0] in ("loop", "budget") or bool(_near(key, cutoff=0.8))


def _flat(key: _Key, value: object) -> Iterator[tuple[_Key, object]]:
    match value:
        case Limits():
            for name in _LIMIT_NAMES:
                yield (*key, name), getattr(value, name)
        case LoopSettings() | Budget():
            for field in dataclasses.fields(value):
                yield from _flat((*key, field.name), getattr(value, field.name))
        case ToolSettings():
            for field in dataclasses.fields(value):
                said = getattr(value, field.name)
                if field.name == "limits":
                    yield from _flat(key, said)
                elif said != field.default:
                    yield (*key, field.name), said
        case Mapping():
            for name, part in value.items():
                yield from _flat((*key, str(name)), part)
        case _:
            yield key, value


def _split(dotted: str) -> _Key:
    """The parts of a key; the name of a tool or an agent may hold dots itself."""
    head, *rest = dotted.split(".")
    if head == "budget" and rest[:1] == ["agents"] and len(rest) > 2:
        return (head, "agents", ".".join(rest[1:-1]), rest[-1])
    if head == "schema" and len(rest) > 1:
        return (head, ".".join(rest[:-1]), rest[-1])
    if head != "tools" or len(rest) < 2:
        return (head, *rest)
    tail = 2 if len(rest) > 2 and rest[-1] in _LIMIT_NAMES and rest[-2] in LOOP_ROWS else 1
    return (head, ".".join(rest[:-tail]), *rest[-tail:])


def _applied(settings: Settings, given: Mapping[_Key, _Given]) -> Settings:
    values = {key: _parsed(key, one) for key, one in given.items()}
    top: dict[str, Any] = {key[0]: value for key, value in values.items() if len(key) == 1}
    budget = _with_limits(settings.budget, {key[1:]: value for key, value in values.items() if key[0] == "budget"})
    schemas = {key[1]: value for key, value in values.items() if key[0] == "schema"}
    loop = _with_rows(settings.loop, {key[1:]: value for key, value in values.items() if key[0] == "loop"})
    tools = dict(settings.tools)
    for name in dict.fromkeys(key[1] for key in values if key[0] == "tools"):
        own = {key[2:]: value for key, value in values.items() if key[:2] == ("tools", name)}
        tools[name] = _with_own(name, tools.get(name, ToolSettings()), own, loop)
    return replace(settings, **top, loop=loop, tools=tools, budget=budget, schemas={**settings.schemas, **schemas})


def _with_limits(budget: Budget, values: Mapping[_Key, object]) -> Budget:
    plain: dict[str, Any] = {key[0]: value for key, value in values.items() if len(key) == 1}
    agents = dict(budget.agents)
    for name in dict.fromkeys(key[1] for key in values if len(key) > 1):
        own: dict[str, Any] = {key[2]: value for key, value in values.items() if key[1:2] == (name,)}
        agents[name] = replace(agents.get(name, Budget(soft=plain.get("soft", budget.soft))), **own)
    return replace(budget, **plain, agents=agents)


def _with_rows(loop: LoopSettings, values: Mapping[_Key, object]) -> LoopSettings:
    plain: dict[str, Any] = {key[0]: value for key, value in values.items() if len(key) == 1}
    rows: dict[str, Any] = {
        row: _limits(f"loop.{row}", getattr(loop, row), {key[1]: v for key, v in values.items() if key[0] == row})
        for row in dict.fromkeys(key[0] for key in values if len(key) > 1)
    }
    return replace(loop, **plain, **rows)


def _with_own(name: str, tool: ToolSettings, values: Mapping[_Key, object], loop: LoopSettings) -> ToolSettings:
    plain: dict[str, Any] = {key[0]: value for key, value in values.items() if len(key) == 1}
    limits = dict(tool.limits)
    for row in dict.fromkeys(key[0] for key in values if len(key) > 1):
        base = limits.get(row) or getattr(loop, row)
        limits[row] = _limits(f"tools.{name}.{row}", base, {key[1]: v for key, v in values.items() if key[0] == row})
    return replace(tool, **plain, limits=limits)


def _limits(where: str, base: Limits, parts: Mapping[str, Any]) -> Limits:
    try:
        return replace(base, **parts)
    except ValueError as exc:
        together = ", ".join(f"{where}.{name}" for name in _LIMIT_NAMES)
        raise ConfigError(f"{where}: {exc}; set {together} together") from exc


def _parsed(key: _Key, given: _Given) -> Any:
    parser = _parser_of(key)
    name = ".".join(key)
    if parser is None and (parts := _parts_of(key)):
        raise ConfigError(f"{name} cannot be {given.value!r} ({given.source}): it has parts, {', '.join(parts)}")
    if parser is None:
        near = _near(key, cutoff=0.6)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        known = f"Known: {', '.join(known_keys())}; ROW is one of {', '.join(LOOP_ROWS)}"
        raise ConfigError(f"no setting {name!r} ({given.source}){hint or '.'} {known}")
    try:
        return parser(given.value)
    except (TypeError, ValueError) as exc:
        shown = "***" if name in _HIDDEN else repr(given.value)
        raise ConfigError(f"{name} cannot be {shown} ({given.source}): {exc}") from exc


def _near(key: _Key, *, cutoff: float) -> list[str]:
    rows = [f"{row}.{name}" for row in LOOP_ROWS for name in _LIMIT_NAMES]
    if key[0] == "tools" and len(key) > 2:
        own = difflib.get_close_matches(".".join(key[2:]), [*_TOOL, *rows], n=3, cutoff=cutoff)
        return [f"tools.{key[1]}.{name}" for name in own]
    known = [*_TOP, *(f"loop.{n}" for n in (*_LOOP, *rows)), *(f"budget.{n}" for n in _BUDGET)]
    return difflib.get_close_matches(".".join(key), known, n=3, cutoff=cutoff)


def _parser_of(key: _Key) -> _Parser | None:
    match key:
        case (name,):
            return _TOP.get(name)
        case ("loop", name):
            return _LOOP.get(name)
        case ("budget", name) | ("budget", "agents", _, name):
            return _BUDGET.get(name)
        case ("schema", _, "file"):
            return _text
        case ("tools", _, name):
            return _TOOL.get(name)
        case ("loop", row, name) | ("tools", _, row, name) if row in LOOP_ROWS and name in _LIMIT_NAMES:
            return _optional(_count)
        case _:
            return None


def _parts_of(key: _Key) -> Iterable[str]:
    """What a key has below it; nothing where it is no section."""
    match key:
        case ("loop",):
            return (*_LOOP, *LOOP_ROWS)
        case ("loop", row) | ("tools", _, row) if row in LOOP_ROWS:
            return _LIMIT_NAMES
        case ("budget",):
            return (*_BUDGET, "agents")
        case ("budget", "agents", _):
            return _BUDGET
        case ("tools", _):
            return (*_TOOL, *LOOP_ROWS)
        case ("tools",) | ("budget", "agents"):
            return ("NAME",)
        case _:
            return ()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("it is a text")
    return value


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("it is true or false")


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError("it is a whole number")
    try:
        number = int(value)
    except ValueError:
        raise ValueError("it is a whole number") from None
    if number < 0:
        raise ValueError("it is not below 0")
    return number


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("it is a number")
    try:
        number = float(value)
    except ValueError:
        raise ValueError("it is a number") from None
    if not 0 <= number < float("inf"):
        raise ValueError("it is finite and not below 0")
    return number


def _port(value: object) -> int:
    port = _count(value)
    if port > 65_535:
        raise ValueError("a port is at most 65535")
    return port


def _share(value: object) -> float:
    share = _amount(value)
    if not 0 < share <= 1:
        raise ValueError("it is a share above 0 and at most 1")
    return share


def _secret(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return _text(value).encode()


def _names(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in names):
        raise ValueError("it is a list of names, or names with commas between")
    return tuple(name.strip() for name in names if name.strip())


def _choice(choices: type[StrEnum]) -> _Parser:
    def parse(value: object) -> StrEnum:
        try:
            return choices(str(value).strip().lower())
        except ValueError:
            raise ValueError(f"known: {', '.join(choices)}") from None

    return parse


def _optional(parser: _Parser) -> _Parser:
    def parse(value: object) -> object:
        if value is None or (isinstance(value, str) and value.strip().lower() in _NEVER):
            return None
        return parser(value)

    return parse


_BY_TYPE: Mapping[object, _Parser] = {
    str: _text,
    str | None: _optional(_text),
    bool: _flag,
    bool | None: _optional(_flag),
    int: _count,
    int | None: _optional(_count),
    float: _amount,
    float | None: _optional(_amount),
    bytes | None: _optional(_secret),
    tuple[str, ...]: _names,
    frozenset[str]: lambda value: frozenset(_names(value)),
    Mode: _choice(Mode),
    Effect | None: _optional(_choice(Effect)),
}


def _parsers(settings: type, **special: _Parser) -> dict[str, _Parser]:
    hints = get_type_hints(settings)
    return {
        field.name: special.get(field.name) or _BY_TYPE[hints[field.name]]
        for field in dataclasses.fields(settings)
        if field.name in special or hints[field.name] in _BY_TYPE
    }


_TOP = _parsers(Settings, metrics_port=_optional(_port))
_LOOP = _parsers(LoopSettings)
_BUDGET = _parsers(Budget, soft=_share)
_TOOL = _parsers(ToolSettings)
