from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from otel_agentguard import semconv
from otel_agentguard.config import Mode, Settings
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import (
    Compaction,
    Crash,
    Event,
    Handoff,
    Memory,
    MemoryOperation,
    Message,
    ModelCall,
    Plan,
    Resume,
    Similarity,
    ToolCall,
    Turn,
)
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.protocols import RunInfo, Sink
from otel_agentguard.semconv import METRICS, OTHER
from otel_agentguard.sinks.prometheus import PrometheusSink

FINDING = Finding(
    check="loop",
    kind=Kind.PINGPONG,
    severity=Severity.ERROR,
    step=9,
    signature=b"s",
    message="",
    explanation="",
    action=Action.BLOCK,
    agent="coder",
)


def call(tool: str = "read_file", agent: str = "coder", *, repeats: int = 0, **marks: object) -> ToolCall:
    event = ToolCall(tool=tool, agent=agent, repeats=repeats)
    for name, value in marks.items():
        setattr(event, name, value)
    return event


def value(sink: PrometheusSink, name: str, **labels: str) -> float | None:
    return sink.registry.get_sample_value(name, labels)


def series(sink: PrometheusSink, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in sink.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_it_is_a_sink() -> None:
    sink: Sink = PrometheusSink()

    assert {name for name in vars(Sink) if not name.startswith("_")} <= set(dir(sink))


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (Message(agent="coder"), "message"),
        (ModelCall(agent="coder"), "model"),
        (Handoff(agent="coder", to="tester"), "handoff"),
        (Turn(agent="coder"), "turn"),
        (Plan(agent="coder"), "plan"),
        (Memory(agent="coder", operation=MemoryOperation.WRITE), "memory"),
        (Compaction(agent="coder"), "compaction"),
        (Crash(agent="coder"), "crash"),
        (Resume(agent="coder"), "resume"),
    ],
)
def test_every_kind_of_event_is_a_step(sink: PrometheusSink, run: RunInfo, event: Event, kind: str) -> None:
    sink.stepped(run, event)

    assert series(sink, "agentguard_steps_total") == {(kind, "coder", ""): 1}


def test_a_tool_step_is_counted_by_agent_and_tool(sink: PrometheusSink, run: RunInfo) -> None:
    for tool in ("read_file", "grep", "read_file"):
        sink.stepped(run, call(tool))

    assert series(sink, "agentguard_steps_total") == {("tool", "coder", "read_file"): 2, ("tool", "coder", "grep"): 1}


def test_an_event_of_an_unknown_kind_is_counted_as_other(sink: PrometheusSink, run: RunInfo) -> None:
    class Dream(Event):
        pass

    sink.stepped(run, Dream(agent="coder"))

    assert series(sink, "agentguard_steps_total") == {(OTHER, "coder", ""): 1}


def test_a_step_repeats_at_most_once_however_often_it_has_happened(sink: PrometheusSink, run: RunInfo) -> None:
    sink.stepped(run, call())
    sink.stepped(run, call(repeats=1, similarity=Similarity.EXACT))
    sink.stepped(run, call(repeats=6, similarity=Similarity.NEAR))

    assert series(sink, "agentguard_repeats_total") == {
        ("coder", "read_file", "exact"): 1,
        ("coder", "read_file", "near"): 1,
    }


def test_the_repeats_of_a_tool_start_at_0_with_its_first_step(sink: PrometheusSink, run: RunInfo) -> None:
    sink.stepped(run, call())

    assert value(sink, "agentguard_repeats_total", agent="coder", tool="read_file", similarity="exact") == 0


def test_a_message_that_repeats_is_counted_without_a_tool(sink: PrometheusSink, run: RunInfo) -> None:
    sink.stepped(run, Message(agent="coder", repeats=1, similarity=Similarity.SEMANTIC))

    assert series(sink, "agentguard_repeats_total") == {("coder", "", "semantic"): 1}


