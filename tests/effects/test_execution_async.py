"""Side-effect tools that are coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard.effects.calls import Applied, EffectCall, EffectSpec, RunEffects
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ledger import ClaimRequest, EffectRecord, State
from otel_agentguard.errors import CallBlocked, EffectInProgress, NotApplied
from otel_agentguard.stores import open_ledger
from otel_agentguard.stores.memory import MemoryLedger


class SlowLedger(MemoryLedger):
    """A ledger that takes its time, in the thread that asks."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()
        self.slow = 0.0

    def claim(self, request: ClaimRequest, *, over: EffectRecord | None = None) -> Any:
        self.threads.add(threading.current_thread().name)
        time.sleep(self.slow)
        return super().claim(request, over=over)

    def complete(self, claim: Any, result: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        time.sleep(self.slow)
        return super().complete(claim, result)


class Setup:
    def __init__(self) -> None:
        self.ledger = SlowLedger()
        self.executor = EffectExecutor(self.ledger)
        self.run = RunEffects(run_id="ticket-42")
        self.keys: list[str] = []
        self.body_s = 0.0
        self.trouble: BaseException | None = None
        self.started = asyncio.Event()

    def call(self, **given: Any) -> EffectCall:
        return self.run.call(EffectSpec(**{"tool": "charge", **given}), {"invoice": 7})

    async def body(self, key: str) -> str:
        self.keys.append(key)
        self.started.set()
        await asyncio.sleep(self.body_s)
        if self.trouble is not None:
            raise self.trouble
        return f"receipt {len(self.keys)}"

    async def charge(self, body: Callable[[str], Awaitable[object]] | None = None, **given: Any) -> Any:
        return await self.executor.run_async(self.call(**given), body or self.body)

    def state(self) -> State:
        return self.ledger.list()[0].state


@pytest.fixture
def here() -> Setup:
    return Setup()


async def settled(here: Setup) -> State:
    """The state once it is no longer started."""
    for _ in range(500):
        if here.state() is not State.STARTED:
            break
        await asyncio.sleep(0.01)
    return here.state()


def test_a_coroutine_runs_once_and_is_replayed(here: Setup) -> None:
    async def main() -> list[Any]:
        return [await here.charge(), await here.charge()]

    first, second = asyncio.run(main())

    assert (first.value, first.outcome) == ("receipt 1", "executed")
    assert (second.value, second.outcome) == ("receipt 1", "replayed")


def test_the_store_is_asked_in_a_thread_while_the_loop_goes_on(here: Setup) -> None:
    here.ledger.slow = 0.1
    ticks = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        await here.charge()
        ticking.cancel()

    asyncio.run(main())

    assert all(name.startswith("agentguard-store") for name in here.ledger.threads)
    assert len(ticks) > 5


def test_where_no_thread_can_be_started_the_caller_asks_the_store(here: Setup, no_threads: Callable[[], None]) -> None:
    answer = asyncio.run(here.charge())

    assert (answer.value, here.state()) == ("receipt 1", State.SUCCEEDED)
    assert here.ledger.threads == {threading.current_thread().name}


def test_what_the_caller_has_asked_is_not_asked_again_by_a_thread_that_comes_later(
    here: Setup, no_threads: Callable[[], None]
) -> None:
    claims = []
    claim = here.ledger.claim
    here.ledger.claim = lambda *given, **more: claims.append(1) or claim(*given, **more)  # type: ignore[method-assign,func-returns-value]

    async def main() -> list[Any]:
        first = await here.charge()
        no_threads()
        return [first, await here.charge(tool="refund")]

    answers = asyncio.run(main())
    here.executor.close()

    assert [answer.outcome for answer in answers] == ["executed", "executed"]
    assert len(claims) == 2


@pytest.mark.parametrize("policy", ["replay", "block", "warn"])
def test_equal_coroutines_in_flight_at_once_are_one_effect(here: Setup, policy: str) -> None:
    here.body_s = 0.05

    async def main() -> list[Any]:
        return await asyncio.gather(*(here.charge(on_duplicate=policy) for _ in range(5)))

    answers = asyncio.run(main())

    assert {answer.value for answer in answers} == {"receipt 1"}
    assert sorted(answer.outcome for answer in answers) == ["executed", "waited", "waited", "waited", "waited"]


def test_a_coroutine_and_a_thread_share_one_effect(here: Setup) -> None:
    here.body_s = 0.3
    answers: list[Any] = []

    def in_a_thread() -> None:
        answers.append(here.executor.run(here.call(), lambda key: "never"))

    async def main() -> None:
        task = asyncio.create_task(here.charge())
        await here.started.wait()
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        answers.append(await task)
        await asyncio.to_thread(thread.join)

    asyncio.run(main())

    assert [answer.value for answer in answers] == ["receipt 1", "receipt 1"]


def test_a_cancelled_coroutine_leaves_the_outcome_unknown(here: Setup) -> None:
    here.body_s = 10

    async def main() -> State:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(here.charge(), 0.05)
        return await settled(here)

    assert asyncio.run(main()) is State.UNKNOWN


def test_a_call_that_waits_is_not_cancelled_with_the_one_that_ran(here: Setup) -> None:
    here.body_s = 10

    async def main() -> None:
        leader = asyncio.create_task(here.charge())
        await here.started.wait()
        follower = asyncio.create_task(here.charge())
        await asyncio.sleep(0.05)
        leader.cancel()
        with pytest.raises(CallBlocked):
            await follower
        with pytest.raises(asyncio.CancelledError):
            await leader

    asyncio.run(main())


def test_a_call_that_waits_takes_over_from_one_that_was_cancelled_under_retry(here: Setup) -> None:
    here.body_s = 0.5

    async def main() -> Any:
        leader = asyncio.create_task(here.charge(on_unknown="retry"))
        await here.started.wait()
        follower = asyncio.create_task(here.charge(on_unknown="retry"))
        await asyncio.sleep(0.05)
        leader.cancel()
        return await follower

    answer = asyncio.run(main())

    assert (answer.outcome, answer.attempt) == ("executed", 2)


def test_a_claim_that_is_granted_after_a_cancellation_is_given_back(here: Setup) -> None:
    here.ledger.slow = 0.2

    async def main() -> State:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(here.charge(), 0.05)
        await asyncio.sleep(0.2)
        return await settled(here)

    assert asyncio.run(main()) is State.RETRYABLE
    assert here.keys == []
    assert not here.ledger.claims.any_running


def test_a_completion_goes_on_when_its_caller_is_cancelled(here: Setup) -> None:
    async def body(key: str) -> None:
        here.ledger.slow = 0.2
        has_run.set()

    has_run = asyncio.Event()

    async def main() -> State:
        task = asyncio.create_task(here.charge(body))
        await has_run.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await settled(here)

    assert asyncio.run(main()) is State.SUCCEEDED


def test_a_loop_that_ends_leaves_the_outcome_unknown(here: Setup) -> None:
    here.body_s = 10

    async def main() -> None:
        task = asyncio.create_task(here.charge())
        await here.started.wait()
        del task

    asyncio.run(main())

    assert here.state() is State.UNKNOWN


def test_a_coroutine_that_is_closed_leaves_the_outcome_unknown(here: Setup) -> None:
    class Suspended:
        def __await__(self) -> Any:
            yield None

    async def body(key: str) -> None:
        here.keys.append(key)
        await Suspended()

    async def start() -> Any:
        coroutine = here.charge(body)
        while not here.keys:
            try:
                waiting = coroutine.send(None)
            except StopIteration:
                break
            if waiting is not None:
                await asyncio.wait([waiting])
        return coroutine

    coroutine = asyncio.run(start())
    coroutine.close()

    assert here.state() is State.UNKNOWN


def test_a_coroutine_that_says_not_applied_may_be_called_again(here: Setup) -> None:
    here.trouble = NotApplied()

    async def main() -> Any:
        with pytest.raises(NotApplied):
            await here.charge()
        here.trouble = None
        return await here.charge()

    assert asyncio.run(main()).attempt == 2


def test_a_verification_may_be_a_coroutine(here: Setup) -> None:
    async def verify(key: str, arguments: Mapping[str, object]) -> object:
        await asyncio.sleep(0)
        return Applied("receipt 0")

    async def main() -> Any:
        here.trouble = TimeoutError()
        with pytest.raises(TimeoutError):
            await here.charge(on_unknown="verify", verify=verify)
        return await here.charge(on_unknown="verify", verify=verify)

    assert asyncio.run(main()).value == "receipt 0"


def test_a_coroutine_waits_no_longer_than_it_said(here: Setup) -> None:
    here.body_s = 0.5

    async def main() -> list[Any]:
        return await asyncio.gather(here.charge(), here.charge(wait_s=0.05), return_exceptions=True)

    first, second = asyncio.run(main())

    assert first.outcome == "executed"
    assert isinstance(second, EffectInProgress)


def test_a_timeout_of_the_tool_is_not_taken_for_one_of_the_wait(here: Setup) -> None:
    here.body_s, here.trouble = 0.05, TimeoutError("the bank")

    async def main() -> list[Any]:
        return await asyncio.gather(here.charge(), here.charge(), return_exceptions=True)

    assert [str(error) for error in asyncio.run(main())] == ["the bank", "the bank"]


def test_a_plain_function_is_told_apart_from_a_coroutine(here: Setup) -> None:
    with pytest.raises(TypeError, match="plain function"):
        here.executor.run(here.call(), here.body)


def test_a_plain_function_may_run_under_the_async_executor(here: Setup) -> None:
    answer = asyncio.run(here.executor.run_async(here.call(), lambda key: "plain"))

    assert answer.value == "plain"


def test_many_coroutines_share_a_file(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/agentguard.db")
    executor = EffectExecutor(ledger)
    keys: list[str] = []

    async def body(key: str) -> str:
        keys.append(key)
        return key

    async def main() -> list[Any]:
        calls = [RunEffects(run_id=f"run {n % 20}").call(EffectSpec(tool="charge"), {}) for n in range(60)]
        return await asyncio.gather(*(executor.run_async(call, body) for call in calls))

    answers = asyncio.run(main())
    executor.close()
    ledger.close()

    assert len(keys) == len(set(keys)) == 20
    assert len({answer.key for answer in answers}) == 20
