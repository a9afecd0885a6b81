"""The guard as an OpenTelemetry instrumentation: what `opentelemetry-instrument` turns on."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from otel_agentguard.guard import remove_processor
from otel_agentguard.install import AgentGuard, install_for_instrumentation
from otel_agentguard.tracing.processor import AgentGuardSpanProcessor

_logger = logging.getLogger("otel_agentguard")


class AgentGuardInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Installs the guard for a program that does not do so itself.

    Seams that the program put in itself enforce, all else observes, unless `AGENTGUARD_MODE` says
    otherwise. A guard that the program installs takes precedence, before and after. Instrumenting
    never raises: bad settings are logged, and the application runs without a guard.
    """

    _installed: AgentGuard | None = None
    _added: tuple[object, AgentGuardSpanProcessor] | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing has to be there: spans of any instrumentation are read."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        """Install the guard and add its span processor.

        Args:
            kwargs: `tracer_provider`: the provider whose spans are read; the global one by default.
        """
        try:
            made = install_for_instrumentation()
            if made.guard is None:
                return
            self._installed = None if made.by_program else made
            made.guard.meet_provider()
            self._join(kwargs.get("tracer_provider"))
        except Exception:
            _logger.exception("agentguard: not installed; the application runs without a guard")

    def _uninstrument(self, **kwargs: Any) -> None:
        """Take back what was put in; a guard that the program installed stays."""
        made, self._installed = self._installed, None
        added, self._added = self._added, None
        if added is not None:
            remove_processor(*added)
        if made is not None:
            made.shutdown()

    def _join(self, provider: Any) -> None:
        if provider is trace.get_tracer_provider() or not hasattr(provider, "add_span_processor"):
            return
        processor = AgentGuardSpanProcessor()
        provider.add_span_processor(processor)
        self._added = provider, processor
