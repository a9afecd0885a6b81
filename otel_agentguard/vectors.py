"""Vectors of texts that take longer than anybody may wait: answered from memory, found out of band."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

from otel_agentguard.forks import in_child, new_lock
from otel_agentguard.outofband import Breaker, Failed, Worker

_MAX_KEPT = 1024
_MAX_PENDING = 256

Redact = Callable[[str], str]


class LateVectors:
    """A `LateEmbedder` around a function that may take its time.

    The function is called from one thread of the guard, with texts that were asked for or announced. Until it
    has answered, the vector of a text is not known. The latest 1,024 vectors are kept.

    Args:
        function: Makes one vector for each of a list of texts; may wait and may raise.
        max_chars: Characters of a text that are looked at.
        batch: Most texts of one call.
        breaker: Leaves the function alone after failures.
    """

    def __init__(
        self,
        function: Callable[[list[str]], Sequence[Sequence[float]]],
        *,
        max_chars: int = 2000,
        batch: int = 64,
        breaker: Breaker | None = None,
    ) -> None:
        self._function = function
        self._max_chars = max_chars
        self._batch = batch
        self._breaker = breaker or Breaker()
        self._lock = new_lock()
        self._known: OrderedDict[str, Sequence[float]] = OrderedDict()
        self._pending: OrderedDict[str, None] = OrderedDict()
        self._scheduled = False
        self.redact: Redact | None = None
        self.worker = Worker("embedder", most_waiting=2)
        in_child(self._forget_search)

    def tell_failures_to(self, failed: Failed) -> None:
        """Have failures of the function counted."""
        self.worker.failed = failed

    def embed(self, texts: Sequence[str]) -> list[Sequence[float] | None]:
        """What is known by now; the rest is looked for."""
        wanted = [text[: self._max_chars] for text in texts]
        with self._lock:
            vectors = [self._known.get(text) for text in wanted]
        if None in vectors:
            self.prepare([text for text, vector in zip(wanted, vectors, strict=True) if vector is None])
        return vectors

    def prepare(self, texts: Sequence[str]) -> None:
        """Look for the vectors of texts that will be asked for."""
        with self._lock:
            for text in texts:
                short = text[: self._max_chars]
                if short and short not in self._known and len(self._pending) < _MAX_PENDING:
                    self._pending[short] = None
            if not self._pending or self._scheduled:
                return
            if not self._breaker.allows():
                self._pending.clear()
                return
            self._scheduled = self.worker.submit(self._find)

    def close(self) -> None:
        """Look for nothing more."""
        self.worker.close()

    def _forget_search(self) -> None:
        self._pending.clear()
        self._scheduled = False

    def _find(self) -> None:
        try:
            while batch := self._next_batch():
                self._keep(batch, self._vectors_of(batch))
        except Exception:
            with self._lock:
                self._breaker.failed()
                self._pending.clear()
            raise
        finally:
            with self._lock:
                self._scheduled = False

    def _next_batch(self) -> list[str]:
        with self._lock:
            batch = list(self._pending)[: self._batch]
            for text in batch:
                del self._pending[text]
            return batch

    def _vectors_of(self, batch: list[str]) -> list[Sequence[float]]:
        redact = self.redact
        return checked(self._function(batch if redact is None else [redact(text) for text in batch]), len(batch))

    def _keep(self, batch: Sequence[str], vectors: Sequence[Sequence[float]]) -> None:
        with self._lock:
            self._breaker.succeeded()
            for text, vector in zip(batch, vectors, strict=True):
                self._known[text] = vector
            while len(self._known) > _MAX_KEPT:
                self._known.popitem(last=False)


def checked(vectors: Sequence[Sequence[float]], number: int) -> list[Sequence[float]]:
    """Vectors as compact rows.

    Raises:
        ValueError: They are not one for each text, of one length, of finite numbers.
    """
    rows = [array("f", map(float, vector)) for vector in vectors]
    if len(rows) != number:
        raise ValueError(f"{len(rows)} vectors for {number} texts; an embedder returns one for each text")
    if len({len(row) for row in rows}) > 1 or not all(map(math.isfinite, (value for row in rows for value in row))):
        raise ValueError("the vectors are not of one length, or not of finite numbers")
    return list(rows)
