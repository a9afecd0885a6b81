"""An agent whose hand-written loop survives every error of its tools is stopped all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from otel_agentguard import AgentGuard, CallBlocked, RunAborted, RunStopped, install, model_call, run, tool
from otel_agentguard.current import scope
from otel_agentguard.testing import RecordingSink

ROUNDS = 200
executed: list[str] = []
executed_after_stop: list[str] = []


def body(word: str) -> str:
    """Notes that it ran, and whether it should not have."""
    here = scope().run
    if here is not None and here.stop_reason() is not None:
        executed_after_stop.append(word)
    executed.append(word)
    return f"the same for {word}"


@tool
def look(word: str) -> str:
    return body(word)


@tool
async def look_later(word: str) -> str:
    await asyncio.sleep(0)
    return body(word)


@tool
def look_line_by_line(word: str) -> Iterator[str]:
    yield body(word)


@tool
async def look_line_by_line_later(word: str) -> AsyncIterator[str]:
    await asyncio.sleep(0)
    yield body(word)


@pytest.fixture(autouse=True)
def nothing_runs_after_a_stop(sink: RecordingSink) -> Iterator[None]:
    executed.clear()
    executed_after_stop.clear()
    yield
    assert executed_after_stop == []
    assert sink.executed_after == []


def loop(word: str = "x") -> None:
    """Call a tool on and on, whatever it raises."""
    for _ in range(ROUNDS):
        try:
            look(word)
        except Exception as exc:
            assert isinstance(exc, CallBlocked)


async def loop_later(word: str = "x") -> None:
    for _ in range(ROUNDS):
        try:
            await look_later(word)
        except Exception as exc:
            assert isinstance(exc, CallBlocked)


def test_a_sync_loop_is_stopped(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted) as ended, run("r"):
        loop()

    assert len(executed) == 4
    assert ended.value.outcome == "stopped_by_guard"
    assert ended.value.finding is not None
    assert ended.value.finding.evidence == (1, 2, 3, 4, 5, 6, 7)
    assert ended.value.run_id == "r"


async def test_an_async_loop_is_stopped(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted):
        async with run("r"):
            await loop_later()

    assert len(executed) == 4


def test_a_loop_over_a_generator_is_stopped(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run("r"):
        for _ in range(ROUNDS):
            try:
                list(look_line_by_line("x"))
            except Exception as exc:
                assert isinstance(exc, CallBlocked)

    assert len(executed) == 4


async def test_a_loop_over_an_async_generator_is_stopped(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted):
        async with run("r"):
            for _ in range(ROUNDS):
                try:
                    async for _line in look_line_by_line_later("x"):
                        pass
                except Exception as exc:
                    assert isinstance(exc, CallBlocked)

    assert len(executed) == 4


async def test_a_loop_in_a_task_group_is_stopped(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted) as ended:
        async with run("r"):
            for _ in range(ROUNDS):
                async with asyncio.TaskGroup() as group:
                    for _ in range(3):
                        group.create_task(swallowing(look_later("x")))

    assert isinstance(ended.value.__cause__, BaseExceptionGroup)
    assert len(executed) <= 3 * 5


async def swallowing(call: Any) -> None:
    try:
        await call
    except Exception as exc:
        assert isinstance(exc, CallBlocked)


async def test_a_run_inside_of_a_task_group_ends_as_aborted_there(guard: AgentGuard) -> None:
    async def one_run() -> None:
        async with run("r"):
            await loop_later()

    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one_run())

    assert [type(one) for one in group.value.exceptions] == [RunAborted]


async def test_a_loop_whose_gather_returns_exceptions_is_stopped(guard: AgentGuard) -> None:
    swallowed: list[object] = []

    with pytest.raises(RunAborted) as ended:
        async with run("r"):
            for _ in range(8):
                swallowed += await asyncio.gather(look_later("x"), look_later("x"), return_exceptions=True)

    assert any(isinstance(one, RunStopped) for one in swallowed)
    assert ended.value.__cause__ is None
    assert len(executed) <= 2 * 5


async def test_the_next_model_call_raises_where_gather_swallowed_the_stop(guard: AgentGuard) -> None:
    requests = 0

    with pytest.raises(RunAborted):
        async with run("r"):
            for _ in range(ROUNDS):
                async with model_call(model="m", messages=[requests]) as call:
                    requests += 1
                    call.record(answer=f"call look for {requests} {'abcdefghi'[requests % 9]}")
                await asyncio.gather(look_later("x"), return_exceptions=True)

    assert requests == 7


async def test_a_loop_through_to_thread_is_stopped(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted):
        async with run("r"):
            for _ in range(ROUNDS):
                try:
                    await asyncio.to_thread(look, "x")
                except Exception as exc:
                    assert isinstance(exc, CallBlocked)

    assert len(executed) == 4


def test_a_loop_through_a_thread_pool_is_stopped(guard: AgentGuard) -> None:
    with ThreadPoolExecutor(4) as pool, pytest.raises(RunAborted), run("r") as r:
        for _ in range(ROUNDS):
            try:
                pool.submit(r.bind(look), "x").result()
            except Exception as exc:
                assert isinstance(exc, CallBlocked)

    assert len(executed) == 4


def test_a_thread_pool_that_swallows_the_stop_does_not_save_the_run(guard: AgentGuard) -> None:
    with ThreadPoolExecutor(4) as pool:
        with pytest.raises(RunAborted), run("r") as r:
            futures = [pool.submit(r.bind(look), "x") for _ in range(ROUNDS)]
            ended = [future.exception() for future in futures]

        assert any(isinstance(one, RunStopped) for one in ended)


def test_a_loop_in_a_bare_thread_is_stopped_through_its_handle(guard: AgentGuard) -> None:
    arrived: list[BaseException] = []

    def worker(handle: Any) -> None:
        with handle.attach():
            try:
                loop()
            except BaseException as exc:
                arrived.append(exc)

    with pytest.raises(RunAborted), run("r") as r:
        thread = threading.Thread(target=worker, args=(r,))
        thread.start()
        thread.join()

    assert [type(one) for one in arrived] == [RunStopped]
    assert len(executed) == 4


def test_many_threads_of_one_run_start_no_body_after_the_stop(guard: AgentGuard) -> None:
    ready = threading.Barrier(8)

    def worker() -> None:
        ready.wait()
        loop()

    with ThreadPoolExecutor(8) as pool, pytest.raises(RunAborted), run("r") as r:
        futures = [pool.submit(r.bind(worker)) for _ in range(8)]
        ended = [future.exception() for future in futures]
        assert {type(one) for one in ended} == {RunStopped}


def in_a_process(ending: str) -> None:
    with install(metrics_port=None):
        if ending == "blocked":
            with run("r"):
                for _ in range(5):
                    look("x")
        with run("r"):
            loop()


def test_a_stop_in_a_process_pool_arrives_as_it_was() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        stopped = pool.submit(in_a_process, "stopped").exception()
        blocked = pool.submit(in_a_process, "blocked").exception()

    assert isinstance(stopped, RunAborted)
    assert stopped.run_id == "r"
    assert stopped.finding is not None
    assert stopped.finding.count == 7
    assert isinstance(blocked, CallBlocked)
    assert blocked.earlier_result == "the same for x"


def test_two_runs_at_once_are_told_apart(guard: AgentGuard) -> None:
    def healthy(handle: Any) -> list[str]:
        with run(handle):
            return [look(f"page {number}") for number in range(20)]

    def looping() -> None:
        with run("bad"):
            loop()

    with ThreadPoolExecutor(2) as pool:
        bad = pool.submit(looping)
        good = pool.submit(healthy, "good")

    assert isinstance(bad.exception(), RunAborted)
    assert len(good.result()) == 20