def test_a_finding_is_counted_with_what_was_done_about_it(sink: PrometheusSink, run: RunInfo) -> None:
    sink.found(run, FINDING, "enforce")
    sink.found(run, replace(FINDING, agent=""), "observe")

    labels = {"check": "loop", "kind": "pingpong", "action": "block", "agent": "coder"}
    assert value(sink, "agentguard_findings_total", mode="enforce", **labels) == 1
    assert value(sink, "agentguard_findings_total", mode="observe", **labels) == 1


def test_a_finding_of_somebody_elses_check_is_counted(sink: PrometheusSink, run: RunInfo) -> None:
    sink.found(run, replace(FINDING, check="my_check"), "enforce")

    assert ("my_check", "pingpong", "block", "enforce", "coder") in series(sink, "agentguard_findings_total")


def test_the_loop_findings_of_an_agent_start_at_0_with_its_first_step(sink: PrometheusSink, run: RunInfo) -> None:
    sink.stepped(run, call())

    found = series(sink, "agentguard_findings_total")
    assert set(found.values()) == {0}
    assert ("loop", "loop", "stop", "enforce", "coder") in found
    assert ("loop", "pingpong", "hint", "enforce", "coder") in found
    assert len(found) == 11


def test_the_loop_findings_of_an_observed_agent_start_at_0_too(sink: PrometheusSink) -> None:
    run = RunInfo(run_id="r", agent="coder", settings=Settings(mode=Mode.OBSERVE))

    sink.run_opened(run)
    sink.stepped(run, call())

    assert ("loop", "loop", "stop", "observe", "coder") in series(sink, "agentguard_findings_total")


def test_a_run_is_alive_until_it_closes(sink: PrometheusSink, run: RunInfo) -> None:
    sink.run_opened(run)
    alive = value(sink, "agentguard_active_runs")
    sink.run_closed(run, "stopped_by_guard", 7)

    assert alive == 1
    assert value(sink, "agentguard_active_runs") == 0
    assert series(sink, "agentguard_runs_total") == {("completed",): 0, ("failed",): 0, ("stopped_by_guard",): 1}


def test_a_run_gives_one_observation_of_its_steps_and_calls(sink: PrometheusSink, run: RunInfo) -> None:
    sink.run_opened(run)
    for event in (call(), call(), call(), ModelCall(), Message()):
        sink.stepped(run, event)

    sink.run_closed(run, "completed", 5)

    assert value(sink, "agentguard_run_steps_sum") == 5
    assert value(sink, "gen_ai_invoke_agent_tool_calls_sum") == 3
    assert value(sink, "gen_ai_invoke_agent_inference_calls_sum") == 1
    for name in ("agentguard_run_steps", "gen_ai_invoke_agent_tool_calls", "gen_ai_invoke_agent_inference_calls"):
        assert value(sink, f"{name}_count") == 1


def test_calls_of_one_run_do_not_count_for_another(sink: PrometheusSink, run: RunInfo) -> None:
    other = replace(run, run_id="run-2")
    sink.run_opened(run)
    sink.run_opened(other)
    sink.stepped(other, call())

    sink.run_closed(run, "completed", 0)

    assert value(sink, "gen_ai_invoke_agent_tool_calls_sum") == 0


def test_an_event_after_the_end_of_its_run_still_counts_as_a_step(sink: PrometheusSink, run: RunInfo) -> None:
    sink.run_opened(run)
    sink.run_closed(run, "completed", 0)

    sink.stepped(run, call())

    assert series(sink, "agentguard_steps_total") == {("tool", "coder", "read_file"): 1}
    assert value(sink, "gen_ai_invoke_agent_tool_calls_sum") == 0


@pytest.mark.parametrize("served_from", ["cache", "replay", "guard"])
def test_a_call_whose_body_did_not_run_is_saved(sink: PrometheusSink, run: RunInfo, served_from: str) -> None:
    sink.stepped(run, call(redundant=True, served_from=served_from))

    assert value(sink, "agentguard_saved_calls_total") == 1
    assert value(sink, "agentguard_wasted_calls_total") == 0


