"""Permanent errors in the ledger: written as JSON, raised again as what they were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import orjson

from otel_agentguard.effects.values import NotRebuilt, Unstorable, decode, encode
from otel_agentguard.errors import EffectError
from otel_agentguard.shown import shown


def describe(error: Exception, *, keep: bool) -> str:
    """Write an error down.

    Args:
        error: What the tool raised.
        keep: Whether its text and arguments may be stored; its type always is.
    """
    entry: dict[str, object] = {"module": type(error).__module__, "name": type(error).__qualname__}
    if keep:
        entry["text"] = shown(error)[:2000]
        try:
            entry["args"] = encode(list(error.args), max_bytes=16_384).decode()
        except Unstorable:
            entry["args"] = None
    return orjson.dumps(entry).decode()


def rebuild(stored: str | None, permanent: Iterable[type[Exception]], *, key: str) -> Exception:
    """The error to raise again.

    It has the type that it had where that is among the tool's `permanent` ones, or below one of them, and
    can be made of its arguments; else it is an `EffectError` that names the type.
    """
    entry: Mapping[str, str | None] = orjson.loads(stored) if stored is not None else {}
    for kind in _family(permanent):
        if (kind.__module__, kind.__qualname__) == (entry.get("module"), entry.get("name")):
            try:
                arguments = decode((entry.get("args") or "[]").encode())
                if isinstance(arguments, list):
                    return kind(*arguments)
            except (TypeError, ValueError, NotRebuilt):
                break
    text = f": {entry['text']}" if entry.get("text") else ""
    return EffectError(f"this effect failed for good ({entry.get('name') or 'unknown error'}{text})", key=key)


def _family(kinds: Iterable[type[Exception]]) -> Iterator[type[Exception]]:
    for kind in kinds:
        yield kind
        yield from _family(kind.__subclasses__())
