"""Ways past the guard, for the program that knows better."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context

from otel_agentguard.current import attach, narrowed


@contextmanager
def unguarded() -> Iterator[None]:
    """Let everything inside pass the guard: it is counted, but not judged, refused or stopped."""
    token = attach(narrowed(unguarded=True))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def fresh() -> Iterator[None]:
    """Let no call inside be answered from the cache."""
    token = attach(narrowed(fresh=True))
    try:
        yield
    finally:
        context.detach(token)
