"""The ladder: from findings to actions, per signature, remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_agentguard.findings import Action, Finding, Kind, Limits, Severity
from otel_agentguard.policy import Ladder, severity_of

LIMITS = Limits(3, 5, 7)


def finding(
    count: int, step: int, *, signature: bytes = b"s", limits: Limits | None = LIMITS, **more: object
) -> Finding:
    made = Finding(
        check="loop",
        kind=Kind.LOOP,
        severity=Severity.WARN,
        step=step,
        signature=signature,
        message="known",
        explanation="what",
        limits=limits,
        count=count,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def climb(ladder: Ladder, counts: range, *, progress: int = 0, start: int = 0) -> list[tuple[Action, bool]]:
    judged = [ladder.judge(finding(count, start + count), progress, upcoming=False) for count in counts]
    return [(found.action, new) for found, new in judged]


def test_each_step_of_the_ladder_is_said_once() -> None:
    said = climb(Ladder(), range(3, 10))

    assert said == [
        (Action.HINT, True),
        (Action.HINT, False),
        (Action.BLOCK, True),
        (Action.BLOCK, False),
        (Action.STOP, True),
        (Action.STOP, False),
        (Action.STOP, False),
    ]


def test_the_severity_follows_the_step() -> None:
    ladder = Ladder()

    severities = [ladder.judge(finding(count, count), 0, upcoming=False)[0].severity for count in (3, 5, 7)]

    assert severities == [Severity.WARN, Severity.ERROR, Severity.ERROR]


@pytest.mark.parametrize(
    ("action", "severity"),
    [
        (Action.ALLOW, Severity.INFO),
        (Action.HINT, Severity.WARN),
        (Action.REUSE, Severity.WARN),
        (Action.BLOCK, Severity.ERROR),
        (Action.STOP, Severity.ERROR),
    ],
)
def test_every_action_has_its_severity(action: Action, severity: Severity) -> None:
    assert severity_of(action) is severity


def test_signatures_climb_on_their_own() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 8))

    other, new = ladder.judge(finding(3, 20, signature=b"t"), 0, upcoming=False)

    assert (other.action, new) == (Action.HINT, True)


def test_checks_climb_on_their_own() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 8))

    other, new = ladder.judge(finding(3, 20, check="theirs"), 0, upcoming=False)

    assert (other.action, new) == (Action.HINT, True)


def test_a_relapse_goes_on_where_it_was() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 6))

    relapse = climb(ladder, range(3, 6), start=50)

    assert [action for action, _ in relapse] == [Action.BLOCK, Action.STOP, Action.STOP]


def test_each_new_thing_that_is_learned_takes_a_tenth_off() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 8))

    after_much_progress = climb(ladder, range(3, 4), progress=30, start=50)

    assert after_much_progress == [(Action.HINT, False)]


def test_progress_that_was_taken_back_does_not_raise_anything() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 5), progress=10)

    found, _ = ladder.judge(finding(5, 60), 2, upcoming=False)

    assert found.action is Action.BLOCK


def test_a_loop_inside_productive_work_escalates_slowly() -> None:
    ladder = Ladder()

    actions = [ladder.judge(finding(count, count), 2 * count, upcoming=False)[0].action for count in range(3, 9)]

    assert actions[2] is Action.HINT


def test_what_has_not_happened_is_recorded_only_when_it_would_be_refused() -> None:
    ladder = Ladder()

    coming, new = ladder.judge(finding(3, 3), 0, upcoming=True)
    come, told = ladder.judge(finding(3, 3), 0, upcoming=False)

    assert (coming.action, new) == (Action.ALLOW, False)
    assert (come.action, told) == (Action.HINT, True)


def test_a_refused_event_does_not_climb_twice() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 5))
    ladder.judge(finding(5, 5), 0, upcoming=True)

    again, new = ladder.judge(finding(5, 5), 0, upcoming=False)

    assert (again.action, new) == (Action.BLOCK, False)


def test_a_check_that_decides_alone_keeps_its_action_and_is_said_once() -> None:
    ladder = Ladder()
    one = finding(1, 4, limits=None, action=Action.BLOCK, severity=Severity.ERROR)

    said = [ladder.judge(one, 0, upcoming=False) for _ in range(3)]

    assert [new for _, new in said] == [True, False, False]
    assert {found.action for found, _ in said} == {Action.BLOCK}


def test_a_higher_action_of_a_check_that_decides_alone_is_said_again() -> None:
    ladder = Ladder()
    hint = finding(1, 4, limits=None, action=Action.HINT)

    ladder.judge(hint, 0, upcoming=False)
    _, new = ladder.judge(replace(hint, action=Action.STOP), 0, upcoming=False)

    assert new


def test_what_the_application_answered_holds_until_the_next_step() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 6))
    ladder.answer(finding(5, 5), Action.ALLOW)

    held, _ = ladder.judge(finding(6, 6), 0, upcoming=False)
    next_step, new = ladder.judge(finding(7, 7), 0, upcoming=False)

    assert held.action is Action.ALLOW
    assert (next_step.action, new) == (Action.STOP, True)


def test_a_forgiven_signature_climbs_from_the_bottom_again() -> None:
    ladder = Ladder()
    climb(ladder, range(3, 8))
    ladder.forgive(finding(7, 7))

    actions = [action for action, _ in climb(ladder, range(7, 16))]

    assert actions == [Action.HINT] * 5 + [Action.BLOCK] * 2 + [Action.STOP] * 2


def test_a_later_run_remembers_the_latest_signatures_of_an_earlier_one() -> None:
    earlier, later = Ladder(), Ladder()
    climb(earlier, range(3, 7))

    later.remember(earlier)
    relapse, new = later.judge(finding(3, 3), 0, upcoming=False)

    assert (relapse.action, new) == (Action.STOP, True)


def test_the_ladder_keeps_the_latest_signatures_only() -> None:
    ladder = Ladder()
    ladder.judge(finding(6, 1, signature=b"first"), 0, upcoming=False)
    for number in range(300):
        ladder.judge(finding(3, number + 2, signature=b"%d" % number), 0, upcoming=False)

    forgotten, new = ladder.judge(finding(3, 900, signature=b"first"), 0, upcoming=False)

    assert (forgotten.action, new) == (Action.HINT, True)


@pytest.mark.parametrize(
    ("ordinal", "action"),
    [(1, Action.ALLOW), (3, Action.HINT), (4.9, Action.HINT), (5, Action.BLOCK), (7, Action.STOP), (99, Action.STOP)],
)
def test_limits_tell_the_action_of_an_ordinal(ordinal: float, action: Action) -> None:
    assert LIMITS.action_at(ordinal) is action


def test_raised_limits_are_each_that_much_later() -> None:
    assert Limits(3, None, 7).raised_by(2) == Limits(5, None, 9)


def test_actions_are_ordered_and_have_names() -> None:
    assert [str(action) for action in sorted(Action)] == ["allow", "hint", "reuse", "block", "stop"]
