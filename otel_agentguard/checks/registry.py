"""The checks that there are: ours by name, those of others by entry point."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from otel_agentguard.config import Settings
from otel_agentguard.errors import ConfigError
from otel_agentguard.protocols import Check

ENTRY_POINTS = "otel_agentguard_checks"
"""Entry points of this group name a callable without arguments that returns a `Check`."""

_logger = logging.getLogger("otel_agentguard")

_OURS = {
    "loop": "otel_agentguard.checks.loop:LoopCheck",
    "plan": "otel_agentguard.checks.plan:PlanCheck",
}


def known_checks() -> list[str]:
    """Names of the checks that can be turned on, ours first."""
    return [*_OURS, *(name for name in _foreign() if name not in _OURS)]


def default_checks(settings: Settings) -> list[Check]:
    """The checks that the settings name, in their order.

    A check of somebody else that cannot be loaded is logged and left out.

    Raises:
        ConfigError: There is no check of that name.
    """
    foreign = _foreign()
    checks = []
    for name in dict.fromkeys(settings.checks):
        if name in _OURS:
            checks.append(_made(_OURS[name]))
        elif name in foreign:
            checks += _contained(foreign[name])
        else:
            raise ConfigError(f"no check {name!r}; known: {', '.join(known_checks())}")
    return checks


def _foreign() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _made(target: str) -> Check:
    module, _, name = target.partition(":")
    check: Check = getattr(import_module(module), name)()
    return check


def _contained(entry: EntryPoint) -> list[Check]:
    try:
        return [entry.load()()]
    except Exception:
        _logger.exception(
            "agentguard: check %r (%s) cannot be loaded; the guard goes on without it", entry.name, entry.value
        )
        return []
