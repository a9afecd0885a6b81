"""Opening a ledger whose store hangs, fails or comes late: nobody waits long, nothing happens unrecorded."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.opening import LateExecutor
from otel_agentguard.errors import MissingExtraError, StoreError
from otel_agentguard.outofband import Breaker
from otel_agentguard.stores.memory import MemoryLedger
from otel_agentguard.testing import ManualClock

AT_THE_END = """
import asyncio, atexit, sys, threading
from otel_agentguard import Effect, install, tool

install(store=sys.argv[1])

@tool(effect=Effect.SIDE_EFFECT)
def mail():
    return "sent"

@tool(effect=Effect.SIDE_EFFECT)
async def mail_later():
    return "sent later"

def effects():
    for _ in range(2):
        print(mail(), asyncio.run(mail_later()))

def after_the_main_thread():
    threading.main_thread().join()
    effects()

if sys.argv[2] == "atexit":
    atexit.register(effects)
else:
    threading.Thread(target=after_the_main_thread).start()
"""


class Ledger(MemoryLedger):
    closed = False

    def close(self) -> None:
        self.closed = True


class Store:
    """Opens when it is let, and fails while it has trouble."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = threading.Semaphore(0)
        self.trouble: BaseException | None = None
        self.attempts = 0
        self.ledger = Ledger()
        self.told: list[str] = []
        self.clock = ManualClock()

    def open(self) -> EffectExecutor:
        self.attempts += 1
        self.asked.release()
        assert self.gate.wait(30)
        if self.trouble is not None:
            raise self.trouble
        return EffectExecutor(self.ledger)

    def late(self, patience_s: float = 30.0, *, at_once: bool = False) -> LateExecutor:
        return LateExecutor(
            "test",
            self.open,
            at_once=at_once,
            failed=lambda exc: self.told.append(str(exc)),
            patience_s=patience_s,
            breaker=Breaker(failures=1, pause_s=1.0, now_s=self.clock),
        )


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.gate.set()


def test_an_executor_is_opened_once(store: Store) -> None:
    store.gate.set()
    late = store.late()

    assert late.ready() is late.ready()
    assert asyncio.run(late.ready_async()) is late.ready()
    assert store.attempts == 1


def test_callers_that_come_at_once_share_one_attempt(store: Store) -> None:
    late = store.late()
    with ThreadPoolExecutor(5) as pool:
        callers = [pool.submit(late.ready) for _ in range(5)]
        store.gate.set()

        assert len({caller.result(30) for caller in callers}) == 1
    assert store.attempts == 1


def test_a_store_that_hangs_keeps_nobody_for_longer_than_the_patience(store: Store) -> None:
    late = store.late(patience_s=0.05)

    for _ in range(3):
        with pytest.raises(StoreError, match="no side effect happens until it does"):
            late.ready()
        with pytest.raises(StoreError, match="no side effect happens until it does"):
            asyncio.run(late.ready_async())

    assert store.attempts == 1
    assert len(store.told) == 1


def test_a_store_that_answers_late_is_used_from_then_on(store: Store) -> None:
    late = store.late(patience_s=0.0)
    with pytest.raises(StoreError):
        late.ready()

    store.gate.set()
    opened = late._attempt
    assert opened is not None
    opened.outcome.result(30)

    assert late.ready().ledger is store.ledger
    assert store.attempts == 1


async def opened_beside_other_work(late: LateExecutor, store: Store) -> EffectExecutor:
    opening = asyncio.create_task(late.ready_async())
    await asyncio.sleep(0)
    assert not opening.done()
    store.gate.set()
    return await opening


def test_the_event_loop_goes_on_while_the_store_is_opened(store: Store) -> None:
    opened = asyncio.run(opened_beside_other_work(store.late(), store))

    assert opened.ledger is store.ledger


def test_a_caller_that_is_cancelled_leaves_the_attempt_to_the_others(store: Store) -> None:
    late = store.late()

    async def cancelled_early() -> EffectExecutor:
        first, second = asyncio.create_task(late.ready_async()), asyncio.create_task(late.ready_async())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        store.gate.set()
        return await second

    assert asyncio.run(cancelled_early()).ledger is store.ledger
    assert store.attempts == 1


