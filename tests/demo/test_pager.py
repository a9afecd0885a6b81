from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from otel_agentguard.demo.pager import lines_of, pager
from otel_agentguard.demo.ready import wait_for

ALERT = {
    "status": "firing",
    "labels": {"alertname": "AgentLoopRateHigh", "severity": "warning", "agent": "coder", "job": "agents"},
    "annotations": {"summary": "coder is looping", "runbook_url": "runbook.md#agentloopratehigh"},
}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def port(said: list[str]) -> Iterator[int]:
    with pager(0, "127.0.0.1", said.append) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def posted(port: int, body: bytes) -> int:
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("POST", "/", body)
        return connection.getresponse().status


def test_an_alert_is_one_line_with_all_that_is_needed_at_night() -> None:
    assert lines_of({"alerts": [ALERT]}) == [
        "FIRING warning AgentLoopRateHigh [agent=coder job=agents] coder is looping (runbook.md#agentloopratehigh)"
    ]


def test_a_notification_is_printed(port: int, said: list[str]) -> None:
    assert posted(port, json.dumps({"alerts": [ALERT, ALERT | {"status": "resolved"}]}).encode()) == 200
    assert [line.split()[0] for line in said] == ["FIRING", "RESOLVED"]


@pytest.mark.parametrize("body", [b"", b"nothing", b"[]", b'{"alerts": [1]}', b'{"alerts": null}'])
def test_what_is_no_notification_is_refused_and_the_pager_goes_on(port: int, said: list[str], body: bytes) -> None:
    assert posted(port, body) == 400
    assert posted(port, json.dumps({"alerts": [ALERT]}).encode()) == 200
    assert len(said) == 1


def test_the_pager_answers_whether_it_is_well(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
        assert answer.status == 200
    assert wait_for(f"http://127.0.0.1:{port}/", timeout_s=5)


def test_waiting_for_a_server_that_does_not_come_ends() -> None:
    assert not wait_for("http://127.0.0.1:9/", timeout_s=0.3)
