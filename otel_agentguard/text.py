"""Facts about texts: what they say apart from numbers, which words and names, whether they say anything.

All functions are pure, and linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice, pairwise
from typing import Any

import orjson

from otel_agentguard.shown import shown
from otel_agentguard.stopwords import STOP_WORDS

TEXT_LIMIT = 16_384
"""Characters of a text that are looked at: the first and the last half of them."""

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~“”„‚’‘«»‹›…–—·•。、，．！？；：「」『』（）【】《》"
"""Signs that may stand at either end of a word without being part of it."""

_MIN_SHARED_WORDS = 0.7
_SHORT_CHARS = 16
_SHORT_UNSPACED_CHARS = 8
_SHORT_WORDS = 3
_SHORT_WORDS_CHARS = 48
_SEVERAL_UNSPACED_CHARS = 6
_EMPTY_ANSWER_CHARS = 160
_EMPTY_ANSWER_WORDS = 12
_HEX_ID_CHARS = 7
_MIXED_ID_CHARS = 16
_EDGE_CHARS = 512
_MANY_ITEMS = 64
_LOOKED_AT = 4

_DUMP = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2

# Scripts that put no space between words: kana, Han, Thai, Lao, Burmese, Khmer.
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
_HIRAGANA = re.compile("[\u3041-\u309f]+")

_UNIT = (
    r"(?:\s?(?:%|°[CF]?|(?:ms|µs|us|ns|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|weeks?"
    r"|[kKMGT]i?[bB]|B|bytes|[ap]\.?m|[AP]M|UTC|GMT)\b))"
)
# A pattern that begins with one plain digit class is searched at 3 ns a character; `\d+` costs five times that.
_NUMBER = re.compile(rf"[0-9](?:x[0-9a-fA-F]++|(?:[-+.,:/T_ ]?[0-9]++|[eE][-+]?[0-9]++|{_UNIT})*+(?:Z\b)?+)")
_DIGIT = re.compile("[0-9]")
_DIGITS = "0-9٠-٩۰-۹०-९０-９"
_DIGIT_ANY_SCRIPT = re.compile(f"[{_DIGITS}]")
_NUMBER_ANY_SCRIPT = re.compile(_NUMBER.pattern.replace("0-9", _DIGITS))
# Months and days of English and German, before a number; the first letters make the search fast.
_MONTH_NAME = (
    r"(?:J(?:an(?:uary?)?|un[ei]?|ul[yi]?)|Feb(?:ruary?)?|M(?:ar(?:ch)?|är(?:z)?|a[yi])|A(?:pr(?:il)?|ug(?:ust)?)"
    r"|S(?:ept?(?:ember)?|at(?:urday)?|un(?:day)?)|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?|Mon(?:day)?"
    r"|T(?:ue(?:s(?:day)?)?|hu(?:rs(?:day)?)?)|Wed(?:nesday)?|Fri(?:day)?)[.,]? "
)
_MONTH = re.compile(rf"{_MONTH_NAME}(?:{_MONTH_NAME})?(?=#)")
_AFTER_MONTH = re.compile(
    "#(?<=(?:Jan|Feb|Mar|Mär|ärz|Apr|Ma[iy]|Ju[nl]|Aug|Sep|O[ck]t|Nov|De[cz]|Mon|Tue|Wed|Thu|Fri|Sat|Sun"
    "|ary|uar|rch|ril|une|uly|uni|uli|ust|ept|ber|day|[A-Za-zä][a-zä][.,]) #)"
)
# The first digit of a run that can be part of an id: hexadecimal of 7 characters, a UUID, or mixed letters and
# digits. What precedes it is looked at afterwards, so that the search only ever stops at digits.
_MAYBE_ID = re.compile(
    r"[0-9](?<![0-9].)(?:(?<=[a-fA-F]{3}.)|(?=[0-9a-fA-F]{4})(?:(?<=[a-fA-F].)|[0-9]*+[a-fA-F])"
    r"|(?=[0-9A-Za-z]{6})[0-9]*+[A-SU-Za-z][A-Za-z]*+[0-9]|[0-9]{7}-[0-9a-fA-F]{4}-)"
)
_WORD_RUN = re.compile(r"[0-9A-Za-z]+")
_HEX_RUN = re.compile(r"[0-9a-fA-F]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")

_PIECE = re.compile(r"\n|[^\s\"'`()\[\]{}<>,;=|“”„«»「」]+")
_CAMEL = re.compile(r"[a-z][A-Z]")
_QUOTED = re.compile(
    r"\"([^\"\n]{1,120})\"|`([^`\n]{1,120})`|[“„]([^“”„\n]{1,120})[“”]|«([^«»\n]{1,120})»|「([^「」\n]{1,120})」"
)
_SENTENCE_ENDS = (".", "!", "?", ":", "。", "！", "？")

_NO_CONTENT = STOP_WORDS | {""}
_NOTHING = frozenset({"", "[]", "{}", "()", "null", "none", "nil", '""', "''", "set()", "n/a", "undefined"})
_SAYS_NOTHING = re.compile(
    r"(?:(?:there (?:are|is|were|was)|found|got|returned) )?no\s+[^\W\d]|nothing\b|kein(?:e[nr]?)?\s+[^\W\d]|nichts\b"
    r"|(?:none|empty)(?:\s+\w+){0,2}\W*$|(?:aucune?|nessuna?|nenhuma?|ning[uú]na?)\s+[^\W\d]|sin\s+resultados"
    r"|没有|沒有|无|無|未找到|未能找到|找不到|暂无|暫無|查无|查無|見つかりません|なし"
    r"|.*(?:見つかり|見当たり|あり|存在し)ませ(?:ん|んでした)[。.]?$",
    re.IGNORECASE,
)
_COUNTS_NOTHING = re.compile(
    r"(?:(?:there (?:are|is|were|was)|found|got|returned) )?(?:0|zero)\s+[^\W\d][^1-9]*$", re.IGNORECASE
)


def text_of(value: object, limit: int = TEXT_LIMIT) -> str:
    """The text of a result, at most `limit` characters.

    Text stays as it is, bytes are decoded, data is written as JSON with sorted keys and spaces between its
    parts, a list as one line for each item. Of a longer text the first and the last half remain, each cut at
    white space.
    """
    if isinstance(value, str):
        return value if len(value) <= limit else _ends(value, limit)
    if isinstance(value, (bytes, bytearray)):
        if len(value) > 8 * limit:  # a character has at most four bytes
            value = b"\n".join((value[: 4 * limit], value[-4 * limit :]))
        return _ends(value.decode("utf-8", "replace"), limit)
    if isinstance(value, (list, tuple)) and value:
        return _ends(_listing(value, limit), limit)
    return _ends(_dumped(value, limit), limit)


def mask(text: str) -> str:
    """The text with everything that counts or identifies replaced by `#`.

    Times, dates, ids, addresses, ports, counters, durations, sizes, percentages and all other numbers go.
    Of a text over 16,384 characters only the first and last 8,192 count.
    """
    text = _ends(text, TEXT_LIMIT)
    digit, number = (_DIGIT, _NUMBER) if text.isascii() else (_DIGIT_ANY_SCRIPT, _NUMBER_ANY_SCRIPT)
    if not digit.search(text):
        return text
    masked = number.sub("#", _mask_ids(text))
    if _AFTER_MONTH.search(masked):
        masked = _MONTH.sub("", masked)
    return masked.replace(" -#", " #")


def same_lines(a: str, b: str) -> bool:
    """Whether two texts are equal but for the order of their lines."""
    lines, others = a.splitlines(), b.splitlines()
    return len(lines) == len(others) and sorted(lines) == sorted(others)


def words(text: str) -> frozenset[str]:
    """The words of a text: what stands between white space.

    Chinese, Japanese, Thai and other scripts without spaces give pairs of characters instead.
    """
    return frozenset(_split(text))


def is_unspaced(text: str) -> bool:
    """Whether a text has several words in a script without spaces: six letters of it or more."""
    return not text.isascii() and sum(map(len, _UNSPACED.findall(text))) >= _SEVERAL_UNSPACED_CHARS


def content_words(text: str) -> frozenset[str]:
    """The words that carry a subject: folded to one case, without punctuation, stop words and particles."""
    found = set(_split(_folded(without_particles(text)))) - STOP_WORDS
    return frozenset([word.strip(PUNCTUATION) for word in found]) - _NO_CONTENT


def without_particles(text: str) -> str:
    """A Japanese text without hiragana, in which particles and endings are written.

    Any other text is unchanged, and so is one that has nothing else.
    """
    if text.isascii():
        return text
    rest = _HIRAGANA.sub(" ", text)
    return rest if rest.strip(f"{PUNCTUATION} ") else text


def names(text: str) -> frozenset[str]:
    """What a text names: numbers, paths, identifiers, quoted strings, capitalised words inside sentences."""
    found = quoted(text)
    sentence_begins = True
    for piece in _PIECE.findall(text):
        if piece.islower() and piece.isalpha():
            sentence_begins = False
            continue
        word = piece.strip(PUNCTUATION)
        if word and _is_name(word, sentence_begins):
            found.add(word)
        if word or piece == "\n":
            sentence_begins = piece == "\n" or piece.endswith(_SENTENCE_ENDS)
    return frozenset(found)


def parts(text: str) -> frozenset[str]:
    """What stands between white space, quotes and brackets."""
    return frozenset([piece.strip(PUNCTUATION) for piece in _PIECE.findall(text)])


def pieces(text: str) -> frozenset[str]:
    """What names of another text are looked up in: the parts between white space, quotes and brackets, and quotes."""
    return parts(text) | quoted(text)


def quoted(text: str) -> set[str]:
    """What stands between quotes in a text."""
    return {part for groups in _QUOTED.findall(text) for part in groups if part}


def adds_no_words(text: str, earlier: str) -> bool:
    """Whether an answer says nothing that an earlier one did not.

    True when at least 70 % of its words stand in the earlier one, and every name in it too. An empty answer after
    one that was not is a change.
    """
    said = words(text)
    if not said:
        return not earlier.strip()
    if len(said & words(earlier)) < _MIN_SHARED_WORDS * len(said):
        return False
    return names(text) <= pieces(earlier)


def is_echo(result_text: str, argument_text: str) -> bool:
    """Whether a result is made only of the caller's own words."""
    said = frozenset(_stripped(" ".join(_PIECE.findall(result_text))))
    content = said - STOP_WORDS or said
    return bool(content) and content <= frozenset(_stripped(" ".join(_PIECE.findall(argument_text))))


