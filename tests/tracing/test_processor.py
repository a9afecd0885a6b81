from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from otel_agentguard.events import Event, Message, ModelCall, ToolCall, Turn
from otel_agentguard.findings import Action
from otel_agentguard.fingerprint import call_digest
from otel_agentguard.protocols import EndedSpan
from otel_agentguard.runs import Decision
from otel_agentguard.semconv import INSTRUMENTATION_SCOPE
from otel_agentguard.tracing import processor
from otel_agentguard.tracing.processor import AgentGuardSpanProcessor


def openinference_tool(world: Any, **attributes: Any) -> None:
    told = {
        "openinference.span.kind": "TOOL",
        "tool.name": "lookup",
        "input.value": '{"q": "x"}',
        "output.value": "found",
    }
    with world.tracer("openinference.instrumentation.framework").start_as_current_span("lookup") as span:
        span.set_attributes({**told, **{key.replace("__", "."): value for key, value in attributes.items()}})


def openllmetry_tool(world: Any) -> None:
    told = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "lookup",
        "traceloop.entity.input": '{"args": [], "kwargs": {"q": "x"}}',
        "traceloop.entity.output": '"found"',
    }
    with world.tracer("opentelemetry.instrumentation.framework").start_as_current_span("lookup.tool", attributes=told):
        pass


def seam_call(
    world: Any, run: Any, *, call_id: str | None = None, during: Callable[[], None] = lambda: None
) -> Decision:
    call = ToolCall(
        tool="lookup",
        arguments={"q": "x"},
        fingerprint=call_digest("lookup", {"q": "x"}),
        call_id=call_id,
        result="found",
        result_digest=b"r" * 16,
    )
    run.seen.begin(call)
    before: Decision = world.engine.before(run, call)
    if before.action < Action.BLOCK:
        during()
        world.engine.after(run, call)
    run.seen.end(call)
    return before


@pytest.mark.parametrize("tell", [lambda world: world.genai_tool(), openinference_tool, openllmetry_tool])
def test_a_tool_span_of_any_vocabulary_is_a_step_of_the_run(world: Any, tell: Callable[[Any], None]) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        tell(world)

    (call,) = world.calls
    assert (call.tool, call.arguments, call.step) == ("lookup", {"q": "x"}, 1)
    assert call.fingerprint == call_digest("lookup", {"q": "x"})


def test_attributes_that_are_set_at_the_start_only_are_read_too(world: Any) -> None:
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": '{"q": "x"}',
    }

    world.tracer().start_span("execute_tool lookup", attributes=told).end()

    assert world.calls[0].arguments == {"q": "x"}


def test_a_span_whose_every_attribute_is_set_at_the_end_is_read(world: Any) -> None:
    with world.tracer().start_as_current_span("lookup") as span:
        span.set_attributes({"openinference.span.kind": "TOOL", "tool.name": "lookup", "input.value": "x"})

    assert world.calls[0].arguments == {"input": "x"}


def test_spans_of_the_guard_itself_are_no_events(world: Any) -> None:
    told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}

    world.tracer(INSTRUMENTATION_SCOPE).start_span("execute_tool lookup", attributes=told).end()

    assert world.events == []


def test_spans_that_are_not_of_agents_are_no_events(world: Any) -> None:
    world.tracer().start_span("GET /", attributes={"http.request.method": "GET"}).end()

    assert world.events == []


def test_spans_inside_unguarded_code_are_no_events(world: Any) -> None:
    from dataclasses import replace

    from otel_agentguard.current import attach, scope

    run = world.engine.open("r1")

    with world.inside(run):
        token = attach(replace(scope(), unguarded=True))
        world.genai_tool()
        context.detach(token)

    assert world.events == []


def test_a_withheld_argument_leaves_the_call_without_identity(world: Any) -> None:
    for _ in range(9):
        world.genai_tool(arguments={"password": "__REDACTED__"})

    assert [call.fingerprint for call in world.calls] == [None] * 9
    assert world.sink.findings == []


