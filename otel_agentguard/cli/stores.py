"""Which store a command looks into."""

from __future__ import annotations

from otel_agentguard.errors import ConfigError


def existing(url: str) -> str:
    """The URL of a store, refused where it names a SQLite file that is not there.

    To open it would make an empty one, and whoever mistyped the name would read that nothing is recorded.

    Raises:
        ConfigError: There is no such file.
    """
    if url.startswith("sqlite:"):
        from otel_agentguard.stores.sqlite import path_of

        path = path_of(url)
        if not path.exists():
            raise ConfigError(f"there is no store {str(path)!r} ({url}); a run makes it: install(store=...)")
    return url
