"""What holds for every run: other runs do not matter, new calls are never found, and processes agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from loop_runs import TEXT, WORDS, Watch, ask, compaction, fail, read, request, say, turn, wait, write

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.engine import Engine
from otel_agentguard.events import Effect, Event, Outcome
from otel_agentguard.findings import Action
from otel_agentguard.testing import tool_call

MAKERS = [
    lambda: read(),
    lambda: read("b.txt", "the second file"),
    lambda: ask("status", "the job is running", job=7),
    lambda: ask("search", "No results.", query="rain in Ulm"),
    lambda: ask("search", "No results.", query="Rain in Ulm today"),
    lambda: fail(),
    lambda: write(),
    lambda: write(content="x = 2"),
    lambda: wait(),
    lambda: turn(),
    lambda: compaction(),
    lambda: say("ann", "Please review the draft of the report."),
    lambda: say("bob", "The draft of the report needs your review."),
    lambda: request("what next", "read the file"),
    lambda: tool_call("mail", {"to": "a"}, "sent", effect=Effect.SIDE_EFFECT),
    lambda: tool_call("delete", {"path": "/"}, "declined", outcome=Outcome.DENIED),
]
RUNS = st.lists(st.integers(0, len(MAKERS) - 1), max_size=60)


def events(numbers: list[int]) -> list[Event]:
    return [MAKERS[number]() for number in numbers]


@given(RUNS, RUNS)
@settings(max_examples=60, deadline=None)
def test_checks_are_indifferent_to_unrelated_runs_in_between(numbers: list[int], others: list[int]) -> None:
    alone = Watch().add(events(numbers))
    engine = Engine(checks=[LoopCheck()])
    ours, theirs = engine.open("ours"), engine.open("theirs")

    mixed = []
    for place in range(max(len(numbers), len(others))):
        if place < len(others):
            engine.observe(theirs, MAKERS[others[place]]())
        if place < len(numbers):
            mixed += engine.observe(ours, MAKERS[numbers[place]]()).findings

    assert [(f.step, f.kind, f.action) for f in mixed if f.action > Action.ALLOW] == [tuple(seen) for seen in alone]


@given(RUNS)
@settings(max_examples=60, deadline=None)
def test_the_same_run_gives_the_same_findings(numbers: list[int]) -> None:
    assert Watch().add(events(numbers)) == Watch().add(events(numbers))


@given(RUNS)
@settings(max_examples=60, deadline=None)
def test_evidence_is_earlier_steps_of_the_run_in_order(numbers: list[int]) -> None:
    watch = Watch()
    watch.add(events(numbers))

    for finding in watch.findings:
        assert list(finding.evidence) == sorted(set(finding.evidence))
        assert 1 <= finding.evidence[0] <= finding.evidence[-1] <= finding.step <= len(numbers)


@given(RUNS)
@settings(max_examples=60, deadline=None)
def test_one_signature_is_told_at_most_once_a_step_of_the_ladder(numbers: list[int]) -> None:
    watch = Watch()
    watch.add(events(numbers))

    told = [(finding.check, finding.signature, finding.action) for finding in watch.findings]
    assert len(told) == len(set(told))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 24), st.integers(0, 24)), max_size=80), st.randoms())
@settings(max_examples=60, deadline=None)
def test_a_run_of_calls_that_are_all_new_is_never_found(parts: list[tuple[int, int, int]], pick: object) -> None:
    calls = [
        tool_call(
            f"tool_{tool}",
            {"about": f"{WORDS[one]}-{number}-{WORDS[other]}", "n": number * 7},
            f"{WORDS[(one + number) % 25]}{number} is the {WORDS[other]}{number * 3} of {WORDS[one]}{number * 5}.",
            effect=list(Effect)[(tool + number) % len(Effect)],
        )
        for number, (tool, one, other) in enumerate(parts)
    ]

    assert Watch().add(calls) == []


@given(
    st.lists(st.text(max_size=80), min_size=1, max_size=12), st.lists(st.text(max_size=200), min_size=1, max_size=12)
)
@settings(max_examples=80, deadline=None)
def test_any_text_can_be_an_argument_or_a_result(arguments: list[str], results: list[str]) -> None:
    engine = Engine(checks=[LoopCheck()])
    run = engine.open()
    failures: list[str] = []
    engine.failed = lambda where, exc: failures.append(f"{where}: {exc!r}")  # type: ignore[method-assign]

    for number in range(24):
        argument, result = arguments[number % len(arguments)], results[number % len(results)]
        outcome = Outcome.FAILED if number % 5 == 0 else Outcome.OK
        engine.observe(run, tool_call(f"t{number % 2}", {"a": argument, "b": number % 3}, result, outcome=outcome))
        engine.observe(run, say(f"agent {number % 2}", result))

    assert failures == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
        max_leaves=20,
    )
)
@settings(max_examples=80, deadline=None)
def test_any_data_can_be_an_argument_or_a_result(value: object) -> None:
    engine = Engine(checks=[LoopCheck()])
    run = engine.open()
    failures: list[str] = []
    engine.failed = lambda where, exc: failures.append(f"{where}: {exc!r}")  # type: ignore[method-assign]

    for number in range(6):
        engine.observe(run, tool_call("t", {"a": value, "n": number % 2}, value))
        engine.observe(run, tool_call("t", {"a": value, "n": number % 3}, [value, number]))

    assert failures == []


def test_processes_with_different_hash_seeds_find_the_same() -> None:
    script = Path(__file__).with_name("seeded.py")

    outputs = {
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }

    assert len(outputs) == 1
    assert len(json.loads(outputs.pop())) > 5


def test_a_secret_in_arguments_or_results_is_in_no_finding() -> None:
    secret = "swordfish-4711"
    watch = Watch()

    watch.add(
        [read(secret, f"{secret} {TEXT}") for _ in range(9)],
        [ask("search", f"no {secret} here", query=f"where is {secret} {word}") for word in ("now", "then", "please")],
        [fail("connect", f"Error: {secret} was refused", host=f"{n}.{secret}.org") for n in range(9)],
        [[read(f"{secret}{n}", f"{secret} {WORDS[n]}") for n in range(3)] for _ in range(5)],
    )

    assert len(watch.findings) > 5
    for finding in watch.findings:
        assert secret not in finding.message + finding.explanation
