"""What a cached answer costs, beside the read that it saves; and what the other parts of dedup cost.

Run with `python -m pytest benchmarks/dedup.py`. The fastest round counts against the limits, since other
work on the machine only ever adds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from otel_agentguard.checks.dedup import DedupCheck
from otel_agentguard.config import Settings
from otel_agentguard.dedup.answers import Answers
from otel_agentguard.dedup.dedup import Dedup, make_dedup
from otel_agentguard.dedup.resources import YOUNG_NS, Resources
from otel_agentguard.dedup.rules import rule_for
from otel_agentguard.events import Effect, ToolCall
from otel_agentguard.protocols import RunInfo
from otel_agentguard.testing import tool_call

HIT_LIMIT_S = 15e-6
FILE_HIT_LIMIT_S = 25e-6

RUN = RunInfo(run_id="r", agent="coder", settings=Settings())
PURE = rule_for("sum", Effect.PURE)
READ = rule_for("read", Effect.READ)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text("x = 1\n" * 700)
    return path


def long_ago() -> int:
    """A clock by which every file is old."""
    return 2**62 + 2 * YOUNG_NS


def asking(answers: Answers, effect: Effect, body: Callable[[], object], *touches: str) -> Callable[[], object]:
    rule = PURE if effect is Effect.PURE else READ
    assert rule is not None
    call = tool_call("read", {"path": "src/module.py", "first": 1, "last": 200}, effect=effect, step=1)
    call.touches = touches or None

    def ask() -> object:
        return answers.answer(RUN, call, rule, body).value

    ask()
    return ask


def filled(answers: Answers, effect: Effect, value: object, *touches: str) -> Callable[[], object]:
    """A call whose answer is known; its body must not run again."""
    values = iter([value])
    return asking(answers, effect, lambda: next(values), *touches)


def test_a_hit_without_resources(benchmark: BenchmarkFixture) -> None:
    benchmark(filled(Answers(), Effect.PURE, "x" * 4_000))
    assert benchmark.stats["min"] <= HIT_LIMIT_S


def test_a_hit_on_data(benchmark: BenchmarkFixture) -> None:
    benchmark(filled(Answers(), Effect.PURE, {"rows": [{"id": n, "name": "x" * 20} for n in range(10)]}))
    assert benchmark.stats["min"] <= HIT_LIMIT_S


def test_a_hit_on_one_file(benchmark: BenchmarkFixture, file: Path) -> None:
    answers = Answers(resources=Resources(now_ns=long_ago))
    benchmark(filled(answers, Effect.READ, file.read_text(), str(file)))
    assert benchmark.stats["min"] <= FILE_HIT_LIMIT_S


def test_the_read_that_this_saves(benchmark: BenchmarkFixture, file: Path) -> None:
    benchmark(file.read_text)


def test_a_hit_on_one_file_that_changed_a_moment_ago(benchmark: BenchmarkFixture, file: Path) -> None:
    benchmark(filled(Answers(resources=Resources(now_ns=lambda: 0)), Effect.READ, file.read_text(), str(file)))


def test_a_hit_on_a_folder_of_500_files(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"{number}.py").write_text("x")
    benchmark(filled(Answers(resources=Resources(now_ns=long_ago)), Effect.READ, "found", str(tmp_path)))


def test_a_hit_after_an_unrelated_write(benchmark: BenchmarkFixture, file: Path) -> None:
    answers = Answers(resources=Resources(now_ns=long_ago))
    ask = filled(answers, Effect.READ, file.read_text(), str(file))
    write = tool_call("write", {"path": "other"}, effect=Effect.WRITE)
    write.touches = ("/elsewhere/other",)
    answers.stepped(RUN, write)
    benchmark(ask)


def test_a_miss(benchmark: BenchmarkFixture, file: Path) -> None:
    answers = Answers(resources=Resources(now_ns=long_ago))
    rule = READ
    assert rule is not None
    call = tool_call("read", {"path": str(file)}, effect=Effect.READ, step=1)
    call.touches = (str(file),)
    benchmark(lambda: answers.answer(RUN, call, rule, lambda: "x" * 4_000, fresh=True))


def test_a_hit_of_a_coroutine(benchmark: BenchmarkFixture) -> None:
    answers = Answers()
    rule = PURE
    assert rule is not None
    call = tool_call("sum", effect=Effect.PURE, step=1)

    async def body() -> str:
        return "x"

    async def many() -> None:
        for _ in range(1_000):
            await answers.answer_async(RUN, call, rule, body)

    benchmark(lambda: asyncio.run(many()))


def test_a_write_is_told(benchmark: BenchmarkFixture) -> None:
    answers = Answers()
    call = tool_call("write", {"path": "src/a.py"}, effect=Effect.WRITE)
    call.touches = ("src/a.py",)

    def write() -> None:
        answers.began(RUN, call)
        answers.stepped(RUN, call)

    benchmark(write)


def test_a_call_of_unknown_effect_is_told(benchmark: BenchmarkFixture) -> None:
    answers = Answers()
    call = tool_call("search", {"q": "where is the hash"})

    def unknown() -> None:
        answers.began(RUN, call)
        answers.stepped(RUN, call)

    benchmark(unknown)


@pytest.mark.parametrize(
    ("effect", "arguments"),
    [
        (Effect.READ, {"path": "src/module.py"}),
        (Effect.WRITE, {"path": "src/module.py", "content": "y" * 1_000}),
        (Effect.UNKNOWN, {"command": "cat <<EOF > foo.py\n" + "print('hello world')\n" * 100 + "EOF"}),
    ],
    ids=["read", "write", "shell"],
)
def test_a_step_of_the_check(benchmark: BenchmarkFixture, effect: Effect, arguments: dict[str, object]) -> None:
    check = DedupCheck().open(RUN)
    benchmark(check.after, tool_call("tool", arguments, "x" * 500, effect=effect, step=1))


def journaled(count: int) -> tuple[Dedup, ToolCall]:
    dedup = make_dedup(Settings())
    for number in range(count):
        call = tool_call("read", {"path": str(number)}, effect=Effect.READ, step=number)
        call.touches = (f"record:{number}",)
        dedup.stepped(RUN, call)
    return dedup, call


def test_a_read_is_journaled(benchmark: BenchmarkFixture) -> None:
    dedup, call = journaled(1)
    benchmark(dedup.stepped, RUN, call)


def test_the_hints_of_a_long_run(benchmark: BenchmarkFixture) -> None:
    dedup, _ = journaled(256)
    benchmark(dedup.hints, RUN)
