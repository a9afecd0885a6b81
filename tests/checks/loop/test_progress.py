"""What counts as progress: what resets a count, what holds it, and what does neither."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from loop_runs import (
    TEXT,
    WORDS,
    Events,
    Play,
    Watch,
    ask,
    compaction,
    fail,
    first,
    found,
    read,
    request,
    say,
    turn,
    write,
)

from otel_agentguard.events import Crash, Effect, Outcome, Resume, ToolCall, Trigger
from otel_agentguard.findings import Action, Kind
from otel_agentguard.testing import tool_call


def again(call: ToolCall) -> ToolCall:
    return tool_call(
        call.tool, call.arguments, call.result, agent=call.agent, effect=call.effect, outcome=call.outcome or Outcome.OK
    )


def news(number: int, **more: object) -> ToolCall:
    return ask(
        "search", f"{WORDS[number]} grows beside {WORDS[number + 5]} near {WORDS[number + 9]}", q=WORDS[number], **more
    )


def test_a_result_with_new_content_begins_a_new_count() -> None:
    results = [TEXT, TEXT, "The garden is closed for the winter, come back in spring.", TEXT, TEXT]

    assert found(ask("page", result) for result in results) == []


def test_the_same_content_in_another_order_is_the_same() -> None:
    lines = ["one gate", "two ponds", "three oaks", "four walls"]

    step, kind, _ = first(ask("list", "\n".join(lines[n:] + lines[:n])) for n in range(3)) or (0, None, None)

    assert (step, kind) == (3, Kind.LOOP)


def test_a_long_answer_without_a_new_word_is_the_same() -> None:
    page = " ".join(f"{a} {b} and {a} again," for a, b in zip(WORDS, WORDS[3:], strict=False))
    pages = [page, page.replace("amber dune", "dune amber"), page.replace("birch ember", "ember birch")]

    assert first(ask("open", page) for page in pages) == (3, Kind.LOOP, Action.HINT)


def test_an_answer_that_has_grown_is_new() -> None:
    logs = [" ".join(f"task {word} has finished." for word in WORDS[: number + 8]) for number in range(9)]

    assert found(ask("log", log) for log in logs) == []


def test_one_new_word_in_a_short_answer_is_new() -> None:
    assert found(ask("status", f"the job is in stage {word} now") for word in WORDS[:9]) == []


def test_a_name_that_was_not_seen_before_is_new() -> None:
    page = " ".join(f"{a} {b} and {a} again," for a, b in zip(WORDS, WORDS[3:], strict=False))

    assert found(ask("open", f"{page} signed by {name}") for name in ("Ann Lee", "Bo Kim", "Cy Ray", "Di Fox")) == []


def test_a_changed_failure_begins_a_new_count() -> None:
    errors = ["connection refused by peer", "connection refused by peer", "certificate has expired", "host is unknown"]

    assert found(fail("connect", error) for error in errors) == []


def test_a_new_user_turn_forgives_what_succeeded() -> None:
    assert found([turn(), read()] for _ in range(6)) == []


@pytest.mark.parametrize("trigger", [Trigger.TIMER, Trigger.CRON, Trigger.HEARTBEAT])
def test_a_tick_forgives_what_succeeded(trigger: Trigger) -> None:
    assert found([turn(trigger), read()] for _ in range(12)) == []


def test_another_event_forgives_and_the_same_event_does_not() -> None:
    others = found([turn(Trigger.WEBHOOK, event=f"e{number}"), read()] for number in range(6))
    same = found([turn(Trigger.WEBHOOK, event="e1"), read()] for _ in range(3))

    assert others == []
    assert same == [(6, Kind.LOOP, Action.HINT)]


@pytest.mark.parametrize(
    "trigger", [Trigger.NEW_RUN, Trigger.NEW_SESSION, Trigger.WORKFLOW, Trigger.BATCH, Trigger.COMPACTION]
)
def test_what_is_no_new_intent_forgives_nothing(trigger: Trigger) -> None:
    assert first([turn(trigger), read()] for _ in range(3)) == (6, Kind.LOOP, Action.HINT)


def test_a_replayed_turn_forgives_nothing() -> None:
    assert first([turn(replay=True), read()] for _ in range(3)) == (6, Kind.LOOP, Action.HINT)


def test_an_equal_failure_stays_counted_over_user_turns() -> None:
    assert first([turn(text="It still does not work."), fail()] for _ in range(3)) == (6, Kind.LOOP, Action.HINT)


def test_a_long_prompt_that_comes_letter_for_letter_again_is_no_person() -> None:
    prompt = "Continue with the task. Use the tools that you have, and give the final answer only when it is complete."

    findings = found([turn(text=prompt), read()] for _ in range(4))

    assert findings[0] == (6, Kind.LOOP, Action.HINT)


def test_a_short_prompt_may_be_typed_many_times() -> None:
    assert found([turn(text="again please"), read()] for _ in range(6)) == []


def test_a_declared_write_begins_a_new_count() -> None:
    assert found([read(), write(content=f"x = {number}")] for number in range(6)) == []


def test_a_declared_side_effect_begins_a_new_count() -> None:
    sent = [tool_call("send", {"to": f"{n}@x.org"}, "sent", effect=Effect.SIDE_EFFECT) for n in range(6)]

    assert found([read(), mail] for mail in sent) == []


def test_a_write_that_itself_only_repeats_resets_nothing() -> None:
    assert first([read(), write()] for _ in range(4)) is not None


def test_a_write_that_failed_resets_nothing() -> None:
    failures = [
        tool_call("write_file", {"path": f"{n}"}, f"disk {n} is full", effect=Effect.WRITE, outcome=Outcome.FAILED)
        for n in range(3)
    ]

    assert first([read(), failure] for failure in failures) == (5, Kind.LOOP, Action.HINT)


def test_a_write_that_was_refused_or_denied_resets_nothing() -> None:
    declined = [
        tool_call("write_file", {"path": f"{n}"}, "declined", effect=Effect.WRITE, outcome=Outcome.DENIED)
        for n in range(3)
    ]

    assert first([read(), call] for call in declined) == (5, Kind.LOOP, Action.HINT)


def test_a_command_that_surely_writes_resets_like_a_declared_write() -> None:
    commands = [ask("shell", "", command=f"echo {word} >> notes.txt") for word in WORDS[:6]]

    assert found([read(), command] for command in commands) == []


def test_a_command_that_surely_reads_neither_resets_nor_raises_a_limit() -> None:
    commands = [ask("shell", f"{word} {word}s", command=f"grep -n {word} notes.txt | head -3") for word in WORDS[:6]]

    assert first([ask("page", TEXT), command] for command in commands) == (5, Kind.LOOP, Action.HINT)


def test_the_table_of_commands_can_be_switched_off() -> None:
    from otel_agentguard.config import LoopSettings, Settings

    commands = [ask("shell", f"{word} {word}s", command=f"grep -n {word} notes.txt") for word in WORDS[:6]]
    watch = Watch(Settings(loop=LoopSettings(dry_commands=False)))

    findings = watch.add([ask("page", TEXT), command] for command in commands)

    assert findings[0] == (7, Kind.LOOP, Action.HINT)


def test_declared_reads_in_between_reset_nothing() -> None:
    assert first([read(), read(f"{word}.txt", f"{word} alone")] for word in WORDS[:4]) == (5, Kind.LOOP, Action.HINT)


def test_an_unknown_call_with_something_new_raises_the_limits_by_one() -> None:
    assert first([read(), news(number)] for number in range(6)) == (7, Kind.LOOP, Action.HINT)


def test_the_limits_rise_by_one_in_all_however_many_gaps_there_are() -> None:
    gaps = [[news(number * 3), news(number * 3 + 1), news(number * 3 + 2)] for number in range(5)]

    assert first([read(), gap] for gap in gaps) == (13, Kind.LOOP, Action.HINT)


def test_an_unknown_call_with_a_known_result_changes_nothing() -> None:
    watch = Watch()
    watch.add(news(0))

    findings = watch.add([read(), news(0)] for _ in range(3))

    assert findings[0].step in (5, 6)


@pytest.mark.parametrize(
    "gap",
    [
        lambda n: say("agent", f"Let me look at that {WORDS[n]} once more."),
        lambda n: request(f"what next after {n}", WORDS[n]),
        lambda n: [Crash(), Resume(attempt=n, run=f"r{n}")],
        lambda n: fail("lint", f"the {WORDS[n]} is not installed here"),
    ],
    ids=["narration", "model call", "crash and another run id", "failing sibling"],
)
def test_what_could_not_touch_the_outcome_neither_resets_nor_counts(gap: Callable[[int], Events]) -> None:
    watch = Watch()

    watch.add([read(), gap(number)] for number in range(3))

    assert [(finding.kind, finding.count) for finding in watch.findings] == [(Kind.LOOP, 3)]


def test_a_compaction_forgives_one_reading_of_each_file_again() -> None:
    watch = Watch()
    files = ["the first file is about amber", "the second one tells of birches"]
    watch.add([[read(text[:9], text) for text in files] for _ in range(2)], compaction())

    forgiven = watch.add(read(text[:9], text) for text in files)
    counted = watch.add(read(files[0][:9], files[0]))

    assert forgiven == []
    assert counted != []


def test_a_compaction_after_each_reading_forgives_but_one() -> None:
    assert first([read(), compaction()] for _ in range(9)) is not None


def test_a_compaction_forgives_no_failure() -> None:
    assert first([fail(), compaction()] for _ in range(3)) == (5, Kind.LOOP, Action.HINT)


def test_acknowledgements_are_no_information() -> None:
    watch = Watch()
    watch.add(ask("log", "done", line=word) for word in WORDS[:3])

    watch.add(ask("note", "done", text=WORDS[5]))

    assert watch.run.info.progress <= 1


def test_a_tool_that_only_ever_answers_with_silence_changes_nothing() -> None:
    silent = [ask("log", "", line=word) for word in WORDS[:6]]

    assert first([ask("page", TEXT), call] for call in silent) == (5, Kind.LOOP, Action.HINT)


def test_an_answer_made_of_the_callers_own_words_is_no_information() -> None:
    thoughts = [
        f"I think that the {a} must be checked before the {b} and the {c} can be moved over to the new {d}"
        for a, b, c, d in zip(WORDS, WORDS[4:], WORDS[8:], WORDS[12:], strict=False)
    ]

    findings = found(
        [ask("page", TEXT), ask("think", f"Thought: {thought}", thought=thought)] for thought in thoughts[:5]
    )

    assert findings[0].step == 5


def test_calls_that_never_ran_are_no_attempts() -> None:
    throttled = tool_call("search", {"q": "x"}, "429, retry after 2 s", outcome=Outcome.NOT_EXECUTED)

    assert found(again(throttled) if n else throttled for n in range(6)) == []


def test_a_denial_by_a_person_is_an_attempt() -> None:
    declined = tool_call("delete", {"path": "/"}, "The user declined.", outcome=Outcome.DENIED)

    assert first(again(declined), again(declined)) == (2, Kind.LOOP, Action.HINT)


def test_results_that_nobody_knows_are_never_equal() -> None:
    calls = [ToolCall(tool="t", fingerprint=b"k" * 16, arguments={"a": 1}, outcome=Outcome.OK) for _ in range(9)]

    assert found(calls) == []


def test_arguments_that_nobody_knows_are_never_equal() -> None:
    calls = [ToolCall(tool="t", outcome=Outcome.OK, result=TEXT, result_digest=b"d" * 16) for _ in range(9)]

    assert found(calls) == []


def test_equal_calls_of_one_model_turn_are_one_attempt() -> None:
    watch = Watch()
    batch = [read(), read(), read(), read()]
    for call in batch:
        call.batch = "m1"

    findings = watch.add(batch)

    assert findings == []
    assert [call.redundant for call in batch] == [False, True, True, True]


def test_equal_calls_of_several_model_turns_are_several_attempts() -> None:
    watch = Watch()
    batches = [[read(), read()] for _ in range(3)]
    for number, batch in enumerate(batches):
        for call in batch:
            call.batch = f"m{number}"

    findings = watch.add(batches)

    assert findings == [(5, Kind.LOOP, Action.HINT)]


def test_equal_calls_that_run_at_once_are_one_attempt() -> None:
    watch = Watch()
    engine, run = watch.engine, watch.run
    for _ in range(2):
        together = [read() for _ in range(4)]
        for call in together:
            engine.before(run, call, enforce=False)
        for call in reversed(together):
            engine.after(run, call, enforce=False)

    findings = watch.add(read())

    assert findings == [(9, Kind.LOOP, Action.HINT)]


def test_a_call_that_never_ends_does_not_hide_a_loop() -> None:
    watch = Watch()
    watch.engine.before(watch.run, read(), enforce=False)

    findings = watch.add(read() for _ in range(3))

    assert findings == [(4, Kind.LOOP, Action.HINT)]


def test_a_replayed_result_is_no_attempt() -> None:
    watch = Watch()
    recorded = [read() for _ in range(6)]
    for call in recorded:
        call.served_from = "replay"

    assert watch.add(recorded) == []


def test_an_equal_call_of_another_agent_counts_only_once_one_agent_has_repeated() -> None:
    once_each = found(read(agent=name) for name in ("ann", "bob", "cy", "di", "eve"))
    in_turns = found(read(agent=name) for name in ("ann", "bob", "ann", "bob"))

    assert once_each == []
    assert in_turns != []


def test_changed_numbers_count_only_back_to_back() -> None:
    polls = [ask("status", f"{number + 3} of 80 parts of the job are done by now", job=7) for number in range(12)]

    together = found(polls)
    apart = found([again(poll), news(number)] for number, poll in enumerate(polls))

    assert together[0] == (8, Kind.LOOP, Action.HINT)
    assert apart == []


def test_a_relapse_goes_on_where_it_was() -> None:
    play = Play()
    play.actions(read() for _ in range(5))
    play.do(write())

    relapse = play.actions(read() for _ in range(3))

    assert relapse == [Action.ALLOW, Action.ALLOW, Action.BLOCK]


def test_progress_elsewhere_takes_a_tenth_off_each_time() -> None:
    watch = Watch()
    watch.add(read() for _ in range(4))
    watch.add(read(f"{number}.txt", f"chapter {number} of {WORDS[number]}") for number in range(20))

    findings = watch.add(read())

    assert findings == []


def test_the_empty_answer_is_named_as_an_answer() -> None:
    watch = Watch()

    watch.add(ask("list_orders", [], customer=1) for _ in range(3))

    assert "The empty answer is the answer" in watch.findings[0].message


def test_changed_numbers_of_a_generator_or_cursor_are_what_it_is_for() -> None:
    for effect in (Effect.GENERATOR, Effect.CURSOR):
        assert found(tool_call("next", {}, f"number {n}", effect=effect) for n in range(20)) == []


def test_a_cursor_that_has_come_to_its_end_is_found() -> None:
    blocks = [tool_call("next", {}, f"{word} block", effect=Effect.CURSOR) for word in WORDS[:5]]
    end = [tool_call("next", {}, "no more blocks", effect=Effect.CURSOR) for _ in range(3)]

    assert first(blocks, end) == (8, Kind.LOOP, Action.HINT)


def test_the_evidence_begins_with_the_first_step_of_the_outcome_that_is_counted() -> None:
    watch = Watch()

    watch.add(ask("build", TEXT, target="app"), (fail("build", "no compiler", target="app") for _ in range(3)))

    assert watch.findings[0].evidence == (2, 3, 4)
