"""What a text is found by, and how it is compared with a quote."""

from __future__ import annotations

import re
from functools import lru_cache

from otel_agentguard.memory.lexicon import SYNONYM_PAIRS
from otel_agentguard.memory.quantities import number_forms
from otel_agentguard.memory.stems import CJK_CLASS, CJK_RUN, LONG_CHUNK, MAX_CHUNK, name_forms, normal, pairs, stem

KEY_BITS = 44
_KEY_MASK = (1 << KEY_BITS) - 1
_INDEXED = re.compile(rf"[{CJK_CLASS}]+|\d[\d.,]*\d(?![^\W_])|[^\W_]+(?:['’][^\W_]+)?")
_QUOTED = re.compile(
    rf"[-−]?\d+(?:[.,:]\d+)*|[{CJK_CLASS}]|(?:(?![{CJK_CLASS}])[^\W\d_])(?:(?![{CJK_CLASS}])[^\W_]|['’](?=[^\W_]))*|[%$€£₽¥]"
)


def index_keys(text: str) -> set[int]:
    """What a text is found by, as hashes of `KEY_BITS` bits that hold within this process.

    Hashed are stems, numbers, pairs of characters, and names in Latin letters.
    """
    keys: set[int] = set()
    for chunk in set(normal(text).split()):
        if len(chunk) <= MAX_CHUNK:
            keys.update(_chunk_keys(chunk))
        else:
            for piece in LONG_CHUNK.findall(chunk):
                keys.update(map(_hashed, _keys(piece)))
    return keys


@lru_cache(maxsize=16_384)
def _chunk_keys(chunk: str) -> tuple[int, ...]:
    return tuple(map(_hashed, _keys(chunk)))


def _hashed(key: str) -> int:
    return hash(key) & _KEY_MASK


def _keys(chunk: str) -> set[str]:
    keys: set[str] = set()
    for word in _INDEXED.findall(chunk.casefold()):
        if word[0].isdecimal():
            keys.update(_numeric_keys(word))
        elif CJK_RUN.match(word):
            keys.update(SYNONYM_PAIRS.get(pair, pair) for pair in pairs(word))
        else:
            keys.add(stem(word))
            if not word.isascii():
                keys.update(name_forms(word))
    return keys


@lru_cache(maxsize=16_384)
def _numeric_keys(word: str) -> tuple[str, ...]:
    if word.isdecimal():
        return number_forms(word)
    if re.fullmatch(r"\d[\d.,]*\d", word):
        return (*number_forms(word), *(part.lstrip("0") or "0" for part in re.findall(r"\d+", word)))
    digits = re.match(r"\d+", word)
    return (word, digits.group().lstrip("0") or "0") if digits else (word,)


def quotable(text: str) -> str:
    """A text as it is compared with a quote: its words, numbers and currency signs, folded, one space between."""
    return " ".join(_QUOTED.findall(normal(text).casefold().replace("’", "'").replace("−", "-")))
