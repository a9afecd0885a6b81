"""The identity of values, calls, results and messages.

Inside a process an identity is 16 bytes of xxh3 over the canonical form. What leaves the process is keyed,
since the few values that an argument can have are guessed from a bare hash.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from xxhash import xxh3_128_digest

from otel_agentguard.canonical import plain_form, walked_digest
from otel_agentguard.errors import ConfigError
from otel_agentguard.forms import Opaque, form_of, string

REDACTED = "__REDACTED__"
"""What instrumentations write in place of a value that they withhold."""

_REDACTED_BYTES = REDACTED.encode()
_PERSON = b"agentguard"
_MAX_KEY_BYTES = 64

OnFallback = Callable[[str], None]
"""Told the qualified name of a type that has no stable form, once per digest; what it raises is swallowed."""


def digest(value: object, *, on_fallback: OnFallback | None = None) -> bytes:
    """Digest a value: equal canonical forms give equal digests, in every process.

    Keys are sorted and text is NFC at all depths; `1` equals `1.0`, `True` does not; tuples equal lists; bytes,
    sets, enums, dates, dataclasses, models and arrays have forms that no JSON data can imitate. An object
    without a stable form counts as its type, and `on_fallback` hears of it. Never raises.

    Args:
        value: Anything, self-referring and deeply nested values included.
        on_fallback: Called with the name of each type that has no stable form.

    Returns:
        16 bytes, in under a microsecond for small JSON values.
    """
    data = plain_form(value)
    if data is not None:
        return xxh3_128_digest(data)
    found, opaque = walked_digest(value)
    _tell(opaque, on_fallback)
    return found


def call_digest(
    tool: str,
    arguments: Mapping[str, object] | None,
    *,
    scope: str = "",
    version: str = "",
    ignore: frozenset[str] = frozenset(),
    length_limit: int | None = None,
    on_fallback: OnFallback | None = None,
) -> bytes | None:
    """Digest a call of a tool.

    Args:
        tool: Name of the tool.
        arguments: Its arguments by name; None when they were not captured.
        scope: Working directory, tenant or the like that the identity lives in.
        version: Version of the tool; another version is another call.
        ignore: Names of arguments that are no part of the identity, declared by whoever wrote the tool.
        length_limit: Length in characters to which whoever captured the arguments cut text; None for no limit.
        on_fallback: As for `digest`.

    Returns:
        16 bytes; None when an argument is unknown (see `is_unknown`), since two unknowns are never equal.
    """
    if arguments is None:
        return None
    if ignore:
        arguments = {name: value for name, value in arguments.items() if name not in ignore}
    elif type(arguments) is not dict:
        arguments = dict(arguments)
    return _identify(_head(tool, scope, version), arguments, length_limit, on_fallback)[0]


def result_digest(
    outcome_is_failure: bool,
    value: object,
    *,
    length_limit: int | None = None,
    on_fallback: OnFallback | None = None,
) -> bytes | None:
    """Digest what a call came to.

    Args:
        outcome_is_failure: Whether the call failed; a failure never equals a success.
        value: What it returned, or its error.
        length_limit: As for `call_digest`.
        on_fallback: As for `digest`.

    Returns:
        16 bytes; None when the result is unknown: redacted, cut off, or an object whose content cannot be
        seen (a stream, a connection), because equal types do not make equal results.
    """
    prefix = b"!failed" if outcome_is_failure else b"!ok"
    found, opaque = _identify(prefix, value, length_limit, on_fallback)
    return None if opaque and isinstance(form_of(value), Opaque) else found


def text_digest(text: str) -> bytes:
    """Digest a text, 16 bytes; equal to `digest` of the same text. White space counts."""
    return digest(text)


def is_unknown(value: object, *, length_limit: int | None = None) -> bool:
    """Whether a captured value hides what it was: it is withheld, or holds something that is.

    Args:
        value: The value; dicts, lists and tuples are searched at all depths.
        length_limit: Text and bytes of just this length were probably cut to it; None for no limit.
    """
    pending: list[Any] = [value]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            if node == REDACTED or len(node) == length_limit:
                return True
        elif isinstance(node, (bytes, bytearray)):
            if len(node) == length_limit:
                return True
        elif isinstance(node, (dict, list, tuple)) and id(node) not in seen:
            seen.add(id(node))
            pending.extend(node.values() if isinstance(node, dict) else node)
    return False


def exported(fingerprint: bytes, key: bytes) -> str:
    """The form of an identity that may leave the process.

    Args:
        fingerprint: 16 bytes from this module.
        key: Secret of the installation; with the same one, processes export equal values for equal calls.

    Returns:
        32 lower-case hex characters (BLAKE2b, 128 bits, keyed).

    Raises:
        ConfigError: The key is empty.
    """
    return exporter(key)(fingerprint)


@lru_cache(maxsize=16)
def exporter(key: bytes) -> Callable[[bytes], str]:
    """`exported` with one key, a microsecond a call.

    Raises:
        ConfigError: The key is empty.
    """
    if not key:
        raise ConfigError("fingerprint_key is empty; leave it out for a random one, or give at least 16 random bytes")
    if len(key) > _MAX_KEY_BYTES:
        key = blake2b(key, digest_size=_MAX_KEY_BYTES, person=_PERSON).digest()
    keyed = blake2b(digest_size=16, key=key, person=_PERSON)

    def export(fingerprint: bytes) -> str:
        hashing = keyed.copy()
        hashing.update(fingerprint)
        return hashing.hexdigest()

    return export


def new_key() -> bytes:
    """A random key for `exported`, 32 bytes."""
    return secrets.token_bytes(32)


@lru_cache(maxsize=1024)
def _head(tool: str, scope: str, version: str) -> bytes:
    return b"!call[%b,%b,%b]" % (string(tool), string(scope), string(version))


def _identify(
    prefix: bytes, value: object, length_limit: int | None, on_fallback: OnFallback | None
) -> tuple[bytes | None, list[str]]:
    data = plain_form(value)
    if data is not None:
        if (_REDACTED_BYTES in data or length_limit is not None) and is_unknown(value, length_limit=length_limit):
            return None, []
        return xxh3_128_digest(prefix + data), []
    found, opaque = walked_digest(value, prefix)
    _tell(opaque, on_fallback)
    return (None if is_unknown(value, length_limit=length_limit) else found), opaque


def _tell(opaque: list[str], on_fallback: OnFallback | None) -> None:
    if on_fallback is None:
        return
    for name in opaque:
        with suppress(Exception):
            on_fallback(name)
