from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import baggage, context

from otel_agentguard import (
    AgentGuard,
    CallBlocked,
    ConfigError,
    Effect,
    RunAborted,
    RunStopped,
    agent,
    message,
    run,
    tool,
)
from otel_agentguard.current import scope
from otel_agentguard.events import Plan, PlanStep, ToolSpec, Trigger, Turn
from otel_agentguard.testing import RecordingSink


@tool
def look(word: str) -> str:
    return f"the same for {word}"


def call_until_stopped(word: str = "x") -> None:
    for _ in range(100):
        with contextlib.suppress(CallBlocked):
            look(word)
    raise AssertionError("nobody stopped this loop")


def test_a_stopped_run_ends_as_aborted_when_nothing_arrives(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted) as ended, run("r"), contextlib.suppress(RunStopped):
        call_until_stopped()

    assert ended.value.__cause__ is None


def test_a_stopped_run_keeps_another_error_as_its_cause(guard: AgentGuard) -> None:
    other = ValueError("made of the stop")

    with pytest.raises(RunAborted) as ended, run("r"):
        try:
            call_until_stopped()
        except RunStopped:
            raise other from None

    assert ended.value.__cause__ is other


def test_a_stopped_run_that_ends_in_a_group_is_aborted(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted) as ended, run("r"):
        try:
            call_until_stopped()
        except RunStopped as stop:
            raise BaseExceptionGroup("both", [stop, ValueError("no")]) from None

    assert isinstance(ended.value.__cause__, BaseExceptionGroup)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through_a_stopped_run(guard: AgentGuard, interrupt: type[BaseException]) -> None:
    with pytest.raises(interrupt), run("r"):
        try:
            call_until_stopped()
        except RunStopped:
            raise interrupt from None


def test_errors_leave_a_run_that_is_not_stopped_unchanged(guard: AgentGuard, sink: RecordingSink) -> None:
    with pytest.raises(ZeroDivisionError), run("r"):
        look(str(1 / 0))

    assert sink.closed == [("r", "failed", 0)]


