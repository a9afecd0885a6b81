"""Repeated messages and repeated requests to a model."""

from __future__ import annotations

from loop_runs import TEXT, WORDS, Watch, ask, first, found, read, request, say, turn, write

from otel_agentguard.events import Message, ModelCall
from otel_agentguard.findings import Action, Kind


def test_a_message_that_comes_again_and_again_is_a_loop() -> None:
    findings = found(say("bot", "I am still working on your request, please stand by.") for _ in range(8))

    assert findings == [
        (3, Kind.LOOP, Action.HINT),
        (5, Kind.LOOP, Action.BLOCK),
        (7, Kind.LOOP, Action.STOP),
    ]


def test_a_message_counts_again_only_with_no_tool_call_in_between() -> None:
    findings = found(
        [say("agent", "Let me look at the next item and see what it says."), ask("get", f"{word} item", item=word)]
        for word in WORDS[:8]
    )

    assert findings == []


def test_a_thought_before_each_equal_call_does_not_count_the_call_twice() -> None:
    findings = found([say("agent", "I read the file once more to be sure."), read()] for _ in range(3))

    assert findings == [(6, Kind.LOOP, Action.HINT)]


def test_a_set_phrase_may_be_said_many_times() -> None:
    assert found(say("agent", "Working on it.") for _ in range(9)) == []


def test_a_sentence_in_a_script_without_spaces_is_no_set_phrase() -> None:
    assert first(say("agent", "我正在处理您的请求，请稍等一下。") for _ in range(3)) == (3, Kind.LOOP, Action.HINT)


def test_a_new_turn_makes_a_message_a_new_answer() -> None:
    assert found([turn(), say("agent", "Your order is on its way, it comes tomorrow.")] for _ in range(6)) == []


def test_equal_messages_of_several_agents_are_each_their_own() -> None:
    assert found(say(name, "I have nothing to add to this at all.") for name in "abcdefgh") == []


def test_messages_whose_text_nobody_knows_are_never_equal() -> None:
    assert found(Message(agent="a") for _ in range(6)) == []


def test_a_request_that_gets_the_same_answer_again_is_a_loop() -> None:
    findings = found(request("summarise again", "It is about apples.") for _ in range(8))

    assert findings == [
        (3, Kind.LOOP, Action.HINT),
        (5, Kind.LOOP, Action.BLOCK),
        (7, Kind.LOOP, Action.STOP),
    ]


def test_a_request_that_gets_another_answer_is_work() -> None:
    assert found(request("what next", f"look into {word}") for word in WORDS[:9]) == []


def test_requests_that_differ_are_work() -> None:
    assert found(request(f"what next after {word}", "go on") for word in WORDS[:9]) == []


def test_a_request_after_a_write_is_a_new_one() -> None:
    findings = found([request("is it done", "no"), write(content=word)] for word in WORDS[:6])

    assert [seen for seen in findings if seen.kind is Kind.LOOP] == []


def test_requests_that_nobody_knows_are_never_equal() -> None:
    assert found(ModelCall(agent="a", model="m") for _ in range(9)) == []


def test_the_note_names_the_first_of_the_equal_messages() -> None:
    watch = Watch()

    watch.add(read(), *(say("bot", "I am still working on your request, please stand by.") for _ in range(3)))

    assert watch.findings[0].message.startswith("[agentguard] Same message as step 2 (time 3)")


def test_no_finding_shows_what_was_said_or_answered() -> None:
    secret = "the password is swordfish"
    watch = Watch()

    watch.add(
        [say("a", f"Please note that {secret}, as I told you before.") for _ in range(5)],
        [ask("get", f"{secret} {TEXT}", key=secret) for _ in range(5)],
        [request(secret, secret) for _ in range(5)],
    )

    assert watch.findings
    for finding in watch.findings:
        assert "swordfish" not in finding.explanation + finding.message
