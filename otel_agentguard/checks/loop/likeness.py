"""How alike the arguments of two calls of one tool are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache

from rapidfuzz import fuzz

from otel_agentguard import text
from otel_agentguard.reading import is_command_line

_FIELD_CHARS = 2000
_LONG_CHARS = 250
_ALIKE_PERCENT = 90.0
_PIECES = 8
_PIECE_CHARS = 12  # shorter ones are found in most texts of one language
_SHARED_WORDS = 0.5
_FEW_WORDS = 2
_TRIM = "\"'`,;:.!?()[]{}<>|&\\+*"
_ENTITY = re.compile(r"\d|[/\\@#]|[a-z][A-Z]|_|\.\w|^[A-Z]")
_CODE_SIGNS = ("{", "}", "==", "->", "=>")
_CODE_WORDS = ("def ", "import ", "return ", "function ", "class ", "const ", "var ", "let ")
_CODE_WORD = re.compile(
    r"\b(?:def|function|class)\s+\w+\s*[(:{]|^\s*(?:import|from)\s+[\w.]+\s*(?:$|[;,]|(?:import|as)\b)"
    r"|\breturn\s+[\w.]+\s*[(\[+*=]|\b(?:const|var|let)\s+\w+\s*=",
    re.MULTILINE,
)
_CODE_LINE = re.compile(r"[;=(]\s*$|^\s*\w+ = ", re.MULTILINE)
_SHELL_SIGNS = ("-", "|", "&", ";", "$(", "/")
_FLAG = re.compile(r"-{1,2}[A-Za-z][\w-]*")
_SHELL = re.compile(r"(?:^|\s)-{1,2}\w|\|{1,2}\s|&&\s|&\s*$|\$\(|^\s*(?:/|\./)\S+")

_SQL = re.compile(
    r"\s*(?:(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|SHOW|DESCRIBE|EXPLAIN)\s"
    r"|(?i:insert\s+into|delete\s+from|update\s+\w+\s+set|(?:create|alter|drop)\s+table"
    r"|select\s+(?:\*|distinct\s|count\s*\(|[\w.]+(?:\s*,\s*[\w.]+)*\s+from\s))\b)"
)


class Likeness(IntEnum):
    """The closest way in which two argument sets differ, closest first."""

    WORDS = 0
    TOKEN = 1
    ENTITY = 2
    OTHER = 3


Form = dict[str, str]
"""Arguments as they are compared: texts by name, cut to their first 2,000 characters."""


def form_of(arguments: Mapping[str, object]) -> Form:
    """The comparable form of arguments."""
    form: Form = {}
    for name, value in arguments.items():
        if isinstance(value, str):
            form[name] = value[:_FIELD_CHARS]
        elif type(value) is int:
            form[name] = str(value)
        else:
            form[name] = text.text_of(value, _FIELD_CHARS)
    return form


def size_of(form: Form) -> int:
    """Characters of all fields."""
    return sum(map(len, form.values()))


def is_prose(value: str) -> bool:
    """Whether a text is meant for people: several words, no code."""
    several = len(value.split(None, 2)) >= 3 or text.is_unspaced(value)
    return several and not _is_code(value) and not _shell_like(value) and not _SQL.match(value)


def likeness(one: Form, other: Form, *, failing: bool) -> Likeness:
    """Compare two forms of calls with one outcome.

    Args:
        one: Arguments of the earlier call.
        other: Arguments of the later call.
        failing: Both calls failed. Then free text beside equal identifying arguments does not
            matter: whatever was asked, the same thing could not be had.
    """
    if one == other:
        return Likeness.WORDS
    differing = [name for name, value in other.items() if one.get(name) != value]
    differing += [name for name in one if name not in other]
    if len(differing) > 1:
        differing.sort(key=lambda name: len(other.get(name, "")), reverse=True)
    equal = one.keys() & other.keys() - set(differing)
    if failing and equal and any(one[name] for name in equal):
        differing = [name for name in differing if not (is_prose(one.get(name, "")) or is_prose(other.get(name, "")))]
        if not differing:
            return Likeness.WORDS
    likest = Likeness.WORDS
    for name in differing:
        likest = max(likest, _texts(one.get(name, ""), other.get(name, "")))
        if likest is Likeness.OTHER:
            break
    return likest


def changed_words(one: Form, other: Form) -> set[str]:
    """Words of the later call that the earlier one did not have."""
    known = set(" ".join(one.values()).split())
    come = set(" ".join([value for name, value in other.items() if one.get(name) != value]).split()) - known
    return set(_words(come)).difference(_words(known))


def _texts(one: str, other: str) -> Likeness:
    if max(len(one), len(other)) > _LONG_CHARS:
        return _long_texts(one, other)
    left, right = _counted(one), _counted(other)
    if left == right:
        return Likeness.WORDS
    gone, come = _without_flags(left - right), _without_flags(right - left)
    lost, won = gone.total(), come.total()
    if not lost and not won:
        return Likeness.WORDS
    entities = all(_ENTITY.search(word) for word in (*gone, *come))
    if entities and lost == won:
        return Likeness.ENTITY
    if _is_code(other) and not is_command_line(other):
        return _long_texts(one, other)
    size = min(left.total(), right.total())
    if not size:
        return Likeness.OTHER
    if not lost or not won:
        few = lost + won <= max(_FEW_WORDS, _SHARED_WORDS * max(left.total(), right.total()))
        return Likeness.WORDS if few else Likeness.OTHER
    if lost == won == 1 and size > 1:
        return Likeness.TOKEN
    return Likeness.ENTITY if entities else Likeness.OTHER


def _without_flags(words: Counter[str]) -> Counter[str]:
    """The words but for flags of commands, which are cosmetic where the outcome is the same."""
    return Counter({word: count for word, count in words.items() if not _FLAG.fullmatch(word)})


def _long_texts(one: str, other: str) -> Likeness:
    if not _may_be_alike(one, other):
        return Likeness.OTHER
    alike = fuzz.ratio(one, other, score_cutoff=_ALIKE_PERCENT) > 0.0
    return Likeness.TOKEN if alike else Likeness.OTHER


def _may_be_alike(one: str, other: str) -> bool:
    """Whether any of a few short pieces of one text stands in the other, as is all but sure where they are alike."""
    apart = len(one) // _PIECES
    if apart < _PIECE_CHARS:
        return True
    pieces = [one[start : start + _PIECE_CHARS] for start in range(0, apart * _PIECES, apart)]
    return any(map(other.__contains__, pieces))


@lru_cache(maxsize=64)
def _counted(value: str) -> Counter[str]:
    """The words of a short text, which is compared with several others in a row."""
    return Counter(_words(value.split()))


def _words(parts: Iterable[str]) -> list[str]:
    """Words without signs, in lower case but for names such as `userId`."""
    return [_folded(word) for part in parts if (word := part.strip(_TRIM))]


def _folded(word: str) -> str:
    folded = word.lower()
    if folded == word or word[0].isupper() or not _ENTITY.search(word):
        return folded
    return word


def _is_code(value: str) -> bool:
    if any(map(value.__contains__, _CODE_SIGNS)):
        return True
    if any(map(value.__contains__, _CODE_WORDS)) and _CODE_WORD.search(value):
        return True
    return ("=" in value or ";" in value or "(" in value) and _CODE_LINE.search(value) is not None


def _shell_like(value: str) -> bool:
    return any(map(value.__contains__, _SHELL_SIGNS)) and _SHELL.search(value) is not None
