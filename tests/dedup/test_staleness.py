"""No answer is served that a fresh read would not give: the stories in which caches get this wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from dedup.desk import Desk

from otel_agentguard.config import Settings
from otel_agentguard.events import Effect
from otel_agentguard.protocols import RunInfo


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("alpha")
    return path


def test_an_unchanged_file_is_read_once(desk: Desk, file: Path) -> None:
    answers = [desk.read(file) for _ in range(5)]

    assert answers == ["alpha"] * 5
    assert desk.executed["read"] == 1
    assert desk.told == {"dedup miss": 1, "dedup hit": 4, "saved": 4}


def test_an_old_file_is_not_opened_to_see_that_it_is_unchanged(desk: Desk, file: Path) -> None:
    desk.file_time.ahead_s = 60
    desk.read(file)
    opened = []

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open":
            opened.append(arguments[0])

    watching = True
    sys.addaudithook(audit)
    desk.read(file)
    watching = False

    assert str(file) not in opened
    assert desk.executed["read"] == 1


@pytest.mark.usefixtures("ticks")
def test_an_edit_within_one_second_of_the_read_is_seen(desk: Desk, file: Path) -> None:
    desk.read(file)

    file.write_text("ALPHA")  # the same size, and on most file systems within the same tick

    assert desk.read(file) == "ALPHA"


@pytest.mark.usefixtures("ticks")
def test_an_edit_of_the_same_size_in_place_is_seen(desk: Desk, file: Path) -> None:
    desk.read(file)

    with file.open("r+") as handle:
        handle.write("gamma")

    assert desk.read(file) == "gamma"


def test_an_edit_whose_modification_time_was_restored_is_seen(desk: Desk, file: Path) -> None:
    desk.file_time.ahead_s = 60
    desk.read(file)
    before = file.stat()

    file.write_text("delta")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert desk.read(file) == "delta"


def test_a_young_file_that_has_aged_unchanged_is_known_by_its_times(desk: Desk, file: Path) -> None:
    desk.read(file)
    desk.file_time.ahead_s = 60
    desk.read(file)

    file.write_text("omega")

    assert desk.read(file) == "omega"
    assert desk.executed["read"] == 2


def test_a_shell_command_that_rewrites_the_file_is_seen(desk: Desk, file: Path) -> None:
    desk.read(file)

    desk.shell(f"printf bravo > {file}")

    assert desk.read(file) == "bravo"


def test_a_shell_command_makes_every_answer_be_made_anew(desk: Desk) -> None:
    state = {"stock": "3"}
    ask = {"touches": ("stock",)}
    assert desk.ask("stock", lambda: state["stock"], **ask) == "3"

    desk.ask("shell", lambda: state.update(stock="2"), arguments={"command": "./sell.sh"}, effect=Effect.UNKNOWN)

    assert desk.ask("stock", lambda: state["stock"], **ask) == "2"


def test_a_shell_command_that_only_reads_spares_the_answers(desk: Desk, file: Path) -> None:
    desk.read(file)

    desk.shell(f"cat {file} > /dev/null")

    assert desk.read(file) == "alpha"
    assert desk.executed["read"] == 1


@pytest.mark.usefixtures("ticks")
def test_an_external_edit_is_seen(desk: Desk, file: Path) -> None:
    desk.read(file)

    subprocess.run(["sh", "-c", f"printf charlie > {file}"], check=True)

    assert desk.read(file) == "charlie"


@pytest.mark.usefixtures("ticks")
def test_a_git_checkout_is_seen(desk: Desk, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    file = repository / "a.txt"

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    file.write_text("main ")
    git("add", ".")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "other")
    file.write_text("other")
    git("commit", "-qam", "two")
    assert desk.read(file) == "other"

    git("checkout", "-q", "main")

    assert desk.read(file) == "main "


def test_a_link_that_is_turned_to_another_file_is_seen(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("one")
    (tmp_path / "two").write_text("two")
    link = tmp_path / "current"
    link.symlink_to("one")
    desk.file_time.ahead_s = 60
    assert desk.read(link) == "one"

    link.unlink()
    link.symlink_to("two")

    assert desk.read(link) == "two"


def test_a_linked_folder_that_is_turned_elsewhere_is_seen(desk: Desk, tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(name)
    link = tmp_path / "current"
    link.symlink_to("v1")
    desk.file_time.ahead_s = 60
    assert desk.read(link / "config") == "v1"

    link.unlink()
    link.symlink_to("v2")

    assert desk.read(link / "config") == "v2"


def test_a_write_through_a_link_is_a_write_to_what_it_points_to(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    state = {"value": "old"}  # what the tool reads lies elsewhere: only the names tell of the write
    asked = {"touches": (str(tmp_path / "real" / "record"),)}
    desk.ask("get", lambda: state["value"], **asked)

    desk.ask(
        "put",
        lambda: state.update(value="new"),
        effect=Effect.WRITE,
        touches=(str(tmp_path / "link" / "record"),),
    )

    assert desk.ask("get", lambda: state["value"], **asked) == "new"


def test_a_file_that_is_replaced_by_rename_is_seen(desk: Desk, file: Path) -> None:
    desk.file_time.ahead_s = 60
    desk.read(file)
    before = file.stat()
    replacement = file.with_suffix(".new")
    replacement.write_text("omega")
    os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns))

    replacement.rename(file)

    assert desk.read(file) == "omega"


def test_a_file_that_is_deleted_is_not_served(desk: Desk, file: Path) -> None:
    desk.read(file)

    file.unlink()

    with pytest.raises(FileNotFoundError):
        desk.read(file)


@pytest.mark.usefixtures("ticks")
def test_a_file_that_is_deleted_and_made_again_is_seen(desk: Desk, file: Path) -> None:
    desk.read(file)

    file.unlink()
    file.write_text("again")

    assert desk.read(file) == "again"


def test_that_a_file_is_missing_holds_until_it_is_made(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            desk.read(path)
    assert desk.executed["read"] == 1

    path.write_text("# Report")

    assert desk.read(path) == "# Report"


def test_that_something_is_missing_holds_for_a_few_seconds_only(desk: Desk) -> None:
    def missing() -> str:
        raise FileNotFoundError("no such ticket")

    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="no such ticket"):
            desk.ask("ticket", missing, touches=("ticket:7",))
    assert desk.executed["ticket"] == 1

    desk.clock.advance(5)

    assert desk.ask("ticket", lambda: "open", touches=("ticket:7",)) == "open"


def test_that_something_is_missing_ends_with_a_write_in_its_scope(desk: Desk) -> None:
    tickets: dict[str, str] = {}

    def look() -> str:
        if "7" not in tickets:
            raise FileNotFoundError("7")
        return tickets["7"]

    with pytest.raises(FileNotFoundError):
        desk.ask("ticket", look, touches=("tickets/7",))

    desk.ask("open", lambda: tickets.update({"7": "open"}), effect=Effect.WRITE, touches=("tickets",))

    assert desk.ask("ticket", look, touches=("tickets/7",)) == "open"


def test_a_missing_answer_is_raised_as_another_object_each_time(desk: Desk, tmp_path: Path) -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(FileNotFoundError) as caught:
            desk.read(tmp_path / "nothing")
        errors.append(caught.value)

    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])
    assert errors[1].filename == errors[0].filename


def test_the_working_directory_is_part_of_the_question(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    monkeypatch.chdir(tmp_path / "one")
    assert desk.read("a.txt") == "one"

    monkeypatch.chdir(tmp_path / "two")
    assert desk.read("a.txt") == "two"

    monkeypatch.chdir(tmp_path / "one")
    assert desk.read("a.txt") == "one"
    assert desk.executed["read"] == 2


@pytest.mark.usefixtures("ticks")
def test_a_write_that_overlaps_a_read_keeps_its_answer_from_being_kept(desk: Desk, file: Path) -> None:
    def slow_read() -> str:
        before = file.read_text()
        desk.write(file, "omega")
        return before

    asked = {"arguments": {"path": str(file)}, "touches": (str(file),)}

    assert desk.ask("read", slow_read, **asked) == "alpha"
    assert desk.ask("read", file.read_text, **asked) == "omega"


@pytest.mark.usefixtures("ticks")
def test_an_external_write_that_overlaps_a_read_keeps_its_answer_from_being_kept(desk: Desk, file: Path) -> None:
    def slow_read() -> str:
        before = file.read_text()
        file.write_text("omega")
        return before

    asked = {"arguments": {"path": str(file)}, "touches": (str(file),)}

    assert desk.ask("read", slow_read, **asked) == "alpha"
    assert desk.ask("read", file.read_text, **asked) == "omega"


def test_a_read_while_a_write_is_going_on_is_not_kept(desk: Desk) -> None:
    state = {"stock": "3"}
    halfway, go_on = threading.Event(), threading.Event()

    def slow_write() -> None:
        halfway.set()
        go_on.wait(10)
        state["stock"] = "2"

    writer = threading.Thread(target=lambda: desk.ask("sell", slow_write, effect=Effect.WRITE, touches=("stock",)))
    writer.start()
    halfway.wait(10)
    assert desk.ask("stock", lambda: state["stock"], touches=("stock",)) == "3"
    state["stock"] = "2"  # the write takes effect before it returns

    assert desk.ask("stock", lambda: state["stock"], touches=("stock",)) == "2"
    go_on.set()
    writer.join()


def test_a_refusal_is_not_kept(desk: Desk, file: Path) -> None:
    def refused() -> str:
        raise PermissionError("not yours")

    asked = {"arguments": {"path": str(file)}, "touches": (str(file),)}
    with pytest.raises(PermissionError):
        desk.ask("read", refused, **asked)

    assert desk.ask("read", file.read_text, **asked) == "alpha"


def test_a_failure_is_not_kept(desk: Desk) -> None:
    def down() -> str:
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        desk.ask("search", down, ttl_s=60)

    assert desk.ask("search", lambda: "found", ttl_s=60) == "found"


def test_after_a_compaction_the_answer_is_whole_and_points_to_no_lost_step(desk: Desk, file: Path) -> None:
    desk.read(file)
    desk.read(file)
    assert len(desk.notes) == 1
    assert "step 1" in desk.notes[0]

    desk.compact()

    assert desk.read(file) == "alpha"
    assert len(desk.notes) == 1


def test_another_tenant_gets_no_answer_of_this_one(desk: Desk) -> None:
    asked = {"arguments": {"id": 1}, "touches": ("customer:1",)}

    assert desk.ask("customer", lambda: "Ada", scope="tenant-a", **asked) == "Ada"
    assert desk.ask("customer", lambda: "Bob", scope="tenant-b", **asked) == "Bob"
    assert desk.ask("customer", lambda: "nobody", scope="tenant-a", **asked) == "Ada"


def test_another_run_gets_no_answer_of_this_one(desk: Desk, file: Path) -> None:
    asked = {"arguments": {"path": str(file)}, "touches": (str(file),)}
    desk.ask("read", file.read_text, **asked)

    other = RunInfo(run_id="run-2", agent="agent", settings=Settings())
    desk.ask("read", file.read_text, run=other, **asked)

    assert desk.executed["read"] == 2


def test_a_write_in_another_run_is_seen(desk: Desk) -> None:
    state = {"stock": "3"}
    desk.ask("stock", lambda: state["stock"], touches=("stock",))

    other = RunInfo(run_id="run-2", agent="agent", settings=Settings())
    desk.ask("sell", lambda: state.update(stock="2"), effect=Effect.WRITE, touches=("stock",), run=other)

    assert desk.ask("stock", lambda: state["stock"], touches=("stock",)) == "2"


def test_an_unrelated_write_spares_an_answer(desk: Desk, file: Path) -> None:
    desk.read(file)

    desk.write(file.with_name("b.txt"), "beta")

    assert desk.read(file) == "alpha"
    assert desk.executed["read"] == 1


def test_a_write_that_does_not_say_where_ends_every_answer(desk: Desk) -> None:
    desk.ask("stock", lambda: "3", touches=("stock",))

    desk.ask("import", lambda: None, effect=Effect.WRITE)

    assert desk.ask("stock", lambda: "4", touches=("stock",)) == "4"


@pytest.mark.parametrize(("written", "read"), [("src", "src/a.py"), ("src/a.py", "src"), ("src/a/b", "src")])
def test_a_write_reaches_what_lies_above_and_below(desk: Desk, written: str, read: str) -> None:
    desk.ask("look", lambda: "before", touches=(read,))

    desk.ask("put", lambda: None, effect=Effect.WRITE, touches=(written,))

    assert desk.ask("look", lambda: "after", touches=(read,)) == "after"


def test_a_failed_write_may_have_written(desk: Desk) -> None:
    state = {"stock": "3"}
    desk.ask("stock", lambda: state["stock"], touches=("stock",))

    def half() -> None:
        state["stock"] = "2"
        raise TimeoutError

    with pytest.raises(TimeoutError):
        desk.ask("sell", half, effect=Effect.WRITE, touches=("stock",))

    assert desk.ask("stock", lambda: state["stock"], touches=("stock",)) == "2"


def test_a_file_made_by_the_kernel_is_compared_by_content(desk: Desk) -> None:
    desk.file_time.ahead_s = 60
    uptime = Path("/proc/uptime")
    if not uptime.exists():
        pytest.skip("needs /proc")
    first = desk.read(uptime)

    while uptime.read_text() == first:
        pass

    assert desk.read(uptime) != first


def test_a_pipe_is_never_answered_from_the_cache(desk: Desk, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    asked = {"touches": (str(pipe),)}

    desk.ask("read", lambda: "one", **asked)
    assert desk.ask("read", lambda: "two", **asked) == "two"
    assert desk.told["dedup uncacheable"] == 2
