"""Functions as embedders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otel_agentguard.vectors import LateVectors, checked

Function = Callable[[list[str]], Sequence[Sequence[float]]]


class CallableEmbedder(LateVectors):
    """A function that may wait, such as a client of a service or a large model.

    It is called in one thread of the guard and never under a lock. What it has not answered by the time that
    a call is over is not compared by meaning.

    Args:
        function: Takes a list of texts and returns one vector for each.
        max_chars: Characters of a text that it is given.
    """

    def __init__(self, function: Function, *, max_chars: int = 2000) -> None:
        super().__init__(function, max_chars=max_chars)


class InlineEmbedder:
    """A function that answers within a millisecond, such as a small model in memory.

    It is called under the lock of a run, from any thread.

    Args:
        function: Takes a list of texts and returns one vector for each.
        max_chars: Characters of a text that it is given.
    """

    def __init__(self, function: Function, *, max_chars: int = 300) -> None:
        self._function = function
        self._max_chars = max_chars

    def embed(self, texts: Sequence[str]) -> list[Sequence[float] | None]:
        """See `Embedder`.

        Raises:
            ValueError: The function did not return one vector for each text.
        """
        wanted = [text[: self._max_chars] for text in texts]
        return list(checked(self._function(wanted), len(wanted)))
