from __future__ import annotations

import pytest
from memory_runs import agent, judged, read, tool, update, user, verdict, write

from otel_agentguard.events import Effect, Evidence, Outcome, Plan, PlanStep, ToolCall, Trigger, Turn
from otel_agentguard.memory import MemoryBook, MemoryGate, MemoryKind, MemorySettings, Reason, Verdict
from otel_agentguard.testing import ManualClock


def test_what_the_user_said_is_a_fact() -> None:
    judgement = judged(user("I want a refund"), write("the user wants a refund"))

    assert judgement.verdict is Verdict.VERIFIED
    assert judgement.weight == 1.0
    assert judgement.evidence == (1,)
    assert not judgement.reported


def test_what_the_user_did_not_say_is_kept_as_an_intent_and_reported() -> None:
    judgement = judged(
        user("My lamp arrived broken"), agent("The user wants a refund."), write("the user wants a refund")
    )

    assert judgement.verdict is Verdict.UNSUPPORTED
    assert judgement.kind is MemoryKind.INTENT
    assert judgement.weight == 0.3
    assert judgement.reported
    assert not judgement.verified


def test_the_stamp_of_an_intent_says_who_wrote_it_when_and_until_when_it_lives() -> None:
    clock = ManualClock()
    gate = MemoryGate("run-7", settings=MemorySettings(intent_ttl_s=60), now_s=clock)

    judgement = judged(write("the user wants a refund", agent="writer"), gate=gate)

    assert judgement.stamp() == {
        "agentguard_status": "unsupported",
        "agentguard_kind": "intent",
        "agentguard_verified": False,
        "agentguard_weight": 0.3,
        "agentguard_evidence": "",
        "agentguard_run": "run-7",
        "agentguard_writer": "writer",
        "agentguard_created_s": clock.now_s,
        "agentguard_expires_s": clock.now_s + 60,
    }


def test_the_event_carries_the_verdict_for_whoever_wrote_it() -> None:
    gate = MemoryGate("run")
    memory = write("customer wants a refund", evidence=[Evidence(step=1, quote="I want a refund")])

    judged(user("I want a refund"), memory, gate=gate)

    assert (memory.verdict, memory.weight) == ("verified", 1.0)
    assert memory.reasons == ("the evidence shows it",)
    assert memory.stamp is not None
    assert memory.stamp["agentguard_evidence"] == "1"


def test_a_step_that_does_not_exist_is_no_evidence() -> None:
    judgement = judged(user("hello"), write("the port is 80", evidence=[Evidence(step=9)]))

    assert judgement.verdict is Verdict.UNSUPPORTED
    assert judgement.codes == (Reason.NO_SUCH_STEP,)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(agent("The port is 8080."), id="assistant text"),
        pytest.param(Plan(steps=[PlanStep(id="1", tool="serve", arguments={"port": 8080})]), id="plan"),
        pytest.param(read("the port is 8080"), id="recalled memory"),
        pytest.param(agent("The port is 8080.", name="system"), id="system prompt"),
        pytest.param(tool("the port is 8080", outcome=Outcome.FAILED), id="failed tool"),
        pytest.param(tool("the port is 8080", outcome=Outcome.DENIED), id="denied tool"),
        pytest.param(tool("the port is 8080", "search_memory"), id="tool that reads the memory"),
        pytest.param(tool("the port is 8080", served_from="guard"), id="refusal of the guard"),
        pytest.param(tool("the port is 8080, I think", "note", {"text": "the port is 8080, I think"}), id="echo"),
    ],
)
def test_only_tools_users_and_outside_events_make_evidence(event: ToolCall) -> None:
    judgement = judged(event, write("the port is 8080", evidence=[Evidence(step=1, quote="port is 8080")]))

    assert judgement.verdict is Verdict.UNSUPPORTED
    assert judgement.codes == (Reason.NOT_EVIDENCE,)


def test_the_answer_of_an_agent_that_is_called_as_a_tool_is_no_evidence() -> None:
    assert (
        verdict(
            agent("on it", name="auditor"),
            tool("gc.rs frees live objects", "auditor"),
            write("gc.rs frees live objects"),
        )
        == "unsupported"
    )


