"""Equal calls at the same time share one execution."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dedup.desk import Desk

from otel_agentguard.dedup.rules import NotKept
from otel_agentguard.events import Effect

THREADS = 32
COROUTINES = 200


class Gate:
    """A body that stays inside until it is let go."""

    def __init__(self, result: object = None) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.result = result

    def __call__(self) -> object:
        self.entered.set()
        assert self.open.wait(20)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def together(count: int, call: Callable[[], Any], gate: Gate, joined: Callable[[], int]) -> list[Any]:
    """Results, or errors, of `count` threads that all call before the gate opens."""
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(call) for _ in range(count)]
        until(lambda: joined() == count - 1)
        gate.open.set()
        return [future.exception() or future.result() for future in futures]


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def until_async(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


def joined(desk: Desk) -> int:
    known = desk.answers._runs.get("run-1")
    return 0 if known is None else sum(flight.joined for flight in known.cache.flights._flights.values())


def test_32_threads_on_one_slow_read_execute_it_once(desk: Desk) -> None:
    gate = Gate({"rows": [1, 2]})

    results = together(THREADS, lambda: desk.ask("query", gate, touches=("rows",)), gate, lambda: joined(desk))

    assert results == [{"rows": [1, 2]}] * THREADS
    assert desk.executed["query"] == 1
    assert desk.told["dedup coalesced"] == THREADS - 1


def test_those_who_share_get_objects_of_their_own(desk: Desk) -> None:
    gate = Gate({"rows": [1, 2]})
    results = together(4, lambda: desk.ask("query", gate, touches=("rows",)), gate, lambda: joined(desk))

    for result in results:
        result["rows"].append(3)

    assert all(result == {"rows": [1, 2, 3]} for result in results)
    assert desk.ask("query", gate, touches=("rows",)) == {"rows": [1, 2]}


def test_a_read_that_nothing_says_how_long_to_keep_is_shared_all_the_same(desk: Desk) -> None:
    gate = Gate("12:00")

    results = together(THREADS, lambda: desk.ask("clock", gate), gate, lambda: joined(desk))

    assert results == ["12:00"] * THREADS
    assert desk.executed["clock"] == 1
    assert desk.ask("clock", lambda: "12:01") == "12:01"


def test_an_error_of_the_one_that_executes_is_shared_and_not_kept(desk: Desk) -> None:
    gate = Gate(ConnectionError("down"))

    results = together(THREADS, lambda: desk.ask("query", gate, touches=("rows",)), gate, lambda: joined(desk))

    assert all(isinstance(error, ConnectionError) and str(error) == "down" for error in results)
    assert len({id(error) for error in results}) == THREADS
    assert desk.executed["query"] == 1
    assert desk.ask("query", lambda: "up", touches=("rows",)) == "up"


def test_an_interrupted_leader_lets_another_one_lead(desk: Desk) -> None:
    first, second = Gate(KeyboardInterrupt()), Gate("answer")

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            desk.ask("query", first)

    leader = threading.Thread(target=interrupted)
    leader.start()
    assert first.entered.wait(20)
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(desk.ask, "query", second) for _ in range(3)]
        until(lambda: joined(desk) == 3)
        first.open.set()
        assert second.entered.wait(20)
        until(lambda: joined(desk) == 2)
        second.open.set()

        assert [other.result() for other in others] == ["answer"] * 3
    leader.join()
    assert desk.executed["query"] == 2


@pytest.mark.parametrize("result", [iter([1, 2]), threading.Lock(), object()])
def test_what_cannot_be_shared_is_executed_by_each(desk: Desk, result: object) -> None:
    gate = Gate(result)

    together(4, lambda: desk.ask("query", gate, touches=("rows",)), gate, lambda: joined(desk))

    assert desk.executed["query"] == 4


def test_those_who_wait_for_a_result_that_is_not_kept_execute_too(desk: Desk) -> None:
    gate = Gate(NotKept())

    results = together(4, lambda: desk.ask("query", gate, touches=("rows",)), gate, lambda: joined(desk))

    assert [type(result) for result in results] == [NotKept] * 4
    assert desk.executed["query"] == 4


def test_a_call_after_a_write_does_not_share_what_began_before_it(desk: Desk) -> None:
    state = {"stock": "3"}
    read, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        seen = state["stock"]
        read.set()
        assert go_on.wait(20)
        return seen

    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(desk.ask, "stock", slow, touches=("stock",))
        assert read.wait(20)
        desk.ask("sell", lambda: state.update(stock="2"), effect=Effect.WRITE, touches=("stock",))

        assert desk.ask("stock", lambda: state["stock"], touches=("stock",)) == "2"
        go_on.set()
        assert early.result() == "3"
    assert desk.ask("stock", lambda: state["stock"], touches=("stock",)) == "2"


def test_a_call_after_an_external_edit_does_not_share_what_began_before_it(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    read, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        seen = file.read_text()
        read.set()
        assert go_on.wait(20)
        return seen

    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(desk.ask, "read", slow, touches=(str(file),))
        assert read.wait(20)
        file.write_text("two")

        assert desk.ask("read", file.read_text, touches=(str(file),)) == "two"
        go_on.set()
        assert early.result() == "one"


def test_a_write_during_the_execution_keeps_the_others_from_sharing_it(desk: Desk) -> None:
    state = {"stock": "3"}
    gate, seen = Gate(), []

    def body() -> str:
        value = state["stock"]
        seen.append(value)
        if len(seen) == 1:
            gate()
        return value

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(desk.ask, "stock", body, touches=("stock",))
        assert gate.entered.wait(20)
        follower = pool.submit(desk.ask, "stock", body, touches=("stock",))
        until(lambda: joined(desk) == 1)
        desk.ask("sell", lambda: state.update(stock="2"), effect=Effect.WRITE, touches=("stock",))
        gate.open.set()

        assert leader.result() == "3"
        assert follower.result() == "2"


def test_a_tool_that_calls_itself_does_not_wait_for_itself(desk: Desk) -> None:
    def body(depth: int) -> int:
        return 0 if depth == 3 else 1 + int(desk.ask("deep", lambda: body(depth + 1), touches=("x",)))

    assert desk.ask("deep", lambda: body(0), touches=("x",)) == 3


def test_a_coroutine_that_calls_itself_does_not_wait_for_itself(desk: Desk) -> None:
    async def body(depth: int) -> int:
        return 0 if depth == 3 else 1 + int(await desk.ask_async("deep", lambda: body(depth + 1), touches=("x",)))

    async def main() -> int:
        async with asyncio.timeout(5):
            return int(await desk.ask_async("deep", lambda: body(0), touches=("x",)))

    assert asyncio.run(main()) == 3


def test_a_call_that_waits_too_long_executes_by_itself(desk: Desk) -> None:
    desk.answers._max_wait_s = 0.02
    gate = Gate("late")
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(desk.ask, "query", gate, touches=("rows",))
        assert gate.entered.wait(20)

        assert desk.ask("query", lambda: "own", touches=("rows",)) == "own"
        gate.open.set()
        assert leader.result() == "late"


def test_a_call_for_a_fresh_answer_shares_no_earlier_execution(desk: Desk) -> None:
    gate = Gate("early")
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(desk.ask, "query", gate, touches=("rows",))
        assert gate.entered.wait(20)

        assert desk.ask("query", lambda: "fresh", touches=("rows",), fresh=True) == "fresh"
        gate.open.set()
        leader.result()


def test_200_coroutines_on_one_slow_read_execute_it_once(desk: Desk) -> None:
    async def body() -> list[int]:
        await opened.wait()
        return [1]

    async def main() -> list[Any]:
        calls = [asyncio.create_task(desk.ask_async("query", body, touches=("rows",))) for _ in range(COROUTINES)]
        await until_async(lambda: joined(desk) == COROUTINES - 1)
        opened.set()
        return await asyncio.gather(*calls)

    opened = asyncio.Event()
    results = asyncio.run(main())

    assert results == [[1]] * COROUTINES
    assert len({id(result) for result in results}) == COROUTINES
    assert desk.executed["query"] == 1


def test_an_error_of_the_coroutine_that_executes_is_not_kept(desk: Desk) -> None:
    async def down() -> str:
        await asyncio.sleep(0.01)
        raise ConnectionError("down")

    async def up() -> str:
        return "up"

    async def main() -> tuple[list[Any], str]:
        calls = [desk.ask_async("query", down, touches=("rows",)) for _ in range(COROUTINES)]
        return await asyncio.gather(*calls, return_exceptions=True), await desk.ask_async(
            "query", up, touches=("rows",)
        )

    errors, after = asyncio.run(main())

    assert {type(error) for error in errors} == {ConnectionError}
    assert after == "up"
    assert desk.executed["query"] == 2


def test_a_cancelled_coroutine_lets_another_one_lead(desk: Desk) -> None:
    started = asyncio.Event()

    async def endless() -> str:
        started.set()
        await asyncio.sleep(60)
        return "never"

    async def quick() -> str:
        return "answer"

    async def main() -> list[str]:
        leader = asyncio.create_task(desk.ask_async("query", endless))
        await started.wait()
        others = [asyncio.create_task(desk.ask_async("query", quick)) for _ in range(5)]
        await until_async(lambda: joined(desk) == 5)
        leader.cancel()
        return await asyncio.gather(*others)

    assert asyncio.run(main()) == ["answer"] * 5


def test_a_cancelled_follower_leaves_the_others_alone(desk: Desk) -> None:
    opened = asyncio.Event()

    async def body() -> str:
        await opened.wait()
        return "answer"

    async def main() -> list[Any]:
        calls = [asyncio.create_task(desk.ask_async("query", body)) for _ in range(4)]
        await until_async(lambda: joined(desk) == 3)
        calls[2].cancel()
        await asyncio.sleep(0)
        opened.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(main())

    assert [result for result in results if isinstance(result, str)] == ["answer"] * 3
    assert desk.executed["query"] == 1


def test_a_plain_call_never_blocks_the_event_loop_that_the_leader_needs(desk: Desk) -> None:
    async def main() -> tuple[str, str]:
        entered = threading.Event()
        loop = asyncio.get_running_loop()

        def needs_the_loop() -> str:
            entered.set()
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loop).result(20)
            return "from the thread"

        leader = loop.run_in_executor(None, lambda: desk.ask("query", needs_the_loop, touches=("rows",)))
        await until_async(entered.is_set)
        here = desk.ask("query", lambda: "from the loop", touches=("rows",))
        return here, await leader

    assert asyncio.run(main()) == ("from the loop", "from the thread")
