"""What an answer was made from: files and other resources, and how to see that they are unchanged.

A file is known by where it lies and when it last changed: device, inode, size, and the times of its
content and of its inode. The inode's time cannot be set back, so it shows an edit whose modification
time was restored. Both times are kept in ticks of a few milliseconds, so a file that changed a moment
ago may change again within the same tick: of such a file the content counts as well, until it has been
seen to be old and unchanged.

What this cannot see: a process that writes through a shared memory mapping into a page that is already
dirty, and an edit on another machine that a network file system has not told this one of.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from xxhash import xxh3_128, xxh3_128_digest

from otel_agentguard.dedup.generations import Key

YOUNG_NS = 2_000_000_000
"""A file that changed less than this ago may change again unseen by its times."""

MAX_FILES = 500
MAX_YOUNG = 64
MAX_HASHED_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_ABSENT: tuple[int, ...] = ()

Stamp = tuple[int, ...] | bytes | str
"""Identity of a state: five numbers of a file, nothing for what does not exist, a digest of a folder,
or what a version source says."""

VersionSource = Callable[[str], object]
"""Tells the present version of a resource by its name, as an entity tag or a revision; may do I/O."""


@dataclass(slots=True, eq=False)
class Seen:
    """The state of one resource at one moment.

    Attributes:
        key: Which resource.
        path: Where to look; not resolved, so that a link that is turned elsewhere shows.
        stamp: What was seen there.
        young: Files whose content counts too, with its digest, since their times cannot be trusted yet.
    """

    key: Key
    path: str
    stamp: Stamp
    young: tuple[tuple[str, bytes], ...] = ()

    @property
    def exists(self) -> bool:
        """Whether it can be looked at: there is a file, a folder or a version."""
        return self.stamp != _ABSENT

    @property
    def is_old_file(self) -> bool:
        """Whether its times alone tell that it is unchanged."""
        return type(self.stamp) is tuple and self.stamp != _ABSENT and not self.young


class Resources:
    """Looks at resources. Thread safe; blocks for a few stats, and for the content of files just changed.

    Args:
        versions: For names such as `https://...` a source of versions by scheme; without one, such a name
            is trusted to change only by calls that the guard sees.
        now_ns: Wall clock, nanoseconds since the epoch: the one by which the file system stamps.
    """

    def __init__(
        self, versions: Mapping[str, VersionSource] | None = None, *, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._versions = dict(versions or {})
        self._now_ns = now_ns

    def keys(self, names: Iterable[str], folder: str) -> tuple[Key, ...]:
        """The resources that a call names.

        Args:
            names: Their names; whatever could be a path is one too.
            folder: The working directory at the time of the call.
        """
        return tuple(Key(name, _resolved(_path_of(name, folder))) for name in names)

    def look(self, names: Iterable[str], folder: str) -> tuple[Seen, ...] | None:
        """The state of resources now.

        Args:
            names: As for `keys`.
            folder: As for `keys`.

        Returns:
            None where one of them has no state that could be compared later: a pipe, a folder with too many
            files below it, a file that changes while it is looked at.
        """
        found = []
        for key in self.keys(names, folder):
            seen = self._see(key, _path_of(key.name, folder))
            if seen is None:
                return None
            found.append(seen)
        return tuple(found)

    def same(self, before: Sequence[Seen]) -> bool:
        """Whether all resources are as they were.

        A young file whose content has not changed, and that is old by now, is known by its times alone
        from here on.
        """
        return all(self._is_same(seen) for seen in before)

    def _is_same(self, seen: Seen) -> bool:
        if seen.is_old_file:
            try:
                return file_stamp(os.stat(seen.path)) == seen.stamp
            except OSError:
                return False
        stamp, aged = self._stamp(seen)
        if stamp is None or stamp != seen.stamp:
            return False
        if not seen.young:
            return True
        if any(_content(path) != digest for path, digest in seen.young):
            return False
        if aged:
            seen.young = ()
        return True

    def _see(self, key: Key, path: str) -> Seen | None:
        seen = Seen(key, path, _ABSENT)
        scheme = _scheme(key.name)
        if scheme is not None:
            return self._see_version(seen, scheme)
        looked = self._look_at(path)
        if looked is None:
            return None
        seen.stamp, young = looked
        digests = []
        for file in young:
            digest = _content(file)
            if digest is None:
                return None
            digests.append((file, digest))
        seen.young = tuple(digests)
        # What was hashed must be what was stamped.
        return seen if not digests or self._stamp(seen)[0] == seen.stamp else None

    def _see_version(self, seen: Seen, scheme: str) -> Seen | None:
        source = self._versions.get(scheme)
        if source is None:
            return seen
        version = source(seen.key.name)
        if version is None:
            return None
        seen.stamp = str(version)
        return seen

    def _stamp(self, seen: Seen) -> tuple[Stamp | None, bool]:
        """What is there now, and whether nothing of it is young any more."""
        if isinstance(seen.stamp, str):
            version = self._versions[_scheme(seen.key.name) or ""](seen.key.name)
            return (None if version is None else str(version)), True
        if _scheme(seen.key.name) is not None:
            return _ABSENT, True
        looked = self._look_at(seen.path)
        return (None, False) if looked is None else (looked[0], not looked[1])

    def _look_at(self, path: str) -> tuple[Stamp, list[str]] | None:
        """What is at a path, and the files there whose times cannot be trusted yet."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return _ABSENT, []
        except OSError as exc:
            return (_ABSENT, []) if exc.errno == errno.ENAMETOOLONG else None
        if stat.S_ISREG(found.st_mode):
            young = _is_young(found, self._now_ns() - YOUNG_NS)
            return file_stamp(found), [path] if young else []
        if stat.S_ISDIR(found.st_mode):
            return self._look_below(path)
        return None

    def _look_below(self, top: str) -> tuple[Stamp, list[str]] | None:
        states: list[tuple[str, tuple[int, ...]]] = []
        young: list[str] = []
        folders = [top]
        entered: set[tuple[int, int]] = set()
        size = 0
        newest_ns = self._now_ns() - YOUNG_NS
        try:
            while folders:
                folder = folders.pop()
                found = os.stat(folder)
                if (found.st_dev, found.st_ino) in entered:
                    continue
                entered.add((found.st_dev, found.st_ino))
                with os.scandir(folder) as entries:
                    for entry in entries:
                        found = _state(entry)
                        states.append((entry.path, file_stamp(found)))
                        if len(states) > MAX_FILES:
                            return None
                        if stat.S_ISDIR(found.st_mode):
                            folders.append(entry.path)
                        elif _is_young(found, newest_ns) and stat.S_ISREG(found.st_mode):
                            young.append(entry.path)
                            size += found.st_size
        except OSError:
            return None
        if len(young) > MAX_YOUNG or size > MAX_HASHED_BYTES:
            return None
        states.sort()
        return xxh3_128_digest(repr(states).encode("utf-8", "surrogatepass")), sorted(young)


