"""What a program says of a tool when it declares it, checked at once."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_agentguard.config import LOOP_ROWS, ToolSettings
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Effect
from otel_agentguard.findings import Limits
from otel_agentguard.forks import new_lock

KEY_PARAMETER = "idempotency_key"
MAX_DECLARED = 10_000

_ON_UNKNOWN = ("block", "retry", "verify")
_ON_DUPLICATE = ("replay", "block", "warn", "allow")
_SCOPES = ("run", "session", "event", "global")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolDeclaration:
    """A declared tool; a declared function carries it as `__agentguard__`.

    Attributes:
        function: The function itself, without the guard.
        name: Its name, as models and metrics know it.
        effect: What it does to the world.
        touches: Gets the arguments whose names it takes and names the resources, or names them at once.
        ignore: Arguments that are no part of its identity.
        ttl_s: How long an answer may be served again, seconds.
        cache: Whether answers may be served again at all; None leaves it to the effect.
        inline_notes: Notes go to the head of results that are text, and a block returns its message.
        guard: False lets every call pass.
        limits: Rows of the loop check that this tool has for itself.
        version: Another version is another tool.
        identity: Arguments that make a side effect the same; None means all.
        scope: Within what two equal calls are the same.
        on_unknown: What a call does that finds an effect of unknown outcome.
        on_duplicate: What is done with the same effect at a new step.
        verify: Finds out whether an effect happened.
        permanent: Errors that a new attempt will not mend.
        key_param: The parameter that the guard fills with the key of the effect; None where there is none.
        tx: The database connection whose transaction holds effect and record.
        wait_s: How long a second caller waits for the first one's result, seconds.
        compensates: The tool whose effects this one undoes.
        keep_result: Whether the result is kept for replays.
        decode: Rebuilds a kept result.
        skip_first: The first parameter is the instance or class, no argument of the call.
    """

    function: Callable[..., Any]
    name: str
    effect: Effect = Effect.UNKNOWN
    touches: Callable[..., object] | tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    ttl_s: float | None = None
    cache: bool | None = None
    inline_notes: bool = False
    guard: bool = True
    limits: Mapping[str, Limits] = field(default_factory=dict)
    version: str = ""
    identity: tuple[str, ...] | None = None
    scope: str | Callable[..., object] | None = None
    on_unknown: str = "block"
    on_duplicate: str = "replay"
    verify: Callable[..., object] | None = None
    permanent: tuple[type[Exception], ...] = ()
    key_param: str | None = None
    tx: object = None
    wait_s: float = 30.0
    compensates: str | None = None
    keep_result: bool | None = None
    decode: Callable[[Any], object] | None = None
    skip_first: bool = False

    @property
    def description(self) -> str:
        """The first line of its docstring."""
        text = inspect.getdoc(_bare(self.function)) or ""
        return text.partition("\n")[0]


def declaration_of(function: object) -> ToolDeclaration | None:
    """The declaration of a declared tool, bound methods included; None for anything else."""
    found = getattr(function, "__agentguard__", None)
    return found if isinstance(found, ToolDeclaration) else None


def declaration_named(name: str) -> ToolDeclaration | None:
    """The latest declaration of this name in the program."""
    return _declared.get(name)


class DeclaredTools(Mapping[str, ToolSettings]):
    """Settings of tools by name: what the user set, then what the program declared.

    A tool may be declared after the guard was installed, so declarations are looked up each time.
    """

    def __init__(self, user: Mapping[str, ToolSettings]) -> None:
        self._user = user
        self._merged: dict[str, tuple[ToolDeclaration, ToolSettings]] = {}

    def __getitem__(self, name: str) -> ToolSettings:
        declared = _declared.get(name)
        if declared is None:
            return self._user[name]
        known = self._merged.get(name)
        if known is None or known[0] is not declared:
            known = self._merged[name] = declared, _merged(self._user.get(name), declared)
        return known[1]

    def get(self, name: str, default: Any = None) -> Any:
        """Settings of one tool; a plain look-up, as the loop check asks at each step."""
        if name in self._user or name in _declared:
            return self[name]
        return default

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._user, *_declared)))

    def __len__(self) -> int:
        return len(self._user.keys() | _declared.keys())


def declare(function: Callable[..., Any], options: Mapping[str, Any]) -> ToolDeclaration:
    """Check the arguments of `tool` and keep them.

    Raises:
        ConfigError: An argument has no such value, or does not fit the function or the effect.
    """
    bare = _bare(function)
    name = options.get("name") or getattr(bare, "__name__", None) or type(bare).__name__
    effect = _member(name, "effect", Effect, options.get("effect") or Effect.UNKNOWN)
    parameters = _parameters(function)
    if effect is Effect.SIDE_EFFECT and is_generator(function):
        raise ConfigError(
            f"@tool {name}: a generator cannot be a side effect, since nobody knows when its effect has happened; "
            "return the result at once, or declare another effect"
        )
    if effect is not Effect.SIDE_EFFECT:
        _refuse_effect_options(name, options)
    key_param = _text(name, "key_param", options.get("key_param") or KEY_PARAMETER)
    has_key = effect is Effect.SIDE_EFFECT and parameters is not None and key_param in parameters
    if options.get("key_param") and parameters is not None and not has_key:
        raise ConfigError(f"@tool {name}: key_param is {key_param!r}, but there is no such parameter")
    declaration = ToolDeclaration(
        function=function,
        name=name,
        effect=effect,
        touches=_touches(name, options.get("touches")),
        ignore=_arguments(name, "ignore", options.get("ignore"), parameters) or (),
        ttl_s=_seconds(name, "ttl_s", options.get("ttl_s")),
        cache=_flag(name, "cache", options.get("cache")),
        inline_notes=_choice(name, "notes", options.get("notes"), ("inline",)) == "inline",
        guard=_flag(name, "guard", options.get("guard")) is not False,
        limits=_limits(name, options.get("limits")),
        version=_text(name, "version", options.get("version") or ""),
        identity=_arguments(name, "identity", options.get("identity"), parameters),
        scope=_scope(name, options.get("scope"), effect),
        on_unknown=_choice(name, "on_unknown", options.get("on_unknown"), _ON_UNKNOWN) or "block",
        on_duplicate=_choice(name, "on_duplicate", options.get("on_duplicate"), _ON_DUPLICATE) or "replay",
        verify=_callable(name, "verify", options.get("verify")),
        permanent=_errors(name, options.get("permanent")),
        key_param=key_param if has_key else None,
        tx=options.get("tx"),
        wait_s=30.0 if options.get("wait_s") is None else _seconds(name, "wait_s", options["wait_s"]) or 0.0,
        compensates=_compensated(name, options.get("compensates")),
        keep_result=_flag(name, "keep_result", options.get("keep_result")),
        decode=_callable(name, "decode", options.get("decode")),
        skip_first=_takes_instance(function),
    )
    if (declaration.on_unknown == "verify") != (declaration.verify is not None):
        raise ConfigError(f'@tool {name}: on_unknown="verify" and verify=... belong together; give both or neither')
    _remember(declaration)
    return declaration


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a generator, sync or async."""
    return any(test(one) for one in (function, _call_of(function)) for test in _GENERATOR_TESTS)


