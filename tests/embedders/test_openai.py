"""The embedder behind an endpoint, against a server that answers by script."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from scripted_http import Script

from otel_agentguard import install, run, tool
from otel_agentguard.embedders.openai import OpenAIEmbedder
from otel_agentguard.errors import ConfigError


def embeddings(request: dict[str, Any]) -> tuple[int, bytes]:
    """One vector for each text, in the wrong order, as the protocol allows."""
    rows = [{"index": place, "embedding": [float(len(text)), 1.0]} for place, text in enumerate(request["input"])]
    return 200, json.dumps({"data": rows[::-1]}).encode()


def test_vectors_are_asked_for_in_one_request_and_placed_by_their_index(server: Script) -> None:
    server.answers.append(embeddings)
    embedder = OpenAIEmbedder(server.url, "small", api_key="sk-1", options={"dimensions": 2})

    embedder.embed(["a", "bb", "ccc"])
    assert embedder.worker.idle()

    assert [list(vector or ()) for vector in embedder.embed(["ccc", "a"])] == [[3.0, 1.0], [1.0, 1.0]]
    [request] = server.requests
    assert request == {"model": "small", "input": ["a", "bb", "ccc"], "dimensions": 2}
    assert server.paths == ["/v1/embeddings"]
    assert server.headers[0]["Authorization"] == "Bearer sk-1"
    embedder.close()


def test_many_texts_go_in_several_requests(server: Script) -> None:
    server.answers.append(embeddings)
    embedder = OpenAIEmbedder(server.url, "small", batch=2)

    embedder.embed(["a", "b", "c", "d", "e"])
    assert embedder.worker.idle()

    assert [len(request["input"]) for request in server.requests] == [2, 2, 1]
    embedder.close()


@pytest.mark.parametrize(
    "answer",
    [
        (500, b""),
        (200, b"nonsense"),
        (200, b"{}"),
        (200, b'{"data": []}'),
        (200, b'{"data": [{"index": 0}]}'),
        (200, b"[]"),
    ],
)
def test_an_endpoint_that_fails_leaves_the_vector_unknown_and_is_counted(
    server: Script, answer: tuple[int, bytes]
) -> None:
    server.answers.append(answer)
    failures: list[str] = []
    embedder = OpenAIEmbedder(server.url, "small")
    embedder.tell_failures_to(lambda where, _: failures.append(where))

    embedder.embed(["a"])
    assert embedder.worker.idle()

    assert failures == ["embedder"]
    assert embedder.embed(["a"]) == [None]
    embedder.close()


def test_an_endpoint_that_does_not_answer_is_left_alone_after_a_while(server: Script) -> None:
    server.answers.append(embeddings)
    server.gate.clear()
    embedder = OpenAIEmbedder(server.url, "small", timeout_s=0.05)

    for _ in range(6):
        embedder.embed(["a"])
        assert embedder.worker.idle()

    assert len(server.requests) == 3
    embedder.close()


def test_asking_takes_no_time_while_the_endpoint_is_slow(server: Script) -> None:
    server.answers.append(embeddings)
    server.gate.clear()
    embedder = OpenAIEmbedder(server.url, "small")

    began_s = time.perf_counter()
    for number in range(100):
        embedder.embed([f"text {number}"])
    took_s = time.perf_counter() - began_s

    assert took_s < 1
    server.gate.set()
    embedder.close()


def test_a_call_is_announced_so_that_its_meaning_is_known_when_it_is_over(server: Script) -> None:
    server.answers.append(embeddings)
    embedder = OpenAIEmbedder(server.url, "small")
    guard = install(embedder=embedder)
    known: list[bool] = []

    @tool
    def ask(question: str) -> str:
        assert embedder.worker.idle()
        known.append(embedder.embed([question]) != [None])
        return "an answer"

    with run("r"):
        ask("where does the red house stand")
    guard.shutdown()

    assert known == [True]
    assert server.requests[0]["input"] == ["where does the red house stand"]


def test_without_a_model_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="model"):
        OpenAIEmbedder("http://localhost/v1", "")
