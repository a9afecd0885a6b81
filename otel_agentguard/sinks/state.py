"""What the state of the runs takes, looked up when somebody reads the metrics."""

from __future__ import annotations

from collections.abc import Sequence

from otel_agentguard.checks.memory import MemoryCheck
from otel_agentguard.engine import Engine
from otel_agentguard.findings import CheckName
from otel_agentguard.forks import new_lock
from otel_agentguard.protocols import Check
from otel_agentguard.semconv import STATE_BYTES, STATE_DROPPED_TOTAL
from otel_agentguard.sinks.prometheus import PrometheusSink
from otel_agentguard.values import ByteBudget

_VALUES = "values"
_OBSERVATIONS = "observations"


class StateOfRuns:
    """Keeps the metrics of the state true without a word for each call.

    Args:
        sink: Where the metrics are.
        engine: Knows the runs.
        budget: What results that are kept take: answers of the cache, and those for refusals.
        checks: Of which the memory check holds text.
    """

    def __init__(self, sink: PrometheusSink, engine: Engine, budget: ByteBudget, checks: Sequence[Check]) -> None:
        self._sink = sink
        self._engine = engine
        self._budget = budget
        self._memory = next((check for check in checks if isinstance(check, MemoryCheck)), None)
        self._told = {_VALUES: 0, _OBSERVATIONS: 0}
        self._lock = new_lock()
        sink.looked_up(STATE_BYTES, self._tell_bytes)
        sink.looked_up(STATE_DROPPED_TOTAL, self._tell_dropped)

    def _tell_bytes(self) -> None:
        self._sink.state(_VALUES, self._budget.used_bytes)
        self._sink.state(_OBSERVATIONS, self._engine.held_bytes(CheckName.MEMORY))

    def _tell_dropped(self) -> None:
        dropped = {_VALUES: self._budget.dropped, _OBSERVATIONS: self._memory.forgotten if self._memory else 0}
        with self._lock:
            for part, count in dropped.items():
                self._sink.dropped(part, count - self._told[part])
                self._told[part] = count
