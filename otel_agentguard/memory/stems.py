"""Words without their endings, names without their cases, and which language a text is in."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from otel_agentguard.memory.lexicon import (
    FAILURE,
    LATIN_ENDINGS,
    RUSSIAN_ENDINGS,
    RUSSIAN_NOUN_ENDINGS,
    STOP_WORDS,
    SUCCESS,
    SYNONYMS,
)

CJK_CLASS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
"""Characters that are written without spaces between words, as the inside of a character class."""

MAX_CHUNK = 48
"""Characters between two spaces up to which they are read as one, and remembered."""

LONG_CHUNK = re.compile(r"[^,;{}\[\]]+|[,;{}\[\]]+")
"""The pieces of what is longer, such as JSON without spaces."""

CJK_RUN = re.compile(f"[{CJK_CLASS}]+")
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_ALL_STOP_WORDS = frozenset().union(*STOP_WORDS.values())
_TRANSLITERATION = str.maketrans(
    dict(
        zip(
            "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
            "a b v g d e e zh z i y k l m n o p r s t u f kh ts ch sh shch - y - e yu ya".replace("-", "").split(" "),
            strict=True,
        )
    )
)


@lru_cache(maxsize=16_384)
def stem(folded: str) -> str:
    """A word without its endings; equal for most inflections of one word.

    Words that restate one another have one stem, as have those that say that something went well, or failed.
    """
    if folded in SUCCESS:
        return "+success"
    if folded in FAILURE:
        return "+failure"
    bare = _bare(folded)
    return _MEANINGS.get(bare, bare)


def _bare(folded: str) -> str:
    if _CYRILLIC.search(folded):
        bare = _without(folded.replace("ё", "е"), RUSSIAN_ENDINGS, least=2)
        return _without(bare, RUSSIAN_ENDINGS, least=3)
    if len(folded) > 7:
        folded = folded.removesuffix("t")
    folded = folded.removesuffix("'s").removesuffix("'")
    while len(folded) > 3:
        shorter = _without(folded, LATIN_ENDINGS, least=3)
        if shorter == folded or folded.endswith("ss"):
            break
        folded = shorter
    if folded.endswith("i") and len(folded) > 3:
        folded = folded[:-1] + "y"
    return folded


def _without(word: str, endings: tuple[str, ...], *, least: int) -> str:
    for ending in endings:
        if len(word) - len(ending) >= least and word.endswith(ending):
            return word[: -len(ending)]
    return word


_MEANINGS = {_bare(word): f"+{place}" for place, words in enumerate(SYNONYMS) for word in words}


@lru_cache(maxsize=16_384)
def name_forms(folded: str) -> tuple[str, ...]:
    """The forms under which a name is looked for: without case endings, and in Latin letters."""
    if _CYRILLIC.search(folded):
        bare = _without(folded.replace("ё", "е"), RUSSIAN_NOUN_ENDINGS, least=2)
        return (bare, bare.translate(_TRANSLITERATION), folded.translate(_TRANSLITERATION))
    bare = folded.removesuffix("'s").removesuffix("'")
    return (bare, bare[:-1]) if len(bare) > 3 and bare.endswith("s") else (bare,)


def pairs(run: str) -> list[str]:
    """A run of characters without spaces as overlapping pairs; a single one stays."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def normal(text: str) -> str:
    """A text in compatibility form (NFKC), so that full-width digits and ligatures read as usual."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def language(text: str) -> str:
    """`en`, `de`, `ru` or `zh`; empty where a text does not tell."""
    text = normal(text)
    if CJK_RUN.search(text):
        return "zh"
    if len(_CYRILLIC.findall(text)) * 2 > sum(map(str.isalpha, text)):
        return "ru"
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+", text)]
    english = sum(word in STOP_WORDS["en"] for word in words)
    german = sum(word in STOP_WORDS["de"] for word in words) + sum(char in "äöüß" for char in text.casefold())
    if english == german:
        return ""
    return "en" if english > german else "de"


def is_stop_word(folded: str, of: str = "") -> bool:
    """Whether a word has no content of its own in a language; in any of them where `of` is empty."""
    return folded in STOP_WORDS.get(of, _ALL_STOP_WORDS)
