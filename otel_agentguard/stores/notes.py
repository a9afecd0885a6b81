"""Opens the notes of one session for the next, at the URL of the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import cast
from urllib.parse import urlsplit

from otel_agentguard.errors import ConfigError
from otel_agentguard.notes import DEFAULT_RETENTION, Retention
from otel_agentguard.protocols import Store

_MODULES = {
    "memory": "notes_memory",
    "sqlite": "notes_sqlite",
    "postgresql": "notes_postgres",
    "postgres": "notes_postgres",
    "redis": "notes_redis",
    "rediss": "notes_redis",
}


def open_notes(
    url: str,
    *,
    wait_s: float = 1.0,
    now_s: Callable[[], float] = time.time,
    retention: Retention = DEFAULT_RETENTION,
) -> Store:
    """Open the notes at a URL; the driver is imported here and not before.

    Args:
        url: `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://...` or `redis://...`;
            that of the ledger will do.
        wait_s: How long the store may take to answer, seconds, where the URL does not say.
        now_s: Wall clock, seconds since the epoch.
        retention: How long notes are kept, and how many.

    Raises:
        ConfigError: There is no such store, or the URL lacks something.
        MissingExtraError: The driver is not installed.
        StoreError: The store cannot be reached.
    """
    module = import_module(f"otel_agentguard.stores.{check_url(url)}")
    return cast("Store", module.open_notes(url, wait_s=wait_s, now_s=now_s, retention=retention))


def check_url(url: str) -> str:
    """The module that opens a URL.

    Raises:
        ConfigError: There is no such store.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _MODULES:
        known = ", ".join(sorted(set(_MODULES) - {"postgres", "rediss"}))
        raise ConfigError(f"no store for {(scheme or url)!r}; known: {known}")
    return _MODULES[scheme]
