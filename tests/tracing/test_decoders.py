from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.events import Handoff, Memory, MemoryOperation, Message, ModelCall, Outcome, Plan, ToolCall
from otel_agentguard.fingerprint import text_digest
from otel_agentguard.protocols import Decoder, EndedSpan
from otel_agentguard.tracing.decoders import DECODERS, GenAI, OpenInference, OpenLLMetry


def span(
    name: str = "a span", *, failed: bool = False, error: str | None = None, cut: int | None = None, **attributes: Any
) -> EndedSpan:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return EndedSpan(
        name=name,
        attributes=named,
        started_ns=2_000_000_000,
        ended_ns=3_500_000_000,
        failed=failed,
        error=error,
        max_value_chars=cut,
    )


def genai_tool(arguments: object = None, **attributes: Any) -> ToolCall:
    told = span(
        "execute_tool lookup",
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name="lookup",
        gen_ai__tool__call__arguments=arguments,
        **attributes,
    )
    event = GenAI().decode(told)
    assert isinstance(event, ToolCall)
    return event


def openinference_tool(value: object, **attributes: Any) -> ToolCall:
    told = span("lookup", openinference__span__kind="TOOL", tool__name="lookup", input__value=value, **attributes)
    event = OpenInference().decode(told)
    assert isinstance(event, ToolCall)
    return event


def openllmetry_tool(value: object, **attributes: Any) -> ToolCall:
    told = span(
        "lookup.tool",
        traceloop__span__kind="tool",
        traceloop__entity__name="lookup",
        traceloop__entity__input=value,
        **attributes,
    )
    event = OpenLLMetry().decode(told)
    assert isinstance(event, ToolCall)
    return event


def test_a_genai_tool_span_becomes_a_tool_call_with_times_in_seconds() -> None:
    call = genai_tool(
        '{"q": "x"}', gen_ai__tool__call__id="call_1", gen_ai__tool__call__result="found", gen_ai__agent__name="coder"
    )

    assert (call.tool, call.arguments, call.call_id, call.result, call.agent) == (
        "lookup",
        {"q": "x"},
        "call_1",
        "found",
        "coder",
    )
    assert (call.at_s, call.ended_s, call.outcome) == (2.0, 3.5, Outcome.OK)


def test_arguments_may_be_an_object_instead_of_json_text() -> None:
    assert genai_tool({"q": "x", "n": 2}).arguments == genai_tool('{"n": 2, "q": "x"}').arguments


def test_a_genai_tool_without_a_name_attribute_takes_it_from_the_span_name() -> None:
    event = GenAI().decode(span("execute_tool lookup", gen_ai__operation__name="execute_tool"))

    assert isinstance(event, ToolCall)
    assert event.tool == "lookup"


@pytest.mark.parametrize("withheld", [None, "__REDACTED__", {"q": "__REDACTED__"}])
def test_withheld_arguments_are_unknown(withheld: object) -> None:
    assert genai_tool(withheld).arguments is None


def test_text_of_just_the_length_limit_was_cut_and_is_unknown() -> None:
    cut = '{"q": "xxxxx'
    told = {
        "gen_ai__operation__name": "execute_tool",
        "gen_ai__tool__name": "lookup",
        "gen_ai__tool__call__arguments": cut,
    }

    limited, unlimited = GenAI().decode(span(cut=len(cut), **told)), GenAI().decode(span(**told))

    assert isinstance(limited, ToolCall)
    assert isinstance(unlimited, ToolCall)
    assert limited.arguments is None
    assert unlimited.arguments is not None


def test_a_result_that_was_not_captured_is_unknown_rather_than_empty() -> None:
    call = genai_tool("{}")

    assert not call.result_known
    assert call.result_digest is None


def test_a_failed_tool_gives_the_text_of_its_error_as_result() -> None:
    event = GenAI().decode(
        span("execute_tool lookup", failed=True, error="no such file", gen_ai__operation__name="execute_tool")
    )

    assert isinstance(event, ToolCall)
    assert (event.outcome, event.result, event.result_known) == (Outcome.FAILED, "no such file", True)


def test_an_error_type_alone_makes_a_call_failed() -> None:
    assert genai_tool("{}", error__type="TimeoutError").outcome is Outcome.FAILED


def test_openinference_arguments_come_from_the_input_and_not_from_the_schema() -> None:
    call = openinference_tool('{"q": "x"}', tool__parameters='{"q": {"type": "string"}}', output__value="found")

    assert call.arguments == {"q": "x"}
    assert call.result == "found"


