"""An agent behind gunicorn: several processes, one page of metrics.

export PROMETHEUS_MULTIPROC_DIR=$(mktemp -d)
gunicorn --config gunicorn.conf.py app:application
curl 'http://127.0.0.1:8000/ask?path=auth.py'
curl http://127.0.0.1:8000/metrics
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector

from otel_agentguard import CallBlocked, Effect, RunAborted, install, run, tool

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# gunicorn imports this module in each worker, so each worker has a guard of its own.
install()


@tool(effect=Effect.READ)
def read_file(path: str) -> str:
    return f"{path} uses md5"


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


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/metrics":
        shared = CollectorRegistry()
        MultiProcessCollector(shared)
        return make_wsgi_app(shared)(environ, start_response)
    (path, *_) = parse_qs(environ["QUERY_STRING"]).get("path", ["auth.py"])
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [ask(path).encode()]
