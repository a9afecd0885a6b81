"""Settings in OpenTelemetry's declarative configuration, under `instrumentation/development.python.agentguard`."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard import install
from otel_agentguard.config import Mode
from otel_agentguard.guard import installed
from otel_agentguard.instrumentor import AgentGuardInstrumentor, Configuration

# One reads the file; the other has the configurator that `opentelemetry-instrument` looks for.
for needed in ("opentelemetry-configuration", "opentelemetry-distro"):
    try:
        version(needed)
    except PackageNotFoundError:
        pytest.skip(f"pip install {needed}", allow_module_level=True)

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "telemetry.md"
_LOOP = {"same": {"hint": 2, "block": 3, "stop": 4}}

pytestmark = pytest.mark.usefixtures("instrumentor_alone")


def configured(**options: Any) -> None:
    """What the SDK does with our part of the file once it has set its providers."""
    from opentelemetry.configuration.instrumentation import configure_instrumentation
    from opentelemetry.configuration.models import ExperimentalInstrumentation

    configure_instrumentation(ExperimentalInstrumentation(python={"agentguard": options}))


def settings() -> Any:
    assert installed.guard is not None
    return installed.guard.engine.settings


def test_what_the_file_says_are_the_settings_of_the_guard() -> None:
    configured(mode="enforce", loop=_LOOP, checks=["loop"], tools={"send.mail": {"effect": "side_effect"}})

    assert (settings().mode, settings().checks) == (Mode.ENFORCE, ("loop",))
    assert settings().loop.same.stop == 4
    assert settings().tools["send.mail"].effect == "side_effect"


def test_an_empty_entry_gives_the_guard_that_the_instrumentor_gives_anyway() -> None:
    configured()

    assert installed.guard is not None
    assert not installed.guard.enforce_auto


def test_a_bare_off_which_is_a_boolean_in_yaml_turns_the_guard_off() -> None:
    configured(mode=False)

    assert installed.guard is None
    assert AgentGuardInstrumentor().is_instrumented_by_opentelemetry


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mdoe": "enforce"}, ["'mdoe'", "did you mean 'mode'"]),
        ({"settings": {"mode": "enforce"}}, ["'settings.mode'", "Known: mode,"]),
        ({"mode": "sometimes"}, ["'sometimes'", "known: enforce, observe, off"]),
        ({"loop": {"same": {"hnit": 2}}}, ["'loop.same.hnit'", "did you mean 'loop.same.hint'"]),
        ({"loop": {"same": {"hint": "few"}}}, ["loop.same.hint cannot be 'few'", "whole number"]),
        ({"checks": ["loops"]}, ["'loops'", "loop"]),
        ({"fingerprint_key": 1234}, ["fingerprint_key cannot be ***", "it is a text"]),
    ],
)
def test_what_is_wrong_is_logged_with_the_way_out_and_leaves_the_program_unguarded(
    options: Mapping[str, Any], said: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_CONFIG_FILE", "otel.yaml")

    configured(**options)

    (record,) = [one for one in caplog.records if one.name == "otel_agentguard"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is None
    assert installed.guard is None
    for words in ("runs without a guard", *said):
        assert words in record.getMessage()


def test_the_message_names_the_file(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_CONFIG_FILE", "deploy/otel.yaml")

    configured(mdoe="enforce")

    assert "(under 'agentguard' in deploy/otel.yaml)" in caplog.text


def test_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGUARD_LOOP__SAME__STOP", "6")

    configured(loop=_LOOP)

    assert (settings().loop.same.hint, settings().loop.same.stop) == (2, 6)


def test_the_mode_of_the_environment_beats_the_file_for_all_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGUARD_MODE", "observe")

    configured(mode="enforce")

    assert installed.guard is not None
    assert (installed.guard.enforce, installed.guard.enforce_auto) == (False, False)


def test_the_file_beats_agentguard_toml(tmp_path: Path) -> None:
    (tmp_path / "agentguard.toml").write_text('namespace = "toml"\npeople = ["boss"]\n')

    configured(namespace="yaml")

    assert (settings().namespace, settings().people) == ("yaml", frozenset({"boss"}))


def test_what_the_program_passes_to_install_beats_the_file_and_the_rest_of_the_file_stays() -> None:
    configured(mode="observe", loop=_LOOP, namespace="file")

    with install(namespace="program") as guard:
        assert (guard.settings.namespace, guard.settings.mode) == ("program", Mode.OBSERVE)
        assert guard.settings.loop.same.stop == 4


def test_a_program_may_ask_for_the_guard_that_the_file_turned_off() -> None:
    configured(mode=False)

    with install(mode="enforce") as guard:
        assert guard.guard is not None


def test_settings_of_the_file_go_when_the_instrumentor_goes() -> None:
    configured(namespace="file")
    AgentGuardInstrumentor().uninstrument()

    with install() as guard:
        assert guard.settings.namespace == ""


def test_a_guard_that_the_program_installed_before_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with install(namespace="program"):
        configured(namespace="file")

        assert settings().namespace == "program"
        assert "settings of the declarative configuration are not taken" in caplog.text
        AgentGuardInstrumentor().uninstrument()


def test_a_schema_is_looked_for_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "review.json").write_text('{"type": "object"}')
    monkeypatch.setenv("OTEL_CONFIG_FILE", "deploy/otel.yaml")

    configured(checks=["schema"], schema={"coder->reviewer": {"file": "review.json"}})

    assert settings().schemas == {"coder->reviewer": str(Path("deploy/review.json"))}


def test_the_configuration_takes_every_key_so_that_none_is_lost() -> None:
    given = {"mode": "enforce", "mdoe": 1, "self": True}

    assert Configuration(**given).settings == given


def test_the_file_that_the_docs_show_is_valid_and_gives_the_guard_its_settings(tmp_path: Path) -> None:
    from opentelemetry.configuration import load_config_file

    (shown,) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "otel.yaml").write_text(shown)

    said = load_config_file(str(tmp_path / "otel.yaml")).instrumentation_development
    assert said is not None
    configured(**said.python["agentguard"])

    assert (settings().mode, settings().store) == (Mode.ENFORCE, "memory://")
    assert settings().tools["send_mail"].effect == "side_effect"


_FILE = """
file_format: "1.0"
tracer_provider:
  processors:
    - simple:
        exporter:
          console: {}
