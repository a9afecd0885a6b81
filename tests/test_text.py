"""Facts about texts."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.text import (
    TEXT_LIMIT,
    adds_no_words,
    content_words,
    is_echo,
    is_empty_answer,
    is_short,
    mask,
    names,
    same_lines,
    text_of,
    words,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


class Opaque:
    pass


class Told:
    def __repr__(self) -> str:
        return "three rows"


@dataclasses.dataclass
class Row:
    name: str
    size: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is ", "as it is "),
        (b"gr\xc3\xbcn \xff", "grün \ufffd"),
        ({"b": 1, "a": [1, "x"]}, '{ "a": [ 1, "x" ], "b": 1 }'),
        ([], "[]"),
        ({}, "{}"),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ([{"b": 1, "a": 2}, "x"], '{ "a": 2, "b": 1 }\nx'),
        ({1: "a"}, '{ "1": "a" }'),
        (2**80, str(2**80)),
        ({"n": 2**80}, '{"n": 1208925819614629174706176}'),
        (Row("a", 1), '{ "name": "a", "size": 1 }'),
        ({"x", "y"}, '[ "x", "y" ]'),
        (dt.date(2024, 5, 1), "2024-05-01"),
        (ValueError("no such row"), "no such row"),
        (Told(), "three rows"),
    ],
)
def test_the_text_of_a_value_reads_as_a_person_would_write_it(value: object, text: str) -> None:
    assert text_of(value) == text


def test_the_text_of_an_object_never_shows_its_address() -> None:
    assert text_of(Opaque()) == "<Opaque>"
    assert text_of([Opaque(), iter([1])]) == "<Opaque>\n<list_iterator>"


def test_what_refers_to_itself_has_a_text() -> None:
    knot: list[Any] = []
    knot.append({"knot": knot})

    assert text_of(knot) == "<dict>"


@pytest.mark.parametrize("size", [1, 100])
def test_long_lists_and_objects_that_hold_themselves_have_a_text(size: int) -> None:
    knot: list[Any] = [0]
    knot.extend([knot] * size)
    named: dict[str, Any] = {str(number): number for number in range(size)}
    named["self"] = named

    assert text_of(knot)
    assert text_of(named)


@given(JSON, st.integers(min_value=64, max_value=512))
def test_a_text_keeps_to_its_limit(value: Any, limit: int) -> None:
    assert len(text_of([value, "x y" * 400, value], limit)) <= limit
    assert len(text_of("x y" * 400, limit)) <= limit


def test_a_long_text_keeps_its_two_ends() -> None:
    text = text_of("first " + "x " * 20_000 + "last")

    assert text.startswith("first x")
    assert text.endswith("x last")
    assert len(text) <= TEXT_LIMIT


@pytest.mark.parametrize("make", [lambda rows: rows, lambda rows: {"rows": rows}], ids=["list", "dict"])
def test_long_data_keeps_its_two_ends(make: Callable[[Any], Any]) -> None:
    text = text_of(make([f"row {n}" for n in range(10_000)]))

    assert "row 0" in text
    assert "row 9999" in text
    assert len(text) <= TEXT_LIMIT


MASKED = {
    "time": ("done at 10:04:05", "done at 22:14:59.123"),
    "instant": ("2024-05-01T10:00:00Z ready", "2025-11-30T23:59:59.123456+02:00 ready"),
    "date in words": ("Mon Jan 02 15:04:05 2006", "Tue May 12 05:14:00 2024"),
    "date in German": ("am 5. März 2024", "am 12. Mai 2025"),
    "listing": ("-rw-r--r-- 1 root 4096 May 26 10:13 a.txt", "-rw-r--r-- 2 root 12 Jun 3 2023 a.txt"),
    "hexadecimal id": ("request a3f9c2e1 failed", "request 0b12ffcd99 failed"),
    "id of digits and of letters first": ("commit 1234567 is head", "commit abcdef1 is head"),
    "uuid": ("id f47ac10b-58cc-4372-a567-0e02b2c3d479", "id 12345678-abcd-abcd-abcd-123456789012"),
    "address": ("object at 0x7f3a2b1c9d00", "object at 0x55d1"),
    "mixed id": ("req_011CSHoEeqs5C35K2UUqR7Fy", "req_9Zb1kLmNoPq7rStUvWx2"),
    "port": ("listening on 127.0.0.1:8080", "listening on 127.0.0.1:43121"),
    "counter": ("job 9 of 10", "job 10 of 1,000"),
    "duration": ("took 350ms", "took 1h 5m"),
    "long duration": ("3 minutes ago", "2 hours ago"),
    "size": ("wrote 12.5 MB", "wrote 900 KiB"),
    "percentage": ("12% done", "100 % done"),
    "temperature": ("it is 5 °C", "it is -12 °C"),
    "exponent": ("error 1.5e-7", "error 3"),
    "digits of other scripts": ("第１２回", "第3回"),
}


@pytest.mark.parametrize(("one", "other"), MASKED.values(), ids=MASKED.keys())
def test_what_counts_and_identifies_is_masked(one: str, other: str) -> None:
    assert mask(one) == mask(other)


DISTINCT = {
    "words": ("3 files written", "3 files deleted"),
    "word of hexadecimal letters": ("the facade", "the decade"),
    "names around numbers": ("page2", "node2"),
    "failed and passed": ("Failed 3/4", "Passed 3/4"),
    "no number": ("ready", "ready 1"),
}


@pytest.mark.parametrize(("one", "other"), DISTINCT.values(), ids=DISTINCT.keys())
def test_words_are_not_masked(one: str, other: str) -> None:
    assert mask(one) != mask(other)


def test_a_text_without_numbers_is_its_own_mask() -> None:
    assert mask("Mon repos, May be") == "Mon repos, May be"


def test_a_counter_that_grows_by_a_digit_does_not_move_the_ends_of_a_long_text() -> None:
    body = "one line of a log that is long enough to matter\n" * 1000

    assert mask(f"9 lines\n{body}tail 9") == mask(f"10 lines\n{body}tail 10")


ADVERSARIAL = {
    "letters": "a" * 10**6,
    "digits": "1" * 10**6,
    "hexadecimal": "a1" * 500_000,
    "dashes": "1-" * 500_000,
    "units": "1 d" * 333_333,
    "durations": "1h " * 333_333,
    "exponents": "1e" * 500_000,
    "zero x": "0x" * 500_000,
    "months": "Jan " * 250_000,
    "quotes": '"a' * 500_000,
    "open quote": '"' + "x" * 10**6,
    "phrases": "".join(f'"a {n}" ' for n in range(100_000)),
    "slashes": "a/" * 500_000,
    "marks": "-" * 10**6,
    "Han": "漢" * 10**6,
    "lines": "\n" * 10**6,
    "braces": "[" * 10**6,
}
FACTS: list[Callable[[str], object]] = [
    mask,
    text_of,
    words,
    content_words,
    names,
    is_short,
    is_empty_answer,
    lambda text: same_lines(text, text),
    lambda text: adds_no_words(text, text),
    lambda text: is_echo(text, text),
]


@pytest.mark.parametrize("text", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
@pytest.mark.timeout(120)
def test_a_megabyte_made_to_hurt_is_read_to_its_end(text: str) -> None:
    for fact in FACTS:
        fact(text)
        fact(text[:TEXT_LIMIT])


def test_lines_in_another_order_are_the_same_lines() -> None:
    assert same_lines("b\na\nc", "a\nb\nc\n")
    assert not same_lines("a\na\nb", "a\nb\nb")
    assert not same_lines("a b", "b a")


def test_items_of_a_list_in_another_order_are_the_same_lines() -> None:
    rows = [{"host": "a", "state": "up"}, {"host": "b", "state": "down"}]
    swapped = [{"host": "a", "state": "down"}, {"host": "b", "state": "up"}]

    assert same_lines(text_of(rows), text_of(rows[::-1]))
    assert not same_lines(text_of(rows), text_of(swapped))


def test_words_stand_between_white_space() -> None:
    assert words("a b\tc\nA a, b") == {"a", "b", "c", "A", "a,"}
    assert words("") == frozenset()


def test_scripts_without_spaces_give_pairs_of_characters() -> None:
    assert words("文件不存在") == {"文件", "件不", "不存", "存在"}
    assert words("file 文件 ok") == {"file", "文件", "ok"}
    assert words("雨") == {"雨"}
    assert len(words("ファイルが見つかりません")) > 5
    assert words("파일이 없습니다") == {"파일이", "없습니다"}


def test_content_words_carry_the_subject() -> None:
    assert content_words("The file is NOT in the folder, please look again!") == {"file", "folder", "look"} - {"look"}
    assert content_words("Die Datei ist leider nicht im Ordner.") == {"datei", "ordner"}
    assert content_words("I don\u2019t know \u201cParis\u201d") == {"paris"}


def test_names_are_numbers_paths_identifiers_quotes_and_capitalised_words() -> None:
    text = (
        "We found 3 errors in src/app.py near load_config and parseArgs.\n"
        'Then Alice ran `git status` on example.com, saw "no luck" and HTTP said so.'
    )

    assert names(text) == {
        "3",
        "src/app.py",
        "load_config",
        "parseArgs",
        "Alice",
        "git status",
        "example.com",
        "no luck",
        "HTTP",
    }


def test_the_first_word_of_a_sentence_or_line_is_no_name() -> None:
    assert names("Tests passed. Everything fine! Next:\nDone") == frozenset()


def test_an_answer_of_known_words_adds_none() -> None:
    earlier = "The server api-1 is running and answers all requests within the limit of the service"

    assert adds_no_words("The server api-1 is running and answers requests within the limit", earlier)
    assert adds_no_words(earlier, earlier)


def test_a_new_name_or_many_new_words_are_something_new() -> None:
    earlier = "The server api-1 is running and answers all requests within the limit of the service"

    assert not adds_no_words("The server api-2 is running and answers all requests within the limit", earlier)
    assert not adds_no_words("The disk of the server has failed, nobody knows since when", earlier)
    assert not adds_no_words('The server is running and answers all requests of "the app"', earlier)


def test_a_name_that_opened_a_sentence_before_is_known() -> None:
    assert adds_no_words("then we met Alice in the garden", "Alice met us. then we were in the garden")


def test_nothing_after_something_is_a_change() -> None:
    assert not adds_no_words("", "three rows")
    assert adds_no_words(" ", "")


def test_an_answer_of_the_callers_own_words_is_an_echo() -> None:
    assert is_echo("Buy milk!", '{ "text": "buy milk tomorrow" }')
    assert is_echo("hello", """python -c "print('hello')" """)
    assert not is_echo("Saved note: buy milk", '{ "text": "buy milk" }')
    assert not is_echo("", "anything")
    assert not is_echo("it is not", "something else")


@pytest.mark.parametrize(
    "text", ["", " \n", "ok", "[]", "{}", "null", "0 results", "Message sent successfully.", "✓ 已成功写入"]
)
def test_short_answers_can_be_acknowledgements(text: str) -> None:
    assert is_short(text)


@pytest.mark.parametrize(
    "text",
    [
        "the file was written to disk",
        "x" * 49,
        "the build has failed with an error",
        "文件已经成功写入到磁盘并且通知了所有的用户",
    ],
)
def test_longer_answers_are_not(text: str) -> None:
    assert not is_short(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "[]",
        "{}",
        "null",
        "None",
        '{"results": [], "total": 0, "ok": true}',
        "0 results",
        "Found 0 matching files.",
        "No results found for 'agentguard'.",
        "There are no open issues",
        "No matches",
        "Nothing to commit",
        "(no output)",
        "<empty>",
        "Keine Treffer",
        "没有找到结果",
    ],
)
def test_an_empty_answer_is_known_by_its_form(text: str) -> None:
    assert is_empty_answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "false",
        "10 results",
        "0 errors, 3 warnings",
        "No, that is wrong",
        "no\nresults",
        '{"results": [], "error": "rate limited"}',
        '{"total": 0}',
        "[0]",
        "Note: none of the tests ran",
        "None of the tests failed in the second run",
        "Notebook saved",
        "No code block was found in the messages. Please provide one in Markdown so that it can be run.",
    ],
)
def test_answers_that_say_something_are_not_empty(text: str) -> None:
    assert not is_empty_answer(text)


@given(st.text(max_size=200), st.text(max_size=200))
def test_facts_about_any_text_never_fail(one: str, other: str) -> None:
    for fact in FACTS:
        fact(one)
    adds_no_words(one, other)
    is_echo(one, other)
    assert mask(mask(one)) == mask(one)


@given(st.lists(st.text("ab \n", max_size=6), max_size=6), st.randoms(use_true_random=False))
def test_shuffled_lines_are_the_same_lines(lines: list[str], chance: random.Random) -> None:
    lines = [line.replace("\n", " ") + "." for line in lines]

    assert same_lines("\n".join(lines), "\n".join(chance.sample(lines, len(lines))))
