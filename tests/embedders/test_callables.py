"""Functions as embedders: called out of band, or inline where they are fast."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from otel_agentguard.embedders import CallableEmbedder, ContainedEmbedder, InlineEmbedder, open_embedder
from otel_agentguard.errors import ConfigError
from otel_agentguard.outofband import Breaker
from otel_agentguard.testing import ManualClock

VECTORS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}


def by_table(texts: list[str]) -> list[list[float]]:
    return [VECTORS[text] for text in texts]


def rows(vectors: Sequence[Sequence[float] | None]) -> list[list[float] | None]:
    return [None if vector is None else list(vector) for vector in vectors]


def test_a_vector_is_not_known_at_first_and_there_when_it_is_asked_for_again() -> None:
    embedder = CallableEmbedder(by_table)

    first = embedder.embed(["a", "b"])
    assert embedder.worker.idle()

    assert first == [None, None]
    assert rows(embedder.embed(["b", "a"])) == [[0.0, 1.0], [1.0, 0.0]]
    embedder.close()


def test_nobody_waits_for_the_function() -> None:
    gate = threading.Event()

    def slow(texts: list[str]) -> list[list[float]]:
        gate.wait(30)
        return by_table(texts)

    embedder = CallableEmbedder(slow)

    answers = [embedder.embed(["a"]) for _ in range(100)]

    assert answers == [[None]] * 100
    gate.set()
    assert embedder.worker.idle()
    assert rows(embedder.embed(["a"])) == [[1.0, 0.0]]
    embedder.close()


def test_a_text_that_was_announced_is_known_when_it_is_asked_for() -> None:
    embedder = CallableEmbedder(by_table)
    embedder.prepare(["a"])
    assert embedder.worker.idle()

    assert rows(embedder.embed(["a"])) == [[1.0, 0.0]]
    embedder.close()


def test_a_text_is_asked_for_once_and_several_go_together() -> None:
    calls: list[list[str]] = []
    gate = threading.Event()

    def noted(texts: list[str]) -> list[list[float]]:
        calls.append(list(texts))
        gate.wait(30)
        return [[1.0] for _ in texts]

    embedder = CallableEmbedder(noted)
    for text in ("a", "b", "c", "b", "a"):
        embedder.embed([text])
    gate.set()
    assert embedder.worker.idle()

    asked = [text for call in calls for text in call]
    assert sorted(asked) == ["a", "b", "c"]
    assert len(calls) <= 2
    embedder.close()


def test_only_the_beginning_of_a_long_text_is_handed_over() -> None:
    seen: list[str] = []
    embedder = CallableEmbedder(lambda texts: seen.extend(texts) or [[1.0]], max_chars=10)

    embedder.embed(["x" * 5000])

    assert embedder.worker.idle()
    assert seen == ["x" * 10]
    embedder.close()


def test_texts_are_redacted_before_they_are_handed_over() -> None:
    seen: list[str] = []
    embedder = CallableEmbedder(lambda texts: seen.extend(texts) or [[1.0]])
    embedder.redact = lambda text: text.replace("secret", "***")

    embedder.embed(["the secret"])

    assert embedder.worker.idle()
    assert seen == ["the ***"]
    embedder.close()


@pytest.mark.parametrize(
    "wrong",
    [[], [[1.0], [1.0]], [["x"]], [[float("nan")]], None],
    ids=["none", "too many", "text", "not a number", "nothing"],
)
def test_what_is_no_vector_is_counted_and_stays_unknown(wrong: Any) -> None:
    failures: list[str] = []
    embedder = CallableEmbedder(lambda _: wrong)
    embedder.tell_failures_to(lambda where, _: failures.append(where))

    embedder.embed(["a"])
    assert embedder.worker.idle()

    assert failures == ["embedder"]
    assert embedder.embed(["a"]) == [None]
    embedder.close()


def test_what_a_process_remembers_of_texts_is_bounded() -> None:
    embedder = CallableEmbedder(lambda texts: [[1.0] for _ in texts])

    for number in range(3000):
        embedder.embed([f"text {number}"])
        if number % 100 == 0:
            assert embedder.worker.idle()
    assert embedder.worker.idle()

    assert len(embedder._known) <= 1024
    embedder.close()


def test_a_fast_function_is_called_at_once() -> None:
    embedder = InlineEmbedder(by_table)

    assert rows(embedder.embed(["a", "b"])) == [[1.0, 0.0], [0.0, 1.0]]


def test_numpy_rows_are_vectors_too() -> None:
    numpy = pytest.importorskip("numpy")

    assert rows(InlineEmbedder(lambda texts: numpy.ones((len(texts), 2))).embed(["a"])) == [[1.0, 1.0]]


def test_an_embedder_that_fails_is_counted_and_has_a_rest_after_some_failures() -> None:
    clock = ManualClock()
    calls: list[int] = []

    class Broken:
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            calls.append(1)
            raise RuntimeError("no model")

    failures: list[str] = []
    embedder = ContainedEmbedder(Broken(), breaker=Breaker(failures=3, pause_s=60, now_s=clock))
    embedder.tell_failures_to(lambda where, _: failures.append(where))

    answers = [embedder.embed(["a"]) for _ in range(10)]
    clock.advance(61)
    embedder.embed(["a"])

    assert answers == [[None]] * 10
    assert len(calls) == 4
    assert failures == ["embedder"] * 4


def test_functions_and_embedders_are_taken_and_anything_else_is_refused() -> None:
    late = open_embedder(by_table)
    inline = open_embedder(InlineEmbedder(by_table))

    assert late is not None
    assert hasattr(late, "prepare")
    assert inline is not None
    assert not hasattr(inline, "prepare")
    assert open_embedder(None) is None
    with pytest.raises(ConfigError, match="'wordllama'"):
        open_embedder("word2vec")
    late.close()
