from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import which

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, Counter, Gauge

from otel_agentguard.errors import ConfigError
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.protocols import RunInfo
from otel_agentguard.sinks.exposition import MetricsServer
from otel_agentguard.sinks.prometheus import PrometheusSink

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


Get = Callable[..., tuple[Mapping[str, str], str]]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def server(sink: PrometheusSink) -> Iterator[MetricsServer]:
    with MetricsServer(0, sink.registry) as server:
        yield server


def test_a_running_server_shows_the_registry(server: MetricsServer, sink: PrometheusSink, get: Get) -> None:
    sink.unguarded("grep")

    headers, page = get(server.url)

    assert headers["Content-Type"].startswith("text/plain")
    assert 'agentguard_unguarded_calls_total{tool="grep"} 1.0\n' in page


def test_it_listens_on_loopback_unless_told_otherwise(server: MetricsServer) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}/metrics"


def test_a_client_that_asks_for_openmetrics_sees_exemplars(
    server: MetricsServer, sink: PrometheusSink, run: RunInfo, get: Get
) -> None:
    finding = Finding(
        check="loop",
        kind=Kind.LOOP,
        severity=Severity.WARN,
        step=3,
        signature=b"s",
        message="",
        explanation="",
        action=Action.HINT,
    )
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("test").start_as_current_span("span") as span:
        sink.found(run, finding, "enforce")
        trace_id = f"{span.get_span_context().trace_id:032x}"

    headers, page = get(server.url, accept=OPENMETRICS)
    _, plain = get(server.url)

    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert f'# {{span_id="{span.get_span_context().span_id:016x}",trace_id="{trace_id}"}} 1.0' in page
    assert page.endswith("# EOF\n")
    assert trace_id not in plain


def test_a_page_does_not_show_when_each_series_was_made(server: MetricsServer, get: Get) -> None:
    _, plain = get(server.url)
    _, open_metrics = get(server.url, accept=OPENMETRICS)

    assert "_created" not in plain
    assert "_created" not in open_metrics


def test_a_gauge_of_somebody_else_may_be_called_created(get: Get) -> None:
    registry = CollectorRegistry()
    Gauge("jobs_created", "Jobs.", registry=registry).set(3)
    Counter("jobs_done", "Jobs.", registry=registry)

    with MetricsServer(0, registry) as server:
        _, page = get(server.url)

    assert "\njobs_created 3.0\n" in page
    assert "jobs_done_created" not in page


def test_a_request_can_name_the_samples_it_wants(server: MetricsServer, get: Get) -> None:
    _, page = get(f"{server.url}?name[]=agentguard_active_runs&name[]=agentguard_run_steps_count")

    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert samples == ["agentguard_active_runs 0.0", "agentguard_run_steps_count 0.0"]


def test_a_page_can_be_compressed(server: MetricsServer, get: Get) -> None:
    headers, page = get(server.url, accept_encoding="gzip")

    assert headers["Content-Encoding"] == "gzip"
    assert "agentguard_active_runs 0.0" in page


def test_a_stopped_server_frees_its_port_and_its_thread(sink: PrometheusSink) -> None:
    before = set(threading.enumerate())
    server = MetricsServer(0, sink.registry)
    server.start()
    port = server.port
    started = set(threading.enumerate()) - before

    server.stop()
    server.stop()

    assert not listens(port)
    assert started
    assert not any(thread.is_alive() for thread in started)
    with MetricsServer(port, sink.registry) as again:
        assert listens(again.port)


def test_a_server_can_be_started_again(sink: PrometheusSink, get: Get) -> None:
    server = MetricsServer(0, sink.registry)
    server.start()
    server.stop()

    server.start()

    assert get(server.url)[1]
    server.stop()


def test_starting_twice_is_once(server: MetricsServer) -> None:
    port = server.port

    server.start()

    assert server.port == port


def test_a_taken_port_says_so_and_what_to_do(server: MetricsServer, sink: PrometheusSink, get: Get) -> None:
    second = MetricsServer(server.port, sink.registry)

    with pytest.raises(ConfigError, match=rf"port {server.port} is taken; give another metrics_port"):
        second.start()

    assert get(server.url)[1]
    second.stop()


@pytest.mark.parametrize(
    ("port", "addr", "message"),
    [
        (70000, "127.0.0.1", "port 70000 does not exist; ports go from 0 to 65535"),
        (-1, "127.0.0.1", "port -1 does not exist"),
        (0, "192.0.2.1", r"cannot serve metrics on 192\.0\.2\.1:0"),
        (0, "no such host", "cannot serve metrics on no such host:0"),
    ],
)
def test_a_place_that_cannot_be_listened_on_is_named(sink: PrometheusSink, port: int, addr: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MetricsServer(port, sink.registry, addr).start()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    if which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_a_certificate_makes_it_https(sink: PrometheusSink, certificate: tuple[str, str], get: Get) -> None:
    cert, key = certificate
    context = ssl.create_default_context(cafile=cert)

    with MetricsServer(0, sink.registry, certfile=cert, keyfile=key) as server:
        url = server.url
        _, page = get(url, context=context)

    assert url.startswith("https://")
    assert "agentguard_active_runs 0.0" in page


def test_a_client_needs_a_certificate_where_one_is_asked_for(
    sink: PrometheusSink, certificate: tuple[str, str], get: Get
) -> None:
    cert, key = certificate
    stranger = ssl.create_default_context(cafile=cert)
    friend = ssl.create_default_context(cafile=cert)
    friend.load_cert_chain(cert, key)

    with MetricsServer(
        0, sink.registry, certfile=cert, keyfile=key, client_cafile=cert, client_auth_required=True
    ) as server:
        _, page = get(server.url, context=friend)
        with pytest.raises(OSError, match=r"(?i)certificate|EOF|reset"):
            get(server.url, context=stranger)

    assert "agentguard_active_runs 0.0" in page


def test_half_a_pair_of_tls_files_is_refused_instead_of_serving_plain_text(sink: PrometheusSink) -> None:
    with pytest.raises(ConfigError, match="keyfile is missing"):
        MetricsServer(0, sink.registry, certfile="cert.pem").start()
    with pytest.raises(ConfigError, match="certfile is missing"):
        MetricsServer(0, sink.registry, keyfile="key.pem").start()


def test_client_certificates_without_https_are_refused(sink: PrometheusSink) -> None:
    with pytest.raises(ConfigError, match="give certfile and keyfile"):
        MetricsServer(0, sink.registry, client_auth_required=True).start()


def test_a_certificate_that_cannot_be_read_is_named(sink: PrometheusSink, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("not a certificate")

    with pytest.raises(ConfigError, match=r"bad\.pem"):
        MetricsServer(0, sink.registry, certfile=str(bad), keyfile=str(bad)).start()


def test_a_client_that_never_shakes_hands_cannot_hold_up_the_end(
    sink: PrometheusSink, certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_agentguard.sinks.exposition._STOP_TIMEOUT_S", 0.2)
    server = MetricsServer(0, sink.registry, certfile=certificate[0], keyfile=certificate[1])
    server.start()
    port = server.port

    with socket.create_connection(("127.0.0.1", port)):
        server.stop()

    assert not listens(port)
