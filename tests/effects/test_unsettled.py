"""The count of unsettled effects: true after a restart, and never a wait for a store that is down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from otel_agentguard import AgentGuard, Effect, install, run, tool
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ledger import State
from otel_agentguard.effects.opening import LateExecutor
from otel_agentguard.effects.unsettled import Unsettled
from otel_agentguard.errors import StoreError
from otel_agentguard.stores import open_ledger
from otel_agentguard.stores.memory import MemoryLedger
from otel_agentguard.testing import ManualClock


class Ledger(MemoryLedger):
    """Answers when it is let, with what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.counts: dict[str, int] = {}
        self.trouble: Exception | None = None
        self.asked = 0

    def unsettled(self) -> Mapping[str, int]:
        self.asked += 1
        assert self.gate.wait(30)
        if self.trouble is not None:
            raise self.trouble
        return dict(self.counts)


class Desk:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.clock = ManualClock()
        self.told: list[Mapping[str, int]] = []
        self.failures: list[str] = []
        self.unsettled = Unsettled(
            LateExecutor("test", lambda: EffectExecutor(self.ledger)),
            self.told.append,
            failed=lambda where, _: self.failures.append(where),
            every_s=10,
            wait_s=30,
            now_s=self.clock,
        )


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.ledger.gate.set()
    desk.unsettled.close()


def test_all_counts_are_told_together(desk: Desk) -> None:
    desk.ledger.counts = {"mail": 2, "pay": 1}
    desk.unsettled.look()
    desk.ledger.counts = {"charge": 1}
    desk.clock.advance(10)

    desk.unsettled.look()

    assert desk.told == [{"mail": 2, "pay": 1}, {"charge": 1}]


def test_the_store_is_asked_now_and_then_and_not_for_each_page(desk: Desk) -> None:
    for _ in range(5):
        desk.unsettled.look()
    assert desk.ledger.asked == 1

    desk.clock.advance(10)
    desk.unsettled.look()

    assert desk.ledger.asked == 2


def test_a_store_that_hangs_keeps_no_reader_and_is_not_asked_again_meanwhile(desk: Desk) -> None:
    desk.ledger.counts = {"mail": 2}
    desk.unsettled.look()
    desk.ledger.gate.clear()
    desk.unsettled._wait_s = 0.01
    desk.clock.advance(10)

    for _ in range(3):
        desk.unsettled.look()
        desk.clock.advance(10)

    assert desk.told == [{"mail": 2}]
    assert desk.ledger.asked <= 2


def test_whoever_only_asks_never_waits_and_the_answer_is_told_when_it_comes(desk: Desk) -> None:
    desk.ledger.counts = {"mail": 2}
    desk.ledger.gate.clear()

    for _ in range(3):
        desk.unsettled.ask()
        desk.clock.advance(10)
    unanswered = list(desk.told)
    desk.ledger.gate.set()

    assert desk.unsettled._worker.idle()
    assert (unanswered, desk.told) == ([], [{"mail": 2}])


def test_a_reader_waits_for_what_somebody_else_has_asked(desk: Desk) -> None:
    desk.ledger.counts = {"mail": 2}
    desk.ledger.gate.clear()
    desk.unsettled.ask()
    threading.Timer(0.05, desk.ledger.gate.set).start()

    desk.unsettled.look()

    assert desk.told == [{"mail": 2}]
    assert desk.ledger.asked == 1


def test_a_reader_does_not_wait_where_no_thread_can_be_started(desk: Desk, no_threads: Callable[[], None]) -> None:
    desk.ledger.counts = {"mail": 2}

    desk.unsettled.look()
    no_threads()
    desk.clock.advance(10)
    desk.unsettled.look()

    assert desk.told == [{"mail": 2}]


def test_a_store_that_fails_leaves_the_last_count_and_is_counted(desk: Desk) -> None:
    desk.ledger.counts = {"mail": 2}
    desk.unsettled.look()
    desk.ledger.trouble = StoreError("the server is away")
    desk.clock.advance(10)

    desk.unsettled.look()

    assert desk.told == [{"mail": 2}]
    assert desk.unsettled._worker.idle()
    assert desk.failures == ["store"]


def shown(guard: AgentGuard) -> float | None:
    return guard.registry.get_sample_value("agentguard_side_effects_unsettled", {"tool": "mail"})


def test_an_effect_that_nobody_settled_is_shown_after_a_restart_until_it_is_settled(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agentguard.db"

    @tool(effect=Effect.SIDE_EFFECT)
    def mail() -> None:
        raise TimeoutError

    with install(store=url) as guard, run("r"):
        with pytest.raises(TimeoutError):
            mail()
        assert shown(guard) == 1

    with install(store=url) as guard:
        assert shown(guard) == 1

    ledger = open_ledger(url)
    [record] = ledger.list(state=State.UNKNOWN)
    ledger.resolve(record, applied=True)
    ledger.close()
    with install(store=url) as guard:
        assert shown(guard) is None


def test_a_page_is_whole_while_the_store_is_down() -> None:
    with install(store="sqlite:////nonexistent/folder/effects.db") as guard:
        assert shown(guard) is None
        assert guard.registry.get_sample_value("agentguard_active_runs") == 0


def test_the_end_of_a_run_waits_for_no_answer_where_processes_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    assert Unsettled.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Unsettled.__init__.__kwdefaults__, "wait_s", 30.0)
    asked, gate = threading.Event(), threading.Event()

    def unsettled(_: object) -> Mapping[str, int]:
        asked.set()
        assert gate.wait(30)
        return {"mail": 2}

    monkeypatch.setattr(MemoryLedger, "unsettled", unsettled)
    with install() as guard:
        began = time.monotonic()
        with run("r"):
            pass
        ended = time.monotonic()
        assert asked.wait(10)
        gate.set()

        assert ended - began < 10
        assert shown(guard) == 2
