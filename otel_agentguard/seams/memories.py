"""The long-term memory at a seam: what is stored is judged by what the run really observed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_agentguard.current import Scope, scope
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Memory, MemoryOperation
from otel_agentguard.findings import CheckName
from otel_agentguard.guard import Guard
from otel_agentguard.runs import PASS, Run
from otel_agentguard.seams.step import Step
from otel_agentguard.semconv import (
    GEN_AI_AGENT_NAME,
    GEN_AI_MEMORY_RECORD_ID,
    GEN_AI_OPERATION_NAME,
    OPERATION_CREATE_MEMORY,
    OPERATION_DELETE_MEMORY,
    OPERATION_SEARCH_MEMORY,
    OPERATION_UPDATE_MEMORY,
)

if TYPE_CHECKING:
    from otel_agentguard.memory.gate import MemoryGate
    from otel_agentguard.memory.recall import Recalled

_OPERATIONS = {
    MemoryOperation.READ: OPERATION_SEARCH_MEMORY,
    MemoryOperation.WRITE: OPERATION_CREATE_MEMORY,
    MemoryOperation.UPDATE: OPERATION_UPDATE_MEMORY,
    MemoryOperation.DELETE: OPERATION_DELETE_MEMORY,
}


def tell(guard: Guard, here: Scope, memory: Memory) -> None:
    """Take a memory operation through the guard, which marks a write with its verdict.

    Raises:
        RunStopped: The run was stopped (`RunAborted` outside of `run()`).
    """
    step = Step(guard, here)
    memory.agent = step.agent
    memory.at_s = guard.engine.now_s()
    operation = _OPERATIONS[memory.operation]
    attributes = {GEN_AI_AGENT_NAME: step.agent, GEN_AI_OPERATION_NAME: operation}
    if memory.key is not None:
        attributes[GEN_AI_MEMORY_RECORD_ID] = memory.key
    step.start(operation, attributes, instant=True)
    error = step.before(memory)
    if error is None and (decision := step.after(memory)) is not PASS:
        step.keep_notes(decision.notes)
        error = step.stop_after(decision)
    step.end(memory, error=error)
    if error is not None:
        raise error


def submitted(guard: Guard, memory: Memory) -> None:
    """Have a guarded store tell of an operation, in whatever run it happens."""
    tell(guard, scope(), memory)


def recalled(run: Run, query: str, limit: int) -> list[Recalled]:
    """What earlier and present runs stored that fits a query; see `RunHandle.recall`."""
    return _gate(run).recall(query, limit=limit)


def must_judge(run: Run) -> None:
    """Say so when nothing would judge what is remembered.

    Raises:
        ConfigError: The memory check is off.
    """
    _gate(run)


def _gate(run: Run) -> MemoryGate:
    for name, check in run.checks:
        gate: MemoryGate | None = getattr(check, "gate", None) if name == CheckName.MEMORY else None
        if gate is not None:
            return gate
    raise ConfigError("the memory check is off; add 'memory' to the setting checks")
