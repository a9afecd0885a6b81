"""What a side-effect tool does under the executor, in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from otel_agentguard.effects.calls import Applied, EffectCall, EffectSpec, RunEffects, StillUnknown
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.keys import as_uuid
from otel_agentguard.effects.ledger import Claimed, State
from otel_agentguard.effects.reports import Certainty, EffectOutcome
from otel_agentguard.errors import (
    CallBlocked,
    CompletionNotRecorded,
    ConfigError,
    EffectError,
    EffectInProgress,
    EffectMismatch,
    NotApplied,
    ResultNotStored,
    StoreError,
)
from otel_agentguard.findings import Kind, Severity
from otel_agentguard.stores.memory import MemoryLedger


@dataclass
class Recording:
    """An observer that writes down what it is told."""

    outcomes: list[str] = field(default_factory=list)
    unenforced: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def effect(self, call: EffectCall, outcome: EffectOutcome, *, key: str, attempt: int, enforced: bool) -> None:
        (self.outcomes if enforced else self.unenforced).append(outcome.value)

    def duplicate(self, call: EffectCall, certainty: Certainty, *, key: str) -> None:
        self.duplicates.append(certainty.value)

    def failed(self, where: str) -> None:
        self.failures.append(where)


class FlakyLedger(MemoryLedger):
    """A ledger whose next calls of some methods fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, int] = {}

    def _maybe_fail(self, name: str) -> None:
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            raise StoreError(f"{name} failed")

    def claim(self, request: Any, *, over: Any = None) -> Any:
        self._maybe_fail("claim")
        return super().claim(request, over=over)

    def complete(self, claim: Any, result: Any) -> Any:
        self._maybe_fail("complete")
        return super().complete(claim, result)

    def mark_unknown(self, claim: Any) -> bool:
        self._maybe_fail("mark_unknown")
        return super().mark_unknown(claim)


