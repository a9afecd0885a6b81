"""How alike the arguments of two calls of one tool are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from rapidfuzz import fuzz

from otel_agentguard import text

_FIELD_CHARS = 2000
_LONG_CHARS = 250
_ALIKE_PERCENT = 90.0
_SHARED_WORDS = 0.5
_FEW_WORDS = 2
_TRIM = "\"'`,;:.!?()[]{}<>|&\\+*"
_ENTITY = re.compile(r"\d|[/\\@#]|[a-z][A-Z]|_|\.\w|^[A-Z]")
_CODE = re.compile(
    r"[{};=(]\s*$|^\s*\w+ = |\b(?:def|import|return|function|class|const|var|let)\b|[{}]|==|->|=>", re.MULTILINE
)


class Likeness(IntEnum):
    """The closest way in which two argument sets differ, closest first."""

    WORDS = 0
    TOKEN = 1
    ENTITY = 2
    OTHER = 3


@dataclass(frozen=True, slots=True)
class Form:
    """Arguments as they are compared: texts by name, cut to their first 2,000 characters."""

    fields: tuple[tuple[str, str], ...]


def form_of(arguments: Mapping[str, object]) -> Form:
    """The comparable form of arguments."""
    return Form(
        tuple(
            (name, value[:_FIELD_CHARS] if isinstance(value, str) else text.text_of(value, _FIELD_CHARS))
            for name, value in sorted(arguments.items())
        )
    )


def is_prose(value: str) -> bool:
    """Whether a text is meant for people: several words, no code."""
    return len(value.split()) >= 3 and not _CODE.search(value) and not _shell_like(value)


def likeness(one: Form, other: Form, *, failing: bool) -> Likeness:
    """Compare two forms of calls with one outcome.

    Args:
        one: Arguments of the earlier call.
        other: Arguments of the later call.
        failing: Both calls failed. Then free text beside equal identifying arguments does not
            matter: whatever was asked, the same thing could not be had.
    """
    left, right = dict(one.fields), dict(other.fields)
    differing = [name for name in left.keys() | right.keys() if left.get(name) != right.get(name)]
    if not differing:
        return Likeness.WORDS
    equal = left.keys() & right.keys() - set(differing)
    if failing and equal and any(left[name] for name in equal):
        differing = [name for name in differing if not (is_prose(left.get(name, "")) or is_prose(right.get(name, "")))]
        if not differing:
            return Likeness.WORDS
    return max(_texts(left.get(name, ""), right.get(name, "")) for name in differing)


def changed_words(one: Form, other: Form) -> set[str]:
    """Words of the later call that the earlier one did not have."""
    left, right = dict(one.fields), dict(other.fields)
    changed = [value for name, value in right.items() if left.get(name) != value]
    known = set(_words(" ".join(left.values())))
    return {word for word in _words(" ".join(changed)) if word not in known}


def _texts(one: str, other: str) -> Likeness:
    left, right = Counter(_words(one)), Counter(_words(other))
    long = max(len(one), len(other)) > _LONG_CHARS
    if left == right and not long:
        return Likeness.WORDS
    if long or _CODE.search(other):
        return Likeness.TOKEN if fuzz.ratio(one, other) >= _ALIKE_PERCENT else Likeness.OTHER
    gone, come = left - right, right - left
    lost, won = gone.total(), come.total()
    size = min(left.total(), right.total())
    if not size:
        return Likeness.OTHER
    if not lost or not won:
        few = lost + won <= max(_FEW_WORDS, _SHARED_WORDS * max(left.total(), right.total()))
        return Likeness.WORDS if few else Likeness.OTHER
    entities = all(_ENTITY.search(word) for word in (*gone, *come))
    if entities and lost == won:
        return Likeness.ENTITY
    if lost == won == 1 and size > 1:
        return Likeness.TOKEN
    return Likeness.ENTITY if entities else Likeness.OTHER


def _words(value: str) -> list[str]:
    found = (word.strip(_TRIM) for word in value.split())
    return [word if _ENTITY.search(word) and not word[0].isupper() else word.lower() for word in found if word]


def _shell_like(value: str) -> bool:
    return bool(re.search(r"(?:^|\s)-{1,2}\w|[|&;]{1,2}\s|\$\(|^\s*(?:/|\./)\S+", value))