def test_args_and_kwargs_are_unwrapped_and_positions_named_by_the_schema() -> None:
    value = '{"args": ["x", 2], "sanitize_inputs_outputs": true, "kwargs": {"deep": false}}'
    schema = '{"type": "object", "properties": {"q": {}, "n": {}, "deep": {}}}'

    call = openinference_tool(value, tool__parameters=schema)

    assert call.arguments == {"q": "x", "n": 2, "deep": False}


def test_a_lone_kwargs_is_unwrapped() -> None:
    assert openinference_tool('{"kwargs": {"q": "x"}}').arguments == {"q": "x"}


def test_a_lone_value_becomes_the_argument_of_its_place() -> None:
    assert openinference_tool("x").arguments == {"input": "x"}
    assert openinference_tool("x", tool__parameters='{"q": {}}').arguments == {"q": "x"}


def test_the_text_of_a_python_dict_is_read() -> None:
    assert openinference_tool("{'q': 'x', 'deep': True}").arguments == {"q": "x", "deep": True}


def test_ids_of_a_langchain_tool_message_do_not_make_equal_results_differ() -> None:
    first = openinference_tool("x", output__value="content='found' name='lookup' tool_call_id='call_1'")
    second = openinference_tool("x", output__value="content='found' name='lookup' tool_call_id='call_2'")

    assert first.result_digest == second.result_digest
    assert (first.call_id, second.call_id) == ("call_1", "call_2")


_TOOL_MESSAGE = {"type": "tool", "content": "found", "tool_call_id": "call_7", "id": "run-12"}


@pytest.mark.parametrize(
    "envelope",
    [
        _TOOL_MESSAGE,
        {"output": _TOOL_MESSAGE},
        {"type": "tool", "data": _TOOL_MESSAGE},
        {"output": {"lc": 1, "type": "constructor", "kwargs": _TOOL_MESSAGE}, "kwargs": {"tags": []}},
    ],
)
def test_a_tool_message_as_json_gives_its_content_whatever_is_around_it(envelope: dict[str, Any]) -> None:
    call = openinference_tool("x", output__value=json.dumps(envelope))

    assert (call.result, call.call_id) == ("found", "call_7")


def test_an_openinference_handoff_is_told_as_one() -> None:
    event = OpenInference().decode(span("handoff to Writer", openinference__span__kind="TOOL"))

    assert isinstance(event, Handoff)
    assert event.to == "Writer"


def test_openllmetry_args_and_kwargs_are_unwrapped() -> None:
    call = openllmetry_tool('{"args": [], "kwargs": {"q": "x"}}', traceloop__entity__output='"found"')

    assert (call.tool, call.arguments, call.result) == ("lookup", {"q": "x"}, "found")


def test_two_equal_langchain_calls_are_equal_although_openllmetry_tells_run_specific_metadata() -> None:
    def told(step: int) -> ToolCall:
        heard = {
            "input_str": "{'q': 'x'}",
            "tags": [f"seq:step:{step}"],
            "metadata": {"langgraph_step": step},
            "inputs": {"q": "x"},
            "kwargs": {"tool_call_id": f"call_{step}"},
        }
        event = OpenLLMetry().decode(
            span(
                "lookup.tool",
                traceloop__span__kind="tool",
                gen_ai__tool__name="lookup",
                gen_ai__tool__call__arguments=json.dumps(heard),
            )
        )
        assert isinstance(event, ToolCall)
        return event

    first, second = told(1), told(2)

    assert first.arguments == second.arguments == {"q": "x"}
    assert (first.call_id, second.call_id) == ("call_1", "call_2")


@pytest.mark.parametrize(
    ("decoder", "attributes"),
    [
        (
            GenAI(),
            {
                "gen_ai__operation__name": "chat",
                "gen_ai__request__model": "gpt-9",
                "gen_ai__usage__input_tokens": 12,
                "gen_ai__usage__output_tokens": 5,
            },
        ),
        (
            OpenInference(),
            {
                "openinference__span__kind": "LLM",
                "llm__model_name": "gpt-9",
                "llm__token_count__prompt": "12",
                "llm__token_count__completion": 5.0,
            },
        ),
        (
            OpenLLMetry(),
            {
                "llm__request__type": "chat",
                "gen_ai__request__model": "gpt-9",
                "gen_ai__usage__output_tokens": 5,
                "llm__usage__total_tokens": 17,
            },
        ),
    ],
)
def test_token_usage_is_read_in_every_vocabulary(decoder: Decoder, attributes: dict[str, Any]) -> None:
    event = decoder.decode(span("chat gpt-9", **attributes))

    assert isinstance(event, ModelCall)
    assert (event.model, event.input_tokens, event.output_tokens) == ("gpt-9", 12, 5)