@pytest.mark.parametrize("trigger", [Trigger.EVENT, Trigger.WEBHOOK, Trigger.QUEUE])
def test_an_outside_event_is_evidence(trigger: Trigger) -> None:
    assert verdict(Turn(trigger=trigger, text="payment 991 failed"), write("payment 991 failed")) == "verified"


def test_a_quote_has_to_stand_in_the_step() -> None:
    judgement = judged(
        tool("p50 38 ms, p99 412 ms"), write("p99 is 412 ms", evidence=[Evidence(step=1, quote="p99 421 ms")])
    )

    assert judgement.verdict is Verdict.UNSUPPORTED
    assert judgement.codes == (Reason.QUOTE_NOT_FOUND,)


def test_a_quote_does_not_begin_inside_a_number() -> None:
    assert (
        verdict(tool("p99 412 ms"), write("p99 is 12 ms", evidence=[Evidence(step=1, quote="12 ms")])) == "unsupported"
    )


def test_a_quote_is_compared_without_case_spaces_and_punctuation() -> None:
    quote = "i  want,\na REFUND"

    assert (
        verdict(user("I want a refund!"), write("wants a refund", evidence=[Evidence(step=1, quote=quote)]))
        == "verified"
    )


def test_a_quote_under_a_wrong_step_number_counts_from_where_it_stands() -> None:
    judgement = judged(
        user("I want a refund"),
        agent("Noted."),
        write("customer wants a refund", evidence=[Evidence(step=2, quote="I want a refund")]),
    )

    assert judgement.verdict is Verdict.VERIFIED
    assert judgement.evidence == (1,)


def test_a_quote_that_says_something_else_does_not_carry_the_claim() -> None:
    memory = write("the user wants a refund", evidence=[Evidence(step=1, quote="My lamp arrived broken")])

    assert verdict(user("My lamp arrived broken"), memory) == "unsupported"


def test_a_number_that_the_quoted_step_does_not_have_is_not_carried_by_the_quote() -> None:
    memory = write("the budget is 700 euros", evidence=[Evidence(step=1, quote="our budget")])

    assert judged(user("our budget is 500 euros"), memory).codes == (Reason.VALUE_NOT_FOUND,)


def test_a_request_does_not_show_that_the_thing_was_done() -> None:
    judgement = judged(user("Please cancel my subscription"), write("the subscription was cancelled"))

    assert judgement.verdict is Verdict.UNSUPPORTED
    assert judgement.codes == (Reason.NOT_SHOWN_AS_DONE,)


def test_a_question_does_not_show_that_the_thing_was_done() -> None:
    assert verdict(user("Can you check if the invoice was paid?"), write("the invoice was paid")) == "unsupported"


def test_a_succeeded_call_shows_that_the_thing_was_done() -> None:
    call = tool("ok", "cancel_subscription", {"id": "SUB-9"}, effect=Effect.SIDE_EFFECT)

    assert verdict(call, write("subscription SUB-9 was cancelled")) == "verified"


def test_a_succeeded_call_for_something_else_shows_nothing() -> None:
    call = tool("ok", "cancel_subscription", {"id": "SUB-9"}, effect=Effect.SIDE_EFFECT)

    assert verdict(call, write("subscription SUB-8 was cancelled")) == "unsupported"


def test_a_failed_call_does_not_show_that_the_thing_was_done() -> None:
    call = tool("timeout", "refund", {"order": 9}, effect=Effect.SIDE_EFFECT, outcome=Outcome.FAILED)

    assert verdict(user("Please refund order 9"), call, write("order 9 was refunded")) == "unsupported"


def test_a_user_can_say_that_something_was_done() -> None:
    assert (
        verdict(user("I already cancelled it, my card was charged twice"), write("the card was charged twice"))
        == "verified"
    )


