"""The guard as an OpenTelemetry instrumentation: what `opentelemetry-instrument` turns on."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from otel_agentguard.errors import ConfigError
from otel_agentguard.guard import remove_processor
from otel_agentguard.install import AgentGuard, install_for_instrumentation
from otel_agentguard.tracing.processor import AgentGuardSpanProcessor

_logger = logging.getLogger("otel_agentguard")


@dataclass(init=False)
class Configuration:
    """What OpenTelemetry's declarative configuration says of the guard.

    The SDK makes one of the mapping under `instrumentation/development.python.agentguard` and hands its fields to
    `instrument()`. Every key is taken here: what is wrong with one is said where settings are read, with the name
    and the way out, while the SDK would tell of a `TypeError` and then instrument without any settings.

    Attributes:
        settings: The settings by key, as in `agentguard.toml`.
    """

    settings: Mapping[str, object]

    def __init__(self, /, **settings: object) -> None:
        self.settings = settings


class AgentGuardInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Installs the guard for a program that does not do so itself.

    Seams that the program put in itself enforce, all else observes, unless `AGENTGUARD_MODE` says
    otherwise. A guard that the program installs takes precedence, before and after. Instrumenting
    never raises: bad settings are logged, and the application runs without a guard.

    Attributes:
        configuration: How the SDK reads our part of a declarative configuration.
    """

    configuration = Configuration
    _installed: AgentGuard | None = None
    _added: tuple[object, AgentGuardSpanProcessor] | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing has to be there: spans of any instrumentation are read."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        """Install the guard and add its span processor.

        Args:
            kwargs: `tracer_provider`: the provider whose spans are read; the global one by default. `settings`:
                what the declarative configuration says.
        """
        try:
            made = install_for_instrumentation(kwargs.get("settings"))
            self._installed = None if made.by_program else made
            if made.guard is None:
                return
            made.guard.meet_provider()
            self._join(kwargs.get("tracer_provider"))
        except ConfigError as exc:
            _logger.error("agentguard: not installed; the application runs without a guard: %s", exc)  # noqa: TRY400
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