def content_digest(path: str, *, max_bytes: int = MAX_HASHED_BYTES) -> bytes | None:
    """Identity of the content of a file, the same on every machine.

    Returns:
        16 bytes; None where there is no such file, or it is larger than `max_bytes`.
    """
    return _content(path, max_bytes)


def _content(path: str, max_bytes: int = MAX_HASHED_BYTES) -> bytes | None:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > max_bytes:
                return None
            if found.st_size < _CHUNK_BYTES:
                data = file.read(_CHUNK_BYTES)
                return xxh3_128_digest(data) if len(data) < _CHUNK_BYTES else None
            hashing = xxh3_128()
            left = max_bytes + 1
            while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
                hashing.update(chunk)
                left -= len(chunk)
            return hashing.digest() if left > 0 else None
    except OSError:
        return None


def file_stamp(found: os.stat_result) -> tuple[int, ...]:
    """What tells states of a file apart on this machine."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_young(found: os.stat_result, newest_ns: int) -> bool:
    """Whether a file can change without a change of its times.

    Files without blocks are not on a disk: the kernel makes the content of those in /proc and /sys as they
    are read, whatever their times say.
    """
    if found.st_mtime_ns > newest_ns or found.st_ctime_ns > newest_ns:
        return True
    return getattr(found, "st_blocks", 1) == 0


def _state(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except FileNotFoundError:
        return entry.stat(follow_symlinks=False)


def _path_of(name: str, folder: str) -> str:
    if name.startswith("file://"):
        name = unquote(urlsplit(name).path)
    elif name.startswith("~"):
        name = os.path.expanduser(name)
    return os.path.join(folder, name)


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:
        return path


def _scheme(name: str) -> str | None:
    scheme, separator, _ = name.partition("://")
    return scheme if separator and scheme != "file" and scheme.isalnum() else None
