"""The semantic layer: questions on one subject, and lookups of one identifier, that bring nothing new."""

from __future__ import annotations

import pytest
from loop_runs import FERRY, TEXT, WORDS, Seen, Watch, ask, fail, found, read, turn, write

from otel_agentguard.events import Effect
from otel_agentguard.findings import Action, Kind, Limits
from otel_agentguard.testing import tool_call

NOTHING = [
    "The museum of the town has a model of the ferry.",
    "A model of the ferry is in the museum of the town.",
    "In the museum of the town there is a model of the ferry.",
    "The town has a museum with a model of the ferry in it.",
    "The ferry: a model of it is in the museum of the town.",
    "The model of the ferry is in the town museum.",
    "Museum of the town: a model of the ferry.",
    "The museum has a model of the ferry of the town.",
]


def search(query: str, answer: str):  # type: ignore[no-untyped-def]
    return ask("search", answer, query=query)


def test_reworded_questions_with_reworded_answers_get_a_hint_at_the_sixth() -> None:
    findings = found(search(query, answer) for query, answer in zip(FERRY, NOTHING, strict=True))

    assert findings == [Seen(6, Kind.SEMANTIC, Action.HINT)]


def test_questions_on_one_subject_whose_answers_say_something_are_work() -> None:
    answers = [" ".join(WORDS[number * 3 : number * 3 + 6]) for number in range(8)]

    assert found(search(query, answer) for query, answer in zip(FERRY, answers, strict=True)) == []


def test_an_answer_with_something_new_begins_a_new_count() -> None:
    answers = [*NOTHING[:4], "Twelve sailors and a cook, says the harbour book of 1871.", *NOTHING[5:]]

    assert found(search(query, answer) for query, answer in zip(FERRY, answers, strict=True)) == []


def test_questions_about_the_pages_of_a_book_are_work() -> None:
    findings = found(
        search(f"please summarise page {number} of the report", "This page has been left blank on purpose.")
        for number in range(12)
    )

    assert [seen for seen in findings if seen.kind is Kind.SEMANTIC] == []


def test_another_page_beside_the_question_is_another_question() -> None:
    findings = found(ask("search", f"{NOTHING[n % 8]}", query=FERRY[0], page=n) for n in range(8))

    assert [seen for seen in findings if seen.kind is Kind.SEMANTIC] == []


def test_questions_about_other_people_are_work() -> None:
    findings = found(
        search(f"who is the manager of {word.title()} Limited", "That is not known in this register of companies.")
        for word in WORDS[:8]
    )

    assert [seen for seen in findings if seen.kind is Kind.SEMANTIC] == []


def test_items_that_a_tool_told_of_are_work() -> None:
    findings = found(
        [
            ask("ticket", f"the {word} of customer {n} is broken", id=n),
            search(f"{word} is broken", "No articles found."),
        ]
        for n, word in enumerate(WORDS[:9])
    )

    assert findings == []


def test_records_that_are_acknowledged_are_no_questions() -> None:
    findings = found(ask("note", "saved", text=f"remember the {word} for the party next week") for word in WORDS[:9])

    assert [seen for seen in findings if seen.kind is Kind.SEMANTIC] == []


def test_actions_with_declared_effects_are_no_questions() -> None:
    findings = found(tool_call("mail", {"text": query}, NOTHING[0], effect=Effect.SIDE_EFFECT) for query in FERRY)

    assert findings == []


@pytest.mark.parametrize(
    "command",
    [
        "INSERT INTO trees VALUES ({n}, '{word}')",
        "UPDATE trees SET name = '{word}' WHERE id = {n}",
        "select name from trees where id = {n}",
        "def {word}(x): return x + {n}",
        "cat {word}.txt | wc -l",
    ],
)
def test_code_is_no_prose(command: str) -> None:
    findings = found(
        ask("run", "The command has been run on the server.", command=command.format(n=n, word=word))
        for n, word in enumerate(WORDS[:8])
    )

    assert [seen for seen in findings if seen.kind is Kind.SEMANTIC] == []


@pytest.mark.parametrize(
    "question",
    [
        "which class of ships had the largest crew",
        "let me know what the return policy of this shop is",
        "import goods from Norway: which rules apply; and to whom",
        "Select the best hotel and tell me why you did",
    ],
)
def test_prose_with_words_of_programming_languages_is_prose(question: str) -> None:
    fillers = ["", " please", " now", " then", " today", " really", " again"]

    findings = found(search(question + filler, NOTHING[n]) for n, filler in enumerate(fillers))

    assert Kind.SEMANTIC in {seen.kind for seen in findings}


