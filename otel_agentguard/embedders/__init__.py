"""What tells the meaning of texts: a small model in the process, a function of yours, or an endpoint."""

from __future__ import annotations

from otel_agentguard.embedders.callables import CallableEmbedder, InlineEmbedder
from otel_agentguard.errors import ConfigError
from otel_agentguard.protocols import Embedder

__all__ = ["CallableEmbedder", "InlineEmbedder", "open_embedder"]

KNOWN = ("wordllama",)
"""Embedders that need no argument, by the name that `install(embedder=...)` takes."""


def open_embedder(given: object) -> Embedder | None:
    """The embedder that `install(embedder=...)` was given.

    Args:
        given: `"wordllama"`; an `Embedder`; a function of a list of texts, which is called out of band;
            or None.

    Raises:
        ConfigError: It is none of these.
        MissingExtraError: The library of a named one is not installed.
    """
    if given is None:
        return None
    if given == "wordllama":
        from otel_agentguard.embedders.wordllama import WordLlamaEmbedder

        return WordLlamaEmbedder()
    if callable(getattr(given, "embed", None)):
        embedder: Embedder = given  # type: ignore[assignment]  # the protocol has this one method
        return embedder
    if callable(given):
        return CallableEmbedder(given)
    raise ConfigError(f"embedder is {given!r}; give {', '.join(map(repr, KNOWN))}, a function or an Embedder")
