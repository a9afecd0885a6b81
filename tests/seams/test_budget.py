"""Budgets of runs, as a program gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from otel_agentguard import Budget, RunAborted, message, model_call, run, tool
from otel_agentguard.errors import ConfigError
from otel_agentguard.runs import ApprovalRequest
from otel_agentguard.testing import RecordingSink

Installing = Callable[..., Any]
done: list[int] = []


@tool
def work(number: int) -> str:
    done.append(number)
    return f"the outcome of {number}"


@tool
async def work_later(number: int) -> str:
    await asyncio.sleep(0)
    done.append(number)
    return f"the outcome of {number}"


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def work_on(times: int = 10) -> None:
    for number in range(times):
        work(number)


def test_a_run_ends_before_the_call_that_its_budget_does_not_allow(installing: Installing) -> None:
    installing(budget=Budget(tool_calls=3))

    with pytest.raises(RunAborted) as stop, run("r"):
        work_on()

    assert done == [0, 1, 2]
    assert stop.value.finding is not None
    assert stop.value.finding.kind == "budget"


def test_a_budget_given_to_one_run_takes_the_place_of_the_installed_one(installing: Installing) -> None:
    installing(budget=Budget(tool_calls=1))

    with run("r", budget=Budget(steps=100)):
        work_on(5)

    assert len(done) == 5


def test_a_mapping_changes_single_limits_of_the_installed_budget(installing: Installing) -> None:
    installing(budget=Budget(tool_calls=4, steps=2))

    with pytest.raises(RunAborted), run("r", budget={"steps": None, "seconds": 60}):
        work_on()
    with pytest.raises(RunAborted), run("s", budget={"steps": 100}):
        work_on()

    assert done == [*range(4), *range(4)]


def test_a_mapping_may_limit_single_agents(installing: Installing) -> None:
    installing()

    with pytest.raises(RunAborted), run("r", budget={"agents": {"coder": {"tool_calls": 2}}}):
        work_on(3)
        with run(agent="coder"):
            work_on()

    assert done == [0, 1, 2, 0, 1]


def test_a_limit_that_is_misspelt_is_refused_when_the_run_is_made(installing: Installing) -> None:
    installing()

    with pytest.raises(ConfigError, match=r"budget\.step.*did you mean 'budget\.steps'"):
        run("r", budget={"step": 5})


def test_a_run_that_is_the_one_around_it_has_no_budget_of_its_own(installing: Installing) -> None:
    installing()

    with run("r"), pytest.raises(ConfigError, match="give it an id"), run(agent="coder", budget=Budget(steps=5)):
        pass


def test_a_budget_is_refused_where_the_checks_leave_it_out(installing: Installing) -> None:
    installing(checks=["loop"])

    with pytest.raises(ConfigError, match="add 'budget' to checks"), run("r", budget=Budget(steps=5)):
        pass


def test_what_child_runs_use_adds_up_and_a_stop_of_a_child_is_an_ordinary_error(installing: Installing) -> None:
    installing()

    with run("r", budget=Budget(tool_calls=5)):
        with pytest.raises(RunAborted), run("child", budget=Budget(tool_calls=2)):
            work_on()
        work_on(3)
        with pytest.raises(RunAborted), run("other"):
            work_on()

    assert done == [0, 1, 0, 1, 2]


def test_a_person_may_allow_more(installing: Installing) -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return len(asked) == 1

    installing(approve=approve)

    with pytest.raises(RunAborted), run("r", budget=Budget(tool_calls=3), attended=True):
        work_on()

    assert len(done) == 6
    assert [request.run_id for request in asked] == ["r", "r"]


async def test_the_answer_of_a_person_may_be_awaited(installing: Installing) -> None:
    async def approve(request: ApprovalRequest) -> float:
        await asyncio.sleep(0)
        return 0.5

    installing(approve=approve)

    async with run("r", budget=Budget(tool_calls=2), attended=True):
        for number in range(3):
            await work_later(number)

    assert len(done) == 3


def test_a_plain_program_may_have_an_async_person(installing: Installing) -> None:
    async def refuse(request: ApprovalRequest) -> bool:
        return False

    installing(approve=refuse)

    with pytest.raises(RunAborted), run("r", budget=Budget(tool_calls=2), attended=True):
        work_on()

    assert len(done) == 2


def test_a_message_or_a_request_is_not_sent_once_the_steps_are_used_up(installing: Installing) -> None:
    installing()
    sent: list[str] = []

    with pytest.raises(RunAborted), run("r", budget=Budget(steps=2)):
        message("one", agent="a")
        with model_call(model="m", messages=[]):
            sent.append("request")
        message("two", agent="a")
        sent.append("message")

    assert sent == ["request"]


def test_tokens_of_model_calls_are_counted(installing: Installing) -> None:
    installing()
    requests = 0

    with pytest.raises(RunAborted), run("r", budget=Budget(tokens=1000)):
        for number in range(10):
            with model_call(model="m", messages=[str(number)]) as request:
                requests += 1
                request.record("answer", input_tokens=300, output_tokens=100)

    assert requests == 3


def test_hints_tell_of_a_budget_that_is_nearly_used_up(installing: Installing) -> None:
    installing()

    with run("r", budget=Budget(tool_calls=5)) as r:
        work_on(4)

        assert "4 of 5 tool calls of this run are used" in r.hints()
        assert any("4 of 5 tool calls" in note for note in r.notes())


def test_in_observe_mode_everything_runs_and_the_stop_is_only_told(
    installing: Installing, sink: RecordingSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGUARD_MODE", "observe")
    installing()

    with run("r", budget=Budget(tool_calls=2)):
        work_on(5)

    assert len(done) == 5
    assert [(str(finding.action), mode) for finding, mode in sink.findings] == [
        ("hint", "observe"),
        ("stop", "observe"),
    ]
