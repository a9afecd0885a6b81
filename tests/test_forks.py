"""What a forked child of a guarded program can rely on."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import otel_agentguard
from otel_agentguard import AgentGuard, CallBlocked, RunAborted, forks, install, message, run, tool
from otel_agentguard.config import Settings
from otel_agentguard.dedup.dedup import make_dedup
from otel_agentguard.embedders import CallableEmbedder
from otel_agentguard.events import Effect
from otel_agentguard.protocols import RunInfo
from otel_agentguard.stores.notes_memory import MemoryNotes
from otel_agentguard.testing import RecordingSink, tool_call

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

PACKAGE = Path(otel_agentguard.__file__).parent
RENEWED_OTHERWISE = ("effects", "stores", "cli", "forks.py", "testing.py", "outofband.py", "dedup/patience.py")


@tool(effect=Effect.READ)
def look(word: str) -> str:
    return f"the same for {word}"


@tool(effect=Effect.SIDE_EFFECT)
def send(to: str) -> str:
    return f"sent to {to}"


def succeeds(work: Callable[[], bool]) -> bool:
    """Whether a forked child does this, within twenty seconds."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def guard() -> Iterator[AgentGuard]:
    with install(sinks=[RecordingSink()]) as guard:
        yield guard


@contextlib.contextmanager
def every_lock_held() -> Iterator[None]:
    """All locks of the guard are taken, as they may be by threads that do not go on in a child."""
    taken = [lock for known in forks._locks.copy() if (lock := known()) is not None and lock.acquire(blocking=False)]
    yield
    for lock in taken:
        lock.release()


def test_a_child_can_begin_runs_whatever_other_threads_were_doing(guard: AgentGuard) -> None:
    with run("earlier"):
        look("x")
        send("bob")

    def work() -> bool:
        with run("child", agent="coder") as r:
            r.turn("user", text="go on")
            message("hello", agent="coder")
            r.remember("the lamp is broken", key="lamp")
            r.check_plan([{"tool": "look", "arguments": {"word": "x"}}])
            return look("x") == "the same for x" and send("eve") == "sent to eve"

    with every_lock_held():
        assert succeeds(work)


def test_a_child_goes_on_inside_the_run_that_it_was_forked_in(guard: AgentGuard) -> None:
    with run("r") as r:
        for _ in range(4):
            look("x")

        def work() -> bool:
            with pytest.raises(CallBlocked):
                look("x")
            return r.run_id == "r"

        with every_lock_held():
            assert succeeds(work)
        assert guard.engine.runs()[0].step == 4


def test_a_child_can_leave_the_run_that_it_was_forked_in(guard: AgentGuard) -> None:
    def work() -> bool:
        entered.__exit__(None, None, None)
        return guard.engine.runs() == []

    with run("r") as entered:
        assert succeeds(work)
        assert len(guard.engine.runs()) == 1


def test_a_run_that_was_stopped_is_stopped_in_the_child_too(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run("r"):
        for _ in range(7):
            with contextlib.suppress(CallBlocked):
                look("x")

    def work() -> bool:
        with pytest.raises(RunAborted), run("r"):
            pass
        return True

    assert succeeds(work)


def test_a_child_can_install_and_shut_down_while_its_parent_was_installing() -> None:
    def work() -> bool:
        with install(mode="observe") as guard, run("r"):
            return look("x") == "the same for x" and guard.guard is not None

    with every_lock_held():
        assert succeeds(work)


def test_a_child_is_told_meanings_that_its_parent_was_looking_for() -> None:
    asked, answer = threading.Event(), threading.Event()

    def vectors(texts: list[str]) -> list[list[float]]:
        asked.set()
        answer.wait(20)
        return [[1.0] for _ in texts]

    embedder = CallableEmbedder(vectors)
    embedder.embed(["a lamp"])
    assert asked.wait(20)

    def work() -> bool:
        answer.set()
        embedder.embed(["a lamp"])
        return embedder.worker.idle() and embedder.embed(["a lamp"]) != [None]

    assert succeeds(work)
    answer.set()
    embedder.close()


def test_a_child_keeps_its_own_calls_and_leaves_those_of_its_parent_to_it() -> None:
    store = MemoryNotes()
    dedup = make_dedup(Settings(), store=store, key=b"k", timeout_s=10)
    info = RunInfo(run_id="r", agent="a", settings=Settings())
    writing, go_on = threading.Event(), threading.Event()
    record = store.record

    def slowly(*told: object) -> None:
        writing.set()
        go_on.wait(20)
        record(*told)  # type: ignore[arg-type]

    store.record = slowly  # type: ignore[method-assign]
    for number in range(2):
        dedup.stepped(info, tool_call("look", {"n": number}, "x", step=number + 1, effect=Effect.READ))
        assert writing.wait(20)

    def work() -> bool:
        go_on.set()
        store.record = record  # type: ignore[method-assign]
        dedup.stepped(info, tool_call("see", {"n": 9}, "x", step=3, effect=Effect.READ))
        dedup.close()
        audience = next(iter({key[0] for key in store._calls}))
        return [len(store.calls(audience, tool=name)) for name in ("look", "see")] == [0, 1]

    assert succeeds(work)
    go_on.set()
    dedup.close()


def test_every_lock_of_the_package_is_one_that_a_child_can_take() -> None:
    found = []
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        if name.startswith(RENEWED_OTHERWISE):
            continue
        calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        made = [one for one in calls if ast.unparse(one.func) in ("threading.Lock", "threading.RLock")]
        found += [f"{name}:{one.lineno}" for one in made]

    assert found == []


def test_locks_that_nobody_uses_any_more_are_forgotten() -> None:
    before = len(forks._locks)

    kept = [forks.new_lock() for _ in range(10)]
    with_them = len(forks._locks)
    del kept

    assert (with_them - before, len(forks._locks) - before) == (10, 0)
