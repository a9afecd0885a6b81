"""What the annotations of a tool suggest that it does to the world."""

from __future__ import annotations

from collections.abc import Mapping

from otel_agentguard.events import Effect


def effect_of_annotations(annotations: Mapping[str, object]) -> Effect:
    """What annotations suggest: a hint, which a declaration or a setting beats.

    Reads `effect` (metadata of a LangChain tool) and the tool annotations of MCP, specification
    2025-06-18: `readOnlyHint`, `openWorldHint`. `idempotentHint` says that a call may be tried again, not
    that its answer may be served again, and `destructiveHint` does not tell a workspace from the world:
    neither makes a class. What contradicts itself is unknown.
    """
    named = annotations.get("effect")
    if isinstance(named, str):
        try:
            return Effect(named)
        except ValueError:
            return Effect.UNKNOWN
    read_only, open_world = annotations.get("readOnlyHint"), annotations.get("openWorldHint")
    if read_only is True:
        return Effect.UNKNOWN if annotations.get("destructiveHint") is True else Effect.READ
    if read_only is False and open_world is True:
        return Effect.SIDE_EFFECT
    if read_only is False and open_world is False:
        return Effect.WRITE
    return Effect.UNKNOWN