def test_a_store_that_failed_is_left_alone_for_a_moment_and_then_asked_again(store: Store) -> None:
    store.gate.set()
    store.trouble = StoreError("the server is away")
    late = store.late()
    with pytest.raises(StoreError, match="the server is away"):
        late.ready()
    store.trouble = None

    with pytest.raises(StoreError, match=r"the server is away; no side effect happens .* tried again"):
        late.ready()
    assert store.attempts == 1
    assert store.told == ["the server is away"]

    store.clock.advance(1.0)
    assert late.ready().ledger is store.ledger


def test_callers_that_fail_together_each_get_an_error_of_their_own(store: Store) -> None:
    store.trouble = StoreError("the server is away")
    late = store.late()
    with ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(late.ready) for _ in range(3)]
        store.gate.set()

        errors = {id(caller.exception(30)) for caller in callers}

    assert len(errors) == 3


def test_a_driver_that_is_missing_is_told_as_such(store: Store) -> None:
    store.gate.set()
    store.trouble = MissingExtraError("postgres")

    with pytest.raises(MissingExtraError, match="pip install"):
        store.late().ready()


def test_what_a_driver_raises_by_mistake_keeps_the_effect_from_happening_too(store: Store) -> None:
    store.gate.set()
    store.trouble = RuntimeError("a bug in the driver")

    with pytest.raises(StoreError, match="a bug in the driver"):
        store.late().ready()


def test_whoever_is_interrupted_while_opening_keeps_nobody_else_from_it(store: Store) -> None:
    store.gate.set()
    store.trouble = KeyboardInterrupt()
    late = store.late(at_once=True)
    with pytest.raises(KeyboardInterrupt):
        late.ready()
    store.trouble = None
    store.clock.advance(1.0)

    assert late.ready().ledger is store.ledger


def test_a_store_that_opens_at_once_needs_no_thread(store: Store, no_threads: Callable[[], None]) -> None:
    store.gate.set()
    late, other = store.late(at_once=True), store.late(at_once=True)

    assert late.ready().ledger is store.ledger
    assert asyncio.run(other.ready_async()).ledger is store.ledger
    assert store.told == []


def test_callers_that_come_at_once_open_such_a_store_once(store: Store) -> None:
    late = store.late(at_once=True)
    with ThreadPoolExecutor(5) as pool:
        callers = [pool.submit(late.ready) for _ in range(5)]
        assert store.asked.acquire(timeout=30)
        store.gate.set()

        assert len({caller.result(30) for caller in callers}) == 1
    assert store.attempts == 1


def test_a_thread_that_cannot_be_started_is_a_failure_like_any_other(
    store: Store, no_threads: Callable[[], None]
) -> None:
    store.gate.set()
    late = store.late()
    with pytest.raises(StoreError, match="cannot be opened: can't start new thread"):
        late.ready()
    with pytest.raises(StoreError, match="tried again in a moment"):
        asyncio.run(late.ready_async())
    assert len(store.told) == 1

    no_threads()
    store.clock.advance(1.0)

    assert late.ready().ledger is store.ledger


@pytest.mark.parametrize("moment", ["atexit", "worker"])
@pytest.mark.parametrize("url", ["memory://", "sqlite:///effects.db"])
def test_side_effects_happen_while_the_interpreter_ends(tmp_path: Path, url: str, moment: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_THE_END, url, moment], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert ended.stdout.splitlines() == ["sent sent later"] * 2, ended.stderr


def test_closing_closes_the_ledger_and_opens_none(store: Store) -> None:
    store.gate.set()
    used, unused = store.late(), store.late()
    used.ready()

    used.close()
    unused.close()

    assert store.ledger.closed
    with pytest.raises(StoreError, match="shut down"):
        unused.ready()


def test_what_opens_after_the_close_is_closed_at_once(store: Store) -> None:
    late = store.late(patience_s=0.0)
    with pytest.raises(StoreError):
        late.ready()
    late.close()

    opened = late._attempt
    assert opened is not None
    store.gate.set()
    opened.outcome.result(30)

    assert store.ledger.closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_the_attempt_of_its_parent(store: Store) -> None:
    late = store.late(patience_s=0.05)
    with pytest.raises(StoreError):
        late.ready()

    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.gate.set()
            late._patience_s = 30.0
            code = 0 if late.ready() is not None else 2
        finally:
            os._exit(code)

    assert os.waitpid(child, 0)[1] == 0
