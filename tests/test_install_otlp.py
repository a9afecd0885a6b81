"""`install(otlp=...)` against a collector: both protocols, and the variables that every exporter knows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from otlp_receiver import OtlpReceiver, receiving

from otel_agentguard.errors import ConfigError
from otel_agentguard.sinks.otlp import metric_exporter, protocol, seconds, span_exporter

PROGRAM = """
import sys
from otel_agentguard import install, run, tool

@tool
def look(path):
    return "nothing"

otlp = sys.argv[1]
with install(otlp=True if otlp == "True" else otlp):
    with run("ticket-42", agent="coder"):
        look("auth.py")
"""


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with receiving() as receiver:
        yield receiver


def played(otlp: str, **variables: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AGENTGUARD_"))}
    subprocess.run([sys.executable, "-c", PROGRAM, otlp], env=inherited | variables, check=True, timeout=60)


def shown(receiver: OtlpReceiver) -> tuple[set[str], set[str]]:
    return {span.name for span in receiver.spans}, {metric.name for metric in receiver.metrics}


def test_an_endpoint_takes_spans_and_metrics_over_http(receiver: OtlpReceiver) -> None:
    played(receiver.http_url)

    spans, metrics = shown(receiver)
    assert "execute_tool look" in spans
    assert "agentguard_steps" in metrics


def test_an_endpoint_takes_spans_and_metrics_over_grpc_when_the_protocol_says_so(receiver: OtlpReceiver) -> None:
    played(receiver.grpc_url, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")

    spans, metrics = shown(receiver)
    assert "execute_tool look" in spans
    assert "agentguard_steps" in metrics


@pytest.mark.parametrize("spoken", ["grpc", "http/protobuf"])
def test_true_takes_everything_from_the_variables(receiver: OtlpReceiver, spoken: str) -> None:
    endpoint = receiver.grpc_url if spoken == "grpc" else receiver.http_url

    played(
        "True",
        OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
        OTEL_EXPORTER_OTLP_PROTOCOL=spoken,
        OTEL_EXPORTER_OTLP_HEADERS="x-tenant=agents",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
    )

    spans, metrics = shown(receiver)
    assert "execute_tool look" in spans
    assert "agentguard_steps" in metrics
    assert receiver.headers["x-tenant"] == "agents"


def test_each_signal_may_have_a_protocol_and_an_endpoint_of_its_own(receiver: OtlpReceiver) -> None:
    played(
        "True",
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=receiver.grpc_url,
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{receiver.http_url}/v1/metrics",
        OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf",
    )

    spans, metrics = shown(receiver)
    assert "execute_tool look" in spans
    assert "agentguard_steps" in metrics


def test_a_signal_that_is_turned_off_is_not_sent(receiver: OtlpReceiver) -> None:
    played(receiver.http_url, OTEL_METRICS_EXPORTER="none")

    spans, metrics = shown(receiver)
    assert "execute_tool look" in spans
    assert metrics == set()


def test_metrics_are_sent_as_often_as_the_variable_says(receiver: OtlpReceiver) -> None:
    program = PROGRAM + "    input()\n"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AGENTGUARD_"))}
    with subprocess.Popen(
        [sys.executable, "-c", program, receiver.http_url],
        env=inherited | {"OTEL_METRIC_EXPORT_INTERVAL": "100"},
        stdin=subprocess.PIPE,
    ) as running:
        receiver.wait_for(lambda arrived: sum(metric.name == "agentguard_steps" for metric in arrived.metrics) > 2)
        running.communicate(b"\n", timeout=30)


def test_port_4317_is_grpc_and_any_other_http_unless_the_variables_say_otherwise() -> None:
    assert protocol("traces", {}, "http://collector:4317") == "grpc"
    assert protocol("traces", {}, "http://collector:4318") == "http/protobuf"
    assert protocol("traces", {}) == "http/protobuf"
    assert protocol("metrics", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}) == "grpc"
    assert protocol("traces", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://collector:4318") == "grpc"
    assert protocol("traces", {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"}) == "http/protobuf"


@pytest.mark.parametrize("endpoint", ["localhost:4317", "collector", "ftp://collector", "http://", "http://c:port"])
def test_an_endpoint_that_is_no_url_is_named(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=endpoint):
        span_exporter(endpoint, {})


def test_a_protocol_that_nobody_here_speaks_is_named() -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is 'http/json'"):
        metric_exporter(None, {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"})


@pytest.mark.parametrize("value", ["soon", "0", "-5", "nan"])
def test_an_interval_that_is_no_positive_number_is_named(value: str) -> None:
    with pytest.raises(ConfigError, match="OTEL_METRIC_EXPORT_INTERVAL"):
        seconds("OTEL_METRIC_EXPORT_INTERVAL", 60.0, {"OTEL_METRIC_EXPORT_INTERVAL": value})
