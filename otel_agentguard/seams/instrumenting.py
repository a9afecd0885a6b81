"""The guard around tools that a program has at hand in some shape, none of them declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from otel_agentguard.errors import ConfigError
from otel_agentguard.seams.tool import tool, tool_named


def instrumented(tools: Any, *, is_guarded: Callable[[object], bool] = lambda one: False) -> Any:
    """Put the guard around tools.

    Args:
        tools: A function; a list or tuple of them; a mapping from names to them, which then are the tools' names;
            a class whose public methods are tools, or an object of one.
        is_guarded: Whether an object is a tool of a framework whose own seams guard it.

    Returns:
        The same shape with every tool under guard: a list, tuple or dict anew; a registry (any other mapping that
        can be changed), a class or an object is changed and returned. What is declared or guarded stays as it is.

    Raises:
        ConfigError: There is something in it that is no tool.
    """
    if isinstance(tools, Mapping):
        named = {name: _one(one, is_guarded, str(name)) for name, one in tools.items()}
        if isinstance(tools, MutableMapping) and not isinstance(tools, dict):
            tools.update(named)
            return tools
        return named
    if isinstance(tools, list | tuple):
        return type(tools)(_one(one, is_guarded) for one in tools)
    return _one(tools, is_guarded)


def _one(one: Any, is_guarded: Callable[[object], bool], name: str | None = None) -> Any:
    if is_guarded(one):
        return one
    if inspect.isclass(one):
        return _class(one)
    if callable(one):
        return tool(one) if name is None else tool_named(one, name)
    methods = {} if _is_plain(one) else _methods_of(type(one))
    if not methods:
        raise ConfigError(f"{one!r} is no tool; give functions, or objects with public methods")
    for each in methods:
        setattr(one, each, tool(getattr(one, each)))
    return one


def _class(cls: type) -> type:
    methods = _methods_of(cls)
    if not methods:
        raise ConfigError(f"{cls!r} has no public methods to guard; give functions, or a class that has some")
    for name, method in methods.items():
        setattr(cls, name, tool(method))
    return cls


def _methods_of(cls: type) -> dict[str, Any]:
    """The public methods that a class defines or inherits from other classes of the program."""
    found: dict[str, Any] = {}
    for above in reversed(cls.__mro__):
        if above is object:
            continue
        for name, value in vars(above).items():
            is_method = inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)
            if is_method and not name.startswith("_"):
                found[name] = value
    return found


def _is_plain(one: object) -> bool:
    return one is None or isinstance(one, str | bytes | int | float | bool | set | frozenset)
