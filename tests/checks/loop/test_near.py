"""Near repeats: calls that differ a little and come to the same outcome."""

from __future__ import annotations

import pytest
from loop_runs import TEXT, WORDS, Seen, Watch, ask, fail, first, found, read, say, turn, write

from otel_agentguard.events import Effect, Outcome
from otel_agentguard.findings import Action, Kind
from otel_agentguard.testing import tool_call

COSMETIC = {
    "case": ["Rain in Ulm", "rain in ulm", "RAIN IN ULM"],
    "quotes": ["rain in Ulm", '"rain in Ulm"', "'rain in Ulm'"],
    "white space": ["rain in Ulm", "rain  in Ulm", " rain in  Ulm"],
    "order": ["rain in Ulm", "in Ulm rain", "Ulm in rain"],
    "words added": ["heavy rain in Ulm", "heavy rain in Ulm today", "heavy rain in Ulm today please"],
    "flags": ["grep -r rain src", "grep -rn rain src", "grep -rni rain src"],
}


@pytest.mark.parametrize("queries", COSMETIC.values(), ids=COSMETIC)
def test_cosmetic_changes_with_one_result_get_a_hint_at_the_third_call(queries: list[str]) -> None:
    assert found(ask("search", TEXT, query=query) for query in queries) == [Seen(3, Kind.NEAR, Action.HINT)]


@pytest.mark.parametrize("queries", COSMETIC.values(), ids=COSMETIC)
def test_cosmetic_changes_with_new_results_are_work(queries: list[str]) -> None:
    results = ["amber birch cedar dune", "ember fjord grove heath", "islet juniper kelp lagoon"]

    assert found(ask("search", result, query=query) for query, result in zip(queries, results, strict=True)) == []


def test_equal_results_of_another_tool_are_no_family() -> None:
    findings = found(ask(f"tool_{number}", TEXT, query="rain in Ulm") for number in range(9))

    assert [seen for seen in findings if seen.kind is Kind.NEAR] == []


def test_the_callers_own_words_in_an_answer_do_not_make_it_another() -> None:
    queries = ["famous songs by Arun", "famous songs by Arun please", "famous old songs by Arun please"]

    findings = found(
        fail("search", f"Could not find [{query}]. Similar: ['folk music']", query=query) for query in queries
    )

    assert findings == [Seen(3, Kind.NEAR, Action.HINT)]


def test_errors_that_quote_something_new_each_time_are_news() -> None:
    suggested = [", ".join(f"'{word} street'" for word in WORDS[n : n + 3]) for n in range(0, 21, 3)]

    findings = found(
        fail("search", f"Could not find [{WORDS[-1 - n]}]. Similar: [{names}]", query=WORDS[-1 - n])
        for n, names in enumerate(suggested)
    )

    assert findings == []


def test_errors_that_quote_something_new_again_and_again_count_at_last() -> None:
    findings = found(fail("search", f"'{WORDS[n]} road' is busy", query=WORDS[-1 - n]) for n in range(12))

    assert [seen.kind for seen in findings] == [Kind.NEAR]
    assert findings[0].step > 8


def test_errors_that_quote_very_much_are_compared_by_what_they_quote_first() -> None:
    listing = " ".join(f"'{one}{other}'" for one in WORDS for other in WORDS[:8])

    findings = found(fail("search", f"unknown place, try {listing}", query=word[::-1]) for word in WORDS[:12])

    assert findings == [Seen(6, Kind.NEAR, Action.HINT)]


def test_errors_that_quote_the_callers_words_in_a_longer_name_are_none() -> None:
    tables = ["shops", "products", "orders", "items", "stores"]

    findings = found(
        fail("query", f"Table 'trade_2024.{table}' does not exist", about=f"rows of {table}") for table in tables
    )

    assert findings[-1] == Seen(5, Kind.NEAR, Action.HINT)


def test_the_first_text_after_failures_without_one_is_no_news() -> None:
    failed = tool_call("inspect", {"path": "a.pdf", "question": "show me all of it"}, None, outcome=Outcome.FAILED)
    purposes = ["I would like to see the whole text", "give the text line by line"]

    findings = found(
        failed,
        (fail("inspect", "cannot convert 'a.pdf': type '.pdf'", path="a.pdf", question=text) for text in purposes),
    )

    assert findings == [Seen(3, Kind.NEAR, Action.HINT)]


