"""OpenTelemetry for LLM agents that repeat themselves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from otel_agentguard.config import Budget, LoopSettings, Mode, Settings, ToolSettings
from otel_agentguard.errors import (
    AgentGuardError,
    CallBlocked,
    CompletionNotRecorded,
    ConfigError,
    EffectInProgress,
    EffectMismatch,
    NotApplied,
    ResultNotStored,
    RunAborted,
    RunStopped,
)
from otel_agentguard.events import Effect, Evidence
from otel_agentguard.findings import Action, Finding, Limits
from otel_agentguard.install import AgentGuard, install
from otel_agentguard.policy import Policy
from otel_agentguard.protocols import Check, Clock, Decoder, Embedder, Judge, RunCheck, Sink, Store, Suspicion, Verdict
from otel_agentguard.runs import ApprovalRequest
from otel_agentguard.seams.agents import agent
from otel_agentguard.seams.bypass import fresh, unguarded
from otel_agentguard.seams.messages import message
from otel_agentguard.seams.models import model_call
from otel_agentguard.seams.runs import run
from otel_agentguard.seams.tool import tool

if TYPE_CHECKING:
    from otel_agentguard.dedup.suggestions import Suggestion, merge_suggestions
    from otel_agentguard.effects.calls import Applied, StillUnknown
    from otel_agentguard.effects.ledger import Ledger
    from otel_agentguard.instrumentor import AgentGuardInstrumentor
    from otel_agentguard.plans.registry import ToolRegistry
    from otel_agentguard.tracing.processor import AgentGuardSpanProcessor
    from otel_agentguard.tracing.sampler import AgentGuardSampler

# Imported when they are asked for: they need the SDK, the Prometheus client or other libraries, and a
# program that only declares its tools needs none of those.
_LAZY = {
    "AgentGuardInstrumentor": "otel_agentguard.instrumentor",
    "AgentGuardSampler": "otel_agentguard.tracing.sampler",
    "AgentGuardSpanProcessor": "otel_agentguard.tracing.processor",
    "Applied": "otel_agentguard.effects.calls",
    "Ledger": "otel_agentguard.effects.ledger",
    "StillUnknown": "otel_agentguard.effects.calls",
    "Suggestion": "otel_agentguard.dedup.suggestions",
    "ToolRegistry": "otel_agentguard.plans.registry",
    "merge_suggestions": "otel_agentguard.dedup.suggestions",
}

__all__ = [
    "Action",
    "AgentGuard",
    "AgentGuardError",
    "AgentGuardInstrumentor",
    "AgentGuardSampler",
    "AgentGuardSpanProcessor",
    "Applied",
    "ApprovalRequest",
    "Budget",
    "CallBlocked",
    "Check",
    "Clock",
    "CompletionNotRecorded",
    "ConfigError",
    "Decoder",
    "Effect",
    "EffectInProgress",
    "EffectMismatch",
    "Embedder",
    "Evidence",
    "Finding",
    "Judge",
    "Ledger",
    "Limits",
    "LoopSettings",
    "Mode",
    "NotApplied",
    "Policy",
    "ResultNotStored",
    "RunAborted",
    "RunCheck",
    "RunStopped",
    "Settings",
    "Sink",
    "StillUnknown",
    "Store",
    "Suggestion",
    "Suspicion",
    "ToolRegistry",
    "ToolSettings",
    "Verdict",
    "agent",
    "fresh",
    "install",
    "merge_suggestions",
    "message",
    "model_call",
    "run",
    "tool",
    "unguarded",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
