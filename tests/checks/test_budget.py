"""The budget check: counts, hints, stops, what children use, and what a person may add."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from otel_agentguard.checks import budget as budget_module
from otel_agentguard.checks.budget import BudgetCheck, load_prices
from otel_agentguard.checks.registry import default_checks
from otel_agentguard.config import Budget, Settings
from otel_agentguard.engine import Engine
from otel_agentguard.errors import ConfigError, MissingExtraError
from otel_agentguard.events import Event, Handoff, Message, ModelCall, Outcome, Plan, ToolCall, Turn
from otel_agentguard.findings import Action, Finding, Kind, Severity
from otel_agentguard.runs import ApprovalRequest, Decision, Run
from otel_agentguard.testing import ManualClock, RecordingSink


class Guarded:
    """An engine with the budget check alone."""

    def __init__(
        self, budget: Budget | None = None, *, approve: Callable[[ApprovalRequest], Any] | None = None, **more: Any
    ) -> None:
        self.clock = ManualClock()
        self.sink = RecordingSink()
        settings = Settings(budget=budget or Budget(), attended=approve is not None)
        self.engine = Engine(
            checks=[BudgetCheck()], settings=settings, now_s=self.clock, sinks=[self.sink], approve=approve, **more
        )
        self.run: Run = self.engine.open("r")

    def do(self, event: Event, run: Run | None = None, *, enforce: bool = True) -> list[Decision]:
        """Take an event through both seams; only the first where it is refused."""
        run = run or self.run
        event.at_s = self.clock() if event.at_s is None else event.at_s
        upcoming = self.engine.before(run, event, enforce=enforce)
        if enforce and upcoming.action >= Action.BLOCK:
            return [upcoming]
        if isinstance(event, ToolCall | ModelCall):
            event.outcome = event.outcome or Outcome.OK
        return [upcoming, self.engine.after(run, event, enforce=enforce)]

    def happened(self, event: Event, run: Run | None = None) -> bool:
        return len(self.do(event, run)) == 2

    @property
    def findings(self) -> list[Finding]:
        return [finding for finding, _ in self.sink.findings]

    def stops(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.action is Action.STOP]

    def hints(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.action is Action.HINT]


def call(number: int = 0, agent: str = "agent") -> ToolCall:
    return ToolCall(agent=agent, tool="look", arguments={"n": number})


def model(tokens: int | None = None, name: str = "gpt-4o", written: int | None = None) -> ModelCall:
    return ModelCall(model=name, input_tokens=tokens, output_tokens=written)


@pytest.mark.parametrize(
    ("limit", "event"),
    [
        (Budget(steps=3), call),
        (Budget(steps=3), lambda: Message(text="hello")),
        (Budget(steps=3), model),
        (Budget(steps=3), lambda: Handoff(to="b")),
        (Budget(tool_calls=3), call),
        (Budget(model_calls=3), model),
        (Budget(handoffs=3), lambda: Handoff(to="b")),
    ],
)
def test_the_event_that_would_go_over_a_limit_does_not_happen(limit: Budget, event: Callable[[], Event]) -> None:
    guarded = Guarded(limit)

    happened = [guarded.happened(event()) for _ in range(5)]

    assert happened == [True, True, True, False, False]
    [stop] = guarded.stops()
    assert (stop.kind, stop.step, stop.severity) == (Kind.BUDGET, 4, Severity.WARN)
    assert guarded.run.stopped is stop


def test_a_limit_on_one_kind_of_event_leaves_the_others_alone() -> None:
    guarded = Guarded(Budget(tool_calls=1))

    assert guarded.happened(call())
    assert all(guarded.happened(event) for event in (model(), Message(text="a"), Handoff(to="b")))
    assert not guarded.happened(call())


def test_turns_and_plans_are_steps_but_are_not_stopped_at() -> None:
    guarded = Guarded(Budget(steps=1))

    assert guarded.happened(Turn())
    assert guarded.happened(Plan())
    assert not guarded.happened(call())


def test_without_a_limit_nothing_is_found() -> None:
    guarded = Guarded(Budget())

    assert all(guarded.happened(call(number)) for number in range(100))
    assert guarded.findings == []


def test_most_of_a_limit_gives_one_hint_that_says_how_much_is_left() -> None:
    guarded = Guarded(Budget(tool_calls=10))

    for number in range(10):
        guarded.do(call(number))

    [hint] = guarded.hints()
    assert (hint.step, hint.severity) == (8, Severity.WARN)
    assert "8 of 10 tool calls of this run are used" in hint.message
    assert hint.message.startswith("[agentguard]")
    assert "budget.tool_calls" in hint.explanation


def test_the_share_at_which_a_hint_is_given_can_be_set() -> None:
    guarded = Guarded(Budget(tool_calls=10, soft=0.5))

    for number in range(10):
        guarded.do(call(number))

    assert [hint.step for hint in guarded.hints()] == [5]


def test_a_stop_names_the_setting_the_run_and_what_was_used() -> None:
    guarded = Guarded(Budget(steps=2))

    for number in range(3):
        guarded.do(call(number))

    [stop] = guarded.stops()
    assert "2 of 2 steps of this run (r) are used; limit budget.steps" in stop.explanation
    assert stop.evidence == (3,)


def test_tokens_are_known_afterwards_so_the_next_request_does_not_go_out() -> None:
    guarded = Guarded(Budget(tokens=1000))

    assert guarded.happened(model(600, written=300))
    assert guarded.happened(model(100))

    assert guarded.happened(call())
    assert not guarded.happened(model(1))
    assert guarded.stops()[0].severity is Severity.WARN


def test_nothing_happens_any_more_once_tokens_were_overshot() -> None:
    guarded = Guarded(Budget(tokens=1000))
    guarded.do(model(1500))

    assert not guarded.happened(call())

    assert guarded.stops()[0].severity is Severity.ERROR
    assert "1,500 of 1,000 tokens" in guarded.stops()[0].message


def test_wall_time_is_measured_from_the_opening_of_the_run() -> None:
    guarded = Guarded(Budget(seconds=60))
    guarded.clock.advance(50)
    assert guarded.happened(call())
    guarded.clock.advance(9)
    assert guarded.happened(call())

    guarded.clock.advance(1)

    assert not guarded.happened(call())
    assert [hint.step for hint in guarded.hints()] == [1]


def test_a_record_with_another_clock_than_the_guard_is_not_out_of_time_at_once() -> None:
    guarded = Guarded(Budget(seconds=60))
    slow = [ToolCall(tool="t", at_s=at_s) for at_s in (5.0, 50.0, 64.0, 66.0)]

    happened = [guarded.happened(event) for event in slow]

    assert happened == [True, True, True, False]


def test_calls_that_run_at_the_same_time_share_what_is_left() -> None:
    guarded = Guarded(Budget(tool_calls=2))
    begun = [call(number) for number in range(4)]

    actions = [guarded.engine.before(guarded.run, event).action for event in begun]

    assert actions == [Action.ALLOW, Action.ALLOW, Action.STOP, Action.STOP]


def test_what_was_refused_or_served_from_cache_is_no_call_that_was_made() -> None:
    guarded = Guarded(Budget(tool_calls=2))
    served = call()
    served.served_from = "cache"
    put_off = call()
    put_off.outcome = Outcome.NOT_EXECUTED

    guarded.do(served)
    guarded.do(put_off)

    assert [guarded.happened(call(number)) for number in range(3)] == [True, True, False]


def test_a_budget_of_an_agent_counts_only_what_that_agent_does() -> None:
    guarded = Guarded(Budget(agents={"coder": Budget(tool_calls=2)}))

    assert all(guarded.happened(call(n, "tester")) for n in range(5))
    assert [guarded.happened(call(n, "coder")) for n in range(3)] == [True, True, False]

    [stop] = guarded.stops()
    assert "budget.agents.coder.tool_calls" in stop.explanation
    assert "the agent coder" in stop.message


def test_what_a_child_uses_adds_up_in_its_parent() -> None:
    guarded = Guarded(Budget(tool_calls=4))
    child = guarded.engine.open("child", parent=guarded.run, settings=Settings())
    grandchild = guarded.engine.open("grandchild", parent=child, settings=Settings())

    happened = [guarded.happened(call(), run) for run in (guarded.run, child, grandchild, child)]

    assert happened == [True] * 4
    assert not guarded.happened(call(), guarded.run)
    assert guarded.run.stopped is not None


def test_a_child_stops_when_its_parent_has_nothing_left() -> None:
    guarded = Guarded(Budget(tool_calls=1))
    child = guarded.engine.open("child", parent=guarded.run, settings=Settings())
    guarded.do(call())

    assert not guarded.happened(call(), child)

    assert "(r)" in guarded.stops()[0].explanation
    assert guarded.run.stopped is None


def test_a_child_out_of_its_own_budget_leaves_its_parent_running() -> None:
    guarded = Guarded(Budget(tool_calls=10))
    child = guarded.engine.open("child", parent=guarded.run, settings=Settings(budget=Budget(tool_calls=1)))

    assert [guarded.happened(call(), child) for _ in range(2)] == [True, False]
    assert guarded.happened(call())


def test_children_in_threads_do_not_use_more_than_there_is() -> None:
    guarded = Guarded(Budget(tool_calls=200))
    children = [guarded.engine.open(f"c{n}", parent=guarded.run, settings=Settings()) for n in range(8)]
    done: list[bool] = []

    def work(child: Run) -> None:
        done.extend(guarded.happened(call(), child) for _ in range(50))

    threads = [threading.Thread(target=work, args=(child,)) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert done.count(True) == 200


def test_a_plain_yes_of_a_person_gives_as_much_again() -> None:
    guarded = Guarded(Budget(tool_calls=2), approve=lambda _: True)

    assert all(guarded.happened(call(n)) for n in range(4))

    assert [finding.step for finding in guarded.findings] == [2, 3, 4]
    assert "A person has given this run more: 4 tool calls in all." in guarded.findings[1].message


def test_a_number_gives_that_share_of_the_budget_more() -> None:
    answers = iter([0.5, False])
    guarded = Guarded(Budget(tool_calls=4), approve=lambda _: next(answers))

    happened = [guarded.happened(call(n)) for n in range(7)]

    assert happened == [True] * 6 + [False]


def test_only_the_limit_that_ran_out_is_raised() -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.finding.explanation)
        return len(asked) == 1

    guarded = Guarded(Budget(tool_calls=2, steps=3), approve=approve)

    happened = [guarded.happened(call(n)) for n in range(4)]

    assert happened == [True, True, True, False]
    assert "budget.tool_calls" in asked[0]
    assert "budget.steps" in asked[1]


@pytest.mark.parametrize("answer", [False, None, 0, 0.0, -1, float("nan"), float("inf"), "yes"])
def test_whatever_else_a_person_answers_the_run_stops(answer: object) -> None:
    guarded = Guarded(Budget(tool_calls=1), approve=lambda _: answer)

    assert [guarded.happened(call(n)) for n in range(2)] == [True, False]


def test_a_child_may_be_allowed_more_of_the_budget_of_its_parent() -> None:
    guarded = Guarded(Budget(tool_calls=1), approve=lambda _: True)
    child = guarded.engine.open("child", parent=guarded.run, settings=Settings(), attended=True)
    guarded.do(call())

    assert guarded.happened(call(), child)
    assert guarded.happened(call())


def test_what_the_application_makes_of_a_stop_holds_until_more_is_allowed() -> None:
    guarded = Guarded(Budget(tool_calls=1), on_finding=lambda _, __: Action.HINT)

    assert all(guarded.happened(call(n)) for n in range(5))
    assert guarded.run.stopped is None


def test_observing_tells_once_what_would_have_been_done() -> None:
    guarded = Guarded(Budget(tool_calls=2))

    for number in range(6):
        guarded.engine.observe(guarded.run, call(number))

    assert [stop.step for stop in guarded.stops()] == [3]
    assert guarded.run.stopped is None


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A price list of one model: a dollar for a million tokens read, ten for a million written."""
    known = ModuleType("otel_agentguard.prices")

    def price_usd(name: str, read: int, written: int) -> float | None:
        return (read + 10 * written) / 1e6 if name == "gpt-4o" else None

    known.price_usd = price_usd  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "otel_agentguard.prices", known)
    budget_module._prices.cache_clear()
    yield
    budget_module._prices.cache_clear()


