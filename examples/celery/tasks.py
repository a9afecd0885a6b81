"""Agents as Celery tasks: the worker's processes count together, its main process serves the page.

export PROMETHEUS_MULTIPROC_DIR=$(mktemp -d) AGENT_QUEUE=$(mktemp -d)
celery --app tasks worker --concurrency 2
celery --app tasks call tasks.ask --args '["auth.py"]'
curl http://127.0.0.1:9464/metrics
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from otel_agentguard import CallBlocked, Effect, RunAborted, install, run, tool

PORT = int(os.environ.get("AGENT_METRICS_PORT", "9464"))
QUEUE = Path(os.environ["AGENT_QUEUE"])

app = Celery("tasks", broker="filesystem://", backend=f"file://{QUEUE}")
app.conf.broker_transport_options = {
    "data_folder_in": str(QUEUE),
    "data_folder_out": str(QUEUE),
    "control_folder": str(QUEUE),
}


@worker_process_init.connect
def guard_the_process(**_: object) -> None:
    """After the fork: each process has runs, threads and connections of its own."""
    install()


@worker_process_shutdown.connect
def leave(pid: int, **_: object) -> None:
    install().shutdown()
    mark_process_dead(pid)


@worker_ready.connect
def serve_metrics(**_: object) -> None:
    """In the main process, which takes no tasks."""
    shared = CollectorRegistry()
    MultiProcessCollector(shared)
    start_http_server(PORT, addr="127.0.0.1", registry=shared)


@tool(effect=Effect.READ)
def read_file(path: str) -> str:
    return f"{path} uses md5"


@app.task
def ask(path: str) -> str:
    """An agent that does not take an answer for an answer."""
    heard = "nothing"
    try:
        with run(agent="reader"):
            for _ in range(10):
                try:
                    heard = read_file(path)
                except CallBlocked as refusal:
                    heard = str(refusal.earlier_result)
    except RunAborted as stop:
        return f"{heard}; stopped: {stop.finding.kind}"
    return heard
