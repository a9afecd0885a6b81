"""Counts what happens, in a registry of prometheus_client.

One recorder serves every way out: a scrape, and OTLP through `sinks.otlp_bridge`. An OpenTelemetry
counter costs about twenty times as much per step as one here.

A series whose first sample is not 0 hides its first increment from `increase()`. So series of closed
sets are there from the start, and those of an agent, a tool or a pair from its first step on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Final

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Gauge

from otel_agentguard import semconv
from otel_agentguard.events import (
    Compaction,
    Crash,
    Event,
    Handoff,
    Memory,
    Message,
    ModelCall,
    Plan,
    Resume,
    Similarity,
    ToolCall,
    Turn,
)
from otel_agentguard.findings import Finding
from otel_agentguard.forks import new_lock
from otel_agentguard.protocols import RunInfo
from otel_agentguard.sinks.declared import Declared
from otel_agentguard.sinks.labels import MAX_AGENTS, MAX_PLACES, MAX_TOOLS, Names, Pairs

_logger = logging.getLogger("otel_agentguard")

_LOOK_EVERY_S = 1.0
_KINDS: Final[Mapping[type[Event], str]] = {
    ToolCall: "tool",
    Message: "message",
    ModelCall: "model",
    Handoff: "handoff",
    Turn: "turn",
    Plan: "plan",
    Memory: "memory",
    Compaction: "compaction",
    Crash: "crash",
    Resume: "resume",
}
_LADDER: Final = (
    *product(("loop", "cycle", "pingpong"), ("hint", "block", "stop")),
    ("near", "hint"),
    ("semantic", "hint"),
)


class PrometheusSink:
    """A `Sink` that counts; thread safe, never waits on anything but a short lock.

    Labels of names that applications or models choose are capped: 100 agents, 100 tools and 300 pairs
    of them, then `__other__`, which `agentguard_label_overflow_total` counts.

    In multiprocess mode (`PROMETHEUS_MULTIPROC_DIR` is set) gauges add up over the processes that are
    alive, except for what these share, and there are no exemplars.

    Args:
        registry: Where the metrics are registered; a new registry when it is None.

    Attributes:
        registry: The registry, to serve or to push from.

    Raises:
        ConfigError: The registry already holds metrics of these names.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._in_files = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._looks: list[Callable[[], None]] = []
        self._look_after_s = 0.0
        self._modes = {"enforce"}
        self._tallies: dict[str, _Tally] = {}
        agents, tools = Names(MAX_AGENTS), Names(MAX_TOOLS)
        checks, places = Names(MAX_PLACES, semconv.CHECKS), Names(MAX_PLACES)
        names = {"agent": agents, "tool": tools, "check": checks, "where": places}
        declared = self._declared = Declared(self.registry, names, Pairs(agents, tools))

        self._steps = declared.counter(semconv.STEPS_TOTAL, self._step_born)
        self._repeats = declared.counter(semconv.REPEATS_TOTAL)
        self._findings = declared.counter(semconv.FINDINGS_TOTAL)
        self._runs = declared.counter(semconv.RUNS_TOTAL)
        self._late = declared.counter(semconv.EXECUTED_AFTER_BLOCK_TOTAL)
        self._dedup = declared.counter(semconv.DEDUP_TOTAL, self._dedup_born)
        self._effects = declared.counter(semconv.SIDE_EFFECTS_TOTAL, self._effect_born)
        self._duplicates = declared.counter(semconv.DUPLICATE_SIDE_EFFECTS_TOTAL, self._duplicate_born)
        self._plan_errors = declared.counter(semconv.PLAN_ERRORS_TOTAL)
        self._memory_writes = declared.counter(semconv.MEMORY_WRITES_TOTAL)
        self._guard_errors = declared.counter(semconv.GUARD_ERRORS_TOTAL)
        self._dropped = declared.counter(semconv.STATE_DROPPED_TOTAL)
        self._unguarded = declared.counter(semconv.UNGUARDED_CALLS_TOTAL)
        self._durations = declared.histogram(semconv.CHECK_DURATION_SECONDS)
        self._state = declared.gauge(semconv.STATE_BYTES)
        self._unsettled = declared.gauge(semconv.SIDE_EFFECTS_UNSETTLED)
        self._with_unsettled: set[Gauge] = set()
        self._active = declared.gauges[semconv.ACTIVE_RUNS]
        self._saved_calls = declared.counters[semconv.SAVED_CALLS_TOTAL]
        self._saved_seconds = declared.counters[semconv.SAVED_SECONDS_TOTAL]
        self._wasted_calls = declared.counters[semconv.WASTED_CALLS_TOTAL]
        self._wasted_tokens = declared.counters[semconv.WASTED_TOKENS_TOTAL]
        self._drift = declared.histograms[semconv.PLAN_DRIFT_RATIO]
        self._run_steps = declared.histograms[semconv.RUN_STEPS]
        self._run_tool_calls = declared.histograms[semconv.INVOKE_AGENT_TOOL_CALLS]
        self._run_model_calls = declared.histograms[semconv.INVOKE_AGENT_INFERENCE_CALLS]
        self._open_closed_sets()

    def close(self) -> None:
        """Take the metrics out of the registry again; what is counted afterwards shows nowhere."""
        self._declared.withdraw()

    def looked_up(self, metric: str, look: Callable[[], object], *, ask: Callable[[], object] | None = None) -> None:
        """Have a gauge or counter brought up to date before it is read.

        In multiprocess mode, where pages are made of files, it is done when a run ends, once a second at most.

        Args:
            metric: Its name.
            look: Sets it; called in any thread.
            ask: What is called when a run ends, which must wait for nothing. Only where this is given may `look`
                wait for a moment, as whoever reads the metrics waits too.
        """

        def contained(look: Callable[[], object]) -> None:
            try:
                look()
            except Exception:
                _logger.exception("agentguard: %s could not be looked up", metric)
                self.failed("metrics")

        declared = self._declared
        (declared.gauges.get(metric) or declared.counters[metric]).look = partial(contained, look)
        self._looks.append(partial(contained, ask or look))

    def run_opened(self, run: RunInfo) -> None:
        """See `Sink`."""
        self._modes.add((run.settings.mode_forced or run.settings.mode).value)
        self._tallies[run.run_id] = _Tally()
        self._active.inc()

    def stepped(self, run: RunInfo, event: Event) -> None:
        """See `Sink`.

        A call that ran although it is marked redundant counts as wasted, one that the guard answered or
        refused as saved. The tokens of a model call are wasted when it repeats, or when all tool calls up
        to the next one are redundant. Seconds saved are told through `saved`.
        """
        tool = ""
        if isinstance(event, ToolCall):
            tool = event.tool
            if event.served_from is not None:
                self._saved_calls.inc()
            elif event.redundant:
                self._wasted_calls.inc()
            if (tally := self._tallies.get(run.run_id)) is not None:
                tally.count_tool_call(event)
        elif isinstance(event, ModelCall) and (tally := self._tallies.get(run.run_id)) is not None:
            self._wasted_tokens.inc(tally.count_model_call(event))
        elif isinstance(event, Memory) and event.verdict is not None:
            self.memory_write(event.kind, event.verdict)
        self._steps.at(_KINDS.get(type(event), semconv.OTHER), event.agent, tool).inc()
        if event.repeats:
            self._repeats.at(event.agent, tool, event.similarity or Similarity.EXACT).inc()
        for code in event.plan_errors:
            self.plan_error(code)

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        """See `Sink`."""
        agent = finding.agent or run.agent
        series = self._findings.at(finding.check, finding.kind.value, str(finding.action), mode, agent)
        series.inc(1, self._exemplar())

    def run_closed(self, run: RunInfo, outcome: str, steps: int) -> None:
        """See `Sink`."""
        self._runs.at(outcome).inc()
        self._active.dec()
        self._run_steps.observe(steps)
        if run.plan_drift is not None:
            self.plan_drift(run.plan_drift)
        if (tally := self._tallies.pop(run.run_id, None)) is not None:
            self._run_tool_calls.observe(tally.tool_calls)
            self._run_model_calls.observe(tally.model_calls)
            self._wasted_tokens.inc(tally.wasted_tokens())
        if self._in_files and time.monotonic() >= self._look_after_s:
            self._look_after_s = time.monotonic() + _LOOK_EVERY_S
            for look in self._looks:
                look()

    def failed(self, where: str) -> None:
        """See `Sink`."""
        self._guard_errors.at(where).inc()

    def timed(self, check: str, seconds: float) -> None:
        """See `Sink`."""
        self._durations.at(check).observe(seconds)

    def executed_after_block(self, agent: str, tool: str) -> None:
        """Count a body that started after a block or stop, in enforce mode."""
        self._late.at(agent, tool).inc()

    def unguarded(self, tool: str) -> None:
        """Count a call that the program let past the guard."""
        self._unguarded.at(tool).inc()

    def state(self, part: str, size_bytes: int) -> None:
        """Say how many bytes one part of the state takes now: `values` or `observations`."""
        self._state.at(part).set(size_bytes)

    def dropped(self, part: str, count: int = 1) -> None:
        """Count pieces of state that a cap dropped."""
        self._dropped.at(part).inc(max(count, 0))

    def dedup(self, tool: str, outcome: str) -> None:
        """Count what the cache did for a call: `hit`, `miss`, `invalidated`, `coalesced` or `uncacheable`."""
        self._dedup.at(tool, outcome).inc()

    def declare_side_effect_tool(self, tool: str) -> None:
        """Make all series of a side-effect tool, so that its first effect is seen as an increase."""
        self._effects.at(tool, semconv.SIDE_EFFECT_OUTCOMES[0])

    def side_effect(self, tool: str, outcome: str) -> None:
        """Count what became of a side effect, one of `semconv.SIDE_EFFECT_OUTCOMES`."""
        self._effects.at(tool, outcome).inc(1, self._exemplar())

    def unsettled(self, counts: Mapping[str, int]) -> None:
        """Say how many side effects have an outcome that nobody knows; one thread at a time does.

        Args:
            counts: By tool. A tool that is not among them has none any more.
        """
        sums = dict.fromkeys(self._with_unsettled, 0)
        for tool, count in counts.items():
            series = self._unsettled.at(tool)
            sums[series] = sums.get(series, 0) + count
        self._with_unsettled.update(sums)
        for series, count in sums.items():
            series.set(count)

    def duplicate_side_effect(self, tool: str, certainty: str) -> None:
        """Count a duplicate that was `prevented`, is `possible` or is `confirmed`."""
        self._duplicates.at(tool, certainty).inc(1, self._exemplar())

    def saved(self, calls: int = 0, seconds: float = 0.0) -> None:
        """Count what the guard saved.

        Args:
            calls: Bodies that did not run and that no event shows: those that came as events are counted already.
            seconds: How long the bodies would have taken.
        """
        self._saved_calls.inc(max(calls, 0))
        self._saved_seconds.inc(max(seconds, 0.0))

    def plan_error(self, code: str) -> None:
        """Count one error of a plan, one of `semconv.PLAN_ERROR_CODES`."""
        self._plan_errors.at(code).inc()

    def plan_drift(self, ratio: float) -> None:
        """Take in how far a run strayed from its plan, 0 to 1."""
        self._drift.observe(ratio)

    def memory_write(self, kind: str, verdict: str) -> None:
        """Count a write to long-term memory and what its evidence was worth."""
        self._memory_writes.at(kind, verdict).inc()

    def _exemplar(self) -> dict[str, str] | None:
        if self._in_files:
            return None
        span = trace.get_current_span().get_span_context()
        if not (span.is_valid and span.trace_flags.sampled):
            return None
        return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}

    def _step_born(self, labels: tuple[str, ...]) -> None:
        kind, agent, tool = labels
        if kind == "tool":
            self._repeats.at(agent, tool, Similarity.EXACT.value)
        for (found, action), mode in product(_LADDER, tuple(self._modes)):
            self._findings.at("loop", found, action, mode, agent)

    def _dedup_born(self, labels: tuple[str, ...]) -> None:
        for outcome in semconv.DEDUP_OUTCOMES:
            self._dedup.at(labels[0], outcome)

    def _effect_born(self, labels: tuple[str, ...]) -> None:
        for outcome in semconv.SIDE_EFFECT_OUTCOMES:
            self._effects.at(labels[0], outcome)
        self._duplicates.at(labels[0], semconv.CERTAINTIES[0])

    def _duplicate_born(self, labels: tuple[str, ...]) -> None:
        for certainty in semconv.CERTAINTIES:
            self._duplicates.at(labels[0], certainty)

    def _open_closed_sets(self) -> None:
        for check in semconv.CHECKS:
            self._durations.at(check)
        for outcome in semconv.RUN_OUTCOMES:
            self._runs.at(outcome)
        for code in semconv.PLAN_ERROR_CODES:
            self._plan_errors.at(code)
        for kind, verdict in product(semconv.MEMORY_KINDS, semconv.MEMORY_VERDICTS):
            self._memory_writes.at(kind, verdict)
        for part in semconv.STATE_PARTS:
            self._state.at(part)
        for part in semconv.DROPPED_PARTS:
            self._dropped.at(part)
        for where in ("on_finding", "approve", *(f"check {check}" for check in semconv.CHECKS)):
            self._guard_errors.at(where)


class _Tally:
    """What one run has done so far, for the histograms and for the tokens that repetition cost."""

    __slots__ = ("_drew", "_lock", "_redundant_only", "_repeats", "_tokens", "model_calls", "tool_calls")

    def __init__(self) -> None:
        self._lock = new_lock()
        self.tool_calls = 0
        self.model_calls = 0
        self._tokens = 0
        self._repeats = False
        self._drew = False
        self._redundant_only = True

    def count_tool_call(self, call: ToolCall) -> None:
        with self._lock:
            self.tool_calls += 1
            self._drew = True
            self._redundant_only = self._redundant_only and call.redundant

    def count_model_call(self, call: ModelCall) -> int:
        """Begin a new request; gives the tokens that the one before wasted."""
        with self._lock:
            wasted = self.wasted_tokens()
            self.model_calls += 1
            self._tokens = (call.input_tokens or 0) + (call.output_tokens or 0)
            self._repeats = call.repeats > 0
            self._drew, self._redundant_only = False, True
        return wasted

    def wasted_tokens(self) -> int:
        """Tokens of the latest request, when it repeats an earlier one or drew redundant calls only."""
        return self._tokens if self._repeats or (self._drew and self._redundant_only) else 0
