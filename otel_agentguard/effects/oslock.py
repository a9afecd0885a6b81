"""Locks of the operating system that say whether a process lives.

Each process locks a file of its own for as long as it lives; the kernel drops the lock when the process
ends, however it ends, and keeps it while the process is stopped. Others look by asking for the lock.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from otel_agentguard.effects.ledger import Liveness
from otel_agentguard.effects.ownership import watch_forks
from otel_agentguard.errors import StoreError

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, shared: bool) -> bool:
        # Untested: there is no shared lock here, so two onlookers can briefly take each other for the owner.
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _lock(descriptor: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class ProcessLocks:
    """The folder of lock files beside one store.

    Args:
        folder: Where they are; made when missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mine: dict[str, int] = {}

    def hold(self, process: str) -> None:
        """Lock the file of this process until it ends.

        Raises:
            StoreError: The file cannot be made or locked.
        """
        if process in self._mine:
            return
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.sweep()
            while process not in self._mine:
                descriptor = os.open(self.folder / process, os.O_RDWR | os.O_CREAT, 0o600)
                if _lock(descriptor, shared=False) and self._is_file(descriptor, process):
                    self._mine[process] = descriptor
                else:  # A sweep of another process got in between and removed the file.
                    os.close(descriptor)
        except OSError as exc:
            raise StoreError(f"no lock file for this process in {self.folder}: {exc}") from exc

    def _is_file(self, descriptor: int, process: str) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.folder / process))
        except FileNotFoundError:
            return False

    def liveness(self, process: str) -> Liveness:
        """Whether another process lives; one that left no file is dead.

        Raises:
            StoreError: The file cannot be opened.
        """
        if process in self._mine:
            return Liveness.ALIVE
        try:
            descriptor = os.open(self.folder / process, os.O_RDWR)
        except FileNotFoundError:
            return Liveness.DEAD
        except OSError as exc:
            raise StoreError(f"cannot tell whether {process} lives: {exc}") from exc
        try:
            return Liveness.DEAD if _lock(descriptor, shared=True) else Liveness.ALIVE
        finally:
            os.close(descriptor)

    def sweep(self) -> None:
        """Remove the files of processes that have ended."""
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDWR)
                try:
                    if path.name not in self._mine and _lock(descriptor, shared=False):
                        path.unlink()
                finally:
                    os.close(descriptor)

    def let_go(self, process: str) -> None:
        """Give up one lock of this process and remove its file."""
        descriptor = self._mine.pop(process, None)
        if descriptor is not None:
            (self.folder / process).unlink(missing_ok=True)
            os.close(descriptor)

    def before_fork(self) -> None:
        """Nothing to rest: the locks stay with the parent."""

    def after_fork(self, *, in_child: bool) -> None:
        """Close in the child what it inherited: it would keep the lock after the death of the parent."""
        if in_child:
            for descriptor in self._mine.values():
                os.close(descriptor)
            self._mine.clear()


_folders: dict[Path, ProcessLocks] = {}


def locks_in(folder: Path) -> ProcessLocks:
    """The one `ProcessLocks` that this process has for a folder; it is kept for the life of the process."""
    folder = folder.resolve()
    if folder not in _folders:
        _folders[folder] = ProcessLocks(folder)
        watch_forks(_folders[folder])
    return _folders[folder]
