"""Runs with the findings that each gives; a run without any is work that must be left alone, or a known miss.

One run a line: `id`, `steps` in the run log format, and `expect`: step, kind and action of every finding of
severity `warn` and above. A bug report becomes a line here. Some expectations were set after seeing what the
package does, so agreement here guards against change and is no measure of detection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.config import Settings
from otel_agentguard.findings import Severity
from otel_agentguard.readers.replay import Replayer
from otel_agentguard.readers.runlog import RecordedRun, read_file

MISSED = {"ls-spelled"}
"""Loops that nothing is found in; the day one is found, its line gets the findings."""

TRACES = sorted(Path(__file__).with_name("traces").glob("*.jsonl"))


def expectations(path: Path) -> Iterator[tuple[str, list[list[object]]]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        yield run["id"], run["expect"]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_every_run_gives_the_findings_that_it_must_and_no_others(path: Path) -> None:
    settings = Settings(checks=("loop",))
    replayer = Replayer([LoopCheck()], settings)
    wanted = dict(expectations(path))

    given = {
        record.id: [
            [finding.step, str(finding.kind), str(finding.action)]
            for finding in replayer.replay(record).findings
            if finding.severity is not Severity.INFO
        ]
        for record in read_file(path, settings=settings, unknown=Counter())
        if isinstance(record, RecordedRun)
    }

    assert given == wanted


def test_there_are_as_many_good_runs_as_loops() -> None:
    runs = {name: expect for path in TRACES for name, expect in expectations(path)}

    good = sum(not expect for name, expect in runs.items() if name not in MISSED)
    assert runs.keys() >= MISSED
    assert len(runs) >= 200
    assert good >= len(runs) - good