@pytest.mark.usefixtures("prices")
def test_a_cost_limit_is_kept_to_by_the_price_of_the_model() -> None:
    guarded = Guarded(Budget(cost_usd=2.0))

    assert guarded.happened(model(1_000_000))
    assert guarded.happened(model(0, written=100_000))
    assert not guarded.happened(model(1))

    assert "2 of 2 US dollars" in guarded.stops()[0].message


@pytest.mark.usefixtures("prices")
def test_a_model_without_a_price_is_reported_once_and_stops_nothing() -> None:
    guarded = Guarded(Budget(cost_usd=1.0))

    assert all(guarded.happened(model(5_000_000, name="home-made")) for _ in range(3))

    [blind] = guarded.findings
    assert (blind.action, blind.severity, blind.message) == (Action.ALLOW, Severity.WARN, "")
    assert "'home-made'" in blind.explanation


def test_calls_without_tokens_are_reported_once_where_tokens_are_limited() -> None:
    guarded = Guarded(Budget(tokens=1000))

    assert all(guarded.happened(model(None)) for _ in range(3))

    [blind] = guarded.findings
    assert "without tokens" in blind.explanation


def test_the_real_price_list_knows_a_common_model_also_behind_a_gateway() -> None:
    pytest.importorskip("genai_prices", reason="pip install 'otel-agentguard[cost]'")
    from otel_agentguard.prices import price_usd

    price = price_usd("gpt-4o", 1_000_000, 0)

    assert price is not None
    assert 0.1 < price < 100
    assert price_usd("openai/gpt-4o", 1_000_000, 0) == price
    assert price_usd("no-such-model", 1, 1) is None


