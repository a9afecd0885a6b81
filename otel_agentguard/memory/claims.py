"""What a memory claims: its clauses, and in each what has to be found in the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from otel_agentguard.memory.lexicon import (
    APPROXIMATELY,
    CJK_APPROXIMATELY,
    CJK_DESIRE,
    CJK_DONE,
    CJK_FILLERS,
    DESIRE,
    DONE_FORMS,
    GERMAN_DETERMINERS,
    MODALITY,
    PLACEHOLDERS,
    POSSIBLE,
    ROLE_WORDS,
    WEAK_WORDS,
)
from otel_agentguard.memory.stems import CJK_RUN, is_stop_word, language, normal, stem
from otel_agentguard.memory.text import Polarity, Token, TokenKind, Word, read
from otel_agentguard.shown import shown

MAX_CLAIM_CHARS = 4000
"""What of a claim is read; the rest of a longer one is neither checked nor held against it."""

_MAX_LEAVES = 64
_MAX_CLAUSES = 64
_TITLE_SHARE = 0.6
_LEAST_TITLE = 4
_NAMING = ("叫", "姓")
_FILLER = re.compile("|".join(sorted(map(re.escape, CJK_FILLERS), key=len, reverse=True)))
_KEY_WORD = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-zа-яё])(?=[A-ZА-ЯЁ])")
_BRACKETED = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of a clause that the evidence has to show.

    Attributes:
        word: What it is.
        polarity: Whether the claim denies it.
        hard: It must occur in the evidence: a number, date, id, path, address or name.
        name: It is looked for as a name.
        approximate: A number that was said to be about right.
        tail: It is what the clause says last, so most likely what it tells.
        opening: A capitalised word that begins a sentence: a name or not, nobody can tell.
        weak: A word that restating adds; it is not missed where it is not found.
    """

    word: Word
    polarity: Polarity
    hard: bool
    name: bool = False
    approximate: bool = False
    tail: bool = False
    opening: bool = False
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Clause:
    """One statement of a claim.

    Attributes:
        items: What has to be found, in order.
        labels: Stems that name what a number of the clause is a number of.
        possible: It claims no more than that something is possible.
        deed: The deed in the outside world that it says was done; None where it says none.
        text: The clause as it was read.
    """

    items: tuple[Item, ...]
    labels: frozenset[str]
    possible: bool
    deed: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a memory says.

    Attributes:
        text: Its text, at most `MAX_CLAIM_CHARS`.
        clauses: Its statements; empty where it has no content that can be looked for.
        guess: The words that make it a guess or a plan, in the order found.
        language: `en`, `de`, `ru`, `zh`, or empty.
    """

    text: str
    clauses: tuple[Clause, ...]
    guess: tuple[str, ...]
    language: str

    @property
    def numbers(self) -> tuple[str, ...]:
        """Its numbers as written."""
        return self._written(TokenKind.NUMBER)

    @property
    def dates(self) -> tuple[str, ...]:
        """Its dates as written."""
        return self._written(TokenKind.DATE)

    @property
    def ids(self) -> tuple[str, ...]:
        """Its identifiers, links and addresses as written."""
        return self._written(TokenKind.ID) + self._written(TokenKind.LINK)

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths as written."""
        return self._written(TokenKind.PATH)

    @property
    def names(self) -> tuple[str, ...]:
        """Its names as written."""
        return tuple(item.word.text for clause in self.clauses for item in clause.items if item.name)

    @property
    def denied(self) -> tuple[str, ...]:
        """The words that it says do not hold."""
        items = (item for clause in self.clauses for item in clause.items)
        return tuple(item.word.text for item in items if item.polarity is Polarity.NEGATED)

    def _written(self, kind: TokenKind) -> tuple[str, ...]:
        return tuple(item.word.text for clause in self.clauses for item in clause.items if item.word.kind is kind)


