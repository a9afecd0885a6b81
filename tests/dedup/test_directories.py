"""A folder as a resource: every file below it counts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from dedup.desk import Desk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "src"
    (top / "sub").mkdir(parents=True)
    (top / "a.py").write_text("one")
    (top / "sub" / "b.py").write_text("two")
    return top


def grep(desk: Desk, folder: Path) -> str:
    def search() -> str:
        found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return "\n".join(f"{path.relative_to(folder)}:{path.read_text()}" for path in found)

    return str(desk.ask("grep", search, arguments={"folder": str(folder)}, touches=(str(folder),)))


def test_an_unchanged_folder_is_searched_once(desk: Desk, folder: Path) -> None:
    assert grep(desk, folder) == grep(desk, folder)
    assert desk.executed["grep"] == 1


def edit(folder: Path) -> None:
    (folder / "sub" / "b.py").write_text("TWO")


def add(folder: Path) -> None:
    (folder / "sub" / "c.py").write_text("new")


def remove(folder: Path) -> None:
    (folder / "a.py").unlink()


def rename(folder: Path) -> None:
    (folder / "a.py").rename(folder / "z.py")


def swap(folder: Path) -> None:
    (folder / "a.py").rename(folder / "t")
    (folder / "sub" / "b.py").rename(folder / "a.py")
    (folder / "t").rename(folder / "sub" / "b.py")


def link(folder: Path) -> None:
    (folder / "l").symlink_to("a.py")


@pytest.mark.usefixtures("ticks")
@pytest.mark.parametrize("change", [edit, add, remove, rename, swap, link])
def test_a_change_below_a_folder_is_seen(desk: Desk, folder: Path, change: Callable[[Path], None]) -> None:
    before = grep(desk, folder)

    change(folder)

    assert grep(desk, folder) != before


def test_a_linked_folder_below_is_looked_into(desk: Desk, folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "c").write_text("three")
    (folder / "linked").symlink_to(elsewhere)

    def read() -> str:
        return (folder / "linked" / "c").read_text()

    assert desk.ask("read", read, touches=(str(folder),)) == "three"
    (elsewhere / "c").write_text("THREE")

    assert desk.ask("read", read, touches=(str(folder),)) == "THREE"


def test_a_folder_that_links_to_itself_ends(desk: Desk, folder: Path) -> None:
    (folder / "self").symlink_to(folder)

    asked = {"touches": (str(folder),)}
    desk.ask("count", lambda: 2, **asked)

    assert desk.ask("count", lambda: 3, **asked) == 2


def test_a_folder_of_more_than_500_files_is_not_answered_for(desk: Desk, folder: Path) -> None:
    for number in range(500):
        (folder / f"{number}.txt").touch()

    asked = {"touches": (str(folder),)}
    desk.ask("count", lambda: 1, **asked)

    assert desk.ask("count", lambda: 2, **asked) == 2
    assert desk.told["dedup uncacheable"] == 2


def test_an_old_folder_is_compared_without_reading_its_files(
    desk: Desk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.file_time.ahead_s = 60
    for path in folder.rglob("*.py"):
        assert os.stat(path).st_blocks
    grep(desk, folder)
    monkeypatch.setattr("otel_agentguard.dedup.resources._content", lambda *_: pytest.fail("read"))

    grep(desk, folder)

    assert desk.executed["grep"] == 1