def test_the_length_limit_of_the_provider_makes_cut_arguments_unknown(make_world: Any) -> None:
    from opentelemetry.sdk.trace import SpanLimits

    world = make_world(limits=SpanLimits(max_span_attribute_length=20))
    run = world.engine.open("r1")

    with world.inside(run):
        world.genai_tool(arguments={"q": "long enough to be cut"})
        world.genai_tool(arguments={"q": "short"})

    cut, whole = world.calls
    assert cut.fingerprint is None
    assert whole.fingerprint is not None


def test_the_run_in_the_context_goes_before_conversation_and_trace(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        world.genai_tool(**{"gen_ai.conversation.id": "c1"})

    assert [run_id for run_id, _ in world.sink.steps] == ["r1"]


def test_the_run_is_found_through_a_span_above_where_the_context_was_lost(world: Any) -> None:
    run = world.engine.open("r1")
    with world.inside(run):
        agent = world.tracer().start_span("invoke_agent coder")
    bare = trace.set_span_in_context(agent, context.Context())

    world.tracer().start_span(
        "execute_tool lookup", bare, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}
    ).end()

    assert [run_id for run_id, _ in world.sink.steps] == ["r1"]


def test_outside_of_runs_spans_of_one_conversation_share_a_run_across_traces(world: Any) -> None:
    world.genai_tool(**{"gen_ai.conversation.id": "c1"})
    world.genai_tool(**{"gen_ai.conversation.id": "c1"})

    assert len(world.sink.opened) == 1
    assert world.sink.opened[0].conversation == "c1"


def test_a_conversation_named_by_the_agent_span_counts_for_its_tools(world: Any) -> None:
    told = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c1"}

    with world.tracer().start_as_current_span("invoke_agent coder", attributes=told):
        world.genai_tool()

    assert [info.conversation for info in world.sink.opened] == ["c1"]


def test_a_conversation_that_only_the_end_of_the_agent_span_names_is_that_of_the_whole_trace(world: Any) -> None:
    with world.tracer().start_as_current_span("POST /chat"):
        with world.tracer().start_as_current_span("invoke_agent coder") as span:
            world.genai_tool()
            span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c1"})
        world.genai_tool()

    assert len({run_id for run_id, _ in world.sink.steps}) == 1
    assert world.sink.opened[0].conversation == "c1"


def test_the_run_of_a_conversation_goes_on_when_a_trace_of_it_has_ended(world: Any) -> None:
    world.genai_tool(**{"gen_ai.conversation.id": "c1"})

    assert world.sink.closed == []


def test_a_span_that_tells_of_nothing_opens_no_run(world: Any) -> None:
    world.tracer().start_span("chain", attributes={"openinference.span.kind": "CHAIN"}).end()

    assert world.sink.opened == []


def test_a_conversation_that_comes_back_in_another_trace_begins_a_turn(world: Any) -> None:
    for _ in range(9):
        world.genai_tool(**{"gen_ai.conversation.id": "c1"})

    turns = [event for event in world.events if isinstance(event, Turn)]
    assert len(turns) == 8
    assert all(turn.new_intent for turn in turns)
    assert [finding for finding in world.sink.findings if finding.action >= Action.BLOCK] == []


def test_without_run_and_conversation_a_trace_is_a_run_that_ends_with_its_root(world: Any) -> None:
    with world.tracer().start_as_current_span("POST /chat"):
        world.genai_tool()
        world.genai_tool()
    with world.tracer().start_as_current_span("POST /chat"):
        world.genai_tool()

    first, second, third = (run_id for run_id, _ in world.sink.steps)
    assert first == second != third
    assert world.sink.closed == [(first, "completed"), (third, "completed")]


def test_a_call_that_a_seam_and_a_span_tell_counts_once(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        seam_call(world, run, during=world.genai_tool)

    assert len(world.calls) == 1


def test_a_span_around_the_seam_is_the_same_call(world: Any) -> None:
    run = world.engine.open("r1")
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": '{"q": "x"}',
    }

    with world.inside(run), world.tracer().start_as_current_span("execute_tool lookup", attributes=told):
        seam_call(world, run)

    assert len(world.calls) == 1


