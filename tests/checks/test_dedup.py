"""The dedup check: what it says of repeats and of answers from caches."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard.checks.dedup import DedupCheck
from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.config import Settings
from otel_agentguard.events import Effect
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.protocols import RunInfo
from otel_agentguard.readers.replay import Replayer
from otel_agentguard.readers.runlog import RecordedRun
from otel_agentguard.readers.steps import StepDecoder
from otel_agentguard.testing import tool_call

Step = Mapping[str, object]


def scan(*steps: Step) -> tuple[Finding, ...]:
    """The findings of the dedup check on a recorded run."""
    settings = Settings()
    events = StepDecoder(settings, Counter()).events([dict(step) for step in steps], {})
    replayed = Replayer([LoopCheck(), DedupCheck()], settings).replay(RecordedRun(id="r", events=events, tools={}))
    return tuple(finding for finding in replayed.findings if finding.check == "dedup")


def read(path: str = "a.md", result: str = "alpha", **more: object) -> Step:
    return {"kind": "tool", "tool": "read", "effect": "read", "args": {"path": path}, "result": result} | more


def kept(path: str = "a.md", result: str = "alpha", **more: object) -> Step:
    return read(path, result, served_from="cache", **more)


def write(path: str = "a.md", content: str = "beta", **more: object) -> Step:
    arguments = {"path": path, "content": content}
    return {"kind": "tool", "tool": "write_file", "effect": "write", "args": arguments, "result": "ok"} | more


def shell(command: str, result: str = "", **more: object) -> Step:
    return {"kind": "tool", "tool": "bash", "effect": "unknown", "args": {"command": command}, "result": result} | more


def stale(*steps: Step) -> list[tuple[int, tuple[int, ...]]]:
    """Step and evidence of what is found stale."""
    return [(one.step, one.evidence) for one in scan(*steps) if one.kind is Kind.STALE_CACHE]


def test_an_answer_kept_over_a_write_to_its_file_is_stale() -> None:
    (finding,) = scan(read(), write(), kept())

    assert (finding.kind, finding.severity, finding.action) == (Kind.STALE_CACHE, Severity.WARN, Action.HINT)
    assert finding.evidence == (1, 2, 3)
    assert finding.tool == "read"
    assert "step 1" in finding.message
    assert "step 2" in finding.message
    assert "alpha" not in finding.message + finding.explanation


def test_a_kept_answer_where_a_fresh_one_was_asked_for_is_stale() -> None:
    assert stale(read(), kept(args={"path": "a.md", "fresh": True})) == [(2, (2,))]


def test_a_kept_not_found_is_stale_once_the_file_is_written() -> None:
    missing = {"result": "not found", "is_error": True}

    assert stale(read("out/r.md", **missing), write("out/r.md"), kept("out/r.md", **missing)) == [(3, (1, 2, 3))]


def test_a_kept_not_found_is_fine_while_nothing_is_written_there() -> None:
    missing = {"result": "not found", "is_error": True}

    assert stale(read("out/r.md", **missing), write("other.md"), kept("out/r.md", **missing)) == []


def test_a_kept_answer_as_such_is_no_finding() -> None:
    call, again = (tool_call("read", {"path": "a.md"}, "alpha", effect=Effect.READ, step=step) for step in (1, 2))
    again.served_from = "cache"
    again.redundant = True
    check = DedupCheck().open(RunInfo(run_id="r", agent="agent", settings=Settings()))

    assert [check.after(call), check.after(again)] == [(), ()]


def test_a_write_to_another_file_does_not_make_an_answer_stale() -> None:
    assert stale(read(), write("b.md"), kept()) == []


def test_after_a_read_that_ran_in_full_the_kept_answer_is_true_again() -> None:
    assert stale(read(), write(), read(result="beta"), kept(result="beta")) == []


def test_an_answer_that_differs_from_the_kept_one_was_looked_up_anew() -> None:
    assert stale(read(), write(), kept(result="beta, and more")) == []


def test_a_cache_that_takes_in_what_is_written_is_not_stale() -> None:
    assert stale(write(content="beta\n"), kept(result="beta")) == []


def test_an_answer_from_before_the_run_is_stale_after_a_write() -> None:
    assert stale(write(), kept()) == [(2, (1, 2))]


def test_a_write_that_failed_makes_nothing_stale() -> None:
    assert stale(read(), write(is_error=True), kept()) == []


def test_a_write_that_was_itself_answered_from_a_record_makes_nothing_stale() -> None:
    assert stale(read(), write(replayed=True), kept()) == []


@pytest.mark.parametrize(
    "command",
    [
        "sed -i 's/alpha/beta/' docs/a.md",
        "cd /repo && sed -i.bak s/a/b/ docs/a.md",
        "echo beta > docs/a.md",
        "echo beta>>docs/a.md",
        "cat b | tee -a docs/a.md",
        "mv new.md docs/a.md",
        "rm -f docs/a.md",
        "rm -r docs/",
        "git checkout main -- docs/a.md",
        "perl -pi -e 's/a/b/' docs/a.md",
    ],
)
def test_a_shell_command_that_writes_the_file_makes_its_answer_stale(command: str) -> None:
    assert stale(read("docs/a.md"), shell(command), kept("docs/a.md")) == [(3, (1, 2, 3))]


def test_a_pull_that_lists_the_file_makes_its_answer_stale() -> None:
    assert stale(read("a.rs"), shell("git pull", " a.rs | 3 +++\n 1 file changed"), kept("a.rs")) == [(3, (1, 2, 3))]


@pytest.mark.parametrize(
    "command",
    [
        "cat docs/a.md",
        "python docs/a.py && wc docs/a.md",
        "sed s/a/b/ docs/a.md",
        "grep alpha docs/a.md > /dev/null",
        "grep alpha docs/a.md 2>&1 > out.txt",
        "cp docs/b.md elsewhere/",
        "git diff docs/a.md",
        "git log -- docs/a.md",
        "git checkout main -- other/a.md",
    ],
)
def test_a_shell_command_that_does_not_write_the_file_leaves_its_answer_true(command: str) -> None:
    assert stale(read("docs/a.md"), shell(command), kept("docs/a.md")) == []


@pytest.mark.parametrize(
    ("reader", "writer", "is_stale"),
    [
        ("src", "src/a.py", True),
        ("src/a.py", "src", True),
        (".", "a.py", True),
        ("./src/a.py", "src/a.py", True),
        ("/repo/src/a.py", "src/a.py", True),
        ("src/a.py", "src/ab.py", False),
        ("src/a.py", "lib/src.py", False),
        ("file:///repo/a.py", "/repo/a.py", True),
    ],
)
def test_how_paths_reach_each_other(reader: str, writer: str, is_stale: bool) -> None:
    found = stale(read(reader), write(writer), kept(reader))

    assert bool(found) is is_stale


def record(tool: str, effect: str, arguments: dict[str, object], result: str, **more: object) -> Step:
    return {"kind": "tool", "tool": tool, "effect": effect, "args": arguments, "result": result} | more


def test_a_change_of_the_same_record_makes_its_answer_stale() -> None:
    get = record("get_customer", "read", {"id": 42}, "Ada")
    update = record("update_customer", "side_effect", {"id": 42, "name": "Eve"}, "ok")

    assert stale(get, update, get | {"served_from": "cache"}) == [(3, (1, 2, 3))]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("update_customer", {"id": 43, "name": "Eve"}), ("update_order", {"id": 42}), ("log", {"text": "id 42"})],
)
def test_a_change_of_another_record_leaves_an_answer_true(tool: str, arguments: dict[str, object]) -> None:
    get = record("get_customer", "read", {"id": 42}, "Ada")

    assert stale(get, record(tool, "write", arguments, "ok"), get | {"served_from": "cache"}) == []


def test_a_stub_that_points_behind_a_compaction_is_stale() -> None:
    stub = kept(result="[unchanged since step 1]")

    assert stale(read(), stub) == []
    assert stale(read(), {"kind": "compaction"}, stub) == [(3, (1, 2, 3))]


def test_a_whole_answer_after_a_compaction_is_fine() -> None:
    assert stale(read(), {"kind": "compaction"}, kept()) == []


def test_a_stub_over_a_write_is_stale() -> None:
    assert stale(read(), write(), kept(result="[unchanged] alpha")) == [(3, (1, 2, 3))]


def test_a_call_that_repeats_with_nothing_changed_is_redundant_and_said_once() -> None:
    findings = scan(read(), read(), read())

    assert [(one.kind, one.severity, one.step, one.message) for one in findings] == [
        (Kind.REDUNDANT, Severity.INFO, 2, "")
    ]
    assert findings[0].evidence == (1, 2)


def test_a_re_read_after_a_write_is_not_redundant() -> None:
    assert scan(read(), write(), read(result="beta")) == ()


@pytest.fixture
def cases() -> dict[str, dict[str, Any]]:
    """Small cases after public bug reports, which are kept apart from the package."""
    folder = os.environ.get("AGENTGUARD_DATA")
    if folder is None:
        pytest.skip("AGENTGUARD_DATA does not name the folder of the cases")
    lines = Path(folder, "cases", "dev.jsonl").read_text(encoding="utf-8").splitlines()
    return {case["id"]: case for case in map(json.loads, lines)}


def test_the_cases_of_the_check_are_met(cases: dict[str, dict[str, Any]]) -> None:
    wrong = []
    for name, case in cases.items():
        expected = case["expect"]["finding"]
        found = stale(*case["steps"])
        steps = [step for step, _ in found]
        wanted = [case["expect"]["by_step"]] if expected == "stale_cache" else []
        if steps != wanted:
            wrong.append((name, steps, wanted))

    assert wrong == []
    assert {"D03", "N104", "D04", "D06", "D09", "N116"} <= cases.keys()
