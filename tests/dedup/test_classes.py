"""Whose word decides what a tool does."""

from __future__ import annotations

import pytest

from otel_agentguard.dedup.classes import Authority, EffectClass, effect_class, effect_of_annotations
from otel_agentguard.dedup.rules import Rule, rule_for
from otel_agentguard.events import Effect

READS = {"readOnlyHint": True}


def test_a_setting_beats_the_decorator_which_beats_annotations() -> None:
    everything = {"decorator": Effect.WRITE, "annotations": READS, "trusted": True}

    assert effect_class(setting=Effect.PURE, **everything) == EffectClass(Effect.PURE, Authority.SETTING)
    assert effect_class(**everything) == EffectClass(Effect.WRITE, Authority.DECORATOR)
    assert effect_class(annotations=READS, trusted=True) == EffectClass(Effect.READ, Authority.ANNOTATION)


def test_annotations_of_a_server_that_is_not_trusted_count_for_nothing() -> None:
    assert effect_class(annotations=READS) == EffectClass(Effect.UNKNOWN, Authority.NOBODY)


def test_to_say_unknown_is_to_say_nothing() -> None:
    found = effect_class(setting=Effect.UNKNOWN, decorator=Effect.UNKNOWN, annotations=READS, trusted=True)

    assert found.effect is Effect.READ


@pytest.mark.parametrize(
    ("annotations", "effect"),
    [
        ({"readOnlyHint": True}, Effect.READ),
        ({"readOnlyHint": True, "openWorldHint": True}, Effect.READ),
        ({"readOnlyHint": True, "destructiveHint": True}, Effect.UNKNOWN),
        ({"readOnlyHint": False, "openWorldHint": True}, Effect.SIDE_EFFECT),
        ({"readOnlyHint": False, "openWorldHint": False}, Effect.WRITE),
        ({"readOnlyHint": False}, Effect.UNKNOWN),
        ({"idempotentHint": True}, Effect.UNKNOWN),
        ({"destructiveHint": False}, Effect.UNKNOWN),
        ({"readOnlyHint": "true"}, Effect.UNKNOWN),
        ({"effect": "read"}, Effect.READ),
        ({"effect": "magic"}, Effect.UNKNOWN),
        ({}, Effect.UNKNOWN),
    ],
)
def test_what_annotations_suggest(annotations: dict[str, object], effect: Effect) -> None:
    assert effect_of_annotations(annotations) is effect


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.READ])
def test_only_what_was_declared_to_read_may_be_answered_from_what_is_known(effect: Effect) -> None:
    assert rule_for("t", effect, ttl_s=5) == Rule(tool="t", pure=effect is Effect.PURE, ttl_s=5)
    assert rule_for("t", effect, cache=False) is None


def test_a_tool_that_may_be_tried_again_is_not_thereby_one_that_may_be_answered() -> None:
    assert rule_for("t", effect_class(annotations={"idempotentHint": True}, trusted=True).effect) is None
