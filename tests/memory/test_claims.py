from __future__ import annotations

import pytest

from otel_agentguard.memory import read_claim


def test_a_claim_is_read_into_numbers_dates_ids_paths_and_names() -> None:
    claim = read_claim("Order ORD-44 of Alice cost 30.50 EUR on 2026-05-12, see src/bill.py")

    assert claim.numbers == ("30.50",)
    assert claim.dates == ("2026-05-12",)
    assert claim.ids == ("ORD-44",)
    assert claim.paths == ("src/bill.py",)
    assert claim.names == ("Alice",)


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("the coder has no edit tool", ("edit", "tool")),
        ("Der Kunde braucht keine Erstattung", ("Erstattung",)),
        ("клиент не ест мясо", ("ест", "мясо")),
        ("用户不吃肉", ("吃肉",)),
        ("0 errors, 3 warnings", ("errors",)),
        ("dark mode: off", ("dark", "mode")),
        ("I don't eat meat but I love tomatoes", ("eat", "meat")),
    ],
)
def test_what_a_claim_denies_is_known(text: str, denied: tuple[str, ...]) -> None:
    assert read_claim(text).denied == denied


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it will rain", ("will",)),
        ("Will likes rain", ()),
        ("the meeting is on 5 May", ()),
        ("es könnte regnen", ("könnte",)),
        ("Der Kunde will eine Erstattung", ()),
        ("возможно, пойдёт дождь", ("возможно",)),
        ("可能下雨", ("可能",)),
        ("it rains", ()),
    ],
)
def test_words_of_guessing_are_told_from_names_and_months(text: str, words: tuple[str, ...]) -> None:
    assert read_claim(text).guess == words


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("the user lives in the city", "en"),
        ("der Nutzer wohnt in der Stadt", "de"),
        ("он живёт в городе", "ru"),
        ("用户住在城里", "zh"),
        ("42", ""),
    ],
)
def test_the_language_of_a_claim_is_known_where_it_tells(text: str, language: str) -> None:
    assert read_claim(text).language == language


def test_data_is_read_leaf_by_leaf_and_a_boolean_is_a_statement_about_its_key() -> None:
    claim = read_claim({"city": "Köln", "smoker": False, "age": 34, "note": None})

    assert claim.numbers == ("34",)
    assert claim.names == ("Köln",)
    assert claim.denied == ("smoker",)


def test_a_claim_of_any_size_and_depth_is_read_in_part() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]

    assert read_claim(deep).text == "x"
    assert len(read_claim("word 1. " * 100_000).clauses) <= 64
