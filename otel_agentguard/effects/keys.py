"""The keys of an effect: digests of JSON arrays.

Arrays, because joined strings collide: `"a|b", "c"` and `"a", "b|c"`. The digest is BLAKE2b and no faster
hash, because a model chooses the arguments: whoever steers it must not be able to make two payments equal.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from otel_agentguard.binding import by_name
from otel_agentguard.effects.values import Unstorable, canonical
from otel_agentguard.errors import ConfigError

Scope = Literal["run", "session", "event", "global"] | Callable[..., object]
"""Within what two equal effects are the same; a callable gets the arguments whose names it takes."""

ScopeValue = tuple[str, object]
"""The kind of a scope and its value, so that a run and a session of one name stay apart."""


def digest(parts: Sequence[object]) -> str:
    """Digest a JSON array.

    Returns:
        32 lower-case hex characters (128 bits).

    Raises:
        Unstorable: A part has no JSON form.
    """
    return hashlib.blake2b(canonical(list(parts)), digest_size=16).hexdigest()


def identity_arguments(arguments: Mapping[str, object], identity: Sequence[str] | None = None) -> dict[str, object]:
    """The arguments that make an effect the same; null and absent are one.

    Args:
        arguments: All arguments by name.
        identity: Names that count; None for all.
    """
    if identity is None:
        return {name: value for name, value in arguments.items() if value is not None}
    named = {name: arguments.get(name) for name in identity}
    return {name: value for name, value in named.items() if value is not None}


def step_key(namespace: str, run_id: str, step_id: str | int, tool: str) -> str:
    """The position of a call in its run: a resumed run finds its own steps by it."""
    return digest(["step", namespace, run_id, step_id, tool])


def effect_key(namespace: str, scope: ScopeValue, tool: str, identity: Mapping[str, object]) -> str:
    """The content of an effect: equal calls at other steps find it by this.

    Raises:
        ConfigError: An argument has no stable form.
    """
    try:
        return digest(["effect", namespace, list(scope), tool, dict(identity)])
    except Unstorable as exc:
        raise ConfigError(
            f"{tool}: {exc}, so no key can be made of it; "
            "name the arguments that make the effect the same: @tool(identity=(...,))"
        ) from exc


def record_key(
    namespace: str, scope: ScopeValue, tool: str, identity: Mapping[str, object], *, intent: int = 1, repeat: int = 1
) -> str:
    """The key of one record, which the callee is handed too.

    Args:
        namespace: Keeps applications on one store apart.
        scope: Within what the effect is the same.
        tool: Name of the tool.
        identity: What `identity_arguments` gave.
        intent: Which intent the effect serves, from 1.
        repeat: Which copy within the intent, from 1.
    """
    parts: list[object] = ["key", namespace, list(scope), tool, dict(identity), intent]
    return digest(parts if repeat == 1 else [*parts, repeat])


def arguments_fingerprint(tool: str, arguments: Mapping[str, object]) -> str:
    """Fingerprint of all arguments; two calls with one key and two of these are a mismatch.

    Arguments without a JSON form, a client object say, count by their type alone.
    """
    known: dict[str, object] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        try:
            canonical(value)
        except Unstorable:
            known[name] = ["no JSON form", type(value).__qualname__]
        else:
            known[name] = value
    return digest(["arguments", tool, known])


def scope_value(
    scope: Scope | None,
    arguments: Mapping[str, object],
    *,
    run_id: str,
    session: str | None = None,
    event: str | None = None,
) -> ScopeValue:
    """Resolve a scope; without one it is the event where the run serves one, else the run.

    Raises:
        ConfigError: The scope is unknown, or the run has no session or event.
    """
    match scope:
        case None:
            return ("event", event) if event is not None else ("run", run_id)
        case "run":
            return "run", run_id
        case "global":
            return "global", ""
        case "session":
            if session is None:
                raise ConfigError('scope="session", but this run has none: run(..., conversation="...")')
            return "session", session
        case "event":
            if event is None:
                raise ConfigError('scope="event", but this run serves none: run(..., event="...")')
            return "event", event
        case str():
            raise ConfigError(f"no scope {scope!r}; known: run, session, event, global, or a callable")
        case _:
            return "own", by_name(scope)(arguments)


def as_uuid(key: str, version: int = 8) -> str:
    """A key as a UUID, for APIs that ask for one.

    Args:
        key: 32 hex characters.
        version: The version that it claims to be; 8 is the one for digests of one's own (RFC 9562),
            4 pleases callees that accept no other.
    """
    number = int(key, 16)
    number = number & ~(0xF << 76) | version << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))
