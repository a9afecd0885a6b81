from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import TraceState

from otel_agentguard.errors import ConfigError
from otel_agentguard.tracing.sampler import AgentGuardSampler, from_environment

SAMPLERS = [ALWAYS_OFF, ALWAYS_ON, ParentBased(ALWAYS_OFF), TraceIdRatioBased(0.5), ParentBased(TraceIdRatioBased(0.5))]


def agent_trace(world: Any) -> None:
    with world.tracer().start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
        world.genai_tool()
        with world.tracer().start_as_current_span("GET /"):
            pass


def sampled_by(sampler: Sampler, trace_ids: list[int]) -> int:
    wanted = [sampler.should_sample(None, trace_id, "invoke_agent a").decision for trace_id in trace_ids]
    return sum(decision is Decision.RECORD_AND_SAMPLE for decision in wanted)


@pytest.mark.parametrize("inner", SAMPLERS, ids=lambda sampler: sampler.get_description())
def test_the_guard_sees_every_agent_span_whatever_is_sampled(make_world: Any, inner: Sampler) -> None:
    world = make_world(sampler=AgentGuardSampler(inner))

    for _ in range(40):
        agent_trace(world)

    assert len(world.calls) == 40


@pytest.mark.parametrize("inner", SAMPLERS, ids=lambda sampler: sampler.get_description())
def test_what_is_exported_is_what_the_sampler_inside_samples(make_world: Any, inner: Sampler) -> None:
    world, trace_ids = make_world(sampler=AgentGuardSampler(inner)), []
    original = world.provider.id_generator.generate_trace_id

    def remembered() -> int:
        trace_ids.append(original())
        return trace_ids[-1]

    world.provider.id_generator.generate_trace_id = remembered
    for _ in range(40):
        agent_trace(world)

    assert len(world.exported) == 3 * sampled_by(inner, trace_ids)


def test_a_span_in_a_run_is_seen_although_nothing_else_shows_what_it_is(make_world: Any) -> None:
    world = make_world(sampler=AgentGuardSampler(ALWAYS_OFF))
    run = world.engine.open("r1")

    with world.inside(run), world.tracer().start_as_current_span("lookup") as span:
        span.set_attributes({"openinference.span.kind": "TOOL", "tool.name": "lookup"})

    assert [call.tool for call in world.calls] == ["lookup"]


def test_a_dropped_span_that_is_neither_in_a_run_nor_of_an_agent_stays_dropped(make_world: Any) -> None:
    world = make_world(sampler=AgentGuardSampler(ALWAYS_OFF))

    span = world.tracer().start_span("GET /", attributes={"http.request.method": "GET"})

    assert not span.is_recording()


def test_a_span_named_by_the_conventions_is_seen_before_it_has_attributes(make_world: Any) -> None:
    world = make_world(sampler=AgentGuardSampler(ALWAYS_OFF))

    with world.tracer().start_as_current_span("execute_tool lookup") as span:
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"})

    assert len(world.calls) == 1


def test_attributes_and_trace_state_are_kept() -> None:
    class Stateful(Sampler):
        def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
            return SamplingResult(Decision.DROP, None, TraceState([("vendor", "x")]))

        def get_description(self) -> str:
            return "Stateful"

    attributes = {"gen_ai.operation.name": "execute_tool"}

    result = AgentGuardSampler(Stateful()).should_sample(None, 1, "a", attributes=attributes)

    assert result.decision is Decision.RECORD_ONLY
    assert dict(result.attributes) == attributes
    assert result.trace_state == TraceState([("vendor", "x")])


def test_what_the_delegate_samples_is_passed_on_untouched() -> None:
    result = AgentGuardSampler(ALWAYS_ON).should_sample(None, 1, "execute_tool x", attributes={"k": "v"})

    assert result.decision is Decision.RECORD_AND_SAMPLE


@pytest.mark.parametrize(
    ("arg", "inner"),
    [
        (None, "ParentBased{root:AlwaysOnSampler"),
        ("", "ParentBased{root:AlwaysOnSampler"),
        ("always_on", "AlwaysOnSampler"),
        (" Always_Off ", "AlwaysOffSampler"),
        ("parentbased_always_off", "ParentBased{root:AlwaysOffSampler"),
        ("traceidratio:0.25", "TraceIdRatioBased{0.25}"),
        ("traceidratio=0.25", "TraceIdRatioBased{0.25}"),
        ("traceidratio", "TraceIdRatioBased{1.0}"),
        ("parentbased_traceidratio:0.1", "ParentBased{root:TraceIdRatioBased{0.1}"),
    ],
)
def test_the_environment_names_the_sampler_inside(arg: str | None, inner: str) -> None:
    assert from_environment(arg).get_description().startswith(f"AgentGuardSampler{{{inner}")


@pytest.mark.parametrize("arg", ["sometimes", "agentguard", "0.5", "traceidratio:2", "traceidratio:x", "always_on:0.5"])
def test_a_bad_sampler_argument_is_named_in_the_error(arg: str) -> None:
    with pytest.raises(ConfigError, match=f"OTEL_TRACES_SAMPLER_ARG.*{arg.partition(':')[2] or arg}"):
        from_environment(arg)


def test_an_unknown_sampler_gets_the_known_ones_named() -> None:
    with pytest.raises(ConfigError, match=r"always_on, always_off, .*parentbased_traceidratio:RATIO"):
        from_environment("sometimes")


def test_the_sdk_finds_the_sampler_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk._configuration import _import_sampler

    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "parentbased_traceidratio:0.5")

    sampler = _import_sampler("agentguard")

    assert isinstance(sampler, AgentGuardSampler)
