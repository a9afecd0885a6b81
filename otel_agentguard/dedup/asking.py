"""What callers say of the answer that they want."""

from __future__ import annotations

from collections.abc import Mapping

_FRESH = frozenset(
    """
    fresh refresh force force_fresh force_refresh force_reload reload revalidate
    no_cache nocache bypass_cache skip_cache ignore_cache disable_cache
    """.split()
)
_CACHED = frozenset("cache cached use_cache from_cache allow_cached".split())


def asks_fresh(arguments: Mapping[str, object] | None) -> bool:
    """Whether the arguments of a call ask for a fresh answer: `fresh=True`, `use_cache=False` and the like.

    Who reads a parameter of another meaning so asks for one execution too many, which is the safe side.
    """
    for name, value in (arguments or {}).items():
        if value is True and _plain(name) in _FRESH:
            return True
        if value is False and _plain(name) in _CACHED:
            return True
    return False


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").lstrip("_")
