"""Exporters of OTLP, over gRPC or HTTP, as the `OTEL_EXPORTER_OTLP_*` variables say.

Headers, certificates, compression and timeouts are read by the exporters themselves. What is decided
here is the protocol, which a program that asks for `otlp` by name has to choose.
https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from otel_agentguard.errors import ConfigError

Signal = Literal["traces", "metrics"]

_GRPC_PORT: Final = 4317
_PROTOCOLS: Final = ("grpc", "http/protobuf")


def span_exporter(endpoint: str | None, environ: Mapping[str, str]) -> SpanExporter | None:
    """An exporter of spans.

    Args:
        endpoint: Where the collector is, such as `http://localhost:4317`; None for what the variables say.
        environ: The environment.

    Returns:
        The exporter; None where `OTEL_TRACES_EXPORTER` is `none`.

    Raises:
        ConfigError: The endpoint or the protocol cannot be used.
    """
    if _is_off("traces", environ):
        return None
    if protocol("traces", environ, endpoint) == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc(endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    return OverHttp(_path(endpoint, "traces"))


def metric_exporter(endpoint: str | None, environ: Mapping[str, str]) -> MetricExporter | None:
    """An exporter of metrics; see `span_exporter`.

    Returns:
        The exporter; None where `OTEL_METRICS_EXPORTER` is `none`.

    Raises:
        ConfigError: The endpoint or the protocol cannot be used.
    """
    if _is_off("metrics", environ):
        return None
    if protocol("metrics", environ, endpoint) == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as OverGrpc

        return OverGrpc(endpoint)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as OverHttp

    return OverHttp(_path(endpoint, "metrics"))


def protocol(signal: Signal, environ: Mapping[str, str], endpoint: str | None = None) -> str:
    """The protocol that a signal is sent over: `grpc` or `http/protobuf`.

    The variable of the signal beats the common one. Without either it is gRPC for an endpoint on port
    4317, where only gRPC is spoken, else HTTP, which is the default of the specification.

    Raises:
        ConfigError: The endpoint is no URL, or a variable names another protocol.
    """
    port = None if endpoint is None else _port(endpoint)
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        asked = environ.get(name, "").strip().lower()
        if asked and asked not in _PROTOCOLS:
            raise ConfigError(f"{name} is {asked!r}; this package speaks {' and '.join(_PROTOCOLS)}")
        if asked:
            return asked
    if endpoint is None:
        names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        asked = next((environ[name] for name in names if environ.get(name)), "")
        port = _port(asked) if asked else None
    return "grpc" if port == _GRPC_PORT else "http/protobuf"


def seconds(name: str, default_s: float, environ: Mapping[str, str]) -> float:
    """A duration of the metric SDK, which the variable gives in milliseconds.

    Raises:
        ConfigError: It is no positive number.
    """
    asked = environ.get(name, "").strip()
    if not asked:
        return default_s
    try:
        milliseconds = float(asked)
    except ValueError:
        milliseconds = 0.0
    if not milliseconds > 0:
        raise ConfigError(f"{name} is {asked!r}; give milliseconds, such as 60000")
    return milliseconds / 1000


def _port(endpoint: str) -> int | None:
    parts = urlsplit(endpoint)
    try:
        port = parts.port
    except ValueError as exc:
        raise ConfigError(f"the OTLP endpoint {endpoint!r} has no valid port: {exc}") from exc
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"the OTLP endpoint {endpoint!r} is no URL; write it as http://localhost:4317")
    return port


def _path(endpoint: str | None, signal: Signal) -> str | None:
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"


def _is_off(signal: Signal, environ: Mapping[str, str]) -> bool:
    return environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() == "none"
