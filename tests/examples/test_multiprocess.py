"""The examples for gunicorn and Celery: several processes, and a page that shows the sum of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from services import free_port

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAIT_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGENTGUARD_", "OTEL_", "PROMETHEUS_"))
    }
    return inherited | variables


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
        return str(answer.read().decode())


def numbers(page: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def until(true: Callable[[], object], log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


def served(url: str) -> bool:
    try:
        get(url)
    except (urllib.error.URLError, OSError):
        return False
    return True


@contextmanager
def running(command: list[str], folder: Path, log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out, subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def children(process: subprocess.Popen[bytes]) -> set[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return {int(word) for word in text.split()}


def test_the_workers_of_gunicorn_count_together(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="pip install gunicorn")
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "metrics").mkdir()
    log = tmp_path / "log"
    command = [sys.executable, "-m", "gunicorn", "--config", "gunicorn.conf.py", "--bind", url.removeprefix("http://")]
    env = environment(PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "metrics"))
    with running([*command, "app:application"], EXAMPLES / "gunicorn", log, env) as gunicorn:
        until(lambda: served(f"{url}/metrics"), log)
        until(lambda: len(children(gunicorn)) == 2, log)

        answers = {get(f"{url}/ask?path={number}.py") for number in range(12)}
        shown = numbers(get(f"{url}/metrics"))

    assert answers == {f"{number}.py uses md5; stopped: loop" for number in range(12)}
    assert shown["agentguard_runs_total", "stopped_by_guard"] == 12
    assert shown["agentguard_active_runs",] == 0


def test_gauges_of_a_worker_that_was_replaced_no_longer_count(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="pip install gunicorn")
    url = f"http://127.0.0.1:{free_port()}"
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    log = tmp_path / "log"
    command = [sys.executable, "-m", "gunicorn", "--config", "gunicorn.conf.py", "--bind", url.removeprefix("http://")]
    env = environment(PROMETHEUS_MULTIPROC_DIR=str(metrics))
    with running([*command, "app:application"], EXAMPLES / "gunicorn", log, env) as gunicorn:
        until(lambda: served(f"{url}/metrics"), log)
        until(lambda: len(children(gunicorn)) == 2, log)
        get(f"{url}/ask")
        until(lambda: list(metrics.glob("gauge_livesum_*.db")), log)
        first = children(gunicorn)

        for pid in first:
            os.kill(pid, 15)
        until(lambda: len(children(gunicorn) - first) == 2, log)
        until(lambda: not [path for path in metrics.glob("gauge_live*") if int(path.stem.split("_")[-1]) in first], log)
        shown = numbers(get(f"{url}/metrics"))

    assert shown["agentguard_runs_total", "stopped_by_guard"] == 1


def test_the_processes_of_a_celery_worker_count_together(tmp_path: Path) -> None:
    pytest.importorskip("celery", reason="pip install celery")
    port = free_port()
    for name in ("metrics", "queue"):
        (tmp_path / name).mkdir()
    log = tmp_path / "log"
    env = environment(
        PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "metrics"),
        AGENT_QUEUE=str(tmp_path / "queue"),
        AGENT_METRICS_PORT=str(port),
    )
    celery = [sys.executable, "-m", "celery", "--app", "tasks"]
    asking = "import tasks, sys; print([tasks.ask.delay(f'{n}.py').get(timeout=50) for n in range(6)])"
    with running(
        [*celery, "worker", "--concurrency", "2", "--without-gossip", "--without-mingle"],
        EXAMPLES / "celery",
        log,
        env,
    ):
        until(lambda: served(f"http://127.0.0.1:{port}/metrics"), log)

        asked = subprocess.run(
            [sys.executable, "-c", asking], cwd=EXAMPLES / "celery", env=env, capture_output=True, text=True, timeout=90
        )
        shown = numbers(get(f"http://127.0.0.1:{port}/metrics"))

    assert asked.returncode == 0, asked.stderr + log.read_text()[-3000:]
    assert asked.stdout.strip() == str([f"{number}.py uses md5; stopped: loop" for number in range(6)])
    assert shown["agentguard_runs_total", "stopped_by_guard"] == 6
    assert shown["agentguard_steps_total", "reader", "tool", "read_file"] >= 6
