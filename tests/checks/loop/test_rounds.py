"""Cycles of one agent and ping-pong of several: exact rounds, and talk that brings nothing new."""

from __future__ import annotations

import pytest
from loop_runs import (
    REWORDED,
    TEXT,
    WORDS,
    Seen,
    Watch,
    ask,
    compaction,
    fail,
    first,
    found,
    hand,
    read,
    say,
    turn,
    wait,
    write,
)

from otel_agentguard.events import Event, ToolCall
from otel_agentguard.findings import Action, Kind, Limits


def step_of(place: int) -> ToolCall:
    return read(f"{WORDS[place]}.txt", f"{TEXT} It names {WORDS[place]}.")


@pytest.mark.parametrize("period", range(2, 17))
def test_a_cycle_of_every_period_is_found_at_the_first_step_of_the_third_round(period: int) -> None:
    findings = found(step_of(place) for _ in range(5) for place in range(period))

    assert findings[:3] == [
        Seen(2 * period + 1, Kind.CYCLE, Action.HINT),
        Seen(3 * period + 1, Kind.CYCLE, Action.BLOCK),
        Seen(4 * period + 1, Kind.CYCLE, Action.STOP),
    ]


@pytest.mark.parametrize("period", range(2, 17))
def test_the_members_of_a_reported_cycle_are_folded_into_it(period: int) -> None:
    findings = found(step_of(place) for _ in range(5) for place in range(period))

    assert {seen.kind for seen in findings} == {Kind.CYCLE}
    assert len(findings) == 3


def test_a_long_cycle_is_found_by_its_members() -> None:
    findings = found(read(f"{number}.txt", f"{TEXT} Page {number}.") for _ in range(3) for number in range(100))

    assert findings[0] == (201, Kind.LOOP, Action.HINT)


def test_a_cycle_whose_results_change_is_work() -> None:
    findings = found(
        ask(f"tool_{place}", f"{WORDS[(place + 5 * turn) % 25]} near {WORDS[(3 * place + 7 * turn) % 25]}")
        for turn in range(5)
        for place in range(3)
    )

    assert findings == []


def test_a_cycle_with_a_write_of_something_new_is_work() -> None:
    build = [[read(), write(content=f"x = {number}"), fail("test", "expected 2 but got 1")] for number in range(6)]

    assert [seen for seen in found(build) if seen.kind is Kind.CYCLE] == []


def test_a_cycle_with_the_same_write_is_a_cycle() -> None:
    assert first([read(), write(), fail("test", "expected 2 but got 1")] for _ in range(4)) == (
        7,
        Kind.CYCLE,
        Action.HINT,
    )


def test_writes_that_flip_a_file_back_and_forth_are_a_cycle() -> None:
    flip = [
        write(content="x = 1"),
        fail("test", "expected 2 but got 1"),
        write(content="x = 2"),
        fail("test", "expected 1 but got 2"),
    ]

    assert first(flip, flip_again(flip), flip_again(flip)) == (9, Kind.CYCLE, Action.HINT)


def flip_again(calls: list[ToolCall]) -> list[ToolCall]:
    return [
        write(content=str((call.arguments or {})["content"]))
        if call.tool == "write_file"
        else fail("test", str(call.result))
        for call in calls
    ]


def test_a_new_turn_begins_the_rounds_anew() -> None:
    assert found([turn(), step_of(0), step_of(1)] for _ in range(5)) == []


def test_a_compaction_excuses_one_round() -> None:
    files = [step_of(place) for place in range(3)]

    findings = found(again(files), again(files), compaction(), again(files), again(files))

    assert findings[0].step == 11


def again(calls: list[ToolCall]) -> list[ToolCall]:
    return [read(str((call.arguments or {})["path"]), call.result) for call in calls]


def test_a_cycle_with_a_real_wait_is_a_poll() -> None:
    findings = found([step_of(0), step_of(1), wait()] for _ in range(9))

    assert findings[0].step > 15


def test_calls_that_two_agents_make_in_turns_are_ping_pong_of_calls() -> None:
    findings = found(
        ask(f"{agent}_check", f"{TEXT} Says {agent}.", agent=agent) for _ in range(4) for agent in ("ann", "bob")
    )

    assert findings[0] == (5, Kind.PINGPONG, Action.HINT)


