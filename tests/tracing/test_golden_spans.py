"""The decoders on what instrumentations really emit: the golden files, replayed as spans; `make golden` makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanLimits
from tracing.golden_files import GOLDEN, RUNS, golden, replay
from tracing.golden_told import TOLD

from otel_agentguard.events import Event, Message, ModelCall, Outcome, ToolCall
from otel_agentguard.tracing.decoders import DECODERS

every_run = pytest.mark.parametrize(("family", "framework"), RUNS, ids=lambda name: name)
tool_runs = pytest.mark.parametrize(
    ("family", "framework"), [run for run in RUNS if TOLD[run].tools], ids=lambda name: name
)

_INPUTS = re.compile(
    r"^(input\.value|llm\.input_messages\..*|gen_ai\.tool\.call\.arguments|gen_ai\.input\.messages|traceloop\.entity\.input"
    r"|gen_ai\.prompt\..*)$"
)
_OUTPUTS = re.compile(
    r"^(output\.value|llm\.output_messages\..*|gen_ai\.tool\.call\.result|gen_ai\.output\.messages|final_result"
    r"|traceloop\.entity\.output|gen_ai\.completion\..*|anthropic\.tool_result\.content)$"
)


def told(world: Any, spans: list[dict[str, Any]]) -> list[Event]:
    replay(world.provider, spans)
    assert world.sink.failures == []
    return list(world.events)


def calls(events: list[Event]) -> list[ToolCall]:
    return [event for event in events if isinstance(event, ToolCall)]


def changed(spans: list[dict[str, Any]], change: Callable[[str, Any], Any]) -> list[dict[str, Any]]:
    """The spans with other attributes; what becomes None is left out. Errors lose their text too."""
    return [
        {
            **span,
            "error": None,
            "events": [],
            "attributes": {
                key: value for key, before in span["attributes"].items() if (value := change(key, before)) is not None
            },
        }
        for span in spans
    ]


def test_there_is_a_golden_file_for_each_run_and_no_other() -> None:
    there = {(file.parent.name, file.stem) for file in GOLDEN.glob("*/*.json")}

    assert there == set(RUNS) == set(TOLD)


@tool_runs
def test_the_calls_that_were_really_made_are_read_out_of_the_spans(family: str, framework: str, world: Any) -> None:
    expected = TOLD[family, framework]

    find, lend = calls(told(world, golden(family, framework)))

    assert (find.tool, find.arguments, find.call_id) == ("find_book", expected.find, expected.ids[0])
    assert (find.outcome, find.result, find.result_known) == (Outcome.OK, expected.found, expected.found is not None)
    assert (lend.tool, lend.arguments, lend.call_id) == ("lend_book", expected.lend, expected.ids[1])
    assert (lend.outcome, lend.result) == (Outcome.FAILED, expected.failure)
    assert {find.agent, lend.agent} == {expected.agent}


@every_run
def test_model_calls_and_their_tokens_are_read_out_of_the_spans(family: str, framework: str, world: Any) -> None:
    asked = 0 if framework in {"mcp", "fastmcp"} else 3
    expected = TOLD[family, framework]

    events = [event for event in told(world, golden(family, framework)) if isinstance(event, ModelCall)]

    each = 2 if expected.model_in_two_traces else 1
    assert [(one.model, one.input_tokens, one.output_tokens) for one in events] == [
        ("gpt-scripted", 11, 7)
    ] * asked * each
    assert {one.outcome for one in events} <= {Outcome.OK}
    assert all(one.request_digest is not None and one.answer_digest is not None for one in events)


@every_run
def test_what_an_agent_said_and_its_conversation_are_read_out_of_the_spans(
    family: str, framework: str, world: Any
) -> None:
    expected = TOLD[family, framework]
    spans = golden(family, framework)

    messages = [event for event in told(world, spans) if isinstance(event, Message)]

    assert [(one.agent, one.text) for one in messages] == [(expected.agent, text) for text in expected.messages]
    conversations = {decoder.conversation(span["attributes"]) for decoder in DECODERS for span in spans}
    assert conversations - {None} == ({expected.conversation} if expected.conversation else set())


@every_run
def test_redacted_content_is_unknown_and_all_else_is_as_before(family: str, framework: str, make_world: Any) -> None:
    spans = golden(family, framework)
    hidden = changed(spans, lambda key, value: "__REDACTED__" if _INPUTS.match(key) or _OUTPUTS.match(key) else value)

    before, after = told(make_world(), spans), told(make_world(), hidden)

    assert [type(event) for event in after] == [type(event) for event in before]
    assert [call.tool for call in calls(after)] == [call.tool for call in calls(before)]
    for call in calls(after):
        assert (call.arguments, call.fingerprint, call.result_known) == (None, None, False)
    for event in after:
        if isinstance(event, ModelCall):
            assert (event.request_digest, event.answer_digest) == (None, None)
            assert (event.input_tokens, event.output_tokens) == (11, 7)
        if isinstance(event, Message):
            assert event.digest is None


@every_run
def test_content_that_was_never_captured_is_unknown(family: str, framework: str, make_world: Any) -> None:
    spans = golden(family, framework)
    bare = changed(spans, lambda key, value: None if _INPUTS.match(key) or _OUTPUTS.match(key) else value)

    before, after = told(make_world(), spans), told(make_world(), bare)

    assert [call.tool for call in calls(after)] == [call.tool for call in calls(before)]
    for call in calls(after):
        assert (call.arguments, call.fingerprint, call.result_known) == (None, None, False)


@tool_runs
def test_content_that_the_sdk_has_cut_off_is_unknown(family: str, framework: str, make_world: Any) -> None:
    limit = 20  # longer than any name here, shorter than any argument but the bare value of LangChain's lend_book
    world = make_world(limits=SpanLimits(max_span_attribute_length=limit))

    find, lend = calls(told(world, golden(family, framework)))

    assert (find.tool, find.arguments, find.fingerprint) == ("find_book", None, None)
    assert not find.result_known
    assert (lend.tool, lend.arguments) == (
        "lend_book",
        TOLD[family, framework].lend if "input" in _lent(lend) else None,
    )


def _lent(call: ToolCall) -> dict[str, object]:
    return dict(call.arguments or {})


@tool_runs
def test_a_run_whose_content_nobody_captures_never_looks_like_a_loop(
    family: str, framework: str, make_world: Any
) -> None:
    world = make_world()
    bare = changed(
        golden(family, framework), lambda key, value: None if _INPUTS.match(key) or _OUTPUTS.match(key) else value
    )

    for _ in range(8):
        replay(world.provider, bare)

    assert world.sink.findings == []


def test_golden_files_hold_nothing_of_the_machine_that_made_them() -> None:
    every = {file: file.read_text(encoding="utf-8") for file in GOLDEN.glob("*/*.json")}

    for file, text in every.items():
        assert not re.search(
            r"/(home|tmp|root|usr|work|Users)/|site-packages|[0-9a-f]{8}-[0-9a-f]{4}-|127\.0\.0\.1:\d", text
        ), file
        assert isinstance(json.loads(text), list)