instrumentation/development:
  python:
    agentguard:
      mode: enforce
      loop:
        same:
          hint: 2
          block: never
          stop: ${STOP_AT:-3}
"""
_PROGRAM = """
import json
from pydantic_ai import Agent, ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel

def ask_again(messages, info):
    return ModelResponse(parts=[ToolCallPart("find_book", {"title": "x"})])

librarian = Agent(FunctionModel(ask_again))
looks = []

@librarian.tool_plain
def find_book(title: str) -> str:
    looks.append(title)
    return f"{title}: shelf 12"

try:
    librarian.run_sync("Where is Middlemarch?")
except Exception as exc:
    print(json.dumps([len(looks), type(exc).__name__]))
"""


def under_opentelemetry_instrument(tmp_path: Path, file: str, **env: str) -> tuple[Any, str]:
    """What a program that knows nothing of us prints last, and what is logged."""
    pytest.importorskip("pydantic_ai")
    (tmp_path / "otel.yaml").write_text(file)
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = subprocess.run(
        [str(Path(sys.executable).parent / "opentelemetry-instrument"), sys.executable, "program.py"],
        env={**os.environ, "OTEL_CONFIG_FILE": "otel.yaml", **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_an_unchanged_agent_is_stopped_where_the_file_says(tmp_path: Path) -> None:
    seen, _ = under_opentelemetry_instrument(tmp_path, _FILE)

    assert seen == [2, "RunAborted"]


def test_a_value_may_come_from_a_variable_of_the_file(tmp_path: Path) -> None:
    seen, _ = under_opentelemetry_instrument(tmp_path, _FILE, STOP_AT="5")

    assert seen == [4, "RunAborted"]


def test_an_agent_runs_on_unguarded_where_the_file_has_a_wrong_key(tmp_path: Path) -> None:
    seen, logged = under_opentelemetry_instrument(tmp_path, _FILE.replace("mode:", "mdoe:"))

    assert seen == [50, "UsageLimitExceeded"]
    assert "no setting 'mdoe' (under 'agentguard' in otel.yaml); did you mean 'mode'?" in logged
    assert "Traceback" not in logged


@pytest.mark.xfail(
    strict=True,
    reason="opentelemetry-instrument turns on what the file has turned off: it asks each instrumentation again, see "
    "https://github.com/open-telemetry/opentelemetry-python/pull/5372",
)
def test_enabled_false_leaves_the_guard_out(tmp_path: Path) -> None:
    _, logged = under_opentelemetry_instrument(
        tmp_path, _FILE.replace("mode: enforce", "enabled: false"), AGENTGUARD_MODE="bad value"
    )

    assert "runs without a guard" not in logged
