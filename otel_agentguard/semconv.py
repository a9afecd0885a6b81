"""Every name that we emit or read: attributes, spans, events and metrics.

Dashboards, alerts and other people's queries depend on these strings, so they are public and change
only with a deprecation. The `gen_ai.*` names follow open-telemetry/semantic-conventions-genai, which
is in development; the constants of opentelemetry-semantic-conventions are frozen before memory and
plan operations were named, so they are kept here. OpenInference and OpenLLMetry names are read only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

INSTRUMENTATION_SCOPE = "otel_agentguard"

# Spans of ours: the name is the constant, a space, and the tool or agent; memory spans are the operation alone.
SPAN_EXECUTE_TOOL = "execute_tool"
SPAN_INVOKE_AGENT = "invoke_agent"
SPAN_CHAT = "chat"
SPAN_PLAN = "plan"
SPAN_MESSAGE = "agentguard.message"
SPAN_FINDING = "agentguard.finding"

EVENT_FINDING = "agentguard.finding"
EVENT_EVALUATION_RESULT = "gen_ai.evaluation.result"

AGENTGUARD_ACTION = "agentguard.action"
AGENTGUARD_CACHE_HIT = "agentguard.cache.hit"
AGENTGUARD_EFFECT = "agentguard.effect"
AGENTGUARD_EFFECT_ATTEMPT = "agentguard.effect.attempt"
AGENTGUARD_EFFECT_KEY = "agentguard.effect.key"
AGENTGUARD_EFFECT_OUTCOME = "agentguard.effect.outcome"
AGENTGUARD_EVIDENCE_STEPS = "agentguard.evidence.steps"
AGENTGUARD_FINDING_CHECK = "agentguard.finding.check"
AGENTGUARD_FINDING_KIND = "agentguard.finding.kind"
AGENTGUARD_FINDING_SEVERITY = "agentguard.finding.severity"
AGENTGUARD_FINGERPRINT = "agentguard.fingerprint"
AGENTGUARD_MODE = "agentguard.mode"
AGENTGUARD_REPEAT_COUNT = "agentguard.repeat.count"
AGENTGUARD_REPEAT_SIMILARITY = "agentguard.repeat.similarity"
AGENTGUARD_RUN_ID = "agentguard.run.id"
AGENTGUARD_STEP = "agentguard.step"

BAGGAGE_RUN_ID = "agentguard.run.id"

ERROR_TYPE = "error.type"

GEN_AI_AGENT_NAME = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID = "gen_ai.conversation.id"
GEN_AI_EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"
GEN_AI_EVALUATION_NAME = "gen_ai.evaluation.name"
GEN_AI_EVALUATION_SCORE_LABEL = "gen_ai.evaluation.score.label"
GEN_AI_EVALUATION_SCORE_VALUE = "gen_ai.evaluation.score.value"
GEN_AI_INPUT_MESSAGES = "gen_ai.input.messages"
GEN_AI_MEMORY_RECORD_ID = "gen_ai.memory.record.id"
GEN_AI_MEMORY_RECORDS = "gen_ai.memory.records"
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_OUTPUT_MESSAGES = "gen_ai.output.messages"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_RESPONSE_ID = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
GEN_AI_TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_ID = "gen_ai.tool.call.id"
GEN_AI_TOOL_CALL_RESULT = "gen_ai.tool.call.result"
GEN_AI_TOOL_NAME = "gen_ai.tool.name"
GEN_AI_USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"

# Older names that instrumentations still write.
GEN_AI_USAGE_COMPLETION_TOKENS = "gen_ai.usage.completion_tokens"
GEN_AI_USAGE_PROMPT_TOKENS = "gen_ai.usage.prompt_tokens"

OPERATION_CHAT = "chat"
OPERATION_CREATE_MEMORY = "create_memory"
OPERATION_DELETE_MEMORY = "delete_memory"
OPERATION_EXECUTE_TOOL = "execute_tool"
OPERATION_GENERATE_CONTENT = "generate_content"
OPERATION_INVOKE_AGENT = "invoke_agent"
OPERATION_PLAN = "plan"
OPERATION_SEARCH_MEMORY = "search_memory"
OPERATION_TEXT_COMPLETION = "text_completion"
OPERATION_UPDATE_MEMORY = "update_memory"
OPERATION_UPSERT_MEMORY = "upsert_memory"


# https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md
OPENINFERENCE_AGENT_NAME = "agent.name"
OPENINFERENCE_GRAPH_NODE_ID = "graph.node.id"
OPENINFERENCE_INPUT_VALUE = "input.value"
OPENINFERENCE_MODEL_NAME = "llm.model_name"
OPENINFERENCE_OUTPUT_VALUE = "output.value"
OPENINFERENCE_SESSION_ID = "session.id"
OPENINFERENCE_SPAN_KIND = "openinference.span.kind"
OPENINFERENCE_TOKEN_COUNT_COMPLETION = "llm.token_count.completion"  # noqa: S105 - tokens of text
OPENINFERENCE_TOKEN_COUNT_PROMPT = "llm.token_count.prompt"  # noqa: S105 - tokens of text
OPENINFERENCE_TOOL_CALL_ID = "tool_call.id"
OPENINFERENCE_TOOL_NAME = "tool.name"
OPENINFERENCE_TOOL_PARAMETERS = "tool.parameters"

OPENINFERENCE_KIND_AGENT = "AGENT"
OPENINFERENCE_KIND_LLM = "LLM"
OPENINFERENCE_KIND_TOOL = "TOOL"

# https://github.com/traceloop/openllmetry, package opentelemetry-semantic-conventions-ai
TRACELOOP_ASSOCIATION_SESSION_ID = "traceloop.association.properties.session_id"
TRACELOOP_ASSOCIATION_THREAD_ID = "traceloop.association.properties.thread_id"
TRACELOOP_ENTITY_INPUT = "traceloop.entity.input"
TRACELOOP_ENTITY_NAME = "traceloop.entity.name"
TRACELOOP_ENTITY_OUTPUT = "traceloop.entity.output"
TRACELOOP_REQUEST_TYPE = "llm.request.type"
TRACELOOP_SPAN_KIND = "traceloop.span.kind"
TRACELOOP_USAGE_TOTAL_TOKENS = "llm.usage.total_tokens"

TRACELOOP_KIND_AGENT = "agent"
TRACELOOP_KIND_TOOL = "tool"

# Metrics, under the names that Prometheus shows.
STEPS_TOTAL = "agentguard_steps_total"
REPEATS_TOTAL = "agentguard_repeats_total"
FINDINGS_TOTAL = "agentguard_findings_total"
RUNS_TOTAL = "agentguard_runs_total"
ACTIVE_RUNS = "agentguard_active_runs"
EXECUTED_AFTER_BLOCK_TOTAL = "agentguard_executed_after_block_total"
DEDUP_TOTAL = "agentguard_dedup_total"
SAVED_CALLS_TOTAL = "agentguard_saved_calls_total"
SAVED_SECONDS_TOTAL = "agentguard_saved_seconds_total"
WASTED_CALLS_TOTAL = "agentguard_wasted_calls_total"
WASTED_TOKENS_TOTAL = "agentguard_wasted_tokens_total"
SIDE_EFFECTS_TOTAL = "agentguard_side_effects_total"
DUPLICATE_SIDE_EFFECTS_TOTAL = "agentguard_duplicate_side_effects_total"
SIDE_EFFECTS_UNSETTLED = "agentguard_side_effects_unsettled"
PLAN_ERRORS_TOTAL = "agentguard_plan_errors_total"
PLAN_DRIFT_RATIO = "agentguard_plan_drift_ratio"
MEMORY_WRITES_TOTAL = "agentguard_memory_writes_total"
CHECK_DURATION_SECONDS = "agentguard_check_duration_seconds"
GUARD_ERRORS_TOTAL = "agentguard_guard_errors_total"
STATE_BYTES = "agentguard_state_bytes"
STATE_DROPPED_TOTAL = "agentguard_state_dropped_total"
LABEL_OVERFLOW_TOTAL = "agentguard_label_overflow_total"
UNGUARDED_CALLS_TOTAL = "agentguard_unguarded_calls_total"
RUN_STEPS = "agentguard_run_steps"
INVOKE_AGENT_TOOL_CALLS = "gen_ai_invoke_agent_tool_calls"
INVOKE_AGENT_INFERENCE_CALLS = "gen_ai_invoke_agent_inference_calls"

OTHER = "__other__"
"""Label value of everything beyond a cap or outside of a closed set."""

STEP_KINDS = (
    "tool",
    "message",
    "model",
    "handoff",
    "turn",
    "plan",
    "memory",
    "compaction",
    "crash",
    "resume",
)
SIMILARITIES = ("exact", "masked", "near", "semantic")
CHECKS = ("loop", "dedup", "plan", "memory", "effects", "budget", "schema")
FINDING_KINDS = (
    "duplicate_side_effect",
    "plan",
    "memory",
    "schema",
    "stale_cache",
    "budget",
    "pingpong",
    "cycle",
    "loop",
    "near",
    "semantic",
    "plan_drift",
    "redundant",
)
ACTIONS = ("allow", "hint", "reuse", "block", "stop")
MODES = ("enforce", "observe", "off")
RUN_OUTCOMES = ("completed", "failed", "stopped_by_guard")
DEDUP_OUTCOMES = ("hit", "miss", "invalidated", "coalesced", "uncacheable")
SIDE_EFFECT_OUTCOMES = (
    "executed",
    "replayed",
    "waited",
    "blocked",
    "mismatch",
    "failed",
    "not_applied",
    "unknown",
    "late",
)
CERTAINTIES = ("prevented", "possible", "confirmed")
PLAN_ERROR_CODES = (
    "unknown_tool",
    "unknown_agent",
    "missing_argument",
    "unknown_argument",
    "wrong_type",
    "enum",
    "constraint",
    "bad_reference",
    "cycle",
    "placeholder",
    "denied_tool",
    "duplicate_effect",
)
MEMORY_KINDS = ("fact", "intent", "preference", "procedure")
MEMORY_VERDICTS = (
    "verified",
    "unsupported",
    "unverifiable",
    "contradicted",
    "duplicate",
)
STATE_PARTS = ("values", "observations")
DROPPED_PARTS = (*STATE_PARTS, "runs")

CAPPED_METRICS = (
    STEPS_TOTAL,
    REPEATS_TOTAL,
    FINDINGS_TOTAL,
    RUNS_TOTAL,
    EXECUTED_AFTER_BLOCK_TOTAL,
    DEDUP_TOTAL,
    SIDE_EFFECTS_TOTAL,
    DUPLICATE_SIDE_EFFECTS_TOTAL,
    SIDE_EFFECTS_UNSETTLED,
    PLAN_ERRORS_TOTAL,
    MEMORY_WRITES_TOTAL,
    CHECK_DURATION_SECONDS,
    GUARD_ERRORS_TOTAL,
    STATE_BYTES,
    STATE_DROPPED_TOTAL,
    UNGUARDED_CALLS_TOTAL,
)
"""Metrics whose label values can fall to `OTHER`."""

_PER_RUN = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_CALLS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_CHECK_SECONDS = (
    1e-6,
    2.5e-6,
    5e-6,
    1e-5,
    2.5e-5,
    5e-5,
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    1e-2,
    1e-1,
)
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric, as dashboards, documentation and the recorder know it.

    Attributes:
        name: Its name in Prometheus, counters with `_total`.
        type: What kind of series it is.
        question: What it answers.
        unit: UCUM unit, as OTLP carries it; counted things are `{thing}`.
        labels: Names of its labels.
        values: Values of those labels that are closed sets.
        buckets: Upper bounds of a histogram, without infinity.
        otlp_name: Its name in OTLP, from which Prometheus makes `name` again.
        is_shared: All processes of one store show the same number, which must not be added up.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    question: str
    unit: str
    labels: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    otlp_name: str = ""
    is_shared: bool = False

    def __post_init__(self) -> None:
        if not self.otlp_name:
            object.__setattr__(self, "otlp_name", self.name.removesuffix("_total"))


METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        name=STEPS_TOTAL,
        type="counter",
        question="How much happens?",
        unit="{step}",
        labels=("kind", "agent", "tool"),
        values={"kind": STEP_KINDS},
    ),
    MetricSpec(
        name=REPEATS_TOTAL,
        type="counter",
        question="How many steps repeat an earlier one without progress? At most one per step, the strongest.",
        unit="{step}",
        labels=("agent", "tool", "similarity"),
        values={"similarity": SIMILARITIES},
    ),
    MetricSpec(
        name=FINDINGS_TOTAL,
        type="counter",
        question="What did the checks find, and what was done about it?",
        unit="{finding}",
        labels=("check", "kind", "action", "mode", "agent"),
        values={"kind": FINDING_KINDS, "action": ACTIONS, "mode": MODES},
    ),
    MetricSpec(
        name=RUNS_TOTAL,
        type="counter",
        question="How do runs end, and what share of them is stopped?",
        unit="{run}",
        labels=("outcome",),
        values={"outcome": RUN_OUTCOMES},
    ),
    MetricSpec(
        name=ACTIVE_RUNS,
        type="gauge",
        question="How many runs are alive?",
        unit="{run}",
    ),
    MetricSpec(
        name=EXECUTED_AFTER_BLOCK_TOTAL,
        type="counter",
        question="Did a body start after a block or stop? Must stay 0.",
        unit="{call}",
        labels=("agent", "tool"),
    ),
    MetricSpec(
        name=DEDUP_TOTAL,
        type="counter",
        question="How often is a call answered without running it, and why not?",
        unit="{call}",
        labels=("tool", "outcome"),
        values={"outcome": DEDUP_OUTCOMES},
    ),
    MetricSpec(
        name=SAVED_CALLS_TOTAL,
        type="counter",
        question="How many calls did the guard answer or refuse, so that their body did not run?",
        unit="{call}",
    ),
    MetricSpec(
        name=SAVED_SECONDS_TOTAL,
        type="counter",
        question="How much tool time did that save?",
        unit="s",
    ),
    MetricSpec(
        name=WASTED_CALLS_TOTAL,
        type="counter",
        question="How many calls ran although they repeat an earlier one with no change of state in between?",
        unit="{call}",
    ),
    MetricSpec(
        name=WASTED_TOKENS_TOTAL,
        type="counter",
        question="How many tokens did repetition cost?",
        unit="{token}",
    ),
    MetricSpec(
        name=SIDE_EFFECTS_TOTAL,
        type="counter",
        question="What became of the side effects that were asked for?",
        unit="{call}",
        labels=("tool", "outcome"),
        values={"outcome": SIDE_EFFECT_OUTCOMES},
    ),
    MetricSpec(
        name=DUPLICATE_SIDE_EFFECTS_TOTAL,
        type="counter",
        question="How many side effects were, may have been, or would have been done twice?",
        unit="{effect}",
        labels=("tool", "certainty"),
        values={"certainty": CERTAINTIES},
    ),
    MetricSpec(
        name=SIDE_EFFECTS_UNSETTLED,
        type="gauge",
        question="How many side effects are on record in the store of which nobody knows whether they happened?",
        unit="{effect}",
        labels=("tool",),
        is_shared=True,
    ),
    MetricSpec(
        name=PLAN_ERRORS_TOTAL,
        type="counter",
        question="What is wrong with the plans that agents make?",
        unit="{error}",
        labels=("code",),
        values={"code": PLAN_ERROR_CODES},
    ),
    MetricSpec(
        name=PLAN_DRIFT_RATIO,
        type="histogram",
        question="How far do runs stray from their plan?",
        unit="1",
        buckets=_SHARES,
    ),
    MetricSpec(
        name=MEMORY_WRITES_TOTAL,
        type="counter",
        question="What is written to long-term memory, and does the evidence hold?",
        unit="{write}",
        labels=("kind", "verdict"),
        values={"kind": MEMORY_KINDS, "verdict": MEMORY_VERDICTS},
    ),
    MetricSpec(
        name=CHECK_DURATION_SECONDS,
        type="histogram",
        question="What does the guard cost? A sample of the steps.",
        unit="s",
        labels=("check",),
        buckets=_CHECK_SECONDS,
    ),
    MetricSpec(
        name=GUARD_ERRORS_TOTAL,
        type="counter",
        question="Where did the guard itself fail and let the application go on without it?",
        unit="{error}",
        labels=("where",),
    ),
    MetricSpec(
        name=STATE_BYTES,
        type="gauge",
        question="How much memory do results that are kept, and observed text, take?",
        unit="By",
        labels=("part",),
        values={"part": STATE_PARTS},
    ),
    MetricSpec(
        name=STATE_DROPPED_TOTAL,
        type="counter",
        question="Is a cap biting: how many results, observed texts and runs were dropped early?",
        unit="{item}",
        labels=("part",),
        values={"part": DROPPED_PARTS},
    ),
    MetricSpec(
        name=LABEL_OVERFLOW_TOTAL,
        type="counter",
        question="Is a label cap biting: how many observations went to `__other__`?",
        unit="{observation}",
        labels=("metric",),
        values={"metric": CAPPED_METRICS},
    ),
    MetricSpec(
        name=UNGUARDED_CALLS_TOTAL,
        type="counter",
        question="How many calls passed the guard because the program said so?",
        unit="{call}",
        labels=("tool",),
    ),
    MetricSpec(
        name=RUN_STEPS,
        type="histogram",
        question="How long are runs?",
        unit="{step}",
        buckets=_PER_RUN,
    ),
    MetricSpec(
        name=INVOKE_AGENT_TOOL_CALLS,
        type="histogram",
        question="How many tool calls does a run make?",
        unit="{tool_call}",
        buckets=_CALLS,
        otlp_name="gen_ai.invoke_agent.tool_calls",
    ),
    MetricSpec(
        name=INVOKE_AGENT_INFERENCE_CALLS,
        type="histogram",
        question="How many model calls does a run make?",
        unit="{inference_call}",
        buckets=_CALLS,
        otlp_name="gen_ai.invoke_agent.inference_calls",
    ),
)
