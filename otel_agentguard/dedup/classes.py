"""What a tool does to the world, by the word of whoever knows best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from otel_agentguard.events import Effect


class Authority(IntEnum):
    """Whose word it is, the weakest first."""

    NOBODY = 0
    ANNOTATION = 1
    DECORATOR = 2
    SETTING = 3


@dataclass(frozen=True, slots=True)
class EffectClass:
    """What a tool does, and who says so.

    Attributes:
        effect: What it does.
        authority: Whose word that is.
    """

    effect: Effect = Effect.UNKNOWN
    authority: Authority = Authority.NOBODY


def effect_class(
    *,
    setting: Effect | None = None,
    decorator: Effect | None = None,
    annotations: Mapping[str, object] | None = None,
    trusted: bool = False,
) -> EffectClass:
    """Decide what a tool does: the settings before the declaration before the annotations.

    Args:
        setting: What the user's settings say.
        decorator: What the tool's own declaration says.
        annotations: Hints of an MCP server, or the metadata of a LangChain tool.
        trusted: Whether the user trusts whoever wrote the annotations; else they count for nothing.
    """
    if setting is not None and setting is not Effect.UNKNOWN:
        return EffectClass(setting, Authority.SETTING)
    if decorator is not None and decorator is not Effect.UNKNOWN:
        return EffectClass(decorator, Authority.DECORATOR)
    if trusted and annotations:
        hinted = effect_of_annotations(annotations)
        if hinted is not Effect.UNKNOWN:
            return EffectClass(hinted, Authority.ANNOTATION)
    return EffectClass()


def effect_of_annotations(annotations: Mapping[str, object]) -> Effect:
    """What annotations suggest.

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
