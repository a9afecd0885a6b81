"""Who a process is to the ledgers, and which of its claims are running.

An owner is `process/number`: the process part is what others can watch for signs of life, the number tells
the claims of one process apart.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import threading
import weakref
from collections import OrderedDict
from itertools import count
from typing import Protocol


def new_process_id() -> str:
    """A name for this process that no other one ever had; host and process number are in it for people."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", platform.node())[:40] or "host"
    return f"{host}.{os.getpid()}.{secrets.token_hex(8)}"


def process_of(owner: str) -> str:
    """The process part of an owner."""
    return owner.rpartition("/")[0]


class Claims:
    """The claims of one ledger in this process."""

    def __init__(self) -> None:
        self.process = new_process_id()
        self._numbers = count(1)
        self._running: set[str] = set()
        self._unanswered: OrderedDict[str, str] = OrderedDict()

    def owner_for(self, key: str) -> str:
        """The owner to claim `key` as.

        A claim whose answer was lost may have been written. It is asked again as the same owner, so that it
        is recognised and a lost answer never locks its own caller out.
        """
        owner = self._unanswered.pop(key, None)
        return owner if owner is not None else f"{self.process}/{next(self._numbers)}"

    def unanswered(self, key: str, owner: str) -> None:
        """Keep the owner of a claim that got no answer; at most 1000 are kept."""
        if len(self._unanswered) >= 1000:
            self._unanswered.popitem(last=False)
        self._unanswered[key] = owner

    def begin(self, owner: str) -> None:
        """Vouch for a claim."""
        self._running.add(owner)

    def end(self, owner: str) -> None:
        """Vouch for it no longer."""
        self._running.discard(owner)

    def is_mine(self, owner: str) -> bool:
        """Whether this process made the claim."""
        return process_of(owner) == self.process

    def is_running(self, owner: str) -> bool:
        """Whether the claim of this process has not ended."""
        return owner in self._running

    @property
    def any_running(self) -> bool:
        """Whether any claim of this process has not ended."""
        return bool(self._running)


class Forkable(Protocol):
    """What must not be carried over a fork as it is."""

    def before_fork(self) -> None:
        """Called in the parent, before; must come to rest and keep others out until `after_fork`."""
        ...

    def after_fork(self, *, in_child: bool) -> None:
        """Called in both, after; undoes `before_fork`. The child starts anew."""
        ...


_forkables: weakref.WeakValueDictionary[int, Forkable] = weakref.WeakValueDictionary()
_numbers = count()
_registry = threading.RLock()
_resting: list[Forkable] = []


def watch_forks(forkable: Forkable) -> None:
    """Call the two methods of `forkable` around every fork of this process, while it is referenced."""
    with _registry:
        _forkables[next(_numbers)] = forkable


def _before_fork() -> None:
    _registry.acquire()
    _resting[:] = [forkable for _, forkable in sorted(_forkables.items())]
    for forkable in _resting:
        forkable.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for forkable in reversed(_resting):
        forkable.after_fork(in_child=in_child)
    _resting.clear()
    _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )
