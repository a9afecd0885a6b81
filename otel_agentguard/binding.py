"""Positional and keyword forms of a call, brought into one: arguments by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter
from typing import Any

_Arguments = Callable[..., dict[str, Any]]
_STARS: dict[object, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


ByName = Callable[[Mapping[str, object]], object]
"""A function of all arguments of a call."""


def by_name(function: Callable[..., object]) -> ByName:
    """Have a function called with those of the arguments whose names it takes."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return lambda arguments: function(**arguments)
    names = tuple(parameters)
    return lambda arguments: function(**{name: arguments[name] for name in names if name in arguments})


class Binder:
    """Binds the arguments of one callable to its parameters.

    The signature is read once and compiled into a function of the same signature that returns its own
    arguments: Python's own binding, ten times cheaper than `inspect.Signature.bind`, and no second opinion about
    what fits. Safe to share between threads.
    """

    __slots__ = ("_absent", "_arguments")

    def __init__(
        self, fn: Callable[..., Any], *, skip_first: bool = False, hidden: Collection[str] = frozenset()
    ) -> None:
        """Read the signature.

        Args:
            fn: The callable; one without a readable signature gets its positional arguments named "0", "1", ...
            skip_first: The first parameter is `self` or `cls` and is no argument.
            hidden: Names of parameters that are no arguments for whoever compares calls, as the idempotency key
                that the guard fills; a call that leaves them out is complete.
        """
        names = frozenset(hidden)
        self._absent: dict[str, None] = {}
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (ValueError, TypeError):
            self._arguments = _numbered(skip_first, names)
            return
        self._arguments = _compiled(parameters, skip_first, names)
        self._absent = {p.name: None for p in parameters if p.name in names and _is_required(p)}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments of one call by name, defaults filled.

        `*args` is a list under its own name; what `**kwargs` takes stands among the other names.

        Returns:
            None when the call does not fit the signature, so that the call itself raises Python's own
            `TypeError`. Values are the caller's own objects; do not change them.
        """
        try:
            return self._arguments(*args, **kwargs)
        except TypeError:
            if not self._absent or kwargs.keys() >= self._absent.keys():
                return None
        try:
            return self._arguments(*args, **{**self._absent, **kwargs})
        except TypeError:
            return None


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD


def _compiled(parameters: list[Parameter], skip_first: bool, hidden: frozenset[str]) -> _Arguments:
    """A function of these parameters that returns their values by name."""
    first: list[Parameter] = []
    if skip_first and parameters:
        if parameters[0].kind is Parameter.VAR_POSITIONAL:
            parameters = [Parameter(_unused_name(parameters), Parameter.POSITIONAL_ONLY), *parameters]
        first = parameters[:1]
    shown = [p for p in parameters if p not in first and p.name not in hidden and p.kind is not Parameter.VAR_KEYWORD]
    pairs = (f"'{p.name}': {f'[*{p.name}]' if p.kind is Parameter.VAR_POSITIONAL else p.name}" for p in shown)
    result = "{" + ", ".join(pairs) + "}"
    extra = next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), None)
    if extra is not None:
        result = f"({result}, {extra})"
    source, defaults = _signature(parameters, hidden)
    # As for `namedtuple`: `Parameter` has checked that the names are identifiers, and values come in by reference.
    compiled: Callable[..., Any] = eval(f"lambda {source}: {result}", defaults)  # noqa: S307
    return compiled if extra is None else _merging(compiled, extra, hidden)


def _signature(parameters: list[Parameter], hidden: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """The source of a parameter list, and the values that its defaults name."""
    written: list[str] = []
    defaults: dict[str, Any] = {}
    starred = False
    for place, parameter in enumerate(parameters):
        kind, default = parameter.kind, parameter.default
        if kind is Parameter.KEYWORD_ONLY and not starred:
            written.append("*")
        starred = starred or kind in (Parameter.VAR_POSITIONAL, Parameter.KEYWORD_ONLY)
        if kind is Parameter.KEYWORD_ONLY and parameter.name in hidden:
            default = None
        text = _STARS.get(kind, "") + parameter.name
        if default is not Parameter.empty:
            defaults[f"default_{place}"] = default
            text += f"=default_{place}"
        written.append(text)
        if kind is Parameter.POSITIONAL_ONLY and _next_kind(parameters, place) is not kind:
            written.append("/")
    return ", ".join(written), defaults


def _next_kind(parameters: list[Parameter], place: int) -> object:
    return parameters[place + 1].kind if place + 1 < len(parameters) else None


def _unused_name(parameters: list[Parameter]) -> str:
    return "_" * (1 + max(len(p.name) for p in parameters))


def _merging(compiled: Callable[..., Any], extra_name: str, hidden: frozenset[str]) -> _Arguments:
    def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
        named: dict[str, Any]
        extra: dict[str, Any]
        named, extra = compiled(*args, **kwargs)
        for name in hidden:
            extra.pop(name, None)
        # A keyword may have the name of a positional-only parameter or of `*args`: it keeps a place of its own.
        clashing = {name: extra.pop(name) for name in named.keys() & extra.keys()}
        if clashing:
            named[f"**{extra_name}"] = clashing
        named |= extra
        return named

    return arguments


def _numbered(skip_first: bool, hidden: frozenset[str]) -> _Arguments:
    def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
        numbered = {str(place): value for place, value in enumerate(args[skip_first:])}
        return numbered | {name: value for name, value in kwargs.items() if name not in hidden}

    return arguments