def test_an_error_behind_a_pipe_is_the_error_that_it_was_before() -> None:
    commands = ["deploy app", "deploy app | sort", "deploy app | sort -u"]
    error = "deploy: no such place: staging"

    findings = found(
        fail("run", error, command=commands[0]), (ask("run", error, command=more) for more in commands[1:])
    )

    assert findings == [Seen(3, Kind.NEAR, Action.HINT)]


def test_a_short_answer_that_was_an_error_once_is_none_for_ever() -> None:
    findings = found(fail("count", "0", of="x"), (ask("count", "0", of=word) for word in WORDS[:8]))

    assert findings == []


COMMAND_WITH_BRACES = "find docs -name ghost -exec ls -lt {} +"


def test_a_command_line_with_braces_is_compared_as_a_command() -> None:
    commands = [f"{COMMAND_WITH_BRACES}{more}" for more in ("", " | sort -k 6", " | sort -k 6 | head -1")]

    assert found(ask("run", TEXT, command=command) for command in commands) == [Seen(3, Kind.NEAR, Action.HINT)]


@pytest.mark.parametrize("head", ["python3 -c ", "node -e ", ""])
def test_code_with_braces_is_compared_as_code(head: str) -> None:
    programs = [
        f"{head}show({{'{one}': {n}}}, {other})" for n, (one, other) in enumerate(zip(WORDS, WORDS[9:], strict=False))
    ]

    assert found(ask("run", TEXT, command=program) for program in programs[:4]) == []


def test_lines_in_another_order_are_the_same_result() -> None:
    lines = ["amber is yellow", "birch is white", "cedar is red"]

    findings = found(
        ask("list", "\n".join(lines[n:] + lines[:n]), query=query)
        for n, query in enumerate(["trees of Ulm", "Trees of ulm", "of Ulm trees"])
    )

    assert findings == [Seen(3, Kind.NEAR, Action.HINT)]


def test_free_text_beside_what_is_asked_for_does_not_matter_when_it_cannot_be_had() -> None:
    purposes = ["please show me all of it", "I would like to see the whole text", "give the text line by line"]

    findings = found(fail("inspect", "the file is encrypted", path="a.pdf", question=text) for text in purposes)

    assert findings == [Seen(3, Kind.NEAR, Action.HINT)]


def test_other_hosts_with_the_same_error_get_a_hint_at_the_fifth() -> None:
    findings = found(fail("ssh", f"ssh: 10.0.0.{n} port 22: refused", host=f"10.0.0.{n}") for n in range(1, 9))

    assert findings == [Seen(5, Kind.NEAR, Action.HINT)]


def test_hosts_of_a_list_with_one_answer_are_work() -> None:
    hosts = [f"web-{number}" for number in range(1, 15)]

    assert (
        found(ask("hosts", " ".join(hosts)), (ask("uptime", "The machine is up.", host=host) for host in hosts)) == []
    )


def test_hosts_that_somebody_named_are_work() -> None:
    hosts = [f"web-{number}" for number in range(1, 15)]

    named = found(
        turn(text=f"Check these: {', '.join(hosts)}"),
        (ask("uptime", "The machine is up.", host=host) for host in hosts),
    )
    told = found(
        say("lead", f"Check these: {', '.join(hosts)}"),
        (ask("uptime", "The machine is up.", host=host) for host in hosts),
    )

    assert (named, told) == ([], [])


def test_unrelated_code_with_the_same_error_gets_a_hint_at_the_sixth() -> None:
    code = ["import toml", "load('a')", "print(x)", "open('c')", "for i in a: go(i)", "del z", "b()"]

    findings = found(fail("python", "ModuleNotFoundError: there is no such module", code=text) for text in code)

    assert findings == [Seen(6, Kind.NEAR, Action.HINT)]


def test_news_in_between_ends_what_unrelated_calls_have_in_common() -> None:
    code = ["import toml", "load('a')", "print(x)", "open('c')", "for i in a: go(i)", "del z", "b()"]

    findings = found(
        [fail("python", "ModuleNotFoundError: there is no such module", code=text), read("notes.txt", f"{word} only")]
        for text, word in zip(code, WORDS, strict=False)
    )

    assert findings == []


def test_long_code_that_changes_in_one_place_gets_a_hint_at_the_fifth() -> None:
    code = "\n".join(f"value_{n} = load('{word}')" for n, word in enumerate(WORDS))

    findings = found(fail("python", "AssertionError: the sum is wrong", code=f"{code}\ncheck({n})") for n in range(6))

    assert findings == [Seen(5, Kind.NEAR, Action.HINT)]


