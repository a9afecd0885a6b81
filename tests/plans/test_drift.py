"""Calls are placed in the plan that they carry out, and the distance is measured."""

from __future__ import annotations

import pytest

from otel_agentguard.events import Outcome, PlanStep, ToolCall
from otel_agentguard.plans.drift import Drift, FollowedPlan, Placement, Standing
from otel_agentguard.testing import tool_call


def plan(*steps: PlanStep | str | None, before: FollowedPlan | None = None) -> FollowedPlan:
    made = [
        one if isinstance(one, PlanStep) else PlanStep(id=str(number), tool=one) for number, one in enumerate(steps, 1)
    ]
    return FollowedPlan(made, before=before)


def do(followed: FollowedPlan, call: ToolCall) -> Placement:
    placement = followed.place(call)
    followed.settle(call, happened=call.outcome is Outcome.OK)
    return placement


def read(path: str) -> PlanStep:
    return PlanStep(id=f"read {path}", tool="read_file", arguments={"path": path})


def test_a_run_to_the_letter_has_no_drift() -> None:
    followed = plan("a", "b", "c")

    standings = [do(followed, tool_call(tool)).standing for tool in "abc"]

    assert standings == [Standing.ON_PLAN] * 3
    assert followed.drift() == Drift(planned=3, matched=3, executed=3, coverage=1, order=1, fidelity=1, drift=0)


def test_the_measure_is_one_less_the_geometric_mean() -> None:
    followed = plan("a", "b", "c", "d")

    for tool in ("b", "a", "x", "c"):
        do(followed, tool_call(tool))

    drift = followed.drift()
    assert (drift.coverage, drift.order, drift.fidelity) == (3 / 4, 2 / 3, 3 / 4)
    assert drift.drift == pytest.approx(1 - (3 / 4 * 2 / 3 * 3 / 4) ** (1 / 3))


def test_a_call_that_passes_over_a_step_says_so_and_the_late_one_is_reordered() -> None:
    followed = plan("a", "b", "c")

    early = do(followed, tool_call("b"))
    late = do(followed, tool_call("a"))

    assert (early.standing, early.passed_over) == (Standing.SKIPPED, ("1",))
    assert late.standing is Standing.REORDERED


def test_a_step_that_depends_on_nothing_may_come_first() -> None:
    followed = plan(
        PlanStep(id="1", tool="a"), PlanStep(id="2", tool="b"), PlanStep(id="3", tool="c", depends_on=("1",))
    )

    early = do(followed, tool_call("b"))
    too_early = do(followed, tool_call("c"))

    assert early.standing is Standing.ON_PLAN
    assert (too_early.standing, too_early.passed_over) == (Standing.SKIPPED, ("1",))


def test_calls_of_one_model_turn_have_no_order() -> None:
    followed = plan("a", "b")

    for tool in "ba":
        call = tool_call(tool)
        call.batch = "turn 1"
        do(followed, call)

    assert followed.drift().order == 1.0


def test_a_call_that_no_step_names_is_extra() -> None:
    followed = plan("a")

    assert do(followed, tool_call("x")).standing is Standing.EXTRA


def test_prose_is_neither_planned_nor_passed_over() -> None:
    followed = plan(None, "a", None)

    placement = do(followed, tool_call("a"))

    assert placement.standing is Standing.ON_PLAN
    assert followed.drift().drift == 0.0


def test_an_optional_step_may_be_left_out() -> None:
    followed = plan(PlanStep(id="1", tool="a", optional=True), PlanStep(id="2", tool="b"))

    placement = do(followed, tool_call("b"))

    assert placement.standing is Standing.ON_PLAN
    assert followed.drift().drift == 0.0
    assert followed.next_step() is None


def test_a_failed_attempt_leaves_the_step_open() -> None:
    followed = plan("a")

    do(followed, tool_call("a", outcome=Outcome.FAILED))
    again = do(followed, tool_call("a"))

    assert again.standing is Standing.ON_PLAN
    assert followed.drift().executed == 1


def test_two_calls_at_once_take_two_steps() -> None:
    followed = plan(read("x"), read("y"))
    first, second = tool_call(arguments={"path": "y"}), tool_call(arguments={"path": "x"})

    steps = [followed.place(first).step, followed.place(second).step]

    assert [step and step.id for step in steps] == ["read y", "read x"]


def test_a_call_that_died_gives_its_step_back() -> None:
    followed = plan(read("x"))
    followed.place(tool_call(arguments={"path": "x"}))

    followed.release()

    assert followed.place(tool_call(arguments={"path": "x"})).standing is Standing.ON_PLAN


def test_names_are_the_same_under_another_spelling() -> None:
    followed = plan("web_search")

    assert do(followed, tool_call("mcp__net__Web-Search")).standing is Standing.ON_PLAN


