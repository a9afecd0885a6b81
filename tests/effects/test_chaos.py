"""Workers killed at random: whatever happens, no effect goes uncounted."""

from __future__ import annotations

from pathlib import Path

import pytest
from effect_chaos import Report, rage

from otel_agentguard.effects.ledger import State

POLICIES = ["block", "retry", "verify"]


def check(report: Report, url: str, policy: str, keys: int) -> None:
    assert sum(report.states.values()) == keys
    if policy == "block":
        assert report.repeated == 0
        assert set(report.states) <= {State.SUCCEEDED, State.UNKNOWN}
        assert report.states[State.SUCCEEDED] <= len(report.effects) <= keys
        return
    assert report.states == {State.SUCCEEDED: keys}
    assert len(report.effects) == keys
    assert report.uncounted == 0
    if policy == "verify" and url.startswith("sqlite"):
        assert report.repeated == 0
        assert not any(report.possible.values())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_few_random_kills_break_no_promise(url: str, policy: str, tmp_path: Path) -> None:
    report = rage(url, policy, tmp_path, keys=30, kills=6, seed=7)

    check(report, url, policy, 30)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_random_kills_break_no_promise(url: str, policy: str, tmp_path: Path, seed: int) -> None:
    report = rage(url, policy, tmp_path, keys=300, kills=60, seed=seed)

    check(report, url, policy, 300)
