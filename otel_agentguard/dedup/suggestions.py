"""What several agents suggest for one place, merged: by place, then by meaning, every source kept."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

from otel_agentguard import text
from otel_agentguard.errors import ConfigError
from otel_agentguard.protocols import Embedder

MIN_SHARED = 0.5
MIN_COSINE = 0.8

_PLACE = re.compile(
    r"(?P<what>.*?)"
    r"(?:(?:#L|:L?|[\s,]+(?:at\s+)?(?:lines?|l\.|ll\.|zeilen?)[\s:]*)"
    r"(?P<first>\d+)(?::\d+)?(?:\s*(?:-|–|to|bis)\s*L?(?P<last>\d+)(?::\d+)?)?)?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_WORD = re.compile(r"[^\W_]+(?:[_.'-][^\W_]+)*")
_NUMBER = re.compile(r"\d")
_EXCHANGE = re.compile(
    r"(?:replace|change|switch|migrate|convert|rename|swap|move)\s+(?:from\s+|out\s+)?(?P<old>.+?)\s+"
    r"(?:with|by|to|for|into)\s+(?P<new>.+?)(?:[.,;]|\s+(?:because|since|so|as|in order)\b|$)"
    r"|(?:use|prefer|choose|take)\s+(?P<new2>.+?)\s+(?:instead of|rather than|over|not)\s+(?P<old2>.+?)(?:[.,;]|$)"
    r"|(?P<old3>\S+)\s*(?:->|→|=>)\s*(?P<new3>\S+)",
    re.IGNORECASE,
)
_OPPOSED = tuple(
    (frozenset(one.split()), frozenset(other.split()))
    for one, other in (
        ("add insert introduce include append keep", "remove delete drop omit exclude strip"),
        ("enable allow permit activate", "disable forbid deny deactivate block prevent"),
        (
            "increase raise extend lengthen grow widen more larger longer higher",
            "decrease lower reduce shorten shrink narrow less fewer smaller shorter",
        ),
        ("public export", "private hide"),
        ("before earlier", "after later"),
        ("async asynchronous parallel", "sync synchronous sequential serial"),
        ("split separate extract", "merge combine inline join"),
        ("true yes always required mandatory", "false no never optional"),
        ("lock open start", "unlock close stop"),
        ("min minimum first", "max maximum last"),
        ("strict stricter strengthen", "lax relax loosen weaken"),
    )
)
_NEGATIONS = frozenset("not no never without don't shouldn't mustn't cannot can't".split())
_STATES = frozenset("is are was were be been has have had does do did will can could".split())
_FILLERS = frozenset(
    """
    add also better change consider could fix here improve instead like line make must need please prefer problem
    recommend replace should suggest suggestion switch there update use using want would code
    """.split()
)
_ENDINGS = ("ations", "ation", "ions", "ion", "ings", "ing", "ments", "ment", "ies", "es", "ed", "s", "e")


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return f"{word[:-1]}s" if word.endswith("iz") else word


_FILLER_STEMS = frozenset(map(_stem, _FILLERS))


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What somebody suggests for one place.

    Attributes:
        agent: Who says so; of a merged one, who said it first.
        place: Where: a file, a file and lines (`src/auth.py:23`, `src/auth.py:20-25`), or a subject.
        text: What to do.
        sources: Everybody who says so; the agent alone where it is left empty.
    """

    agent: str
    place: str
    text: str
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("agent", "place", "text"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"the {name} of a suggestion is a text, not {getattr(self, name)!r}")
        if not self.sources:
            object.__setattr__(self, "sources", (self.agent,))


def merge_suggestions(items: Iterable[Suggestion], *, embedder: Embedder | None = None) -> list[Suggestion]:
    """Merge what says the same of the same place.

    Two suggestions meet where their places do (one file and common lines, or one subject) and they mean
    the same: by their words, or by an embedder. What differs in a number, in direction ("md5 to sha256"
    and back) or by a negation never means the same. Of a group the text that says most stands for all.

    Args:
        items: Suggestions, of any number of agents.
        embedder: Tells the meaning of texts; words are compared where it is None or knows no vector.

    Returns:
        As many or fewer, in the order of each group's first one; merging them again changes nothing.
    """
    groups: list[list[_Meant]] = []
    given = list(items)
    vectors = _vectors(given, embedder)
    for item, vector in zip(given, vectors, strict=True):
        meant = _Meant(item, vector)
        for group in groups:
            if all(meant.is_like(other) for other in group):
                group.append(meant)
                break
        else:
            groups.append([meant])
    return [_merged(group) for group in groups]


