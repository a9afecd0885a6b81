from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_agentguard import install
from otel_agentguard.guard import installed
from otel_agentguard.instrumentor import AgentGuardInstrumentor
from otel_agentguard.tracing.processor import AgentGuardSpanProcessor

pytestmark = pytest.mark.usefixtures("instrumentor_alone")


def processors(provider: TracerProvider) -> list[object]:
    return [one for one in provider._active_span_processor._span_processors if isinstance(one, AgentGuardSpanProcessor)]


def test_the_instrumentor_is_found_by_its_entry_point() -> None:
    (entry,) = entry_points(group="opentelemetry_instrumentor", name="agentguard")

    assert entry.load() is AgentGuardInstrumentor


def test_instrumenting_installs_a_guard_that_observes_what_it_put_in_itself() -> None:
    AgentGuardInstrumentor().instrument()

    assert installed.guard is not None
    assert installed.guard.enforce
    assert not installed.guard.enforce_auto


def test_the_mode_of_the_environment_lets_the_instrumentor_enforce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGUARD_MODE", "enforce")

    AgentGuardInstrumentor().instrument()

    assert installed.guard is not None
    assert installed.guard.enforce_auto


def test_uninstrumenting_takes_the_guard_and_its_processor_away_again() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    instrumentor = AgentGuardInstrumentor()

    instrumentor.instrument(tracer_provider=provider)
    there = len(processors(provider))
    instrumentor.uninstrument()

    assert there == 1
    assert processors(provider) == []
    assert installed.guard is None


def test_a_guard_that_the_program_installed_stays_when_the_instrumentor_goes() -> None:
    with install(metrics_port=None) as guard:
        instrumentor = AgentGuardInstrumentor()
        instrumentor.instrument()
        instrumentor.uninstrument()

        assert installed.guard is guard.guard


def test_a_program_may_install_its_own_guard_after_the_instrumentor() -> None:
    AgentGuardInstrumentor().instrument()

    with install(mode="enforce") as guard:
        assert installed.guard is guard.guard
        AgentGuardInstrumentor().uninstrument()
        assert installed.guard is guard.guard


def test_bad_settings_are_logged_and_leave_the_application_unguarded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENTGUARD_MODE", "sometimes")

    AgentGuardInstrumentor().instrument()

    assert installed.guard is None
    assert "sometimes" in caplog.text


_PROGRAM = """
import json
from opentelemetry import trace
from otel_agentguard.guard import installed

tracer = trace.get_tracer("opentelemetry.instrumentation.framework")
for _ in range(4):
    with tracer.start_as_current_span("POST /chat"):
        for _ in range(4):
            told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup",
                    "gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "same"}
            tracer.start_span("execute_tool lookup", attributes=told).end()
        runs = installed.guard.engine.runs()
print(json.dumps([runs[0].step, len(runs[0].findings) > 0]))
"""

_SDK_FIRST = """
from opentelemetry.sdk._configuration import _OTelSDKConfigurator

_OTelSDKConfigurator().configure()
"""
_INSTRUMENT = """
from otel_agentguard.instrumentor import AgentGuardInstrumentor

AgentGuardInstrumentor().instrument()
"""
_INSTALL = """
import otel_agentguard

otel_agentguard.install()
"""


def output_of(*command: str, **env: str) -> object:
    quiet = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    done = subprocess.run(
        command, env={**os.environ, **quiet, **env}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_unchanged_program_is_watched_under_opentelemetry_instrument(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    command = str(Path(sys.executable).parent / "opentelemetry-instrument")

    seen = output_of(command, sys.executable, str(program), OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider")

    assert seen == [4, True]


@pytest.mark.parametrize("put_in", [_INSTRUMENT, _INSTALL], ids=["instrumentor", "install"])
@pytest.mark.parametrize("inner", ["always_on", "always_off", "parentbased_traceidratio:0.5"])
def test_a_program_without_a_seam_is_watched_however_little_its_sdk_samples(inner: str, put_in: str) -> None:
    env = {"OTEL_TRACES_SAMPLER": "agentguard", "OTEL_TRACES_SAMPLER_ARG": inner}

    assert output_of(sys.executable, "-c", _SDK_FIRST + put_in + _PROGRAM, **env) == [4, True]
