"""Suggestions of several agents for one place, merged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.dedup.suggestions import Suggestion, merge_suggestions
from otel_agentguard.errors import ConfigError

PLACE = "src/auth.py:23"


def are_merged(one: str, other: str, place: str = PLACE, other_place: str = PLACE) -> bool:
    return len(merge_suggestions([Suggestion("a", place, one), Suggestion("b", other_place, other)])) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("use sha256 instead of md5", "Replace md5 with sha256."),
        ("Replace MD5 with SHA-256", "Use SHA-256 instead of MD5 here"),
        ("add a null check for user", "Check user for null before use"),
        ("Handle the case where user is None", "user may be None; handle that case"),
        ("The variable `tmp` is unused; remove it", "remove the unused variable tmp"),
        ("Close the file handle", "the file handle is never closed"),
        ("missing error handling for timeout", "add timeout error handling"),
        ("SQL injection: use parameterized queries", "Use parameterised queries to avoid SQL injection"),
        ("rename foo to fetch_user", "Rename foo to fetch_user for clarity"),
    ],
)
def test_the_same_said_twice_is_one_suggestion(one: str, other: str) -> None:
    assert are_merged(one, other)
    assert are_merged(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("use sha256 instead of md5", "use md5 instead of sha256"),
        ("replace md5 with sha256", "the salt is missing"),
        ("add a null check", "remove the null check"),
        ("set timeout to 30", "set timeout to 60"),
        ("enable caching", "disable caching"),
        ("make it async", "make it sync"),
        ("increase the retry count", "decrease the retry count"),
        ("rename foo to bar", "rename foo to baz"),
        ("do not log the token", "log the token"),
        ("add a docstring", "add a type hint"),
        ("add a test for login", "add a test for logout"),
    ],
)
def test_what_differs_in_what_counts_stays_apart(one: str, other: str) -> None:
    assert not are_merged(one, other)
    assert not are_merged(other, one)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("src/auth.py:23", "./src/auth.py line 23", True),
        ("src/auth.py:23:5", "src/auth.py#L23", True),
        ("src/auth.py:20-25", "src/auth.py:23", True),
        ("src/auth.py, lines 20-25", "src/auth.py:25-30", True),
        ("src/auth.py:23", "src/auth.py:24", False),
        ("src/auth.py", "src/auth.py:23", False),
        ("src/auth.py:23", "lib/auth.py:23", False),
        ("error handling", "error  handling", True),
        ("error handling", "logging", False),
    ],
)
def test_which_places_are_one(one: str, other: str, meet: bool) -> None:
    assert are_merged("close the socket", "close the socket", one, other) is meet


def test_a_merged_suggestion_keeps_every_source_and_the_fullest_text() -> None:
    merged = merge_suggestions(
        [
            Suggestion("security", PLACE, "replace md5"),
            Suggestion("style", "src/auth.py:40", "shorter name"),
            Suggestion("reviewer", PLACE, "replace md5 by sha256"),
            Suggestion("lead", PLACE, "md5 should be replaced", sources=("lead", "intern")),
        ]
    )

    assert merged == [
        Suggestion("security", PLACE, "replace md5 by sha256", ("security", "reviewer", "lead", "intern")),
        Suggestion("style", "src/auth.py:40", "shorter name", ("style",)),
    ]


def test_a_suggestion_names_its_agent_as_its_source() -> None:
    assert Suggestion("coder", PLACE, "x").sources == ("coder",)


def test_nothing_merges_to_nothing() -> None:
    assert merge_suggestions([]) == []


class Meanings:
    """An embedder that knows a few texts."""

    def __init__(self, **vectors: Sequence[float]) -> None:
        self.vectors = vectors

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float] | None]:
        return [self.vectors.get(text.split()[0]) for text in texts]


def test_with_an_embedder_meaning_counts_and_not_words() -> None:
    items = [
        Suggestion("a", PLACE, "hurry up"),
        Suggestion("b", PLACE, "faster please"),
        Suggestion("c", PLACE, "hurrying"),
    ]
    embedder = Meanings(hurry=(1.0, 0.0), faster=(0.95, 0.1), hurrying=(0.0, 1.0))

    merged = merge_suggestions(items, embedder=embedder)

    assert [suggestion.sources for suggestion in merged] == [("a", "b"), ("c",)]


def test_an_embedder_does_not_override_numbers_and_opposites() -> None:
    items = [Suggestion("a", PLACE, "wait 30 s"), Suggestion("b", PLACE, "wait 60 s")]

    assert len(merge_suggestions(items, embedder=Meanings(wait=(1.0, 0.0)))) == 2


def test_where_an_embedder_knows_no_vector_words_are_compared() -> None:
    items = [Suggestion("a", PLACE, "close the socket"), Suggestion("b", PLACE, "the socket: close it")]

    assert len(merge_suggestions(items, embedder=Meanings())) == 1


def test_an_embedder_that_miscounts_is_told() -> None:
    class Short:
        def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            return []

    with pytest.raises(ConfigError, match="0 vectors for 1 texts"):
        merge_suggestions([Suggestion("a", PLACE, "x")], embedder=Short())


def test_a_suggestion_without_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="the place of a suggestion"):
        Suggestion("a", 23, "x")  # type: ignore[arg-type]


suggestions = st.builds(
    Suggestion,
    agent=st.sampled_from("abc"),
    place=st.sampled_from(("a.py:1", "a.py:1-3", "a.py:3", "a.py", "names")),
    text=st.one_of(
        st.text(max_size=40), st.sampled_from(("use x", "use y", "close it", "close the file", "don't close it"))
    ),
)


@given(st.lists(suggestions, max_size=12))
def test_merging_again_changes_nothing_and_loses_nobody(items: list[Suggestion]) -> None:
    merged = merge_suggestions(items)

    assert {source for one in merged for source in one.sources} == {source for one in items for source in one.sources}
    assert len(merge_suggestions(merged)) <= len(merged)
    assert all(one.text in {item.text for item in items} for one in merged)
