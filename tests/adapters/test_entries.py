"""Where runs of a framework begin and end, with a framework that is a few lines here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from adapters.conftest import Installing

from otel_agentguard import RunAborted, RunStopped, run, tool
from otel_agentguard.adapters.contract import EntryRequest
from otel_agentguard.adapters.entries import RunEntry, tell_handoff
from otel_agentguard.events import Event, Message, Turn
from otel_agentguard.findings import Action, Finding, Kind
from otel_agentguard.policy import Ladder
from otel_agentguard.runs import Tombstone
from otel_agentguard.testing import RecordingSink, finding


class Carrier(RunAborted):
    """What this framework lets through."""


ENTRY = RunEntry(Carrier)


@tool
def look(q: str) -> str:
    return f"the same for {q}"


def looping() -> str:
    """An agent that swallows every error that it can."""
    for _ in range(20):
        with contextlib.suppress(Exception):
            look("x")
    return "done"


def ask(body: Any = looping, said: Any = None, **asked: Any) -> Any:
    return ENTRY.call(lambda: EntryRequest(**asked), body, said=said)


def turns(sink: RecordingSink) -> list[str | None]:
    return [event.text for event in sink.events if isinstance(event, Turn)]


def test_a_stopped_run_ends_in_the_stop_whatever_the_framework_makes_of_it(
    installing: Installing, sink: RecordingSink
) -> None:
    def wrapping() -> str:
        looping()
        raise RuntimeError("the framework says something went wrong")

    installing()

    with pytest.raises(RunAborted) as returned:
        ask()
    with pytest.raises(RunAborted) as raised:
        ask(wrapping)

    assert type(returned.value) is RunAborted
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert [outcome for _, outcome, _ in sink.closed] == ["stopped_by_guard"] * 2


def test_a_run_that_yields_ends_in_the_stop(installing: Installing) -> None:
    def steps() -> Generator[str, None, None]:
        yield "begun"
        looping()
        yield "done"

    async def steps_async() -> AsyncGenerator[str, None]:
        for step in steps():
            yield step

    async def collected() -> list[str]:
        return [step async for step in ENTRY.stream_async(EntryRequest, steps_async)]

    installing()

    with pytest.raises(RunAborted):
        list(ENTRY.stream(EntryRequest, steps))
    with pytest.raises(RunAborted):
        asyncio.run(collected())


def test_what_the_consumer_of_a_stream_does_is_not_in_the_run(installing: Installing, sink: RecordingSink) -> None:
    installing()

    with run("outside"):
        for _ in ENTRY.stream(lambda: EntryRequest(conversation="inside"), lambda: iter(["a", "b"])):  # type: ignore[arg-type, return-value]
            look("y")

    assert len(sink.opened) == 1


def test_an_inner_entry_is_the_same_run_under_another_name_and_hands_the_carrier_on(
    installing: Installing, sink: RecordingSink
) -> None:
    kinds: list[type] = []

    def outer() -> str:
        try:
            return str(ask(agent="Inner"))
        except RunAborted as exc:
            kinds.append(type(exc))
            raise

    installing()

    with pytest.raises(RunAborted) as stop:
        ask(outer, agent="Outer")

    assert kinds == [Carrier]
    assert type(stop.value) is RunAborted
    assert len(sink.opened) == 1
    assert {event.agent for event in sink.events} == {"Outer", "Inner"}


def test_only_the_outermost_entry_takes_its_input_for_the_user(installing: Installing, sink: RecordingSink) -> None:
    installing()

    ask(lambda: ask(lambda: "ok", user_text="from the outer agent"), user_text="from the user")

    assert turns(sink) == ["from the user"]


def test_each_turn_of_a_conversation_is_a_new_intent(installing: Installing, sink: RecordingSink) -> None:
    installing()

    for _ in range(9):
        ask(lambda: look("x"), conversation="c", user_text="what is x?")

    assert len(turns(sink)) == 9
    assert len(sink.opened) == 1
    assert Kind.LOOP not in [found.kind for found, _ in sink.findings]


def test_a_stopped_conversation_is_not_entered_without_something_new(installing: Installing) -> None:
    installing()
    ran = []

    with pytest.raises(RunAborted):
        ask(conversation="c")
    with pytest.raises(RunAborted):
        ask(lambda: ran.append(1), conversation="c", is_user_turn=False)
    assert ran == []

    ask(lambda: ran.append(2), conversation="c", user_text="go on")
    assert ran == [2]


def test_agents_of_one_program_that_talk_to_one_another_are_no_users(
    installing: Installing, sink: RecordingSink
) -> None:
    installing()

    with pytest.raises(RunAborted) as stop, run("talk"):
        for _ in range(12):
            ask(lambda: "please review", said=str, agent="Writer", user_text="please revise")
            ask(lambda: "please revise", said=str, agent="Reviewer", user_text="please review")

    assert stop.value.finding is not None
    assert stop.value.finding.kind is Kind.PINGPONG
    assert turns(sink) == ["please revise"]


def test_one_agent_that_is_asked_again_in_a_run_is_asked_by_its_user(installing: Installing) -> None:
    installing()

    with run("session"):
        for _ in range(9):
            ask(lambda: look("x"), agent="Helper", user_text="what is x?")


def test_a_program_that_enters_a_stopped_run_again_and_again_is_unwound(installing: Installing) -> None:
    entries = []

    def stubborn() -> None:
        while True:
            entries.append(1)
            with contextlib.suppress(Exception):
                ask()

    installing()

    with pytest.raises(RunAborted) as stop, run("stubborn"):
        stubborn()

    assert len(entries) == 2
    assert isinstance(stop.value.__cause__, RunStopped)


def test_an_answer_is_told_as_a_message_of_the_agent(installing: Installing, sink: RecordingSink) -> None:
    installing()

    ask(lambda: {"text": "42"}, said=lambda value: value["text"], agent="Oracle")

    assert [(event.agent, event.text) for event in sink.events if isinstance(event, Message)] == [("Oracle", "42")]


def test_an_answer_that_cannot_be_read_does_no_harm(installing: Installing, sink: RecordingSink) -> None:
    installing()

    assert ask(lambda: 42, said=lambda value: value["text"]) == 42
    assert sink.failures == ["adapter"]


def test_handoffs_that_go_round_end_the_run(installing: Installing) -> None:
    def swarm() -> None:
        while True:
            tell_handoff("B", agent="A", handed=[{}, ""], carrier=Carrier)
            tell_handoff("A", agent="B", handed=[{}, ""], carrier=Carrier)

    installing()

    with pytest.raises(RunAborted) as stop:
        ask(swarm)

    assert stop.value.finding is not None
    assert stop.value.finding.kind is Kind.PINGPONG


def test_observing_ends_nothing(installing: Installing, sink: RecordingSink) -> None:
    installing(mode="observe")

    assert ask() == "done"
    assert {mode for _, mode in sink.findings} == {"observe"}


def test_observe_lets_a_conversation_go_on_that_was_stopped(installing: Installing, sink: RecordingSink) -> None:
    guard = installing(mode="observe")
    stop = finding(action=Action.STOP)
    guard.engine.restore(Tombstone("earlier", "talk", stop, None, Ladder()))

    assert ask(conversation="talk", is_user_turn=False) == "done"
    guard.shutdown()

    assert sink.findings[0] == (stop, "observe")
    assert [outcome for _, outcome, _ in sink.closed] == ["completed"]


def test_a_run_whose_first_turn_is_refused_is_left_again(installing: Installing) -> None:
    class RefusesTurns:
        name = "refuses turns"

        def open(self, _: object) -> RefusesTurns:
            return self

        def before(self, event: Event) -> list[Finding]:
            return [finding(action=Action.STOP)] if isinstance(event, Turn) else []

        def after(self, event: Event) -> list[Finding]:
            return []

    guard = installing(checks=[RefusesTurns()])

    with pytest.raises(RunAborted):
        ask(user_text="go on")

    assert guard.engine.runs() == []
