"""Wraps methods of frameworks, and puts back exactly what was there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wrapt import FunctionWrapper

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called with the wrapped function, bound, then its instance, its arguments and its keyword arguments."""

_MISSING = object()


class Patches:
    """Everything that one adapter has put into a framework; not thread safe."""

    def __init__(self) -> None:
        self._live = False
        self._undo: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._undo)

    def wrap(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """Wrap a method of a class, or a function of a module; static and class methods too.

        Where somebody else has wrapped it since, taking it back only makes it pass everything through.

        Args:
            owner: The class or module that is looked up at each call.
            name: Name of the attribute.
            wrapper: What runs in its place; wrapt's signature.

        Raises:
            AttributeError: There is no such attribute, so the framework is not the one that the adapter knows.
        """
        getattr(owner, name)
        before = vars(owner).get(name, _MISSING)
        original = _found(owner, name) if before is _MISSING else before
        self._live = True
        wrapped = FunctionWrapper(original, wrapper, enabled=self._is_live)
        self._put(owner, name, before, wrapped)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Put a value in the place of an attribute, or add one."""
        self._live = True
        self._put(owner, name, vars(owner).get(name, _MISSING), value)

    def on_undo(self, step: Callable[[], None]) -> None:
        """Have `undo` do this too: take back what was registered with a hook of the framework."""
        self._undo.append(step)

    def undo(self) -> None:
        """Put everything back, the latest first; undoing twice is once."""
        self._live = False
        steps, self._undo = self._undo, []
        for step in reversed(steps):
            step()

    def _put(self, owner: Any, name: str, before: Any, value: Any) -> None:
        setattr(owner, name, value)

        def restore() -> None:
            if vars(owner).get(name) is not value:
                return
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._undo.append(restore)

    def _is_live(self) -> bool:
        return self._live


def _found(owner: Any, name: str) -> Any:
    """An inherited attribute as its class holds it, a static or class method unbound."""
    for above in getattr(owner, "__mro__", ()):
        if name in vars(above):
            return vars(above)[name]
    return getattr(owner, name)
