"""Kinds and default limits: at which ordinal each row hints, blocks and stops, and how that is set."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from loop_runs import FERRY, REWORDED, TEXT, WORDS, Seen, Watch, ask, fail, found, hand, read, say, wait

from otel_agentguard.config import LOOP_ROWS, LoopSettings, Settings, ToolSettings
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Event, Outcome, ToolCall
from otel_agentguard.findings import Action, Kind, Limits
from otel_agentguard.testing import tool_call

HINT, BLOCK, STOP = Action.HINT, Action.BLOCK, Action.STOP


def denied() -> ToolCall:
    return tool_call("delete", {"path": "/srv"}, "The user declined.", outcome=Outcome.DENIED)


def poll(number: int, *, apart_s: float = 1.0, result: str = TEXT) -> ToolCall:
    return ask("status", result, at=number * apart_s, job=7)


def in_numbers(number: int) -> ToolCall:
    return poll(number, result=f"The job runs since {number + 3} minutes and has used {number * 17} MB of memory.")


def reordered_words(number: int) -> ToolCall:
    query = ["rain in Ulm", "Rain in ulm", "in Ulm rain", '"rain in Ulm"', "rain  in  Ulm"][number % 5]
    return ask("search", TEXT, query=query)


def other_token(number: int) -> ToolCall:
    return ask("search", TEXT, query=f"how deep is the {WORDS[number]} lake")


def other_host_fails(number: int) -> ToolCall:
    return fail("ping", f"ping: host-{number}.example.org: no route to host", host=f"host-{number}.example.org")


def other_host_answers(number: int) -> ToolCall:
    return ask("uptime", "The machine is up and idle.", host=f"host-{number}.example.org")


def same_error(number: int) -> ToolCall:
    code = [
        "import toml",
        "load('a')",
        "print(x)\ny = 2",
        "f = open('c')",
        "for i in range(3):\n    go(i)",
        "del z",
        "a.b()",
    ]
    return fail("python", "ModuleNotFoundError: this build of the interpreter has no such module", code=code[number])


def in_cycle(number: int) -> ToolCall:
    return read(f"{number % 3}.txt", f"{TEXT} {WORDS[number % 3]}")


def exact_talk(number: int) -> Event:
    return say("ada", "Please send me the draft.") if number % 2 == 0 else say("bob", "Here it is, please check it.")


def exact_handoff(number: int) -> Event:
    return hand("ada", "bob", "yours") if number % 2 == 0 else hand("bob", "ada", "no, yours")


def reworded_talk(number: int) -> Event:
    return say("ada" if number % 2 == 0 else "bob", REWORDED[number % len(REWORDED)])


def on_one_subject(number: int) -> ToolCall:
    return ask(
        "search", f"The museum of the town has a model of a ferry. Copy {number}.", query=FERRY[number % len(FERRY)]
    )


ROWS: list[tuple[str, Callable[[int], Event], int, Kind, dict[int, Action]]] = [
    ("same", lambda n: read(), 9, Kind.LOOP, {3: HINT, 5: BLOCK, 7: STOP}),
    ("failing", lambda n: fail(), 8, Kind.LOOP, {3: HINT, 4: BLOCK, 6: STOP}),
    ("denied", lambda n: denied(), 8, Kind.LOOP, {2: HINT, 4: BLOCK, 6: STOP}),
    ("numbers", in_numbers, 16, Kind.LOOP, {8: HINT, 11: BLOCK, 14: STOP}),
    ("spaced", lambda n: poll(n, apart_s=30.0), 30, Kind.LOOP, {8: HINT, 11: BLOCK}),
    ("near_words", reordered_words, 5, Kind.NEAR, {3: HINT}),
    ("near_token", other_token, 12, Kind.NEAR, {5: HINT}),
    ("near_entity_error", other_host_fails, 12, Kind.NEAR, {5: HINT}),
    ("near_entity", other_host_answers, 14, Kind.NEAR, {9: HINT}),
    ("same_error", same_error, 7, Kind.NEAR, {6: HINT}),
    ("cycle", in_cycle, 15, Kind.CYCLE, {7: HINT, 10: BLOCK, 13: STOP}),
    ("pingpong", exact_talk, 11, Kind.PINGPONG, {5: HINT, 7: BLOCK, 9: STOP}),
    ("pingpong", exact_handoff, 11, Kind.PINGPONG, {5: HINT, 7: BLOCK, 9: STOP}),
    ("pingpong", reworded_talk, 10, Kind.PINGPONG, {6: HINT}),
    ("semantic", on_one_subject, 7, Kind.SEMANTIC, {6: HINT}),
]
IDS = [f"{row}-{make.__name__.strip('<>')}" for row, make, *_ in ROWS]


@pytest.mark.parametrize(("row", "make", "length", "kind", "ladder"), ROWS, ids=IDS)
def test_each_row_hints_blocks_and_stops_where_the_table_says(
    row: str, make: Callable[[int], Event], length: int, kind: Kind, ladder: dict[int, Action]
) -> None:
    findings = found(make(number) for number in range(length))

    assert findings == [Seen(step, kind, action) for step, action in ladder.items()]


@pytest.mark.parametrize(("row", "make", "length", "kind", "ladder"), ROWS, ids=IDS)
def test_a_row_that_is_set_to_never_finds_nothing(
    row: str, make: Callable[[int], Event], length: int, kind: Kind, ladder: dict[int, Action]
) -> None:
    findings = found((make(number) for number in range(length)), **{row: Limits()})

    assert Seen(min(ladder), kind, HINT) not in findings


@pytest.mark.parametrize(("row", "make", "length", "kind", "ladder"), ROWS[:10], ids=IDS[:10])
def test_a_row_may_be_set_for_one_tool(
    row: str, make: Callable[[int], Event], length: int, kind: Kind, ladder: dict[int, Action]
) -> None:
    tool = getattr(make(0), "tool", "")
    own, another = Watch(tools={tool: {row: Limits()}}), Watch(tools={"another": {row: Limits()}})

    ours = own.add(make(number) for number in range(length))
    others = another.add(make(number) for number in range(length))

    assert Seen(min(ladder), kind, HINT) not in ours
    assert others == [Seen(step, kind, action) for step, action in ladder.items()]


def test_near_calls_are_blocked_by_choice() -> None:
    findings = found((reordered_words(number) for number in range(12)), near_words=Limits(3, 10))

    assert (10, Kind.NEAR, Action.BLOCK) in findings


def test_a_subject_stops_a_run_by_choice() -> None:
    findings = found((on_one_subject(number) for number in range(9)), semantic=Limits(6, None, 8))

    assert findings == [(6, Kind.SEMANTIC, Action.HINT), (8, Kind.SEMANTIC, Action.STOP)]


def test_a_declared_wait_between_calls_is_as_good_as_time() -> None:
    findings = found([ask("status", TEXT, job=7), wait()] for _ in range(12))

    assert findings[0].step == 15
    assert findings[0].action is Action.HINT


def test_a_poll_whose_numbers_change_in_between_real_waits_is_left_alone() -> None:
    findings = found(
        ask("status", f"{number * 3} of 90 parts are done", at=number * 30.0, job=7) for number in range(30)
    )

    assert findings == []


def test_the_length_of_a_real_wait_is_a_setting() -> None:
    quick = Settings(loop=LoopSettings(wait_s=0.5))

    findings = Watch(quick).add(poll(number) for number in range(7))

    assert findings == []


def test_limits_of_the_whole_row_come_from_the_settings() -> None:
    findings = found((read() for _ in range(9)), same=Limits(2, 4, 8))

    assert findings == [
        (2, Kind.LOOP, Action.HINT),
        (4, Kind.LOOP, Action.BLOCK),
        (8, Kind.LOOP, Action.STOP),
    ]


def test_a_loop_of_two_hundred_calls_is_three_findings() -> None:
    assert len(found(read() for _ in range(200))) == 3


def test_a_row_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"no row 'sume'.*same.*semantic"):
        Settings().limits("sume")


@pytest.mark.parametrize("limits", [(1,), (5, 3), (3, 5, 4), (0, 2)])
def test_limits_must_rise_from_the_second_repeat_on(limits: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="limit"):
        Limits(*limits)


def test_every_row_has_limits_that_a_tool_can_override() -> None:
    own = Settings(tools={"t": ToolSettings(limits=dict.fromkeys(LOOP_ROWS, Limits(2)))})

    assert all(own.limits(row, "t") == Limits(2) for row in LOOP_ROWS)
    assert all(own.limits(row) != Limits(2) for row in LOOP_ROWS if row != "denied")
