"""What stays the same over sessions and machines: resources, their content, the words of a call."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from hashlib import blake2b

from otel_agentguard.dedup.cache import working_directory
from otel_agentguard.dedup.resources import content_digest, file_stamp
from otel_agentguard.notes import MAX_TOKENS

MAX_HASHED_BYTES = 1024 * 1024
_MAX_NAME_CHARS = 2_000
_ABSENT = "absent"
_WORD = re.compile(r"[^\s\"'`{}\[\]()<>,;:=]+")


def words_of(text: str) -> frozenset[str]:
    """The words of the arguments of a call, folded to one case."""
    return frozenset(_WORD.findall(text.lower()))


def place_of(name: str) -> str:
    """A resource by one name, however it was reached: the real path of what is a file here."""
    folder = working_directory()
    if folder is None or "\0" in name or len(name) > _MAX_NAME_CHARS:
        return name[:_MAX_NAME_CHARS]
    path = os.path.realpath(os.path.join(folder, os.path.expanduser(name.removeprefix("file://"))))
    return path if os.path.lexists(path) or ("/" in name and "://" not in name) else name


def stamp_of(place: str) -> tuple[int, ...] | None:
    """What tells states of a file apart on this machine; None where there is none."""
    try:
        return file_stamp(os.stat(place))
    except (OSError, ValueError):
        return None


def unchanged_content(place: str, stamp: tuple[int, ...] | None) -> str | None:
    """The content of a file, where it is still what the call can have seen."""
    content = content_of(place)
    return content if stamp_of(place) == stamp else None


def content_of(place: str) -> str | None:
    """Identity of the content of a file, the same on every machine; None where it is none, or too large."""
    digest = content_digest(place, max_bytes=MAX_HASHED_BYTES)
    if digest is not None:
        return digest.hex()
    return _ABSENT if place.startswith("/") and not os.path.lexists(place) else None


def version_of(contents: Sequence[str | None]) -> str | None:
    """Identity of the contents of several files; None where one of them is unknown, or there are none."""
    if not contents or None in contents:
        return None
    return blake2b("\0".join(map(str, contents)).encode(), digest_size=16).hexdigest()


def likeness_of(one: frozenset[int], other: frozenset[int]) -> float:
    """Share of the words of two calls that both have, 0 to 1, by the digests of the words."""
    if not one or not other:
        return 0.0
    # Both hold the smallest digests of their words, so the smallest of both together are a fair sample of all.
    sample = set(sorted(one | other)[:MAX_TOKENS])
    return len(one & other & sample) / len(sample)


def age_of(seconds: float) -> str:
    """How long ago something was, in words, rounded down."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "less than a minute"
