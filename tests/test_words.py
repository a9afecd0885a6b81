"""The words of the guard to the model and to people."""

from __future__ import annotations

import pytest

from otel_agentguard import words
from otel_agentguard.findings import Limits

NOTES = {
    "repeated call": words.repeated_call(3, 5),
    "repeated call, numbers": words.repeated_call(3, 8, changed="unchanged but for numbers"),
    "repeated empty call": words.repeated_call(3, 5, empty=True),
    "repeated failure": words.repeated_failure(3, 4),
    "repeated denial": words.repeated_failure(3, 2, denied=True),
    "repeated message": words.repeated_message(3, 3),
    "repeated request": words.repeated_model_call(3, 3),
    "near calls": words.near_calls(3, 5, failing=False),
    "near failures": words.near_calls(3, 5, failing=True),
    "reworded talk": words.reworded_talk(3, ["ann", "bob"]),
    "one subject": words.same_subject(3, 6),
    "rounds": words.rounds(3, 3, (3, 4, 5), ["ann", "bob"]),
    "served again": words.served_again(3),
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_note_is_signed_and_says_that_it_is_not_from_the_user(note: str) -> None:
    assert note.startswith("[agentguard] ")
    assert "not from the user" in note


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_note_names_the_earlier_step(note: str) -> None:
    assert "step 3" in note


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_note_forbids_nothing(note: str) -> None:
    assert not any(word in note.lower() for word in ("must not", "do not call", "never ", "forbidden", "stop calling"))


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_note_is_short(note: str) -> None:
    assert len(note) < 300
    assert "\n" not in note


def test_an_empty_answer_is_called_an_answer() -> None:
    assert "The empty answer is the answer" in NOTES["repeated empty call"]
    assert "empty" not in NOTES["repeated call"]


def test_what_has_changed_in_the_result_is_said() -> None:
    assert "result unchanged but for numbers (time 8)" in NOTES["repeated call, numbers"]


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "step 3"), ([3, 5], "steps 3 and 5"), ([3, 5, 9], "steps 3, 5 and 9")]
)
def test_steps_are_listed_as_one_says_them(numbers: list[int], text: str) -> None:
    assert words.steps(numbers) == text


def test_a_refusal_carries_the_earlier_result() -> None:
    refusal = words.refused(words.repeated_call(3, 5), "the gate is open")

    assert refusal.startswith("[agentguard] Same call as step 3")
    assert refusal.endswith("was not run again. Its earlier result:\nthe gate is open")


def test_a_refusal_without_an_earlier_result_says_so_much() -> None:
    assert words.refused("[agentguard] note", None) == "[agentguard] note\nThe call was not run again."


def test_people_hear_what_repeated_since_when_and_which_setting_decides() -> None:
    said = words.to_people("read_file gave the same result 3 times", (2, 4, 6), "loop.same", Limits(3, 5, 7))

    assert said == (
        "read_file gave the same result 3 times at steps 2, 4 and 6; limits loop.same: hint 3, block 5, stop 7"
    )
