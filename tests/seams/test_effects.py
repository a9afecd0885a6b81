"""Side-effect tools at the seam; what the ledger does in each of its states is tested with the ledger."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from otel_agentguard import (
    AgentGuard,
    CallBlocked,
    ConfigError,
    Effect,
    NotApplied,
    RunAborted,
    RunStopped,
    run,
    tool,
    unguarded,
)
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.opening import LateExecutor
from otel_agentguard.effects.reports import EffectAnswer, EffectOutcome
from otel_agentguard.errors import MissingExtraError, StoreError
from otel_agentguard.findings import Action, Kind, Severity
from otel_agentguard.stores.memory import MemoryLedger
from otel_agentguard.testing import RecordingSink, finding

Installing = Callable[..., AgentGuard]


class Bank:
    """Charges, and remembers with which key."""

    def __init__(self) -> None:
        self.charged: list[tuple[str, int, str]] = []
        self.error: BaseException | None = None

        @tool(effect=Effect.SIDE_EFFECT, identity=("invoice_id",))
        def charge(invoice_id: str, amount: int, *, idempotency_key: str) -> str:
            """Charge an invoice."""
            self.charged.append((invoice_id, amount, idempotency_key))
            if self.error is not None:
                raise self.error
            return f"receipt {len(self.charged)}"

        @tool(effect=Effect.SIDE_EFFECT, identity=("invoice_id",))
        async def charge_later(invoice_id: str, amount: int, *, idempotency_key: str) -> str:
            await asyncio.sleep(0)
            self.charged.append((invoice_id, amount, idempotency_key))
            return f"receipt {len(self.charged)}"

        self.charge = charge
        self.charge_later = charge_later

    @property
    def keys(self) -> list[str]:
        return [key for _, _, key in self.charged]


@pytest.fixture
def bank() -> Bank:
    return Bank()


def test_the_key_is_hidden_from_signature_and_hints(bank: Bank) -> None:
    assert str(inspect.signature(bank.charge)) == "(invoice_id: 'str', amount: 'int') -> 'str'"
    assert get_type_hints(bank.charge) == {"invoice_id": str, "amount": int, "return": str}


@pytest.mark.parametrize("mode", [None, "off", "observe", "enforce"])
def test_the_key_is_filled_in_every_mode(installing: Installing, bank: Bank, mode: str | None) -> None:
    if mode is not None:
        installing(mode=mode)

    with run("r"):
        assert bank.charge("i-1", 5) == "receipt 1"
        bank.charge("i-2", 5)

    assert [len(key) for key in bank.keys] == [32, 32]
    assert bank.keys[0] != bank.keys[1]


def test_without_a_guard_equal_effects_of_one_intent_have_one_key(bank: Bank) -> None:
    with run("r") as r:
        bank.charge("i-1", 5)
        bank.charge("i-1", 5)
        r.turn("user", text="once more, please")
        bank.charge("i-1", 5)

    assert bank.keys[0] == bank.keys[1] != bank.keys[2]


def test_without_a_guard_a_resumed_run_hands_out_the_same_key(bank: Bank) -> None:
    for _ in range(2):
        with run("r"):
            bank.charge("i-1", 5)

    assert bank.keys[0] == bank.keys[1]


def test_outside_of_a_run_and_without_a_guard_each_call_is_an_effect_of_its_own(bank: Bank) -> None:
    bank.charge("i-1", 5)
    bank.charge("i-1", 5)

    assert bank.keys[0] != bank.keys[1]


def test_unguarded_effects_get_a_key_too(guard: AgentGuard, bank: Bank) -> None:
    with run("r"), unguarded():
        bank.charge("i-1", 5)
        bank.charge("i-1", 5)

    assert bank.keys[0] == bank.keys[1]
    assert len(bank.charged) == 2


def test_a_key_that_the_caller_makes_up_is_replaced(guard: AgentGuard, bank: Bank) -> None:
    with run("r"):
        bank.charge("i-1", 5, idempotency_key="made up by a model")

    assert bank.keys[0] != "made up by a model"


def test_the_same_effect_again_is_answered_from_the_ledger(
    guard: AgentGuard, bank: Bank, sink: RecordingSink, spans: Any
) -> None:
    with run("r") as r:
        assert bank.charge("i-1", 5) == "receipt 1"
        assert bank.charge("i-1", 5) == "receipt 1"
        assert "already done" in " ".join(r.notes())

    assert len(bank.charged) == 1
    first, second = sink.events
    assert (first.served_from, second.served_from) == (None, "replay")
    found = [finding for finding, _ in sink.findings if finding.kind is Kind.DUPLICATE_SIDE_EFFECT]
    assert [(one.severity, one.action) for one in found] == [(Severity.WARN, Action.REUSE)]
    executed, replayed = spans.named("execute_tool charge")
    assert executed.attributes["agentguard.effect.outcome"] == "executed"
    assert executed.attributes["agentguard.effect.key"] == bank.keys[0]
    assert executed.attributes["agentguard.effect.attempt"] == 1
    assert replayed.attributes["agentguard.effect.outcome"] == "replayed"
    assert replayed.attributes["agentguard.finding.kind"] == "duplicate_side_effect"


def test_a_new_user_turn_is_a_new_effect_with_another_key(guard: AgentGuard, bank: Bank) -> None:
    with run("r") as r:
        bank.charge("i-1", 5)
        r.turn("user", text="charge it again")
        bank.charge("i-1", 5)

    assert len(set(bank.keys)) == 2


async def test_equal_effects_at_once_are_one(guard: AgentGuard, bank: Bank) -> None:
    async with run("r"):
        answers = await asyncio.gather(*(bank.charge_later("i-1", 5) for _ in range(4)))

    assert answers == ["receipt 1"] * 4
    assert len(bank.charged) == 1


def test_effects_are_counted(guard: AgentGuard, bank: Bank) -> None:
    with run("r"):
        bank.charge("i-1", 5)
        bank.charge("i-1", 5)

    def counted(metric: str, **labels: str) -> float | None:
        return guard.registry.get_sample_value(f"agentguard_{metric}_total", {"tool": "charge", **labels})

    assert counted("side_effects", outcome="executed") == 1
    assert counted("side_effects", outcome="replayed") == 1
    assert counted("duplicate_side_effects", certainty="prevented") == 1
    assert counted("duplicate_side_effects", certainty="confirmed") == 0


def test_a_run_resumed_on_its_store_skips_what_it_did(installing: Installing, bank: Bank, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'effects.db'}"
    answers = []
    for _ in range(2):
        guard = installing(store=store)
        with run("r"):
            answers.append(bank.charge("i-1", 5))
        guard.shutdown()

    assert answers == ["receipt 1", "receipt 1"]
    assert len(bank.charged) == 1


def test_an_effect_of_unknown_outcome_is_not_tried_again(guard: AgentGuard, bank: Bank, sink: RecordingSink) -> None:
    bank.error = TimeoutError("no answer")
    with run("r"):
        with pytest.raises(TimeoutError):
            bank.charge("i-1", 5)
        with pytest.raises(CallBlocked, match="nobody knows whether it happened"):
            bank.charge("i-1", 5)

    assert len(bank.charged) == 1
    found = [finding for finding, _ in sink.findings if finding.kind is Kind.DUPLICATE_SIDE_EFFECT]
    assert [(one.severity, one.action) for one in found] == [(Severity.ERROR, Action.BLOCK)]
    assert sink.executed_after == []


def test_the_span_of_a_call_whose_outcome_is_unknown_tells_its_key(guard: AgentGuard, bank: Bank, spans: Any) -> None:
    bank.error = TimeoutError("no answer")

    with run("r"), pytest.raises(TimeoutError):
        bank.charge("i-1", 5)

    [span] = spans.named("execute_tool charge")
    assert span.attributes["agentguard.effect.key"] == bank.keys[0]


def test_an_effect_that_did_not_happen_may_be_tried_again(guard: AgentGuard, bank: Bank) -> None:
    bank.error = NotApplied("card declined")
    with run("r"):
        with pytest.raises(NotApplied):
            bank.charge("i-1", 5)
        bank.error = None
        assert bank.charge("i-1", 5) == "receipt 2"

    assert bank.keys[0] == bank.keys[1]


def test_observe_runs_every_effect_and_reports_the_duplicate(
    installing: Installing, bank: Bank, sink: RecordingSink
) -> None:
    installing(mode="observe")

    with run("r"):
        assert [bank.charge("i-1", 5), bank.charge("i-1", 5)] == ["receipt 1", "receipt 2"]

    found = [(finding, mode) for finding, mode in sink.findings if finding.kind is Kind.DUPLICATE_SIDE_EFFECT]
    assert [mode for _, mode in found] == ["observe"]


def test_arguments_that_do_not_fit_raise_a_type_error(guard: AgentGuard, bank: Bank) -> None:
    with run("r"), pytest.raises(TypeError, match="amount"):
        bank.charge("i-1")

    assert bank.charged == []


def test_a_stop_that_comes_during_the_claim_keeps_the_body_from_starting(
    guard: AgentGuard, bank: Bank, sink: RecordingSink
) -> None:
    class SlowLedger:
        """Grants a claim, but the run is stopped meanwhile."""

        released = False

        def ready(self) -> SlowLedger:
            return self

        def run(self, call: Any, body: Callable[[str], Any], **_: object) -> EffectAnswer:
            running = guard.engine.find("r")
            assert running is not None
            guard.engine.stop(running, finding(action=Action.STOP))
            try:
                return EffectAnswer(value=body("key"), outcome=EffectOutcome.EXECUTED)
            except NotApplied:
                self.released = True
                raise

        def close(self) -> None:
            pass

    assert guard.guard is not None
    ledger = guard.guard.effects = SlowLedger()

    with pytest.raises(RunAborted), run("r"), pytest.raises(RunStopped):
        bank.charge("i-1", 5)

    assert bank.charged == []
    assert ledger.released
    assert sink.executed_after == []


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_store_that_is_down_keeps_effects_from_happening_in_enforce(
    installing: Installing, bank: Bank, sink: RecordingSink, mode: str
) -> None:
    installing(mode=mode, store="sqlite:////nonexistent/folder/effects.db")

    with run("r"):
        if mode == "enforce":
            with pytest.raises(StoreError):
                bank.charge("i-1", 5)
        else:
            bank.charge("i-1", 5)

    assert len(bank.charged) == (mode == "observe")
    assert "store" in sink.failures


@pytest.mark.parametrize("mode", ["enforce", "observe"])
async def test_a_store_that_is_down_means_the_same_for_coroutines(
    installing: Installing, bank: Bank, mode: str
) -> None:
    installing(mode=mode, store="sqlite:////nonexistent/folder/effects.db")

    async with run("r"):
        if mode == "enforce":
            with pytest.raises(StoreError):
                await bank.charge_later("i-1", 5)
        else:
            assert await bank.charge_later("i-1", 5) == "receipt 1"

    assert len(bank.charged) == (mode == "observe")


def test_effects_that_observe_could_not_record_are_counted_all_the_same(installing: Installing, bank: Bank) -> None:
    guard = installing(mode="observe", store="sqlite:////nonexistent/folder/effects.db")

    with run("r"):
        bank.charge("i-1", 5)
        bank.charge("i-2", 5)

    labels = {"tool": "charge", "outcome": "executed"}
    assert guard.registry.get_sample_value("agentguard_side_effects_total", labels) == 2


class SilentServer:
    """Takes connections and never answers."""

    def __enter__(self) -> SilentServer:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:p@127.0.0.1:{port}/x?connect_timeout=2", "redis://127.0.0.1:{port}/0?socket_timeout=0.5"],
    ids=["postgresql", "redis"],
)
def test_a_store_that_never_answers_costs_one_wait_and_no_effect_happens(
    installing: Installing, bank: Bank, sink: RecordingSink, url: str
) -> None:
    with SilentServer() as server:
        began = time.monotonic()
        try:
            installing(store=url.format(port=server.port))
        except MissingExtraError as exc:
            pytest.skip(str(exc))
        with run("r"):
            for _ in range(3):
                with pytest.raises(StoreError, match="no side effect happens"):
                    bank.charge("i-1", 5)

        assert time.monotonic() - began < 4.5
    assert bank.charged == []
    assert "store" in sink.failures


def test_while_a_store_is_opened_runs_and_other_tools_go_on(guard: AgentGuard, bank: Bank) -> None:
    gate, asked = threading.Event(), threading.Event()

    def opened() -> EffectExecutor:
        asked.set()
        assert gate.wait(30)
        return EffectExecutor(MemoryLedger())

    assert guard.guard is not None
    guard.guard.effects = LateExecutor("test", opened, patience_s=30)

    async def charging() -> str:
        async with run("r"):
            return str(await bank.charge_later("i-1", 5))

    async def beside() -> str:
        effect = asyncio.create_task(charging())
        await asyncio.to_thread(asked.wait, 30)
        async with run("other") as other:
            other.turn("user", text="go on")
        gate.set()
        return await effect

    assert asyncio.run(beside()) == "receipt 1"


def test_an_effect_and_its_record_can_be_one_transaction(guard: AgentGuard, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "app.db")
    connection.execute("CREATE TABLE orders (number TEXT)")

    @tool(effect=Effect.SIDE_EFFECT, tx=connection)
    def order(number: str) -> str:
        connection.execute("INSERT INTO orders VALUES (?)", (number,))
        return f"ordered {number}"

    with run("r"):
        assert order("7") == "ordered 7"
        assert order("7") == "ordered 7"

    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    connection.close()


def test_a_compensating_effect_makes_room_for_a_new_one(guard: AgentGuard) -> None:
    done = []

    @tool(effect=Effect.SIDE_EFFECT)
    def subscribe(topic: str) -> None:
        done.append(f"subscribe {topic}")

    @tool(effect=Effect.SIDE_EFFECT, compensates=subscribe)
    def cancel(topic: str) -> None:
        done.append(f"cancel {topic}")

    with run("r"):
        subscribe("a")
        cancel("a")
        subscribe("a")

    assert done == ["subscribe a", "cancel a", "subscribe a"]


def test_the_settings_can_make_a_tool_a_side_effect(installing: Installing) -> None:
    sent = []

    @tool
    def send(to: str) -> str:
        sent.append(to)
        return "sent"

    installing(tools={"send": {"effect": "side_effect"}})

    with run("r"):
        assert [send("a"), send("a")] == ["sent", "sent"]

    assert sent == ["a"]


def test_a_function_that_returns_a_coroutine_is_no_side_effect(guard: AgentGuard) -> None:
    began = []

    async def later(to: str) -> str:
        began.append(to)
        return "sent"

    @tool(effect=Effect.SIDE_EFFECT)
    def send(to: str) -> Any:
        return later(to)

    with run("r"), pytest.raises(ConfigError, match="declare a coroutine function"):
        send("a")

    assert began == []


def test_effects_that_die_with_the_process_are_warned_of_once(
    guard: AgentGuard, bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="otel_agentguard"), run("r"):
        bank.charge("i-1", 5)
        bank.charge("i-2", 5)

    assert [record.message[:20] for record in caplog.records] == ["agentguard: charge i"]
