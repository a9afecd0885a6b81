from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from otel_agentguard.sinks.exposition import MetricsServer

WORKER = """
import os, sys
from opentelemetry.sdk.trace import TracerProvider
from otel_agentguard.config import Settings
from otel_agentguard.events import ToolCall
from otel_agentguard.protocols import RunInfo
from otel_agentguard.sinks.prometheus import PrometheusSink

run = RunInfo(run_id=f"run-{os.getpid()}", agent="coder", settings=Settings())
sink = PrometheusSink()
sink.run_opened(run)
sink.looked_up("agentguard_state_bytes", lambda: sink.state("values", 1000))
with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_as_current_span("s"):
    sink.side_effect("charge", "executed")
for _ in range(int(sys.argv[1])):
    sink.stepped(run, ToolCall(tool="grep", agent="coder"))
ended = RunInfo(run_id="ended", agent="coder", settings=Settings())
sink.run_opened(ended)
sink.run_closed(ended, "completed", 4)
"""


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two processes that counted at the same time and ended without a farewell; their ids."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    running = [subprocess.Popen([sys.executable, "-c", WORKER, steps], env=dict(os.environ)) for steps in ("3", "4")]
    assert [process.wait(60) for process in running] == [0, 0]
    return [process.pid for process in running]


@pytest.fixture
def page(get: Callable[..., tuple[object, str]]) -> Callable[[], dict[tuple[str, ...], float]]:
    """Reads the page of a process that has counted nothing itself."""

    def read() -> dict[tuple[str, ...], float]:
        with MetricsServer(0, CollectorRegistry()) as server:
            _, body = get(server.url, accept="application/openmetrics-text")
        assert "trace_id" not in body
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body)
            for sample in family.samples
        }

    return read


def test_the_page_shows_the_sum_of_all_processes(
    workers: list[int], page: Callable[[], dict[tuple[str, ...], float]]
) -> None:
    shown = page()

    assert shown["agentguard_steps_total", "coder", "tool", "grep"] == 7
    assert shown["agentguard_side_effects_total", "executed", "charge"] == 2
    assert shown["agentguard_side_effects_total", "unknown", "charge"] == 0
    assert shown["agentguard_runs_total", "completed"] == 2
    assert shown["agentguard_run_steps_count",] == 2
    assert shown["agentguard_run_steps_sum",] == 8
    assert not [key for key in shown if key[0].endswith("_created")]


def test_gauges_add_up_over_the_processes_that_are_alive(
    workers: list[int], page: Callable[[], dict[tuple[str, ...], float]]
) -> None:
    both = page()
    mark_process_dead(workers[0])
    one = page()

    assert both["agentguard_active_runs",] == 2
    assert both["agentguard_state_bytes", "values"] == 2000
    assert one["agentguard_active_runs",] == 1
    assert one["agentguard_state_bytes", "values"] == 1000
    assert one["agentguard_steps_total", "coder", "tool", "grep"] == 7