def test_a_write_and_a_new_turn_begin_a_new_count() -> None:
    written = found([search(query, NOTHING[0]), write(content=query)] for query in FERRY)
    asked = found([turn(text=query), search(query, NOTHING[0])] for query in FERRY)

    assert [seen for seen in (*written, *asked) if seen.kind is Kind.SEMANTIC] == []


def test_one_question_letter_for_letter_is_left_to_the_exact_layer() -> None:
    findings = found(search(FERRY[0], NOTHING[0]) for _ in range(9))

    assert {seen.kind for seen in findings} == {Kind.LOOP}


def test_several_subjects_at_once_are_told_apart() -> None:
    lakes = [f"{phrase} lake of Constance" for phrase in ("how deep is the", "depth of the", "deepest place in the")]

    findings = found(
        [search(FERRY[n], NOTHING[n]), search(lakes[n], f"{WORDS[n]} metres, {WORDS[n + 9]}")] for n in range(3)
    )

    assert findings == []


def test_only_a_hint_comes_of_it() -> None:
    findings = found(search(FERRY[n % 8], NOTHING[(n * 3) % 8]) for n in range(60))

    assert {seen.action for seen in findings if seen.kind is Kind.SEMANTIC} == {Action.HINT}


def lookup(command: str, answer: str = ""):  # type: ignore[no-untyped-def]
    return ask("shell", answer, command=command)


COMMANDS = [
    "grep -rn load_config src",
    "find . -name load_config",
    "ls | grep load_config",
    "git grep -n load_config",
    "rg load_config docs tests | sort",
    "cat notes | grep -c load_config",
]


def test_empty_lookups_of_one_identifier_in_whatever_command_get_a_hint_at_the_sixth() -> None:
    assert found(lookup(command) for command in COMMANDS) == [Seen(6, Kind.SEMANTIC, Action.HINT)]


def test_a_lookup_that_finds_something_ends_the_search() -> None:
    answers = ["", "", "", "src/conf.py:3: load_config()", "", ""]

    assert found(lookup(command, answer) for command, answer in zip(COMMANDS, answers, strict=True)) == []


def test_failing_lookups_of_one_identifier_get_a_hint_at_the_sixth() -> None:
    clauses = ("field list", "order clause", "where clause") * 2

    findings = found(
        fail(f"sql_{n}", f"Unknown column 'graduation_year' in '{clause}'", command=f"show {n} of graduation_year")
        for n, clause in enumerate(clauses)
    )

    assert findings == [Seen(6, Kind.SEMANTIC, Action.HINT)]


def test_a_different_failure_is_a_different_answer() -> None:
    errors = [
        "there is no such file anywhere on this machine",
        "the permission to read it was denied to this user",
        "the file is not encoded in UTF-8 as was expected",
        "the file is empty, so that nothing can be read",
        "the file is locked by another process at present",
        "the device on which it lies was not mounted yet",
    ]

    findings = found(fail("load", error, path="data/load_config.yaml", mode=n) for n, error in enumerate(errors))

    assert findings == []


def test_silent_edits_of_one_file_are_no_lookups() -> None:
    findings = found(
        ask("replace", "", path="src/load_config.py", old=f"{word}()", new=f"{word}s()") for word in WORDS[:9]
    )

    assert [seen for seen in findings if seen.kind is Kind.SEMANTIC] == []


def test_silent_commands_that_write_are_no_lookups() -> None:
    commands = [
        "mkdir src/load_config",
        "touch src/load_config/a",
        "cp a src/load_config",
        "chmod +x src/load_config/a",
        "mv b src/load_config",
        "ln -s src/load_config c",
        "rm src/load_config/b",
    ]

    assert found(lookup(command) for command in commands) == []


def test_common_words_are_no_identifiers() -> None:
    commands = [f"{reader} notes" for reader in ("cat", "head", "tail", "wc", "nl", "sort", "uniq")]

    assert [seen for seen in found(lookup(command) for command in commands) if seen.kind is Kind.SEMANTIC] == []


def test_a_tool_may_have_its_own_limit() -> None:
    watch = Watch(tools={"search": {"semantic": Limits(4)}})

    findings = watch.add(search(query, answer) for query, answer in zip(FERRY, NOTHING, strict=True))

    assert findings == [Seen(4, Kind.SEMANTIC, Action.HINT)]


def test_the_note_says_since_when() -> None:
    watch = Watch()

    watch.add(read("b.txt", TEXT), *(search(query, answer) for query, answer in zip(FERRY, NOTHING, strict=True)))

    assert watch.findings[0].message.startswith("[agentguard] 6 calls on one subject since step 2 have brought nothing")
    assert watch.findings[0].evidence == (2, 3, 4, 5, 6, 7)
