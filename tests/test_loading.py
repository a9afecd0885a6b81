import logging

import pytest

from otel_agentguard.config import LOOP_ROWS, Budget, LoopSettings, Mode, Settings, ToolSettings
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Effect
from otel_agentguard.findings import Limits
from otel_agentguard.loading import known_keys, load, with_values


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "agentguard.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_with_nothing_given_the_defaults_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    settings = load(environ={})

    assert settings == Settings()


def test_the_file_beats_the_default(write):
    file = write('store = "sqlite:///a.db"\n[loop.same]\nhint = 2\n')

    settings = load(environ={}, file=file)

    assert settings.store == "sqlite:///a.db"
    assert settings.loop.same == Limits(2, 5, 7)


def test_the_environment_beats_the_file(write):
    file = write("[loop.same]\nhint = 2\n[budget]\nsteps = 10\n")

    settings = load(environ={"AGENTGUARD_LOOP__SAME__HINT": "4"}, file=file)

    assert settings.loop.same.hint == 4
    assert settings.budget.steps == 10


def test_an_argument_beats_the_environment():
    settings = load({"store": "redis://a"}, environ={"AGENTGUARD_STORE": "redis://b"})

    assert settings.store == "redis://a"


def test_an_argument_of_none_leaves_the_environment_in_force():
    settings = load({"store": None}, environ={"AGENTGUARD_STORE": "redis://b"})

    assert settings.store == "redis://b"


def test_agentguard_mode_beats_even_an_argument():
    settings = load({"mode": "enforce"}, environ={"AGENTGUARD_MODE": "observe"})

    assert settings.mode is Mode.OBSERVE
    assert settings.mode_forced is Mode.OBSERVE


def test_a_mode_from_the_file_forces_nothing(write):
    settings = load(environ={}, file=write('mode = "observe"'))

    assert settings.mode is Mode.OBSERVE
    assert settings.mode_forced is None


def test_an_empty_variable_counts_as_not_set():
    settings = load(environ={"AGENTGUARD_STORE": "", "AGENTGUARD_MODE": ""})

    assert settings == load(environ={})


def test_the_file_in_the_working_directory_is_found(write, tmp_path, monkeypatch):
    write("[budget]\nsteps = 12\n")
    monkeypatch.chdir(tmp_path)

    settings = load(environ={})

    assert settings.budget.steps == 12


def test_a_tool_with_dots_in_its_name_has_settings_of_its_own(write):
    file = write('[tools."mcp.files.read"]\neffect = "read"\nttl_s = 5\n[tools."mcp.files.read".same]\nhint = 4\n')

    settings = load(environ={}, file=file)

    assert settings.tools["mcp.files.read"] == ToolSettings(
        effect=Effect.READ, ttl_s=5.0, limits={"same": Limits(4, 5, 7)}
    )


def test_a_dotted_key_reaches_a_tool_with_dots_in_its_name():
    settings = with_values(Settings(), {"tools.mcp.files.read.same.hint": "4", "tools.mcp.files.read.effect": "read"})

    assert settings.tools["mcp.files.read"] == ToolSettings(effect=Effect.READ, limits={"same": Limits(4, 5, 7)})


def test_limits_of_a_tool_start_from_those_of_the_loop_check():
    settings = with_values(Settings(), {"tools.shell.same.hint": "4", "loop.same.block": "6"})

    assert settings.limits("same", "shell") == Limits(4, 6, 7)


def test_limits_may_be_given_as_objects_in_code():
    settings = load(
        {
            "limits": {"cycle": Limits(4, 5, 6)},
            "tools": {"poll": ToolSettings(limits={"same": Limits(9)})},
            "budget": Budget(steps=40),
        },
        environ={},
    )

    assert settings.loop.cycle == Limits(4, 5, 6)
    assert settings.limits("same", "poll") == Limits(9, None, None)
    assert settings.budget.steps == 40


def test_a_whole_row_of_settings_may_be_given_as_an_object():
    settings = load({"loop": LoopSettings(wait_s=2.0)}, environ={})

    assert settings.loop == LoopSettings(wait_s=2.0)


def test_never_takes_a_limit_away():
    settings = with_values(Settings(), {"loop.same.stop": "never"})

    assert settings.loop.same == Limits(3, 5, None)


def test_limits_that_only_rise_together_may_be_set_together():
    settings = with_values(Settings(), {"loop.same.hint": "8", "loop.same.block": "9", "loop.same.stop": "10"})

    assert settings.loop.same == Limits(8, 9, 10)


def test_the_other_settings_are_left_alone_by_a_single_value():
    before = load({"budget.steps": 9, "tools.a.effect": "wait"}, environ={})

    after = with_values(before, {"loop.same.hint": "4"})

    assert after.budget == before.budget
    assert after.tools == before.tools


def test_limits_that_fall_are_refused_with_the_keys_to_set():
    with pytest.raises(ConfigError, match=r"loop\.same.*rise.*loop\.same\.block"):
        with_values(Settings(), {"loop.same.hint": "8"})


