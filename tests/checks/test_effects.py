from __future__ import annotations

from otel_agentguard.checks.effects import EffectsCheck
from otel_agentguard.engine import Engine
from otel_agentguard.events import Crash, Effect, Event, Outcome, Resume, ToolCall, ToolSpec, Trigger, Turn
from otel_agentguard.findings import Action, Finding, Kind
from otel_agentguard.fingerprint import call_digest, result_digest
from otel_agentguard.runs import Run


def mail(to: str = "pat@example.test", *, effect: Effect = Effect.SIDE_EFFECT, **more: object) -> ToolCall:
    return call("send_mail", {"to": to, "subject": "Hello"}, effect=effect, **more)


def call(tool: str, arguments: dict[str, object], *, effect: Effect = Effect.SIDE_EFFECT, **more: object) -> ToolCall:
    outcome = more.pop("outcome", Outcome.OK)
    return ToolCall(
        tool=tool,
        arguments=arguments,
        fingerprint=call_digest(tool, arguments),
        effect=effect,
        outcome=outcome,
        result="sent",
        result_digest=result_digest(outcome is not Outcome.OK, "sent"),
        **more,
    )


def replay(*events: Event, tools: dict[str, ToolSpec] | None = None) -> list[Finding]:
    engine = Engine(checks=[EffectsCheck()])
    run = engine.open(tools=tools)
    return [finding for event in events for finding in engine.observe(run, event).findings]


def user(said: str) -> Turn:
    return Turn(trigger=Trigger.USER, text=said)


def test_an_effect_made_again_is_found_at_the_second_time() -> None:
    findings = replay(mail(), call("look", {}, effect=Effect.READ), mail())

    assert [(one.kind, one.step, one.evidence, one.action) for one in findings] == [
        (Kind.DUPLICATE_SIDE_EFFECT, 3, (1, 3), Action.BLOCK)
    ]


def test_an_effect_on_somebody_else_is_another_effect() -> None:
    assert replay(mail("pat@example.test"), mail("kim@example.test")) == []


def test_reads_and_writes_are_no_side_effects() -> None:
    assert (
        replay(*[mail(effect=effect) for effect in (Effect.READ, Effect.WRITE, Effect.UNKNOWN) for _ in range(2)]) == []
    )


def test_a_new_turn_of_the_user_makes_the_same_effect_legitimate() -> None:
    assert replay(mail(), user("once more please"), mail()) == []


def test_the_same_event_delivered_twice_is_no_new_intent() -> None:
    def delivery() -> Turn:
        return Turn(trigger=Trigger.QUEUE, event="order-9")

    assert [one.step for one in replay(delivery(), mail(), delivery(), mail())] == [4]


def test_another_event_is_a_new_intent() -> None:
    assert replay(Turn(trigger=Trigger.QUEUE, event="a"), mail(), Turn(trigger=Trigger.QUEUE, event="b"), mail()) == []


def test_an_effect_repeated_after_a_crash_and_resume_is_found() -> None:
    assert [one.step for one in replay(mail(), Crash(), Resume(), mail())] == [4]


def test_a_failed_attempt_may_be_made_again() -> None:
    assert replay(mail(outcome=Outcome.FAILED), mail()) == []


def test_an_attempt_of_unknown_outcome_may_not() -> None:
    findings = replay(mail(outcome=Outcome.UNKNOWN), mail())

    assert [one.step for one in findings] == [2]
    assert "nobody knows how it ended" in findings[0].message


def test_calls_that_never_ran_or_were_replayed_are_no_effects() -> None:
    assert (
        replay(mail(), mail(outcome=Outcome.NOT_EXECUTED), mail(served_from="replay"), mail(outcome=Outcome.DENIED))
        == []
    )


def test_two_equal_effects_of_one_model_turn_are_found() -> None:
    assert [one.step for one in replay(mail(batch="7"), mail(batch="7"))] == [2]


def test_an_argument_that_is_null_and_one_that_is_absent_are_the_same() -> None:
    first = call("transfer", {"to": "b", "amount": 50, "memo": None})

    assert [one.step for one in replay(first, call("transfer", {"to": "b", "amount": 50}))] == [2]


def test_a_text_that_the_model_wrote_anew_after_a_resume_is_the_same_effect() -> None:
    def ticket(body: str) -> ToolCall:
        return call("open_ticket", {"project": "core", "body": body})

    reworded = ticket("Steps to follow: open the page and press login")

    assert [one.step for one in replay(ticket("Open the page, then press login"), Resume(), reworded)] == [3]


def test_without_a_resume_another_text_is_another_effect() -> None:
    def ticket(body: str) -> ToolCall:
        return call("open_ticket", {"project": "core", "body": body})

    assert replay(ticket("Open the page, then press login"), ticket("The footer is cut off on phones")) == []


def test_declared_identity_says_what_makes_an_effect_the_same() -> None:
    tools = {"charge": ToolSpec(name="charge", identity=("invoice",))}
    first, second = (call("charge", {"invoice": "i-1", "note": note}) for note in ("a", "b"))

    assert [one.step for one in replay(first, second, tools=tools)] == [2]


def test_a_tool_declared_repeatable_is_left_alone() -> None:
    tools = {"roll": ToolSpec(name="roll", repeatable=True)}

    assert replay(call("roll", {"sides": 6}), call("roll", {"sides": 6}), tools=tools) == []


def test_an_effect_that_the_ledger_answers_for_is_left_to_it() -> None:
    assert replay(mail(claimed=True), mail(claimed=True)) == []


def test_a_live_call_is_refused_before_it_runs() -> None:
    engine = Engine(checks=[EffectsCheck()])
    run = engine.open()
    first, second = mail(outcome=None), mail(outcome=None)
    engine.before(run, first)
    first.outcome = Outcome.OK
    engine.after(run, first)

    decision = engine.before(run, second)

    assert decision.action is Action.BLOCK
    assert second.refused


def test_commands_that_change_something_are_marked_when_they_come_again() -> None:
    first, second = (call("shell", {"command": "rm -rf build"}, effect=Effect.UNKNOWN) for _ in range(2))
    looked = [call("shell", {"command": "ls build"}, effect=Effect.UNKNOWN) for _ in range(2)]

    findings = replay(first, second, *looked)

    assert findings == []
    assert [one.again for one in (first, second, *looked)] == [False, True, False, False]


def test_state_stays_bounded_however_many_effects_a_run_makes() -> None:
    engine = Engine(checks=[EffectsCheck()])
    run: Run = engine.open()

    for number in range(3000):
        engine.observe(run, mail(f"{number}@example.test"))

    [(_, check)] = run.checks
    assert len(check._made) <= 512