def test_a_cost_limit_without_the_price_list_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("genai_prices"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "otel_agentguard.prices", raising=False)
    budget_module._prices.cache_clear()

    with pytest.raises(MissingExtraError, match=r"otel-agentguard\[cost\]"):
        default_checks(Settings(budget=Budget(cost_usd=1.0)))
    with pytest.raises(MissingExtraError):
        load_prices(Budget(agents={"a": Budget(cost_usd=1.0)}))


def test_prices_are_not_loaded_while_no_cost_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "otel_agentguard.prices", raising=False)
    budget_module._prices.cache_clear()

    default_checks(Settings(budget=Budget(tokens=1, steps=1)))

    assert "otel_agentguard.prices" not in sys.modules


def test_a_budget_is_kept_to_although_the_checks_do_not_name_it() -> None:
    names = [check.name for check in default_checks(Settings(checks=("loop",), budget=Budget(steps=1)))]

    assert names == ["loop", "budget"]


@pytest.mark.parametrize(
    "wrong",
    [{"steps": -1}, {"cost_usd": float("nan")}, {"seconds": float("inf")}, {"tokens": True}, {"soft": 0}, {"soft": 2}],
)
def test_a_limit_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Budget(**wrong)


def test_a_budget_of_an_agent_has_no_agents_of_its_own() -> None:
    with pytest.raises(ConfigError, match="coder"):
        Budget(agents={"coder": Budget(agents={"x": Budget()})})


def test_a_closed_run_leaves_nothing_behind() -> None:
    check = BudgetCheck()
    engine = Engine(checks=[check], settings=Settings(budget=Budget(steps=5)))
    for number in range(10):
        engine.close(engine.open(f"r{number}"))

    assert len(check._runs) == 0
