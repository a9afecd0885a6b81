"""Earlier results that are kept for refused calls."""

from __future__ import annotations

import datetime as dt
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from otel_agentguard.values import ByteBudget, KeptValues


def test_a_kept_result_is_given_back() -> None:
    values = KeptValues(ByteBudget())
    values.put(b"a", {"rows": [1, 2]})

    assert values.get(b"a") == {"rows": [1, 2]}
    assert values.get(b"b") is None
    assert values.get(None) is None


def test_of_a_long_text_the_head_is_kept_and_what_is_missing_is_told() -> None:
    values = KeptValues(ByteBudget())
    values.put(b"a", "x" * 100_000)

    kept = values.get(b"a")

    assert isinstance(kept, str)
    assert kept.startswith("xxx")
    assert kept.endswith("[34464 more characters]")
    assert len(kept) < 66_000


def test_a_run_keeps_a_megabyte_and_drops_what_was_not_asked_for_longest() -> None:
    shared = ByteBudget()
    values = KeptValues(shared)
    for number in range(25):
        values.put(b"%d" % number, f"{number}".ljust(60_000, "x"))
        values.get(b"0")

    assert values.get(b"0") is not None
    assert values.get(b"1") is None
    assert shared.used_bytes <= 1024 * 1024
    assert shared.dropped > 0


def test_all_runs_share_one_budget() -> None:
    shared = ByteBudget(100_000)
    one, other = KeptValues(shared), KeptValues(shared)

    one.put(b"a", "x" * 60_000)
    other.put(b"a", "x" * 60_000)

    assert one.get(b"a") is not None
    assert other.get(b"a") is None
    assert shared.dropped == 1


def test_the_budget_is_given_back_when_a_run_ends() -> None:
    shared = ByteBudget()
    values = KeptValues(shared)
    values.put(b"a", "x" * 1000)
    values.put(b"a", "y" * 1000)

    values.clear()

    assert shared.used_bytes == 0
    assert values.get(b"a") is None


@pytest.mark.parametrize("value", [None, True, 7, 7.5, "text", "grüße", b"bytes", ["a"], {"b": [1]}])
def test_every_plain_value_can_be_kept(value: object) -> None:
    values = KeptValues(ByteBudget())

    values.put(b"a", value)

    assert values.get(b"a") == value


@pytest.mark.parametrize(
    "value", [object(), iter([1]), threading.Lock(), b"x" * 600_000, ["x" * 600_000], {"x" * 70_000}]
)
def test_what_cannot_be_copied_or_is_huge_is_not_kept_and_counted(value: object) -> None:
    shared = ByteBudget()
    values = KeptValues(shared)

    values.put(b"a", value)

    assert values.get(b"a") is None
    assert (shared.used_bytes, shared.dropped) == (0, 1)


def test_a_newer_result_of_a_call_takes_the_place_of_the_older() -> None:
    shared = ByteBudget()
    values = KeptValues(shared)

    values.put(b"a", "x" * 1000)
    values.put(b"a", "short")

    assert values.get(b"a") == "short"
    assert shared.used_bytes < 200


def test_dates_are_measured_as_data() -> None:
    values = KeptValues(ByteBudget())

    values.put(b"a", dt.datetime(2024, 5, 1, tzinfo=dt.UTC))

    assert values.get(b"a") == dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


@dataclass
class Basket:
    things: list[str] = field(default_factory=list)


@pytest.mark.parametrize("value", [["a"], {"rows": ["a"]}, ({"a"},), Basket(["a"])], ids=repr)
def test_what_a_caller_does_to_a_result_changes_no_later_one(value: object) -> None:
    def spoil(result: object) -> None:
        match result:
            case list():
                result.append("b")
            case {"rows": list(rows)}:
                rows.clear()
            case (set() as inside,):
                inside.add("b")
            case Basket():
                result.things.append("b")

    values = KeptValues(ByteBudget())
    values.put(b"a", value)
    before = repr(value)

    spoil(value)
    spoil(values.get(b"a"))

    assert repr(values.get(b"a")) == before


def test_a_result_that_cannot_be_kept_leaves_no_older_one_in_its_place() -> None:
    values = KeptValues(ByteBudget())
    values.put(b"a", "old")

    values.put(b"a", iter([1]))

    assert values.get(b"a") is None


class CopiedOnce:
    """Can be copied when it is kept, and never after that."""

    copies = 0

    def __deepcopy__(self, memo: object) -> CopiedOnce:
        CopiedOnce.copies += 1
        if CopiedOnce.copies > 1:
            raise RuntimeError("no more copies")
        return CopiedOnce()


def test_a_result_that_cannot_be_given_out_is_none() -> None:
    values = KeptValues(ByteBudget())
    values.put(b"a", CopiedOnce())

    assert values.get(b"a") is None


def test_a_run_that_has_ended_keeps_nothing_more() -> None:
    shared = ByteBudget()
    values = KeptValues(shared)
    values.clear()

    values.put(b"a", "late")

    assert values.get(b"a") is None
    assert shared.used_bytes == 0


@pytest.mark.usefixtures("hurried")
def test_threads_of_many_runs_leave_the_budget_exact() -> None:
    shared = ByteBudget(50_000)
    runs = [KeptValues(shared, max_bytes=20_000) for _ in range(4)]

    def work(values: KeptValues) -> None:
        for number in range(300):
            values.put(b"%d" % (number % 7), "x" * (number % 11) * 400)
            values.get(b"%d" % (number % 5))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, runs * 2))
    assert shared.used_bytes <= 50_000
    for values in runs:
        values.clear()

    assert shared.used_bytes == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    shared = ByteBudget()
    values = KeptValues(shared)
    values.put(b"a", "kept")
    with shared.lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if values.get(b"a") == "kept" else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
