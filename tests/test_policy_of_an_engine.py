from __future__ import annotations

import pytest

from otel_agentguard import ConfigError, Policy
from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.engine import Engine
from otel_agentguard.findings import Action
from otel_agentguard.testing import tool_call


def _actions(policy: Policy | None, calls: int) -> set[Action]:
    engine = Engine(checks=[LoopCheck()], policy=policy)
    run = engine.open()
    return {engine.observe(run, tool_call("look", result="as before, in every word")).action for _ in range(calls)}


def test_a_policy_may_lower_every_action() -> None:
    assert max(_actions(None, 9)) is Action.STOP
    assert max(_actions(Policy(highest=Action.HINT), 9)) is Action.HINT


@pytest.mark.parametrize("decay", [0, -1, 1.1])
def test_a_decay_that_cannot_be_is_refused(decay: float) -> None:
    with pytest.raises(ConfigError, match=str(decay)):
        Policy(decay=decay)
