"""The whole page of a short run: names, help, labels and their order are what dashboards are built on."""

from __future__ import annotations

from collections.abc import Callable

from inline_snapshot import snapshot

from otel_agentguard.events import ModelCall, Similarity, ToolCall, Turn
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.protocols import RunInfo
from otel_agentguard.sinks.exposition import MetricsServer
from otel_agentguard.sinks.prometheus import PrometheusSink


def test_the_page_of_a_short_run(sink: PrometheusSink, run: RunInfo, get: Callable[..., tuple[object, str]]) -> None:
    again = ToolCall(tool="read_file", agent="coder", step=4, repeats=1, similarity=Similarity.EXACT, redundant=True)
    finding = Finding(
        check="loop",
        kind=Kind.LOOP,
        severity=Severity.ERROR,
        step=4,
        signature=b"s",
        message="",
        explanation="",
        action=Action.STOP,
        agent="coder",
        tool="read_file",
    )
    sink.declare_side_effect_tool("charge")
    sink.run_opened(run)
    sink.stepped(run, Turn(agent="coder", step=1))
    sink.stepped(run, ModelCall(agent="coder", step=2))
    sink.stepped(run, ToolCall(tool="read_file", agent="coder", step=3))
    sink.stepped(run, again)
    sink.found(run, finding, "enforce")
    sink.timed("loop", 2e-5)
    sink.run_closed(run, "stopped_by_guard", 4)

    with MetricsServer(0, sink.registry) as server:
        _, page = get(server.url)

    assert page == snapshot("""\
# HELP agentguard_steps_total How much happens?
# TYPE agentguard_steps_total counter
agentguard_steps_total{agent="coder",kind="turn",tool=""} 1.0
agentguard_steps_total{agent="coder",kind="model",tool=""} 1.0
agentguard_steps_total{agent="coder",kind="tool",tool="read_file"} 2.0
# HELP agentguard_repeats_total How many steps repeat an earlier one without progress? At most one per step, the strongest.
# TYPE agentguard_repeats_total counter
agentguard_repeats_total{agent="coder",similarity="exact",tool="read_file"} 1.0
# HELP agentguard_findings_total What did the checks find, and what was done about it?
# TYPE agentguard_findings_total counter
agentguard_findings_total{action="hint",agent="coder",check="loop",kind="loop",mode="enforce"} 0.0
agentguard_findings_total{action="block",agent="coder",check="loop",kind="loop",mode="enforce"} 0.0
agentguard_findings_total{action="stop",agent="coder",check="loop",kind="loop",mode="enforce"} 1.0
agentguard_findings_total{action="hint",agent="coder",check="loop",kind="cycle",mode="enforce"} 0.0
agentguard_findings_total{action="block",agent="coder",check="loop",kind="cycle",mode="enforce"} 0.0
agentguard_findings_total{action="stop",agent="coder",check="loop",kind="cycle",mode="enforce"} 0.0
agentguard_findings_total{action="hint",agent="coder",check="loop",kind="pingpong",mode="enforce"} 0.0
agentguard_findings_total{action="block",agent="coder",check="loop",kind="pingpong",mode="enforce"} 0.0
agentguard_findings_total{action="stop",agent="coder",check="loop",kind="pingpong",mode="enforce"} 0.0
agentguard_findings_total{action="hint",agent="coder",check="loop",kind="near",mode="enforce"} 0.0
agentguard_findings_total{action="hint",agent="coder",check="loop",kind="semantic",mode="enforce"} 0.0
# HELP agentguard_runs_total How do runs end, and what share of them is stopped?
# TYPE agentguard_runs_total counter
agentguard_runs_total{outcome="completed"} 0.0
agentguard_runs_total{outcome="failed"} 0.0
agentguard_runs_total{outcome="stopped_by_guard"} 1.0
# HELP agentguard_active_runs How many runs are alive?
# TYPE agentguard_active_runs gauge
agentguard_active_runs 0.0
# HELP agentguard_executed_after_block_total Did a body start after a block or stop? Must stay 0.
# TYPE agentguard_executed_after_block_total counter
# HELP agentguard_dedup_total How often is a call answered without running it, and why not?
# TYPE agentguard_dedup_total counter
# HELP agentguard_saved_calls_total How many calls did the guard answer or refuse, so that their body did not run?
# TYPE agentguard_saved_calls_total counter
agentguard_saved_calls_total 0.0
# HELP agentguard_saved_seconds_total How much tool time did that save?
# TYPE agentguard_saved_seconds_total counter
agentguard_saved_seconds_total 0.0
# HELP agentguard_wasted_calls_total How many calls ran although they repeat an earlier one with no change of state in between?
# TYPE agentguard_wasted_calls_total counter
agentguard_wasted_calls_total 1.0
# HELP agentguard_wasted_tokens_total How many tokens did repetition cost?
# TYPE agentguard_wasted_tokens_total counter
agentguard_wasted_tokens_total 0.0
# HELP agentguard_side_effects_total What became of the side effects that were asked for?
# TYPE agentguard_side_effects_total counter
agentguard_side_effects_total{outcome="executed",tool="charge"} 0.0
agentguard_side_effects_total{outcome="replayed",tool="charge"} 0.0
agentguard_side_effects_total{outcome="waited",tool="charge"} 0.0
agentguard_side_effects_total{outcome="blocked",tool="charge"} 0.0
agentguard_side_effects_total{outcome="mismatch",tool="charge"} 0.0
agentguard_side_effects_total{outcome="failed",tool="charge"} 0.0
agentguard_side_effects_total{outcome="not_applied",tool="charge"} 0.0
agentguard_side_effects_total{outcome="unknown",tool="charge"} 0.0
agentguard_side_effects_total{outcome="late",tool="charge"} 0.0
# HELP agentguard_duplicate_side_effects_total How many side effects were, may have been, or would have been done twice?
# TYPE agentguard_duplicate_side_effects_total counter
agentguard_duplicate_side_effects_total{certainty="prevented",tool="charge"} 0.0
agentguard_duplicate_side_effects_total{certainty="possible",tool="charge"} 0.0
agentguard_duplicate_side_effects_total{certainty="confirmed",tool="charge"} 0.0
# HELP agentguard_side_effects_unsettled How many side effects are on record in the store of which nobody knows whether they happened?
# TYPE agentguard_side_effects_unsettled gauge
# HELP agentguard_plan_errors_total What is wrong with the plans that agents make?
# TYPE agentguard_plan_errors_total counter
agentguard_plan_errors_total{code="unknown_tool"} 0.0
agentguard_plan_errors_total{code="unknown_agent"} 0.0
agentguard_plan_errors_total{code="missing_argument"} 0.0
agentguard_plan_errors_total{code="unknown_argument"} 0.0
agentguard_plan_errors_total{code="wrong_type"} 0.0
agentguard_plan_errors_total{code="enum"} 0.0
agentguard_plan_errors_total{code="constraint"} 0.0
agentguard_plan_errors_total{code="bad_reference"} 0.0
agentguard_plan_errors_total{code="cycle"} 0.0
agentguard_plan_errors_total{code="placeholder"} 0.0
agentguard_plan_errors_total{code="denied_tool"} 0.0
agentguard_plan_errors_total{code="duplicate_effect"} 0.0
# HELP agentguard_plan_drift_ratio How far do runs stray from their plan?
# TYPE agentguard_plan_drift_ratio histogram
agentguard_plan_drift_ratio_bucket{le="0.05"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.1"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.2"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.3"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.4"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.5"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.6"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.7"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.8"} 0.0
agentguard_plan_drift_ratio_bucket{le="0.9"} 0.0
agentguard_plan_drift_ratio_bucket{le="1.0"} 0.0
agentguard_plan_drift_ratio_bucket{le="+Inf"} 0.0
agentguard_plan_drift_ratio_count 0.0
agentguard_plan_drift_ratio_sum 0.0
# HELP agentguard_memory_writes_total What is written to long-term memory, and does the evidence hold?
# TYPE agentguard_memory_writes_total counter
agentguard_memory_writes_total{kind="fact",verdict="verified"} 0.0
agentguard_memory_writes_total{kind="fact",verdict="unsupported"} 0.0
agentguard_memory_writes_total{kind="fact",verdict="unverifiable"} 0.0
agentguard_memory_writes_total{kind="fact",verdict="contradicted"} 0.0
agentguard_memory_writes_total{kind="fact",verdict="duplicate"} 0.0
agentguard_memory_writes_total{kind="intent",verdict="verified"} 0.0
agentguard_memory_writes_total{kind="intent",verdict="unsupported"} 0.0
agentguard_memory_writes_total{kind="intent",verdict="unverifiable"} 0.0
agentguard_memory_writes_total{kind="intent",verdict="contradicted"} 0.0
agentguard_memory_writes_total{kind="intent",verdict="duplicate"} 0.0
agentguard_memory_writes_total{kind="preference",verdict="verified"} 0.0
agentguard_memory_writes_total{kind="preference",verdict="unsupported"} 0.0
agentguard_memory_writes_total{kind="preference",verdict="unverifiable"} 0.0
agentguard_memory_writes_total{kind="preference",verdict="contradicted"} 0.0
agentguard_memory_writes_total{kind="preference",verdict="duplicate"} 0.0
agentguard_memory_writes_total{kind="procedure",verdict="verified"} 0.0
agentguard_memory_writes_total{kind="procedure",verdict="unsupported"} 0.0
agentguard_memory_writes_total{kind="procedure",verdict="unverifiable"} 0.0
agentguard_memory_writes_total{kind="procedure",verdict="contradicted"} 0.0
agentguard_memory_writes_total{kind="procedure",verdict="duplicate"} 0.0
# HELP agentguard_check_duration_seconds What does the guard cost? A sample of the steps.
# TYPE agentguard_check_duration_seconds histogram
agentguard_check_duration_seconds_bucket{check="loop",le="1e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="loop",le="2.5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="loop",le="5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="loop",le="1e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="loop",le="2.5e-05"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="5e-05"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="0.0001"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="0.00025"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="0.0005"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="0.001"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="0.01"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="0.1"} 1.0
agentguard_check_duration_seconds_bucket{check="loop",le="+Inf"} 1.0
agentguard_check_duration_seconds_count{check="loop"} 1.0
agentguard_check_duration_seconds_sum{check="loop"} 2e-05
agentguard_check_duration_seconds_bucket{check="dedup",le="1e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="2.5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="1e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="2.5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="0.0001"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="0.00025"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="0.0005"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="0.001"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="0.01"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="0.1"} 0.0
agentguard_check_duration_seconds_bucket{check="dedup",le="+Inf"} 0.0
agentguard_check_duration_seconds_count{check="dedup"} 0.0
agentguard_check_duration_seconds_sum{check="dedup"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="1e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="2.5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="1e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="2.5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="0.0001"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="0.00025"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="0.0005"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="0.001"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="0.01"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="0.1"} 0.0
agentguard_check_duration_seconds_bucket{check="plan",le="+Inf"} 0.0
agentguard_check_duration_seconds_count{check="plan"} 0.0
agentguard_check_duration_seconds_sum{check="plan"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="1e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="2.5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="1e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="2.5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="0.0001"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="0.00025"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="0.0005"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="0.001"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="0.01"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="0.1"} 0.0
agentguard_check_duration_seconds_bucket{check="memory",le="+Inf"} 0.0
agentguard_check_duration_seconds_count{check="memory"} 0.0
agentguard_check_duration_seconds_sum{check="memory"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="1e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="2.5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="1e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="2.5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="0.0001"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="0.00025"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="0.0005"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="0.001"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="0.01"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="0.1"} 0.0
agentguard_check_duration_seconds_bucket{check="effects",le="+Inf"} 0.0
agentguard_check_duration_seconds_count{check="effects"} 0.0
agentguard_check_duration_seconds_sum{check="effects"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="1e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="2.5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="1e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="2.5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="0.0001"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="0.00025"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="0.0005"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="0.001"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="0.01"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="0.1"} 0.0
agentguard_check_duration_seconds_bucket{check="budget",le="+Inf"} 0.0
agentguard_check_duration_seconds_count{check="budget"} 0.0
agentguard_check_duration_seconds_sum{check="budget"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="1e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="2.5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="5e-06"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="1e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="2.5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="5e-05"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="0.0001"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="0.00025"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="0.0005"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="0.001"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="0.01"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="0.1"} 0.0
agentguard_check_duration_seconds_bucket{check="schema",le="+Inf"} 0.0
agentguard_check_duration_seconds_count{check="schema"} 0.0
agentguard_check_duration_seconds_sum{check="schema"} 0.0
# HELP agentguard_guard_errors_total Where did the guard itself fail and let the application go on without it?
# TYPE agentguard_guard_errors_total counter
agentguard_guard_errors_total{where="on_finding"} 0.0
agentguard_guard_errors_total{where="approve"} 0.0
agentguard_guard_errors_total{where="check loop"} 0.0
agentguard_guard_errors_total{where="check dedup"} 0.0
agentguard_guard_errors_total{where="check plan"} 0.0
agentguard_guard_errors_total{where="check memory"} 0.0
agentguard_guard_errors_total{where="check effects"} 0.0
agentguard_guard_errors_total{where="check budget"} 0.0
agentguard_guard_errors_total{where="check schema"} 0.0
# HELP agentguard_state_bytes How much memory do results that are kept, and observed text, take?
# TYPE agentguard_state_bytes gauge
agentguard_state_bytes{part="values"} 0.0
agentguard_state_bytes{part="observations"} 0.0
# HELP agentguard_state_dropped_total Is a cap biting: how many results, observed texts and runs were dropped early?
# TYPE agentguard_state_dropped_total counter
agentguard_state_dropped_total{part="values"} 0.0
agentguard_state_dropped_total{part="observations"} 0.0
agentguard_state_dropped_total{part="runs"} 0.0
# HELP agentguard_label_overflow_total Is a label cap biting: how many observations went to `__other__`?
# TYPE agentguard_label_overflow_total counter
agentguard_label_overflow_total{metric="agentguard_steps_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_repeats_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_findings_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_runs_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_executed_after_block_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_dedup_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_side_effects_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_duplicate_side_effects_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_side_effects_unsettled"} 0.0
agentguard_label_overflow_total{metric="agentguard_plan_errors_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_memory_writes_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_check_duration_seconds"} 0.0
agentguard_label_overflow_total{metric="agentguard_guard_errors_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_state_bytes"} 0.0
agentguard_label_overflow_total{metric="agentguard_state_dropped_total"} 0.0
agentguard_label_overflow_total{metric="agentguard_unguarded_calls_total"} 0.0
# HELP agentguard_unguarded_calls_total How many calls passed the guard because the program said so?
# TYPE agentguard_unguarded_calls_total counter
# HELP agentguard_run_steps How long are runs?
# TYPE agentguard_run_steps histogram
agentguard_run_steps_bucket{le="1.0"} 0.0
agentguard_run_steps_bucket{le="2.0"} 0.0
agentguard_run_steps_bucket{le="5.0"} 1.0
agentguard_run_steps_bucket{le="10.0"} 1.0
agentguard_run_steps_bucket{le="20.0"} 1.0
agentguard_run_steps_bucket{le="50.0"} 1.0
agentguard_run_steps_bucket{le="100.0"} 1.0
agentguard_run_steps_bucket{le="200.0"} 1.0
agentguard_run_steps_bucket{le="500.0"} 1.0
agentguard_run_steps_bucket{le="1000.0"} 1.0
agentguard_run_steps_bucket{le="+Inf"} 1.0
agentguard_run_steps_count 1.0
agentguard_run_steps_sum 4.0
# HELP gen_ai_invoke_agent_tool_calls How many tool calls does a run make?
# TYPE gen_ai_invoke_agent_tool_calls histogram
gen_ai_invoke_agent_tool_calls_bucket{le="1.0"} 0.0
gen_ai_invoke_agent_tool_calls_bucket{le="2.0"} 1.0
gen_ai_invoke_agent_tool_calls_bucket{le="4.0"} 1.0
gen_ai_invoke_agent_tool_calls_bucket{le="8.0"} 1.0
gen_ai_invoke_agent_tool_calls_bucket{le="16.0"} 1.0
gen_ai_invoke_agent_tool_calls_bucket{le="32.0"} 1.0
gen_ai_invoke_agent_tool_calls_bucket{le="64.0"} 1.0
gen_ai_invoke_agent_tool_calls_bucket{le="128.0"} 1.0
gen_ai_invoke_agent_tool_calls_bucket{le="+Inf"} 1.0
gen_ai_invoke_agent_tool_calls_count 1.0
gen_ai_invoke_agent_tool_calls_sum 2.0
# HELP gen_ai_invoke_agent_inference_calls How many model calls does a run make?
# TYPE gen_ai_invoke_agent_inference_calls histogram
gen_ai_invoke_agent_inference_calls_bucket{le="1.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="2.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="4.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="8.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="16.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="32.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="64.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="128.0"} 1.0
gen_ai_invoke_agent_inference_calls_bucket{le="+Inf"} 1.0
gen_ai_invoke_agent_inference_calls_count 1.0
gen_ai_invoke_agent_inference_calls_sum 1.0
""")  # noqa: E501 - lines of the page
