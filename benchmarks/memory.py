"""What the memory gate costs: taking in a result, the first write of a run, and each later one.

Run with `python -m pytest benchmarks/memory.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate, count, cycle

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from otel_agentguard.events import Effect, Evidence, Memory, MemoryOperation, Outcome, ToolCall, Trigger, Turn
from otel_agentguard.memory import MemoryGate

_LETTERS = random.Random(7)
VOCABULARY = ["".join(_LETTERS.choices("etaoinshrdlucmfw", k=_LETTERS.randint(2, 10))) for _ in range(8000)]
WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(VOCABULARY) + 1)))
WRITE_LIMIT_S = 1e-3
TAKE_LIMIT_S = 10e-6
_KB = 1000
_RESULTS = 1100


def prose(seed: random.Random, size: int) -> str:
    """Text with the word frequencies of prose: few words often, many seldom, a number now and then."""
    words = seed.choices(VOCABULARY, cum_weights=WEIGHTS, k=size // 6)
    for place in range(0, len(words), 17):
        words[place] = str(seed.randint(1, 50_000))
    for place in range(seed.randint(3, 12), len(words), 11):
        words[place] += seed.choice(",..\n")
    return " ".join(words)[:size]


def full_gate() -> MemoryGate:
    """A gate that holds 1 MB of observations, with a fact in the middle that can be asked for."""
    seed = random.Random(11)
    gate = MemoryGate("run")
    gate.submit(
        Turn(trigger=Trigger.USER, text="Please measure the search endpoint and keep it. I am Priya from Lisbon.")
    )
    for number in range(_RESULTS):
        text = prose(seed, _KB)
        if number == _RESULTS // 2:
            text = f"{text}\np50 38 ms, p99 412 ms, 2000 requests to /search\n{text}"
        gate.submit(call(text, number))
    return gate


def call(text: str, number: int = 0) -> ToolCall:
    return ToolCall(
        tool="read_file",
        arguments={"path": f"src/part{number}.py"},
        effect=Effect.READ,
        outcome=Outcome.OK,
        result=text,
    )


def writer(gate: MemoryGate, values: list[str], **more: object) -> Callable[[], object]:
    keys, texts = count(), cycle(values)

    def write() -> object:
        memory = Memory(operation=MemoryOperation.WRITE, key=f"k{next(keys)}", value=next(texts), **more)  # type: ignore[arg-type]
        return gate.submit(memory)

    return write


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(["p99 of /search is 412 ms"], id="shown"),
        pytest.param(["p99 of /search is 214 ms"], id="altered"),
        pytest.param(["the user wants a refund for a broken lamp"], id="invented"),
        pytest.param(["Priya lives in Lisbon", "p50 is 38 ms", "2000 requests went to /search"], id="mixed"),
    ],
)
def test_one_write_against_a_megabyte(benchmark: BenchmarkFixture, values: list[str]) -> None:
    gate = full_gate()
    write = writer(gate, values)
    write()

    benchmark.pedantic(write, rounds=400, iterations=1, warmup_rounds=5)

    assert gate.observations.held_bytes < 4 << 20
    assert benchmark.stats.stats.min <= WRITE_LIMIT_S


def test_one_write_that_quotes_a_step(benchmark: BenchmarkFixture) -> None:
    gate = full_gate()
    evidence = (Evidence(step=_RESULTS // 2 + 2, quote="p99 412 ms"),)
    write = writer(gate, ["p99 of /search is 412 ms"], evidence=evidence)
    write()

    benchmark.pedantic(write, rounds=400, iterations=1, warmup_rounds=5)

    assert benchmark.stats.stats.min <= WRITE_LIMIT_S


def test_writes_that_each_ask_for_something_else(benchmark: BenchmarkFixture) -> None:
    """No passage is asked for twice, so none has been read before."""
    gate = full_gate()
    seed = random.Random(5)
    kept = [observation for step in range(400, _RESULTS) if (observation := gate.observations.at(step)) is not None]
    write = writer(gate, [" ".join(seed.choice(kept).text.split()[40:48]) for _ in range(600)])
    write()

    benchmark.pedantic(write, rounds=400, iterations=1, warmup_rounds=5)

    assert benchmark.stats.stats.min <= WRITE_LIMIT_S


def test_the_first_write_of_a_run_indexes_what_was_kept(benchmark: BenchmarkFixture) -> None:
    def setup() -> tuple[tuple[Callable[[], object]], dict[str, object]]:
        return (writer(full_gate(), ["p99 of /search is 412 ms"]),), {}

    benchmark.pedantic(lambda write: write(), setup=setup, rounds=3)


def test_taking_in_a_result_before_the_first_write(benchmark: BenchmarkFixture) -> None:
    gate = MemoryGate("run")
    text = prose(random.Random(3), _KB)

    benchmark(lambda: gate.submit(call(text)))

    assert benchmark.stats.stats.min <= TAKE_LIMIT_S


def test_taking_in_a_result_after_the_first_write(benchmark: BenchmarkFixture) -> None:
    gate = MemoryGate("run")
    writer(gate, ["x"])()
    texts = cycle([prose(random.Random(number), _KB) for number in range(200)])

    benchmark(lambda: gate.submit(call(next(texts))))