def test_a_misspelt_key_is_refused_with_what_was_meant():
    with pytest.raises(ConfigError, match=r"'loop\.same\.hnt'.*did you mean 'loop\.same\.hint'.*budget\.steps"):
        with_values(Settings(), {"loop.same.hnt": "4"})


def test_a_misspelt_key_of_a_tool_is_refused_with_what_was_meant():
    with pytest.raises(ConfigError, match=r"did you mean 'tools\.shell\.effect'"):
        with_values(Settings(), {"tools.shell.efect": "read"})


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("loop.same.hint", "three", "whole number"),
        ("loop.same.hint", "1", "at least 2"),
        ("loop.wait_s", "inf", "finite"),
        ("mode", "loud", "enforce, observe, off"),
        ("attended", "perhaps", "true or false"),
        ("metrics_port", "70000", "65535"),
        ("budget.soft", "1.5", "at most 1"),
        ("budget.steps", "-1", "not below 0"),
        ("tools.x.effect", "magic", "side_effect"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_fit(key, value, why):
    with pytest.raises(ConfigError, match=why) as caught:
        with_values(Settings(), {key: value})

    assert value in str(caught.value) or "Limits" in str(caught.value)


def test_a_bad_value_in_the_environment_is_refused_under_the_name_of_its_variable():
    with pytest.raises(ConfigError, match="AGENTGUARD_METRICS_PORT"):
        load(environ={"AGENTGUARD_METRICS_PORT": "many"})


def test_a_bad_secret_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        load({"fingerprint_key": 12345678}, environ={})

    assert "12345678" not in str(caught.value)


def test_a_misspelt_variable_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'metrics_port'"):
        load(environ={"AGENTGUARD_METRIC_PORT": "1"})


def test_a_variable_of_another_program_is_ignored_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "otel_agentguard"):
        settings = load(environ={"AGENTGUARD_DASHBOARD_URL": "x"})

    assert settings == load(environ={})
    assert "AGENTGUARD_DASHBOARD_URL" in caplog.text


def test_settings_of_one_tool_are_refused_in_the_environment_with_the_place_to_go():
    with pytest.raises(ConfigError, match=r"agentguard\.toml"):
        load(environ={"AGENTGUARD_TOOLS__SHELL__EFFECT": "read"})


def test_a_file_that_is_no_toml_is_refused_by_name(write):
    with pytest.raises(ConfigError, match=r"agentguard\.toml.*not TOML"):
        load(environ={}, file=write("loop = ["))


def test_a_file_that_was_named_must_exist(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load(environ={}, file=tmp_path / "missing.toml")


def test_a_default_of_the_caller_loses_to_the_environment():
    settings = load(defaults={"metrics_port": 9464}, environ={"AGENTGUARD_METRICS_PORT": "none"})

    assert settings.metrics_port is None


def test_names_may_be_a_list_or_divided_by_commas(write):
    from_text = load(environ={"AGENTGUARD_PEOPLE": "user, boss", "AGENTGUARD_CHECKS": "loop,plan"})
    from_list = load(environ={}, file=write('people = ["user", "boss"]\nchecks = ["loop", "plan"]'))

    assert from_text.people == from_list.people == frozenset({"user", "boss"})
    assert from_text.checks == from_list.checks == ("loop", "plan")


@pytest.mark.parametrize("row", LOOP_ROWS)
def test_every_row_of_the_loop_check_can_be_set(row):
    settings = with_values(Settings(), {f"loop.{row}.hint": "20", f"loop.{row}.block": "21", f"loop.{row}.stop": "22"})

    assert settings.limits(row) == Limits(20, 21, 22)


def test_the_known_keys_name_every_group():
    keys = known_keys()

    assert {"mode", "loop.ROW.hint", "tools.NAME.effect", "tools.NAME.ROW.stop", "budget.steps"} <= set(keys)


def test_a_budget_of_an_agent_stands_in_its_own_section(write):
    file = write("[budget]\nsteps = 9\nsoft = 0.5\n[budget.agents.coder]\ntool_calls = 4\n")

    settings = load(environ={}, file=file)

    assert settings.budget == Budget(steps=9, soft=0.5, agents={"coder": Budget(tool_calls=4, soft=0.5)})


def test_a_budget_of_an_agent_can_be_changed_by_its_dotted_key():
    settings = with_values(Settings(), {"budget.agents.coder.v2.steps": "7"})

    assert settings.budget.agents == {"coder.v2": Budget(steps=7)}


def test_a_budget_given_in_code_keeps_its_agents():
    budget = Budget(steps=3, agents={"coder": Budget(tokens=10)})

    assert load({"budget": budget}, environ={}).budget == budget


def test_a_misspelt_limit_of_an_agent_is_refused():
    with pytest.raises(ConfigError, match=r"budget\.agents\.coder\.step"):
        with_values(Settings(), {"budget.agents.coder.step": "7"})


def test_names_of_agents_do_not_go_into_variables():
    with pytest.raises(ConfigError, match=r"\[budget\.agents\.NAME\]"):
        load(environ={"AGENTGUARD_BUDGET__AGENTS__CODER__STEPS": "3"})