def test_equal_call_ids_make_one_call_of_two_accounts_without_arguments(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        seam_call(world, run, call_id="call_1")
        world.genai_tool(arguments="__REDACTED__", **{"gen_ai.tool.call.id": "call_1"})

    assert len(world.calls) == 1


def test_different_call_ids_are_different_calls_although_all_else_is_equal(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        seam_call(world, run, call_id="call_1", during=lambda: world.genai_tool(**{"gen_ai.tool.call.id": "call_2"}))

    assert len(world.calls) == 2


def test_equal_calls_one_after_the_other_are_two(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        seam_call(world, run)
        world.genai_tool()

    assert len(world.calls) == 2


def test_a_call_of_another_run_at_the_same_time_is_another_call(world: Any) -> None:
    one, other = world.engine.open("r1"), world.engine.open("r2")

    with world.inside(other):
        seam_call(world, one, during=world.genai_tool)

    assert sorted(run_id for run_id, _ in world.sink.steps) == ["r1", "r2"]


def test_a_span_that_did_not_capture_arguments_is_the_call_of_the_seam_around_it(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        seam_call(world, run, during=lambda: world.genai_tool(arguments="__REDACTED__"))

    assert len(world.calls) == 1


def test_a_bare_value_is_the_call_of_the_seam_with_that_one_argument(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        seam_call(world, run, during=lambda: openinference_tool(world, input__value="x"))

    assert len(world.calls) == 1


def test_a_refused_call_is_not_counted_again_by_the_span_around_it(world: Any) -> None:
    run = world.engine.open("r1")
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": '{"q": "x"}',
    }

    with world.inside(run):
        while seam_call(world, run).action < Action.BLOCK:
            pass
        steps = run.step
        with world.tracer().start_as_current_span("execute_tool lookup", attributes=told):
            seam_call(world, run)

    assert run.step == steps + 1


def test_two_instrumentations_that_see_one_call_count_it_once(world: Any) -> None:
    told = {"openinference.span.kind": "TOOL", "tool.name": "lookup", "input.value": '{"q": "x"}'}

    with world.tracer("openinference.instrumentation.framework").start_as_current_span("lookup", attributes=told):
        world.genai_tool()

    assert len(world.calls) == 1


def test_of_two_spans_around_one_call_the_one_that_knows_the_arguments_is_counted(world: Any) -> None:
    told = {"openinference.span.kind": "TOOL", "tool.name": "lookup", "input.value": '{"q": "x"}'}

    with world.tracer("openinference.instrumentation.framework").start_as_current_span("lookup", attributes=told):
        world.genai_tool(arguments="__REDACTED__")

    (call,) = world.calls
    assert call.arguments == {"q": "x"}


def test_equal_calls_side_by_side_in_one_instrumentation_stay_as_many_as_they_are(world: Any) -> None:
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": '{"q": "x"}',
    }
    spans = [world.tracer().start_span("execute_tool lookup", attributes=told) for _ in range(3)]

    for span in spans:
        span.end()

    assert len(world.calls) == 3


def test_two_instrumentations_of_one_model_call_count_its_tokens_once(world: Any) -> None:
    outer = {"openinference.span.kind": "LLM", "llm.model_name": "openai/gpt-9", "llm.token_count.completion": 7}
    inner = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-9", "gen_ai.usage.output_tokens": 7}

    with world.tracer("openinference.instrumentation.framework").start_as_current_span("llm", attributes=outer):
        world.tracer().start_span("chat gpt-9", attributes=inner).end()

    assert [call.output_tokens for call in world.model_calls] == [7]


def test_a_loop_of_spans_marks_the_run_so_that_its_next_seam_is_stopped(world: Any) -> None:
    run = world.engine.open("r1")

    with world.inside(run):
        for _ in range(12):
            world.genai_tool()

    assert seam_call(world, run).action is Action.STOP


def test_where_spans_may_only_observe_a_loop_is_told_but_the_run_goes_on(make_world: Any) -> None:
    world = make_world(enforce=False)
    run = world.engine.open("r1")

    with world.inside(run):
        for _ in range(12):
            world.genai_tool()

    assert run.stopped is None
    assert any(finding.action is Action.STOP for finding in world.sink.findings)


def test_the_application_gets_every_span_and_no_exception_from_a_loop(world: Any) -> None:
    for _ in range(12):
        world.genai_tool()

    assert world.exported == ["execute_tool lookup"] * 12
    assert world.sink.failures == []


def test_a_tool_span_takes_the_name_of_the_nearest_agent_above_it(world: Any) -> None:
    outer = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "lead"}
    inner = {"openinference.span.kind": "AGENT", "agent.name": "coder"}

    with (
        world.tracer().start_as_current_span("invoke_agent lead", attributes=outer),
        world.tracer().start_as_current_span("coder", attributes=inner),
        world.tracer().start_as_current_span("POST /search"),
    ):
        world.genai_tool()

    assert world.calls[0].agent == "coder"


def test_the_agent_of_a_run_is_nearer_than_an_agent_span_around_the_run(world: Any) -> None:
    outer = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "lead"}
    run = world.engine.open("r1", agent="coder")

    with world.tracer().start_as_current_span("invoke_agent lead", attributes=outer), world.inside(run):
        world.genai_tool()

    assert world.calls[0].agent == "coder"


def test_an_agent_span_is_told_as_its_message(world: Any) -> None:
    told = {"openinference.span.kind": "AGENT", "agent.name": "coder", "output.value": "fixed line 23"}

    world.tracer().start_span("coder", attributes=told).end()

    (message,) = world.events
    assert isinstance(message, Message)
    assert (message.agent, message.text) == ("coder", "fixed line 23")


def test_a_failed_span_is_a_failed_call_with_the_text_of_the_exception(world: Any) -> None:
    told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}

    with (
        pytest.raises(ValueError, match="no such key"),
        world.tracer().start_as_current_span("execute_tool lookup", attributes=told),
    ):
        raise ValueError("no such key")

    assert world.calls[0].result == "no such key"