@pytest.mark.parametrize(
    "text",
    [
        "the customer probably wants a refund",
        "hypothesis: the cache is cold",
        "the user will move to Rome",
        "Der Kunde möchte vielleicht eine Erstattung",
        "клиент, возможно, хочет возврат",
        "用户可能想退款",
    ],
)
def test_what_is_worded_as_a_guess_or_a_plan_passes_as_an_intent(text: str) -> None:
    judgement = judged(user("I want a refund, and I will move to Rome"), write(text))

    assert judgement.kind is MemoryKind.INTENT
    assert judgement.codes == (Reason.WORDED_AS_GUESS,)
    assert not judgement.reported


@pytest.mark.parametrize("marks", [{"hypothesis": True}, {"kind": "intent"}])
def test_what_is_marked_as_a_guess_passes_as_an_intent(marks: dict[str, object]) -> None:
    judgement = judged(write("the cache is cold", **marks))

    assert judgement.kind is MemoryKind.INTENT
    assert not judgement.reported


def test_a_guess_of_the_user_is_no_fact() -> None:
    assert judged(user("I might move to Rome"), write("the user moves to Rome")).codes == (Reason.EVIDENCE_GUESSES,)


def test_a_procedure_without_evidence_is_an_intent_but_nobody_is_told() -> None:
    judgement = judged(write("deploy with make release", kind="procedure"))

    assert judgement.kind is MemoryKind.INTENT
    assert not judgement.reported


def test_a_value_that_was_corrected_does_not_come_in_again() -> None:
    judgement = judged(
        user("My office is in room 12."),
        write("room 12", "office"),
        user("Sorry, room 21."),
        update("room 21", "office"),
        write("room 12", "office", source="conversation"),
    )

    assert judgement.verdict is Verdict.CONTRADICTED
    assert judgement.weight == 0.0
    assert not judgement.stored
    assert judgement.reported


def test_a_value_that_only_the_user_corrected_does_not_come_in_either() -> None:
    assert (
        verdict(user("My office is in room 12."), user("Sorry, room 21."), write("office is in room 12"))
        == "contradicted"
    )


def test_what_is_denied_beside_its_correction_does_not_come_in() -> None:
    assert verdict(user("My office is room 21, not 12."), write("the office is room 12")) == "contradicted"


def test_a_corrected_value_comes_in_again_when_it_is_said_again() -> None:
    assert (
        verdict(
            user("My office is in room 12."),
            write("room 12", "office"),
            user("Sorry, room 21."),
            update("room 21", "office"),
            user("I am back in room 12 again"),
            update("room 12", "office"),
        )
        == "verified"
    )


def test_a_correction_reaches_only_what_it_is_about() -> None:
    assert (
        verdict(
            user("My office is in room 12. The printer stands in hall 12."),
            user("Sorry, my office is in room 21."),
            write("the printer stands in hall 12"),
        )
        == "verified"
    )


def test_a_word_of_protocol_does_not_replace_content() -> None:
    judgement = judged(
        user("Keep: short answers; metric units; no calls before nine."),
        write("short answers; metric units; no calls before nine", "preferences"),
        update("no change", "preferences"),
    )

    assert judgement.verdict is Verdict.CONTRADICTED
    assert judgement.codes == (Reason.PLACEHOLDER,)


def test_storing_the_same_entry_again_links_to_the_first() -> None:
    judgement = judged(user("I want tea"), write("wants tea", "drink"), write("wants  TEA", "drink"))

    assert judgement.verdict is Verdict.DUPLICATE
    assert judgement.linked == "drink"
    assert judgement.weight == 1.0
    assert not judgement.reported


def test_repeating_a_guess_does_not_make_it_more_certain() -> None:
    judgement = judged(write("wants tea", "drink"), write("wants tea", "drink"), write("wants tea", "drink"))

    assert judgement.verdict is Verdict.DUPLICATE
    assert judgement.weight == 0.3


def test_evidence_that_comes_later_makes_a_fact_of_a_guess() -> None:
    judgement = judged(write("wants tea", "drink"), user("I want tea"), write("wants tea", "drink"))

    assert judgement.verdict is Verdict.VERIFIED


def test_two_facts_in_a_script_without_latin_letters_are_two_facts() -> None:
    gate = MemoryGate("run")
    first = judged(user("Меня зовут Оля. Я живу в Томске."), write("Оля", "about"), gate=gate)
    second = judged(write("Томск", "about"), gate=gate)

    assert [first.verdict, second.verdict] == [Verdict.VERIFIED, Verdict.VERIFIED]