def test_a_redundant_call_whose_body_ran_is_wasted(sink: PrometheusSink, run: RunInfo) -> None:
    sink.stepped(run, call(redundant=True))

    assert value(sink, "agentguard_saved_calls_total") == 0
    assert value(sink, "agentguard_wasted_calls_total") == 1


@pytest.mark.parametrize(
    ("marks", "wasted"),
    [((True, True), 120), ((True, False), 0), ((), 0)],
    ids=["redundant calls only", "one new call", "no call"],
)
def test_tokens_are_wasted_by_a_model_call_that_drew_redundant_calls_only(
    sink: PrometheusSink, run: RunInfo, marks: tuple[bool, ...], wasted: int
) -> None:
    sink.run_opened(run)
    sink.stepped(run, ModelCall(input_tokens=100, output_tokens=20))
    for redundant in marks:
        sink.stepped(run, call(redundant=redundant))

    sink.stepped(run, ModelCall(input_tokens=7, output_tokens=None))
    sink.run_closed(run, "completed", 4)

    assert value(sink, "agentguard_wasted_tokens_total") == wasted


def test_tokens_of_the_last_model_call_are_settled_when_the_run_ends(sink: PrometheusSink, run: RunInfo) -> None:
    sink.run_opened(run)
    sink.stepped(run, ModelCall(input_tokens=100, output_tokens=20))
    sink.stepped(run, call(redundant=True, served_from="guard"))

    sink.run_closed(run, "stopped_by_guard", 2)

    assert value(sink, "agentguard_wasted_tokens_total") == 120


def test_tokens_of_a_model_call_that_repeats_are_wasted(sink: PrometheusSink, run: RunInfo) -> None:
    sink.run_opened(run)
    sink.stepped(run, ModelCall(input_tokens=100, output_tokens=20, repeats=1, similarity=Similarity.EXACT))

    sink.run_closed(run, "completed", 1)

    assert value(sink, "agentguard_wasted_tokens_total") == 120


def test_seconds_saved_add_up_and_a_clock_that_went_back_saves_nothing(sink: PrometheusSink) -> None:
    sink.saved(seconds=1.5)
    sink.saved(calls=1, seconds=-3.0)

    assert value(sink, "agentguard_saved_seconds_total") == 1.5
    assert value(sink, "agentguard_saved_calls_total") == 1


def test_all_series_of_a_side_effect_tool_exist_once_it_is_declared(sink: PrometheusSink) -> None:
    sink.declare_side_effect_tool("charge")

    assert series(sink, "agentguard_side_effects_total") == {
        ("charge", outcome): 0 for outcome in semconv.SIDE_EFFECT_OUTCOMES
    }
    assert series(sink, "agentguard_duplicate_side_effects_total") == {
        ("charge", certainty): 0 for certainty in semconv.CERTAINTIES
    }


def test_all_series_of_an_undeclared_side_effect_tool_come_with_its_first_effect(sink: PrometheusSink) -> None:
    sink.side_effect("charge", "executed")

    assert value(sink, "agentguard_side_effects_total", tool="charge", outcome="executed") == 1
    assert value(sink, "agentguard_side_effects_total", tool="charge", outcome="unknown") == 0
    assert value(sink, "agentguard_duplicate_side_effects_total", tool="charge", certainty="confirmed") == 0


def test_a_duplicate_is_counted_by_how_certain_it_is(sink: PrometheusSink) -> None:
    sink.duplicate_side_effect("charge", "prevented")

    assert series(sink, "agentguard_duplicate_side_effects_total") == {
        ("charge", "prevented"): 1,
        ("charge", "possible"): 0,
        ("charge", "confirmed"): 0,
    }


def test_all_outcomes_of_the_cache_exist_for_a_tool_that_it_has_seen(sink: PrometheusSink) -> None:
    sink.dedup("grep", "miss")

    assert series(sink, "agentguard_dedup_total") == {
        ("grep", "hit"): 0,
        ("grep", "miss"): 1,
        ("grep", "invalidated"): 0,
        ("grep", "coalesced"): 0,
        ("grep", "uncacheable"): 0,
    }


