from __future__ import annotations

from typing import Any

import pytest

from otel_agentguard import AgentGuard, CallBlocked, ConfigError, RunAborted, RunStopped, model_call, run, tool
from otel_agentguard.events import ModelCall, Outcome
from otel_agentguard.testing import RecordingSink


@tool
def look(word: str) -> str:
    return "same"


def test_a_model_call_is_an_event_with_its_tokens(guard: AgentGuard, sink: RecordingSink, spans: Any) -> None:
    with run("r", agent="coder"), model_call(model="m-1", messages=[{"role": "user"}], tools=[]) as call:
        call.record(answer="hello", input_tokens=12, output_tokens=3)

    (event,) = sink.events
    assert isinstance(event, ModelCall)
    assert (event.model, event.agent, event.outcome) == ("m-1", "coder", Outcome.OK)
    assert (event.input_tokens, event.output_tokens) == (12, 3)
    assert event.request_digest is not None
    assert event.answer_digest is not None
    (span,) = spans.named("chat m-1")
    assert span.attributes["gen_ai.usage.input_tokens"] == 12
    assert span.attributes["gen_ai.request.model"] == "m-1"
    assert "hello" not in str(dict(span.attributes))


async def test_it_works_with_async_with(guard: AgentGuard, sink: RecordingSink) -> None:
    async with run("r"), model_call(model="m-1", messages=["x"]) as call:
        call.record(answer="hello")

    assert len(sink.events) == 1


def test_no_request_goes_out_once_the_run_is_stopped(guard: AgentGuard) -> None:
    went_out = []

    with pytest.raises(RunAborted), run("r"):
        for _ in range(7):
            try:
                look("x")
            except BaseException as exc:
                assert isinstance(exc, CallBlocked | RunStopped)
        with pytest.raises(RunStopped), model_call(model="m", messages=["next"]):
            went_out.append(True)

    assert went_out == []


def test_the_same_request_with_the_same_answer_is_refused_in_the_end(guard: AgentGuard) -> None:
    asked = 0

    with pytest.raises(CallBlocked), run("r"):
        for _ in range(20):
            with model_call(model="m", messages=["summarise"]) as call:
                asked += 1
                call.record(answer="the same")

    assert asked == 4


def test_a_failed_request_is_told_as_failed(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r"), pytest.raises(TimeoutError), model_call(model="m", messages=["x"]):
        raise TimeoutError

    (event,) = sink.events
    assert isinstance(event, ModelCall)
    assert event.outcome is Outcome.FAILED


def test_a_handle_serves_one_request_at_a_time(guard: AgentGuard) -> None:
    call = model_call(model="m", messages=["x"])

    with run("r"), call, pytest.raises(ConfigError, match="under way already"), call:
        raise AssertionError("it was entered twice")


def test_tokens_are_not_negative(guard: AgentGuard) -> None:
    with run("r"), model_call(model="m") as call, pytest.raises(ConfigError, match="input_tokens is -1"):
        call.record(input_tokens=-1)


def test_before_install_a_request_goes_out() -> None:
    with model_call(model="m", messages=["x"]) as call:
        call.record(answer="hello")