class _Meant:
    """A suggestion, taken apart."""

    def __init__(self, item: Suggestion, vector: Sequence[float] | None) -> None:
        self.item = item
        self.vector = vector
        self.place, self.first, self.last = _taken_apart(item.place)
        lowered = item.text.lower()
        self.said = frozenset(_WORD.findall(lowered))
        stems = frozenset(map(_stem, text.content_words(item.text)))
        self.stems = stems - _FILLER_STEMS or frozenset(map(_stem, self.said))
        self.numbers = frozenset(word for word in self.said if _NUMBER.search(word))
        self.negated = _is_negated(lowered)
        self.exchange = _exchange(lowered)

    def is_like(self, other: _Meant) -> bool:
        return self._meets(other) and not self._contradicts(other) and self._means(other)

    def _meets(self, other: _Meant) -> bool:
        if self.place != other.place:
            return False
        if self.first is None or other.first is None:
            return self.first is other.first
        return self.first <= (other.last or other.first) and other.first <= (self.last or self.first)

    def _contradicts(self, other: _Meant) -> bool:
        if not (self.numbers <= other.numbers or other.numbers <= self.numbers):
            return True
        if self.exchange and other.exchange:
            (old, new), (their_old, their_new) = self.exchange, other.exchange
            return bool(old & their_new) or bool(old & their_old and not new & their_new)
        if self.negated != other.negated:
            return True
        return any(
            (self.said & one and other.said & two and not self.said & two and not other.said & one)
            or (self.said & two and other.said & one and not self.said & one and not other.said & two)
            for one, two in _OPPOSED
        )

    def _means(self, other: _Meant) -> bool:
        if self.item.text.strip() == other.item.text.strip():
            return True
        if self.vector is not None and other.vector is not None:
            return _cosine(self.vector, other.vector) >= MIN_COSINE
        common = self.stems & other.stems
        return len(common) >= MIN_SHARED * len(self.stems | other.stems)


def _merged(group: Sequence[_Meant]) -> Suggestion:
    first = group[0].item
    fullest = max(group, key=lambda meant: len(meant.stems)).item
    sources = tuple(dict.fromkeys(source for meant in group for source in meant.item.sources))
    return replace(first, text=fullest.text, sources=sources)


def _taken_apart(place: str) -> tuple[str, int | None, int | None]:
    found = _PLACE.fullmatch(place.strip())
    if found is None or not found["what"]:
        return place.strip(), None, None
    what = found["what"].strip().rstrip(",:")
    what = posixpath.normpath(what) if "/" in what else " ".join(what.split())
    first, last = found["first"], found["last"]
    return what, None if first is None else int(first), None if last is None else int(last)


def _is_negated(lowered: str) -> bool:
    """Whether something is not to be done; that something is not so, is a reason to do it."""
    said = _WORD.findall(lowered.replace("do not", "don't"))
    counted = [word for before, word in pairwise(("", *said)) if word in _NEGATIONS and before not in _STATES]
    return (len(counted) + (said[:1] in (["avoid"], ["stop"]))) % 2 == 1


def _exchange(lowered: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """What is to go and what is to come, where a text says so."""
    found = _EXCHANGE.search(lowered)
    if found is None:
        return None
    old = found["old"] or found["old2"] or found["old3"] or ""
    new = found["new"] or found["new2"] or found["new3"] or ""
    return frozenset(map(_stem, _WORD.findall(old))), frozenset(map(_stem, _WORD.findall(new)))


def _vectors(items: Sequence[Suggestion], embedder: Embedder | None) -> Sequence[Sequence[float] | None]:
    if embedder is None or not items:
        return [None] * len(items)
    vectors = embedder.embed([item.text for item in items])
    if len(vectors) != len(items):
        raise ConfigError(f"the embedder gave {len(vectors)} vectors for {len(items)} texts")
    return vectors


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    length = sqrt(sum(a * a for a in one)) * sqrt(sum(b * b for b in other))
    return product / length if length else 0.0
