"""What tells the meaning of texts: a small model in the process, a function of yours, or an endpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from otel_agentguard.embedders.callables import CallableEmbedder, InlineEmbedder
from otel_agentguard.errors import ConfigError
from otel_agentguard.outofband import Breaker, Failed, WorksLater
from otel_agentguard.protocols import Embedder

__all__ = ["CallableEmbedder", "ContainedEmbedder", "InlineEmbedder", "open_embedder"]

KNOWN = ("wordllama",)
"""Embedders that need no argument, by the name that `install(embedder=...)` takes."""

_logger = logging.getLogger("otel_agentguard")


def open_embedder(given: object) -> ContainedEmbedder | None:
    """The embedder that `install(embedder=...)` was given, such that it cannot break what uses it.

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

        return ContainedEmbedder(WordLlamaEmbedder())
    if callable(getattr(given, "embed", None)) and not isinstance(given, type):
        embedder: Embedder = given  # type: ignore[assignment]  # the protocol has this one method
        return ContainedEmbedder(embedder)
    if callable(given) and not isinstance(given, type):
        return ContainedEmbedder(CallableEmbedder(given))
    raise ConfigError(f"embedder is {given!r}; give {', '.join(map(repr, KNOWN))}, a function or an Embedder")


class ContainedEmbedder:
    """An embedder whose failures are counted and answered with "not known"; after some in a row it has a rest.

    It has `prepare` where the embedder has.

    Args:
        inner: The embedder.
        breaker: Gives it its rest.

    Attributes:
        inner: The embedder.
    """

    def __init__(self, inner: Embedder, *, breaker: Breaker | None = None) -> None:
        self.inner = inner
        self._breaker = breaker or Breaker()
        self._failed: Failed = _logged
        prepare: Callable[[Sequence[str]], None] | None = getattr(inner, "prepare", None)
        if prepare is not None:
            self.prepare = prepare

    @property
    def redact(self) -> Callable[[str], str] | None:
        """What is applied to texts before they are handed over; only where that may be out of the process."""
        return self.inner.redact if isinstance(self.inner, WorksLater) else None

    @redact.setter
    def redact(self, redact: Callable[[str], str] | None) -> None:
        if isinstance(self.inner, WorksLater):
            self.inner.redact = redact

    def tell_failures_to(self, failed: Failed) -> None:
        """Have failures counted."""
        self._failed = failed
        if isinstance(self.inner, WorksLater):
            self.inner.tell_failures_to(failed)

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float] | None]:
        """See `Embedder`."""
        if not self._breaker.allows():
            return [None] * len(texts)
        try:
            vectors = self.inner.embed(texts)
        except Exception as exc:
            self._breaker.failed()
            self._failed("embedder", exc)
            return [None] * len(texts)
        self._breaker.succeeded()
        return vectors

    def close(self) -> None:
        """Look for nothing more."""
        if isinstance(self.inner, WorksLater):
            self.inner.close()


def _logged(where: str, exc: BaseException) -> None:
    _logger.error("agentguard: %s failed; texts are compared by their words", where, exc_info=exc)
