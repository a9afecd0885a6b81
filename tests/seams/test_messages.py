from __future__ import annotations

from typing import Any

import pytest

from otel_agentguard import AgentGuard, CallBlocked, RunAborted, message, run
from otel_agentguard.events import Message, Trigger, Turn
from otel_agentguard.testing import RecordingSink


def test_a_message_is_an_event_with_its_own_span(guard: AgentGuard, sink: RecordingSink, spans: Any) -> None:
    with run("r", agent="coder"):
        message("fixed line 23", to="reviewer")

    (said,) = sink.events
    assert isinstance(said, Message)
    assert (said.agent, said.to, said.text, said.step) == ("coder", "reviewer", "fixed line 23", 1)
    (span,) = spans.named("agentguard.message coder")
    assert span.start_time == span.end_time
    assert span.attributes["agentguard.step"] == 1
    assert span.attributes["agentguard.run.id"] == "r"
    assert len(span.attributes["agentguard.fingerprint"]) == 32
    assert "fixed" not in str(dict(span.attributes))


@pytest.mark.parametrize(
    ("agent", "role", "is_turn"),
    [("user", None, True), ("human", None, True), ("coder", "user", True), ("user", "assistant", False)],
)
def test_what_a_user_says_is_a_turn(
    guard: AgentGuard, sink: RecordingSink, agent: str, role: str | None, is_turn: bool
) -> None:
    with run("r"):
        message("please", agent=agent, role=role)

    (event,) = sink.events
    assert isinstance(event, Turn) is is_turn
    if isinstance(event, Turn):
        assert (event.trigger, event.text, event.new_intent) == (Trigger.USER, "please", True)


def test_structured_content_is_a_message_too(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r"):
        message({"to_do": ["a", "b"]}, agent="planner")

    (said,) = sink.events
    assert isinstance(said, Message)
    assert (said.text, said.payload) == (None, {"to_do": ["a", "b"]})
    assert said.digest is not None


def test_a_conversation_that_goes_round_is_refused_then_stopped(guard: AgentGuard) -> None:
    found: list[str] = []

    with pytest.raises(RunAborted), run("r"):
        for _ in range(50):
            for agent, text in (("a", "over to you"), ("b", "no, over to you")):
                try:
                    message(text, agent=agent)
                except CallBlocked as refused:
                    found.append(str(refused))

    assert found
    assert found[0].startswith("[agentguard]")


def test_a_message_before_install_is_nothing() -> None:
    message("hello", agent="coder")