def test_equal_model_requests_have_equal_digests_and_unknown_ones_have_none() -> None:
    told = {"gen_ai__operation__name": "chat"}

    first, second, other, unknown = (
        GenAI().decode(span(**told, gen_ai__input__messages=messages)) for messages in ("[1]", "[1]", "[2]", None)
    )

    assert isinstance(first, ModelCall)
    assert isinstance(second, ModelCall)
    assert isinstance(other, ModelCall)
    assert isinstance(unknown, ModelCall)
    assert first.request_digest == second.request_digest != other.request_digest
    assert unknown.request_digest is None


@pytest.mark.parametrize(
    ("decoder", "attributes"),
    [
        (
            GenAI(),
            {
                "gen_ai__operation__name": "invoke_agent",
                "gen_ai__agent__name": "coder",
                "gen_ai__output__messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "done"}]}]',
            },
        ),
        (OpenInference(), {"openinference__span__kind": "AGENT", "agent__name": "coder", "output__value": "done"}),
        (
            OpenLLMetry(),
            {"traceloop__span__kind": "agent", "traceloop__entity__name": "coder", "traceloop__entity__output": "done"},
        ),
    ],
)
def test_what_an_agent_returns_is_its_message_in_every_vocabulary(decoder: Decoder, attributes: dict[str, Any]) -> None:
    event = decoder.decode(span("an agent", **attributes))

    assert isinstance(event, Message)
    assert (event.agent, event.text, event.digest) == ("coder", "done", text_digest("done"))


def test_the_message_of_a_langgraph_state_is_its_last_one() -> None:
    state = {"messages": [{"type": "human", "content": "hi"}, {"type": "ai", "content": "done"}]}

    event = OpenInference().decode(span("agent", openinference__span__kind="AGENT", output__value=json.dumps(state)))

    assert isinstance(event, Message)
    assert event.text == "done"


def test_an_openinference_agent_without_a_name_is_called_as_its_span() -> None:
    assert OpenInference().agent("CodeAgent.run", {"openinference.span.kind": "AGENT"}) == "CodeAgent"


def test_the_agent_of_langchain_is_in_the_metadata_of_openinference() -> None:
    assert openinference_tool("x", metadata='{"lc_agent_name": "coder", "langgraph_step": 2}').agent == "coder"
    assert openinference_tool("x", metadata="__REDACTED__").agent == ""


def test_a_span_that_openinference_translated_keeps_the_name_of_its_agent() -> None:
    told = span(
        "invoke_agent coder", openinference__span__kind="AGENT", gen_ai__agent__name="coder", output__value="hi"
    )

    event = OpenInference().decode(told)

    assert isinstance(event, Message)
    assert event.agent == "coder"


def test_the_root_of_a_trace_that_is_called_an_agent_and_says_nothing_is_no_message() -> None:
    assert OpenInference().decode(span("Agent workflow", openinference__span__kind="AGENT")) is None


def test_text_blocks_of_a_result_are_its_text() -> None:
    call = genai_tool("{}", **{"anthropic.tool_result.content": _BLOCKS})

    assert call.result == "found\nmore"


_BLOCKS = '[{"type": "text", "text": "found"}, {"type": "text", "text": "more"}]'


def test_the_thread_of_langgraph_is_a_conversation_to_openllmetry() -> None:
    assert OpenLLMetry().conversation({"traceloop.association.properties.thread_id": "t1"}) == "t1"


def test_a_plan_span_gives_the_steps_of_the_plan() -> None:
    plan = {
        "steps": [{"id": "a", "tool": "search", "args": {"q": "x"}}, {"id": "b", "tool": "write", "depends_on": ["a"]}]
    }
    messages = [{"role": "assistant", "parts": [{"type": "text", "content": json.dumps(plan)}]}]

    event = GenAI().decode(
        span("plan coder", gen_ai__operation__name="plan", gen_ai__output__messages=json.dumps(messages))
    )

    assert isinstance(event, Plan)
    assert [(step.id, step.tool) for step in event.steps] == [("a", "search"), ("b", "write")]
    assert event.agent == "coder"


