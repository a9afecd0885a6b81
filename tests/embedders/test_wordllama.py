"""The small model in the process."""

from __future__ import annotations

import builtins
import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from otel_agentguard.embedders import open_embedder
from otel_agentguard.errors import MissingExtraError

SAME = {
    "English": ("where is the configuration file of the server", "find the location of the server's config"),
    "German": (
        "Wo liegt die Konfigurationsdatei des Servers",
        "In welchem Ordner steht die Konfiguration des Webservers",
    ),
    "Chinese": ("服务器的配置文件在哪里", "网站服务器的设置保存在哪个文件夹"),
    "Japanese": ("サーバーの設定ファイルはどこにありますか", "ウェブサーバーの設定はどのフォルダにありますか"),
}
OTHER = {
    "English": "what is the weather in Paris tomorrow",
    "German": "Wie wird das Wetter morgen in Paris",
    "Chinese": "明天巴黎的天气怎么样",
    "Japanese": "明日のパリの天気はどうですか",
}


@pytest.fixture(scope="module")
def embedder() -> Any:
    pytest.importorskip("wordllama", reason="pip install 'otel-agentguard[semantic]'")
    return open_embedder("wordllama")


def likeness(embedder: Any, one: str, other: str) -> float:
    left, right = embedder.embed([one, other])
    return dot(left, right)


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("language", SAME)
def test_two_questions_about_one_thing_are_more_alike_than_two_about_different_things(
    embedder: Any, language: str
) -> None:
    one, reworded = SAME[language]

    assert likeness(embedder, one, reworded) > 0.5 > likeness(embedder, one, OTHER[language])


def test_vectors_have_a_length_of_one(embedder: Any) -> None:
    [vector] = embedder.embed(["some text"])

    assert len(vector) == 256
    assert dot(vector, vector) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_a_text_that_says_nothing_has_no_vector(embedder: Any, text: str) -> None:
    assert embedder.embed([text]) == [None]


@pytest.mark.parametrize("text", ["x" * 100_000, "🙂" * 500, "\x00\ufffd", "これはどうですか", "\u200d"])
def test_any_text_has_a_vector_of_finite_numbers(embedder: Any, text: str) -> None:
    [vector] = embedder.embed([text])

    assert vector is None or all(abs(number) <= 1.0 for number in vector)


def test_loading_it_leaves_the_logging_of_the_application_alone() -> None:
    pytest.importorskip("wordllama", reason="pip install 'otel-agentguard[semantic]'")
    code = (
        "import logging; from otel_agentguard.embedders import open_embedder; open_embedder('wordllama');"
        "root = logging.getLogger(); print(root.handlers, root.level)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == f"[] {logging.WARNING}"


def test_without_its_library_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "wordllama":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "otel_agentguard.embedders.wordllama", raising=False)

    with pytest.raises(MissingExtraError, match=r"otel-agentguard\[semantic\]"):
        open_embedder("wordllama")