def test_a_finding_goes_onto_the_nearest_ancestor_that_is_still_recorded(world: Any) -> None:
    with (
        world.tracer().start_as_current_span("invoke_agent coder"),
        world.tracer().start_as_current_span("POST /search"),
    ):
        for _ in range(4):
            world.genai_tool()

    spans = {span.name: span for span in world.exporter.get_finished_spans()}
    assert [event.name for event in spans["POST /search"].events] == ["agentguard.finding"] * len(world.sink.findings)
    assert spans["POST /search"].attributes["agentguard.finding.kind"] == world.sink.findings[-1].kind.value
    assert "agentguard.finding.kind" not in spans["invoke_agent coder"].attributes
    assert "agentguard.finding" not in world.exported


def test_without_such_an_ancestor_a_finding_gets_a_linked_span_of_zero_length(world: Any) -> None:
    remote = SpanContext(trace_id=7, span_id=8, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(remote)))
    run = world.engine.open("r1")

    with world.inside(run):
        for _ in range(4):
            world.genai_tool()
    context.detach(token)

    written = [span for span in world.exporter.get_finished_spans() if span.name == "agentguard.finding"]
    tools = {span.context.span_id for span in world.exporter.get_finished_spans() if span.name == "execute_tool lookup"}
    assert len(written) == len(world.sink.findings) > 0
    assert all(span.start_time == span.end_time for span in written)
    assert all(span.links[0].context.span_id in tools for span in written)


def test_log_events_carry_the_context_of_the_span_that_the_finding_is_about(world: Any) -> None:
    with world.tracer().start_as_current_span("POST /chat"):
        for _ in range(4):
            world.genai_tool()

    records = [data.log_record for data in world.log_exporter.get_finished_logs()]
    tools = {span.context.span_id for span in world.exporter.get_finished_spans() if span.name == "execute_tool lookup"}
    assert {record.event_name for record in records} == {"agentguard.finding", "gen_ai.evaluation.result"}
    assert all(record.span_id in tools for record in records)