def test_a_tool_that_was_meant_stands_for_the_one_that_does_not_exist() -> None:
    followed = FollowedPlan([PlanStep(id="1", tool="mailer")], known_as={"mailer": ["send_email"]})

    assert do(followed, tool_call("send_email")).standing is Standing.ON_PLAN


@pytest.mark.parametrize(
    ("planned", "given"),
    [
        ("kim", "kim@example.test"),
        ("customer", "kim@example.test"),
        ("ask about the 3 pumps", "How are the pumps?"),
        (50, 50.0),
        (50, "50"),
        ("$50", 50),
        ("notes.md", "/srv/notes.md"),
        (["a1", "b2"], ["a1", "b2"]),
        (None, 3),
        ("{step_1}", 42),
        ("report for {step_1}", "anything"),
        ({"$ref": "1"}, [1]),
    ],
)
def test_a_value_may_be_filled_in_or_reworded(planned: object, given: object) -> None:
    step = PlanStep(id="2", tool="send", arguments={"what": planned})
    followed = FollowedPlan([PlanStep(id="1", tool="a"), step])

    assert followed.place(tool_call("send", {"what": given})).differing == ()


@pytest.mark.parametrize(
    ("planned", "given"),
    [
        ("kim@example.test", "all@example.test"),
        (50, 500),
        ("o-7", "o-77"),
        (True, False),
        (["a1"], ["a2"]),
        ({"id": 1}, {"id": 2}),
    ],
    ids=str,
)
def test_another_id_amount_or_address_is_argument_drift(planned: object, given: object) -> None:
    followed = plan(PlanStep(id="1", tool="send", arguments={"what": planned}))

    placement = followed.place(tool_call("send", {"what": given}))

    assert (placement.standing, placement.differing) == (Standing.ARGUMENT_DRIFT, ("what",))


def test_a_call_takes_the_step_that_it_fits_best() -> None:
    followed = plan(read("a.md"), read("b.md"))

    placement = do(followed, tool_call(arguments={"path": "b.md"}))

    assert placement.step is not None
    assert placement.step.id == "read b.md"


def test_the_call_that_was_planned_takes_its_step_from_one_that_had_drifted_into_it() -> None:
    followed = plan(read("a.md"))

    do(followed, tool_call(arguments={"path": "z.md"}))
    planned = do(followed, tool_call(arguments={"path": "a.md"}))

    assert planned.standing is Standing.ON_PLAN
    assert (followed.drift().matched, followed.drift().executed) == (1, 2)


def test_a_step_whose_values_are_open_stands_for_many_calls() -> None:
    followed = FollowedPlan(
        [PlanStep(id="1", tool="list"), PlanStep(id="2", tool="send", arguments={"to": "{step_1}"})]
    )

    standings = [do(followed, tool_call("send", {"to": f"{name}@x.test"})).standing for name in "abc"]

    assert standings == [Standing.SKIPPED, Standing.ON_PLAN, Standing.ON_PLAN]
    assert followed.drift().fidelity == 1.0


def test_the_same_call_once_more_is_a_repeat_of_its_step() -> None:
    followed = plan(read("a.md"))
    do(followed, tool_call(arguments={"path": "a.md"}))

    again = followed.place(tool_call(arguments={"path": "a.md"}))

    assert (again.standing, again.repeat) == (Standing.EXTRA, True)


def test_what_was_done_under_the_old_plan_need_not_be_done_again() -> None:
    old = plan(read("a.md"), "write")
    do(old, tool_call(arguments={"path": "a.md"}))

    new = plan(read("a.md"), "send", before=old)

    assert new.version == 2
    assert (step := new.next_step()) is not None
    assert step.tool == "send"
    assert do(new, tool_call("send")).standing is Standing.ON_PLAN
    assert new.drift().drift == 0.0


def test_what_was_done_may_be_done_again_where_the_new_plan_says_so() -> None:
    old = plan(read("a.md"))
    do(old, tool_call(arguments={"path": "a.md"}))
    new = plan("write", read("a.md"), before=old)

    do(new, tool_call("write"))

    assert do(new, tool_call(arguments={"path": "a.md"})).standing is Standing.ON_PLAN


def test_the_next_step_is_the_first_that_is_open() -> None:
    followed = plan("a", "b")
    do(followed, tool_call("a"))

    step = followed.next_step()

    assert step is not None
    assert step.tool == "b"


@pytest.mark.parametrize(
    ("steps", "binding"), [(("a", "b"), True), (("a", None), True), ((None, None, "a"), False), ((), False)]
)
def test_a_plan_that_is_mostly_prose_binds_nobody(steps: tuple[str | None, ...], binding: bool) -> None:
    assert plan(*steps).binding is binding


def test_an_empty_plan_has_no_drift() -> None:
    assert plan().drift().drift == 0.0
