"""The engine: events in, findings and actions out, and the runs that must stop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest
from loop_runs import TEXT, WORDS, Play, ask, fail, read, say, turn, write

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.engine import PASS, ApprovalRequest, Engine, Run
from otel_agentguard.errors import RunAborted
from otel_agentguard.events import Effect, Event, Message, Outcome, ToolCall, Trigger, Turn
from otel_agentguard.findings import Action, Finding, Kind, Limits, Severity
from otel_agentguard.policy import Ladder
from otel_agentguard.protocols import RunInfo
from otel_agentguard.runs import Tombstone
from otel_agentguard.testing import ManualClock, RecordingSink, tool_call

ALLOW, HINT, BLOCK, STOP = Action.ALLOW, Action.HINT, Action.BLOCK, Action.STOP


def engine_with(*sinks: object, **more: object) -> Engine:
    return Engine(checks=[LoopCheck()], sinks=sinks, now_s=ManualClock(), **more)  # type: ignore[arg-type]


def stopped(engine: Engine, run: Run) -> Finding:
    """Let a run be stopped by a loop."""
    Play(engine, run=run).actions(read() for _ in range(7))
    assert run.stopped is not None
    return run.stopped


def test_a_loop_is_hinted_at_then_refused_then_stopped() -> None:
    play = Play()

    actions = play.actions(read() for _ in range(8))

    assert actions == [ALLOW, ALLOW, HINT, HINT, BLOCK, BLOCK, STOP, STOP]
    assert play.ran == 4


def test_steps_are_numbered_from_one_refused_ones_too() -> None:
    play = Play()
    calls = [read() for _ in range(6)]

    play.actions(calls)

    assert [call.step for call in calls] == [1, 2, 3, 4, 5, 6]


def test_a_step_without_findings_costs_no_new_decision() -> None:
    engine = engine_with()

    assert engine.observe(engine.open(), read()) is PASS


def test_a_refused_call_says_so_itself() -> None:
    play = Play()
    calls = [read() for _ in range(5)]

    play.actions(calls)

    assert (calls[4].refused, calls[4].outcome, calls[4].served_from) == (True, Outcome.NOT_EXECUTED, "guard")


def test_a_refused_call_is_an_attempt_and_no_result() -> None:
    play = Play()

    play.actions(read() for _ in range(6))

    assert play.run.findings[-1].count == 5
    assert play.do(read()).action is STOP


def test_the_note_is_given_with_the_finding_and_once() -> None:
    play = Play()

    notes = [play.do(read()).notes for _ in range(4)]

    assert [len(note) for note in notes] == [0, 0, 1, 0]
    assert notes[2][0].startswith("[agentguard] Same call as step 1")


def test_a_loop_of_two_hundred_calls_is_three_findings() -> None:
    sink = RecordingSink()
    play = Play(engine_with(sink))

    play.actions(read() for _ in range(200))

    told = [finding for finding, _ in sink.findings if finding.severity is not Severity.INFO]
    assert [finding.action for finding in told] == [HINT, BLOCK, STOP]


def test_after_a_stop_nothing_starts_any_more() -> None:
    play = Play()
    stopped(play.engine, play.run)

    others = [read("b.txt"), say("agent", "so"), write(), ask("search", TEXT, q="x")]

    assert play.actions(others) == [STOP] * 4
    assert play.run.stop_reason() is not None


def test_findings_of_a_run_that_only_observes_stop_nothing() -> None:
    engine = engine_with()
    run = engine.open()

    actions = [engine.observe(run, read()).action for _ in range(8)]

    assert actions == [ALLOW, ALLOW, HINT, HINT, BLOCK, BLOCK, STOP, STOP]
    assert run.stopped is None


def test_a_stop_that_was_observed_marks_the_run_where_seams_enforce() -> None:
    sink = RecordingSink()
    engine = engine_with(sink)
    run = engine.open()

    for _ in range(7):
        engine.observe(run, read(), enforce=True)

    assert run.stopped is not None
    assert engine.before(run, read("other")).action is STOP
    assert [(f.action, mode) for f, mode in sink.findings if f.action >= HINT] == [
        (HINT, "observe"),
        (BLOCK, "observe"),
        (STOP, "enforce"),
    ]


def test_what_an_observer_sees_is_told_as_observed() -> None:
    sink = RecordingSink()
    engine = engine_with(sink)
    run = engine.open()

    for _ in range(7):
        engine.observe(run, read())

    assert {mode for _, mode in sink.findings} == {"observe"}


def test_a_body_that_ran_although_it_was_refused_is_counted() -> None:
    sink = RecordingSink()
    play = Play(engine_with(sink))
    play.actions(read() for _ in range(4))
    defiant = read()

    refused = play.engine.before(play.run, defiant)
    play.engine.after(play.run, defiant)

    assert refused.action is BLOCK
    assert sink.executed_after == ["read_file"]


def test_no_body_is_counted_as_run_after_a_block_by_itself() -> None:
    sink = RecordingSink()
    play = Play(engine_with(sink))

    play.actions(read() for _ in range(50))

    assert sink.executed_after == []


def test_the_earlier_result_is_kept_for_refusals() -> None:
    play = Play()

    play.actions(read() for _ in range(5))

    assert play.run.values.get(read().fingerprint) == TEXT


def test_a_run_known_only_by_its_thread_is_refused_calls_and_never_stopped() -> None:
    play = Play()
    play.run.can_stop = False

    actions = play.actions(read() for _ in range(12))

    assert STOP not in actions
    assert actions[-1] is BLOCK
    assert play.do(read("other.txt")).action is ALLOW


def test_a_stop_of_a_parent_stops_its_children() -> None:
    engine = engine_with()
    parent = engine.open("parent")
    child = engine.open("child", parent=parent)

    stopped(engine, parent)

    assert engine.before(child, read("other.txt")).action is STOP


def test_a_stop_of_a_child_leaves_its_parent_alone() -> None:
    engine = engine_with()
    parent = engine.open("parent")
    child = engine.open("child", parent=parent)

    stopped(engine, child)

    assert engine.before(parent, read("other.txt")).action is ALLOW
    assert parent.step == 1


def test_a_run_of_the_same_id_is_joined_while_it_lives() -> None:
    engine = engine_with()

    assert engine.open("a") is engine.open("a")
    assert engine.find("a") is engine.open("a")


def test_a_stopped_run_cannot_be_entered_again_until_it_is_released() -> None:
    engine = engine_with()
    run = engine.open("a")
    finding = stopped(engine, run)
    engine.close(run)

    with pytest.raises(RunAborted) as refused:
        engine.open("a")
    released = engine.release("a")
    again = engine.open("a")

    assert refused.value.finding is finding
    assert refused.value.run_id == "a"
    assert released
    assert engine.before(again, read("other.txt")).action is ALLOW


def test_where_nothing_is_enforced_a_stopped_run_can_be_entered_and_the_stop_is_told() -> None:
    sink = RecordingSink()
    engine = engine_with(sink, enforces=False)
    grave = Tombstone("a", "c", one_finding(Kind.LOOP, STOP), None, Ladder())
    engine.restore(grave)

    same = engine.open("a")
    other = engine.open("b", conversation="c")
    actions = [engine.before(run, read("other.txt"), enforce=False).action for run in (same, other)]
    for run in (same, other):
        engine.close(run)

    assert actions == [ALLOW, ALLOW]
    assert sink.findings == [(grave.finding, "observe")] * 2
    assert [outcome for _, outcome, _ in sink.closed] == ["completed"] * 2
    assert engine.tombstones() == [grave]


def test_releasing_what_was_never_stopped_says_so() -> None:
    engine = engine_with()
    engine.open("a")

    assert not engine.release("a")
    assert not engine.release("unknown")


def test_a_run_that_is_alive_can_be_released() -> None:
    engine = engine_with()
    run = engine.open("a")
    stopped(engine, run)

    assert engine.release("a")
    assert engine.before(run, read("other.txt")).action is ALLOW


def test_a_tombstone_tells_which_run_was_stopped_and_why() -> None:
    engine = engine_with()
    run = engine.open("a", conversation="c")
    finding = stopped(engine, run)

    engine.close(run)

    (grave,) = engine.tombstones()
    assert (grave.run_id, grave.conversation, grave.finding) == ("a", "c", finding)


def test_a_conversation_that_was_stopped_waits_for_its_user() -> None:
    engine = engine_with()
    first = engine.open("a", conversation="c")
    stopped(engine, first)
    engine.close(first)

    second = engine.open("b", conversation="c")
    refused = engine.before(second, read("other.txt"))
    engine.close(second)
    third = engine.open("d", conversation="c")
    engine.observe(third, turn(text="try something else"))

    assert refused.action is STOP
    assert engine.before(third, read("other.txt")).action is ALLOW


def test_a_new_run_of_the_conversation_goes_on_where_the_ladder_was() -> None:
    engine = engine_with()
    first = engine.open("a", conversation="c")
    stopped(engine, first)
    engine.close(first)
    second = Play(engine, run=engine.open("b", conversation="c"))
    engine.observe(second.run, turn(text="go on"))

    relapse = second.actions(read() for _ in range(3))

    assert relapse == [ALLOW, ALLOW, STOP]


def test_another_event_of_the_conversation_needs_no_user() -> None:
    engine = engine_with()
    first = engine.open("a", conversation="c", event="e1")
    stopped(engine, first)
    engine.close(first)

    same = engine.before(engine.open("b", conversation="c", event="e1"), read("b.txt"))
    other = engine.before(engine.open("d", conversation="c", event="e2"), read("b.txt"))

    assert (same.action, other.action) == (STOP, ALLOW)


def test_a_run_that_ends_tells_how() -> None:
    sink = RecordingSink()
    engine = engine_with(sink)
    fine, broken, looping = engine.open("fine"), engine.open("broken"), engine.open("looping")
    stopped(engine, looping)

    engine.close(fine)
    engine.close(fine)
    engine.close(broken, failed=True)
    engine.close(looping)

    assert sink.closed == [("fine", "completed", 0), ("broken", "failed", 0), ("looping", "stopped_by_guard", 7)]


def test_a_finished_run_leaves_nothing_but_its_tombstone() -> None:
    engine = engine_with()
    run = engine.open("a")
    stopped(engine, run)
    check = weakref.ref(run.checks[0][1]._calls) if hasattr(type(run.checks[0][1]), "__weakref__") else None
    gone = weakref.ref(run)

    engine.close(run)
    del run
    gc.collect()

    assert gone() is None
    assert check is None or check() is None
    assert engine.runs() == []
    assert len(engine.tombstones()) == 1


def test_a_finished_run_gives_its_kept_results_back() -> None:
    engine = engine_with()
    run = engine.open("a")
    for _ in range(3):
        engine.observe(run, read(result="x" * 1000))

    engine.close(run)

    assert engine._budget.used_bytes == 0


def test_a_new_user_turn_is_a_new_intent() -> None:
    engine = engine_with()
    run = engine.open()
    turns = [turn(), turn(Trigger.NEW_RUN), turn(replay=True), turn(Trigger.CRON)]

    for one in turns:
        engine.observe(run, one)

    assert [one.new_intent for one in turns] == [True, False, False, True]


def test_the_event_of_the_run_itself_is_no_new_intent() -> None:
    engine = engine_with()
    run = engine.open(event="e1")
    turns = [turn(Trigger.WEBHOOK, event=event) for event in ("e1", "e2", "e2", "e1")]

    for one in turns:
        engine.observe(run, one)

    assert [one.new_intent for one in turns] == [False, True, False, True]


class Broken:
    """A check that fails everywhere, or only opens."""

    name = "broken"

    def __init__(self, *, opens: bool = True) -> None:
        self._opens = opens

    def open(self, run: RunInfo) -> Broken:
        if not self._opens:
            raise RuntimeError("no")
        return self

    def before(self, event: Event) -> Sequence[Finding]:
        raise RuntimeError("no")

    def after(self, event: Event) -> Sequence[Finding]:
        raise RuntimeError("no")


@pytest.mark.parametrize("opens", [True, False])
def test_a_broken_check_breaks_neither_the_run_nor_the_other_checks(
    opens: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sink = RecordingSink()
    engine = Engine(checks=[Broken(opens=opens), LoopCheck()], sinks=[sink])
    play = Play(engine)

    actions = play.actions(read() for _ in range(3))

    assert actions == [ALLOW, ALLOW, HINT]
    assert set(sink.failures) == {"check broken"}
    assert len([record for record in caplog.records if "check broken failed" in record.message]) == 1


class BrokenSink(RecordingSink):
    """A sink that raises whatever it is told."""

    def run_opened(self, run: RunInfo) -> None:
        raise RuntimeError("no")

    def stepped(self, run: RunInfo, event: Event) -> None:
        raise RuntimeError("no")

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        raise RuntimeError("no")

    def run_closed(self, run: RunInfo, outcome: str, steps: int) -> None:
        raise RuntimeError("no")

    def failed(self, where: str) -> None:
        raise RuntimeError("no")


def test_a_broken_sink_breaks_neither_the_run_nor_the_other_sinks() -> None:
    sink = RecordingSink()
    engine = engine_with(BrokenSink(), sink)
    play = Play(engine)

    actions = play.actions(read() for _ in range(3))
    engine.close(play.run)

    assert actions == [ALLOW, ALLOW, HINT]
    assert len(sink.findings) >= 1
    assert sink.closed == [("r", "completed", 3)]
    assert "sink BrokenSink" in sink.failures


def test_the_application_hears_of_each_finding_with_what_is_proposed() -> None:
    heard: list[tuple[Kind, Action]] = []
    engine = engine_with(on_finding=lambda finding, proposed: heard.append((finding.kind, proposed)))

    Play(engine).actions(read() for _ in range(20))

    assert [one for one in heard if one[1] is not ALLOW] == [
        (Kind.LOOP, HINT),
        (Kind.LOOP, BLOCK),
        (Kind.LOOP, STOP),
    ]


def test_the_application_may_lower_an_action_for_this_step_of_the_ladder() -> None:
    engine = engine_with(on_finding=lambda finding, proposed: HINT if proposed is BLOCK else None)

    actions = Play(engine).actions(read() for _ in range(7))

    assert actions == [ALLOW, ALLOW, HINT, HINT, HINT, HINT, STOP]


def test_the_application_may_raise_an_action() -> None:
    engine = engine_with(on_finding=lambda finding, proposed: STOP if proposed is HINT else None)
    play = Play(engine)

    play.actions(read() for _ in range(3))

    assert play.run.stopped is not None


def test_an_async_callback_is_awaited_at_an_async_seam() -> None:
    async def on_finding(finding: Finding, proposed: Action) -> Action | None:
        await asyncio.sleep(0)
        return STOP if proposed is HINT else None

    engine = engine_with(on_finding=on_finding)
    run = engine.open()

    async def calls() -> list[Action]:
        actions = []
        for _ in range(3):
            call = read()
            await engine.before_async(run, call)
            actions.append((await engine.after_async(run, call)).action)
        return actions

    assert asyncio.run(calls()) == [ALLOW, ALLOW, STOP]


def test_an_async_callback_is_awaited_at_a_sync_seam_too() -> None:
    async def on_finding(finding: Finding, proposed: Action) -> Action | None:
        await asyncio.sleep(0)
        return BLOCK if proposed is HINT else None

    engine = engine_with(on_finding=on_finding)

    assert Play(engine).actions(read() for _ in range(3))[-1] is BLOCK


def test_an_async_callback_is_awaited_at_a_sync_seam_inside_a_running_loop() -> None:
    async def on_finding(finding: Finding, proposed: Action) -> Action | None:
        return BLOCK if proposed is HINT else None

    async def inside() -> list[Action]:
        return Play(engine_with(on_finding=on_finding)).actions(read() for _ in range(3))

    assert asyncio.run(inside())[-1] is BLOCK


@pytest.mark.parametrize("answer", ["block", 3, True, object()])
def test_a_callback_that_returns_garbage_is_counted_and_ignored(answer: object) -> None:
    sink = RecordingSink()
    engine = engine_with(sink, on_finding=lambda finding, proposed: answer)

    actions = Play(engine).actions(read() for _ in range(3))

    assert actions == [ALLOW, ALLOW, HINT]
    assert "on_finding" in sink.failures


def test_a_callback_that_raises_is_counted_and_ignored() -> None:
    def on_finding(finding: Finding, proposed: Action) -> Action | None:
        raise RuntimeError("no")

    sink = RecordingSink()
    engine = engine_with(sink, on_finding=on_finding)

    assert Play(engine).actions(read() for _ in range(3)) == [ALLOW, ALLOW, HINT]
    assert "on_finding" in sink.failures


def test_an_async_callback_that_raises_is_counted_and_ignored() -> None:
    async def on_finding(finding: Finding, proposed: Action) -> Action | None:
        raise RuntimeError("no")

    sink = RecordingSink()
    engine = engine_with(sink, on_finding=on_finding)
    run = engine.open()

    async def calls() -> Action:
        for _ in range(3):
            call = read()
            await engine.before_async(run, call)
            last = await engine.after_async(run, call)
        return last.action

    assert asyncio.run(calls()) is HINT
    assert "on_finding" in sink.failures


def test_a_callback_may_use_the_engine() -> None:
    engine = engine_with(on_finding=lambda finding, proposed: engine.observe(run, say("guard", "heard")) and None)
    run = engine.open("r")

    assert Play(engine, run=run).actions(read() for _ in range(3))[-1] is HINT


def test_a_person_may_let_an_attended_run_go_on() -> None:
    asked: list[ApprovalRequest] = []
    engine = engine_with(approve=lambda request: asked.append(request) or True)
    run = engine.open("a", attended=True)
    play = Play(engine, run=run)

    actions = play.actions(read() for _ in range(9))

    assert actions[-3:] == [HINT, HINT, HINT]
    assert run.stopped is None
    assert [(request.run_id, request.finding.action) for request in asked] == [("a", STOP)]


def test_a_person_may_say_no() -> None:
    engine = engine_with(approve=lambda request: False)
    play = Play(engine, run=engine.open(attended=True))

    assert play.actions(read() for _ in range(7))[-1] is STOP


def test_nobody_is_asked_about_a_run_that_nobody_attends() -> None:
    asked: list[ApprovalRequest] = []
    engine = engine_with(approve=lambda request: asked.append(request) or True)
    play = Play(engine)

    assert play.actions(read() for _ in range(7))[-1] is STOP
    assert asked == []


@pytest.mark.parametrize("answer", ["yes", float("nan"), float("inf"), -1, [1]])
def test_an_approval_that_is_garbage_is_none(answer: object) -> None:
    sink = RecordingSink()
    engine = engine_with(sink, approve=lambda request: answer)
    play = Play(engine, run=engine.open(attended=True))

    assert play.actions(read() for _ in range(7))[-1] is STOP
    assert "approve" in sink.failures


def test_an_approval_that_raises_is_none() -> None:
    def approve(request: ApprovalRequest) -> bool:
        raise RuntimeError("no")

    sink = RecordingSink()
    play = Play(engine_with(sink, approve=approve))
    play.run.attended = True

    assert play.actions(read() for _ in range(7))[-1] is STOP
    assert "approve" in sink.failures


class Alone:
    """A check that decides alone, once."""

    name = "alone"

    def __init__(self, *findings: Finding) -> None:
        self._findings = list(findings)

    def open(self, run: RunInfo) -> Alone:
        return self

    def before(self, event: Event) -> Sequence[Finding]:
        return ()

    def after(self, event: Event) -> Sequence[Finding]:
        found, self._findings = self._findings, []
        return [replace(one, step=event.step) for one in found]


def one_finding(kind: Kind, action: Action = HINT) -> Finding:
    return Finding(
        check="alone",
        kind=kind,
        severity=Severity.WARN,
        step=0,
        signature=kind.encode(),
        message=f"note on {kind}",
        explanation="what",
        action=action,
    )


@pytest.mark.parametrize("answer", [True, 3, one_finding(Kind.LOOP), ["a finding"]])
def test_a_check_that_answers_with_anything_but_findings_breaks_nothing(answer: object) -> None:
    class Odd:
        name = "odd"

        def open(self, run: RunInfo) -> Odd:
            return self

        def before(self, event: Event) -> object:
            return answer

        def after(self, event: Event) -> object:
            return answer

    sink = RecordingSink()
    engine = Engine(checks=[Odd(), LoopCheck()], sinks=[sink])  # type: ignore[list-item]
    run = engine.open()

    actions = [engine.observe(run, read()).action for _ in range(3)]

    assert actions == [ALLOW, ALLOW, HINT]
    assert sink.failures == ["check odd"] * 6


def test_a_check_that_opens_what_is_no_check_breaks_nothing() -> None:
    class Odd:
        name = "odd"

        def open(self, run: RunInfo) -> object:
            return object()

    sink = RecordingSink()
    engine = Engine(checks=[Odd()], sinks=[sink])  # type: ignore[list-item]

    assert engine.observe(engine.open(), read()) is PASS
    assert sink.failures == ["check odd"] * 2


def test_findings_of_one_step_come_the_most_specific_first() -> None:
    kinds = [Kind.SEMANTIC, Kind.LOOP, Kind.DUPLICATE_SIDE_EFFECT, Kind.REDUNDANT, Kind.BUDGET]
    engine = Engine(checks=[Alone(*map(one_finding, kinds))])

    decision = engine.observe(engine.open(), read())

    assert [finding.kind for finding in decision.findings] == [
        Kind.DUPLICATE_SIDE_EFFECT,
        Kind.BUDGET,
        Kind.LOOP,
        Kind.SEMANTIC,
        Kind.REDUNDANT,
    ]


def test_actions_combine_by_the_highest_and_the_notes_of_lower_ones_stay() -> None:
    engine = Engine(checks=[Alone(one_finding(Kind.LOOP, HINT), one_finding(Kind.BUDGET, STOP))])

    decision = engine.observe(engine.open(), read())

    assert decision.action is STOP
    assert decision.finding is not None
    assert decision.finding.kind is Kind.BUDGET
    assert decision.notes == ("note on budget", "note on loop")


class TakenByAnother(deque[tuple[str, float]]):
    """Is empty by the time that somebody takes from it."""

    def popleft(self) -> tuple[str, float]:
        self.clear()
        return super().popleft()


def test_a_timing_that_another_thread_told_first_is_no_failure_of_the_call() -> None:
    play = Play()
    play.engine._timings = TakenByAnother(maxlen=256)

    play.actions(read(f"{number}.txt") for number in range(40))

    assert play.ran == 40


def test_many_threads_may_use_one_run() -> None:
    sink = RecordingSink()
    engine = engine_with(sink)
    run = engine.open()
    steps: list[int] = []
    start = threading.Barrier(8)

    def work(name: str) -> None:
        start.wait()
        for number in range(200):
            call = ask("look", f"{name} saw {WORDS[number % 25]} at {number}", agent=name, at_=f"{name}-{number}")
            engine.before(run, call)
            engine.after(run, call)
            steps.append(call.step)

    threads = [threading.Thread(target=work, args=(f"agent-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(steps) == list(range(1, 1601))
    assert run.step == 1600
    assert sink.failures == []
    assert run.stopped is None


def test_a_loop_that_many_threads_share_is_stopped_and_nothing_runs_after_that() -> None:
    sink = RecordingSink()
    engine = engine_with(sink)
    run = engine.open()
    ran: list[int] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(50):
            call = read()
            if engine.before(run, call).action < BLOCK:
                ran.append(call.step)
                engine.after(run, call)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert run.stopped is not None
    assert len(ran) <= 4 + 4 * 4
    assert sink.executed_after == []
    assert sink.failures == []


def test_runs_are_opened_and_closed_from_many_threads() -> None:
    engine = engine_with()

    def work(name: str) -> None:
        for number in range(100):
            run = engine.open(f"{name}-{number}", conversation=f"{number % 7}")
            engine.observe(run, read())
            engine.close(run)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert engine.runs() == []


def test_runs_beyond_a_bound_are_dropped_longest_untouched_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_agentguard.engine.MAX_RUNS", 3)
    sink = RecordingSink()
    engine = engine_with(sink)
    opened = []

    for number in range(5):
        engine.now_s.advance(1)  # type: ignore[attr-defined]
        opened.append(engine.open(str(number)))
        engine.observe(opened[0], read(f"{number}.txt"))

    assert [run.run_id for run in engine.runs()] == ["0", "3", "4"]
    assert [closed[0] for closed in sink.closed] == ["1", "2"]


def test_a_run_that_somebody_is_inside_of_is_dropped_only_where_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_agentguard.engine.MAX_RUNS", 3)
    engine = engine_with()

    def enter(name: str) -> None:
        engine.now_s.advance(1)  # type: ignore[attr-defined]
        engine.open(name).entries += 1

    enter("a")
    for number in range(50):
        engine.now_s.advance(1)  # type: ignore[attr-defined]
        engine.open(str(number))
    beside_idle_ones = [run.run_id for run in engine.runs()]
    for name in "bcd":
        enter(name)

    assert beside_idle_ones == ["a", "48", "49"]
    assert [run.run_id for run in engine.runs()] == ["b", "c", "d"]


def test_dropped_runs_are_counted_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class CountingSink(RecordingSink):
        def dropped(self, part: str, count: int = 1) -> None:
            told.append((part, count))

    monkeypatch.setattr("otel_agentguard.engine.MAX_RUNS", 200)
    told: list[tuple[str, int]] = []
    engine = engine_with(CountingSink(), RecordingSink())

    for number in range(205):
        engine.open(str(number))

    assert told == [("runs", 2)] * 3
    assert len(engine.runs()) == 199
    assert len(caplog.records) == 1
    assert "200 runs are alive" in caplog.text


def test_tombstones_beyond_a_bound_are_dropped_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_agentguard.engine.MAX_TOMBSTONES", 2)
    engine = engine_with()
    for number in range(3):
        run = engine.open(str(number))
        engine.stop(run, one_finding(Kind.LOOP, STOP))
        engine.close(run)

    assert [grave.run_id for grave in engine.tombstones()] == ["1", "2"]
    assert engine.open("0").stopped is None


def test_settings_of_one_run_are_its_own() -> None:
    engine = engine_with()
    strict = engine.open(settings=replace(engine.settings, loop=replace(engine.settings.loop, same=Limits(2, 3, 4))))
    usual = engine.open()

    assert Play(engine, run=strict).actions(read() for _ in range(4)) == [ALLOW, HINT, BLOCK, STOP]
    assert Play(engine, run=usual).actions(read() for _ in range(4)) == [ALLOW, ALLOW, HINT, HINT]


def test_a_note_that_no_seam_delivered_is_given_out_once() -> None:
    engine = engine_with()
    run = engine.open()
    run.pending_notes.append("note")

    assert (run.drain_notes(), run.drain_notes()) == (["note"], [])


def test_events_of_every_kind_are_taken_in() -> None:
    engine = engine_with()
    run = engine.open()
    message = Message(agent="a")
    message.text = None

    engine.observe(run, message)
    engine.observe(run, Turn(agent="user"))
    engine.observe(run, ToolCall(tool="t"))
    engine.observe(run, fail())
    engine.observe(run, tool_call("w", {}, None, effect=Effect.WAIT))

    assert run.step == 5
