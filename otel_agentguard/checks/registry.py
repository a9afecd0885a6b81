"""The checks that there are: ours by name, those of others by entry point."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from otel_agentguard.config import Settings
from otel_agentguard.errors import ConfigError
from otel_agentguard.protocols import Check, Embedder, is_check

ENTRY_POINTS = "otel_agentguard_checks"
"""Entry points of this group name a callable without arguments that returns a `Check`."""

_logger = logging.getLogger("otel_agentguard")

_OURS = {
    "loop": "otel_agentguard.checks.loop:LoopCheck",
    "dedup": "otel_agentguard.checks.dedup:DedupCheck",
    "plan": "otel_agentguard.checks.plan:PlanCheck",
    "budget": "otel_agentguard.checks.budget:BudgetCheck",
    "schema": "otel_agentguard.checks.schema:SchemaCheck",
    "memory": "otel_agentguard.checks.memory:MemoryCheck",
    "effects": "otel_agentguard.checks.effects:EffectsCheck",
}


def known_checks() -> list[str]:
    """Names of the checks that can be turned on, ours first."""
    return [*_OURS, *(name for name in _foreign() if name not in _OURS)]


def default_checks(settings: Settings, *, embedder: Embedder | None = None) -> list[Check]:
    """The checks that the settings name, in their order, and those that settings give something to check.

    A budget or a schema of messages is kept to although `checks` does not name its check. A check of somebody
    else that cannot be loaded is logged and left out.

    Args:
        settings: The settings.
        embedder: What tells the loop check the meaning of texts.

    Raises:
        ConfigError: There is no check of that name, or a setting of one cannot be used.
        MissingExtraError: What a setting needs is not installed.
    """
    foreign = _foreign()
    checks = []
    for name in dict.fromkeys((*settings.checks, *_needed(settings))):
        if name in _OURS:
            checks.append(_made(_OURS[name], settings, embedder))
        elif name in foreign:
            checks += _contained(foreign[name])
        else:
            raise ConfigError(f"no check {name!r}; known: {', '.join(known_checks())}")
    return checks


def _needed(settings: Settings) -> list[str]:
    needed = {"budget": settings.budget.limited, "schema": bool(settings.schemas)}
    return [name for name, has_work in needed.items() if has_work]


def _foreign() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _made(target: str, settings: Settings, embedder: Embedder | None) -> Check:
    module, _, name = target.partition(":")
    kind = getattr(import_module(module), name)
    made: Check
    if name == "LoopCheck":
        made = kind(embedder)
    elif hasattr(kind, "for_settings"):
        made = kind.for_settings(settings)
    else:
        made = kind()
    return made


def _contained(entry: EntryPoint) -> list[Check]:
    try:
        made = entry.load()()
        if not is_check(made):
            raise TypeError(f"{made!r} is no check; a check has a name and open(run)")  # noqa: TRY301 - one path for every failure
        return [made]
    except Exception:
        _logger.exception(
            "agentguard: check %r (%s) cannot be loaded; the guard goes on without it", entry.name, entry.value
        )
        return []