def test_two_agents_that_send_each_other_the_same_are_found_in_the_third_round() -> None:
    talk = [say("ann", "Please review the draft."), say("bob", "Please send the draft again.")]

    assert first(say(one.agent, one.text or "") for _ in range(4) for one in talk) == (5, Kind.PINGPONG, Action.HINT)


def test_three_agents_that_send_each_other_the_same_are_found_in_the_third_round() -> None:
    talk = ["Shall we deploy it now?", "That is for the third of us to say.", "It is up to the first of us."]

    findings = found(say(agent, text) for _ in range(5) for agent, text in zip("abc", talk, strict=True))

    assert findings == [
        (7, Kind.PINGPONG, Action.HINT),
        (10, Kind.PINGPONG, Action.BLOCK),
        (13, Kind.PINGPONG, Action.STOP),
    ]


def test_short_words_that_go_to_and_fro_are_ping_pong_too() -> None:
    assert first(say(agent, text) for _ in range(3) for agent, text in (("a", "you start"), ("b", "no, you"))) == (
        5,
        Kind.PINGPONG,
        Action.HINT,
    )


def test_handoffs_to_and_fro_are_ping_pong() -> None:
    findings = found([hand("sales", "billing", "an invoice"), hand("billing", "sales", "an order")] for _ in range(3))

    assert findings == [(5, Kind.PINGPONG, Action.HINT)]


def test_a_handoff_chain_that_gets_on_is_work() -> None:
    chain = [
        hand("triage", "billing", "customer 7 asks about the invoice of May"),
        hand("billing", "accounts", "the discount on that invoice needs an approval"),
        hand("accounts", "manager", "ten percent for a late delivery, please decide"),
        hand("manager", "accounts", "granted, since the truck broke down"),
        hand("accounts", "billing", "booked under 4711"),
        hand("billing", "triage", "the new amount is 90 euros, tell the customer"),
    ]

    assert found(chain) == []


def test_new_results_in_between_end_the_talk_before() -> None:
    findings = found(
        [
            say("ann", "Please look into the next file and report."),
            read(f"{word}.txt", f"{word} is all that it says", agent="bob"),
            say("bob", "I have looked into the file and reported."),
        ]
        for word in WORDS[:6]
    )

    assert findings == []


def test_old_results_in_between_do_not() -> None:
    findings = found(
        [
            say("ann", "Please look into that file and report."),
            read(agent="bob"),
            say("bob", "I have looked into the file and reported."),
        ]
        for _ in range(4)
    )

    assert {seen.kind for seen in findings} & {Kind.PINGPONG, Kind.CYCLE, Kind.LOOP}


SAME_IN_OTHER_WORDS = {
    "two agents": (
        "ab",
        REWORDED[:6],
    ),
    "three agents": (
        "abc",
        [
            "The release waits for the sign-off of quality assurance.",
            "Quality assurance signs the release off once the manager approves.",
            "I deploy the release after the sign-off of quality assurance.",
            "I approve the release after the sign-off of quality assurance.",
            "The sign-off of the release follows once the manager approves it.",
            "Deploy the release comes after the quality assurance sign-off.",
            "The sign-off of quality assurance comes first, then I approve.",
            "The manager approves first, then the release gets its sign-off.",
            "After the quality assurance sign-off I deploy the release.",
        ],
    ),
    "thanks and goodbyes": (
        "ab",
        [
            "Thank you so much for your help, have a wonderful day!",
            "You are welcome! Have a wonderful day as well!",
            "Thanks again, and have a great day!",
            "My pleasure, a great day to you too!",
            "Thank you, goodbye, have a wonderful day!",
            "Goodbye and thanks, a wonderful day to you!",
        ],
    ),
}


@pytest.mark.parametrize(("agents", "texts"), SAME_IN_OTHER_WORDS.values(), ids=SAME_IN_OTHER_WORDS)
def test_agents_that_say_the_same_in_other_words_get_a_hint_in_the_third_round(agents: str, texts: list[str]) -> None:
    talk = [say(agents[number % len(agents)], text) for number, text in enumerate(texts)]

    assert found(talk) == [(3 * len(agents), Kind.PINGPONG, Action.HINT)]


def test_reworded_talk_is_never_refused() -> None:
    agents, texts = SAME_IN_OTHER_WORDS["two agents"]
    talk = [say(agents[number % 2], f"{texts[number % 6]} {'Please! ' * (number // 6)}") for number in range(60)]

    assert {seen.action for seen in found(talk)} == {Action.HINT}