def test_every_other_counter_counts(sink: PrometheusSink, run: RunInfo) -> None:
    sink.executed_after_block("coder", "rm")
    sink.unguarded("grep")
    sink.dropped("values", 3)
    sink.state("observations", 4096)
    sink.plan_error("cycle")
    sink.plan_drift(0.25)
    sink.memory_write("fact", "contradicted")
    sink.failed("sink LogSink")
    sink.timed("loop", 2e-5)

    assert series(sink, "agentguard_executed_after_block_total") == {("coder", "rm"): 1}
    assert series(sink, "agentguard_unguarded_calls_total") == {("grep",): 1}
    assert value(sink, "agentguard_state_dropped_total", part="values") == 3
    assert value(sink, "agentguard_state_bytes", part="observations") == 4096
    assert value(sink, "agentguard_plan_errors_total", code="cycle") == 1
    assert value(sink, "agentguard_plan_drift_ratio_bucket", le="0.3") == 1
    assert value(sink, "agentguard_memory_writes_total", kind="fact", verdict="contradicted") == 1
    assert value(sink, "agentguard_guard_errors_total", where="sink LogSink") == 1
    assert value(sink, "agentguard_check_duration_seconds_bucket", check="loop", le="2.5e-05") == 1
    assert value(sink, "agentguard_check_duration_seconds_bucket", check="loop", le="1e-05") == 0


@pytest.mark.parametrize("spec", [s for s in METRICS if not set(s.labels) - set(s.values)], ids=lambda spec: spec.name)
def test_a_closed_set_is_there_from_the_start_at_0(sink: PrometheusSink, spec: semconv.MetricSpec) -> None:
    size = 1
    for values in spec.values.values():
        size *= len(values)

    name = spec.name if spec.type != "histogram" else f"{spec.name}_count"
    assert list(series(sink, name).values()) == [0] * size


def test_the_checks_and_places_of_ours_are_there_from_the_start_at_0(sink: PrometheusSink) -> None:
    assert series(sink, "agentguard_check_duration_seconds_count") == {(check,): 0 for check in semconv.CHECKS}
    assert series(sink, "agentguard_guard_errors_total")[("check loop",)] == 0


def test_every_metric_is_declared_from_the_start(sink: PrometheusSink) -> None:
    declared = {family.name: (family.type, family.documentation) for family in sink.registry.collect()}

    assert declared == {spec.name.removesuffix("_total"): (spec.type, spec.question) for spec in METRICS}


def test_the_101st_agent_is_other(sink: PrometheusSink, run: RunInfo) -> None:
    for n in range(103):
        sink.stepped(run, Message(agent=f"agent-{n}"))

    steps = series(sink, "agentguard_steps_total")
    assert len(steps) == 101
    assert steps["message", OTHER, ""] == 3
    assert value(sink, "agentguard_label_overflow_total", metric="agentguard_steps_total") == 3


def test_the_101st_tool_is_other(sink: PrometheusSink, run: RunInfo) -> None:
    for n in range(102):
        sink.unguarded(f"tool-{n}")

    calls = series(sink, "agentguard_unguarded_calls_total")
    assert len(calls) == 101
    assert calls[(OTHER,)] == 2
    assert value(sink, "agentguard_label_overflow_total", metric="agentguard_unguarded_calls_total") == 2


def test_the_301st_pair_is_other_and_no_step_is_lost(sink: PrometheusSink, run: RunInfo) -> None:
    for n in range(310):
        sink.stepped(run, call(f"tool-{n % 31}", f"agent-{n // 31}"))

    steps = series(sink, "agentguard_steps_total")
    assert len(steps) == 301
    assert steps["tool", OTHER, OTHER] == 10
    assert sum(steps.values()) == 310


