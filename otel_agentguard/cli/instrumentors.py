"""The OpenTelemetry instrumentations that are installed beside ours."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts

ENTRY_POINTS = "opentelemetry_instrumentor"
OURS = "agentguard"

_logger = logging.getLogger("otel_agentguard")


@dataclass(frozen=True, slots=True)
class Instrumentor:
    """One instrumentation that is installed.

    Attributes:
        name: Name of its entry point.
        entry: The entry point.
        state: Its distribution and version, and why it is left alone where it is.
        active: Whether `run` turns it on.
    """

    name: str
    entry: EntryPoint
    state: str
    active: bool

    def requires(self, distribution: str) -> bool:
        """Whether its distribution names another one as a requirement."""
        needed = self.entry.dist.requires if self.entry.dist is not None else None
        return any(distribution_of(text) == distribution for text in needed or ())


def find_instrumentors(environ: Mapping[str, str]) -> list[Instrumentor]:
    """What is installed, by name, without ours; nothing of it is imported.

    Args:
        environ: `OTEL_PYTHON_DISABLED_INSTRUMENTATIONS` names what stays off.
    """
    off = {name.strip() for name in environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
    found = [_looked_at(entry, off) for entry in entry_points(group=ENTRY_POINTS) if entry.name != OURS]
    return sorted(found, key=lambda one: one.name)


def turn_on(instrumentors: Iterable[Instrumentor]) -> None:
    """Instrument; what fails is logged and left out, because the application comes first."""
    for one in instrumentors:
        if not one.active:
            continue
        try:
            one.entry.load()().instrument(raise_exception_on_conflict=False)
        except Exception:
            _logger.warning("agentguard: instrumentation %s failed and is left out", one.name, exc_info=True)


def distribution_of(requirement: str) -> str:
    """The normalised name of the distribution that a requirement (`Requires-Dist`) is about."""
    name = re.match(r"[A-Za-z0-9._-]*", requirement)
    return re.sub(r"[-_.]+", "-", name[0] if name else "").lower()


def _looked_at(entry: EntryPoint, off: set[str]) -> Instrumentor:
    where = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
    if off & {entry.name, "*"}:
        return Instrumentor(entry.name, entry, f"{where}, off by OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", False)
    conflict = get_dist_dependency_conflicts(entry.dist) if entry.dist is not None else None
    if conflict is not None:
        return Instrumentor(entry.name, entry, f"{where}, left alone: {conflict}", False)
    return Instrumentor(entry.name, entry, where, True)