def is_async_generator(function: Callable[..., Any]) -> bool:
    """Whether calling it makes an async generator."""
    return inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(_call_of(function))


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_call_of(function))


_GENERATOR_TESTS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_EFFECT_OPTIONS = (
    *("identity", "on_unknown", "on_duplicate", "verify", "permanent", "key_param"),
    *("tx", "wait_s", "compensates", "keep_result", "decode"),
)
_declared: OrderedDict[str, ToolDeclaration] = OrderedDict()
_declared_lock = new_lock()


def _remember(declaration: ToolDeclaration) -> None:
    with _declared_lock:
        _declared[declaration.name] = declaration
        _declared.move_to_end(declaration.name)
        while len(_declared) > MAX_DECLARED:
            _declared.popitem(last=False)


def _merged(user: ToolSettings | None, declared: ToolDeclaration) -> ToolSettings:
    user = user or ToolSettings()
    effect = user.effect
    if effect is None and declared.effect is not Effect.UNKNOWN:
        effect = declared.effect
    return ToolSettings(
        effect=effect,
        ignore=user.ignore or declared.ignore,
        ttl_s=declared.ttl_s if user.ttl_s is None else user.ttl_s,
        cache=declared.cache if user.cache is None else user.cache,
        limits={**declared.limits, **user.limits},
    )


