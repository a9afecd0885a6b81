"""Where the guard keeps what must outlive a process; one URL opens it.

`memory://` dies with the process, `sqlite:///agentguard.db` serves all processes of one machine,
`postgresql://` and `redis://` serve several machines.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast
from urllib.parse import urlsplit

from otel_agentguard.effects.ledger import Ledger
from otel_agentguard.errors import ConfigError

_MODULES = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
}


def open_ledger(url: str) -> Ledger:
    """Open the ledger at a URL; the driver is imported here and not before.

    Args:
        url: `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://...` or `redis://...`.

    Raises:
        ConfigError: There is no such store, or the URL lacks something.
        MissingExtraError: The driver is not installed.
        StoreError: The store cannot be reached.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _MODULES:
        known = ", ".join(sorted(set(_MODULES) - {"postgres", "rediss"}))
        raise ConfigError(f"no store for {(scheme or url)!r}; known: {known}")
    module = import_module(f"{__name__}.{_MODULES[scheme]}")
    return cast("Ledger", module.open_ledger(url))