def test_a_repeat_has_the_same_labels_as_its_step_beyond_the_caps(sink: PrometheusSink, run: RunInfo) -> None:
    for n in range(310):
        sink.stepped(run, call(f"tool-{n % 31}", f"agent-{n // 31}"))

    sink.stepped(run, call("tool-30", "agent-9", repeats=1, similarity=Similarity.EXACT))

    assert value(sink, "agentguard_steps_total", kind="tool", agent=OTHER, tool=OTHER) == 11
    assert value(sink, "agentguard_repeats_total", agent=OTHER, tool=OTHER, similarity="exact") == 1


def test_a_page_at_the_caps_has_a_bounded_number_of_series(sink: PrometheusSink, run: RunInfo) -> None:
    before = sum(len(family.samples) for family in sink.registry.collect())
    for n in range(2000):
        sink.stepped(run, call(f"tool-{n % 150}", f"agent-{n % 130}", repeats=1, similarity=Similarity.EXACT))

    after = {family.name: len(family.samples) for family in sink.registry.collect()}
    created = 2  # each counter is two samples: its value, and when it was made
    assert after["agentguard_steps"] == 301 * created
    assert after["agentguard_repeats"] == 301 * created
    assert after["agentguard_findings"] == 101 * 11 * created
    assert sum(after.values()) == before + (301 + 301 + 101 * 11) * created


def test_an_outcome_that_nobody_knows_is_other_and_counted(sink: PrometheusSink, run: RunInfo) -> None:
    sink.run_closed(run, "exploded", 1)

    assert series(sink, "agentguard_runs_total")[(OTHER,)] == 1
    assert value(sink, "agentguard_label_overflow_total", metric="agentguard_runs_total") == 1


def test_a_name_that_cannot_be_written_does_not_break_the_page(sink: PrometheusSink, run: RunInfo) -> None:
    sink.stepped(run, call('bad\ud800"\n\\name'))

    page = openmetrics(sink.registry).decode()
    assert 'tool="bad?\\"\\n\\\\name"' in page
    assert list(text_string_to_metric_families(page))


def exemplars(sink: PrometheusSink, name: str) -> list[dict[str, str]]:
    families = text_string_to_metric_families(openmetrics(sink.registry).decode())
    return [
        sample.exemplar.labels
        for family in families
        for sample in family.samples
        if sample.name == name and sample.exemplar is not None
    ]


def count_inside_a_span(sink: PrometheusSink, run: RunInfo, sampler: Sampler) -> dict[str, str]:
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    with provider.get_tracer("test").start_as_current_span("execute_tool charge") as span:
        sink.found(run, FINDING, "enforce")
        sink.side_effect("charge", "executed")
        sink.duplicate_side_effect("charge", "confirmed")
        sink.stepped(run, call())
        context = span.get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def test_findings_and_side_effects_lead_to_their_trace(sink: PrometheusSink, run: RunInfo) -> None:
    ids = count_inside_a_span(sink, run, ALWAYS_ON)

    assert exemplars(sink, "agentguard_findings_total") == [ids]
    assert exemplars(sink, "agentguard_side_effects_total") == [ids]
    assert exemplars(sink, "agentguard_duplicate_side_effects_total") == [ids]
    assert exemplars(sink, "agentguard_steps_total") == []


def test_a_span_that_is_not_sampled_gives_no_exemplar(sink: PrometheusSink, run: RunInfo) -> None:
    count_inside_a_span(sink, run, ALWAYS_OFF)

    assert exemplars(sink, "agentguard_findings_total") == []


def test_nothing_outside_of_a_span_gives_an_exemplar(sink: PrometheusSink, run: RunInfo) -> None:
    sink.found(run, FINDING, "enforce")

    assert exemplars(sink, "agentguard_findings_total") == []


