"""Earlier results that are kept for refused calls."""

from __future__ import annotations

import datetime as dt

import pytest

from otel_agentguard.values import KeptValues, SharedBudget


def test_a_kept_result_is_given_back() -> None:
    values = KeptValues(SharedBudget())
    values.put(b"a", {"rows": [1, 2]})

    assert values.get(b"a") == {"rows": [1, 2]}
    assert values.get(b"b") is None
    assert values.get(None) is None


def test_of_a_long_text_the_head_is_kept_and_what_is_missing_is_told() -> None:
    values = KeptValues(SharedBudget())
    values.put(b"a", "x" * 100_000)

    kept = values.get(b"a")

    assert isinstance(kept, str)
    assert kept.startswith("xxx")
    assert kept.endswith("[34464 more characters]")
    assert len(kept) < 66_000


def test_a_run_keeps_a_megabyte_and_drops_what_was_not_asked_for_longest() -> None:
    shared = SharedBudget()
    values = KeptValues(shared)
    for number in range(25):
        values.put(b"%d" % number, f"{number}".ljust(60_000, "x"))
        values.get(b"0")

    assert values.get(b"0") is not None
    assert values.get(b"1") is None
    assert shared.used <= 1024 * 1024
    assert shared.dropped > 0


def test_all_runs_share_one_budget() -> None:
    shared = SharedBudget(max_bytes=100_000)
    one, other = KeptValues(shared), KeptValues(shared)

    one.put(b"a", "x" * 60_000)
    other.put(b"a", "x" * 60_000)

    assert one.get(b"a") is not None
    assert other.get(b"a") is None
    assert shared.dropped == 1


def test_the_budget_is_given_back_when_a_run_ends() -> None:
    shared = SharedBudget()
    values = KeptValues(shared)
    values.put(b"a", "x" * 1000)
    values.put(b"a", "y" * 1000)

    values.clear()

    assert shared.used == 0
    assert values.get(b"a") is None


@pytest.mark.parametrize("value", [None, True, 7, 7.5, "text", "grüße", b"bytes", ["a"], {"b": [1]}])
def test_every_plain_value_can_be_kept(value: object) -> None:
    values = KeptValues(SharedBudget())

    values.put(b"a", value)

    assert values.get(b"a") == value


@pytest.mark.parametrize("value", [object(), {1j}, iter([1]), b"x" * 400_000, ["x" * 300_000]])
def test_what_cannot_be_measured_or_is_huge_is_not_kept_and_counted(value: object) -> None:
    shared = SharedBudget()
    values = KeptValues(shared)

    values.put(b"a", value)

    assert values.get(b"a") is None
    assert (shared.used, shared.dropped) == (0, 1)


def test_a_newer_result_of_a_call_takes_the_place_of_the_older() -> None:
    shared = SharedBudget()
    values = KeptValues(shared)

    values.put(b"a", "x" * 1000)
    values.put(b"a", "short")

    assert values.get(b"a") == "short"
    assert shared.used < 200


def test_dates_are_measured_as_data() -> None:
    values = KeptValues(SharedBudget())

    values.put(b"a", dt.datetime(2024, 5, 1, tzinfo=dt.UTC))

    assert values.get(b"a") == dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