def test_a_run_that_ends_well_is_completed(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r"):
        look("x")

    assert sink.closed == [("r", "completed", 1)]
    assert guard.engine.runs() == []


def test_a_run_without_an_id_gets_one(guard: AgentGuard) -> None:
    with run() as one, run("two") as two:
        assert len(one.run_id) == 32
        assert two.run_id == "two"


def test_the_id_of_a_run_that_was_not_entered_is_not_known() -> None:
    with pytest.raises(ConfigError, match="enter it first"):
        _ = run().run_id


@pytest.mark.parametrize("run_id", ["", 7])
def test_a_run_id_is_a_text(run_id: Any) -> None:
    with pytest.raises(ConfigError, match="give a text"):
        run(run_id)


def test_a_run_is_not_entered_twice_at_once(guard: AgentGuard) -> None:
    handle = run("r")

    with handle, pytest.raises(ConfigError, match="entered already"), handle:
        pass


def test_a_stopped_run_cannot_be_entered_again_until_it_is_released(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run("r"):
        call_until_stopped()

    with pytest.raises(RunAborted) as again, run("r"):
        raise AssertionError("it was entered")
    assert guard.release("r") is True
    with run("r"):
        look("y")

    assert again.value.run_id == "r"
    assert guard.release("r") is False


def test_a_stopped_conversation_goes_on_with_a_new_user_turn_only(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run(conversation="c"):
        call_until_stopped()

    with pytest.raises(RunAborted), run(conversation="c"):
        look("other")
    with run(conversation="c") as r:
        r.turn("user", text="try something else")
        assert look("other") == "the same for other"


def test_a_relapse_after_a_new_user_turn_goes_on_where_it_was(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run(conversation="c"):
        call_until_stopped()

    calls = 0
    with pytest.raises(RunAborted), run(conversation="c") as r:
        r.turn("user", text="try again")
        for _ in range(20):
            calls += 1
            with contextlib.suppress(CallBlocked):
                look("x")

    assert calls < 7


def test_the_same_event_delivered_again_does_not_lift_a_stop(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run(conversation="c", event="order-1"):
        call_until_stopped()

    with pytest.raises(RunAborted), run(conversation="c", event="order-1"):
        look("other")


def test_a_nested_run_without_an_id_is_the_same_run_under_another_name(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r", agent="planner"):
        look("x")
        with run(agent="coder") as inner:
            look("y")
            assert inner.run_id == "r"
        look("z")

    assert [(event.agent, event.step) for event in sink.events] == [("planner", 1), ("coder", 2), ("planner", 3)]
    assert sink.opened == ["r"]


def test_a_stop_in_a_nested_run_ends_it_all(guard: AgentGuard) -> None:
    entered = 0

    with pytest.raises(RunAborted), run("r"):
        for _ in range(100):
            try:
                with run(agent="coder"):
                    entered += 1
                    call_until_stopped()
            except Exception as exc:
                assert isinstance(exc, RunAborted)

    assert entered == 1


def test_a_child_run_has_its_own_steps_and_ladder(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("parent") as parent:
        for _ in range(2):
            look("x")
        with run("child") as child:
            look("x")
            assert child.notes() == []
        look("x")
        assert len(parent.notes()) == 1

    assert [event.step for event in sink.events] == [1, 2, 1, 3]


def test_a_stopped_child_is_an_ordinary_error_in_its_parent(guard: AgentGuard) -> None:
    with run("parent"):
        with pytest.raises(RunAborted) as ended, run("child"):
            call_until_stopped()
        assert look("y") == "the same for y"

    assert ended.value.run_id == "child"


def test_the_stop_of_a_parent_stops_its_children(guard: AgentGuard) -> None:
    ran: list[str] = []

    with pytest.raises(RunAborted) as ended, run("parent") as parent:
        in_parent = parent.bind(call_until_stopped)
        with run("child"):
            with pytest.raises(RunStopped):
                in_parent()
            ran.append(look("never"))

    assert ran == []
    assert ended.value.run_id == "parent"


def test_a_stopped_parent_lets_no_child_in(guard: AgentGuard) -> None:
    entered = 0

    with pytest.raises(RunAborted), run("parent"):
        with contextlib.suppress(RunStopped):
            call_until_stopped()
        for number in range(3):
            try:
                with run(f"child-{number}"):
                    entered += 1
            except Exception:
                raise AssertionError("the stop of the parent was swallowed") from None

    assert entered == 0


def test_two_entries_of_one_id_are_one_run_until_both_have_left(guard: AgentGuard, sink: RecordingSink) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with run("r"):
            look("x")
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with run("r"):
        thread.start()
        inside.wait()
    open_after_first_exit = list(sink.closed)
    leave.set()
    thread.join()

    assert open_after_first_exit == []
    assert sink.closed == [("r", "completed", 1)]


def test_a_user_turn_makes_repeats_legitimate(guard: AgentGuard) -> None:
    with run("r") as r:
        for _ in range(20):
            r.turn(Trigger.USER, text="again, please")
            look("x")
        assert r.finding is None or r.finding.action == 0


def test_a_turn_carries_what_it_was_told(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r", agent="desk") as r:
        r.turn("webhook", "paid", event="pay-1", replay=True)

    (turn,) = sink.events
    assert isinstance(turn, Turn)
    assert (turn.agent, turn.trigger, turn.text, turn.event, turn.replay) == (
        "desk",
        Trigger.WEBHOOK,
        "paid",
        "pay-1",
        True,
    )
    assert turn.new_intent is False


def test_an_unknown_trigger_is_refused(guard: AgentGuard) -> None:
    with run("r") as r, pytest.raises(ConfigError, match="no trigger 'ghost'; known: user, timer"):
        r.turn("ghost")


def test_a_turn_in_a_stopped_run_raises(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run("r") as r:
        with contextlib.suppress(RunStopped):
            call_until_stopped()
        with pytest.raises(RunStopped):
            r.turn("user")


def test_hints_tell_what_was_repeated(guard: AgentGuard) -> None:
    with run("r") as r:
        assert r.hints() == ""
        for _ in range(3):
            look("x")
        look("y")

        assert "look: 3 times, steps 1, 2 and 3" in r.hints()
        assert r.hints() == r.hints()


def test_hints_keep_to_their_length(guard: AgentGuard) -> None:
    with run("r") as r:
        for word in ("a", "b", "c", "d"):
            for _ in range(3):
                look(word)

        assert len(r.hints(max_chars=200)) <= 200
        assert r.hints(max_chars=200).endswith("steps 10, 11 and 12")
        assert r.hints(max_chars=10) == ""


def test_the_finding_of_a_run_is_the_one_that_stopped_it(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted) as ended, run("r") as r:
        call_until_stopped()

    assert r.finding is ended.value.finding


def test_tools_and_a_plan_are_known_to_the_run(guard: AgentGuard, sink: RecordingSink) -> None:
    @tool(effect=Effect.READ)
    def read(path: str) -> str:
        """Read a file."""
        return path

    plan = [PlanStep(id="1", tool="read", arguments={"path": "a"})]
    with run("r", tools=[read, ToolSpec(name="grep")], plan=plan):
        opened = guard.engine.find("r")
        assert opened is not None
        assert list(opened.info.tools) == ["read", "grep"]
        assert opened.info.tools["read"].effect is Effect.READ

    (event,) = sink.events
    assert isinstance(event, Plan)
    assert event.steps == (plan[0],)


@pytest.mark.parametrize("plan", [object(), 12])
def test_a_plan_that_cannot_be_read_leaves_nobody_inside_of_the_run(
    guard: AgentGuard, sink: RecordingSink, plan: object
) -> None:
    with pytest.raises(ConfigError, match="cannot read a plan"), run("r", plan=plan):
        raise AssertionError("the run was entered")

    assert scope().run_id is None
    assert guard.engine.runs() == []
    assert sink.closed == [("r", "failed", 0)]


async def test_a_task_that_outlives_its_run_is_still_stopped(guard: AgentGuard) -> None:
    ran = 0

    @tool
    async def poll() -> str:
        nonlocal ran
        ran += 1
        return "same"

    async def loop() -> None:
        await left.wait()
        for _ in range(100):
            with contextlib.suppress(CallBlocked):
                await poll()

    left = asyncio.Event()
    async with run("r"):
        task = asyncio.create_task(loop())
    left.set()

    with pytest.raises(RunAborted):
        await task
    assert ran == 4


async def test_a_task_that_outlives_a_stopped_run_is_stopped_with_it(guard: AgentGuard) -> None:
    left = asyncio.Event()

    async def late() -> None:
        await left.wait()
        look("something else")

    with pytest.raises(RunAborted):
        async with run("r"):
            task = asyncio.create_task(late())
            call_until_stopped()
    left.set()

    with pytest.raises(RunStopped):
        await task


async def test_a_task_that_outlives_its_run_does_no_side_effect_of_that_run_again(guard: AgentGuard) -> None:
    sent: list[str] = []

    @tool(effect=Effect.SIDE_EFFECT)
    async def mail(to: str, *, idempotency_key: str) -> None:
        sent.append(to)

    async def late() -> None:
        await left.wait()
        await mail("customer")

    left = asyncio.Event()
    async with run("r"):
        task = asyncio.create_task(late())
        await mail("customer")
    left.set()
    await task

    assert sent == ["customer"]


async def test_a_run_begun_in_a_task_that_outlives_its_run_is_a_new_one(guard: AgentGuard) -> None:
    left = asyncio.Event()
    sent: list[str] = []

    @tool(effect=Effect.SIDE_EFFECT)
    async def mail(to: str, *, idempotency_key: str) -> None:
        sent.append(to)

    async def late() -> None:
        await left.wait()
        for customer in (None, "b", "c"):
            async with run(customer) as inner:
                await mail("customer")
                assert inner.run_id != "a"

    async with run("a"):
        task = asyncio.create_task(late())
        await mail("customer")
    left.set()
    await task

    assert len(sent) == 4


def test_tools_that_are_not_declared_are_refused() -> None:
    with pytest.raises(ConfigError, match="functions declared with @tool"):
        run("r", tools=[len])


def test_a_run_id_goes_into_baggage_only_when_asked(guard: AgentGuard) -> None:
    with run("r"):
        assert baggage.get_all() == {}
    with run("r", propagate=True):
        assert dict(baggage.get_all()) == {"agentguard.run.id": "r"}
    assert baggage.get_all() == {}


@pytest.mark.parametrize(("trusted", "expected"), [(True, "from-afar"), (False, None)])
def test_incoming_baggage_counts_only_when_trusted(
    installing: Callable[..., AgentGuard], sink: RecordingSink, trusted: bool, expected: str | None
) -> None:
    installing(trust_baggage=trusted)
    token = context.attach(baggage.set_baggage("agentguard.run.id", "from-afar"))

    try:
        look("x")
    finally:
        context.detach(token)

    assert ("from-afar" in sink.opened) is (expected is not None)


def test_a_bound_function_is_in_the_run_wherever_it_is_called(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r", agent="coder") as r:
        thread = threading.Thread(target=r.bind(look), args=("x",))
        thread.start()
        thread.join()

    assert [(event.agent, event.step) for event in sink.events] == [("coder", 1)]


def test_a_run_before_install_lets_everything_happen() -> None:
    with run("r", agent="coder") as r:
        r.turn("user", text="hello")
        message("hi", agent="coder")
        results = [look("x") for _ in range(20)]

        assert len(set(results)) == 1
        assert (r.run_id, r.notes(), r.hints(), r.finding) == ("r", [], "", None)
        assert scope().run_id == "r"
    assert scope().run_id is None


def test_a_run_that_outlives_its_guard_goes_on(guard: AgentGuard) -> None:
    with run("r"):
        look("x")
        guard.shutdown()
        assert [look("x") for _ in range(20)] == ["the same for x"] * 20


def test_exceptions_survive_pickling(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted) as ended, run("r"):
        call_until_stopped()

    again = pickle.loads(pickle.dumps(ended.value))  # noqa: S301

    assert (type(again), again.run_id, again.finding) == (RunAborted, "r", ended.value.finding)


async def test_a_run_in_a_cancelled_task_still_leaves_its_context(guard: AgentGuard) -> None:
    entered = asyncio.Event()

    async def long() -> None:
        async with run("r"):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(long())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert guard.engine.find("r") is None


def test_an_agent_in_a_run_names_its_events(guard: AgentGuard, sink: RecordingSink) -> None:
    @agent("reviewer")
    def review() -> None:
        look("x")

    with run("r", agent="planner"):
        review()
        look("x")

    assert [event.agent for event in sink.events] == ["reviewer", "planner"]
