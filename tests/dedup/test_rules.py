"""Which tools may be answered from what is known."""

from __future__ import annotations

import pytest

from otel_agentguard.dedup.rules import Rule, rule_for
from otel_agentguard.events import Effect


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.READ])
def test_only_what_was_declared_to_read_may_be_answered_from_what_is_known(effect: Effect) -> None:
    assert rule_for("t", effect, ttl_s=5) == Rule(tool="t", pure=effect is Effect.PURE, ttl_s=5)
    assert rule_for("t", effect, cache=False) is None


@pytest.mark.parametrize("effect", sorted(set(Effect) - {Effect.PURE, Effect.READ}))
def test_whatever_else_a_tool_does_it_is_never_answered_from_what_is_known(effect: Effect) -> None:
    assert rule_for("t", effect, ttl_s=5) is None
