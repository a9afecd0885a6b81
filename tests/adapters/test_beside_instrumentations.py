"""Seams inside of, around and beside the spans of instrumentations, in the ways that real ones do it.

`make golden` has the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from adapters.conftest import Installing
from adapters.scripted_model import Reply, ScriptedModel, saying
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

from otel_agentguard.adapters.contract import EntryRequest, ModelAnswer, ModelRequest
from otel_agentguard.adapters.entries import RunEntry
from otel_agentguard.adapters.models import ModelSeam
from otel_agentguard.events import Message, ModelCall, ToolCall
from otel_agentguard.testing import RecordingSink

LOOK = ("look", {"q": "x"})


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(made)
    yield made
    made.shutdown()


def count(sink: RecordingSink, kind: type) -> int:
    return sum(isinstance(event, kind) for event in sink.events)


def asked_inside(inner: ModelSeam, before: context.Context | None) -> str:
    """A framework's request through its SDK, maybe under a context that somebody kept from before."""
    token = None if before is None else context.attach(before)
    try:
        return inner.call(lambda: ModelRequest(model="m"), lambda answer: ModelAnswer(), lambda hints: "hi")
    finally:
        if token is not None:
            context.detach(token)


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_request_through_an_sdk_is_one_model_call_whatever_context_is_put_back_around_it(
    is_put_back: bool, installing: Installing, sink: RecordingSink
) -> None:
    installing()
    outer, inner = ModelSeam(), ModelSeam()
    before = context.get_current() if is_put_back else None

    outer.call(lambda: ModelRequest(model="m"), lambda _: ModelAnswer(), lambda _: asked_inside(inner, before))
    asked_inside(inner, before)

    assert count(sink, ModelCall) == 2


def test_an_answer_that_a_span_inside_of_the_entry_told_is_said_once(
    installing: Installing, sink: RecordingSink, provider: TracerProvider
) -> None:
    def agent() -> str:
        told = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "coder",
            "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "done"}]}]',
        }
        provider.get_tracer("somebody").start_span("invoke_agent coder", attributes=told).end()
        return "done"

    installing()

    for _ in range(2):
        RunEntry().call(lambda: EntryRequest(agent="coder"), agent, said=str)

    assert [event.text for event in sink.events if isinstance(event, Message)] == ["done", "done"]


def chat(client: Any, history: list[Any]) -> Any:
    return client.chat.completions.create(model="m", messages=history).choices[0].message


def loop(client: Any, asking: Any = chat) -> None:
    history: list[Any] = [{"role": "user", "content": "go"}]
    while (answer := asking(client, history)).tool_calls:
        history.append(answer.model_dump(exclude_none=True))
        history += [{"role": "tool", "tool_call_id": call.id, "content": "found"} for call in answer.tool_calls]


@pytest.fixture
def client(model: ScriptedModel) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    url = model.play("beside", saying(Reply(calls=[LOOK]), Reply(calls=[LOOK]), "done"))
    with openai.OpenAI(base_url=f"{url}/v1", max_retries=0) as made:
        yield made


def test_a_loop_by_hand_is_one_run_although_a_span_begins_a_trace_around_each_request(
    installing: Installing, sink: RecordingSink, provider: TracerProvider, client: Any
) -> None:
    def in_a_span(client: Any, history: list[Any]) -> Any:
        told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.output_tokens": 7}
        with provider.get_tracer("somebody").start_as_current_span("chat m", attributes=told):
            return chat(client, history)

    installing()

    loop(client, in_a_span)

    assert (count(sink, ModelCall), count(sink, ToolCall)) == (3, 2)
    assert len(sink.opened) == 1


def test_a_loop_by_hand_is_seen_where_a_subclass_of_the_client_was_wrapped_before(
    installing: Installing, sink: RecordingSink, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = type(client).request

    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(client), "request", request)
    installing()

    loop(client)

    assert (count(sink, ModelCall), count(sink, ToolCall)) == (3, 2)
