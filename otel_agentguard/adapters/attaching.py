"""Attaches adapters: when a framework is imported, in a version that is known, unless the user leaves it out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from types import ModuleType

import wrapt
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.table import ADAPTERS, AdapterEntry, Part
from otel_agentguard.forks import new_reentrant_lock
from otel_agentguard.guard import Guard

_logger = logging.getLogger("otel_agentguard")

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"

Detach = Callable[[], None]


@dataclass(frozen=True, slots=True)
class PartState:
    """What would become of one part in this environment.

    Attributes:
        part: The part.
        version: The version that is installed; None for none.
        problem: Why it is left alone; None where it is put in.
    """

    part: Part
    version: str | None
    problem: str | None


class Adapter:
    """One adapter of this process. Thread safe; attaching twice is once.

    Nothing that goes wrong in here reaches the application: a part that cannot be put in is taken back,
    logged and counted, and the framework runs unguarded there.

    Attributes:
        entry: What the table says of it.

    Args:
        entry: What the table says of it.
    """

    def __init__(self, entry: AdapterEntry) -> None:
        self.entry = entry
        self._lock = new_reentrant_lock()
        self._guard: Guard | None = None
        self._put_in: dict[Part, Patches] = {}
        self._known: set[Part] = set()
        self._watched: set[str] = set()
        self._complete: set[str] = set()

    @property
    def attached(self) -> tuple[Part, ...]:
        """The parts that are put in."""
        with self._lock:
            return tuple(self._put_in)

    def attach(self, guard: Guard) -> Detach:
        """Put its parts into what is imported, now or later.

        Args:
            guard: Told of what goes wrong. Seams look the installed guard up at each call.

        Returns:
            `detach`.
        """
        with self._lock:
            self._guard = guard
            modules = dict.fromkeys(name for part in self.entry.parts for name in (part.module, part.hook_module))
            new = [name for name in modules if name not in self._watched]
            self._watched.update(new)
        for name in new:
            wrapt.register_post_import_hook(partial(self._imported, name), name)
        self._put_in_all()
        return self.detach

    def detach(self) -> None:
        """Put back what was there; detaching twice is once."""
        with self._lock:
            self._guard = None
            self._known.clear()
            put_in, self._put_in = self._put_in, {}
            for patches in reversed(put_in.values()):
                patches.undo()

    def state(self) -> list[PartState]:
        """What would be put in, part by part; nothing is imported."""
        return [look_at(part) for part in self.entry.parts]

    def _imported(self, name: str, _: ModuleType) -> None:
        with self._lock:
            self._complete.add(name)
        self._put_in_all()

    def _put_in_all(self) -> None:
        with self._lock:
            guard = self._guard
            if guard is None:
                return
            parts = [part for part in self.entry.parts if part.module in self._complete and part not in self._known]
            self._known.update(parts)
        for part in parts:
            # Without the lock: imports take locks of their own, and their holders come here.
            patches = self._made(part, guard)
            with self._lock:
                if patches is not None and self._guard is not None:
                    self._put_in[part] = patches
                elif patches is not None:
                    patches.undo()

    def _made(self, part: Part, guard: Guard) -> Patches | None:
        state = look_at(part)
        if state.problem is not None:
            _logger.warning("agentguard: %s is not guarded: %s", self.entry.name, state.problem)
            return None
        patches = Patches()
        try:
            module = import_module(part.hook_module)
            if self._comes_later(part):
                return None
            getattr(module, part.hook_function)(patches)
        except Exception as exc:
            patches.undo()
            guard.engine.failed(f"adapter {self.entry.name}", exc)
            return None
        return patches

    def _comes_later(self, part: Part) -> bool:
        """Whether the hook's own module is being imported still and has asked for the framework; its end asks again."""
        with self._lock:
            if part.hook_module in self._complete:
                return False
            self._known.discard(part)
            return True


def adapters() -> Mapping[str, Adapter]:
    """The adapters of this process, by name."""
    return _adapters


def attach_all(guard: Guard, *, left_out: Collection[str] = (), environ: Mapping[str, str]) -> Detach:
    """Attach every adapter that the user does not leave out.

    Args:
        guard: The installed guard.
        left_out: Names that a setting leaves out; `*` for all.
        environ: `OTEL_PYTHON_DISABLED_INSTRUMENTATIONS` leaves out too.

    Returns:
        What takes all of them back.
    """
    for name in sorted(set(left_out) - _adapters.keys() - {"*"}):
        _logger.warning("agentguard: there is no adapter %r to leave out; known: %s", name, ", ".join(_adapters))
    wanted = [one for one in _adapters.values() if off_by(one, left_out=left_out, environ=environ) is None]
    return partial(_undo, [one.attach(guard) for one in wanted])


def off_by(adapter: Adapter, *, left_out: Collection[str], environ: Mapping[str, str]) -> str | None:
    """The setting that leaves an adapter out; None for none. The arguments are those of `attach_all`."""
    either = {adapter.entry.name, "*"}
    if either & set(left_out):
        return "adapters_off"
    return DISABLED if either & {name.strip() for name in environ.get(DISABLED, "").split(",")} else None


def is_of_a_framework(tool: object) -> bool:
    """Whether a tool is an object of a framework that has an adapter, so that this guards it."""
    packages = {part.module.partition(".")[0] for entry in ADAPTERS for part in entry.parts}
    return any(cls.__module__.partition(".")[0] in packages for cls in type(tool).__mro__)


def look_at(part: Part) -> PartState:
    """Whether a part fits what is installed."""
    try:
        version = metadata.version(part.distribution)
    except metadata.PackageNotFoundError:
        return PartState(part, None, f"{part.distribution} is not installed")
    try:
        fits = SpecifierSet(part.versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        fits = False
    if fits:
        return PartState(part, version, None)
    problem = f"{part.distribution} {version} is none of the known versions {part.versions} of {part.module}"
    return PartState(part, version, problem)


def _undo(steps: Iterable[Detach]) -> None:
    for step in steps:
        step()


_adapters = {entry.name: Adapter(entry) for entry in ADAPTERS}
