"""A tracer provider for programs that set none, without getting in the way of those that do.

Spans of instrumentations reach the guard only through a provider of the SDK. OpenTelemetry lets a
provider be set once, so one that is set before the program runs would shut out the program's own. The
first span that would be lost is the last moment to set one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from wrapt import wrap_function_wrapper

from otel_agentguard.sinks.otlp import protocol

_logger = logging.getLogger("otel_agentguard")

_EXPORTERS = "opentelemetry_traces_exporter"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_START = ("start_span", "start_as_current_span")


@contextmanager
def late_provider(environ: Mapping[str, str], met: Callable[[], None]) -> Iterator[None]:
    """Within it, the first span of a program that has set no provider sets one.

    Args:
        environ: `OTEL_TRACES_EXPORTER` and the OTLP variables name where spans go; nowhere by default.
        met: Called when there is a provider, whoever has set it: it is then given our processor.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        met()
        yield
        return
    late = _Late(environ, met)
    setter = trace.set_tracer_provider
    starts = {name: vars(trace.ProxyTracer)[name] for name in _START}
    wrap_function_wrapper(trace, "set_tracer_provider", late.after_set)
    for name in _START:
        wrap_function_wrapper(trace.ProxyTracer, name, late.before_start)
    try:
        yield
    finally:
        trace.set_tracer_provider = setter
        for name, start in starts.items():
            setattr(trace.ProxyTracer, name, start)


class _Late:
    def __init__(self, environ: Mapping[str, str], met: Callable[[], None]) -> None:
        self._environ = environ
        self._met = met
        self._lock = threading.Lock()
        self._settled = False

    def after_set(
        self, wrapped: Callable[..., object], _: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """The program sets its own provider."""
        answer = wrapped(*args, **kwargs)
        self._settle()
        return answer

    def before_start(
        self, wrapped: Callable[..., object], _: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """A span is about to be made by a tracer that was got before there was a provider."""
        if not self._settled:
            self._settle()
        return wrapped(*args, **kwargs)

    def _settle(self) -> None:
        with self._lock:
            if self._settled:
                return
            self._settled = True
            try:
                if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
                    trace.set_tracer_provider.__wrapped__(_provider(self._environ))  # type: ignore[attr-defined]
                self._met()
            except Exception:
                _logger.exception("agentguard: no tracer provider could be set; spans of others are not seen")


def _provider(environ: Mapping[str, str]) -> TracerProvider:
    provider = TracerProvider()
    for name in _exporter_names(environ):
        entry = next(iter(entry_points(group=_EXPORTERS, name=name)), None)
        if entry is None:
            _logger.warning("agentguard: OTEL_TRACES_EXPORTER names %s, and there is no such exporter", name)
            continue
        exporter: SpanExporter = entry.load()()
        provider.add_span_processor(
            SimpleSpanProcessor(exporter) if name == "console" else BatchSpanProcessor(exporter)
        )
    return provider


def _exporter_names(environ: Mapping[str, str]) -> list[str]:
    asked = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if not asked and any(environ.get(name) for name in _ENDPOINTS):
        asked = "otlp"
    names = [name.strip() for name in asked.split(",") if name.strip() and name.strip() != "none"]
    return [_otlp(environ) if name == "otlp" else name for name in names]


def _otlp(environ: Mapping[str, str]) -> str:
    return "otlp_proto_grpc" if protocol("traces", environ) == "grpc" else "otlp_proto_http"
