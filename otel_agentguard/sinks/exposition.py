"""Serves a registry over HTTP: the page that Prometheus scrapes."""

from __future__ import annotations

import errno
import os
import ssl
import threading
from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Self

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from otel_agentguard.errors import ConfigError
from otel_agentguard.forks import new_lock

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

_STOP_TIMEOUT_S = 5.0


class MetricsServer:
    """An HTTP server for one registry, in a daemon thread.

    A client that asks for OpenMetrics gets it, with exemplars; any other gets the text format. In
    multiprocess mode (`PROMETHEUS_MULTIPROC_DIR` is set) the page shows the sum of all processes.

    Args:
        port: Port to listen on; 0 for any free one, then told by `port`.
        registry: What is served.
        addr: Address to listen on.
        certfile: Certificate chain for HTTPS, PEM; needs `keyfile`.
        keyfile: Its private key, PEM.
        client_cafile: Certificates that clients must be signed by, with `client_auth_required`.
        client_capath: Folder of such certificates.
        client_auth_required: Whether a client must show a certificate.
    """

    def __init__(
        self,
        port: int,
        registry: CollectorRegistry,
        addr: str = "127.0.0.1",
        *,
        certfile: str | None = None,
        keyfile: str | None = None,
        client_cafile: str | None = None,
        client_capath: str | None = None,
        client_auth_required: bool = False,
    ) -> None:
        self._port = port
        self._registry = registry
        self._addr = addr
        self._certfile = certfile
        self._keyfile = keyfile
        self._client_cafile = client_cafile
        self._client_capath = client_capath
        self._client_auth_required = client_auth_required
        self._running: tuple[WSGIServer, threading.Thread] | None = None
        self._lock = new_lock()

    @property
    def port(self) -> int:
        """The port that it listens on, or would."""
        running = self._running
        return running[0].server_port if running is not None else self._port

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self._addr}]" if ":" in self._addr else self._addr
        return f"{'https' if self._certfile else 'http'}://{host}:{self.port}/metrics"

    def start(self) -> None:
        """Listen; does nothing while it already does.

        Raises:
            ConfigError: The port is taken or not allowed, the address is not one of this machine, or
                the certificate cannot be used.
        """
        if not 0 <= self._port <= 65535:
            raise ConfigError(f"port {self._port} does not exist; ports go from 0 to 65535")
        self._check_tls()
        with self._lock:
            if self._running is not None:
                return
            try:
                self._running = start_http_server(
                    self._port,
                    addr=self._addr,
                    registry=_page(self._registry),
                    certfile=self._certfile,
                    keyfile=self._keyfile,
                    client_cafile=self._client_cafile,
                    client_capath=self._client_capath,
                    client_auth_required=self._client_auth_required,
                )
            except OSError as exc:
                raise ConfigError(self._why(exc)) from exc

    def stop(self) -> None:
        """Free the port and end the thread; may wait a second, and stopping twice is once."""
        with self._lock:
            running, self._running = self._running, None
        if running is None:
            return
        server, thread = running
        # `shutdown` waits for the loop without a limit, and a client that never finishes its TLS
        # handshake holds the loop: nobody's exit may hang on that.
        threading.Thread(target=server.shutdown, name="agentguard-metrics-stop", daemon=True).start()
        thread.join(_STOP_TIMEOUT_S)
        server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _check_tls(self) -> None:
        """Find faults before the port is bound: prometheus_client serves plain HTTP if half of the pair is missing."""
        if bool(self._certfile) != bool(self._keyfile):
            missing = "keyfile" if self._certfile else "certfile"
            raise ConfigError(f"HTTPS needs a certificate and its key: {missing} is missing")
        if self._certfile is None:
            if self._client_cafile or self._client_capath or self._client_auth_required:
                raise ConfigError("client certificates need HTTPS: give certfile and keyfile")
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certfile, self._keyfile)
            if self._client_cafile or self._client_capath:
                context.load_verify_locations(self._client_cafile, self._client_capath)
        except OSError as exc:
            files = ", ".join(
                repr(file) for file in (self._certfile, self._keyfile, self._client_cafile, self._client_capath) if file
            )
            raise ConfigError(f"the TLS files cannot be used ({files}): {exc}") from exc

    def _why(self, exc: OSError) -> str:
        if exc.errno == errno.EADDRINUSE:
            return f"port {self._port} is taken; give another metrics_port, or 0 for any free one"
        if exc.errno == errno.EACCES:
            return f"port {self._port} needs privileges; give a metrics_port above 1023"
        return f"cannot serve metrics on {self._addr}:{self._port}: {exc}"


class _Page:
    """What one request sees: no `_created` samples, which would double the series of a scrape.

    Args:
        source: Where the metrics come from.
        names: The samples to show, which the `name[]` parameter of a request gives; None for all.
    """

    def __init__(self, source: Collector, names: frozenset[str] | None = None) -> None:
        self._source = source
        self._names = names

    def collect(self) -> Iterable[Metric]:
        for metric in self._source.collect():
            shown = [sample for sample in metric.samples if self._shows(metric, sample.name)]
            if shown or self._names is None:
                copied = copy(metric)
                copied.samples = shown
                yield copied

    def restricted_registry(self, names: Iterable[str]) -> _Page:
        return _Page(self._source, frozenset(names))

    def _shows(self, metric: Metric, name: str) -> bool:
        if self._names is not None:
            return name in self._names
        return metric.type == "gauge" or name != f"{metric.name}_created"


def _page(registry: CollectorRegistry) -> _Page:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return _Page(registry)
    shared = CollectorRegistry()
    MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
    return _Page(shared)
