"""What a tool's annotations are taken for, live and in recorded runs alike."""

from __future__ import annotations

import pytest

from otel_agentguard.annotations import effect_of_annotations
from otel_agentguard.events import Effect


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
