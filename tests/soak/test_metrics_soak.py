"""Agents that loop for a long time: counters only grow, series and memory do not.

An hour by default; `AGENTGUARD_SOAK_S=90 pytest -m soak tests/soak` for a short one.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from otlp_receiver import receiving
from prometheus_client.parser import text_string_to_metric_families

WORKLOAD = Path(__file__).resolve().parents[1] / "e2e" / "workload.py"
DURATION_S = float(os.environ.get("AGENTGUARD_SOAK_S", "3600"))
READINGS = 60
PAUSE_S = 0.02
MOST_GROWTH_MIB = 24.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(DURATION_S + 300)]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at the process shows.

    Attributes:
        counters: Value by name and labels.
        active_runs: Runs that are alive.
        rss_mib: Memory that the process holds, MiB.
    """

    counters: dict[tuple[str, ...], float]
    active_runs: float
    rss_mib: float


def read(url: str, pid: int) -> Reading:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - loopback
        families = list(text_string_to_metric_families(answer.read().decode()))
    status = Path(f"/proc/{pid}/status").read_text()
    rss_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    counters = {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
        if family.type == "counter" or sample.name.endswith(("_bucket", "_count"))
    }
    active = next(
        sample.value for family in families if family.name == "agentguard_active_runs" for sample in family.samples
    )
    return Reading(counters, active, rss_kib / 1024)


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> list[Reading]:
    folder = tmp_path_factory.mktemp("soak")
    seen = []
    with (
        receiving() as collector,
        (folder / "agents.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, WORKLOAD, "0", collector.grpc_url, str(DURATION_S + 120), "0", str(PAUSE_S)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_METRIC_EXPORT_INTERVAL": "1000"},
        ) as agents,
    ):
        assert agents.stdout is not None
        url = json.loads(agents.stdout.readline())["url"]
        try:
            for _ in range(READINGS):
                time.sleep(DURATION_S / READINGS)
                seen.append(read(url, agents.pid))
                collector.spans.clear()
                collector.metrics.clear()
        finally:
            agents.terminate()
            agents.wait(20)
    return seen


def test_counters_never_go_backwards(readings: list[Reading]) -> None:
    backwards = [
        (name, value, later.counters.get(name))
        for earlier, later in itertools.pairwise(readings)
        for name, value in earlier.counters.items()
        if later.counters.get(name, -1.0) < value
    ]

    assert backwards == []
    assert readings[-1].counters["agentguard_runs_total", "outcome=stopped_by_guard"] > READINGS


def test_the_number_of_series_does_not_grow(readings: list[Reading]) -> None:
    assert len(readings[-1].counters) == len(readings[len(readings) // 2].counters)


def test_runs_that_end_leave_no_trace_in_the_gauge(readings: list[Reading]) -> None:
    assert max(reading.active_runs for reading in readings) <= 1


def test_memory_is_flat(readings: list[Reading]) -> None:
    quarter = len(readings) // 4
    early = statistics.median(reading.rss_mib for reading in readings[quarter : 2 * quarter])
    late = statistics.median(reading.rss_mib for reading in readings[-quarter:])

    assert late - early < MOST_GROWTH_MIB, [round(reading.rss_mib, 1) for reading in readings]
