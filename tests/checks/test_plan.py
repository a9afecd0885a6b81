"""The plan check in a run: calls, plans, and what leaves them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from otel_agentguard.checks.plan import PlanCheck, PlanRun
from otel_agentguard.config import Settings
from otel_agentguard.engine import Engine
from otel_agentguard.events import Crash, Effect, Event, Outcome, Plan, PlanStep, Resume, ToolSpec, Trigger, Turn
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.plans import ToolRegistry
from otel_agentguard.readers.runlog import RecordedRun, read_file
from otel_agentguard.runs import Run
from otel_agentguard.sinks.prometheus import PrometheusSink
from otel_agentguard.testing import tool_call

TOOLS = ToolRegistry.from_dicts(
    {
        "web_search": {"required": ["query"], "optional": ["limit"]},
        "read_file": {"required": ["path"]},
        "write_file": {"required": ["path", "content"]},
        "send_email": {"required": ["to", "body"], "effect": "side_effect"},
        "charge": {"required": ["order", "amount"], "effect": "side_effect"},
    }
)


class Replay:
    """One run through an engine that has the plan check alone."""

    def __init__(self, tools: Mapping[str, ToolSpec] | None = TOOLS, check: PlanCheck | None = None) -> None:
        self.engine = Engine(checks=[check or PlanCheck()], settings=Settings(checks=("plan",)))
        self.run: Run = self.engine.open("r", tools=tools)

    def add(self, *events: Event) -> list[Finding]:
        return [finding for event in events for finding in self.engine.observe(self.run, event).findings]

    def kinds(self, *events: Event) -> list[tuple[int, Kind]]:
        return [(finding.step, finding.kind) for finding in self.add(*events)]

    @property
    def check(self) -> PlanRun:
        ((_, check),) = self.run.checks
        assert isinstance(check, PlanRun)
        return check


def plan(*steps: tuple[str | None, dict[str, object]], agent: str = "planner") -> Plan:
    made = [PlanStep(id=str(number), tool=tool, arguments=args) for number, (tool, args) in enumerate(steps, 1)]
    return Plan(agent=agent, steps=made)


def mail(to: str = "kim@x.test", **more: object):  # type: ignore[no-untyped-def]
    return tool_call("send_email", {"to": to, "body": "hello", **more}, "sent", effect=Effect.SIDE_EFFECT)


READ = ("read_file", {"path": "notes.md"})
WRITE = ("write_file", {"path": "draft.md", "content": "{step_1}"})
MAIL = ("send_email", {"to": "kim@x.test", "body": "{step_1}"})
READ_CALL = tool_call("read_file", {"path": "notes.md"}, "three points")


def read() -> Event:
    return tool_call("read_file", {"path": "notes.md"}, "three points")


def write() -> Event:
    return tool_call("write_file", {"path": "draft.md", "content": "three points"}, "ok", effect=Effect.WRITE)


def test_a_call_of_a_tool_that_there_is_not_is_told_before_it_runs() -> None:
    replay = Replay()
    call = tool_call("search", {"query": "x"})

    decision = replay.engine.before(replay.run, call)

    (finding,) = decision.findings
    assert (finding.check, finding.kind, finding.severity) == (CheckName.PLAN, Kind.PLAN, Severity.WARN)
    assert decision.action is Action.HINT
    assert "use `web_search`" in finding.message
    assert "from the plan check, not from the user" in finding.message
    assert call.plan_errors == ("unknown_tool",)


def test_a_call_without_what_it_needs_is_told_once_however_often_it_is_made() -> None:
    replay = Replay()

    findings = replay.kinds(*(tool_call("web_search", {}, "missing query", outcome=Outcome.FAILED) for _ in range(6)))

    assert findings == [(1, Kind.PLAN)]


def test_the_same_violation_with_other_values_is_told_once() -> None:
    replay = Replay()

    findings = replay.kinds(*(tool_call("web_search", {"limit": number}) for number in range(6)))

    assert findings == [(1, Kind.PLAN)]


def test_another_violation_of_the_same_tool_is_told() -> None:
    replay = Replay()

    findings = replay.kinds(tool_call("web_search", {}), tool_call("web_search", {"query": "x", "page": 2}))

    assert findings == [(1, Kind.PLAN), (2, Kind.PLAN)]


def test_a_call_that_was_put_right_is_left_alone() -> None:
    replay = Replay()

    findings = replay.kinds(
        tool_call("write_file", {"path": "a.md"}, "content is missing", outcome=Outcome.FAILED),
        tool_call("write_file", {"path": "a.md", "content": "x"}),
        tool_call("write_file", {"path": "b.md", "content": "y"}),
    )

    assert findings == [(1, Kind.PLAN)]


def test_calls_pass_where_no_tools_are_known() -> None:
    replay = Replay(tools=None)

    assert replay.kinds(tool_call("whatever", {"a": "<b_c>"})) == []


def test_tools_that_are_declared_on_the_way_are_checked_but_do_not_rule_out_others() -> None:
    replay = Replay(tools=None)
    assert replay.kinds(tool_call("web_search", {})) == []
    tools = replay.run.info.tools
    assert isinstance(tools, dict)

    tools["read_file"] = TOOLS["read_file"]

    assert replay.kinds(tool_call("read_file", {}), tool_call("teleport", {})) == [(2, Kind.PLAN)]


def test_a_list_that_is_said_to_be_complete_rules_out_others() -> None:
    replay = Replay(tools=None)
    tools = replay.run.info.tools
    assert isinstance(tools, dict)
    tools["read_file"] = TOOLS["read_file"]

    replay.run.info.tools_complete = True

    assert replay.kinds(tool_call("teleport", {})) == [(1, Kind.PLAN)]


def test_what_is_known_of_some_tools_does_not_rule_out_others() -> None:
    engine = Engine(checks=[PlanCheck()])
    run = engine.open("r", tools=TOOLS, tools_complete=False)

    unknown = engine.observe(run, tool_call("teleport", {}))
    planned = engine.observe(run, plan(("teleport", {})))
    wrong = engine.observe(run, tool_call("read_file", {}))

    assert (unknown.findings, planned.findings) == ((), ())
    assert [finding.kind for finding in wrong.findings] == [Kind.PLAN]


def test_a_tool_that_answers_shows_that_the_list_of_tools_is_not_complete() -> None:
    replay = Replay()

    findings = replay.kinds(
        tool_call("notify", {"who": "kim"}, "notified"),
        tool_call("archive", {}, "busy", outcome=Outcome.FAILED),
        tool_call("read_file", {}, "no path", outcome=Outcome.FAILED),
    )

    assert findings == [(3, Kind.PLAN)]


@pytest.mark.parametrize(
    "result", ["no tool of that name: serch", "Tool 'serch' not found.", "serch is not a valid tool, try web_search"]
)
def test_a_result_that_says_there_is_no_such_tool_is_no_answer_of_it(result: str) -> None:
    replay = Replay()

    assert replay.kinds(tool_call("serch", {}, result)) == [(1, Kind.PLAN)]


def test_a_live_call_of_an_unlisted_tool_is_told_until_it_answers() -> None:
    replay = Replay()
    calls = [tool_call("notify", {"who": name}, "notified") for name in ("kim", "bob")]
    told = []

    for call in calls:
        call.outcome = None
        told.append(len(replay.engine.before(replay.run, call).findings))
        call.outcome = Outcome.OK
        replay.engine.after(replay.run, call)

    assert told == [1, 0]


def test_errors_of_plans_and_drift_are_counted() -> None:
    sink = PrometheusSink()
    engine = Engine(checks=[PlanCheck()], sinks=[sink])
    run = engine.open("r", tools=TOOLS)

    for event in (plan(READ, ("teleport", {})), read(), tool_call("web_search", {})):
        engine.observe(run, event)
    engine.close(run)

    counted = {
        code: sink.registry.get_sample_value("agentguard_plan_errors_total", {"code": code})
        for code in ("unknown_tool", "missing_argument", "cycle")
    }
    assert counted == {"unknown_tool": 1, "missing_argument": 1, "cycle": 0}
    assert sink.registry.get_sample_value("agentguard_plan_drift_ratio_count") == 1
    sink.close()


def test_a_call_whose_arguments_were_not_captured_is_checked_by_name() -> None:
    replay = Replay()
    known, unknown = tool_call("web_search"), tool_call("teleport")
    for call in (known, unknown):
        call.arguments = call.fingerprint = None

    assert replay.kinds(known, unknown) == [(2, Kind.PLAN)]


def test_the_key_that_the_guard_fills_is_no_violation() -> None:
    replay = Replay()

    assert replay.kinds(mail(idempotency_key="k"), mail()) == []


def test_a_reference_that_nobody_resolved_is_told_when_it_is_called() -> None:
    replay = Replay()

    (finding,) = replay.add(tool_call("read_file", {"path": "{step_1}"}))

    assert "placeholder" in finding.message


def test_messages_do_not_quote_what_the_model_passed() -> None:
    replay = Replay(ToolRegistry([ToolSpec(name="f", schema={"type": "object", "properties": {"a": {"enum": ["x"]}}})]))

    (finding,) = replay.add(tool_call("f", {"a": "s3cret"}))

    assert "s3cret" not in finding.message + finding.explanation


def test_a_tool_with_a_broken_schema_is_checked_by_name_only() -> None:
    broken = ToolSpec(name="f", schema={"type": "object", "required": "abc"})
    replay = Replay({"f": broken})

    assert replay.kinds(tool_call("f", {}), tool_call("g", {})) == [(2, Kind.PLAN)]


def test_a_plan_that_cannot_be_executed_is_told_when_it_is_made() -> None:
    replay = Replay()
    made = plan(("web_search", {}), ("teleport", {"to": "{step_7}"}))

    (finding,) = replay.add(made)

    assert (finding.step, finding.kind, finding.severity) == (1, Kind.PLAN, Severity.WARN)
    assert finding.action is Action.HINT
    assert made.plan_errors == ("missing_argument", "unknown_tool", "bad_reference")


def test_a_plan_and_calls_that_agree_are_silent() -> None:
    replay = Replay()

    assert replay.kinds(plan(READ, WRITE), read(), write()) == []
    assert replay.run.info.plan_drift == 0.0


def test_a_plan_is_checked_for_its_references_where_no_tools_are_known() -> None:
    replay = Replay(tools=None)

    assert replay.kinds(plan(("teleport", {"to": "{step_7}"}))) == [(1, Kind.PLAN)]
    assert replay.kinds(plan(("teleport", {"to": "moon"}))) == []


def test_a_plan_with_the_same_errors_again_is_a_loop() -> None:
    replay = Replay()
    faulty = [plan(("teleport", {"to": place})) for place in ("moon", "mars", "venus")]

    first, second = replay.add(*faulty)

    assert (first.step, first.kind) == (1, Kind.PLAN)
    assert (second.step, second.kind, second.severity) == (2, Kind.LOOP, Severity.WARN)
    assert second.evidence == (1, 2)
    assert "same errors as at step 1" in second.message


def test_plans_that_stay_faulty_are_stopped_in_the_end() -> None:
    replay = Replay()

    findings = replay.add(*(plan(("teleport", {})) for _ in range(6)))

    assert [finding.action for finding in findings] == [Action.HINT, Action.HINT, Action.BLOCK, Action.STOP]


def test_a_faulty_plan_after_a_good_one_starts_anew() -> None:
    replay = Replay()

    findings = replay.kinds(plan(("teleport", {})), plan(READ), plan(("warp", {})))

    assert findings == [(1, Kind.PLAN), (3, Kind.PLAN)]


def test_a_side_effect_that_no_step_names_is_told_with_what_is_next() -> None:
    replay = Replay()
    replay.add(plan(READ, WRITE), read())

    decision = replay.engine.before(replay.run, mail())

    (finding,) = decision.findings
    assert (finding.step, finding.kind, finding.severity) == (3, Kind.PLAN_DRIFT, Severity.WARN)
    assert finding.evidence == (1, 3)
    assert "step 2 (`write_file`)" in finding.message
    assert "not from the user" in finding.message


def test_a_side_effect_after_the_end_of_the_plan_is_told() -> None:
    replay = Replay()

    (finding,) = replay.add(plan(READ, WRITE), read(), write(), mail())

    assert (finding.step, finding.kind) == (4, Kind.PLAN_DRIFT)
    assert "All its steps are done" in finding.message


def test_a_side_effect_off_the_plan_can_be_kept_from_happening() -> None:
    replay = Replay(check=PlanCheck(off_plan=Action.BLOCK))
    replay.add(plan(READ))

    decision = replay.engine.before(replay.run, mail())

    assert decision.action is Action.BLOCK


def test_extra_reads_and_writes_in_the_workspace_are_no_finding() -> None:
    replay = Replay()

    findings = replay.kinds(plan(READ, MAIL), read(), write(), tool_call("web_search", {"query": "x"}, "y"), mail())

    assert findings == []
    assert replay.run.info.plan_drift is not None
    assert replay.run.info.plan_drift > 0


def test_side_effects_without_a_plan_are_no_drift() -> None:
    replay = Replay()

    assert replay.kinds(mail(), mail("bob@x.test")) == []
    assert replay.check.drift() is None


def test_a_retry_of_a_planned_side_effect_that_failed_is_on_plan() -> None:
    replay = Replay()
    failed = tool_call("send_email", {"to": "kim@x.test", "body": "b"}, "busy", outcome=Outcome.FAILED)

    assert replay.kinds(plan(READ, MAIL), read(), failed, mail()) == []


def test_a_planned_side_effect_is_on_plan_again_after_a_crash() -> None:
    replay = Replay()
    replay.add(plan(READ, MAIL), read())
    replay.engine.before(replay.run, mail())

    assert replay.kinds(Crash(), Resume(), mail()) == []


def test_a_planned_side_effect_made_twice_is_left_to_the_effects_check() -> None:
    replay = Replay()

    assert replay.kinds(plan(READ, ("send_email", {"to": "kim@x.test", "body": "hi"})), read(), mail(), mail()) == []


def test_what_a_person_asks_for_later_is_not_off_the_plan() -> None:
    replay = Replay()

    assert replay.kinds(plan(READ), read(), Turn(trigger=Trigger.USER, text="now mail it"), mail()) == []


def test_a_new_plan_replaces_the_old_one() -> None:
    replay = Replay()

    findings = replay.kinds(plan(READ, WRITE), read(), plan(READ, MAIL), mail())

    assert findings == []
    assert replay.run.info.plan_drift == 0.0


def test_a_plan_that_is_sent_again_unchanged_keeps_what_is_done() -> None:
    replay = Replay()

    replay.add(plan(READ, WRITE), read(), plan(READ, WRITE), write())

    assert replay.run.info.plan_drift == 0.0


def test_the_plans_of_two_agents_are_both_followed() -> None:
    replay = Replay()

    findings = replay.kinds(plan(READ, MAIL, agent="lead"), plan(READ, WRITE, agent="coder"), read(), write(), mail())

    assert findings == []


def test_another_amount_than_planned_is_told() -> None:
    replay = Replay()
    call = tool_call("charge", {"order": "o-1", "amount": 500}, effect=Effect.SIDE_EFFECT)

    (finding,) = replay.add(plan(("charge", {"order": "o-1", "amount": 50})), call)

    assert finding.kind is Kind.PLAN_DRIFT
    assert "`amount`" in finding.message
    assert "500" not in finding.message


def test_one_mail_for_each_of_a_list_is_on_plan() -> None:
    replay = Replay()
    made = plan(("read_file", {"path": "people.txt"}), ("send_email", {"to": "{step_1}", "body": "hi"}))

    findings = replay.kinds(made, tool_call("read_file", {"path": "people.txt"}), *(mail(f"{n}@x.test") for n in "abc"))

    assert findings == []


def test_a_mail_that_a_person_refused_was_not_sent() -> None:
    replay = Replay()
    refused = tool_call("send_email", {"to": "a@x.test", "body": "b"}, outcome=Outcome.DENIED)

    assert replay.kinds(plan(READ), read(), refused) == []


def test_what_is_kept_of_a_long_run_is_bounded() -> None:
    replay = Replay()

    for number in range(3000):
        replay.add(tool_call("web_search", {"query": str(number)}), plan(READ, agent=f"agent {number}"))

    assert len(replay.check._checked) <= 512
    assert len(replay.check._plans) <= 8


def _cases() -> Sequence[tuple[RecordedRun, Mapping[str, object]]]:
    root = os.environ.get("AGENTGUARD_DATA")
    if root is None:
        pytest.skip("AGENTGUARD_DATA is not set: the small cases are not read")
    path = Path(root) / "cases" / "dev.jsonl"
    expected = {case["id"]: case["expect"] for case in map(json.loads, path.read_text().splitlines())}
    runs = read_file(path, settings=Settings(), unknown=Counter())
    return [(run, expected[run.id]) for run in runs if isinstance(run, RecordedRun)]


def _findings(run: RecordedRun) -> list[Finding]:
    return Replay(tools=run.tools).add(*run.events)


def test_the_small_cases_about_plans_are_found_in_time() -> None:
    cases = [(run, expect) for run, expect in _cases() if expect["finding"] == "plan"]

    for run, expect in cases:
        told = [finding.step for finding in _findings(run) if finding.severity is not Severity.INFO]
        assert told, run.id
        assert int(str(expect["never_before_step"] or 1)) <= min(told) <= int(str(expect["by_step"])), run.id
    assert len(cases) >= 6


def test_the_small_cases_about_other_things_are_left_alone() -> None:
    cases = [run for run, expect in _cases() if expect["finding"] != "plan"]

    wrong = [run.id for run in cases if _findings(run)]

    assert cases
    assert wrong == []
