"""What each call of a run came to last, over the whole run: a few bytes a call."""

from __future__ import annotations

from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from otel_agentguard.packed import PackedMap, PackedSet, first_32_bits

_MAX_CALLS = 2048
_MAX_OUTCOMES = 1024
_MAX_AGENTS = 64
_AGENT_BITS = 14
_STEP_BITS = 21
_COUNT_BITS = 4
_OUTCOME_BITS = 24
_AGENT_MASK = (1 << _AGENT_BITS) - 1
_LAST_STEP = (1 << _STEP_BITS) - 1
_MAX_COUNT = (1 << _COUNT_BITS) - 1
_COUNT_AT = _AGENT_BITS + _STEP_BITS
_ONCE = 1 << _COUNT_AT
_DOUBT_AT = _COUNT_AT + _COUNT_BITS
_COUNT_MASK = _MAX_COUNT << _COUNT_AT | 1 << _DOUBT_AT
_OUTCOME_AT = _DOUBT_AT + 1
_OUTCOME_MASK = (1 << _OUTCOME_BITS) - 1
_SPREAD = 0x9E3779B97F4A7C15
_64_BITS = (1 << 64) - 1


@dataclass(slots=True, eq=False)
class Before:
    """The latest time of a call before this one.

    Attributes:
        step: Its step, 2,097,151 at most.
        who: Identity of the agent that made it, of `Past.who`.
        count: How often the call had come to that outcome in a row, at most 15.
        doubted: Something that may have changed it came in between.
        same: It came to the same outcome as this time.
        known: This outcome is one that the call had at any time before.
    """

    step: int
    who: int
    count: int
    doubted: bool
    same: bool
    known: bool


class Past:
    """The latest outcome of every call, and the outcomes that calls had before.

    One number a call holds, from its low end: 14 bits of who made it, its step, how often it came to its outcome,
    whether that is in doubt, and 24 bits of the outcome. Outcomes before the latest are in a set of their own.
    """

    __slots__ = ("_agents", "_latest", "_outcomes")

    def __init__(self) -> None:
        self._latest = PackedMap(_MAX_CALLS, wide=True)
        self._outcomes = PackedSet(_MAX_OUTCOMES)
        self._agents: dict[str, int] = {}

    def take(self, key: int, digest: bytes, agent: str, step: int) -> Before | None:
        """Note a call with its outcome.

        Args:
            key: 64-bit identity of the call.
            digest: Identity of the outcome.
            agent: Who made it.
            step: Its step.

        Returns:
            The time before; None for the first time.
        """
        who = self._agents.get(agent)
        if who is None:
            who = self.who(agent)
        outcome = first_32_bits(digest)[0] & _OUTCOME_MASK
        held = outcome << _OUTCOME_AT | _ONCE | (step if step < _LAST_STEP else _LAST_STEP) << _AGENT_BITS | who
        earlier = self._latest.put(key, held)
        if earlier is None:
            return None
        latest = earlier >> _OUTCOME_AT
        known = same = latest == outcome
        if not same:
            self._outcomes.add(_together(key, latest))
            known = _together(key, outcome) in self._outcomes
        return Before(
            step=earlier >> _AGENT_BITS & _LAST_STEP,
            who=earlier & _AGENT_MASK,
            count=earlier >> _COUNT_AT & _MAX_COUNT,
            doubted=bool(earlier >> _DOUBT_AT & 1),
            same=same,
            known=known,
        )

    def note_count(self, key: int, count: int, *, doubted: bool) -> None:
        """Note how often the call that was just taken has come to its outcome in a row."""
        held = self._latest.get(key)
        if held is not None:
            count = min(count, _MAX_COUNT)
            self._latest.put(key, held & ~_COUNT_MASK | doubted << _DOUBT_AT | count << _COUNT_AT)

    def who(self, agent: str) -> int:
        """Identity of an agent: 14 bits."""
        who = self._agents.get(agent)
        if who is None:
            if len(self._agents) >= _MAX_AGENTS:
                self._agents.clear()
            who = self._agents[agent] = xxh3_64_intdigest(agent.encode("utf-8", "surrogatepass")) & _AGENT_MASK
        return who

    @property
    def size_bytes(self) -> int:
        """Bytes that the tables take."""
        return self._latest.size_bytes + self._outcomes.size_bytes


def _together(key: int, outcome: int) -> int:
    """64 bits that tell a call with an outcome from others."""
    return (key ^ outcome * _SPREAD) & _64_BITS
