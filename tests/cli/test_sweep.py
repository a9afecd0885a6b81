"""`scan --sweep`: what each value of a setting catches and costs."""

import json

import pytest

from otel_agentguard.cli import main
from otel_agentguard.config import Settings
from otel_agentguard.findings import Limits
from otel_agentguard.loading import value_of, with_values


@pytest.fixture(autouse=True)
def _apart_from_other_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def scan(capsys):
    def scan(*argv):
        code = main(["scan", *map(str, argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return scan


def calls(run_id, times):
    """A run that makes one call so often, with the same result."""
    call = {"kind": "tool", "agent": "a", "tool": "ls", "args": {"path": "."}, "result": "x", "is_error": False}
    return {"id": run_id, "steps": [call] * times}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "runs.jsonl"
    lines = [json.dumps(calls(f"times{times}", times)) for times in (1, 3, 4, 6, 9)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


def test_each_value_has_a_row_with_what_it_catches_and_what_it_refuses(scan, log):
    code, out, err = scan(log, "--sweep", "loop.same.hint=2,3,4")

    rows = [line.split() for line in out.splitlines()[2:5]]
    assert code == 1
    assert err == ""
    assert out.startswith("loop.same.hint: 5 runs, 23 steps\n")
    assert rows == [
        ["2", "4", "0", "0", "2", "2", "1", "loop", "7"],
        ["3", "(now)", "4", "3", "2", "1", "loop", "7"],
        ["4", "3", "1", "0", "4", "2", "1", "loop", "6"],
    ]
    assert "  4: no warning any more for times3\n" in out


def test_json_lines_have_one_object_a_value_with_the_first_step_of_each_run(scan, log):
    _, out, _ = scan(log, "--format", "jsonl", "--sweep", "loop.same.hint=3,5")

    three, five = objects(out)
    assert (three["sweep"], three["value"], three["now"], five["now"]) == ("loop.same.hint", "3", True, False)
    assert three["first_steps"] == {"times3": 3, "times4": 3, "times6": 3, "times9": 3}
    assert five["first_steps"] == {"times6": 5, "times9": 5}
    assert (five["gone"], five["new"]) == (["times3", "times4"], [])
    assert (five["runs"], five["steps"], five["warned"], five["median_first_step"]) == (5, 23, 2, 5)
    assert (five["refused"], five["stopped"], five["findings"]) == (2, 1, {"loop": 3})


def test_the_value_in_force_is_shown_where_it_is_not_among_those_that_are_tried(scan, log):
    _, out, _ = scan(log, "--format", "jsonl", "--sweep", "loop.same.hint=4")

    assert [(one["value"], one["now"]) for one in objects(out)] == [("3", True), ("4", False)]


def test_a_value_may_be_never(scan, log):
    _, out, _ = scan(log, "--format", "jsonl", "--sweep", "loop.same.stop=7,never")

    assert [(one["value"], one["stopped"]) for one in objects(out)] == [("7", 1), ("never", 0)]


def test_other_settings_hold_for_every_value(scan, log):
    _, out, _ = scan(
        log,
        "--format",
        "jsonl",
        "--set",
        "loop.same.block=9",
        "--set",
        "loop.same.stop=9",
        "--sweep",
        "loop.same.hint=3,8",
    )

    assert [(one["warned"], one["refused"]) for one in objects(out)] == [(4, 0), (1, 0)]


def test_several_settings_are_swept_one_after_the_other(scan, log):
    _, out, _ = scan(log, "--format", "jsonl", "--sweep", "loop.same.hint=3,4", "--sweep", "budget.tool_calls=2,5")

    assert [(one["sweep"], one["value"]) for one in objects(out)] == [
        ("loop.same.hint", "3"),
        ("loop.same.hint", "4"),
        ("budget.tool_calls", "never"),
        ("budget.tool_calls", "2"),
        ("budget.tool_calls", "5"),
    ]
    assert [one["stopped"] for one in objects(out)[2:]] == [1, 4, 2]


def test_a_run_that_cannot_be_read_is_told_once_and_makes_the_exit_code_two(scan, log):
    with log.open("a", encoding="utf-8") as file:
        file.write('\n{"id": "broken", "steps": 3}\n')

    code, out, err = scan(log, "--format", "jsonl", "--sweep", "loop.same.hint=3,4")

    assert code == 2
    assert err.count("broken") + err.count(":6:") == 1
    assert [one["runs"] for one in objects(out)] == [5, 5]


def test_runs_in_which_nothing_is_found_leave_the_exit_code_at_zero(scan, tmp_path):
    path = tmp_path / "good.jsonl"
    path.write_text(json.dumps(calls("good", 2)), encoding="utf-8")

    code, out, _ = scan(path, "--sweep", "loop.same.hint=3,4")

    assert code == 0
    assert "none" in out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("loop.same.hint", "--sweep takes KEY=VALUE"),
        ("loop.same.hint=", "--sweep takes KEY=VALUE"),
        ("=3,4", "--sweep takes KEY=VALUE"),
        ("loop.sam.hint=3,4", "did you mean 'loop.same.hint'"),
        ("loop.same.hint=3,six", "whole number"),
        ("loop.same.hint=3,6", "set loop.same.hint, loop.same.block, loop.same.stop together"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_is_read(scan, log, given, told):
    code, out, err = scan(log, "--sweep", given)

    assert code == 2
    assert out == ""
    assert told in err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loop.same.hint", 3),
        ("loop.wait_s", 10.0),
        ("loop.alike.block", None),
        ("budget.steps", None),
        ("budget.agents.coder.steps", 4),
        ("tools.poll.same.block", 9),
        ("tools.other.same.block", 5),
        ("tools.poll.ttl_s", None),
        ("store", "memory://"),
    ],
)
def test_the_value_of_every_kind_of_key_can_be_told(key, value):
    settings = with_values(Settings(), {"budget.agents.coder.steps": "4", "tools.poll": {"same": Limits(3, 9, 9)}})

    assert value_of(settings, key) == value