def test_long_texts_that_have_little_in_common_are_not_near() -> None:
    findings = found(
        ask("save", "The text was saved under its name.", text=" ".join(f"{WORDS[n]}{word}" for word in WORDS * 3))
        for n in range(8)
    )

    assert [seen for seen in findings if seen.kind is Kind.NEAR] == []


def test_silent_successes_need_five() -> None:
    queries = ["ls -l a", "ls -la a", "ls -lah a", "ls -lahR a", "ls -lahRt a", "ls -lahRtS a"]

    assert found(ask("shell", "", command=query) for query in queries) == [Seen(5, Kind.NEAR, Action.HINT)]


@pytest.mark.parametrize("answer", ["ok", "saved", "Message sent.", "✓"])
def test_acknowledged_records_that_differ_in_a_word_are_a_batch(answer: str) -> None:
    assert found(ask("note", answer, text=f"buy {word} for the party") for word in WORDS[:8]) == []


def test_directories_that_are_made_one_by_one_are_a_batch() -> None:
    assert found(ask("shell", "", command=f"mkdir -p out/{word}") for word in WORDS[:14]) == []


def test_declared_writes_that_succeed_are_never_near() -> None:
    assert found(write("a.txt", f"draft number {number}", "ok") for number in range(14)) == []


def test_a_write_ends_a_near_streak() -> None:
    queries = ["rain in Ulm", "Rain in Ulm", "in Ulm rain", "ulm in Rain"]

    findings = found([ask("search", TEXT, query=query), write(content=query)] for query in queries)

    assert findings == []


def test_a_new_turn_ends_a_near_streak_of_successes_but_not_of_failures() -> None:
    queries = ["rain in Ulm", "Rain in Ulm", "in Ulm rain"]

    fine = found([turn(text=query), ask("search", TEXT, query=query)] for query in queries)
    failing = found([turn(text=query), fail("search", "the index is offline", query=query)] for query in queries)

    assert fine == []
    assert failing == [Seen(6, Kind.NEAR, Action.HINT)]


def test_something_new_from_an_unknown_call_raises_near_limits_by_one() -> None:
    queries = ["rain in Ulm", "Rain in Ulm", "in Ulm rain", "ulm in rain"]

    findings = found(
        [ask("search", TEXT, query=query), ask("look", f"{word} and {word}s", at_it=word)]
        for query, word in zip(queries, WORDS, strict=False)
    )

    assert findings == [Seen(7, Kind.NEAR, Action.HINT)]


def test_failures_without_text_belong_to_those_with_text_that_ask_for_the_same() -> None:
    watch = Watch()

    findings = watch.add(
        tool_call("inspect", {"path": "a.pdf", "question": None}, None, outcome=Outcome.FAILED),
        fail("inspect", "the file is encrypted", path="a.pdf", question="please show me all of the text"),
        fail("inspect", "the file is encrypted", path="a.pdf", question="I would like to see the whole text"),
    )

    assert findings == [Seen(3, Kind.NEAR, Action.HINT)]


def test_a_loop_of_equal_calls_is_not_told_twice() -> None:
    findings = found(ask("search", TEXT, query="rain in Ulm") for _ in range(9))

    assert {seen.kind for seen in findings} == {Kind.LOOP}


def test_near_findings_never_refuse_or_stop_by_default() -> None:
    queries = [f"{'very ' * (n % 7)}heavy rain in Ulm" for n in range(60)]

    actions = {seen.action for seen in found(ask("search", TEXT, query=query, n=None) for query in queries)}

    assert Action.STOP not in actions or first(ask("search", TEXT, query=queries[0]) for _ in range(9)) is not None


def test_answers_of_the_guard_are_no_results() -> None:
    calls = [ask("search", TEXT, query=query) for query in ("rain in Ulm", "Rain in Ulm", "in Ulm rain")]
    for call in calls:
        call.served_from = "cache"

    assert found(calls) == []


def test_arguments_that_are_data_are_compared_too() -> None:
    filters = [{"city": "Ulm", "limit": 10}, {"limit": 10, "city": "ulm"}, {"city": "ULM", "limit": 10}]

    assert found(ask("query", TEXT, filters=one) for one in filters) == [Seen(3, Kind.NEAR, Action.HINT)]


def test_an_unknown_effect_of_a_read_is_never_assumed() -> None:
    calls = [tool_call("read_file", {"path": "a"}, TEXT, effect=Effect.READ) for _ in range(3)]

    assert found(calls) == [Seen(3, Kind.LOOP, Action.HINT)]