def test_spans_that_never_end_are_forgotten(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "MAX_LIVE_SPANS", 5)

    spans = [world.tracer().start_span("endless") for _ in range(20)]

    assert len(world.processor._live) == 5
    assert len(spans) == 20


def test_nothing_is_remembered_of_spans_that_have_ended(world: Any) -> None:
    for number in range(50):
        world.genai_tool(**{"gen_ai.conversation.id": f"c{number}"})

    assert len(world.processor._live) == 0
    assert not any(by == "trace" for by, _ in world.guard.implicit._named)


def test_a_broken_decoder_is_counted_and_breaks_nothing(world: Any) -> None:
    class Broken:
        name = "broken"
        markers = ("broken",)

        def decode(self, span: EndedSpan) -> Event | None:
            raise RuntimeError("decoder bug")

        def agent(self, name: str, attributes: Any) -> str | None:
            return None

        def conversation(self, attributes: Any) -> str | None:
            return None

    world.provider.add_span_processor(AgentGuardSpanProcessor(world.guard, decoders=[Broken()]))

    world.tracer().start_span("a", attributes={"broken": True}).end()

    assert world.sink.failures == ["decoder broken"]
    assert world.exported == ["a"]


def test_while_no_guard_is_installed_the_processor_does_nothing(world: Any) -> None:
    lone = AgentGuardSpanProcessor()
    world.provider.add_span_processor(lone)

    world.tracer().start_span("a", attributes={"gen_ai.operation.name": "chat"}).end()

    assert len(lone._live) == 0


def test_spans_that_end_in_many_threads_are_all_counted(world: Any) -> None:
    run = world.engine.open("r1")

    def work(number: int) -> None:
        with world.inside(run):
            for turn in range(25):
                world.genai_tool(arguments={"q": f"{number} {turn}"})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(call.step for call in world.calls) == list(range(1, 101))


_VALUE = (
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats()
    | st.text(max_size=40)
    | st.lists(st.text(max_size=5), max_size=3)
    | st.recursive(
        st.none() | st.integers(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    ).map(json.dumps)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    kind=st.sampled_from(["execute_tool", "invoke_agent", "chat", "plan", "create_memory", "search_memory"]),
    values=st.dictionaries(
        st.sampled_from(
            [
                *("gen_ai.tool.name", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.tool.call.id"),
                *("gen_ai.agent.name", "gen_ai.conversation.id", "gen_ai.output.messages", "gen_ai.memory.records"),
                *("openinference.span.kind", "traceloop.span.kind", "input.value", "traceloop.entity.input"),
            ]
        ),
        _VALUE,
    ),
)
def test_whatever_the_attributes_are_nothing_is_raised_and_no_span_is_lost(
    world: Any, kind: str, values: dict[str, Any]
) -> None:
    world.exporter.clear()

    world.tracer().start_span("a span", attributes={"gen_ai.operation.name": kind, **values}).end()

    assert "a span" in world.exported
    assert world.sink.failures == []


def test_two_instrumentations_that_tell_of_one_answer_in_traces_of_their_own_make_one_model_call(world: Any) -> None:
    told = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "msg_1", "gen_ai.usage.output_tokens": 7}

    for source in ("of the client", "of somebody else"):
        world.tracer(source).start_span("chat", attributes=told).end()

    assert len(world.model_calls) == 1


def test_the_run_of_a_conversation_hears_of_an_answer_that_another_trace_told_first(world: Any) -> None:
    told = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "msg_1", "gen_ai.usage.output_tokens": 7}
    run = world.engine.open("talk")

    world.tracer("of the client").start_span("chat", attributes=told).end()
    with world.inside(run):
        world.tracer("of somebody else").start_span("chat", attributes=told).end()

    assert "talk" in [run_id for run_id, event in world.sink.steps if isinstance(event, ModelCall)]


def test_answers_with_one_id_from_one_instrumentation_are_as_many_as_they_are(world: Any) -> None:
    told = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "from a cache"}

    for _ in range(3):
        world.tracer().start_span("chat", attributes=told).end()

    assert len(world.model_calls) == 3
