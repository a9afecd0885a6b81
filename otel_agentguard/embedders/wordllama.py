"""WordLlama: static embeddings of 32,000 tokens, 16 MB, in the process and without a download."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from otel_agentguard.errors import MissingExtraError
from otel_agentguard.text import without_particles


@contextmanager
def _own_logging() -> Iterator[None]:
    """Keep the application's logging as it is: wordllama 0.4 configures the root logger when it is imported."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


try:
    with _own_logging():
        import wordllama  # type: ignore[import-untyped]  # it ships no types
except ImportError as exc:
    raise MissingExtraError("semantic") from exc


class WordLlamaEmbedder:
    """Answers within 250 microseconds a text, from any thread; texts of any language, best in English.

    Args:
        max_chars: Characters of a text that are looked at; the cost grows with them.
    """

    def __init__(self, *, max_chars: int = 300) -> None:
        self._max_chars = max_chars
        # Its own lookup misses the tokenizer that comes inside the wheel.
        bundled = Path(wordllama.__file__).parent
        self._model = wordllama.WordLlama.load(cache_dir=bundled, disable_download=True)

    def embed(self, texts: Sequence[str]) -> list[Sequence[float] | None]:
        """Vectors of 256 numbers; None for a text without a single token."""
        return [self._vector(text[: self._max_chars]) for text in texts]

    def _vector(self, text: str) -> list[float] | None:
        # With its particles any two Japanese sentences have a likeness of 0.7, without them of 0.4.
        meaningful = without_particles(text)
        if not meaningful.strip():
            return None
        vector: list[float] = self._model.embed([meaningful], norm=True)[0].tolist()
        return vector
