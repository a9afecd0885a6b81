"""What becomes of the guard in a forked child, which has its memory but only the thread that forked.

A lock that another thread held at that moment would be held in the child for ever, so there all of these locks
are free. What they guard stays as it was copied: a child goes on where its parent was. What waits for a thread
of the parent is told, and begins anew.

For what must be held across the fork itself there is `effects.ownership.watch_forks`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakMethod, ref

_locks: set[ref[threading.Lock] | ref[threading.RLock]] = set()
_methods: set[WeakMethod[Callable[[], object]]] = set()


def new_lock() -> threading.Lock:
    """A lock that is free in every forked child."""
    lock = threading.Lock()
    _locks.add(ref(lock, _locks.discard))
    return lock


def new_reentrant_lock() -> threading.RLock:
    """A lock that is free in every forked child, and that its owner may take again."""
    lock = threading.RLock()
    _locks.add(ref(lock, _locks.discard))
    return lock


def in_child(method: Callable[[], object]) -> None:
    """Call a method of an object in every forked child, while the object is referenced; the locks are free by then."""
    _methods.add(WeakMethod(method, _methods.discard))


def _after_fork() -> None:
    for held in _locks.copy():
        if (lock := held()) is not None:
            # What the standard library does with its own locks: https://bugs.python.org/issue40089
            lock._at_fork_reinit()  # type: ignore[union-attr]  # noqa: SLF001 - not in typeshed either
    for known in _methods.copy():
        if (method := known()) is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
