"""Whatever happens to a folder, an answer that is served is what a fresh read returns at that moment."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from dedup.desk import Desk, coarsen, make_desk
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from otel_agentguard.events import Effect

NAMES = ("c", "link/c", "alias")
names = st.sampled_from(NAMES)
texts = st.sampled_from(("", "one", "two", "six", "three"))


class World(RuleBasedStateMachine):
    """A folder that the agent, its shell, other programs and links change, while the agent reads."""

    coarse = False

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        if self.coarse:
            coarsen(self.patch)
        self.home = Path.cwd()
        self.top = Path(tempfile.mkdtemp(prefix="agentguard-world-"))
        (self.top / "sub").mkdir()
        (self.top / "other").mkdir()
        (self.top / "link").symlink_to("sub")
        (self.top / "alias").symlink_to("c")
        for folder in (self.top, self.top / "sub", self.top / "other"):
            (folder / "c").write_text("one")
        os.chdir(self.top)
        self.desk: Desk = make_desk()
        self.remote = {"x": "0"}

    def teardown(self) -> None:
        if hasattr(self, "top"):
            os.chdir(self.home)
            shutil.rmtree(self.top)
            self.patch.undo()
            assert self.desk.failures == []

    @invariant()
    def every_answer_is_what_a_fresh_read_gives(self) -> None:
        if not hasattr(self, "desk"):
            return
        for name in NAMES:
            self._read(Path(name))
            self._read(self.top / name)
        assert self.desk.ask("grep", self._found, touches=(".",)) == self._found()
        assert self.desk.ask("get", lambda: self.remote["x"], touches=("record:x",)) == self.remote["x"]
        assert self.desk.answers.budget.used_bytes <= 1024 * 1024

    def _read(self, path: Path) -> None:
        try:
            fresh = path.read_text()
        except OSError as exc:
            with pytest.raises(type(exc)):
                self.desk.read(path)
        else:
            assert self.desk.read(path) == fresh

    def _found(self) -> list[list[str]]:
        files = sorted(Path.cwd().rglob("*"))
        return [[str(path), path.read_text()] for path in files if path.is_file()]

    @rule(name=names, text=texts)
    def agent_writes(self, name: str, text: str) -> None:
        with contextlib.suppress(OSError):
            self.desk.write(name, text)

    @rule(name=names, text=texts)
    def shell_writes(self, name: str, text: str) -> None:
        self.desk.shell(f"printf '%s' '{text}' > {self.top / name} 2>/dev/null")

    @rule(name=names, text=texts, restore=st.booleans())
    def somebody_edits(self, name: str, text: str, restore: bool) -> None:
        path = self.top / name
        try:
            before = path.stat()
        except OSError:
            return
        if path.is_file():
            path.write_text(text)
            if restore:
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @rule(name=names, text=texts)
    def somebody_replaces(self, name: str, text: str) -> None:
        try:
            (self.top / "new").write_text(text)
            (self.top / "new").rename(self.top / name)
        except OSError:
            pass

    @rule(name=names)
    def somebody_deletes(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.top / name).unlink()

    @rule(text=texts)
    def another_program_writes(self, text: str) -> None:
        subprocess.run(["sh", "-c", f"printf '%s' '{text}' > {self.top}/c"], check=True)

    @rule(target_name=st.sampled_from(("sub", "other")))
    def somebody_turns_the_link(self, target_name: str) -> None:
        link = self.top / "link"
        link.unlink()
        link.symlink_to(target_name)

    @rule(name=st.sampled_from(("", "sub", "other")))
    def agent_changes_folder(self, name: str) -> None:
        os.chdir(self.top / name)

    @rule(seconds=st.sampled_from((0.0, 1.0, 6.0, 60.0)))
    def time_passes(self, seconds: float) -> None:
        self.desk.clock.advance(seconds)
        # In a world of coarse ticks time must stand still, since its files cannot be young and old at once.
        if not self.coarse:
            self.desk.file_time.ahead_s += seconds

    @rule(value=st.sampled_from(("0", "1", "2")))
    def agent_writes_a_record(self, value: str) -> None:
        self.desk.ask("put", lambda: self.remote.update(x=value), effect=Effect.WRITE, touches=("record:x",))

    @rule(value=st.sampled_from(("0", "1", "2")))
    def shell_writes_a_record(self, value: str) -> None:
        self.desk.ask("sh", lambda: self.remote.update(x=value), effect=Effect.UNKNOWN, arguments={"cmd": "./put x"})


class CoarseWorld(World):
    coarse = True


bounded = settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
TestWorld = World.TestCase
TestWorld.settings = bounded
TestCoarseWorld = CoarseWorld.TestCase
TestCoarseWorld.settings = bounded