def test_threads_lose_no_count(sink: PrometheusSink, run: RunInfo) -> None:
    sink.run_opened(run)
    ready = threading.Barrier(8)

    def work(n: int) -> None:
        ready.wait()
        for step in range(500):
            sink.stepped(run, call(f"tool-{step % 50}", f"agent-{n}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.run_closed(run, "completed", 4000)

    steps = series(sink, "agentguard_steps_total")
    assert sum(steps.values()) == 4000
    assert len(steps) == 301
    assert value(sink, "gen_ai_invoke_agent_tool_calls_sum") == 4000


def test_a_second_sink_on_one_registry_is_refused_with_the_way_out() -> None:
    registry = CollectorRegistry()
    first = PrometheusSink(registry)

    with pytest.raises(ConfigError, match="a registry of its own"):
        PrometheusSink(registry)

    assert registry.get_sample_value("agentguard_active_runs") == 0
    first.close()


def test_a_registry_can_be_used_again_once_its_sink_is_closed() -> None:
    registry = CollectorRegistry()
    first = PrometheusSink(registry)
    first.close()
    first.close()

    PrometheusSink(registry)

    assert registry.get_sample_value("agentguard_active_runs") == 0


def test_the_effects_that_nobody_settled_are_told_by_tool_and_go_back_to_0_one_by_one(sink: PrometheusSink) -> None:
    pages = []
    for counts in ({"mail": 2, "pay": 1}, {"pay": 3}, {}, {"mail": 1}):
        sink.unsettled(counts)
        pages.append(series(sink, "agentguard_side_effects_unsettled"))

    assert pages == [
        {("mail",): 2, ("pay",): 1},
        {("mail",): 0, ("pay",): 3},
        {("mail",): 0, ("pay",): 0},
        {("mail",): 1, ("pay",): 0},
    ]


def test_the_effects_of_tools_beyond_the_cap_add_up(sink: PrometheusSink) -> None:
    counts = {f"tool-{n}": 2 for n in range(110)}
    sink.unsettled(counts)
    every = series(sink, "agentguard_side_effects_unsettled")
    sink.unsettled({tool: count for tool, count in counts.items() if tool not in ("tool-1", "tool-105")})
    fewer = series(sink, "agentguard_side_effects_unsettled")

    assert (len(every), sum(every.values()), every[(OTHER,)]) == (101, 220, 20)
    assert (len(fewer), sum(fewer.values()), fewer[(OTHER,)], fewer[("tool-1",)]) == (101, 216, 18, 0)


def test_the_effects_of_tools_whose_names_look_the_same_add_up(sink: PrometheusSink) -> None:
    long = "x" * 200

    sink.unsettled({f"{long}1": 1, f"{long}2": 2})

    assert list(series(sink, "agentguard_side_effects_unsettled").values()) == [3]


def test_what_is_looked_up_is_true_whenever_it_is_read(sink: PrometheusSink) -> None:
    taken = iter((10, 20))
    sink.looked_up("agentguard_state_bytes", lambda: sink.state("values", next(taken)))

    assert value(sink, "agentguard_state_bytes", part="values") == 10
    (alone,) = sink.registry.restricted_registry(["agentguard_state_bytes"]).collect()
    assert {sample.labels["part"]: sample.value for sample in alone.samples}["values"] == 20


def test_the_end_of_a_run_asks_and_does_not_look(run: RunInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    sink = PrometheusSink()
    done: list[str] = []
    sink.looked_up("agentguard_side_effects_unsettled", lambda: done.append("look"), ask=lambda: done.append("ask"))
    sink.looked_up("agentguard_state_bytes", lambda: done.append("bytes"))

    sink.run_opened(run)
    sink.run_closed(run, "completed", 1)
    at_the_end = done.copy()
    done.clear()
    list(sink.registry.collect())

    assert at_the_end == ["ask", "bytes"]
    assert sorted(done) == ["bytes", "look"]


def test_a_look_that_fails_leaves_the_page_whole_and_is_counted(sink: PrometheusSink) -> None:
    def look() -> None:
        raise RuntimeError("nothing to see")

    sink.state("values", 7)
    sink.looked_up("agentguard_state_bytes", look)

    assert value(sink, "agentguard_state_bytes", part="values") == 7
    assert value(sink, "agentguard_guard_errors_total", where="metrics") >= 1
