"""Text as the memory gate reads it: tokens with their kind, stem, sentence part and polarity.

The same reading serves what was claimed and what was observed. It is made for English, German, Russian
and Chinese and degrades to plain words elsewhere.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal, InvalidOperation
from enum import IntEnum, StrEnum
from functools import lru_cache

from otel_agentguard.memory.lexicon import (
    CJK_NEGATION,
    CONJUNCTIONS,
    FAILURE,
    MEANINGS,
    MONTHS,
    NEGATIONS,
    NUMBER_WORDS,
    STOP_WORDS,
    SUCCESS,
    UNITS,
)


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


Day = tuple[int | None, int, int]
"""Year where it is known, month, day."""


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
    """

    __slots__ = ("aside", "first", "polarity", "segment", "sentence", "word")

    def __init__(self, word: Word, sentence: int, segment: int, *, first: bool, aside: bool) -> None:
        self.word = word
        self.sentence = sentence
        self.segment = segment
        self.first = first
        self.aside = aside
        self.polarity = Polarity.PLAIN

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


_Item = Word | _Mark

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
CJK_RUN = re.compile(f"[{_CJK}]+")
_CYRILLIC = re.compile("[\u0400-\u04ff]")
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
        |\d+(?:[.,]\d+)*(?P<unit>{_UNITS}|[kK])?)
      (?![{_LETTER}\d_]))
  | (?P<id>(?<![A-Za-z\d])(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[A-Za-z\d]+(?:[-_][A-Za-z\d]+)*(?![A-Za-z\d]))
  | (?P<pair>[{_CJK}]+)
  | (?P<word>[{_LETTER}\u0370-\u03ff\u0500-\u058f\u0590-\u1fff]+(?:['’][A-Za-z]+)*)
  | (?P<hard>[.!?]+(?=\s|$)|[。！？；;]+)
  | (?P<soft>[,，、|{{}}\[\]]|^[-–—]+$)
  | (?P<open>[(（])
  | (?P<close>[)）])
"""
_TOKEN = re.compile(_SHAPES, re.VERBOSE)
_INDEXED = re.compile(rf"[{_CJK}]+|[^\W_]+(?:['’][^\W_]+)?|\d[\d.,]*\d", re.UNICODE)
_MAX_CHUNK = 48
KEY_BITS = 44
_KEY_MASK = (1 << KEY_BITS) - 1
_QUOTED = re.compile(rf"[-−]?\d+(?:[.,:]\d+)*|[{_CJK}]|[^\W\d_]+(?:['’][^\W\d_]+)*|[%$€£₽¥]")
_ADVERSATIVE = frozenset({"but", "aber", "sondern", "но"})
_ALL_STOP_WORDS = frozenset().union(*STOP_WORDS.values())


_LONG_CHUNK = re.compile(r"[^,;{}\[\]]+|[,;{}\[\]]+")
_WRAPPED_LINE = 60


def normal(text: str) -> str:
    """A text in compatibility form (NFKC), so that full-width digits and ligatures read as usual."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


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
            if len(chunk) <= _MAX_CHUNK:
                reader.take(_analysed(chunk))
            else:
                for piece in _LONG_CHUNK.findall(chunk):
                    reader.take(_items(piece))
        wrapped = len(line) >= _WRAPPED_LINE
    reader.close_sentence()
    return _with_dates(reader.tokens)


class _Reader:
    """Builds the tokens of one text, sentence by sentence."""

    __slots__ = ("_bare_number", "_negations", "_open", "_segment", "_sentence", "_start", "tokens")

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self._start = 0
        self._sentence = 0
        self._segment = 0
        self._open = 0
        self._bare_number = False
        self._negations: list[tuple[int, int, bool]] = []

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
            else:
                self._bare_number = False
                self._mark(item)  # type: ignore[arg-type]

    def _mark(self, mark: _Mark) -> None:
        if mark is _Mark.HARD:
            self.close_sentence()
            return
        if mark is _Mark.NEGATION:
            self._negations.append((len(self.tokens), self._segment, False))
            return
        self._segment += 1
        if mark is _Mark.ADVERSATIVE:
            self._negations.append((len(self.tokens), self._segment, True))
        elif mark is _Mark.OPEN:
            self._open += 1
        elif mark is _Mark.CLOSE:
            self._open = max(0, self._open - 1)

    def _give_unit(self, unit: str) -> None:
        number = self.tokens[-1].word
        self.tokens[-1].word = Word(number.kind, number.text, number.stem, forms=number.forms, unit=unit)
        self._bare_number = False

    def close_sentence(self) -> None:
        """End the sentence and settle its polarity."""
        if self._negations:
            _set_polarity(self.tokens[self._start :], self._negations, self._start)
            self._negations.clear()
        self._start = len(self.tokens)
        self._sentence += 1
        self._segment += 1
        self._open = 0
        self._bare_number = False


@lru_cache(maxsize=8192)
def _analysed(chunk: str) -> tuple[_Item, ...]:
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
            case "number" | "unit" | "currency":
                found.append(_number(text, match["unit"] or "", match["currency"] or ""))
            case "hard" | "soft" | "open" | "close":
                found.append(_Mark[kind.upper()])
            case "date":
                found.append(Word(TokenKind.DATE, text, text, days=_days(text)))
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
    if folded in NUMBER_WORDS:
        return _number(str(NUMBER_WORDS[folded]), written=text)
    return Word(TokenKind.WORD, text, stem(folded), forms=name_forms(folded), capital=text[0].isupper())


def _cjk_items(run: str) -> list[_Item]:
    found: list[_Item] = []
    at = 0
    for match in CJK_NEGATION.finditer(run):
        found += _paired(run[at : match.start()])
        found.append(_Mark.NEGATION)
        at = match.end()
    return found + _paired(run[at:])


def _paired(run: str) -> list[_Item]:
    return [Word(TokenKind.PAIR, pair, MEANINGS.get(pair, pair)) for pair in pairs(run)] if run else []


def _set_polarity(tokens: list[Token], marks: list[tuple[int, int, bool]], start: int) -> None:
    """Negations reach over what follows them in their part of the sentence, or over what precedes where nothing does.

    What follows in later parts of the sentence may be meant as well (`no nuts, no eggs and dairy`), unless a
    `but` begins it.
    """
    segments: dict[int, list[tuple[int, Token]]] = {}
    for place, token in enumerate(tokens, start):
        segments.setdefault(token.segment, []).append((place, token))
    negated_in = {segment: place for place, segment, reset in reversed(marks) if not reset}
    resets = {segment for _, segment, reset in marks if reset}
    carried = False
    for segment in sorted({*segments, *negated_in, *resets}):
        if segment in resets:
            carried = False
        members = segments.get(segment, [])
        if segment in negated_in:
            place = negated_in[segment]
            after = any(at >= place and token.word.text.casefold() not in _ALL_STOP_WORDS for at, token in members)
            for at, token in members:
                token.polarity = Polarity.NEGATED if at >= place or not after else Polarity.EITHER
            carried = True
        elif carried:
            for _, token in members:
                token.polarity = Polarity.EITHER


def pairs(run: str) -> list[str]:
    """A run of characters without spaces as overlapping pairs; a single one stays."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def _number(text: str, unit: str = "", currency: str = "", *, written: str | None = None) -> Word:
    digits = text.removesuffix(unit).removeprefix(currency)
    forms = number_forms(digits)
    if unit in ("k", "K"):
        forms = tuple(_canonical(Decimal(form) * 1000) for form in forms if form.replace(".", "", 1).isdigit())
        unit = ""
    unit = unit or currency
    return Word(
        TokenKind.NUMBER, written or text, digits, forms=forms, unit=UNITS.get(unit) or UNITS.get(unit.casefold(), "")
    )


@lru_cache(maxsize=4096)
def number_forms(text: str) -> tuple[str, ...]:
    """The values that a written number can have, as canonical decimals.

    `1,000` is a thousand or one, `0.20` is `0.2`, `1.2.3` is a version and only equal to itself.
    """
    text = text.replace("−", "-")
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if ":" in digits:
        return (digits.removeprefix("0"),)
    marks = [char for char in digits if char in ".,"]
    if not marks:
        return (_canonical(Decimal(sign + digits)),)
    groups = re.split("[.,]", digits)
    grouped = groups[0] not in ("", "0") and len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    found = []
    if len(set(marks)) == 2:
        found.append("".join(groups[:-1]) + "." + groups[-1])
    else:
        if len(marks) == 1:
            found.append(groups[0] + "." + groups[1])
        if grouped:
            found.append("".join(groups))
    try:
        return tuple(_canonical(Decimal(sign + value)) for value in found) or (digits,)
    except InvalidOperation:
        return (digits,)


def _canonical(value: Decimal) -> str:
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _days(text: str) -> tuple[Day, ...]:
    parts = [int(part) for part in re.findall(r"\d+", text)]
    if len(parts) == 2:
        return ((None, *parts),) if _is_day(*parts) else ()
    if len(parts[0:1]) and parts[0] > 31:
        year, first, second = parts
    else:
        first, second, year = parts
        return tuple((year, month, day) for month, day in {(second, first), (first, second)} if _is_day(month, day))
    return ((year, first, second),) if _is_day(first, second) else ()


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= 31


def _with_dates(tokens: list[Token]) -> list[Token]:
    """Join a month's name with the day and year beside it."""
    months = [
        (at, MONTHS[name])
        for at, token in enumerate(tokens)
        if token.word.kind is TokenKind.WORD and (name := token.word.text.casefold()) in MONTHS
    ]
    for at, month in reversed(months):
        before, after = _small(tokens, at - 1), _small(tokens, at + 1)
        day = before or after
        if not day:
            continue
        first, last = (at - 1, at) if before else (at, at + 1)
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
    return int(form) if form.isdigit() and 1 <= int(form) <= 31 else None


def _year(tokens: list[Token], at: int) -> int | None:
    form = _bare_form(tokens, at)
    return int(form) if form.isdigit() and 1900 <= int(form) <= 2200 else None


def _bare_form(tokens: list[Token], at: int) -> str:
    if not 0 <= at < len(tokens):
        return ""
    word = tokens[at].word
    return word.forms[0] if word.kind is TokenKind.NUMBER and not word.unit else ""


_LATIN_ENDINGS = ("ing", "ed", "es", "er", "en", "em", "ly", "s", "e", "n")
_RUSSIAN_ENDINGS = tuple(
    sorted(
        """
        иями ями ами ией ого его ому ему ыми ими ешь ишь ете ите ться тся ует уют
        ый ий ой ая яя ое ее ые ие ую юю ым им ом ем ей ою ею ах ях ов ев ам ям ью ия ие ию
        ет ут ют ат ят ит ть ла ло ли ил ел ал а я о е ы и у ю ь й л
        """.split(),
        key=len,
        reverse=True,
    )
)
_RUSSIAN_NOUN_ENDINGS = tuple(
    sorted("ами ями ого ому ой ей ою ею ом ем ым ах ях ов ев ам ям ия ие ию ии ую ая а я о е ы и у ю ь й".split(), key=len)
)[::-1]
_TRANSLITERATION = str.maketrans(
    {
        "а": "a", "б": "b", "в": "v", "г": "g", "д": "d", "е": "e", "ё": "e", "ж": "zh", "з": "z", "и": "i", "й": "y",
        "к": "k", "л": "l", "м": "m", "н": "n", "о": "o", "п": "p", "р": "r", "с": "s", "т": "t", "у": "u", "ф": "f",
        "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "", "ы": "y", "ь": "", "э": "e", "ю": "yu", "я": "ya",
    }
)  # fmt: skip


@lru_cache(maxsize=16_384)
def stem(folded: str) -> str:
    """A word without its endings; equal for most inflections of one word.

    Words that restate one another have one stem, as have those that say that something went well, or failed.
    """
    if folded in MEANINGS:
        return MEANINGS[folded]
    if folded in SUCCESS:
        return "+success"
    if folded in FAILURE:
        return "+failure"
    if _CYRILLIC.search(folded):
        bare = _without(folded.replace("ё", "е"), _RUSSIAN_ENDINGS, least=2)
        return _without(bare, _RUSSIAN_ENDINGS, least=3)
    if len(folded) > 7:
        folded = folded.removesuffix("t")
    folded = folded.removesuffix("'s").removesuffix("'")
    while len(folded) > 3:
        shorter = _without(folded, _LATIN_ENDINGS, least=3)
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


@lru_cache(maxsize=16_384)
def name_forms(folded: str) -> tuple[str, ...]:
    """The forms under which a name is looked for: without case endings, and in Latin letters."""
    if _CYRILLIC.search(folded):
        bare = _without(folded.replace("ё", "е"), _RUSSIAN_NOUN_ENDINGS, least=2)
        return (bare, bare.translate(_TRANSLITERATION), folded.translate(_TRANSLITERATION))
    bare = folded.removesuffix("'s").removesuffix("'")
    return (bare, bare[:-1]) if len(bare) > 3 and bare.endswith("s") else (bare,)


def index_keys(text: str) -> set[int]:
    """What a text is found by, as hashes of `KEY_BITS` bits that hold within this process.

    Hashed are stems, numbers, pairs of characters, and names in Latin letters.
    """
    keys: set[int] = set()
    for chunk in set(normal(text).split()):
        if len(chunk) <= _MAX_CHUNK:
            keys.update(_chunk_keys(chunk))
        else:
            for piece in _LONG_CHUNK.findall(chunk):
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
        if word[0].isdigit():
            keys.update(_numeric_keys(word))
        elif CJK_RUN.match(word):
            keys.update(MEANINGS.get(pair, pair) for pair in pairs(word))
        else:
            keys.add(stem(word))
            if not word.isascii():
                keys.update(name_forms(word))
    return keys


@lru_cache(maxsize=16_384)
def _numeric_keys(word: str) -> tuple[str, ...]:
    if word.isdigit():
        return number_forms(word)
    if re.fullmatch(r"\d[\d.,]*\d", word):
        return (*number_forms(word), *(part.lstrip("0") or "0" for part in re.findall(r"\d+", word)))
    digits = re.match(r"\d+", word)
    return (word, digits.group().lstrip("0") or "0") if digits else (word,)


def quotable(text: str) -> str:
    """A text as it is compared with a quote: its words, numbers and currency signs, folded, one space between."""
    return " ".join(_QUOTED.findall(normal(text).casefold().replace("’", "'").replace("−", "-")))


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


def is_stop_word(folded: str, of: str) -> bool:
    """Whether a word has no content of its own in a language; in all of them where `of` is empty."""
    return folded in (STOP_WORDS[of] if of in STOP_WORDS else _ALL_STOP_WORDS)
