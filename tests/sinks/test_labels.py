from __future__ import annotations

from otel_agentguard.semconv import OTHER
from otel_agentguard.sinks.labels import Names, Pairs


def test_the_first_values_keep_their_place_and_later_ones_are_other() -> None:
    names = Names(2)

    seen = [names.admit(value) for value in ("a", "b", "c", "a", "c")]

    assert seen == ["a", "b", OTHER, "a", OTHER]


def test_a_value_that_is_known_from_the_start_counts_towards_the_cap() -> None:
    names = Names(2, ("a",))

    seen = [names.admit(value) for value in ("b", "c", "a")]

    assert seen == ["b", OTHER, "a"]


def test_a_closed_set_lets_nobody_in() -> None:
    names = Names.closed(("hit", "miss"))

    assert names.admit("hit") == "hit"
    assert names.admit("maybe") == OTHER


def test_a_value_is_cut_to_a_bounded_length() -> None:
    names = Names(10)

    assert names.admit("x" * 1_000_000) == "x" * 120


def test_a_lone_surrogate_becomes_a_character_that_can_be_written() -> None:
    names = Names(10)

    assert names.admit("tool\ud800") == "tool?"


def test_a_pair_beyond_the_cap_is_other_on_both_sides() -> None:
    pairs = Pairs(Names(10), Names(10), cap=2)

    seen = [pairs.admit(*pair) for pair in (("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("a", "y"))]

    assert seen == [("a", "x"), ("a", "y"), (OTHER, OTHER), (OTHER, OTHER), ("a", "y")]


def test_a_known_agent_keeps_its_name_when_only_its_tool_is_beyond_the_cap() -> None:
    pairs = Pairs(Names(10), Names(1), cap=10)

    pairs.admit("a", "x")

    assert pairs.admit("a", "y") == ("a", OTHER)


def test_steps_without_a_tool_take_no_place_among_the_pairs() -> None:
    pairs = Pairs(Names(10), Names(10), cap=1)

    seen = [pairs.admit("a", ""), pairs.admit("b", ""), pairs.admit("a", "x")]

    assert seen == [("a", ""), ("b", ""), ("a", "x")]
