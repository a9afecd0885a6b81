import os

import pytest

from otel_agentguard.cli import main
from otel_agentguard.cli.doctor import blinds, guarded
from otel_agentguard.cli.instrumentors import Instrumentor
from otel_agentguard.config import Settings
from otel_agentguard.loading import load


@pytest.fixture(autouse=True)
def _apart_from_other_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("AGENTGUARD_", "OTEL_"))]:
        monkeypatch.delenv(name)


class Foreign(Instrumentor):
    """An instrumentation that says what it needs."""

    __slots__ = ("needs",)

    def __init__(self, name, *needs, active=True):
        super().__init__(name, None, name, active)
        object.__setattr__(self, "needs", needs)

    def requires(self, distribution):
        return distribution in self.needs


def blinding(environ, *instrumentors, settings=None):
    return list(blinds(environ, settings or Settings(), list(instrumentors)))


def test_a_guard_that_sees_everything_is_healthy(capsys):
    code = main(["doctor"])

    out = capsys.readouterr().out
    assert code == 0
    assert "otel-agentguard 0" in out
    assert "opentelemetry-sdk 1." in out
    assert "checks loop" in out


def test_a_guard_that_is_turned_off_is_blind(capsys, monkeypatch):
    monkeypatch.setenv("AGENTGUARD_MODE", "off")

    code = main(["doctor"])

    assert code == 1
    assert "AGENTGUARD_MODE is off" in capsys.readouterr().out


def test_passwords_are_not_shown(capsys, monkeypatch):
    monkeypatch.setenv("AGENTGUARD_STORE", "redis://me:secret@somewhere:6379/0")

    main(["doctor"])

    out = capsys.readouterr().out
    assert "secret" not in out
    assert "redis://***@somewhere:6379/0" in out


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "OTEL_TRACES_SAMPLER=agentguard"),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, "OTEL_TRACES_SAMPLER=agentguard"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, "OTEL_TRACES_SAMPLER=agentguard"),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "256"}, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT=256"),
    ],
)
def test_what_blinds_is_named_with_the_way_out(environ, named):
    [reason] = blinding(environ)

    assert named in reason


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SDK_DISABLED": "false"},
        {"OTEL_TRACES_SAMPLER": "parentbased_always_on"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.0"},
        {"OTEL_TRACES_SAMPLER": "agentguard", "OTEL_TRACES_SAMPLER_ARG": "always_off"},
    ],
)
def test_what_does_not_blind_is_not_named(environ):
    assert blinding(environ) == []


def test_instrumentations_that_capture_no_content_blind():
    genai = Foreign("openai", "opentelemetry-util-genai")

    [reason] = blinding({}, genai)

    assert "openai" in reason
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in reason


@pytest.mark.parametrize(
    ("environ", "needs"),
    [
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only"}, "opentelemetry-util-genai"),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}, "opentelemetry-util-genai"),
        ({}, "openinference-instrumentation"),
        ({}, "opentelemetry-semantic-conventions-ai"),
        ({}, "opentelemetry-instrumentation"),
    ],
)
def test_instrumentations_that_capture_content_do_not(environ, needs):
    assert blinding(environ, Foreign("x", needs)) == []


@pytest.mark.parametrize(
    ("environ", "needs"),
    [
        ({"OPENINFERENCE_HIDE_INPUTS": "true"}, "openinference-instrumentation"),
        ({"TRACELOOP_TRACE_CONTENT": "false"}, "opentelemetry-semantic-conventions-ai"),
    ],
)
def test_each_family_of_instrumentations_has_its_own_switch(environ, needs):
    [reason] = blinding(environ, Foreign("x", needs))

    assert next(iter(environ)) in reason


def test_an_instrumentation_that_is_left_alone_blinds_nobody():
    assert blinding({}, Foreign("openai", "opentelemetry-util-genai", active=False)) == []


def test_a_mode_from_the_file_blinds_too(tmp_path):
    (tmp_path / "agentguard.toml").write_text('mode = "off"')

    [reason] = blinding({}, settings=load(environ={}))

    assert "mode" in reason


def test_adapters_are_listed_with_the_versions_that_they_would_guard():
    lines = list(guarded({}, Settings()))

    assert len(lines) >= 1
    assert any(line.startswith("openai: openai ") for line in lines) or "openai" in lines[-1]


def test_an_adapter_that_is_left_out_says_so(monkeypatch):
    monkeypatch.setattr("otel_agentguard.adapters.attaching.metadata.version", lambda name: "1.70")

    by_variable = list(guarded({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "x, openai"}, Settings()))
    by_setting = list(guarded({}, Settings(adapters_off=("openai",))))

    assert "openai: off by OTEL_PYTHON_DISABLED_INSTRUMENTATIONS" in by_variable
    assert "openai: off by adapters_off" in by_setting


def test_an_unknown_version_of_a_framework_blinds(monkeypatch):
    monkeypatch.setattr("otel_agentguard.adapters.attaching.metadata.version", lambda name: "99.1")

    (found,) = [line for line in blinding({}) if line.startswith("openai:")]

    assert "openai 99.1 is none of the known versions" in found
    assert "upgrade otel-agentguard" in found
