"""How far a passage that was observed shows what a clause claims.

Numbers, dates, ids, paths and names have to be there, with the same unit and beside the same label; words may
be restated, but most of them have to be there too, and what is denied must be denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from otel_agentguard.memory.claims import Clause, Item
from otel_agentguard.memory.lexicon import CJK_DONE, DONE_FORMS, MONTHS
from otel_agentguard.memory.stems import is_stop_word
from otel_agentguard.memory.text import Polarity, Token, TokenKind, Word, read

ENOUGH = 0.75
"""Share of a clause that has to be found where what it says last is not among it."""

ENOUGH_WITH_TAIL = 0.5
"""Share of a clause that has to be found where what it says last is among it."""

ENOUGH_WITH_VALUES = 0.66
"""Share of a clause that has to be found where two of its numbers, dates, ids, paths or names are among it."""

_APPROXIMATION = Decimal("0.05")
_ANSWER = re.compile(
    r"\W*(?:(?:result|answer|value|output)\W+)?"
    r"(?:(?P<yes>true|yes|on|ja|да|是)|false|no|off|nein|нет|否|不是)\W*",
    re.IGNORECASE,
)
_NEARLY_VERBATIM = 2
_BARE = 3
_MOST_BARE = 12
_FAILED = "+failure"
_WENT_WELL = "+success"


class Reading:
    """A passage, ready to be asked what it shows.

    Attributes:
        text: The passage.
        words: Tokens by stem, ids and paths by their folded form, pairs and single characters by themselves.
        names: Tokens by every form under which they may be a name.
        numbers: Tokens by every value that they can have.
        days: Tokens that are dates.
        paths: Folded paths.
        segments: Stems of words by part of a sentence.
        quantities: Values of numbers by part of a sentence, one tuple a number.
        capitals: Capitalised words inside a sentence, by part of a sentence.
        openings: Capitalised words that begin a sentence, likewise.
    """

    __slots__ = (
        "_tokens",
        "capitals",
        "days",
        "names",
        "numbers",
        "openings",
        "paths",
        "quantities",
        "segments",
        "text",
        "words",
    )

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: dict[str, list[Token]] = {}
        self.names: dict[str, list[Token]] = {}
        self.numbers: dict[str, list[Token]] = {}
        self.days: list[Token] = []
        self.paths: list[str] = []
        self.segments: dict[int, set[str]] = {}
        self.quantities: dict[int, list[tuple[str, ...]]] = {}
        self.capitals: dict[int, set[str]] = {}
        self.openings: dict[int, set[str]] = {}
        self._tokens = read(text)
        for token in self._tokens:
            self._take(token)

    def _take(self, token: Token) -> None:
        word = token.word
        kind = word.kind
        if kind is TokenKind.NUMBER:
            self.quantities.setdefault(token.segment, []).append(word.forms)
            for form in word.forms:
                self.numbers.setdefault(form, []).append(token)
            return
        self.words.setdefault(word.stem, []).append(token)
        self.segments.setdefault(token.segment, set()).add(word.stem)
        if kind is TokenKind.WORD:
            for form in word.forms:
                self.names.setdefault(form, []).append(token)
            if word.capital and not is_stop_word(word.text.casefold()):
                where = self.openings if token.first else self.capitals
                where.setdefault(token.segment, set()).add(word.stem)
        elif kind is TokenKind.PAIR:
            for character in word.text:
                self.words.setdefault(character, []).append(token)
        elif kind is TokenKind.DATE:
            self.days.append(token)
            for year, month, day in word.days:
                for part in (year, day):
                    if part is not None:
                        self.numbers.setdefault(str(part), []).append(token)
                self.words.setdefault(f"month {month}", []).append(token)
        elif kind is TokenKind.PATH:
            self.paths.append(word.stem)
        elif kind is TokenKind.ID:
            for digits in _runs_of_digits(word.stem):
                self.numbers.setdefault(digits, []).append(token)

    def is_bare(self, found: int) -> bool:
        """Whether at most three words and values are said, and at least half of them were found."""
        if len(self._tokens) > _MOST_BARE:
            return False
        said = {token.word.stem for token in self._tokens if not is_stop_word(token.word.text.casefold())}
        return len(said) <= _BARE and 2 * found >= len(said)

    @property
    def answer(self) -> Polarity | None:
        """Yes or no, where it says nothing else; None where it says more."""
        said = _ANSWER.fullmatch(self.text)
        if said is None:
            return None
        return Polarity.PLAIN if said["yes"] else Polarity.NEGATED

    def failure_beside(self, token: Token) -> bool:
        """Whether the sentence of a token says that something failed, other than `0 failed`."""
        members = [one for one in self._tokens if one.sentence == token.sentence]
        for at, one in enumerate(members):
            if one.word.stem != _FAILED or one.polarity is Polarity.NEGATED:
                continue
            beside = members[max(0, at - 1) : at] + members[at + 1 : at + 2]
            if not any(other.word.forms == ("0",) for other in beside):
                return True
        return False

    def counts_success(self, number: Token) -> bool:
        """Whether a number stands right beside a word of success: `5 passed`."""
        at = next((at for at, one in enumerate(self._tokens) if one is number), 0)
        return any(one.word.stem == _WENT_WELL for one in self._tokens[max(0, at - 1) : at + 2])

    def tells_done(self, deed: str) -> bool:
        """Whether it says, in the form of something done, that a deed was done."""
        for token in self._tokens:
            done = DONE_FORMS.get(token.word.text.casefold()) == deed
            if done and not token.asked and token.polarity is not Polarity.NEGATED:
                return True
        return any(of == deed and phrase in self.text for phrase, of in CJK_DONE.items())


@dataclass(frozen=True, slots=True)
class Match:
    """How a clause compares with one or more passages.

    Attributes:
        found: Places of the items that were found.
        own: Places of those that the passages themselves show, not only what the call was about.
        opposed: Places of the items that the passages deny, or that deny what they say.
        swapped: Places of the numbers that belong to something else there.
        guessed: All that was found stands in sentences that only guess.
        whole: The passage says little else: a bare answer, whose question the clause may word freely.
    """

    found: frozenset[int]
    own: frozenset[int]
    opposed: frozenset[int] = frozenset()
    swapped: frozenset[int] = frozenset()
    guessed: bool = False
    whole: bool = False

    def joined(self, other: Match) -> Match:
        """Both together: what one passage opposes another may show."""
        found = self.found | other.found
        return Match(
            found,
            self.own | other.own,
            (self.opposed | other.opposed) - found,
            (self.swapped | other.swapped) - found,
            self.guessed or other.guessed,
        )


def match(clause: Clause, reading: Reading, subjects: frozenset[str] = frozenset()) -> Match:
    """Compare a clause with a passage.

    Args:
        clause: What is claimed.
        reading: What was observed.
        subjects: Stems and values that say what the observation was about; they can show of whom or of what
            the clause speaks, not what it says.
    """
    found: set[int] = set()
    own: set[int] = set()
    opposed: set[int] = set()
    swapped: set[int] = set()
    guessed = True
    answer = reading.answer if subjects else None
    for place, item in enumerate(clause.items):
        tokens = _tokens(item, reading)
        if not tokens or (_is_said_twice(clause, place) and len(tokens) < 2):
            if _is_subject(item, subjects, answer) and not _belongs_elsewhere(item, clause, (), reading):
                found.add(place)
                if answer is not None:
                    guessed = False
                    (opposed if answer * item.polarity < 0 else own).add(place)
        elif _is_opposed(item, tokens) or _failed_instead(item, clause, tokens, reading):
            opposed.add(place)
        elif _belongs_elsewhere(item, clause, tokens, reading):
            swapped.add(place)
        else:
            found.add(place)
            own.add(place)
            guessed = guessed and all(token.guessed for token in tokens)
    if _renamed(clause, found, reading):
        found, own = set(), set()
    elif any(_is_denied_alike(clause.items[place], reading) for place in own):
        forgiven = {place for place in opposed if clause.items[place].polarity is Polarity.NEGATED}
        opposed -= forgiven
        found |= forgiven
    return Match(
        frozenset(found),
        frozenset(own),
        frozenset(opposed),
        frozenset(swapped),
        guessed=guessed and bool(own),
        whole=bool(subjects) and reading.is_bare(len(own)),
    )


def shows(clause: Clause, matched: Match, *, strict: bool = False) -> bool:
    """Whether what was found is enough to say that the clause was observed.

    Args:
        clause: What is claimed.
        matched: What was found of it.
        strict: It takes `ENOUGH`, whatever is said last.
    """
    if matched.opposed or matched.swapped or (matched.guessed and not clause.possible) or not matched.own:
        return False
    if any(item.hard and place not in matched.found for place, item in enumerate(clause.items)):
        return False
    share = coverage(clause, matched)
    tail = next(place for place, item in enumerate(clause.items) if item.tail)
    shown = tail in matched.own
    if share >= ENOUGH:
        return shown or clause.items[tail].word.kind is not TokenKind.PAIR
    hard = sum(clause.items[place].hard for place in matched.own)
    if matched.whole and hard and not strict:
        return True
    if strict or share < ENOUGH_WITH_TAIL:
        return False
    if shown:
        return bool(hard) or len(matched.own) > 1 or clause.items[tail].word.stem in (_WENT_WELL, _FAILED)
    if share >= ENOUGH_WITH_VALUES and hard > 1:
        return True
    return bool(hard) and sum(not item.weak for item in clause.items) <= 2


def coverage(clause: Clause, matched: Match) -> float:
    """Share of a clause that was found, 0 to 1; a pair of characters counts by the characters that it covers."""
    total = got = 0.0
    before: Word | None = None
    before_found = False
    for place, item in enumerate(clause.items):
        hit = place in matched.found
        if item.weak and not hit:
            continue
        if item.word.kind is not TokenKind.PAIR:
            total += 1
            got += hit
            before = None
            continue
        goes_on = before is not None and before.text[-1] == item.word.text[0]
        total += 0.5 if goes_on else 0.5 * len(item.word.text)
        if hit:
            got += 0.5 if goes_on and before_found else 0.5 * len(item.word.text)
        before, before_found = item.word, hit
    return min(1.0, got / total) if total else 0.0


def missing(clause: Clause, matched: Match) -> list[str]:
    """Numbers, dates, ids, paths and names of a clause that were not found, as written."""
    return [
        item.word.text
        for place, item in enumerate(clause.items)
        if item.hard and place not in matched.found and place not in matched.opposed and place not in matched.swapped
    ]


def _tokens(item: Item, reading: Reading) -> Sequence[Token]:
    word = item.word
    match word.kind:
        case TokenKind.NUMBER:
            return _numbers(item, reading)
        case TokenKind.DATE:
            return [token for token in reading.days if _same_day(word, token.word)]
        case TokenKind.PATH:
            return _paths(word.stem, reading)
        case TokenKind.WORD if item.name:
            return _first(reading.names.get(form) for form in word.forms)
        case TokenKind.WORD:
            month = MONTHS.get(word.text.casefold())
            return reading.words.get(word.stem) or reading.words.get(f"month {month}") or ()
        case _:
            return reading.words.get(word.stem) or ()


def _first(found: Iterable[list[Token] | None]) -> Sequence[Token]:
    return next((tokens for tokens in found if tokens), ())


def _numbers(item: Item, reading: Reading) -> Sequence[Token]:
    unit = item.word.unit
    same = [token for form in item.word.forms for token in reading.numbers.get(form, ())]
    if item.approximate and not same:
        same = [token for form, tokens in reading.numbers.items() if _close(form, item.word.forms) for token in tokens]
    return [token for token in same if not unit or not token.word.unit or token.word.unit == unit]


def _close(form: str, wanted: tuple[str, ...]) -> bool:
    try:
        value = Decimal(form)
        return any(abs(value - Decimal(other)) <= abs(Decimal(other)) * _APPROXIMATION for other in wanted)
    except InvalidOperation:
        return False


def _same_day(one: Word, other: Word) -> bool:
    return any(
        (month, day) == (other_month, other_day) and (year is None or other_year is None or year == other_year)
        for year, month, day in one.days
        for other_year, other_month, other_day in other.days
    )


def _paths(wanted: str, reading: Reading) -> Sequence[Token]:
    if (exact := reading.words.get(wanted)) is not None:
        return exact
    for path in reading.paths:
        if path.endswith("/" + wanted) or wanted.endswith("/" + path):
            return reading.words[path]
    return ()


def _is_opposed(item: Item, tokens: Sequence[Token]) -> bool:
    return all(token.polarity * item.polarity < 0 for token in tokens)


def _is_denied_alike(item: Item, reading: Reading) -> bool:
    """Claim and passage deny the same word; what the denial is about may stand elsewhere in the sentence."""
    if item.polarity is not Polarity.NEGATED:
        return False
    return any(token.polarity is Polarity.NEGATED for token in _tokens(item, reading))


def _is_said_twice(clause: Clause, place: int) -> bool:
    """`3 of 3`: the same number right after itself is another number that happens to be equal."""
    if place == 0 or clause.items[place].word.kind is not TokenKind.NUMBER:
        return False
    return clause.items[place - 1].word.forms == clause.items[place].word.forms


def _is_subject(item: Item, subjects: frozenset[str], answer: Polarity | None) -> bool:
    """Whether the call was about it; a bare yes or no answers what the call asked, so that is said as well."""
    if (item.tail and answer is None) or item.word.kind is TokenKind.DATE or not subjects:
        return False
    wanted = item.word.stem
    if wanted in subjects or any(form in subjects for form in item.word.forms):
        return True
    return item.word.kind is TokenKind.PATH and any(
        subject.endswith("/" + wanted) or wanted.endswith("/" + subject) for subject in subjects if subject
    )


def _failed_instead(item: Item, clause: Clause, tokens: Sequence[Token], reading: Reading) -> bool:
    """The claim says that all went well, and the observation, in the same breath, that something failed."""
    if item.word.stem != _WENT_WELL or item.polarity is Polarity.NEGATED:
        return False
    if _FAILED in clause.labels:
        return False
    if not all(reading.failure_beside(token) for token in tokens):
        return False
    counted = [
        token for other in clause.items if other.word.kind is TokenKind.NUMBER for token in _numbers(other, reading)
    ]
    return not any(reading.counts_success(token) for token in counted)


def _belongs_elsewhere(item: Item, clause: Clause, tokens: Sequence[Token], reading: Reading) -> bool:
    """The number is there, but another number stands beside more of what the claim names."""
    if item.word.kind is not TokenKind.NUMBER:
        return False
    claimed = {form for other in clause.items for form in other.word.forms if other.word.kind is TokenKind.NUMBER}
    beside: set[str] = set()
    for segment in {token.segment for token in tokens}:
        words = reading.segments.get(segment)
        if not words:
            return False
        labels = words & clause.labels
        beside = labels if len(labels) >= len(beside) else beside
    return any(
        words & clause.labels > beside and not any(form in claimed for forms in quantities for form in forms)
        for segment, words in reading.segments.items()
        if (quantities := reading.quantities.get(segment))
    )


def _renamed(clause: Clause, found: set[int], reading: Reading) -> bool:
    """All but the capitalised first word is there, and beside it a name that the claim does not have."""
    opening = next((place for place, item in enumerate(clause.items) if item.opening), None)
    if opening is None or opening in found or len(found) != len(clause.items) - 1:
        return False
    claimed = {item.word.stem for item in clause.items}
    segments = {token.segment for place in found for token in _tokens(clause.items[place], reading)}
    names = {name for segment in segments for name in reading.capitals.get(segment, ())}
    if len(found) >= _NEARLY_VERBATIM:
        names |= {name for segment in segments for name in reading.openings.get(segment, ())}
    return bool(names - claimed)


def _runs_of_digits(text: str) -> list[str]:
    runs, run = [], ""
    for character in text + " ":
        if character.isdecimal():
            run += character
        elif run:
            runs.append(run.lstrip("0") or "0")
            run = ""
    return runs
