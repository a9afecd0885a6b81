"""The memory gate: a guess is not a fact.

`MemoryGate` judges what a run writes to its long-term memory against what was really observed in that run.
"""

from otel_agentguard.memory.claims import Claim, read_claim
from otel_agentguard.memory.gate import MemoryGate
from otel_agentguard.memory.observations import Observations
from otel_agentguard.memory.recall import MemoryBook, Recalled, Trust
from otel_agentguard.memory.verdicts import Judgement, MemoryKind, MemorySettings, Reason, Verdict

__all__ = [
    "Claim",
    "Judgement",
    "MemoryBook",
    "MemoryGate",
    "MemoryKind",
    "MemorySettings",
    "Observations",
    "Reason",
    "Recalled",
    "Trust",
    "Verdict",
    "read_claim",
]
