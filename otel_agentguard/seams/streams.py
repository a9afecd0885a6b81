"""Generators under guard: what they yield passes through, their own code runs in their own context.

Between two items nothing of ours stays attached: the consumer runs there, and may never come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Protocol

from otel_agentguard.fingerprint import result_digest
from otel_agentguard.seams.step import as_text

_MAX_END_CHARS = 8192

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


class Watch(Protocol):
    """Hears of one generator's life; that of an async generator by the methods that are awaited."""

    def resume(self) -> None:
        """Its code is about to run."""
        ...

    def park(self) -> None:
        """Its code waits at a yield, or is over."""
        ...

    def took(self, item: object) -> None:
        """It yielded."""
        ...

    def returned(self) -> None:
        """It came to its end; may raise."""
        ...

    def closed(self) -> None:
        """Its consumer wants no more."""
        ...

    def raised(self, error: BaseException) -> None:
        """It raised; may raise something else from that."""
        ...

    async def returned_async(self) -> None:
        """`returned`, awaiting what there is to await."""
        self.returned()

    async def closed_async(self) -> None:
        """`closed`, awaiting what there is to await."""
        self.closed()

    async def raised_async(self, error: BaseException) -> None:
        """`raised`, awaiting what there is to await."""
        self.raised(error)


Begin = Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[Generator[Any, Any, Any], Watch | None]]
BeginAsync = Callable[[tuple[Any, ...], Mapping[str, Any]], Awaitable[tuple[AsyncGenerator[Any, Any], Watch | None]]]


def relaying(begin: Begin) -> Callable[..., Generator[Any, Any, Any]]:
    """A generator function that stands for the one that `begin` starts.

    Args:
        begin: Called at the first item; None in place of a watch lets the generator run unseen.
    """

    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        source, watch = begin(args, kwargs)
        if watch is None:
            return (yield from source)
        go: Callable[[], Any] = partial(next, source)
        while True:
            watch.resume()
            try:
                item = go()
            except StopIteration as end:
                watch.park()
                watch.returned()
                return end.value
            except BaseException as exc:
                watch.park()
                watch.raised(exc)
                raise
            watch.park()
            watch.took(item)
            try:
                sent = yield item
            except GeneratorExit:
                _closing(source.close, watch)
                raise
            except BaseException as exc:
                go = partial(source.throw, exc)
            else:
                go = partial(next, source) if sent is None else partial(source.send, sent)

    return call


def relaying_async(begin: BeginAsync) -> Callable[..., AsyncGenerator[Any, Any]]:
    """`relaying` for async generators."""

    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        source, watch = await begin(args, kwargs)
        go: Callable[[], Awaitable[Any]] = source.__anext__
        while True:
            try:
                item = await _resumed(go, watch)
            except StopAsyncIteration:
                if watch is not None:
                    await watch.returned_async()
                return
            except BaseException as exc:
                if watch is not None:
                    await watch.raised_async(exc)
                raise
            if watch is not None:
                watch.took(item)
            try:
                sent = yield item
            except GeneratorExit:
                try:
                    await _resumed(source.aclose, watch)
                finally:
                    if watch is not None:
                        await watch.closed_async()
                raise
            except BaseException as exc:
                go = partial(source.athrow, exc)
            else:
                go = source.__anext__ if sent is None else partial(source.asend, sent)

    return call


class Yielded:
    """What a generator has yielded: a digest over all of it, and both ends of it as text."""

    __slots__ = ("_head", "_head_chars", "_left_out", "_separator", "_tail", "_tail_chars", "digest")

    def __init__(self) -> None:
        self.digest: bytes | None = b""
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_chars = 0
        self._tail_chars = 0
        self._left_out = 0
        self._separator = ""

    def add(self, item: object, on_fallback: Callable[[str], None]) -> None:
        """Take in one item."""
        if self.digest is not None:
            self.digest = result_digest(False, (self.digest, item), on_fallback=on_fallback)
        text = as_text(item)
        if not isinstance(item, str):
            self._separator = "\n"
        if self._head_chars < _MAX_END_CHARS:
            self._head.append(text[:_MAX_END_CHARS])
            self._head_chars += len(text)
            return
        self._tail.append(text[-_MAX_END_CHARS:])
        self._tail_chars += len(text)
        while self._tail_chars > 2 * _MAX_END_CHARS and len(self._tail) > 1:
            self._tail_chars -= len(self._tail.popleft())
            self._left_out += 1

    def text(self) -> str:
        """Both ends of what was yielded, at most about 32 KB."""
        left_out = (f"\n[{self._left_out} more]\n",) if self._left_out else ()
        return self._separator.join((*self._head, *left_out, *self._tail))


def _closing(close: Callable[[], object], watch: Watch) -> None:
    watch.resume()
    try:
        close()
    finally:
        watch.park()
        watch.closed()


async def _resumed(go: Callable[[], Awaitable[Any]], watch: Watch | None) -> Any:
    if watch is None:
        return await go()
    watch.resume()
    try:
        return await go()
    finally:
        watch.park()
