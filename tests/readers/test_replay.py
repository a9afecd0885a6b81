from collections import Counter

import pytest

from otel_agentguard.checks.effects import EffectsCheck
from otel_agentguard.config import Settings
from otel_agentguard.events import Effect, Message, ModelCall, Outcome, ToolCall, Turn
from otel_agentguard.findings import Action, Finding, Kind, Limits, Severity
from otel_agentguard.readers.replay import Replayer
from otel_agentguard.readers.runlog import RecordedRun


class CountingCheck:
    """Counts equal calls; hints at the third, blocks the fourth, stops at the fifth."""

    name = "loop"

    def open(self, run):
        return _CountingRun()


class _CountingRun:
    def __init__(self):
        self._seen = Counter()
        self._first = {}

    def before(self, event):
        return self._finding(event, self._seen[event.fingerprint] + 1) if isinstance(event, ToolCall) else ()

    def after(self, event):
        if not isinstance(event, ToolCall):
            return ()
        self._seen[event.fingerprint] += 1
        event.redundant = self._seen[event.fingerprint] > 1
        return self._finding(event, self._seen[event.fingerprint])

    def _finding(self, event, count):
        if count < 3:
            return ()
        return [
            Finding(
                check="loop",
                kind=Kind.LOOP,
                severity=Severity.INFO,
                step=event.step,
                signature=event.fingerprint,
                message="again",
                explanation="again",
                limits=Limits(3, 4, 5),
                agent=event.agent,
                tool=event.tool,
                count=count,
            )
        ]


class BrokenCheck:
    name = "broken"

    def open(self, run):
        return self

    def before(self, event):
        raise RuntimeError("broken")

    def after(self, event):
        return ()


@pytest.fixture
def replay():
    def replay(*events, checks=None, run_id="r", on_failure=None):
        replayer = Replayer(checks or [CountingCheck()], Settings(), on_failure=on_failure)
        return replayer.replay(RecordedRun(id=run_id, events=events, tools={}))

    return replay


def call(name="ls", **fields):
    return ToolCall(tool=name, fingerprint=name.encode(), outcome=Outcome.OK, result="x", **fields)


def test_a_healthy_run_has_no_finding(replay):
    result = replay(call("a"), call("b"), call("c"))

    assert (result.id, result.steps, result.findings) == ("r", 3, ())
    assert (result.first_step, result.stopped_at, result.has_warning) == (None, None, False)


def test_a_finding_says_what_would_have_been_done(replay):
    result = replay(*(call() for _ in range(6)))

    assert [(one.step, one.action) for one in result.findings] == [
        (3, Action.HINT),
        (4, Action.BLOCK),
        (5, Action.STOP),
    ]


def test_the_first_step_is_that_of_the_first_warning(replay):
    assert replay(*(call() for _ in range(3))).first_step == 3


def test_the_run_stops_at_the_first_call_that_would_have_been_refused(replay):
    assert replay(*(call() for _ in range(3))).stopped_at is None
    assert replay(*(call() for _ in range(6))).stopped_at == 4


def test_the_whole_run_is_replayed_after_that(replay):
    result = replay(*(call() for _ in range(9)), call("b"), call("b"), call("b"))

    assert result.steps == 12
    assert result.findings[-1].step == 12


def test_a_stop_that_comes_too_late_for_its_step_refuses_the_next_seam(replay):
    class LateCheck:
        name = "late"

        def open(self, run):
            return self

        def before(self, event):
            return ()

        def after(self, event):
            return [
                Finding(
                    check="late",
                    kind=Kind.BUDGET,
                    severity=Severity.ERROR,
                    step=event.step,
                    signature=b"s",
                    message="",
                    explanation="",
                    action=Action.STOP,
                )
            ]

    result = replay(call("a"), Turn(), Message(text="x"), checks=[LateCheck()])

    assert result.stopped_at == 3


def test_redundant_calls_are_wasted_where_their_body_ran(replay):
    result = replay(call(), call(), call(served_from="cache"))

    assert result.redundant_steps == (2, 3)
    assert result.wasted_calls == 1


def test_tokens_are_wasted_where_a_model_call_led_only_to_redundant_calls(replay):
    result = replay(
        ModelCall(input_tokens=10, output_tokens=1),
        call("a"),
        ModelCall(input_tokens=20, output_tokens=2),
        call("a"),
        ModelCall(input_tokens=40, output_tokens=4),
        call("a"),
        call("b"),
    )

    assert result.wasted_tokens == 22


def test_wasted_tokens_are_unknown_where_the_record_has_none(replay):
    assert replay(ModelCall(), call(), call()).wasted_tokens is None


def test_every_run_is_replayed_as_if_it_were_the_only_one():
    replayer = Replayer([CountingCheck()], Settings())

    results = [replayer.replay(RecordedRun(id="same", events=[call(), call()], tools={})) for _ in range(4)]

    assert all(result.findings == () for result in results)


def test_a_check_that_breaks_is_told_and_the_others_go_on(replay):
    failures = []

    result = replay(*(call() for _ in range(3)), checks=[BrokenCheck(), CountingCheck()], on_failure=failures.append)

    assert failures == ["check broken"] * 3
    assert result.first_step == 3


def test_an_effect_made_again_is_told_apart_from_one_made_once(replay):
    def mail():
        return ToolCall(tool="send_mail", arguments={"to": "a"}, effect=Effect.SIDE_EFFECT, outcome=Outcome.OK)

    result = replay(mail(), call(), mail(), mail(), checks=[EffectsCheck()])

    assert result.duplicate_effect_steps == (3, 4)
