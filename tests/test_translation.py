from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_agentguard import words

GERMAN = {
    "Same request as step {}, same answer (time {}).": "Zum {1}. Mal die Anfrage von Schritt {0}, gleiche Antwort.",
    "Use that answer.": "Nimm diese Antwort.",
    "(a note from the guard of this run, not from the user)": "(ein Hinweis des Wächters, nicht des Nutzers)",
}


@pytest.fixture(autouse=True)
def _english_again() -> Iterator[None]:
    earlier = words.translate_with(None)

    yield

    words.translate_with(earlier)


def test_texts_for_the_model_can_be_in_another_language() -> None:
    words.translate_with(words.by_sentence(GERMAN))

    assert words.repeated_model_call(12, 3) == (
        "[agentguard] Zum 3. Mal die Anfrage von Schritt 12, gleiche Antwort. Nimm diese Antwort. "
        "(ein Hinweis des Wächters, nicht des Nutzers)"
    )


def test_a_sentence_without_a_translation_stays_english() -> None:
    words.translate_with(words.by_sentence(GERMAN))

    assert "Same message as step 1 (time 3)" in words.repeated_message(1, 3)


def test_a_translation_that_fails_leaves_the_text_english(caplog: pytest.LogCaptureFixture) -> None:
    def broken(sentence: str) -> str:
        raise KeyError(sentence)

    words.translate_with(broken)

    assert "Use that answer." in words.repeated_model_call(1, 3)
    assert "could not be translated" in caplog.text


def test_a_refusal_is_translated_and_the_earlier_result_is_not() -> None:
    words.translate_with(words.by_sentence({"The call was not run again. Its earlier result:": "Früher:"}))

    assert words.refused("note", "The call was not run again. Its earlier result:") == (
        "note\nFrüher:\nThe call was not run again. Its earlier result:"
    )
