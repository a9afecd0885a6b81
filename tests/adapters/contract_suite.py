"""What every adapter does for its users, as tests; each adapter's test module makes a subclass of `AdapterContract`.

A subclass says how its framework is driven. The frameworks are real; only the model is scripted.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from adapters.conftest import Installing
from adapters.scripted_model import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    ROUNDS,
    SUBJECTS,
    Reply,
    ScriptedModel,
    looping,
    saying,
    working,
)
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_agentguard import AgentGuard, Effect, RunAborted, run, tool, unguarded
from otel_agentguard.adapters.attaching import adapters
from otel_agentguard.events import ModelCall, Outcome, ToolCall, Turn
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.testing import RecordingSink

NOTE = "[agentguard]"


class Counted:
    """A tool that counts its calls, plain or async, with one argument `q`.

    A declaration is known by the tool's name in the whole process, so tools that a test declares have names of
    their own.

    Attributes:
        calls: How often its body ran.
        function: The function to give to a framework.
    """

    def __init__(
        self, *, is_async: bool = False, doing: Callable[[str], Any] | None = None, name: str = "lookup"
    ) -> None:
        self.calls = 0
        self._doing = doing
        self._lock = threading.Lock()
        self.function: Any = self._async_function() if is_async else self._function()
        self.function.__name__ = name

    def _body(self, q: str) -> str:
        with self._lock:
            self.calls += 1
        done = None if self._doing is None else self._doing(q)
        return f"result for {q}: {hashlib.sha256(q.encode()).hexdigest()}" if done is None else str(done)

    def _function(self) -> Any:
        def lookup(q: str) -> str:
            """Look something up.

            Args:
                q: What to look up.
            """
            return self._body(q)

        return lookup

    def _async_function(self) -> Any:
        async def lookup(q: str) -> str:
            """Look something up.

            Args:
                q: What to look up.
            """
            await asyncio.sleep(0)
            return self._body(q)

        return lookup


class AdapterContract:
    """The suite; `kind` is one of the ways in which the framework runs an agent.

    Attributes:
        adapter: Its name in the table.
        kinds: The ways; those that begin with `async` return a coroutine from `ask`.
        answers_inline: A tool result can be given or changed by the guard; else (a loop written by hand around an
            SDK) only the model path is guarded.
        has_entry: The framework has run methods, which end in the stop whatever came back.
        has_conversations: Those know the agent's name, the conversation and a user's turn.
    """

    adapter: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ("sync", "async", "stream", "async_stream")
    answers_inline: ClassVar[bool] = True
    has_entry: ClassVar[bool] = True
    has_conversations: ClassVar[bool] = True

    def ask(
        self,
        kind: str,
        url: str,
        tools: Sequence[Any],
        text: str = "go",
        *,
        agent: str = "Looper",
        conversation: str | None = None,
    ) -> Any:
        """Make an agent of plain functions as tools, let it work on a text, and return its final text.

        Args:
            kind: The way; a coroutine is returned where it begins with `async`.
            url: Base URL of the model, without `/v1`.
            tools: Functions, undecorated or declared with `@tool`.
            text: What the user says.
            agent: Name of the agent.
            conversation: Id of the conversation, where one is wanted.
        """
        raise NotImplementedError

    def patched(self) -> Sequence[tuple[Any, str]]:
        """What the adapter patches: owners and names of attributes."""
        raise NotImplementedError

    def system_text(self, request: dict[str, Any]) -> str:
        """The system prompt of a request, as text."""
        messages = request.get("messages") or []
        return "".join(str(one["content"]) for one in messages if one["role"] in {"system", "developer"})

    def told(self, request: dict[str, Any]) -> list[str]:
        """The tool results that a request holds, as texts, in order."""
        return [_text(one["content"]) for one in request.get("messages") or [] if one["role"] == "tool"]

    def all_told(self, requests: Sequence[dict[str, Any]]) -> list[str]:
        """The tool results that the model got by the last of these requests; all of them are in that one usually."""
        return self.told(requests[-1])

    def resume(self, url: str, tools: Sequence[Any], conversation: str) -> Any:
        """Go on with a conversation without new user input; not every framework can."""
        pytest.skip("this framework does not go on without new input")

    def ask_team(self, kind: str, url: str, tools: Sequence[Any]) -> Any:
        """Let an agent `Outer` with the tool `inner` ask an agent `Inner`, which has the tools.

        The script of `url` with `-outer` and `-inner` appended is that of each.
        """
        pytest.skip("this framework has no sub-agents")

    # Helpers for the tests below.

    def get(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        answer = self.ask(kind, *args, **kwargs)
        return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

    def counted(self, kind: str, doing: Callable[[str], Any] | None = None, *, name: str = "lookup") -> Counted:
        return Counted(is_async=kind.startswith("async"), doing=doing, name=name)

    @pytest.fixture(autouse=True)
    def only_this_adapter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The SDK that a framework calls the model with has an adapter of its own, with tests of its own."""
        others = ",".join(name for name in adapters() if name != self.adapter)
        monkeypatch.setenv("AGENTGUARD_ADAPTERS_OFF", others)

    # The seams are put in once and taken out without a trace.

    def test_it_attaches_once_and_detaching_restores_what_was_there(self, installing: Installing) -> None:
        before = [vars(owner).get(name) for owner, name in self.patched()]

        guard = installing()
        once = [vars(owner).get(name) for owner, name in self.patched()]
        assert guard.guard is not None
        adapters()[self.adapter].attach(guard.guard)
        twice = [vars(owner).get(name) for owner, name in self.patched()]
        guard.shutdown()

        assert all(new is not old for new, old in zip(once, before, strict=True))
        assert all(new is old for new, old in zip(twice, once, strict=True))
        assert all(vars(owner).get(name) is old for (owner, name), old in zip(self.patched(), before, strict=True))

    def test_a_setting_leaves_it_out(self, installing: Installing, monkeypatch: pytest.MonkeyPatch) -> None:
        before = [vars(owner).get(name) for owner, name in self.patched()]
        monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", f"other,{self.adapter}")

        installing()

        assert all(vars(owner).get(name) is old for (owner, name), old in zip(self.patched(), before, strict=True))

    # A healthy agent does not notice.

    def test_a_healthy_agent_asks_and_answers_as_without_the_guard(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        bare, guarded = self.counted(kind), self.counted(kind)
        plain = self.get(kind, model.play("healthy-a", working()), [bare.function])

        installing(inject_hints=True)
        answer = self.get(kind, model.play("healthy-b", working()), [guarded.function])

        assert answer == plain
        assert guarded.calls == bare.calls == ROUNDS
        assert _same(model.requests("healthy-b"), "healthy-b") == _same(model.requests("healthy-a"), "healthy-a")
        assert [found.kind for found, _ in sink.findings] == []
        assert sink.failures == []

    def test_observing_changes_nothing_and_finds_all(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        bare, guarded = self.counted(kind), self.counted(kind)
        plain = self.get(kind, model.play("observe-a", looping(rounds=9)), [bare.function])

        installing(mode="observe", inject_hints=True)
        answer = self.get(kind, model.play("observe-b", looping(rounds=9)), [guarded.function])

        assert answer == plain
        assert guarded.calls == bare.calls == 9
        assert _same(model.requests("observe-b"), "observe-b") == _same(model.requests("observe-a"), "observe-a")
        assert [found.action for found, mode in sink.findings if found.kind is Kind.LOOP] == [
            Action.HINT,
            Action.BLOCK,
            Action.STOP,
        ]
        assert {mode for _, mode in sink.findings} == {"observe"}
        assert sink.failures == []

    def test_an_error_of_a_tool_ends_as_without_the_guard(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        def fail(q: str) -> Any:
            raise ValueError(f"no {q} today")

        script = saying(Reply(calls=[("lookup", {"q": "x"})]), "done")
        plain = self._ended(kind, model.play("error-a", script), self.counted(kind, fail))

        installing()
        guarded = self._ended(kind, model.play("error-b", script), self.counted(kind, fail))

        assert guarded == plain
        assert _same(model.requests("error-b"), "error-b") == _same(model.requests("error-a"), "error-a")
        assert sink.failures == []

    def test_an_error_of_the_model_reaches_the_application_as_without_the_guard(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        script = saying(Reply(status=400))
        plain = self._ended(kind, model.play("refusal-a", script), self.counted(kind))

        installing()
        guarded = self._ended(kind, model.play("refusal-b", script), self.counted(kind))

        assert guarded[0] == plain[0]
        assert [call.outcome for call in sink.events if isinstance(call, ModelCall)] == [Outcome.FAILED]

    def _ended(self, kind: str, url: str, tool: Counted) -> tuple[Any, str]:
        try:
            return "returned", str(self.get(kind, url, [tool.function]))
        except Exception as exc:
            return type(exc), str(exc)

    def test_what_passes_the_guard_is_let_alone(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        counted = self.counted(kind)
        installing()

        with unguarded():
            self.get(kind, model.play("unguarded", looping(rounds=9)), [counted.function])

        assert counted.calls == 9
        assert sink.findings == []

    # A looping one is told, refused and stopped.

    def test_a_looping_agent_is_stopped_and_the_model_is_asked_no_more(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        counted = self.counted(kind)
        installing()

        with pytest.raises(RunAborted) as stop:
            self.get(kind, model.play("loop", looping()), [counted.function])

        assert stop.value.finding is not None
        assert stop.value.finding.kind is Kind.LOOP
        assert stop.value.finding.tool == "lookup"
        assert counted.calls == (4 if self.answers_inline else 7)
        assert len(model.requests("loop")) == 7
        assert sink.executed_after == []
        assert sink.failures == []

    def test_hints_and_refusals_reach_the_model_as_tool_results(
        self, kind: str, model: ScriptedModel, installing: Installing
    ) -> None:
        if not self.answers_inline:
            pytest.skip("the program makes the tool results itself")
        installing()

        with pytest.raises(RunAborted):
            self.get(kind, model.play("notes", looping()), [self.counted(kind).function])

        told = self.all_told(model.requests("notes"))
        assert [NOTE in text for text in told] == [False, False, True, False, True, True]
        assert all("result for x" in text for text in told)
        assert "not run again" in told[4]

    def test_parallel_calls_of_one_turn_are_told_apart(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        counted = self.counted(kind)
        script = saying(Reply(calls=[("lookup", {"q": "a"}), ("lookup", {"q": "b"})]), "done")
        installing()

        self.get(kind, model.play("parallel", script), [counted.function])

        calls = [event for event in sink.events if isinstance(event, ToolCall)]
        assert sorted(str(call.arguments) for call in calls) == ["{'q': 'a'}", "{'q': 'b'}"]
        assert len({call.call_id for call in calls}) == 2
        assert counted.calls == 2

    def test_a_looping_agent_does_not_disturb_a_healthy_one(
        self, kind: str, model: ScriptedModel, installing: Installing
    ) -> None:
        installing()
        looper, worker = self.counted(kind), self.counted(kind)
        urls = model.play("both-loop", looping()), model.play("both-work", working())

        if kind.startswith("async"):

            async def both() -> list[Any]:
                return await asyncio.gather(
                    self.ask(kind, urls[0], [looper.function]),
                    self.ask(kind, urls[1], [worker.function], agent="Worker"),
                    return_exceptions=True,
                )

            ended = asyncio.run(both())
        else:
            with ThreadPoolExecutor(2) as pool:
                jobs = [
                    pool.submit(self.ask, kind, urls[0], [looper.function]),
                    pool.submit(self.ask, kind, urls[1], [worker.function], agent="Worker"),
                ]
                ended = [job.exception() or job.result() for job in jobs]

        assert isinstance(ended[0], RunAborted)
        assert "done" in str(ended[1])
        assert worker.calls == ROUNDS

    def test_where_spans_are_recorded_each_event_is_told_once_all_the_same(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        conversation = f"spans-{kind}" if self.has_conversations else None
        installing()

        with pytest.raises(RunAborted):
            url = model.play("spans-loop", looping())
            self.get(kind, url, [self.counted(kind).function], conversation=conversation)

        told = [type(event) for event in sink.events]
        assert (told.count(ToolCall), told.count(ModelCall)) == (7, 7)
        assert told.count(Turn) <= 1
        names = [span.name for span in exporter.get_finished_spans()]
        assert names.count("execute_tool lookup") == 7
        assert sum(name.startswith("chat ") for name in names) >= 7
        assert sink.failures == []

    # The three layers of a stop.

    def test_a_run_that_is_marked_makes_no_further_model_call(
        self, kind: str, model: ScriptedModel, installing: Installing
    ) -> None:
        guard = installing()
        counted = self.counted(kind, lambda q: _mark_all(guard))

        with pytest.raises(RunAborted) as stop:
            self.get(kind, model.play("marked", looping()), [counted.function])

        assert stop.value.finding is not None
        assert stop.value.finding.explanation == "marked by the test"
        assert counted.calls == 1
        assert len(model.requests("marked")) == 1

    def test_a_run_that_is_marked_while_the_model_answers_ends_in_the_stop(
        self, kind: str, model: ScriptedModel, installing: Installing
    ) -> None:
        if not self.has_entry:
            pytest.skip("there is no entry to leave")
        guard = installing()

        def script(number: int, request: Any) -> Reply:
            _mark_all(guard)
            return Reply("done")

        with pytest.raises(RunAborted):
            self.get(kind, model.play("late", script), [self.counted(kind).function])

    def test_a_stopped_run_starts_no_tool(self, kind: str, model: ScriptedModel, installing: Installing) -> None:
        guard = installing()
        counted = self.counted(kind)

        def script(number: int, request: Any) -> Reply:
            if number == 2:
                _mark_all(guard)
            return Reply(calls=[("lookup", {"q": str(number)})])

        with pytest.raises(RunAborted):
            self.get(kind, model.play("no-tool", script), [counted.function])

        assert counted.calls <= (1 if self.answers_inline else 2)
        assert len(model.requests("no-tool")) == 2

    def test_inside_of_run_the_stop_ends_that_run(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        installing()
        asked = self.ask
        url = model.play("inside", looping())
        counted = self.counted(kind)

        async def within() -> None:
            async with run("ticket-42"):
                await asked(kind, url, [counted.function])

        with pytest.raises(RunAborted) as stop:
            if kind.startswith("async"):
                asyncio.run(within())
            else:
                with run("ticket-42"):
                    asked(kind, url, [counted.function])

        assert stop.value.run_id == "ticket-42"
        assert [outcome for _, outcome, _ in sink.closed] == ["stopped_by_guard"]

    # What is decoded.

    def test_calls_are_decoded_whole(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        guard = installing()
        conversation = "conversation-1" if self.has_conversations else None
        seen: list[str | None] = []

        def look(q: str) -> None:
            assert guard.guard is not None
            seen.extend(one.info.conversation for one in guard.engine.runs())

        script = saying(Reply(calls=[("lookup", {"q": "x"})]), "done")
        url = model.play("decoded", script)
        self.get(kind, url, [self.counted(kind, look).function], agent="Reader", conversation=conversation)

        (call,) = [event for event in sink.events if isinstance(event, ToolCall)]
        assert (call.tool, call.arguments, call.call_id) == ("lookup", {"q": "x"}, "call_decoded_1_0")
        assert call.outcome is Outcome.OK
        assert call.result_digest is not None
        models = [event for event in sink.events if isinstance(event, ModelCall)]
        assert [(one.input_tokens, one.output_tokens) for one in models] == [(INPUT_TOKENS, OUTPUT_TOKENS)] * 2
        if self.has_conversations:
            assert {event.agent for event in (call, *models)} == {"Reader"}
            assert seen == ["conversation-1"]

    def test_a_declared_tool_inside_counts_once(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        counted = self.counted(kind, name="read_up")
        declared = tool(effect=Effect.READ)(counted.function)
        installing()

        self.get(kind, model.play("declared", working("read_up", rounds=3)), [declared])

        calls = [event for event in sink.events if isinstance(event, ToolCall)]
        assert [(call.arguments, call.effect) for call in calls] == [
            ({"q": subject}, Effect.READ) for subject in SUBJECTS[:3]
        ]

    def test_a_declared_side_effect_happens_once_and_is_replayed_to_the_model(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        counted = self.counted(kind, name="file_ticket")
        declared = tool(effect=Effect.SIDE_EFFECT)(counted.function)
        installing()

        self.get(kind, model.play("effect", looping("file_ticket", rounds=2)), [declared])

        assert counted.calls == 1
        assert Kind.DUPLICATE_SIDE_EFFECT in [found.kind for found, _ in sink.findings]
        told = self.all_told(model.requests("effect"))
        assert len(told) == 2
        assert all("result for x" in text for text in told)

    # Conversations and sub-agents.

    def test_a_new_user_turn_goes_on_after_a_stop(
        self, kind: str, model: ScriptedModel, installing: Installing
    ) -> None:
        if not self.has_conversations:
            pytest.skip("there is no entry that a user's turn comes through")
        counted = self.counted(kind)
        installing()

        with pytest.raises(RunAborted):
            self.get(kind, model.play("again-a", looping()), [counted.function], conversation="c-again")
        answer = self.get(
            kind, model.play("again-b", saying("done")), [counted.function], "and now?", conversation="c-again"
        )

        assert "done" in str(answer)

    def test_a_stopped_conversation_does_not_go_on_without_a_new_turn(
        self, model: ScriptedModel, installing: Installing
    ) -> None:
        counted = self.counted("sync")
        installing()

        with pytest.raises(RunAborted):
            self.get(self.kinds[0], model.play("stay-a", looping()), [counted.function], conversation="c-stay")
        calls = counted.calls

        with pytest.raises(RunAborted):
            resumed = self.resume(model.play("stay-b", looping()), [counted.function], "c-stay")
            asyncio.run(resumed) if inspect.iscoroutine(resumed) else None
        assert model.requests("stay-b") == []
        assert counted.calls == calls

    def test_a_looping_sub_agent_stops_the_whole_run(
        self, kind: str, model: ScriptedModel, installing: Installing, sink: RecordingSink
    ) -> None:
        counted = self.counted(kind)
        model.play("team-inner", looping())
        url = model.play("team-outer", saying(Reply(calls=[("inner", {"q": "x"})]), "done")).removesuffix("-outer")
        installing()

        with pytest.raises(RunAborted):
            answer = self.ask_team(kind, url, [counted.function])
            asyncio.run(answer) if inspect.iscoroutine(answer) else None

        assert counted.calls == 4
        assert len(model.requests("team-outer")) == 1
        assert len({finding.agent for finding, _ in sink.findings} - {"Outer"}) == 1
        assert [outcome for _, outcome, _ in sink.closed] == ["stopped_by_guard"]

    # Hints in a request.

    def test_injected_hints_go_into_one_request_and_no_history(
        self, kind: str, model: ScriptedModel, installing: Installing
    ) -> None:
        def script(number: int, request: Any) -> Reply:
            return Reply(calls=[("lookup", {"q": "x"})]) if number <= 3 else Reply("done")

        installing(inject_hints=True)

        self.get(kind, model.play("hinted", script), [self.counted(kind).function])

        texts = [self.system_text(request) for request in model.requests("hinted")]
        assert [NOTE in text for text in texts] == [False, False, False, True]
        assert texts[3].count(NOTE) == 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes a `kind` with every one of its class; test modules import this."""
    if "kind" in metafunc.fixturenames and metafunc.cls is not None:
        metafunc.parametrize("kind", metafunc.cls.kinds)


def _mark_all(guard: AgentGuard) -> None:
    finding = Finding(
        check=CheckName.LOOP,
        kind=Kind.LOOP,
        severity=Severity.ERROR,
        step=1,
        signature=b"",
        message="",
        explanation="marked by the test",
        action=Action.STOP,
        evidence=(1,),
    )
    for one in guard.engine.runs():
        guard.engine.stop(one, finding)


def _same(requests: list[dict[str, Any]], name: str) -> Any:
    """Requests without what differs between two names of scripts."""
    return json.loads(json.dumps(requests).replace(name, "NAME"))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(str(part.get("text", part)) for part in content)
