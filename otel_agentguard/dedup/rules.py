"""What may be done with the answers of a tool, and what a call got."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from otel_agentguard.events import Effect

T = TypeVar("T")


class Source(StrEnum):
    """Where an answer came from, as metrics name it."""

    HIT = "hit"
    COALESCED = "coalesced"
    MISS = "miss"
    INVALIDATED = "invalidated"
    UNCACHEABLE = "uncacheable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What may be done with the answers of one tool; None in its place means nothing.

    Attributes:
        tool: Its name.
        pure: Its answers depend on the arguments alone.
        ttl_s: How long they may be served again, seconds; None for as long as what it touches is unchanged.
    """

    tool: str
    pure: bool
    ttl_s: float | None = None


def rule_for(tool: str, effect: Effect, *, ttl_s: float | None = None, cache: bool | None = None) -> Rule | None:
    """What may be done with the answers of a tool.

    Args:
        tool: Its name.
        effect: What it was declared to do.
        ttl_s: How long answers may be served again, seconds.
        cache: False for never.

    Returns:
        None where its body must always run: it was not declared to only read, or the user does not want it.
    """
    if cache is False or effect not in (Effect.PURE, Effect.READ):
        return None
    return Rule(tool=tool, pure=effect is Effect.PURE, ttl_s=ttl_s)


class NotKept(Exception):
    """Raised by a body whose result is an answer for its own caller only: those who wait for it execute too."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a call gets.

    Attributes:
        value: What the tool returned, now or earlier.
        note: What the model is to be told where the body did not run; empty else.
    """

    value: T
    note: str = ""
