"""What one call says: its texts, made once a step, and what its answer owes to the question."""

from __future__ import annotations

import string

from otel_agentguard import text
from otel_agentguard.events import ToolCall
from otel_agentguard.stopwords import STOP_WORDS

LEFT_OUT = "\0"
"""Stands where an answer held a text of the arguments."""

NEW_SHARE = 3 / 20
"""Share of new words up to which an answer adds nothing: a statement takes three, and a sentence has about twenty."""

_MIN_CHARS = 3
_ECHO_WORDS = 8
_ECHO_TIMES = 4
_ECHO_CHARS = 4000


class Texts:
    """The texts of one call that is over; what takes long is made when it is first asked for.

    Args:
        call: The call, with its result.

    Attributes:
        answer: The text of the result, its ends where it is long.
        strings: The texts among the arguments.
    """

    __slots__ = ("_bare", "_echoes", "_masked", "answer", "strings")

    def __init__(self, call: ToolCall) -> None:
        self.answer = "" if call.result is None else text.text_of(call.result)
        self.strings = [value for value in (call.arguments or {}).values() if isinstance(value, str)]
        self._bare: str | None = None
        self._masked: str | None = None
        self._echoes: bool | None = None

    @property
    def asked(self) -> str:
        """The texts among the arguments, as one."""
        return " ".join(self.strings)

    @property
    def bare(self) -> str:
        """The answer with the arguments taken out; the same object where it holds none."""
        bare = self._bare
        if bare is None:
            bare = self.answer
            for value in self.strings:
                if value in bare and len(value) >= _MIN_CHARS:
                    bare = bare.replace(value, LEFT_OUT)
            self._bare = bare
        return bare

    @property
    def masked(self) -> str:
        """The answer without arguments and numbers."""
        masked = self._masked
        if masked is None:
            masked = self._masked = text.mask(self.bare)
        return masked

    @property
    def echoes(self) -> bool:
        """Whether a longer answer says little but the caller's own words."""
        echoes = self._echoes
        if echoes is None:
            chars = len(self.answer)
            echoes = chars <= _ECHO_TIMES * sum(map(len, self.strings)) and _ECHO_WORDS < chars <= _ECHO_CHARS
            echoes = self._echoes = echoes and _echoes(self.answer, self.asked[:_ECHO_CHARS])
        return echoes


def acknowledges(answer: str) -> bool:
    """Whether an answer says no more than that something was done: it is short, and names and counts nothing."""
    if not answer.strip() or not text.is_short(answer) or text.is_empty_answer(answer):
        return False
    return not text.names(answer.casefold())


def _echoes(content: str, asked: str) -> bool:
    if content.isascii() and (len(content.split(None, _ECHO_WORDS)) < _ECHO_WORDS or _surely_adds(content, asked)):
        return False
    told = text.content_words(content)
    return len(told) >= _ECHO_WORDS and len(told - text.content_words(asked)) <= NEW_SHARE * len(told)


def _surely_adds(content: str, asked: str) -> bool:
    """Whether so many words are not even part of what was asked that it can be no echo; much cheaper than the rest."""
    pieces = content.lower().split()
    allowed = NEW_SHARE * len(pieces)
    said = asked.lower()
    said_words = set(said.split())
    missing: set[str] = set()
    for piece in pieces:
        if piece in said_words:
            continue
        word = piece.strip(string.punctuation)
        if word and word not in said and word not in STOP_WORDS:
            missing.add(word)
            if len(missing) > allowed:
                return True
    return False
