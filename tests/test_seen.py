from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from otel_agentguard.events import Event, Memory, MemoryOperation, Message, ModelCall, ToolCall
from otel_agentguard.fingerprint import call_digest, text_digest
from otel_agentguard.seen import Others, SeenEvents, Sighting


class Clock:
    """Nanoseconds that are moved by hand."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def seen(clock: Clock) -> SeenEvents:
    return SeenEvents(now_ns=clock)


def call(tool: str = "lookup", *, call_id: str | None = None, **arguments: object) -> ToolCall:
    return ToolCall(tool=tool, arguments=arguments, fingerprint=call_digest(tool, arguments), call_id=call_id)


def told(
    event: Event, started: int, ended: int, *, by: str = "genai", span_id: int = 0, parent_id: int = 0
) -> Sighting:
    return Sighting(event, by, started, ended, span_id, parent_id)


def test_a_span_inside_an_open_seam_is_no_news(seen: SeenEvents) -> None:
    seen.begin(call(q="x"))

    assert not seen.is_news(told(call(q="x"), 1001, 1002))


def test_a_span_that_ended_before_the_seam_began_is_news(seen: SeenEvents) -> None:
    seen.begin(call(q="x"))

    assert seen.is_news(told(call(q="x"), 900, 950))


def test_a_span_that_began_after_the_seam_ended_is_news(seen: SeenEvents, clock: Clock) -> None:
    event = call(q="x")
    seen.begin(event)
    clock.now = 2000
    seen.end(event)

    assert seen.is_news(told(call(q="x"), 2001, 2002))


def test_other_arguments_at_the_same_time_are_another_call(seen: SeenEvents) -> None:
    seen.begin(call(q="x"))

    assert seen.is_news(told(call(q="y"), 1001, 1002))


def test_arguments_that_only_one_side_sees_do_not_make_another_call(seen: SeenEvents) -> None:
    seen.begin(call(q="x", idempotency_key="k"))

    assert not seen.is_news(told(call(q="x", config="c"), 1001, 1002))


def test_one_seam_call_stands_for_one_span_of_each_instrumentation(seen: SeenEvents) -> None:
    seen.begin(call(q="x"))

    news = [seen.is_news(told(call(q="x"), 1001, 1002, by=by)) for by in ("genai", "openinference", "genai")]

    assert news == [False, False, True]


def test_call_ids_that_a_model_reuses_in_later_turns_do_not_hide_later_calls(seen: SeenEvents) -> None:
    news = [
        seen.is_news(told(call(call_id="call_1", q=f"{turn}"), turn, turn + 1, by=by))
        for turn in range(3)
        for by in ("genai", "openinference")
    ]

    assert news == [True, False, True, False, True, False]


def test_a_span_right_above_one_of_its_own_kind_tells_the_same_call(seen: SeenEvents) -> None:
    seen.is_news(told(call(q="x"), 1001, 1002, span_id=2, parent_id=1))

    assert not seen.is_news(told(call(q="x"), 1000, 1003, span_id=1))


def test_an_agent_that_hands_on_the_words_of_another_has_spoken_too(seen: SeenEvents) -> None:
    inner = Message(agent="worker", digest=text_digest("done"))
    outer = Message(agent="lead", digest=text_digest("done"))

    assert seen.is_news(told(inner, 1001, 1002, span_id=2, parent_id=1))
    assert seen.is_news(told(outer, 1000, 1003, span_id=1))


def test_model_calls_that_wrote_unequal_answers_are_two(seen: SeenEvents) -> None:
    seen.is_news(told(ModelCall(model="gpt-9", output_tokens=5), 1000, 1010))

    assert seen.is_news(told(ModelCall(model="gpt-9", output_tokens=6), 1001, 1009, by="openinference"))


def test_model_names_may_differ_by_a_date_or_a_provider(seen: SeenEvents) -> None:
    seen.is_news(told(ModelCall(model="gpt-9-2026-11-30"), 1000, 1010))

    assert not seen.is_news(told(ModelCall(model="gpt-9"), 1001, 1009, by="openinference"))


def test_reads_and_writes_of_one_memory_are_two_events(seen: SeenEvents) -> None:
    seen.begin(Memory(operation=MemoryOperation.WRITE, key="m1"))

    assert seen.is_news(told(Memory(operation=MemoryOperation.READ, key="m1"), 1001, 1002))


def test_an_old_event_is_forgotten_when_many_newer_ones_have_come(seen: SeenEvents, clock: Clock) -> None:
    old = call(q="x")
    seen.begin(old)
    clock.now = 1005
    seen.end(old)
    for number in range(100):
        other = call(q=f"other {number}")
        seen.begin(other)
        seen.end(other)

    assert seen.is_news(told(call(q="x"), 1001, 1002))


def test_an_event_that_goes_on_is_known_however_many_newer_ones_have_come(seen: SeenEvents) -> None:
    seen.begin(call(q="x"))
    for number in range(100):
        other = call(q=f"other {number}")
        seen.begin(other)
        seen.end(other)

    assert not seen.is_news(told(call(q="x"), 1001, 1002))


def test_events_that_never_end_are_forgotten_at_last(seen: SeenEvents) -> None:
    events = [call(q=number) for number in range(2_000)]
    for event in events:
        seen.begin(event)

    assert seen.is_news(told(call(q=0), 1001, 1002))


def test_of_an_event_that_is_over_no_large_values_are_kept(seen: SeenEvents) -> None:
    argument, result = "x" * 1_000_000, "y" * 1_000_000
    held = sys.getrefcount(argument), sys.getrefcount(result)
    large = call(text=argument)
    large.result = result

    seen.begin(large)
    seen.end(large)
    del large

    assert (sys.getrefcount(argument), sys.getrefcount(result)) == held


def test_nobody_else_is_expected_once_many_spans_of_ours_came_in_a_row() -> None:
    others = Others()
    others.expect()

    for span_id in range(100):
        others.span_began(span_id, is_own=True)

    assert not others.may_tell


def test_while_a_span_of_somebody_else_goes_on_others_may_tell() -> None:
    others = Others()
    others.span_began(1, is_own=False)

    for span_id in range(2, 100):
        others.span_began(span_id, is_own=True)
    told_during = others.may_tell
    others.span_ended(1)
    for span_id in range(100, 200):
        others.span_began(span_id, is_own=True)
    others.span_began(200, is_own=False)

    assert told_during
    assert others.may_tell


def test_where_what_models_are_told_is_read_others_may_always_tell() -> None:
    others = Others()
    others.expect(always=True)

    for span_id in range(100):
        others.span_began(span_id, is_own=True)

    assert others.may_tell


@pytest.mark.usefixtures("hurried")
def test_more_events_than_are_remembered_may_begin_in_many_threads_at_once(seen: SeenEvents) -> None:
    def work(_: int) -> None:
        for number in range(1_000):
            seen.begin(call(q=number))

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(work, range(16)))) == 16
