"""Text as the memory gate reads it: tokens with their kind, stem, sentence part and polarity.

The same reading serves what was claimed and what was observed. It is made for English, German, Russian
and Chinese and degrades to plain words elsewhere.
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import NamedTuple

from otel_agentguard.memory.lexicon import (
    CJK_HEDGE,
    CJK_NEGATION,
    CJK_WHETHER,
    CONJUNCTIONS,
    HEDGES,
    MONTHS,
    NEGATIONS,
    NUMBER_WORDS,
    SWITCHED_OFF,
    SYNONYM_PAIRS,
    UNITS,
    WHETHER,
)
from otel_agentguard.memory.quantities import Day, canonical, days_of, number_forms
from otel_agentguard.memory.stems import CJK_CLASS, LONG_CHUNK, MAX_CHUNK, is_stop_word, name_forms, normal, pairs, stem


class TokenKind(StrEnum):
    """What a token is."""

    WORD = "word"
    PAIR = "pair"
    NUMBER = "number"
    DATE = "date"
    ID = "id"
    PATH = "path"
    LINK = "link"


class Polarity(IntEnum):
    """Whether a token stands under a negation."""

    NEGATED = -1
    EITHER = 0
    PLAIN = 1


class Word:
    """What a token is, wherever it stands; one object serves every occurrence.

    Attributes:
        kind: What it is.
        text: As it was written, NFKC.
        stem: What it is found by: a stem, a folded identifier, or the written form.
        forms: A number's values as canonical decimals; a word as a name, in every reading.
        days: Readings of a date.
        unit: Canonical unit of a number; empty where none stands beside it.
        capital: It begins with a capital letter.
    """

    __slots__ = ("capital", "days", "forms", "kind", "stem", "text", "unit")

    def __init__(
        self,
        kind: TokenKind,
        text: str,
        stem: str,
        *,
        forms: tuple[str, ...] = (),
        days: tuple[Day, ...] = (),
        unit: str = "",
        capital: bool = False,
    ) -> None:
        self.kind = kind
        self.text = text
        self.stem = stem
        self.forms = forms
        self.days = days
        self.unit = unit
        self.capital = capital


class Token:
    """A word at its place in a text.

    Attributes:
        word: What it is.
        sentence: Ordinal of its sentence.
        segment: Ordinal of its part of a sentence.
        first: It is the first word of its sentence.
        aside: It stands in parentheses.
        polarity: Whether it stands under a negation.
        guessed: Its sentence only guesses.
        asked: Its sentence asks, or supposes.
        counts_none: A zero that denies the word beside it.
    """

    __slots__ = ("aside", "asked", "counts_none", "first", "guessed", "polarity", "segment", "sentence", "word")

    def __init__(self, word: Word, sentence: int, segment: int, *, first: bool, aside: bool) -> None:
        self.word = word
        self.sentence = sentence
        self.segment = segment
        self.first = first
        self.aside = aside
        self.polarity = Polarity.PLAIN
        self.guessed = False
        self.asked = False
        self.counts_none = False

    def __repr__(self) -> str:
        return f"Token({self.word.kind.value}, {self.word.text!r}, {self.word.stem!r}, {self.polarity.name.lower()})"


class _Mark(IntEnum):
    HARD = 0
    SOFT = 1
    OPEN = 2
    CLOSE = 3
    NEGATION = 4
    CONJUNCTION = 5
    ADVERSATIVE = 6
    SWITCHED_OFF = 7
    QUESTION = 8
    WHETHER = 9
    HEDGE = 10


_Item = Word | _Mark
_ZERO = ("0",)


class _Negation(NamedTuple):
    place: int
    segment: int
    mark: _Mark


_EXTENSIONS = (
    "rs|py|pyi|js|mjs|ts|tsx|jsx|md|txt|json|jsonl|ya?ml|toml|c|h|cc|cpp|hpp|cs|go|java|kt|swift|rb|php|html?|css|scss|"
    "csv|tsv|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|sh|bash|sql|log|cfg|ini|conf|xml|lock|ipynb|env|parquet|db|zip|gz|tar|proto"
)
_UNITS = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_SPACED_UNITS = {unit: name for unit, name in UNITS.items() if len(unit) > 1 or unit in "sh%€$£₽¥"}
_LETTER = "A-Za-z\u00c0-\u024f\u0400-\u04ff"
_SHAPES = rf"""
    (?P<link>https?://[^\s<>"')\]]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
  | (?P<path>(?<![\w/])(?:~|\.{{1,2}}|[A-Za-z]:)?(?:[/\\][\w.@~-]*[\w~-])+/?
      |(?:[\w-]+[./\\])*[\w-]+\.(?:{_EXTENSIONS})(?![\w]))
  | (?P<date>(?<!\d)\d{{4}}[-/]\d{{1,2}}[-/]\d{{1,2}}(?!\d)|(?<![\d.])\d{{1,2}}([./])\d{{1,2}}\4\d{{4}}(?!\d)
      |\d{{4}}年\d{{1,2}}月\d{{1,2}}日|\d{{1,2}}月\d{{1,2}}日)
  | (?P<version>(?!\d{{1,3}}(?:\.\d{{3}})+(?!\d))[vV]?\d+(?:\.\d+){{2,}}(?!\w)|[vV]\d+(?:\.\d+)+(?!\w))
  | (?P<number>(?P<currency>[$€£¥₽])?(?:(?<![\w.])[-−])?(?<![A-Za-z\d_])
      (?:\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?!\d)
        |\d+(?:[.,]\d+)*(?P<unit>(?i:{_UNITS}|k))?(?P<ordinal>st|nd|rd|th)?)
      (?![{_LETTER}\d_]))
  | (?P<id>(?<![A-Za-z\d])(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[A-Za-z\d]+(?:[-_][A-Za-z\d]+)*(?![A-Za-z\d]))
  | (?P<pair>[{CJK_CLASS}]+)
  | (?P<word>[{_LETTER}\u0370-\u03ff\u0500-\u058f\u0590-\u1fff]+(?:['’][A-Za-z]+)*)
  | (?P<question>[?？]+[!?！？]*)
  | (?P<hard>[.!]+(?=\s|$)|[。！；;]+)
  | (?P<soft>[,，、|{{}}\[\]]|^[-–—]+$)
  | (?P<open>[(（])
  | (?P<close>[)）])
"""
_TOKEN = re.compile(_SHAPES, re.VERBOSE)
_ADVERSATIVE = frozenset({"but", "aber", "sondern", "но"})


_WRAPPED_LINE = 60


def read(text: str) -> list[Token]:
    """Tokenise a text.

    Args:
        text: Any text; it is brought to NFKC.

    Returns:
        Its tokens in order, punctuation left out but told by `sentence` and `segment`.
    """
    reader = _Reader()
    wrapped = False
    for line in normal(text).splitlines():
        if not (wrapped and line[:1].islower()):
            reader.close_sentence()
        for chunk in line.split():
            if len(chunk) <= MAX_CHUNK:
                reader.take(_analysed(chunk))
            else:
                for piece in LONG_CHUNK.findall(chunk):
                    reader.take(_items(piece))
        wrapped = len(line) >= _WRAPPED_LINE
    reader.close_sentence()
    return _with_dates(reader.tokens)


class _Reader:
    """Builds the tokens of one text, sentence by sentence."""

    __slots__ = (
        "_asked",
        "_bare_number",
        "_guessed",
        "_negations",
        "_open",
        "_segment",
        "_sentence",
        "_start",
        "_zeros",
        "tokens",
    )

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self._start = 0
        self._sentence = 0
        self._segment = 0
        self._open = 0
        self._bare_number = False
        self._guessed = False
        self._asked = False
        self._negations: list[_Negation] = []
        self._zeros: list[int] = []

    def take(self, items: tuple[_Item, ...]) -> None:
        """Add what one chunk between spaces holds."""
        for item in items:
            if type(item) is Word:
                if self._bare_number and item.kind is TokenKind.WORD and item.text.casefold() in _SPACED_UNITS:
                    self._give_unit(_SPACED_UNITS[item.text.casefold()])
                    continue
                self.tokens.append(
                    Token(
                        item,
                        self._sentence,
                        self._segment,
                        first=len(self.tokens) == self._start,
                        aside=self._open > 0,
                    )
                )
                self._bare_number = item.kind is TokenKind.NUMBER and not item.unit
                if self._bare_number and item.forms == _ZERO:
                    self._zeros.append(len(self.tokens) - 1)
            else:
                self._bare_number = False
                self._mark(item)  # type: ignore[arg-type]

    def _mark(self, mark: _Mark) -> None:
        here = len(self.tokens)
        match mark:
            case _Mark.HARD:
                self.close_sentence()
            case _Mark.QUESTION:
                self._asked = True
                self._guessed = False  # `might I have` asks for something, it does not guess
                self.close_sentence()
            case _Mark.WHETHER:
                self._asked = True
            case _Mark.HEDGE:
                self._guessed = True
            case _Mark.NEGATION | _Mark.SWITCHED_OFF:
                self._negations.append(_Negation(here, self._segment, mark))
            case _:
                self._segment += 1
                if mark is _Mark.ADVERSATIVE:
                    self._negations.append(_Negation(here, self._segment, mark))
                elif mark is _Mark.OPEN:
                    self._open += 1
                elif mark is _Mark.CLOSE:
                    self._open = max(0, self._open - 1)

    def _give_unit(self, unit: str) -> None:
        number = self.tokens[-1].word
        if number.forms == _ZERO:
            self._zeros.pop()
        self.tokens[-1].word = Word(number.kind, number.text, number.stem, forms=number.forms, unit=unit)
        self._bare_number = False

    def close_sentence(self) -> None:
        """End the sentence and settle its polarity."""
        if self._zeros:
            self._negate_counted()
        if self._negations or self._guessed or self._asked:
            sentence = self.tokens[self._start :]
            if self._negations:
                _set_polarity(sentence, self._negations, self._start)
                self._negations.clear()
            for token in sentence:
                token.guessed = self._guessed
                token.asked = self._asked
            self._guessed = self._asked = False
        self._start = len(self.tokens)
        self._sentence += 1
        self._segment += 1
        self._open = 0
        self._bare_number = False

    def _negate_counted(self) -> None:
        """Zero of something is none of it: `0 errors`, `errors: 0`."""
        for zero in self._zeros:
            beside = [
                token
                for token in self.tokens[max(self._start, zero - 1) : zero + 2]
                if token.segment == self.tokens[zero].segment and token.word.kind is TokenKind.WORD
            ]
            if beside:
                beside[-1].polarity = Polarity.NEGATED
                self.tokens[zero].counts_none = True
        self._zeros.clear()


@lru_cache(maxsize=8192)
def _analysed(chunk: str) -> tuple[_Item, ...]:
    if chunk.isalpha() and chunk.isascii():
        return (_word(chunk),)
    return _items(chunk)


def _items(chunk: str) -> tuple[_Item, ...]:
    found: list[_Item] = []
    for match in _TOKEN.finditer(chunk):
        kind = match.lastgroup
        text = match.group()
        match kind:
            case "word":
                found.append(_word(text))
            case "pair":
                found += _cjk_items(text)
            case "number" | "unit" | "currency" | "ordinal":
                digits = text.removesuffix(match["ordinal"] or "")
                found.append(_number(digits, match["unit"] or "", match["currency"] or ""))
            case "hard" | "soft" | "open" | "close" | "question":
                found.append(_Mark[kind.upper()])
            case "date":
                found.append(Word(TokenKind.DATE, text, text, days=days_of(text)))
            case "path":
                found.append(Word(TokenKind.PATH, text, text.replace("\\", "/").strip("/").casefold()))
            case "version":
                found.append(Word(TokenKind.ID, text, text.lstrip("vV")))
            case _:
                found.append(Word(TokenKind.ID if kind == "id" else TokenKind.LINK, text, text.casefold()))
    return tuple(found)


def _word(text: str) -> _Item:
    folded = text.casefold().replace("’", "'")
    if folded in CONJUNCTIONS:
        return _Mark.ADVERSATIVE if folded in _ADVERSATIVE else _Mark.CONJUNCTION
    if folded in NEGATIONS:
        return _Mark.NEGATION
    if folded in SWITCHED_OFF:
        return _Mark.SWITCHED_OFF
    if folded in HEDGES and text != "May":
        return _Mark.HEDGE
    if folded in WHETHER:
        return _Mark.WHETHER
    if folded in NUMBER_WORDS:
        return _number(str(NUMBER_WORDS[folded]), written=text)
    return Word(TokenKind.WORD, text, stem(folded), forms=name_forms(folded), capital=text[0].isupper())


def _cjk_items(run: str) -> list[_Item]:
    found: list[_Item] = []
    if CJK_HEDGE.search(run):
        found.append(_Mark.HEDGE)
    if CJK_WHETHER.search(run):
        found.append(_Mark.WHETHER)
    at = 0
    for match in CJK_NEGATION.finditer(run):
        found += _paired(run[at : match.start()])
        found.append(_Mark.NEGATION)
        at = match.end()
    return found + _paired(run[at:])


def _paired(run: str) -> list[_Item]:
    return [Word(TokenKind.PAIR, pair, SYNONYM_PAIRS.get(pair, pair)) for pair in pairs(run)] if run else []


def _set_polarity(tokens: list[Token], marks: list[_Negation], start: int) -> None:
    """Negations reach over what follows them in their part of the sentence, or over what precedes where nothing does.

    What follows in later parts of the sentence may be meant as well (`no nuts, no eggs and dairy`), unless a
    `but` begins it.
    """
    segments: dict[int, list[tuple[int, Token]]] = {}
    for place, token in enumerate(tokens, start):
        segments.setdefault(token.segment, []).append((place, token))
    negated_in = {one.segment: one for one in reversed(marks) if one.mark is not _Mark.ADVERSATIVE}
    resets = {one.segment for one in marks if one.mark is _Mark.ADVERSATIVE}
    carried = False
    for segment in sorted({*segments, *negated_in, *resets}):
        carried = carried and segment not in resets
        members = segments.get(segment, [])
        negation = negated_in.get(segment)
        if negation is None:
            if carried:
                for _, token in members:
                    token.polarity = Polarity.EITHER
            continue
        place = negation.place
        after = any(at >= place and not is_stop_word(token.word.text.casefold()) for at, token in members)
        if after and negation.mark is _Mark.SWITCHED_OFF:
            continue
        for at, token in members:
            token.polarity = Polarity.NEGATED if at >= place or not after else Polarity.EITHER
        carried = negation.mark is _Mark.NEGATION


def _number(text: str, unit: str = "", currency: str = "", *, written: str | None = None) -> Word:
    digits = text.removesuffix(unit).removeprefix(currency)
    forms = number_forms(digits)
    if unit in ("k", "K"):
        forms = tuple(canonical(Decimal(form) * 1000) for form in forms if form.replace(".", "", 1).isdecimal())
        unit = ""
    unit = unit or currency
    return Word(
        TokenKind.NUMBER, written or text, digits, forms=forms, unit=UNITS.get(unit) or UNITS.get(unit.casefold(), "")
    )


def _with_dates(tokens: list[Token]) -> list[Token]:
    """Join a month's name with the day and year beside it."""
    months = [
        (at, MONTHS[name])
        for at, token in enumerate(tokens)
        if token.word.kind is TokenKind.WORD and (name := token.word.text.casefold()) in MONTHS
    ]
    for at, month in reversed(months):
        back = 2 if at > 1 and tokens[at - 1].word.text == "of" else 1
        before, after = _small(tokens, at - back), _small(tokens, at + 1)
        day = before or after
        if not day:
            continue
        first, last = (at - back, at) if before else (at, at + 1)
        year = _year(tokens, last + 1)
        if year:
            last += 1
        written = " ".join(token.word.text for token in tokens[first : last + 1])
        token = tokens[at]
        token.word = Word(TokenKind.DATE, written, f"{month}-{day}", days=((year, month, day),))
        tokens[first : last + 1] = [token]
    return tokens


def _small(tokens: list[Token], at: int) -> int | None:
    form = _bare_form(tokens, at)
    return int(form) if form.isdecimal() and 1 <= int(form) <= 31 else None


def _year(tokens: list[Token], at: int) -> int | None:
    form = _bare_form(tokens, at)
    return int(form) if form.isdecimal() and 1900 <= int(form) <= 2200 else None


def _bare_form(tokens: list[Token], at: int) -> str:
    if not 0 <= at < len(tokens):
        return ""
    word = tokens[at].word
    return word.forms[0] if word.kind is TokenKind.NUMBER and not word.unit else ""
