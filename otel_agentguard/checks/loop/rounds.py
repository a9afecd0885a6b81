"""Rounds: whether the latest events repeat with some period, kept incrementally.

For each period p one counter says for how many events in a row event[i] == event[i-p] has held; the
first step of round n is reached when it has held for (n - 2) * p + 1 events.
"""

from __future__ import annotations

from dataclasses import dataclass

from xxhash import xxh3_128_digest

LONGEST_PERIOD = 16
_MAX_EVENTS = 4 * LONGEST_PERIOD

_Event = tuple[bytes, bytes, str, int]
"""Key, outcome, agent and step; all but the step make it the same event."""


@dataclass(frozen=True, slots=True)
class Round:
    """The repetition that the latest event belongs to.

    Attributes:
        period: Events in one round, 2 to 16.
        number: Which round this event belongs to; 3 is the third.
        agents: The agents that take part.
        evidence: The steps of the latest three rounds at most, this event included.
        signature: 16 bytes, the same wherever in the round one looks.
    """

    period: int
    number: int
    agents: frozenset[str]
    evidence: tuple[int, ...]
    signature: bytes


class Rounds:
    """Finds repetition in one stream of events; state of fixed size."""

    __slots__ = ("_events", "_excused", "_held", "_idle")

    def __init__(self) -> None:
        self._events: list[_Event] = []
        self._held = [0] * (LONGEST_PERIOD + 1)
        self._idle = True
        self._excused = False

    def push(self, key: bytes, outcome: bytes, agent: str, step: int, *, known: bool) -> None:
        """Take in the next event.

        Args:
            key: Identity of the event.
            outcome: Identity of what it came to.
            agent: Whose event it is.
            step: Its step.
            known: Whether it may have come to this outcome before; False saves the comparison.
        """
        events = self._events
        if known:
            held = self._held
            for period, (then, came_to, who, _) in enumerate(events[: -LONGEST_PERIOD - 1 : -1], 1):
                held[period] = held[period] + 1 if then == key and came_to == outcome and who == agent else 0
            self._idle = False
        elif not self._idle:
            self._held = [0] * (LONGEST_PERIOD + 1)
            self._idle = True
            self._excused = False
        events.append((key, outcome, agent, step))
        if len(events) >= _MAX_EVENTS:
            del events[:LONGEST_PERIOD]

    def clear(self) -> None:
        """Forget everything: what comes next begins the first round."""
        self._events.clear()
        self._held = [0] * (LONGEST_PERIOD + 1)
        self._idle = True
        self._excused = False

    def excuse(self) -> None:
        """Let the next round not count, once in a repetition."""
        if not self._excused:
            self._held = [max(0, held - period) for period, held in enumerate(self._held)]
            self._excused = True

    def current(self) -> Round | None:
        """The repetition with the shortest period that is in its second round or later."""
        if self._idle:
            return None
        for period in range(2, LONGEST_PERIOD + 1):
            if self._held[period] and self._held[1] < period:
                return self._round(period, (self._held[period] - 1) // period + 2)
        return None

    def upcoming(self, key: bytes, agent: str) -> Round | None:
        """The repetition that an event of this key would continue, were its outcome as before."""
        if self._idle:
            return None
        for period in range(2, LONGEST_PERIOD + 1):
            held = self._held[period]
            if held >= period and self._held[1] < period and self._continues(period, key, agent):
                return self._round(period, held // period + 2)
        return None

    def expected_outcome(self, key: bytes, agent: str) -> bytes | None:
        """What an event of this key came to one round ago."""
        for period in range(2, LONGEST_PERIOD + 1):
            if self._held[period] >= period and self._continues(period, key, agent):
                return self._events[-period][1]
        return None

    def _continues(self, period: int, key: bytes, agent: str) -> bool:
        return len(self._events) >= period and self._events[-period][0] == key and self._events[-period][2] == agent

    def _round(self, period: int, number: int) -> Round:
        latest = self._events[-period:]
        told_apart = sorted([event[:3] for event in latest])
        return Round(
            period=period,
            number=number,
            agents=frozenset([agent for _, _, agent, _ in latest]),
            evidence=tuple([step for *_, step in self._events[-2 * period - 1 :]]),
            signature=xxh3_128_digest(repr(told_apart).encode()),
        )
