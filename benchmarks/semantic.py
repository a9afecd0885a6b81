"""What comparing by meaning costs a message: the embedder alone, and the whole loop check with and without it.

    python -m pytest benchmarks/semantic.py

The limit is for the embedder, at most 250 microseconds a text; the fastest round counts, since the machine is
never quiet.
"""

from __future__ import annotations

from itertools import count

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.embedders import open_embedder
from otel_agentguard.engine import Engine
from otel_agentguard.events import Effect
from otel_agentguard.protocols import Embedder
from otel_agentguard.testing import tool_call

LIMIT_S = 250e-6
TEXTS = {
    "40 characters": "where is the configuration of the server",
    "300 characters and more": "please find out where the web server keeps its configuration and who may change it "
    * 5,
    "Chinese": "请查找网站服务器的配置文件保存在哪个文件夹，并说明谁可以修改它",
    "Japanese": "ウェブサーバーの設定ファイルがどのフォルダにあるか調べてください",
}
NUMBER = count()


@pytest.fixture(scope="module")
def wordllama() -> Embedder:
    pytest.importorskip("wordllama", reason="pip install 'otel-agentguard[semantic]'")
    embedder = open_embedder("wordllama")
    assert embedder is not None
    return embedder


@pytest.mark.parametrize("text", TEXTS)
def test_embedding_one_text(benchmark: BenchmarkFixture, wordllama: Embedder, text: str) -> None:
    benchmark.pedantic(lambda: wordllama.embed([TEXTS[text]]), rounds=200, iterations=5, warmup_rounds=5)

    assert benchmark.stats.stats.min <= LIMIT_S


@pytest.mark.parametrize("layer", ["words", "meaning"])
def test_a_question_in_the_loop_check(benchmark: BenchmarkFixture, wordllama: Embedder, layer: str) -> None:
    engine = Engine(checks=[LoopCheck(wordllama if layer == "meaning" else None)])
    run = engine.open("r")

    def question() -> None:
        number = next(NUMBER)
        asked = " ".join(f"{(number * prime) % 999_983:x}q" for prime in (7919, 104_729, 15_485_863, 32_452_843))
        engine.observe(run, tool_call("ask", {"question": asked}, f"answer {number} is new", effect=Effect.READ))

    benchmark.pedantic(question, rounds=300, iterations=5, warmup_rounds=5)
