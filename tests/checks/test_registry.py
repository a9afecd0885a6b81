from importlib.metadata import EntryPoint, EntryPoints

import pytest

from otel_agentguard.checks import registry
from otel_agentguard.checks.registry import default_checks, known_checks
from otel_agentguard.config import Settings
from otel_agentguard.errors import ConfigError


@pytest.fixture
def register(monkeypatch):
    def register(name, target):
        entry = EntryPoint(name=name, value=target, group=registry.ENTRY_POINTS)
        monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([entry]))

    return register


def test_the_settings_name_the_checks_that_run():
    [check] = default_checks(Settings(checks=("loop",)))

    assert check.name == "loop"


def test_a_check_named_twice_runs_once():
    assert len(default_checks(Settings(checks=("loop", "loop")))) == 1


def test_a_check_of_somebody_else_runs_only_when_it_is_named(register):
    register("theirs", "otel_agentguard.checks.loop:LoopCheck")

    assert "theirs" in known_checks()
    assert len(default_checks(Settings(checks=("loop",)))) == 1
    assert len(default_checks(Settings(checks=("loop", "theirs")))) == 2


def test_a_check_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"no check 'lop'.*loop"):
        default_checks(Settings(checks=("lop",)))


@pytest.mark.parametrize("target", ["nowhere_at_all:Check", "builtins:object", "builtins:str"])
def test_a_check_of_somebody_else_that_cannot_be_used_is_left_out(register, caplog, target):
    register("theirs", target)

    checks = default_checks(Settings(checks=("theirs", "loop")))

    assert [check.name for check in checks] == ["loop"]
    assert "theirs" in caplog.text
