"""Loops written by hand around a vendor's client: what is known of them, and which run they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("openai", reason="pip install 'otel-agentguard[openai]'")

import openai
from adapters.conftest import Installing
from adapters.scripted_model import Reply, ScriptedModel, looping, saying
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from otel_agentguard import Effect, RunAborted, run, tool
from otel_agentguard.adapters.talk import Asked, TalkAnswer, TalkRequest, TalkSeam, Told
from otel_agentguard.events import ModelCall, ToolCall, Turn
from otel_agentguard.testing import RecordingSink

LOOK = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", max_retries=0, http_client=openai.DefaultHttpxClient(verify=False))


def said(user: str) -> list[Any]:
    return [{"role": "user", "content": user}]


def loop(url: str, history: list[Any], look: Callable[..., str], *, raw: bool = False) -> str:
    vendor = client(url)
    while True:
        asked: dict[str, Any] = {"model": "m", "messages": history, "tools": [{"type": "function", "function": LOOK}]}
        if raw:
            answer: Any = vendor.chat.completions.with_raw_response.create(**asked).parse()
        else:
            answer = vendor.chat.completions.create(**asked)
        message = answer.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            value = look(**json.loads(call.function.arguments))
            history.append({"role": "tool", "tool_call_id": call.id, "content": value})


def plain(q: str) -> str:
    return f"the same for {q}"


def tool_calls(sink: RecordingSink) -> list[ToolCall]:
    return [event for event in sink.events if isinstance(event, ToolCall)]


def test_a_plain_script_is_stopped_without_a_run_and_without_decorators(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    installing()

    with pytest.raises(RunAborted):
        loop(model.play("plain", looping("look")), said("go"), plain)

    assert len(model.requests("plain")) == 7
    assert len(tool_calls(sink)) == 7


def test_raw_responses_are_read_too(model: ScriptedModel, installing: Installing, sink: RecordingSink) -> None:
    installing()

    with pytest.raises(RunAborted):
        loop(model.play("raw", looping("look")), said("go"), plain, raw=True)

    assert {event.input_tokens for event in sink.events if isinstance(event, ModelCall)} == {11}


def test_a_stopped_talk_stays_stopped_until_its_user_says_something_new(
    model: ScriptedModel, installing: Installing
) -> None:
    installing()
    history = said("go")
    url = model.play("stays", looping("look"))

    with pytest.raises(RunAborted):
        loop(url, history, plain)
    with pytest.raises(RunAborted):
        loop(url, history, plain)
    assert len(model.requests("stays")) == 7

    url = model.play("stays-more", saying("done"))
    assert loop(url, [*history, *said("and now something else")], plain) == "done"


def test_another_talk_in_the_same_thread_is_another_run(model: ScriptedModel, installing: Installing) -> None:
    installing()

    with pytest.raises(RunAborted):
        loop(model.play("first", looping("look")), said("go"), plain)

    assert loop(model.play("second", looping("look", rounds=4)), said("go"), plain) == "gave up"


def test_each_event_loop_may_carry_one_step_of_a_talk(model: ScriptedModel, installing: Installing) -> None:
    installing()
    vendor, history = client(model.play("steps", looping("look"))), said("go")

    async def step() -> None:
        answer = vendor.chat.completions.create(model="m", messages=history)
        message = answer.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            history.append({"role": "tool", "tool_call_id": call.id, "content": plain("x")})

    with pytest.raises(RunAborted):
        for _ in range(20):
            asyncio.run(step())

    assert len(model.requests("steps")) == 7


def test_a_declared_tool_in_the_loop_counts_once_and_is_refused_at_its_own_seam(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    ran = []

    @tool(notes="inline")
    def look(q: str) -> str:
        ran.append(q)
        return f"the same for {q}"

    installing()

    with pytest.raises(RunAborted):
        loop(model.play("declared-loop", looping("look")), said("go"), look)

    assert len(ran) == 4
    assert len(tool_calls(sink)) == 7


def test_a_declared_read_in_another_thread_of_the_loop_is_not_needed_to_see_it(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    installing()

    def in_a_thread(q: str) -> str:
        found: list[str] = []
        worker = threading.Thread(target=lambda: found.append(plain(q)))
        worker.start()
        worker.join()
        return found[0]

    with pytest.raises(RunAborted):
        loop(model.play("threads", looping("look")), said("go"), in_a_thread)

    assert len(tool_calls(sink)) == 7


def test_a_loop_that_survives_every_error_is_unwound_out_of_its_run(
    model: ScriptedModel, installing: Installing
) -> None:
    installing()
    url, history = model.play("survivor", looping("look")), said("go")

    def surviving() -> None:
        while True:
            with contextlib.suppress(Exception):
                loop(url, history, plain)

    with pytest.raises(RunAborted), run("survivor"):
        surviving()

    assert len(model.requests("survivor")) == 7


def test_inside_of_run_the_program_says_what_a_turn_is(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    installing()

    with run("mine"):
        loop(model.play("mine", saying("done")), said("go"), plain)

    assert [event for event in sink.events if isinstance(event, Turn)] == []
    assert sink.opened == ["mine"]


def test_a_request_of_the_program_is_one_run_and_ends_with_it(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    trace.set_tracer_provider(TracerProvider())
    installing()

    with trace.get_tracer("app").start_as_current_span("GET /"):
        loop(model.play("web", looping("look", rounds=2)), said("go"), plain)

    assert len(sink.opened) == 1
    assert [outcome for _, outcome, _ in sink.closed] == ["completed"]


def test_calls_that_only_the_messages_tell_of_have_spans(model: ScriptedModel, installing: Installing) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    installing()

    loop(model.play("spans", looping("look", rounds=1)), said("go"), plain)

    names = [span.name for span in exporter.get_finished_spans()]
    assert sorted(names) == ["chat m", "chat m", "execute_tool look"]
    (span,) = [span for span in exporter.get_finished_spans() if span.name == "execute_tool look"]
    assert span.attributes is not None
    assert span.attributes["gen_ai.tool.call.id"] == "call_spans_1_0"
    assert "agentguard.fingerprint" in span.attributes


def test_an_answer_on_the_server_is_followed_by_its_id(model: ScriptedModel, installing: Installing) -> None:
    installing()
    vendor = client(model.play("server", looping("look")))

    with pytest.raises(RunAborted):
        given: Any = "go"
        earlier: Any = openai.omit
        for _ in range(20):
            answer = vendor.responses.create(model="m", input=given, previous_response_id=earlier)
            earlier = answer.id
            (call,) = answer.output
            given = [{"type": "function_call_output", "call_id": call.call_id, "output": plain("x")}]

    assert len(model.requests("server")) == 7


def test_a_model_that_writes_the_same_nonsense_again_repeats_itself(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    installing()
    vendor = client(model.play("odd", lambda number, request: Reply(calls=[("look", "{not json")])))
    history = said("go")

    with pytest.raises(RunAborted):
        for _ in range(20):
            message: Any = vendor.chat.completions.create(model="m", messages=history).choices[0].message
            history.append(message.model_dump(exclude_none=True))
            history.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "That is no JSON."})

    assert tool_calls(sink)[0].arguments == {"arguments": "{not json"}
    assert sink.failures == []


def test_other_requests_of_the_client_pass(model: ScriptedModel, installing: Installing, sink: RecordingSink) -> None:
    installing()
    vendor = client(model.play("other", saying(Reply("x"))))

    with pytest.raises(openai.APIStatusError):
        vendor.embeddings.create(model="m", input="text")

    assert sink.events == []


def test_effects_are_known_by_the_settings(model: ScriptedModel, installing: Installing, sink: RecordingSink) -> None:
    installing(tools={"look": {"effect": "read"}})

    loop(model.play("settings", looping("look", rounds=1)), said("go"), plain)

    assert [call.effect for call in tool_calls(sink)] == [Effect.READ]


@pytest.mark.parametrize(
    "attributes", [{"gen_ai.operation.name": "chat"}, {"openinference.span.kind": "LLM"}, {"llm.request.type": "chat"}]
)
def test_the_span_of_another_instrumentation_around_each_request_is_no_run(
    attributes: dict[str, str], model: ScriptedModel, installing: Installing
) -> None:
    trace.set_tracer_provider(TracerProvider())
    installing()
    tracer = trace.get_tracer("other")
    vendor, history = client(model.play("around", looping("look"))), said("go")

    with pytest.raises(RunAborted):
        for _ in range(20):
            with tracer.start_as_current_span("chat m", attributes=attributes):
                answer = vendor.chat.completions.create(model="m", messages=history)
            message = answer.choices[0].message
            history.append(message.model_dump(exclude_none=True))
            history += [
                {"role": "tool", "tool_call_id": call.id, "content": plain("x")} for call in message.tool_calls or ()
            ]

    assert len(model.requests("around")) == 7


def test_of_a_history_only_results_that_are_waited_for_are_told(
    model: ScriptedModel, installing: Installing, sink: RecordingSink
) -> None:
    installing()
    call = "look", {"q": "x"}
    url = model.play("waited", saying(Reply(calls=[call, call]), Reply(calls=[call]), "done"))
    history = said("go")

    answered: list[str] = []
    vendor = client(url)
    for _ in range(3):
        message = vendor.chat.completions.create(model="m", messages=history).choices[0].message
        history.append(message.model_dump(exclude_none=True))
        for asked in message.tool_calls or ():
            answered.append(asked.id)
            history.append({"role": "tool", "tool_call_id": asked.id, "content": f"answer {len(answered)}"})

    assert [(told.call_id, told.result) for told in tool_calls(sink)] == [
        (call_id, f"answer {number}") for number, call_id in enumerate(answered, 1)
    ]


def test_of_requests_that_are_not_sampled_only_few_are_known(
    model: ScriptedModel, installing: Installing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_agentguard.current.MAX_UNRECORDED", 3)
    trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_OFF))
    guard = installing()

    for number in range(10):
        with trace.get_tracer("app").start_as_current_span("GET /"):
            loop(model.play(f"unsampled-{number}", saying("done")), said("go"), plain)

    assert len(guard.engine.runs()) <= 3


@pytest.mark.usefixtures("hurried")
def test_of_requests_that_bring_the_same_results_at_once_none_passes_a_stopped_run(
    installing: Installing, sink: RecordingSink
) -> None:
    installing(budget={"model_calls": 1})
    seam = TalkSeam("client")
    made: list[str] = []

    def read(answer: str) -> TalkAnswer:
        return TalkAnswer(content=answer, asked=[Asked(one, "look", {"q": one}) for one in answer.split()])

    for number in range(20):
        ids = [f"{number}-{place}" for place in range(8)]
        first = TalkRequest(model="m", messages=[number], ends_with_user=True, user_messages=1)
        seam.call(lambda first=first: first, read, lambda _, ids=ids: " ".join(ids))
        start = threading.Barrier(4)

        def go_on(ids: list[str] = ids, start: threading.Barrier = start) -> None:
            start.wait()
            told = TalkRequest(model="m", messages=ids, results=lambda: [Told(one, f"r {one}") for one in ids])
            with contextlib.suppress(RunAborted):
                seam.call(lambda: told, read, lambda _: made.append("made") or "done")

        threads = [threading.Thread(target=go_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert made == []
    assert "adapter" not in sink.failures


def test_an_answer_that_the_client_cannot_read_reaches_the_program_all_the_same(
    installing: Installing, sink: RecordingSink
) -> None:
    installing()

    class LegacyAPIResponse:
        def parse(self) -> object:
            raise ValueError("not JSON")

    answer = LegacyAPIResponse()
    seam = TalkSeam("client")

    def read(given: object) -> TalkAnswer:
        raise ValueError("not JSON")

    with run("r"):
        assert seam.call(lambda: TalkRequest(model="m", messages=[]), read, lambda _: answer) is answer
        assert not trace.get_current_span().get_span_context().is_valid

    assert sink.failures == ["adapter", "adapter"]
    assert [type(event) for event in sink.events] == [ModelCall]