def _bare(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _call_of(function: Callable[..., Any]) -> Any:
    bare = _bare(function)
    return bare if inspect.isroutine(bare) or inspect.isclass(bare) else type(bare).__call__


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """Its parameters by name; None where they cannot be read or it takes any name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return None
    return parameters


def _takes_instance(function: Callable[..., Any]) -> bool:
    if not inspect.isfunction(function):
        return False
    owner, dot, _ = function.__qualname__.rpartition(".")
    first = next(iter(inspect.signature(function).parameters), None)
    return bool(dot) and not owner.endswith("<locals>") and first in {"self", "cls"}


def _refuse_effect_options(name: str, options: Mapping[str, Any]) -> None:
    given = [option for option in _EFFECT_OPTIONS if options.get(option) is not None]
    if given:
        raise ConfigError(
            f"@tool {name}: {', '.join(given)} says how a side effect is kept from happening twice; "
            "add effect=Effect.SIDE_EFFECT, or leave it out"
        )


def _member(name: str, option: str, kind: type[Effect], value: Any) -> Effect:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"@tool {name}: no {option} {value!r}; known: {', '.join(kind)}") from None


def _choice(name: str, option: str, value: object, known: Sequence[str]) -> str | None:
    if value is None or (isinstance(value, str) and value in known):
        return value
    raise ConfigError(f"@tool {name}: {option} cannot be {value!r}; known: {', '.join(known)}")


def _text(name: str, option: str, value: object) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"@tool {name}: {option} is {value!r}; give a text")


def _flag(name: str, option: str, value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"@tool {name}: {option} is {value!r}; give True or False")


def _seconds(name: str, option: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    raise ConfigError(f"@tool {name}: {option} is {value!r}; give seconds, 0 or more")


def _callable(name: str, option: str, value: Any) -> Callable[..., object] | None:
    if value is None or callable(value):
        return value  # type: ignore[no-any-return]
    raise ConfigError(f"@tool {name}: {option} is {value!r}; give a function")


def _names(name: str, option: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable):
        names = tuple(value)
        if all(isinstance(one, str) for one in names):
            return names
    raise ConfigError(f"@tool {name}: {option} is {value!r}; give names")


def _arguments(
    name: str, option: str, value: object, parameters: Mapping[str, object] | None
) -> tuple[str, ...] | None:
    names = _names(name, option, value)
    unknown = [one for one in names or () if parameters is not None and one not in parameters]
    if unknown:
        raise ConfigError(
            f"@tool {name}: {option} names {', '.join(map(repr, unknown))}, which it does not take; "
            f"it takes {', '.join(parameters or ()) or 'nothing'}"
        )
    return names


def _touches(name: str, value: Any) -> Callable[..., object] | tuple[str, ...] | None:
    return value if value is None or callable(value) else _names(name, "touches", value)


def _scope(name: str, value: Any, effect: Effect) -> str | Callable[..., object] | None:
    if value is None or callable(value):
        return value  # type: ignore[no-any-return]
    if effect is not Effect.SIDE_EFFECT:
        raise ConfigError(
            f"@tool {name}: scope {value!r} is for side effects; give a function that makes the working directory "
            "or tenant of the arguments"
        )
    return _choice(name, "scope", value, _SCOPES)


def _errors(name: str, value: object) -> tuple[type[Exception], ...]:
    kinds = () if value is None else value if isinstance(value, tuple | list) else (value,)
    if all(isinstance(one, type) and issubclass(one, Exception) for one in kinds):
        return tuple(kinds)
    raise ConfigError(f"@tool {name}: permanent is {value!r}; give exception classes")


def _limits(name: str, value: object) -> Mapping[str, Limits]:
    if value is None:
        return {}
    if isinstance(value, Limits):
        return {"same": value, "failing": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"@tool {name}: limits is {value!r}; give Limits, or Limits by row")
    for row, limits in value.items():
        if row not in LOOP_ROWS:
            raise ConfigError(f"@tool {name}: no row {row!r} in the loop check; known: {', '.join(LOOP_ROWS)}")
        if not isinstance(limits, Limits):
            raise ConfigError(f"@tool {name}: limits of row {row!r} are {limits!r}; give Limits(hint, block, stop)")
    return dict(value)


def _compensated(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    declared = declaration_of(value)
    if declared is None:
        raise ConfigError(f"@tool {name}: compensates is {value!r}; give a declared tool or its name")
    return declared.name
