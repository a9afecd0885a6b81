"""Work out of band: in order, bounded, surviving failures and forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from otel_agentguard.outofband import Breaker, Worker
from otel_agentguard.testing import ManualClock


def test_jobs_are_done_in_their_order_in_one_thread() -> None:
    worker = Worker("test")
    done: list[int] = []
    threads: set[str] = set()

    for number in range(10):
        worker.submit(lambda number=number: (done.append(number), threads.add(threading.current_thread().name)))  # type: ignore[misc]

    assert worker.idle()
    assert done == list(range(10))
    assert threads == {"agentguard-test"}
    worker.close()


def test_jobs_beyond_those_that_may_wait_are_not_taken() -> None:
    gate = threading.Event()
    begun = threading.Event()
    worker = Worker("test", most_waiting=2)

    def wait() -> None:
        begun.set()
        gate.wait(30)

    worker.submit(wait)
    assert begun.wait(10)

    taken = [worker.submit(lambda: None) for _ in range(4)]

    assert taken == [True, True, False, False]
    gate.set()
    worker.close()


def test_a_job_that_fails_is_told_and_the_next_one_is_done() -> None:
    told: list[tuple[str, str]] = []
    done: list[int] = []
    worker = Worker("test", failed=lambda where, exc: told.append((where, str(exc))))

    def fail() -> None:
        raise RuntimeError("broken")

    worker.submit(fail)
    worker.submit(lambda: done.append(1))

    assert worker.idle()
    assert told == [("test", "broken")]
    assert done == [1]
    worker.close()


def test_a_closed_worker_takes_nothing_and_leaves_no_thread() -> None:
    worker = Worker("closing")
    worker.submit(lambda: None)

    worker.close()

    assert not worker.submit(lambda: None)
    assert not any(thread.name == "agentguard-closing" for thread in threading.enumerate())


def test_no_thread_is_started_before_there_is_work() -> None:
    Worker("unused")

    assert not any(thread.name == "agentguard-unused" for thread in threading.enumerate())


def test_a_job_is_not_taken_where_no_thread_can_be_started_and_the_next_one_is(no_threads: Callable[[], None]) -> None:
    worker = Worker("test")
    done: list[int] = []

    refused = [worker.submit(lambda: done.append(1)) for _ in range(2)]
    no_threads()
    taken = worker.submit(lambda: done.append(2))

    assert (refused, taken) == ([False, False], True)
    assert worker.idle()
    assert done == [2]
    worker.close()


def test_a_worker_that_could_start_no_thread_can_be_closed(no_threads: Callable[[], None]) -> None:
    worker = Worker("test")
    worker.submit(lambda: None)

    worker.close()

    assert worker.idle()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_works_with_a_thread_of_its_own() -> None:
    worker = Worker("forked")
    worker.submit(lambda: None)
    assert worker.idle()

    pid = os.fork()
    if pid == 0:
        done: list[int] = []
        taken = worker.submit(lambda: done.append(1))
        os._exit(0 if taken and worker.idle(5) and done == [1] else 1)

    assert os.waitpid(pid, 0)[1] == 0
    worker.close()


def test_a_breaker_opens_after_failures_in_a_row_and_waits_longer_each_time() -> None:
    clock = ManualClock()
    breaker = Breaker(failures=2, pause_s=10, longest_s=30, now_s=clock)
    breaker.failed()
    assert breaker.allows()

    pauses = []
    for _ in range(4):
        breaker.failed()
        began = clock()
        while not breaker.allows():
            clock.advance(1)
        pauses.append(clock() - began)

    assert pauses == [10, 20, 30, 30]


def test_a_success_closes_the_breaker_for_good() -> None:
    clock = ManualClock()
    breaker = Breaker(failures=2, pause_s=10, now_s=clock)
    breaker.failed()

    breaker.succeeded()
    breaker.failed()

    assert breaker.allows()
