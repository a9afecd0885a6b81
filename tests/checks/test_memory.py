from __future__ import annotations

import pytest
from memory_runs import agent, read, tool, update, user, write

from otel_agentguard.checks.memory import MemoryCheck
from otel_agentguard.config import Settings
from otel_agentguard.engine import Engine
from otel_agentguard.events import (
    Compaction,
    Event,
    Evidence,
    Memory,
    ModelCall,
    Outcome,
    Plan,
    PlanStep,
    Trigger,
    Turn,
)
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.memory import MemoryBook
from otel_agentguard.runs import Run
from otel_agentguard.testing import RecordingSink


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
def engine(sink: RecordingSink) -> Engine:
    return Engine(checks=[MemoryCheck()], settings=Settings(people=frozenset({"user", "client"})), sinks=[sink])


@pytest.fixture
def run(engine: Engine) -> Run:
    return engine.open("run")


def found(engine: Engine, run: Run, *events: Event) -> list[Finding]:
    return [finding for event in events for finding in engine.observe(run, event).findings]


def test_a_fact_that_nobody_stated_is_a_finding_at_its_step(engine: Engine, run: Run) -> None:
    (finding,) = found(
        engine, run, user("My lamp broke"), agent("They want a refund."), write("the user wants a refund")
    )

    assert (finding.check, finding.kind, finding.severity) == ("memory", Kind.MEMORY, Severity.WARN)
    assert (finding.step, finding.evidence, finding.action) == (3, (3,), Action.HINT)


def test_a_fact_that_the_user_stated_is_none(engine: Engine, run: Run) -> None:
    assert not found(engine, run, user("Our van is called Mildred."), write("Mildred", "van_name", source="user"))


def test_a_message_of_somebody_who_counts_as_a_user_is_evidence(engine: Engine, run: Run) -> None:
    assert not found(engine, run, agent("Our van is called Mildred.", name="Client"), write("Mildred", "van_name"))


def test_a_guess_that_is_marked_as_one_is_none(engine: Engine, run: Run) -> None:
    assert not found(
        engine, run, agent("The cache may be the reason."), write("cache warm-up", "slow", hypothesis=True)
    )


def test_test_prompts_do_not_become_a_rule_about_characters(engine: Engine, run: Run) -> None:
    claim = "default model talks like a captain, model B is curt"
    events = [
        user("hi (default model)"),
        agent("Ahoy!"),
        user("hi (model B)"),
        agent("Hi."),
        write(claim, source="inferred"),
    ]

    assert [finding.step for finding in found(engine, run, *events)] == [5]


def test_a_suspicion_of_the_agent_does_not_become_a_fact_about_a_colleague(engine: Engine, run: Run) -> None:
    events = [
        agent("The writer agent probably cannot search.", name="lead"),
        write("writer subagent has no Search/Fetch", "writer_tools", source="unknown"),
        Turn(trigger=Trigger.NEW_RUN),
        read("writer subagent has no Search/Fetch", "writer_tools"),
    ]

    assert [finding.step for finding in found(engine, run, *events)] == [2]


def test_a_plan_and_an_empty_search_show_nothing(engine: Engine, run: Run) -> None:
    events = [
        Plan(steps=[PlanStep(id="1", tool="search_docs", arguments={"query": "delete invoice"})]),
        tool("nothing found", "search_docs", {"query": "delete invoice"}),
        agent("Use the waste paper icon."),
        write("invoices are deleted by the waste paper icon", "how_to_delete", source="unknown"),
    ]

    assert [finding.step for finding in found(engine, run, *events)] == [4]


def test_swapped_digits_are_a_finding_and_the_right_ones_are_none(engine: Engine, run: Run) -> None:
    measured = tool("p50 21 ms, p95 318 ms, 900 requests", "bench", {"path": "/login"})

    assert not found(engine, run, measured, write("p95 of /login is 318 ms", "a", source="tool"))
    assert found(engine, run, write("p95 of /login is 381 ms", "b", source="tool"))


def test_what_comes_in_again_after_it_was_corrected_is_a_finding_that_names_the_correction(
    engine: Engine, run: Run
) -> None:
    events = [
        user("My desk is number 31."),
        write("number 31", "desk", source="user"),
        user("Sorry, number 13."),
        update("number 13", "desk", source="user"),
        write("number 31", "desk", source="unknown"),
    ]

    (finding,) = found(engine, run, *events)

    assert (finding.step, finding.evidence) == (5, (4, 5))
    assert finding.message.startswith("[agentguard] Not stored: it was corrected later.")


def test_tests_that_ran_through_another_tool_count(engine: Engine, run: Run) -> None:
    events = [
        tool("not allowed", "shell", {"command": "cd p && pytest"}, outcome=Outcome.FAILED),
        tool("ok", "write_file", {"path": "all.py", "content": "import pytest"}),
        tool("7 passed in 0.31s", "run_script", {"path": "all.py"}),
        write("suite passes (7 tests)", "test_state", source="tool"),
    ]

    assert not found(engine, run, *events)


def test_the_same_claim_is_reported_once(engine: Engine, run: Run) -> None:
    findings = found(engine, run, *(write("the user is angry", "mood") for _ in range(20)))

    assert [finding.step for finding in findings] == [1]


def test_two_claims_are_two_findings(engine: Engine, run: Run) -> None:
    assert len(found(engine, run, write("the user is angry", "mood"), write("the user is rich", "money"))) == 2


def test_reading_and_everything_else_is_no_write(engine: Engine, run: Run) -> None:
    assert not found(
        engine, run, read("the user is angry"), Compaction(), ModelCall(model="m"), Turn(trigger=Trigger.TIMER)
    )


def test_sinks_see_the_verdict_on_the_event(engine: Engine, run: Run, sink: RecordingSink) -> None:
    found(
        engine,
        run,
        user("I want a refund"),
        write("wants a refund", evidence=[Evidence(step=1, quote="want a refund")]),
    )

    memory = sink.events[-1]
    assert isinstance(memory, Memory)
    assert (memory.verdict, memory.weight, memory.reasons) == ("verified", 1.0, ("the evidence shows it",))


def test_texts_for_models_and_people_do_not_repeat_what_was_claimed(engine: Engine, run: Run) -> None:
    (finding,) = found(engine, run, user("hello"), write("the account of Zorblatt is 4711", "secret"))

    assert not any(word in finding.message + finding.explanation for word in ("Zorblatt", "4711", "secret"))
    assert "not from the user" in finding.message


def test_a_check_that_fails_is_counted_and_the_write_goes_through_as_an_intent(
    engine: Engine, run: Run, sink: RecordingSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("otel_agentguard.memory.gate.find_support", broken)
    memory = write("the user wants a refund")

    assert not found(engine, run, user("I want a refund"), memory)
    assert sink.failures == ["check memory"]
    assert memory.verdict == "unverifiable"
    assert memory.stamp is not None
    assert memory.stamp["agentguard_kind"] == "intent"


def test_runs_do_not_see_what_other_runs_observed(engine: Engine, run: Run) -> None:
    found(engine, run, user("I want a refund"))

    assert found(engine, engine.open("other"), write("the user wants a refund"))


def test_what_one_run_stored_another_can_recall_and_revoke() -> None:
    book = MemoryBook()
    engine = Engine(checks=[MemoryCheck(book=book)])
    found(engine, engine.open("first"), user("the lamp is broken"), write("the lamp is broken", "lamp"))

    assert [entry.value for entry in book.recall("lamp")] == ["the lamp is broken"]
    assert book.revoke("first") == 1
    assert book.recall("lamp") == []