def test_a_recalled_memory_does_not_confirm_itself_under_another_name() -> None:
    assert (
        verdict(read("coder has no edit tool", "m1"), write("coder has no edit tool", "m2", source="conversation"))
        == "unsupported"
    )


def test_a_recalled_memory_that_a_tool_repeats_is_no_evidence() -> None:
    judgement = judged(
        read("coder has no edit tool", "m1"),
        tool("context: coder has no edit tool", "get_context"),
        write("coder has no edit tool", "m2"),
    )

    assert judgement.codes == (Reason.ONLY_RECALLED,)


def test_a_tool_that_said_it_before_it_was_recalled_is_evidence() -> None:
    assert (
        verdict(
            tool("coder has no edit tool"), read("coder has no edit tool", "m1"), write("coder has no edit tool", "m2")
        )
        == "verified"
    )


def test_evidence_that_was_dropped_by_the_cap_leaves_the_claim_open() -> None:
    gate = MemoryGate("run", settings=MemorySettings(max_bytes=8192))
    gate.submit(tool("the port is 8080"))
    for number in range(40):
        gate.submit(tool(f"line {number} " * 60))

    judgement = judged(write("the port is 8080", evidence=[Evidence(step=1)]), gate=gate)

    assert judgement.verdict is Verdict.UNVERIFIABLE
    assert judgement.kind is MemoryKind.INTENT
    assert not judgement.reported


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(user(None), id="user"),
        pytest.param(ToolCall(tool="x", outcome=Outcome.OK, result_known=False), id="tool"),
    ],
)
def test_content_that_was_not_captured_leaves_the_claim_open(event: Turn) -> None:
    assert verdict(event, write("the customer wants a refund")) == "unverifiable"


def test_a_turn_whose_text_follows_as_a_message_is_captured() -> None:
    assert (
        verdict(user(None), agent("My lamp broke", name="user"), write("the customer wants a refund")) == "unsupported"
    )


def test_a_language_that_words_cannot_bridge_leaves_the_claim_open() -> None:
    assert verdict(user("明天把报告发给财务部"), write("the report goes to finance tomorrow")) == "unverifiable"


def test_a_number_is_compared_across_languages() -> None:
    assert verdict(user("明天把报告发给财务部, 42"), write("the report goes to 43 people tomorrow")) == "unsupported"


def test_a_failure_of_the_gate_lets_the_write_through_as_an_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = MemoryGate("run")
    gate.submit(user("I want a refund"))

    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("otel_agentguard.memory.gate.read_claim", broken)
    memory = write("the user wants a refund")
    judgement = gate.submit(memory)

    assert judgement is not None
    assert judgement.verdict is Verdict.UNVERIFIABLE
    assert judgement.kind is MemoryKind.INTENT
    assert judgement.stored
    assert judgement.codes == (Reason.GATE_FAILED,)
    assert memory.verdict == "unverifiable"
    assert gate.failures == 1


def test_an_intent_is_never_recalled_as_a_premise() -> None:
    gate = MemoryGate("run", book=MemoryBook())
    judged(user("My lamp arrived broken"), write("the user wants a refund", "wish"), gate=gate)
    judged(write("the lamp arrived broken", "lamp"), gate=gate)

    recalled = gate.recall("refund lamp")

    assert [entry.value for entry in recalled] == ["the lamp arrived broken"]


def test_recalled_text_does_not_come_back_as_evidence() -> None:
    gate = MemoryGate("run", book=MemoryBook())
    judged(user("the port is 8080"), write("the port is 8080", "port"), gate=gate)
    later = MemoryGate("later", book=gate.book)

    (entry,) = later.recall("port")
    judgement = judged(tool(f"notes: {entry.text}", "read_prompt"), write("the port is 8080", "copy"), gate=later)

    assert judgement.verdict is Verdict.UNSUPPORTED


def test_settings_that_make_no_sense_say_what_would() -> None:
    with pytest.raises(ValueError, match="the least is 4096"):
        MemorySettings(max_bytes=10)
