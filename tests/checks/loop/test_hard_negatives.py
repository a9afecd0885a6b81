"""Work that looks like a loop, each beside the loop that it looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from loop_runs import TEXT, WORDS, Events, ask, fail, found, read, say, turn, write

from otel_agentguard.events import Effect, Resume, ToolCall, Trigger
from otel_agentguard.testing import tool_call


class Twins(NamedTuple):
    """A run that must be left alone, and the loop that it looks like."""

    work: Callable[[], Iterator[Events]]
    loop: Callable[[], Iterator[Events]]


def page(number: int) -> str:
    return "\n".join(f"{WORDS[(number * 4 + line) % 25]} costs {WORDS[(number + line * 7) % 25]}" for line in range(4))


def poll_that_changes() -> Iterator[Events]:
    for number, word in enumerate(WORDS[:10]):
        yield ask("job", f"stage {word}: {WORDS[number + 9]} is being built", at=number * 2.0, id=7)


def poll_that_does_not() -> Iterator[Events]:
    for number in range(10):
        yield ask("job", f"stage amber: birch is being built, asked {number} times", at=number * 2.0, id=7)


def server_cursor() -> Iterator[Events]:
    for number in range(10):
        yield ask("next_block", page(number))


def server_cursor_at_its_end() -> Iterator[Events]:
    for number in range(3):
        yield ask("next_block", page(number))
    for _ in range(4):
        yield ask("next_block", "You have come to the end of the list.")


def edits_before_tests() -> Iterator[Events]:
    for number, word in enumerate(WORDS[:6]):
        yield fail("test", f"test_{word} failed: {number} is not {number + 1}")
        yield ask("edit", f"edited {word}.py", path=f"{word}.py", text=f"return {number + 1}")


def no_edits_before_tests() -> Iterator[Events]:
    for _ in range(6):
        yield fail("test", "test_amber failed: 1 is not 2")
        yield read("amber.py", "return 1")


def edit_build_edit_build() -> Iterator[Events]:
    for word in WORDS[:6]:
        yield write(f"{word}.c", f"int {word};")
        yield ask("build", "the build is complete")


def build_build_build() -> Iterator[Events]:
    for _ in range(4):
        yield ask("build", "the build is complete")


def reading_after_writing() -> Iterator[Events]:
    for number in range(6):
        yield read("a.py", f"x = {number}")
        yield write("a.py", f"x = {number + 1}")
        yield read("b.py", "import a")


def reading_after_writing_the_same() -> Iterator[Events]:
    for _ in range(6):
        yield read("a.py", "x = 1")
        yield write("a.py", "x = 1")


def paging() -> Iterator[Events]:
    for number in range(12):
        yield ask("search", page(number), query="prices of trees", page=number + 1)


def paging_through_nothing() -> Iterator[Events]:
    for number in range(12):
        yield ask("search", "[]", query="prices of trees", page=number + 1)


def files_of_a_list() -> Iterator[Events]:
    yield ask("ls", " ".join(f"{word}.py" for word in WORDS))
    for word in WORDS[:14]:
        yield ask("lint", "no problems found", path=f"src/{word}.py")


def files_of_nowhere() -> Iterator[Events]:
    for word in WORDS[:14]:
        yield fail("cat", f"cat: src/{word}.py: No such file or directory", path=f"src/{word}.py")


def retry_that_works() -> Iterator[Events]:
    yield fail("install", "the network is unreachable")
    yield fail("install", "the network is unreachable")
    yield ask("install", "231 packages were added")
    yield ask("test", "12 tests passed")


def retry_that_does_not() -> Iterator[Events]:
    for _ in range(3):
        yield fail("install", "the network is unreachable")


def heartbeats() -> Iterator[Events]:
    for _ in range(12):
        yield turn(Trigger.HEARTBEAT)
        yield ask("inbox", "there is no new mail")


def hammering() -> Iterator[Events]:
    for number in range(12):
        yield ask("inbox", "there is no new mail", at=number * 2.0)


def three_agents_read_the_spec() -> Iterator[Events]:
    for agent in ("front", "back", "tester"):
        yield read("SPEC.md", agent=agent)


def three_agents_go_round() -> Iterator[Events]:
    for _ in range(3):
        for agent in ("front", "back", "tester"):
            yield read("SPEC.md", agent=agent)


def two_intended_calls() -> Iterator[Events]:
    for question in ("Where is my order?", "And now?", "Any news?"):
        yield turn(text=question)
        yield ask("order", "order 7 is on its way", id=7)
        yield say("agent", "It is on its way.")


def calls_that_nobody_intended() -> Iterator[Events]:
    yield turn(text="Where is my order?")
    for thought in ("Let me look.", "One moment.", "I look again."):
        yield say("agent", thought)
        yield ask("order", "order 7 is on its way", id=7)


def replay_of_a_workflow() -> Iterator[Events]:
    recorded = [read(f"{word}.txt", f"{word} alone") for word in WORDS[:4]]
    yield recorded
    for attempt in (2, 3, 4):
        yield Resume(attempt=attempt)
        for call in recorded:
            yield replayed(call)


def replayed(call: ToolCall) -> ToolCall:
    again = tool_call(call.tool, call.arguments, call.result, effect=call.effect)
    again.served_from = "replay"
    return again


def work_done_again_after_each_resume() -> Iterator[Events]:
    for attempt in (1, 2, 3, 4):
        yield Resume(attempt=attempt)
        for word in WORDS[:4]:
            yield read(f"{word}.txt", f"{word} alone")


def batch_of_records() -> Iterator[Events]:
    for number, word in enumerate(WORDS[:14]):
        yield ask("create_user", "created", name=word, mail=f"{word}@example.org", role="tester")
        yield ask("send_mail", "sent", to=f"{word}@example.org", body=f"Dear {word}, invoice {number} is due in May.")


def one_record_again_and_again() -> Iterator[Events]:
    for _ in range(4):
        yield ask("create_user", "created", name="amber", mail="amber@example.org", role="tester")


def code_in_messages() -> Iterator[Events]:
    for number, word in enumerate(WORDS[:6]):
        code = f"```python\ndef {word}(x):\n    return x + {number}\n```"
        yield say("coder", f"{code}\n| name | value |\n|---|---|\n| {word} | {number} |")
        yield say("critic", f"- {WORDS[number + 7]} is missing\n- rename {WORDS[number + 12]}")


def the_same_code_in_messages() -> Iterator[Events]:
    for _ in range(4):
        yield say("coder", "```python\ndef amber(x):\n    return x + 1\n```")
        yield say("critic", "- the type of x is missing\n- rename amber")


def steps_on_a_board() -> Iterator[Events]:
    for source, target in ("AC", "AB", "CB", "AC", "BA", "BC", "AC"):
        yield ask("move", "moved", source=source, target=target)


def steps_against_a_wall() -> Iterator[Events]:
    for _ in range(4):
        yield ask("move", "You cannot go that way.", source="A", target="C")


def hypotheses() -> Iterator[Events]:
    errors = ["no such file", "permission denied", "it is not UTF-8", "it is empty"]
    for error, path in zip(errors, ("a", "data/a", "/opt/a", "/srv/a"), strict=True):
        yield fail("load", f"cannot load: {error}", path=path)


def one_hypothesis() -> Iterator[Events]:
    for path in ("a.csv", "./a.csv", "a.csv ", "'a.csv'"):
        yield fail("load", "cannot load: there is no such file", path=path)


def tickets() -> Iterator[Events]:
    for number, word in enumerate(WORDS[:9]):
        yield ask("ticket", f"{word} is broken, says customer {number}", id=number)
        yield ask("search_help", "No articles were found.", query=f"{word} is broken")
        yield ask("answer", "Reply sent.", id=number, text=f"We look into the {word}, please have patience with us.")


def one_ticket() -> Iterator[Events]:
    for number, question in enumerate(("is broken", "broken again", "does not work", "will not start", "is defective")):
        yield ask("search_help", "No articles were found.", query=f"amber lamp {question}", source="help")
        yield ask("search_help", "No articles were found.", query=f"lamp amber {question}", source="help")
        yield say("agent", f"Nothing in attempt {number}.")


PAIRS = [
    Twins(poll_that_changes, poll_that_does_not),
    Twins(server_cursor, server_cursor_at_its_end),
    Twins(edits_before_tests, no_edits_before_tests),
    Twins(edit_build_edit_build, build_build_build),
    Twins(reading_after_writing, reading_after_writing_the_same),
    Twins(paging, paging_through_nothing),
    Twins(files_of_a_list, files_of_nowhere),
    Twins(retry_that_works, retry_that_does_not),
    Twins(heartbeats, hammering),
    Twins(three_agents_read_the_spec, three_agents_go_round),
    Twins(two_intended_calls, calls_that_nobody_intended),
    Twins(replay_of_a_workflow, work_done_again_after_each_resume),
    Twins(batch_of_records, one_record_again_and_again),
    Twins(code_in_messages, the_same_code_in_messages),
    Twins(steps_on_a_board, steps_against_a_wall),
    Twins(hypotheses, one_hypothesis),
    Twins(tickets, one_ticket),
]


@pytest.mark.parametrize("work", [pair.work for pair in PAIRS], ids=lambda make: make.__name__)
def test_work_is_left_alone(work: Callable[[], Iterator[Events]]) -> None:
    assert found(work()) == []


@pytest.mark.parametrize("loop", [pair.loop for pair in PAIRS], ids=lambda make: make.__name__)
def test_the_loop_that_it_looks_like_is_found(loop: Callable[[], Iterator[Events]]) -> None:
    assert found(loop()) != []


def test_work_of_declared_effects_is_left_alone() -> None:
    steps = [
        [
            tool_call("restart", {"service": word}, f"{word} was restarted", effect=Effect.SIDE_EFFECT),
            tool_call("health", {"service": word}, "healthy", effect=Effect.READ),
        ]
        for word in WORDS[:8]
    ]

    assert found(steps) == []


def test_a_restart_that_helps_nothing_is_found() -> None:
    steps = [[ask("restart", "api was restarted", service="api"), ask("health", TEXT, service="api")] for _ in range(5)]

    assert found(steps) != []
