"""Which calls may have written what, told to the generations."""

from __future__ import annotations

from collections import OrderedDict

from otel_agentguard.dedup.cache import working_directory
from otel_agentguard.dedup.generations import Generations, Key
from otel_agentguard.dedup.resources import Resources
from otel_agentguard.events import NOT_EXECUTED, UNKNOWN_EFFECT, Effect, ToolCall
from otel_agentguard.reading import only_reads

_MAX_BEGUN = 1_024
_QUIET = frozenset({Effect.PURE, Effect.READ, Effect.WAIT, Effect.CURSOR})
_SCOPED = frozenset({Effect.WRITE, Effect.SIDE_EFFECT})


class Writes:
    """The writing calls of a process, from their beginning to their end. Thread safe.

    Args:
        generations: Where writes are counted.
        resources: Resolves what calls touch.
    """

    def __init__(self, generations: Generations, resources: Resources) -> None:
        self._generations = generations
        self._resources = resources
        self._begun: OrderedDict[int, tuple[ToolCall, int, tuple[Key, ...] | None]] = OrderedDict()

    def began(self, call: ToolCall, *, dry: bool) -> None:
        """The body of a call is about to run.

        Args:
            call: The call.
            dry: Whether the table of reading commands tells what a call of unknown effect does.
        """
        keys, writes = self._written(call, dry=dry)
        if not writes:
            return
        while len(self._begun) >= _MAX_BEGUN:
            _, (_, token, left) = self._begun.popitem(last=False)
            self._generations.end(token, left)
        self._begun[id(call)] = call, self._generations.begin(keys), keys

    def ended(self, call: ToolCall, *, dry: bool) -> None:
        """A call is over, whether its beginning was told or not, and however it ended."""
        if self._end(id(call)) or call.refused or call.served_from is not None:
            return
        if call.outcome is NOT_EXECUTED:
            return
        keys, writes = self._written(call, dry=dry)
        if writes:
            self._generations.wrote(keys)

    def _written(self, call: ToolCall, *, dry: bool) -> tuple[tuple[Key, ...] | None, bool]:
        """What a call may write, None for anything; and whether it may write at all."""
        effect = call.effect
        if effect in _QUIET or (effect is UNKNOWN_EFFECT and dry and only_reads(call)):
            return None, False
        if effect in _SCOPED and call.touches:
            folder = working_directory()
            if folder is not None:
                return self._resources.keys(call.touches, folder), True
        return None, True

    def _end(self, identity: int) -> bool:
        begun = self._begun.pop(identity, None)
        if begun is None:
            return False
        _, token, keys = begun
        self._generations.end(token, keys)
        return True
