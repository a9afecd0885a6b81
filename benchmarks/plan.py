"""What checking plans costs: plans of 20 steps against 50 tools, single calls, calls placed in a plan.

Run with `python -m pytest benchmarks/plan.py`. Where jsonschema-rs is installed, valid plans are measured
with it too.
"""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from otel_agentguard.checks.plan import PlanCheck
from otel_agentguard.config import Settings
from otel_agentguard.events import Plan, ToolCall, ToolSpec
from otel_agentguard.plans import ToolRegistry, check_call, check_plan, schemas
from otel_agentguard.protocols import RunInfo
from otel_agentguard.testing import tool_call

VALID_LIMIT_S = 3e-3
VALID_FAST_LIMIT_S = 200e-6
FAULTY_LIMIT_S = 10e-3


def tools() -> ToolRegistry:
    """50 tools of five arguments each; no two schemas are equal."""
    return ToolRegistry(
        ToolSpec(
            name=f"{verb}_{noun}",
            schema={
                "type": "object",
                "title": f"{verb} {noun}",
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": "integer", "minimum": 1},
                    "ratio": {"type": "number"},
                    "deep": {"type": "boolean"},
                    "mode": {"enum": ["fast", "slow"]},
                },
                "required": ["query", "limit"],
            },
        )
        for verb in ("get", "search", "create", "update", "delete")
        for noun in ("order", "invoice", "ticket", "page", "file", "mail", "user", "chart", "asset", "pump")
    )


def plan(registry: ToolRegistry) -> list[dict[str, object]]:
    """20 steps; each but the first reads the output of the one before."""
    return [
        {
            "id": str(number),
            "tool": tool,
            "args": {
                "query": f"look at {{step_{number - 1}}}" if number > 1 else "look",
                "limit": 3,
                "ratio": 0.5,
                "deep": True,
                "mode": "fast",
            },
            "depends_on": [str(number - 1)] if number > 1 else [],
        }
        for number, tool in enumerate(list(registry)[:20], 1)
    ]


@pytest.fixture(params=["jsonschema", "jsonschema-rs"])
def limit_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(schemas, "_compiled", schemas._Compiled())
    if request.param == "jsonschema":
        monkeypatch.setattr(schemas, "_fast", None)
        return VALID_LIMIT_S
    pytest.importorskip("jsonschema_rs", reason="jsonschema-rs is not installed")
    return VALID_FAST_LIMIT_S


def test_a_valid_plan_of_dicts(benchmark: BenchmarkFixture, limit_s: float) -> None:
    registry = tools()
    steps = plan(registry)

    report = benchmark(check_plan, steps, tools=registry)

    assert report.ok
    assert benchmark.stats.stats.min < limit_s


def test_a_valid_plan_of_steps(benchmark: BenchmarkFixture, limit_s: float) -> None:
    registry = tools()
    steps = check_plan(plan(registry), tools=registry).plan

    report = benchmark(check_plan, steps, tools=registry)

    assert report.ok
    assert benchmark.stats.stats.min < limit_s


@pytest.mark.parametrize("change", ["tool", "type", "argument", "reference"])
def test_a_plan_with_an_error_in_each_step(benchmark: BenchmarkFixture, change: str) -> None:
    registry = tools()
    steps = plan(registry)
    for number, step in enumerate(steps):
        args = step["args"]
        assert isinstance(args, dict)
        if change == "tool":
            step["tool"] = f"{str(step['tool'])[::-1]}_{number}"
        else:
            args |= {"type": {"limit": "3"}, "argument": {"limits": 3}, "reference": {"query": "{step_99}"}}[change]

    def check() -> int:
        registry.index._near.clear()
        return len(check_plan(steps, tools=registry).errors)

    errors = benchmark(check)

    assert errors >= 20
    assert benchmark.stats.stats.min < FAULTY_LIMIT_S


def test_one_valid_call(benchmark: BenchmarkFixture, limit_s: float) -> None:
    registry = tools()
    arguments = {"query": "x", "limit": 3, "ratio": 0.5, "deep": True, "mode": "fast"}

    assert benchmark(check_call, "get_order", arguments, tools=registry) == ()


def test_one_call_that_was_judged_before(benchmark: BenchmarkFixture) -> None:
    registry = tools()
    check = PlanCheck().open(RunInfo(run_id="r", agent="a", settings=Settings(), tools=registry))
    check.after(Plan(steps=check_plan(plan(registry), tools=registry).plan))
    call: ToolCall = tool_call("get_order", {"query": "look", "limit": 3})

    def judge() -> None:
        check.before(call)
        check.after(call)

    benchmark(judge)


def test_compiling_a_registry(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_anew() -> int:
        monkeypatch.setattr(schemas, "_compiled", schemas._Compiled())
        return len(tools())

    assert benchmark(compile_anew) == 50
