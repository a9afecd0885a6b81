"""The seam around a framework's tools, with a framework that is a few lines here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from adapters.conftest import Installing

from otel_agentguard import CallBlocked, Effect, RunAborted, run, tool, unguarded
from otel_agentguard.adapters.contract import TEXTS, Reading, ToolRequest
from otel_agentguard.adapters.tools import ToolSeam, is_call_told
from otel_agentguard.dedup.dedup import make_dedup
from otel_agentguard.events import Outcome, ToolCall
from otel_agentguard.testing import RecordingSink

SAME = "the same again"


class Carrier(RunAborted):
    """What this framework lets through."""


class Pause(Exception):
    """How this framework interrupts a tool."""


SEAM = ToolSeam(Carrier, pauses=(Pause,))


def request(name: str = "glance", **more: Any) -> ToolRequest:
    return ToolRequest(**{"tool": name, "arguments": {"q": "x"}, "call_id": "c", **more})


def look(seam: ToolSeam = SEAM, body: Any = lambda: SAME, results: Any = TEXTS, **more: Any) -> Any:
    return seam.call(lambda: request(**more), results, body)


def calls(sink: RecordingSink) -> list[ToolCall]:
    return [event for event in sink.events if isinstance(event, ToolCall)]


def test_the_ladder_at_a_framework_seam(installing: Installing) -> None:
    installing()
    given: list[str] = []

    with pytest.raises(Carrier), run():
        given.extend(look() for _ in range(9))

    assert [text == SAME for text in given] == [True, True, False, True, False, False]
    assert given[2].endswith(f"\n\n{SAME}")
    assert "not run again" in given[4]


def test_a_coroutine_is_guarded_alike(installing: Installing) -> None:
    installing()

    async def body() -> str:
        return SAME

    async def loop() -> list[str]:
        given: list[str] = []
        with pytest.raises(Carrier):
            async with run():
                while True:
                    given.append(await SEAM.call_async(request, TEXTS, body))
        return given

    assert len(asyncio.run(loop())) == 6


def test_where_nothing_may_be_raised_the_model_is_told_and_the_run_is_marked(installing: Installing) -> None:
    seam = ToolSeam(None)
    installing()
    given: list[str] = []

    with pytest.raises(RunAborted), run():
        given.extend([look(seam) for _ in range(9)])

    assert len(given) == 9
    assert "This run was stopped" in given[6]
    assert "This run was stopped" in given[8]


def test_a_result_that_can_hold_no_note_is_given_as_it_is_and_the_note_waits(installing: Installing) -> None:
    installing()

    with run() as r:
        given = [look(body=lambda: {"rows": 3}) for _ in range(3)]

        assert given == [{"rows": 3}] * 3
        assert len(r.notes()) == 1


def test_what_cannot_be_decoded_passes_and_is_counted(installing: Installing, sink: RecordingSink) -> None:
    installing()

    def broken() -> ToolRequest:
        raise KeyError("the framework has changed")

    assert SEAM.call(broken, TEXTS, lambda: SAME) == SAME
    assert sink.failures == ["adapter"]


def test_a_result_that_cannot_be_read_is_given_and_is_no_repeat(installing: Installing, sink: RecordingSink) -> None:
    class Broken:
        def read(self, result: object) -> Reading:
            raise AttributeError("content")

        refusal = again = with_note = None

    installing()

    with run():
        given = [look(results=Broken()) for _ in range(9)]

    assert given == [SAME] * 9
    assert {call.result_known for call in calls(sink)} == {False}
    assert set(sink.failures) == {"adapter"}


def test_an_error_of_the_tool_is_raised_unchanged_and_known_as_a_failure(
    installing: Installing, sink: RecordingSink
) -> None:
    error = ValueError("no")
    installing()

    def body() -> str:
        raise error

    with run(), pytest.raises(ValueError, match="no") as raised:
        look(body=body)

    assert raised.value is error
    assert calls(sink)[0].outcome is Outcome.FAILED


def test_an_interrupted_call_is_no_failure_and_no_repeat(installing: Installing, sink: RecordingSink) -> None:
    installing()

    def body() -> str:
        raise Pause

    with run():
        for _ in range(9):
            with pytest.raises(Pause):
                look(body=body)

    assert {call.outcome for call in calls(sink)} == {Outcome.NOT_EXECUTED}
    assert sink.findings == []


def test_a_control_tool_is_seen_and_never_refused(installing: Installing, sink: RecordingSink) -> None:
    installing()

    with run():
        given = [look(name="final_answer", is_control=True) for _ in range(12)]

    assert given == [SAME] * 12
    assert len(calls(sink)) == 12


def test_unguarded_calls_pass_and_are_counted(installing: Installing, sink: RecordingSink) -> None:
    installing()

    with unguarded():
        given = [look() for _ in range(9)]

    assert given == [SAME] * 9
    assert sink.passed == ["glance"] * 9


def test_a_declared_function_under_the_tool_counts_once_with_its_own_name_and_effect(
    installing: Installing, sink: RecordingSink
) -> None:
    @tool(effect=Effect.PURE, ignore=["trace"])
    def add_up(a: int, b: int = 2, trace: str = "") -> int:
        return a + b

    installing()

    with run():
        SEAM.call(lambda: request("sum", arguments={"a": 1, "trace": "t1"}, function=add_up), TEXTS, lambda: add_up(1))
        add_up(1, 2, trace="t2")

    (through, direct) = calls(sink)
    assert through.arguments == {"a": 1, "b": 2, "trace": ""}
    assert through.effect is Effect.PURE
    assert through.fingerprint == direct.fingerprint


def test_what_a_declaration_leaves_open_the_framework_says(installing: Installing, sink: RecordingSink) -> None:
    @tool
    def peek(q: str) -> str:
        return SAME

    installing()

    with run():
        look(name="peek", function=peek, effect=Effect.READ)

    assert calls(sink)[0].effect is Effect.READ


@pytest.mark.parametrize("said", [Effect.PURE, Effect.WRITE, Effect.UNKNOWN])
@pytest.mark.parametrize("is_declared", [True, False])
def test_what_the_settings_say_of_a_tool_beats_its_declaration_and_the_framework(
    installing: Installing, sink: RecordingSink, said: Effect, is_declared: bool
) -> None:
    @tool(effect=Effect.WRITE)
    def peek(q: str) -> str:
        return SAME

    installing(tools={"peek": {"effect": said.value}})

    with run():
        look(name="peek", function=peek if is_declared else None, effect=Effect.READ)

    assert calls(sink)[0].effect is said


def test_what_the_ledger_refuses_is_given_to_the_model_as_text(installing: Installing, sink: RecordingSink) -> None:
    ran = []

    @tool(effect=Effect.SIDE_EFFECT, identity=["invoice"])
    def pay(invoice: str, amount: int) -> str:
        ran.append(amount)
        return "paid"

    def asked(amount: int) -> Any:
        arguments = {"invoice": "i-1", "amount": amount}
        return SEAM.call(lambda: request("pay", arguments=arguments, function=pay), TEXTS, lambda: pay("i-1", amount))

    installing()

    with run():
        first, second = asked(5), asked(6)

    assert first == "paid"
    assert second != "paid"
    assert ran == [5]
    assert sink.executed_after == []


def test_the_stop_of_an_inner_run_of_the_same_tool_path_leaves_as_the_carrier(installing: Installing) -> None:
    @tool
    def inner(q: str) -> str:
        return SAME

    def body() -> str:
        while True:
            try:
                inner("x")
            except CallBlocked:
                continue

    installing()

    with pytest.raises(Carrier), run():
        look(name="outer", body=body)


def test_a_tool_under_way_is_known_to_seams_further_in(installing: Installing) -> None:
    installing()
    seen = []

    with run():
        look(body=lambda: seen.append((is_call_told("glance"), is_call_told("other"))))

    assert seen == [(True, False)]
    assert not is_call_told("glance")


def test_after_shutdown_calls_pass(installing: Installing, sink: RecordingSink) -> None:
    installing().shutdown()

    assert [look() for _ in range(9)] == [SAME] * 9
    assert calls(sink) == []


def with_answers(installing: Installing, **tools: Any) -> Any:
    """A guard that answers the tools of these settings from what is known."""
    made = installing(tools=tools)
    assert made.guard is not None
    made.guard.dedup = made.guard.dedup or make_dedup(made.settings)
    return made


def test_a_tool_that_the_settings_call_pure_is_answered_without_its_body(
    installing: Installing, sink: RecordingSink
) -> None:
    with_answers(installing, glance={"effect": "pure"})
    ran = []

    def body() -> str:
        ran.append(1)
        return SAME

    with run():
        first, second = look(body=body), look(body=body)

    assert first == SAME
    assert second.startswith("[agentguard]")
    assert second.endswith(SAME)
    assert len(ran) == 1
    assert [call.served_from for call in calls(sink)] == [None, "cache"]


def test_a_coroutine_is_answered_alike(installing: Installing) -> None:
    with_answers(installing, glance={"effect": "pure"})
    ran = []

    async def body() -> str:
        ran.append(1)
        return SAME

    async def twice() -> list[str]:
        async with run():
            return [await SEAM.call_async(request, TEXTS, body) for _ in range(2)]

    assert len(asyncio.run(twice())) == 2
    assert len(ran) == 1


def test_a_failure_is_given_and_asked_for_again(installing: Installing, sink: RecordingSink) -> None:
    class Failing:
        def read(self, result: str) -> Reading:
            return Reading(result, failed=True)

        refusal = again = with_note = None

    with_answers(installing, glance={"effect": "pure"})

    with run():
        given = [look(results=Failing()) for _ in range(2)]

    assert given == [SAME, SAME]
    assert [(call.outcome, call.served_from) for call in calls(sink)] == [(Outcome.FAILED, None)] * 2


def test_an_error_of_a_body_that_may_be_answered_is_raised_unchanged(installing: Installing) -> None:
    with_answers(installing, glance={"effect": "pure"})
    error = ValueError("no")

    def body() -> str:
        raise error

    with run(), pytest.raises(ValueError, match="no") as raised:
        look(body=body)

    assert raised.value is error


def test_in_observe_mode_every_body_runs(installing: Installing) -> None:
    made = installing(mode="observe", tools={"glance": {"effect": "pure"}})
    made.guard.dedup = made.guard.dedup or make_dedup(made.settings)
    ran = []

    with run():
        for _ in range(3):
            look(body=lambda: ran.append(1))

    assert len(ran) == 3
