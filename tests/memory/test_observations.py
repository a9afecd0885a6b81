from __future__ import annotations

import pytest

from otel_agentguard.errors import ConfigError
from otel_agentguard.memory.observations import MAX_TEXT, Observations
from otel_agentguard.memory.passages import index_keys, quotable
from otel_agentguard.memory.shelves import EVIDENCE, Producer


def steps(observations: Observations, text: str) -> list[int]:
    return [hit.observation.step for hit in observations.search(index_keys(text), EVIDENCE)]


def test_a_text_is_found_by_its_words() -> None:
    observations = Observations()
    observations.add(1, Producer.TOOL, "the port is 8080")
    observations.add(2, Producer.TOOL, "the lamp is broken")

    assert steps(observations, "broken lamps") == [2]


def test_a_text_that_came_after_the_first_search_is_found_too() -> None:
    observations = Observations()
    observations.search([], EVIDENCE)
    observations.add(1, Producer.TOOL, "the lamp is broken")

    assert steps(observations, "lamp") == [1]


def test_only_the_producers_asked_for_are_searched() -> None:
    observations = Observations()
    observations.add(1, Producer.USER, "the lamp")
    observations.add(2, Producer.TOOL, "the lamp")

    found = observations.search(index_keys("lamp"), {Producer.USER})

    assert [hit.observation.step for hit in found] == [1]


def test_the_oldest_are_dropped_and_that_is_said() -> None:
    observations = Observations(max_bytes=64 * 1024)
    for number in range(1, 200):
        observations.add(number, Producer.TOOL, f"entry{number} " * 100)

    assert observations.dropped > 0
    assert observations.at(1) is None
    assert observations.at(199) is not None
    assert observations.lost(EVIDENCE)
    assert not observations.lost({Producer.USER})


def test_what_users_said_is_not_pushed_out_by_results_of_tools() -> None:
    observations = Observations(max_bytes=64 * 1024)
    observations.add(1, Producer.USER, "the lamp is broken")
    for number in range(2, 400):
        observations.add(number, Producer.TOOL, f"entry{number} " * 100)

    assert steps(observations, "lamp") == [1]


def test_a_store_stays_bounded_however_long_the_run_is() -> None:
    limit = 128 * 1024
    observations = Observations(max_bytes=limit)
    observations.search([], EVIDENCE)
    for number in range(1, 3000):
        observations.add(number, Producer.TOOL, " ".join(f"word{number * 7 + place}" for place in range(60)))
        observations.recalled(f"memory {number}", number)

    assert observations.held_bytes < 5 * limit
    assert len(observations._by_step) < 1000


def test_head_and_end_of_a_very_long_text_are_kept() -> None:
    observations = Observations()
    observations.add(1, Producer.TOOL, "firstword " + "middle " * MAX_TEXT + " lastword")

    kept = observations.at(1)

    assert kept is not None
    assert kept.cut
    assert kept.contains(quotable("firstword"))
    assert kept.contains(quotable("lastword"))
    assert observations.lost(EVIDENCE)


def test_a_quote_that_goes_over_the_bound_of_two_passages_is_found() -> None:
    observations = Observations()
    text = " ".join(f"word{number}" for number in range(3000))
    observations.add(1, Producer.TOOL, text)

    kept = observations.at(1)

    assert kept is not None
    assert all(
        kept.contains(quotable(f"word{number} word{number + 1} word{number + 2}")) for number in range(0, 2900, 7)
    )
    assert not kept.contains(quotable("word5 word7"))


def test_who_made_a_step_is_known_for_the_latest_steps_only() -> None:
    observations = Observations()
    for number in range(1, 200_000):
        observations.note(number, Producer.AGENT)

    assert observations.producer_of(199_999) is Producer.AGENT
    assert observations.producer_of(1) is None
    assert observations.producer_of(200_001) is Producer.NONE


@pytest.mark.parametrize("text", ["", "  \n ", "\x00", "\ud800", "😀" * 100, "a" * 100_000])
def test_any_text_can_be_observed(text: str) -> None:
    observations = Observations()
    observations.add(1, Producer.TOOL, text)

    observations.search(index_keys("anything"), EVIDENCE)


def test_a_quote_is_compared_by_words_numbers_and_currency() -> None:
    assert quotable('It costs  "$30.50", sir!') == "it costs $ 30.50 sir"


def test_a_limit_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="the least is 4096"):
        Observations(max_bytes=0)