def read_claim(value: object, key: str | None = None) -> Claim:
    """Read what a memory claims.

    Args:
        value: What is to be stored: text, or data whose leaves are statements about their keys.
        key: Name of the entry; its words say what the value is a value of, but claim nothing themselves.

    Returns:
        The claim. Of data at most 64 leaves are read, of text at most `MAX_CLAIM_CHARS`.
    """
    leaves = list(_leaves(value, key or ""))
    text = "\n".join(leaf for leaf, _ in leaves)[:MAX_CLAIM_CHARS]
    spoken = language(text)
    clauses: list[Clause] = []
    for leaf, label in leaves:
        clauses += _clauses(leaf[:MAX_CLAIM_CHARS], label, spoken)
        if len(clauses) >= _MAX_CLAUSES:
            break
    return Claim(text, tuple(clauses[:_MAX_CLAUSES]), _guesses(text, spoken), spoken)


def text_of(value: object) -> str:
    """A value as text: as it is, or as JSON with spaces."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        return shown(value)


def normal_value(value: object) -> str:
    """The identity of a value: equal but for case, spaces and compatibility forms. Works for every script."""
    return " ".join(normal(text_of(value)).casefold().split())


def is_placeholder(value: object) -> bool:
    """Whether a value is a word of protocol, such as `no change`, instead of content."""
    return isinstance(value, str) and _BRACKETED.sub("", normal(value).casefold()) in PLACEHOLDERS


def key_words(key: str) -> frozenset[str]:
    """Stems of the words in the name of an entry."""
    words = (word.casefold() for word in _KEY_WORD.findall(_CAMEL.sub(" ", normal(key))))
    return frozenset(stem(word) for word in words if word not in ROLE_WORDS and not is_stop_word(word))


def _leaves(value: object, label: str) -> Iterator[tuple[str, str]]:
    pending: list[tuple[object, str]] = [(value, label)]
    given = 0
    while pending and given < _MAX_LEAVES:
        node, name = pending.pop()
        if isinstance(node, Mapping):
            pending += [(child, f"{name} {key}") for key, child in reversed(list(node.items())[:_MAX_LEAVES])]
        elif isinstance(node, Sequence) and not isinstance(node, str | bytes | bytearray):
            pending += [(child, name) for child in reversed(node[:_MAX_LEAVES])]
        elif isinstance(node, bool):
            given += 1
            words = " ".join(_KEY_WORD.findall(_CAMEL.sub(" ", name.rpartition(" ")[2])))
            yield (words if node else f"no {words}"), ""
        elif node is not None and node != "":
            given += 1
            yield text_of(node), name


def _clauses(text: str, label: str, spoken: str) -> list[Clause]:
    tokens = read(_without_fillers(text))
    names = _names(tokens, spoken)
    read_items = [(group, items) for group in _groups(tokens) if (items := _items(group, names, spoken))]
    named: dict[int, set[str]] = {}
    for group, items in read_items:
        words = {item.word.stem for item in items if item.word.kind is not TokenKind.NUMBER}
        named.setdefault(group[0].sentence, set()).update(words)
    of_entry = key_words(label)
    return [
        Clause(
            items,
            of_entry | named[group[0].sentence],
            any(token.word.text.casefold() in POSSIBLE for token in group),
            _deed(group, text),
            " ".join(token.word.text for token in group),
        )
        for group, items in read_items
    ]


def _without_fillers(text: str) -> str:
    return CJK_RUN.sub(lambda run: _FILLER.sub(" ", run.group()), normal(text))


def _groups(tokens: list[Token]) -> list[list[Token]]:
    """Tokens by sentence part; what stands in parentheses belongs to the part before."""
    groups: list[list[Token]] = []
    for token in tokens:
        last = groups[-1][-1] if groups else None
        joined = last is not None and last.sentence == token.sentence and (last.segment == token.segment or token.aside)
        if joined:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def _items(group: list[Token], names: set[int], spoken: str) -> tuple[Item, ...]:
    title = spoken != "de" and _is_title(group)
    kept: list[Item] = []
    seen: set[tuple[TokenKind, str]] = set()
    tail = -1
    for place, token in enumerate(group):
        word = token.word
        name = id(token) in names and not title
        weak = word.text.casefold() in WEAK_WORDS
        if token.counts_none or (word.kind is TokenKind.WORD and not name and _empty(word, spoken)):
            continue
        if word.kind not in (TokenKind.PAIR, TokenKind.NUMBER):
            if (word.kind, word.stem) in seen:
                continue
            seen.add((word.kind, word.stem))
        if not token.aside and not weak:
            tail = len(kept)
        hard = (
            name
            or (title and word.capital and not weak)
            or word.kind not in (TokenKind.WORD, TokenKind.PAIR)
            or _is_after_naming(group, place)
        )
        kept.append(
            Item(
                word,
                token.polarity,
                hard,
                name,
                approximate=hard and _is_approximate(group, place),
                opening=token.first and word.capital and not hard,
                weak=weak and not hard,
            )
        )
    if kept:
        kept[tail] = replace(kept[tail], tail=True)
    return tuple(kept)


def _empty(word: Word, spoken: str) -> bool:
    folded = word.text.casefold().replace("’", "'")
    bare = folded.partition("'")[0]
    return bare in ROLE_WORDS or bare in APPROXIMATELY or is_stop_word(bare, spoken)


def _is_approximate(group: list[Token], place: int) -> bool:
    if group[place].word.kind is not TokenKind.NUMBER or place == 0:
        return False
    before = group[place - 1].word.text.casefold()
    return before in APPROXIMATELY or before.endswith(CJK_APPROXIMATELY)


def _is_title(group: list[Token]) -> bool:
    """Nearly every word has a capital letter, so a capital letter makes no name."""
    words = [token.word for token in group if token.word.kind is TokenKind.WORD]
    return len(words) >= _LEAST_TITLE and sum(word.capital for word in words) >= _TITLE_SHARE * len(words)


def _is_after_naming(group: list[Token], place: int) -> bool:
    """In Chinese a name follows the word for being called."""
    return place > 0 and group[place].word.kind is TokenKind.PAIR and group[place - 1].word.text[:1] in _NAMING


def _names(tokens: list[Token], spoken: str) -> set[int]:
    """Tokens that are names, by identity: capitalised words that do not have to be capitalised."""
    words = [token for token in tokens if token.word.kind is TokenKind.WORD]
    content = [token for token in words if not _empty(token.word, spoken)]
    capital = [token for token in content if token.word.capital]
    if not capital:
        return set()
    if len(words) <= 3 and len(capital) == len(content):
        return {id(token) for token in capital}
    found = set()
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.first or not token.word.capital or token.word.kind is not TokenKind.WORD:
            continue
        if spoken == "de" and (before is None or GERMAN_DETERMINERS.match(before.word.text.casefold())):
            continue
        if not _empty(token.word, spoken):
            found.add(id(token))
    return found


def _deed(group: list[Token], text: str) -> str | None:
    folded = [token.word.text.casefold() for token in group]
    if not any(word in DESIRE for word in folded):
        for token, word in zip(group, folded, strict=True):
            if word in DONE_FORMS and not token.asked and token.polarity is not Polarity.NEGATED:
                return DONE_FORMS[word]
    if not CJK_DESIRE.search(text) and CJK_RUN.search(text) and not group[0].asked:
        written = "".join(token.word.text for token in group)
        return next((deed for phrase, deed in CJK_DONE.items() if phrase in text and written), None)
    return None


def _guesses(text: str, spoken: str) -> tuple[str, ...]:
    patterns = [MODALITY[spoken]] if spoken else [MODALITY["en"], MODALITY["de"]]
    return tuple(match.group() for pattern in patterns for match in pattern.finditer(normal(text)))