def is_short(text: str) -> bool:
    """Whether an answer is so short that it can be a mere acknowledgement: 16 characters, or three words.

    In a script that writes words without spaces three words are 8 characters.
    """
    text = text.strip()
    if len(text) <= _SHORT_CHARS:
        return len(text) <= _SHORT_UNSPACED_CHARS or not is_unspaced(text)
    return len(text) <= _SHORT_WORDS_CHARS and len(words(text)) <= _SHORT_WORDS


def is_empty_answer(text: str) -> bool:
    """Whether an answer, by its form, says that there is nothing: `[]`, `0 results`, `No matches found`."""
    text = text.strip()
    if len(text) > _EMPTY_ANSWER_CHARS or "\n" in text or len(text.split()) > _EMPTY_ANSWER_WORDS:
        return False
    if text.lower() in _NOTHING:
        return True
    if text[0] in "[{" and _holds_nothing(text):
        return True
    text = text.strip("()[]<>*_ ")
    return bool(_SAYS_NOTHING.match(text) or _COUNTS_NOTHING.match(text))


def _ends(text: str, limit: int) -> str:
    """The first and the last half of a long text.

    Both are cut at a line, else at a word: a cut at a fixed place would move through the text as soon as a number
    before it gets one digit more.
    """
    if len(text) <= limit:
        return text
    half = max(1, limit // 2)
    head, tail = text[: half - 1], text[-half:]
    for mark in "\n ":
        if (edge := head.rfind(mark, -_EDGE_CHARS)) > 0:
            head = head[:edge]
            break
    for mark in "\n ":
        if (edge := tail.find(mark, 0, _EDGE_CHARS)) >= 0:
            tail = tail[edge + 1 :]
            break
    return f"{head}\n{tail}"


def _listing(items: Any, limit: int) -> str:
    """One line for each item, of which only as many are written as the ends of the text hold."""
    head: list[str] = []
    size = 0
    for item in items:
        head.append(_dumped(item, limit))
        size += len(head[-1]) + 1
        if size > limit:
            break
    else:
        return "\n".join(head)
    tail: list[str] = []
    size = 0
    for item in reversed(items[len(head) :]):
        tail.append(_dumped(item, limit))
        size += len(tail[-1]) + 1
        if size > limit:
            break
    return "\n".join(head + tail[::-1])


def _dumped(value: object, limit: int) -> str:
    with suppress(Exception):  # it holds itself, or a key has no text; orjson says so
        value = _pruned(value, limit)
    try:
        data = orjson.dumps(value, _as_data, _DUMP)
    except TypeError:  # a large integer, a lone surrogate, or nothing that JSON could hold
        try:
            return json.dumps(value, default=_as_data, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            return f"<{type(value).__qualname__}>"
    if data[:1] == b'"':
        return str(orjson.loads(data))
    if len(data) > 2 * limit:  # white space is slow to fold, and only the ends are asked for
        data = b" ".join((data[:limit], data[-limit:]))
    return " ".join(data.decode("utf-8", "ignore").split())


def _holds_many(value: Any) -> bool:
    """Whether data has a long list or object near its top, as large data all but always has."""
    pending = [value]
    for node in islice(pending, _LOOKED_AT):
        if len(node) > _MANY_ITEMS:
            return True
        pending += [part for part in (node.values() if type(node) is dict else node) if type(part) in (dict, list)]
    return False


def _pruned(value: Any, room: int) -> Any:
    """Data without the middle of its long lists and objects: written out, its ends of `room` bytes are the same."""
    if type(value) not in (dict, list) or not _holds_many(value):
        return value
    if type(value) is list:
        head, tail = _ends_of(value, room)
        return head + tail
    keys = sorted(value, key=str)
    head, tail = _ends_of([value[key] for key in keys], room)
    return dict([*zip(keys, head, strict=False), *zip(keys[len(keys) - len(tail) :], tail, strict=True)])


def _ends_of(items: list[Any], room: int) -> tuple[list[Any], list[Any]]:
    head = _first_of(items, room)
    tail = _first_of(items[: len(head) - 1 : -1], room)
    return head, tail[::-1]


def _first_of(items: list[Any], room: int) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        pruned = _pruned(item, room)
        kept.append(pruned)
        room -= _bytes_of(pruned)
        if room < 0:
            break
    return kept


def _bytes_of(value: object) -> int:
    try:
        return len(orjson.dumps(value, _as_data, _DUMP & ~orjson.OPT_INDENT_2))
    except TypeError:
        return 1


def _as_data(value: Any) -> object:
    if callable(dump := getattr(type(value), "model_dump", None)):
        return dump(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=shown)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return dict(value)
    cls: Any = type(value)
    if (cls.__str__, cls.__repr__) == (object.__str__, object.__repr__) or isinstance(value, Iterator):
        return f"<{cls.__qualname__}>"  # its own text would hold its address
    return shown(value)


def _mask_ids(text: str) -> str:
    """The text with hexadecimal and other mixed ids replaced by `#`."""
    kept: list[str] = []
    written = place = 0
    while candidate := _MAYBE_ID.search(text, place):
        start = candidate.start()
        while start > written and text[start - 1].isascii() and text[start - 1].isalnum():
            start -= 1
        run = _WORD_RUN.match(text, start)
        end = run.end() if run else candidate.end()
        if uuid := _UUID.match(text, start):
            end = uuid.end()
        elif not _is_id(text[start:end]):
            place = max(end, candidate.end())
            continue
        kept += (text[written:start], "#")
        written = place = end
    return "".join((*kept, text[written:])) if kept else text


def _is_id(run: str) -> bool:
    if len(run) >= _MIXED_ID_CHARS:
        return not run.isdecimal() and not run.isalpha()
    return len(run) >= _HEX_ID_CHARS and _HEX_RUN.fullmatch(run) is not None


def _split(text: str) -> list[str]:
    if text.isascii() or not _UNSPACED.search(text):
        return text.split()
    found = _UNSPACED.sub(" ", text).split()
    for run in _UNSPACED.findall(text):
        found += [run] if len(run) == 1 else map("".join, pairwise(run))
    return found


def _stripped(text: str) -> Iterable[str]:
    return filter(None, (word.strip(PUNCTUATION) for word in _split(_folded(text))))


def _folded(text: str) -> str:
    return text.casefold().replace("\u2019", "'")


def _is_name(word: str, sentence_begins: bool) -> bool:
    if word.isalpha():
        if word.isupper() and len(word) > 1:
            return word.isascii()
        return _CAMEL.search(word) is not None or (not sentence_begins and len(word) > 1 and word[0].isupper())
    return (
        any(map(str.isdigit, word))
        or any(mark in word for mark in "_/\\.@:")
        or _CAMEL.search(word) is not None
        or (not sentence_begins and word[0].isupper() and len(word) > 3)
    )


def _holds_nothing(text: str) -> bool:
    """Whether JSON holds an empty list or object, and besides only zeros, nulls and booleans."""
    try:
        pending = [orjson.loads(text)]
    except ValueError:
        return False
    empty = False
    for node in pending:
        if isinstance(node, (dict, list)):
            pending += node.values() if isinstance(node, dict) else node
            empty = empty or not node
        elif node and node is not True:
            return False
    return empty
