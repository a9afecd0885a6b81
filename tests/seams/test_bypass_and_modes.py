from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from otel_agentguard import (
    Action,
    AgentGuard,
    CallBlocked,
    RunAborted,
    fresh,
    message,
    model_call,
    run,
    tool,
    unguarded,
)
from otel_agentguard.current import scope
from otel_agentguard.testing import RecordingSink


@tool
def look(word: str) -> str:
    return word


@tool(guard=False)
def pass_by(word: str) -> str:
    return word


def test_unguarded_calls_pass_and_are_counted(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r") as r, unguarded():
        assert [look("x") for _ in range(20)] == ["x"] * 20
        assert r.notes() == []

    assert sink.passed == ["look"] * 20
    assert sink.events == []


def test_a_tool_can_be_left_unguarded_as_a_whole(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r"):
        assert [pass_by("x") for _ in range(20)] == ["x"] * 20

    assert sink.passed == ["pass_by"] * 20


def test_unguarded_calls_are_counted_in_prometheus(guard: AgentGuard) -> None:
    with unguarded():
        look("x")

    counted = guard.registry.get_sample_value("agentguard_unguarded_calls_total", {"tool": "look"})
    assert counted == 1


def test_unguarded_passes_even_a_stopped_run(guard: AgentGuard) -> None:
    with pytest.raises(RunAborted), run("r"):
        for _ in range(7):
            try:
                look("x")
            except BaseException:
                with unguarded():
                    assert look("x") == "x"


def test_fresh_is_a_flag_of_its_context() -> None:
    with fresh():
        assert scope().fresh
    assert not scope().fresh


def test_observe_runs_every_body_and_reports(installing: Callable[..., AgentGuard], sink: RecordingSink) -> None:
    installing(mode="observe")

    with run("r") as r:
        assert [look("x") for _ in range(20)] == ["x"] * 20
        assert r.notes() == []

    assert [(str(finding.action), mode) for finding, mode in sink.findings if finding.limits] == [
        ("hint", "observe"),
        ("block", "observe"),
        ("stop", "observe"),
    ]
    assert sink.executed_after == []
    assert [outcome for _, outcome, _ in sink.closed] == ["completed"]


@pytest.mark.parametrize("entry", ["with", "async with"])
@pytest.mark.parametrize(("run_id", "conversation"), [("job-1", None), ("job-1", "talk"), ("job-2", "talk")])
def test_observe_lets_a_stopped_run_in_and_the_stop_holds_again_in_enforce(
    installing: Callable[..., AgentGuard],
    monkeypatch: pytest.MonkeyPatch,
    sink: RecordingSink,
    tmp_path: Path,
    entry: str,
    run_id: str,
    conversation: str | None,
) -> None:
    def calls() -> int:
        handle = run(run_id, conversation=conversation)
        if entry == "with":
            with handle:
                return len([look("x") for _ in range(20)])

        async def work() -> int:
            async with handle:
                return len([look("x") for _ in range(20)])

        return asyncio.run(work())

    def restarted(mode: str) -> AgentGuard:
        monkeypatch.setenv("AGENTGUARD_MODE", mode)
        return installing(store=f"sqlite:///{tmp_path}/agentguard.db")

    with restarted("enforce"), pytest.raises(RunAborted), run("job-1", conversation="talk"):
        for _ in range(7):
            with contextlib.suppress(CallBlocked):
                look("x")
    with restarted("observe"):
        for _ in range(2):
            assert calls() == 20
    told = [finding.action for finding, mode in sink.findings if mode == "observe"]
    with restarted("enforce"), pytest.raises(RunAborted):
        calls()
    with restarted("enforce") as guard:
        for stopped in {"job-1", run_id}:
            assert guard.release(stopped)
    with restarted("enforce"), run(run_id, conversation=conversation):
        assert look("x") == "x"

    assert told[0] is Action.STOP
    assert [outcome for _, outcome, _ in sink.closed][1:3] == ["completed"] * 2


def test_observe_says_on_the_span_what_it_would_have_done(installing: Callable[..., AgentGuard], spans: Any) -> None:
    installing(mode="observe")

    with run("r"):
        for _ in range(5):
            look("x")

    actions = [span.attributes.get("agentguard.action") for span in spans.all()]
    assert actions == [None, "allow", "hint", "hint", "block"]


def test_the_environment_beats_the_program(
    installing: Callable[..., AgentGuard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGUARD_MODE", "observe")
    installing(mode="enforce")

    with run("r"):
        assert [look("x") for _ in range(20)] == ["x"] * 20


def test_off_is_as_if_nothing_were_installed(
    installing: Callable[..., AgentGuard], sink: RecordingSink, spans: Any
) -> None:
    threads = threading.active_count()
    provider = trace.get_tracer_provider()
    guard = installing(mode="off", metrics_port=0)

    with run("r", agent="coder") as r, model_call(model="m", messages=["x"]):
        assert [look("x") for _ in range(20)] == ["x"] * 20
        message("hi", agent="coder")
        r.turn("user")

    assert sink.events == []
    assert spans.all() == []
    assert threading.active_count() == threads
    assert trace.get_tracer_provider() is provider
    assert guard.metrics_url is None


def test_an_enforcing_guard_says_so(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r"):
        for _ in range(4):
            look("x")
        with pytest.raises(CallBlocked):
            look("x")

    assert {mode for _, mode in sink.findings} == {"enforce"}