class Bank:
    """A tool that charges, and counts."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.trouble: BaseException | None = None

    def __call__(self, key: str) -> str:
        self.keys.append(key)
        if self.trouble is not None:
            raise self.trouble
        return f"receipt {len(self.keys)}"


class CardDeclined(Exception):
    """A permanent error."""


class Setup:
    """An executor, a run and a tool."""

    def __init__(self) -> None:
        self.ledger = FlakyLedger()
        self.told = Recording()
        self.executor = EffectExecutor(self.ledger, observer=self.told, retry_delays_s=(0, 0))
        self.run = RunEffects(run_id="ticket-42")
        self.bank = Bank()

    def call(
        self, arguments: Mapping[str, object] | None = None, *, step_id: str | None = None, **given: Any
    ) -> EffectCall:
        return self.run.call(EffectSpec(**{"tool": "charge", **given}), arguments or {"invoice": 7}, step_id=step_id)

    def charge(self, body: Callable[[str], Any] | None = None, **given: Any) -> Any:
        return self.executor.run(self.call(**given), body or self.bank)

    def restart(self) -> None:
        """The same ledger, met by a new process."""
        self.executor = EffectExecutor(self.ledger, observer=self.told, retry_delays_s=(0, 0))
        self.run = RunEffects(run_id="ticket-42")

    def state(self) -> State:
        return self.ledger.list()[0].state


@pytest.fixture
def here() -> Setup:
    return Setup()


def test_a_first_call_runs_and_is_recorded(here: Setup) -> None:
    answer = here.charge()

    assert (answer.value, answer.outcome, answer.attempt, answer.note) == ("receipt 1", "executed", 1, "")
    assert here.bank.keys == [answer.key]
    assert here.told.outcomes == ["executed"]
    assert here.told.duplicates == []
    assert here.state() is State.SUCCEEDED


def test_an_equal_call_at_a_new_step_gets_the_earlier_result_with_a_note(here: Setup) -> None:
    here.charge()

    answer = here.charge()

    assert (answer.value, answer.outcome) == ("receipt 1", "replayed")
    assert "already done" in answer.note
    assert len(here.bank.keys) == 1
    assert here.told.duplicates == ["prevented"]


def test_a_resumed_run_gets_its_results_without_a_note_or_a_count(here: Setup) -> None:
    here.charge()
    here.restart()

    answer = here.charge()

    assert (answer.value, answer.outcome, answer.note) == ("receipt 1", "replayed", "")
    assert here.told.duplicates == []


def test_other_arguments_are_another_effect(here: Setup) -> None:
    here.charge()

    answer = here.charge(arguments={"invoice": 8})

    assert answer.outcome == "executed"
    assert len(set(here.bank.keys)) == 2


def test_an_absent_argument_and_a_null_one_are_the_same(here: Setup) -> None:
    here.charge(arguments={"invoice": 7})

    answer = here.charge(arguments={"invoice": 7, "memo": None})

    assert answer.outcome == "replayed"


def test_one_identity_with_other_arguments_is_a_mismatch(here: Setup) -> None:
    here.charge(arguments={"invoice": 7, "amount": 10}, identity=("invoice",))

    with pytest.raises(EffectMismatch, match="other arguments"):
        here.charge(arguments={"invoice": 7, "amount": 20}, identity=("invoice",))

    assert len(here.bank.keys) == 1
    assert here.told.outcomes == ["executed", "mismatch"]


def test_a_duplicate_is_refused_where_the_tool_says_so(here: Setup) -> None:
    here.charge(on_duplicate="block")

    with pytest.raises(CallBlocked) as caught:
        here.charge(on_duplicate="block")

    assert caught.value.earlier_result == "receipt 1"
    assert caught.value.finding is not None
    assert (caught.value.finding.kind, caught.value.finding.severity) == (Kind.DUPLICATE_SIDE_EFFECT, Severity.ERROR)
    assert here.told.outcomes == ["executed", "blocked"]
    assert here.told.duplicates == ["prevented"]


def test_a_resumed_run_is_not_refused_its_own_step(here: Setup) -> None:
    here.charge(on_duplicate="block")
    here.restart()

    assert here.charge(on_duplicate="block").value == "receipt 1"


@pytest.mark.parametrize(("policy", "certainty"), [("warn", "confirmed"), ("allow", "possible")])
def test_a_duplicate_runs_and_is_counted_where_the_tool_lets_it(here: Setup, policy: str, certainty: str) -> None:
    here.charge(on_duplicate=policy)

    answer = here.charge(on_duplicate=policy)

    assert (answer.value, answer.outcome) == ("receipt 2", "executed")
    assert len(set(here.bank.keys)) == 2
    assert here.told.outcomes == ["executed", "executed"]
    if policy == "warn":
        assert here.told.duplicates == [certainty]


@pytest.mark.parametrize("policy", ["warn", "allow"])
def test_a_resumed_run_finds_each_of_its_duplicates(here: Setup, policy: str) -> None:
    here.charge(on_duplicate=policy)
    here.charge(on_duplicate=policy)
    here.restart()

    values = [here.charge(on_duplicate=policy).value for _ in range(2)]

    assert values == ["receipt 1", "receipt 2"]
    assert len(here.bank.keys) == 2


def test_an_allowed_repeat_in_another_run_of_a_global_scope_runs(here: Setup) -> None:
    here.charge(on_duplicate="allow", scope="global")
    here.run = RunEffects(run_id="ticket-43")

    answer = here.charge(on_duplicate="allow", scope="global")

    assert answer.outcome == "executed"
    assert here.told.duplicates == ["possible"]


def test_a_new_intent_makes_a_repeat_legitimate(here: Setup) -> None:
    here.run.turn(new_intent=True)
    first = here.charge()
    here.run.turn(new_intent=True)

    second = here.charge()

    assert second.outcome == "executed"
    assert first.key != second.key
    assert here.told.duplicates == []


def test_a_resumed_run_that_replays_its_turns_finds_the_effect_of_each(here: Setup) -> None:
    def play() -> list[object]:
        values = []
        for _ in range(3):
            here.run.turn(new_intent=True)
            values.append(here.charge().value)
        return values

    first = play()
    here.restart()

    assert play() == first == ["receipt 1", "receipt 2", "receipt 3"]
    assert len(here.bank.keys) == 3


def test_a_turn_that_is_no_new_intent_renews_nothing(here: Setup) -> None:
    here.run.turn(new_intent=True)
    here.charge()
    here.run.turn(new_intent=False)

    assert here.charge().outcome == "replayed"


def test_a_new_intent_does_not_renew_an_effect_of_unknown_outcome(here: Setup) -> None:
    here.bank.trouble = TimeoutError("no answer")
    with pytest.raises(TimeoutError):
        here.charge()
    here.run.turn(new_intent=True)

    with pytest.raises(CallBlocked):
        here.charge()


def test_a_retry_after_a_new_intent_opens_no_further_intent(here: Setup) -> None:
    here.bank.trouble = TimeoutError("no answer")
    with pytest.raises(TimeoutError):
        here.charge(on_unknown="retry")
    here.bank.trouble = None
    here.run.turn(new_intent=True)
    here.charge(on_unknown="retry")

    assert here.charge(on_unknown="retry").outcome == "replayed"


def test_an_effect_that_was_undone_can_happen_again(here: Setup) -> None:
    here.charge(tool="subscribe", arguments={"user": 1})
    here.charge(tool="cancel", arguments={"user": 1}, compensates="subscribe")

    answer = here.charge(tool="subscribe", arguments={"user": 1})

    assert answer.outcome == "executed"
    assert here.told.duplicates == []


def test_undoing_the_effect_for_one_leaves_that_for_another(here: Setup) -> None:
    here.charge(tool="subscribe", arguments={"user": 1})
    here.charge(tool="cancel", arguments={"user": 2}, compensates="subscribe")

    assert here.charge(tool="subscribe", arguments={"user": 1}).outcome == "replayed"


def test_an_undoing_without_common_arguments_undoes_the_last_effect(here: Setup) -> None:
    here.charge(tool="order", arguments={"item": "tea"})
    here.charge(tool="order", arguments={"item": "jam"})
    here.charge(tool="cancel_last", arguments={"why": "too dear"}, compensates="order")

    assert here.charge(tool="order", arguments={"item": "tea"}).outcome == "replayed"
    assert here.charge(tool="order", arguments={"item": "jam"}).outcome == "executed"


def test_a_resumed_run_with_an_undone_effect_repeats_neither(here: Setup) -> None:
    def play() -> None:
        here.charge(tool="subscribe", arguments={"user": 1})
        here.charge(tool="cancel", arguments={"user": 1}, compensates="subscribe")
        here.charge(tool="subscribe", arguments={"user": 1})

    play()
    here.restart()
    play()

    assert len(here.bank.keys) == 3


def test_a_step_id_of_the_framework_finds_its_effect_wherever_the_run_resumes(here: Setup) -> None:
    here.charge(step_id="node-1", on_duplicate="warn")
    here.charge(step_id="node-2", on_duplicate="warn")
    here.restart()

    answer = here.charge(step_id="node-2", on_duplicate="warn")

    assert (answer.value, answer.outcome) == ("receipt 2", "replayed")


def test_changed_arguments_at_a_known_step_are_another_operation(here: Setup) -> None:
    here.charge(arguments={"invoice": 7}, step_id="node-1")
    here.restart()

    assert here.charge(arguments={"invoice": 8}, step_id="node-1").outcome == "executed"


def test_an_exception_leaves_the_outcome_unknown_and_blocks_the_next_call(here: Setup) -> None:
    here.bank.trouble = TimeoutError("no answer")
    with pytest.raises(TimeoutError, match="no answer"):
        here.charge()

    with pytest.raises(CallBlocked, match="nobody knows") as caught:
        here.charge()

    assert here.state() is State.UNKNOWN
    assert caught.value.finding is not None
    assert "ledger resolve" in caught.value.finding.explanation
    assert here.told.outcomes == ["unknown", "blocked"]


def test_an_unknown_outcome_is_retried_and_counted_where_the_tool_says_so(here: Setup) -> None:
    here.bank.trouble = TimeoutError()
    with pytest.raises(TimeoutError):
        here.charge(on_unknown="retry")
    here.bank.trouble = None

    answer = here.charge(on_unknown="retry")

    assert (answer.outcome, answer.attempt) == ("executed", 2)
    assert len(set(here.bank.keys)) == 1
    assert here.told.duplicates == ["possible"]


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), SystemExit(1), GeneratorExit(), StopIteration(3)])
def test_an_interrupt_leaves_the_outcome_unknown_and_goes_on(here: Setup, trouble: BaseException) -> None:
    here.bank.trouble = trouble

    with pytest.raises(type(trouble)) as caught:
        here.charge()

    assert caught.value is trouble
    assert here.state() is State.UNKNOWN


def test_a_tool_that_says_not_applied_may_be_called_again(here: Setup) -> None:
    here.bank.trouble = NotApplied("the bank was closed")
    with pytest.raises(NotApplied, match="the bank was closed"):
        here.charge()
    here.bank.trouble = None

    answer = here.charge()

    assert (answer.outcome, answer.attempt) == ("executed", 2)
    assert here.told.outcomes == ["not_applied", "executed"]
    assert here.told.duplicates == []


def test_a_permanent_error_is_raised_again_without_another_try(here: Setup) -> None:
    here.bank.trouble = CardDeclined("no funds", 51)
    with pytest.raises(CardDeclined):
        here.charge(permanent=(CardDeclined,))
    here.restart()

    with pytest.raises(CardDeclined) as caught:
        here.charge(permanent=(CardDeclined,))

    assert caught.value.args == ("no funds", 51)
    assert len(here.bank.keys) == 1
    assert here.told.outcomes == ["failed", "failed"]


def test_a_permanent_error_may_be_tried_again_with_a_new_intent(here: Setup) -> None:
    here.bank.trouble = CardDeclined()
    with pytest.raises(CardDeclined):
        here.charge(permanent=(CardDeclined,))
    here.bank.trouble = None
    here.run.turn(new_intent=True)

    assert here.charge(permanent=(CardDeclined,)).outcome == "executed"


def test_a_permanent_error_that_cannot_be_made_again_is_told_as_ours(here: Setup) -> None:
    class Picky(CardDeclined):
        def __init__(self, first: object, second: object) -> None:
            super().__init__("both")

    here.bank.trouble = Picky(1, 2)
    with pytest.raises(Picky):
        here.charge(permanent=(CardDeclined,))

    with pytest.raises(EffectError, match="Picky: both"):
        here.charge(permanent=(CardDeclined,))


def test_the_text_of_an_error_is_not_stored_where_results_are_not(here: Setup) -> None:
    here.bank.trouble = CardDeclined("card 4242")
    with pytest.raises(CardDeclined):
        here.charge(permanent=(CardDeclined,), keep_result=False)

    assert "4242" not in str(here.ledger.list()[0].error)


def test_a_result_without_json_form_is_done_once_and_its_replay_says_so(here: Setup) -> None:
    answer = here.charge(lambda key: threading.Lock())

    with pytest.raises(ResultNotStored, match="not done again"):
        here.charge()

    assert answer.outcome == "executed"
    assert here.bank.keys == []
    assert here.state() is State.SUCCEEDED


def test_a_result_that_breaks_while_it_is_written_down_is_still_a_success(here: Setup) -> None:
    class Broken:
        def model_dump(self, **_: object) -> object:
            raise ZeroDivisionError

        def model_validate(self, _: object) -> object:
            raise NotImplementedError

    here.charge(lambda key: Broken())

    assert here.state() is State.SUCCEEDED


def test_a_none_is_replayed_as_none(here: Setup) -> None:
    here.charge(lambda key: None)

    assert here.charge().value is None


def test_a_result_is_not_stored_where_the_tool_says_so(here: Setup) -> None:
    here.charge(keep_result=False)

    assert here.ledger.list()[0].result is None
    with pytest.raises(ResultNotStored):
        here.charge(keep_result=False)


def test_a_result_over_the_limit_is_not_stored(here: Setup) -> None:
    here.executor = EffectExecutor(here.ledger, max_result_bytes=100)

    here.charge(lambda key: "x" * 200)

    assert here.ledger.list()[0].result is None


def test_a_decoder_rebuilds_what_is_stored(here: Setup) -> None:
    here.charge(lambda key: {"total": 7})

    assert here.charge(decode=lambda plain: plain["total"] + 1).value == 8


def test_a_decoder_that_fails_runs_nothing_again(here: Setup) -> None:
    here.charge()

    with pytest.raises(ResultNotStored):
        here.charge(decode=lambda plain: plain["no such"])


def test_a_store_that_is_down_at_the_claim_keeps_the_tool_from_running(here: Setup) -> None:
    here.ledger.failing["claim"] = 1

    with pytest.raises(StoreError):
        here.charge()

    assert here.bank.keys == []
    assert here.charge().outcome == "executed"


def test_a_completion_is_tried_again(here: Setup) -> None:
    here.ledger.failing["complete"] = 2

    answer = here.charge()

    assert answer.outcome == "executed"
    assert here.state() is State.SUCCEEDED


def test_a_completion_that_cannot_be_recorded_is_told_with_the_next_call(here: Setup) -> None:
    here.ledger.failing["complete"] = 3
    with pytest.raises(CompletionNotRecorded) as caught:
        here.charge()

    answer = here.charge()

    assert caught.value.key == answer.key
    assert (answer.value, answer.outcome) == ("receipt 1", "replayed")
    assert len(here.bank.keys) == 1


def test_a_completion_that_is_never_recorded_leaves_the_effect_unknown(here: Setup) -> None:
    here.ledger.failing["complete"] = 3
    with pytest.raises(CompletionNotRecorded):
        here.charge()
    here.restart()

    with pytest.raises(CallBlocked):
        here.charge()

    assert here.state() is State.UNKNOWN


def test_an_error_of_the_tool_is_not_hidden_by_one_of_the_store(here: Setup) -> None:
    here.bank.trouble = TimeoutError("no answer")
    here.ledger.failing["mark_unknown"] = 1

    with pytest.raises(TimeoutError, match="no answer"):
        here.charge()

    assert here.told.failures == ["ledger"]
    with pytest.raises(CallBlocked):
        here.charge()
    assert here.state() is State.UNKNOWN


def test_what_could_not_be_told_is_told_at_the_end(here: Setup) -> None:
    here.ledger.failing["complete"] = 3
    with pytest.raises(CompletionNotRecorded):
        here.charge()

    assert here.executor.settle_parked() == 0

    assert here.state() is State.SUCCEEDED


@pytest.mark.parametrize(
    "said", [Applied("receipt 0"), NotApplied(), NotApplied, StillUnknown(), "nonsense", OSError()]
)
def test_a_verification_decides_about_an_unknown_outcome(here: Setup, said: object) -> None:
    asked = []

    def verify(key: str, arguments: Mapping[str, object]) -> object:
        asked.append((key, arguments))
        if isinstance(said, OSError):
            raise said
        return said

    here.bank.trouble = TimeoutError()
    with pytest.raises(TimeoutError):
        here.charge(on_unknown="verify", verify=verify)
    here.bank.trouble = None

    if isinstance(said, Applied):
        assert here.charge(on_unknown="verify", verify=verify).value == "receipt 0"
        assert here.charge(on_unknown="verify", verify=verify).value == "receipt 0"
    elif said is NotApplied or isinstance(said, NotApplied):
        assert here.charge(on_unknown="verify", verify=verify).outcome == "executed"
    else:
        with pytest.raises(CallBlocked):
            here.charge(on_unknown="verify", verify=verify)
    assert asked == [(here.bank.keys[0], {"invoice": 7})]


def test_a_verification_without_a_function_is_refused_when_the_tool_is_declared() -> None:
    with pytest.raises(ConfigError, match="needs verify="):
        EffectSpec(tool="charge", on_unknown="verify")  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["on_unknown", "on_duplicate"])
def test_an_unknown_policy_is_refused_with_those_that_are_known(setting: str) -> None:
    with pytest.raises(ConfigError, match="known: "):
        EffectSpec(**{"tool": "charge", setting: "hope"})


def at_once(count: int, work: Callable[[], object]) -> list[object]:
    """Call `work` in several threads; what each got, errors included."""
    results: list[object] = []

    def one() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def slowly(here: Setup, seconds: float = 0.2) -> Callable[[str], str]:
    def body(key: str) -> str:
        time.sleep(seconds)
        return here.bank(key)

    return body


@pytest.mark.parametrize("policy", ["replay", "block", "warn"])
def test_equal_calls_in_flight_at_once_are_one_effect(here: Setup, policy: str) -> None:
    answers: list[Any] = at_once(5, lambda: here.charge(slowly(here), on_duplicate=policy))

    assert {answer.value for answer in answers} == {"receipt 1"}
    assert sorted(here.told.outcomes) == ["executed", "waited", "waited", "waited", "waited"]
    assert here.told.duplicates == ["prevented"] * 4


def test_equal_calls_in_flight_at_once_are_several_effects_where_the_tool_allows_it(here: Setup) -> None:
    at_once(3, lambda: here.charge(slowly(here), on_duplicate="allow"))

    assert len(here.bank.keys) == 3


def test_calls_in_flight_share_the_error_of_the_one_that_ran(here: Setup) -> None:
    here.bank.trouble = TimeoutError("no answer")

    answers = at_once(3, lambda: here.charge(slowly(here), on_unknown="retry"))

    assert [str(answer) for answer in answers] == ["no answer"] * 3
    assert len(here.bank.keys) == 1


def test_a_call_in_flight_with_other_arguments_under_one_identity_is_a_mismatch(here: Setup) -> None:
    amounts = iter([10, 20])

    answers = at_once(
        2,
        lambda: here.charge(slowly(here), arguments={"invoice": 7, "amount": next(amounts)}, identity=("invoice",)),
    )

    assert sorted(type(answer).__name__ for answer in answers) == ["EffectAnswer", "EffectMismatch"]


def test_a_caller_waits_no_longer_than_it_said(here: Setup) -> None:
    answers = at_once(2, lambda: here.charge(slowly(here, 0.5), wait_s=0.05))

    assert sorted(type(answer).__name__ for answer in answers) == ["EffectAnswer", "EffectInProgress"]
    assert len(here.bank.keys) == 1


def test_a_call_waits_for_another_executor_on_the_same_ledger(here: Setup) -> None:
    other = EffectExecutor(here.ledger)
    runs = iter([here.executor, other])
    calls = iter([here.call(on_duplicate="block"), here.call(on_duplicate="block")])

    answers: list[Any] = at_once(2, lambda: next(runs).run(next(calls), slowly(here)))

    assert sorted(answer.outcome for answer in answers) == ["executed", "waited"]
    assert len(here.bank.keys) == 1


def test_a_tool_that_calls_itself_with_the_same_arguments_is_told_at_once(here: Setup) -> None:
    started = time.monotonic()

    with pytest.raises(EffectInProgress, match="called itself"):
        here.charge(lambda key: here.charge())

    assert time.monotonic() - started < 5


def test_an_observer_that_fails_disturbs_nothing(here: Setup) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    here.told.effect = fail  # type: ignore[method-assign]

    assert here.charge().outcome == "executed"


def test_observing_runs_every_body_and_tells_what_would_have_been(here: Setup) -> None:
    answers = [here.executor.run(here.call(), here.bank, enforce=False) for _ in range(2)]

    assert [answer.value for answer in answers] == ["receipt 1", "receipt 2"]
    assert here.told.outcomes == ["executed", "executed"]
    assert here.told.unenforced == ["replayed"]
    assert here.told.duplicates == ["confirmed"]


def test_observing_goes_on_without_a_store(here: Setup) -> None:
    here.ledger.failing.update(claim=1, complete=0)

    answer = here.executor.run(here.call(), here.bank, enforce=False)

    assert answer.value == "receipt 1"
    assert here.told.failures == ["ledger"]


def test_observing_survives_a_completion_that_cannot_be_recorded(here: Setup) -> None:
    here.ledger.failing["complete"] = 3

    answer = here.executor.run(here.call(), here.bank, enforce=False)

    assert answer.value == "receipt 1"
    assert here.told.failures == ["ledger"]


def test_observing_does_not_refuse_what_is_unknown(here: Setup) -> None:
    here.bank.trouble = TimeoutError()
    with pytest.raises(TimeoutError):
        here.executor.run(here.call(), here.bank, enforce=False)
    here.bank.trouble = None

    answer = here.executor.run(here.call(), here.bank, enforce=False)

    assert answer.value == "receipt 2"
    assert here.told.unenforced == ["blocked"]
    assert here.told.duplicates == ["possible"]


def test_the_callee_gets_one_key_for_all_attempts_of_an_intent(here: Setup) -> None:
    here.bank.trouble = TimeoutError()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            here.charge(on_unknown="retry")
    here.restart()
    here.bank.trouble = None
    answer = here.charge(on_unknown="retry")

    assert here.bank.keys == [answer.key] * 3
    assert as_uuid(answer.key).count("-") == 4


def test_a_memory_ledger_keeps_no_more_records_than_it_may(here: Setup) -> None:
    ledger = MemoryLedger(max_records=3)
    executor = EffectExecutor(ledger)

    for invoice in range(10):
        executor.run(here.call({"invoice": invoice}), here.bank)

    assert len(ledger.list()) == 3


def test_a_memory_ledger_full_of_unsettled_records_takes_no_more(here: Setup) -> None:
    ledger = MemoryLedger(max_records=2)
    executor = EffectExecutor(ledger)
    here.bank.trouble = TimeoutError()
    for invoice in range(2):
        with pytest.raises(TimeoutError):
            executor.run(here.call({"invoice": invoice}), here.bank)

    with pytest.raises(StoreError, match="unsettled"):
        executor.run(here.call({"invoice": 3}), here.bank)


def test_a_claim_that_is_settled_is_no_longer_vouched_for(here: Setup) -> None:
    here.charge()
    here.bank.trouble = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        here.charge(arguments={"invoice": 8})

    assert not here.ledger.claims.any_running


def test_an_interrupt_on_the_way_to_the_ledger_is_still_recorded(here: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = here.ledger.complete
    calls = []

    def interrupted(claim: Claimed, result: bytes | None) -> object:
        calls.append(claim)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return complete(claim, result)

    monkeypatch.setattr(here.ledger, "complete", interrupted)

    with pytest.raises(KeyboardInterrupt):
        here.charge()

    assert here.state() is State.SUCCEEDED