GETTING_ON = {
    "work": [
        "We need a landing page with three parts: a picture, prices, and an address.",
        "The picture is in, with a gradient; prices are a table of four plans.",
        "Swap the table for cards, and add discounts for a whole year.",
        "Cards are in, a switch shows the discounts; the form posts to /api/mail.",
        "Protect it against spam, perhaps by a hidden field.",
        "The hidden field is there, and each IP address may send five times an hour.",
        "Good. The last item is a dark mode.",
        "It follows the preference of the system.",
    ],
    "short": [
        "What would you like?",
        "Tomato soup please.",
        "Small or large?",
        "Large, with bread.",
        "Anything to drink?",
        "Sparkling water.",
        "Dessert later?",
        "Yes, the apple cake.",
    ],
    "haggling": [
        "I offer 100 euros for the bike.",
        "I want 200 euros, it is nearly new.",
        "I can go up to 120.",
        "180 and I add the lock.",
        "140 with the lock.",
        "160, that is my last word.",
        "150 and I collect it today.",
        "Deal.",
    ],
    "revision": [
        "Draft: the river rose overnight and took the bridge.",
        "Good opening. Who sees it? Name a person.",
        "Draft: Marta woke when the river took the bridge.",
        "Better. Add the sound of it.",
        "Draft: Marta woke to the groan of timber as the river took the bridge.",
        "Strong. Now the next sentence.",
        "Draft: she counted the lamps on the far bank, and one was missing.",
        "Keep that. Finish the paragraph.",
    ],
}


@pytest.mark.parametrize("texts", GETTING_ON.values(), ids=GETTING_ON)
def test_agents_that_get_on_with_something_are_left_alone(texts: list[str]) -> None:
    assert found(say("ab"[number % 2], text) for number, text in enumerate(texts)) == []


def test_set_phrases_of_a_manager_are_no_talk() -> None:
    work = ["the parser has 40 lines", "unicode breaks it", "NFC mends it", "an empty file passes", "93 % are covered"]

    findings = found([say("manager", "Next speaker coder"), say("coder", text)] for text in work)

    assert findings == []


def test_a_manager_who_only_calls_on_others_goes_round_in_nothing() -> None:
    findings = found(say("manager", f"Next speaker {name}") for _ in range(5) for name in ("coder", "tester", "writer"))

    assert findings == []


def test_set_phrases_prove_nothing_where_the_other_one_asks_something_else_each_time() -> None:
    asked = [
        "Go to the page with the prices for parcels and work out what a letter to New York costs.",
        "Go on to the prices for letters and get what an express letter to New York costs.",
        "Load the page with the prices again, then compare the rates of the two private couriers.",
        "Visit both couriers instead and note the price of a letter within a week, in dollars.",
    ]

    assert found([say("lead (to browser)", text), say("lead", "Next speaker browser")] for text in asked) == []


def test_set_phrases_do_not_hide_that_the_other_one_asks_the_same() -> None:
    asked = [
        "Please verify whether the yeti crab is a crustacean.",
        "Please verify whether the yeti crab is a crustacean by searching.",
        "Please verify by searching online whether the yeti crab is a crustacean.",
        "Please verify online that the yeti crab is a crustacean.",
    ]

    findings = found([say("lead (to browser)", text), say("lead", "Next speaker browser")] for text in asked)

    assert [seen.kind for seen in findings] == [Kind.PINGPONG]


def test_rounds_can_be_set_to_end_a_run_earlier() -> None:
    watch = Watch(cycle=Limits(2, 2, 3))

    findings = watch.add(step_of(place) for _ in range(3) for place in range(3))

    assert [seen.action for seen in findings] == [Action.BLOCK, Action.STOP]


def test_the_evidence_of_a_cycle_is_its_latest_steps() -> None:
    watch = Watch()

    watch.add(step_of(place) for _ in range(3) for place in range(3))

    assert watch.findings[0].evidence == (1, 2, 3, 4, 5, 6, 7)


def test_events_of_other_kinds_do_not_break_a_round_of_calls() -> None:
    def with_thoughts(place: int, number: int) -> list[Event]:
        return [say("agent", f"Now to {WORDS[place]}, for the {number}. time."), step_of(place)]

    findings = found(with_thoughts(place, number) for number in range(4) for place in range(3))

    assert findings[0].kind is Kind.CYCLE
