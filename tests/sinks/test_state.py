"""The metrics of the state say what is kept, whoever keeps it, and are 0 again when the runs are over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_agentguard import AgentGuard, Effect, install, run, tool


@pytest.fixture
def guard() -> Iterator[AgentGuard]:
    with install() as guard:
        yield guard


def shown(guard: AgentGuard, name: str, part: str) -> float:
    value = guard.registry.get_sample_value(name, {"part": part})
    assert value is not None
    return value


def test_answers_and_results_kept_for_refusals_are_counted_together(guard: AgentGuard) -> None:
    @tool(effect=Effect.PURE)
    def computed(number: int) -> str:
        return "x" * 10_000

    @tool
    def asked(number: int) -> str:
        return "y" * 20_000

    with run("r"):
        computed(1)
        answers = shown(guard, "agentguard_state_bytes", "values")
        asked(1)
        asked(1)
        both = shown(guard, "agentguard_state_bytes", "values")

    assert 10_000 < answers < 20_000
    assert 30_000 < both < 40_000
    assert shown(guard, "agentguard_state_bytes", "values") == 0


def test_what_a_run_has_no_room_for_is_counted_once(guard: AgentGuard) -> None:
    @tool
    def asked(number: int) -> str:
        return "y" * 60_000

    with run("r"):
        for number in range(20):
            asked(number)
            asked(number)

    dropped = shown(guard, "agentguard_state_dropped_total", "values")
    assert dropped == 3
    assert shown(guard, "agentguard_state_dropped_total", "values") == dropped


def test_observed_text_is_counted_before_and_after_a_memory_is_in_use(guard: AgentGuard) -> None:
    @tool
    def read(number: int) -> str:
        return f"{number} is the number of the house " * 200

    with run("r") as r:
        read(1)
        waiting = shown(guard, "agentguard_state_bytes", "observations")
        r.remember("the house has the number 1", kind="fact")
        read(2)
        observed = shown(guard, "agentguard_state_bytes", "observations")

    assert waiting >= 5_000
    assert observed >= 10_000
    assert shown(guard, "agentguard_state_bytes", "observations") == 0


def test_observations_that_made_room_are_counted_also_when_their_run_is_over(guard: AgentGuard) -> None:
    @tool
    def read(number: int) -> str:
        return f"{number} is the number of the house " * 1_700

    with run("r") as r:
        r.remember("the house has a number", kind="fact")
        for number in range(120):
            read(number)

    assert shown(guard, "agentguard_state_dropped_total", "observations") > 0