def test_a_plan_whose_content_was_not_captured_is_no_new_plan() -> None:
    assert GenAI().decode(span("plan coder", gen_ai__operation__name="plan")) is None


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("search_memory", MemoryOperation.READ),
        ("create_memory", MemoryOperation.WRITE),
        ("upsert_memory", MemoryOperation.WRITE),
        ("update_memory", MemoryOperation.UPDATE),
        ("delete_memory", MemoryOperation.DELETE),
    ],
)
def test_memory_spans_tell_what_was_done_with_which_entry(operation: str, expected: MemoryOperation) -> None:
    records = '[{"id": "m1", "content": "likes tea"}]'

    event = GenAI().decode(span(operation, gen_ai__operation__name=operation, gen_ai__memory__records=records))

    assert isinstance(event, Memory)
    assert (event.operation, event.key, event.value) == (expected, "m1", "likes tea")


@pytest.mark.parametrize(
    "attributes",
    [
        {"openinference__span__kind": "CHAIN", "input__value": "x"},
        {"openinference__span__kind": "RETRIEVER"},
        {"traceloop__span__kind": "workflow", "traceloop__entity__input": "{}"},
        {"traceloop__span__kind": "task"},
        {"llm__request__type": "embedding"},
        {"gen_ai__operation__name": "embeddings"},
        {"gen_ai__operation__name": "create_agent"},
        {"gen_ai__operation__name": "invoke_workflow"},
    ],
)
def test_spans_that_only_hold_others_together_are_no_events(attributes: dict[str, Any]) -> None:
    told = span(**attributes)

    assert all(decoder.decode(told) is None for decoder in DECODERS)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.binary(max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "args",
                    "kwargs",
                    "inputs",
                    "input_str",
                    "content",
                    "parts",
                    "type",
                    "steps",
                    "tool",
                    "lc",
                    "tool_call_id",
                    "output",
                    "id",
                    "messages",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_VALUES = (
    _LEAVES
    | _JSON
    | _JSON.map(json.dumps)
    | _JSON.map(str)
    | st.lists(_LEAVES, max_size=3).map(tuple)
    | st.just("__REDACTED__")
)
_KEYS = st.sampled_from(
    [
        *("gen_ai.tool.name", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.tool.call.id"),
        *("gen_ai.agent.name", "gen_ai.conversation.id", "gen_ai.input.messages", "gen_ai.output.messages"),
        *(
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
            "gen_ai.memory.records",
            "gen_ai.memory.record.id",
        ),
        *("gen_ai.request.model", "gen_ai.prompt.0.content", "gen_ai.completion.0.content", "error.type"),
        *("tool.name", "tool.parameters", "input.value", "output.value", "session.id", "agent.name", "graph.node.id"),
        *("llm.token_count.prompt", "llm.token_count.completion", "llm.input_messages.0.message.content"),
        *("traceloop.entity.name", "traceloop.entity.input", "traceloop.entity.output", "llm.usage.total_tokens"),
        "traceloop.association.properties.session_id",
    ]
)
_MARKS = st.fixed_dictionaries(
    {},
    optional={
        "gen_ai.operation.name": st.sampled_from(
            ["execute_tool", "invoke_agent", "chat", "plan", "search_memory", "create_memory"]
        )
        | _VALUES,
        "openinference.span.kind": st.sampled_from(["TOOL", "AGENT", "LLM", "CHAIN", "tool"]) | _VALUES,
        "traceloop.span.kind": st.sampled_from(["tool", "agent", "workflow", "task"]) | _VALUES,
        "llm.request.type": st.sampled_from(["chat", "completion"]) | _VALUES,
    },
)


@given(
    marks=_MARKS,
    rest=st.dictionaries(_KEYS, _VALUES, max_size=12),
    name=st.text(max_size=20),
    failed=st.booleans(),
    cut=st.none() | st.integers(0, 30),
)
def test_decoders_accept_any_attributes(
    marks: dict[str, Any], rest: dict[str, Any], name: str, failed: bool, cut: int | None
) -> None:
    told = EndedSpan(name=name, attributes={**rest, **marks}, failed=failed, max_value_chars=cut)

    for decoder in DECODERS:
        event = decoder.decode(told)
        decoder.agent(name, told.attributes)
        decoder.conversation(told.attributes)
        assert event is None or event.step == 0
