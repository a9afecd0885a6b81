"""The rules of Prometheus: readable, tested both ways, and each alert with a way out."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from monitoring import DASHBOARDS, RULE_FILES, RULES, program

from otel_agentguard.cli import main
from otel_agentguard.semconv import METRICS

yaml = pytest.importorskip("yaml", reason="pip install PyYAML")

EXPECTED = {
    "AgentLoopRateHigh",
    "AgentRepeatRatioHigh",
    "AgentRunsStopped",
    "DuplicateSideEffectConfirmed",
    "DuplicateSideEffectPossible",
    "SideEffectUnknown",
    "DuplicateEffectBudgetFastBurn",
    "DuplicateEffectBudgetSlowBurn",
    "GuardExecutedAfterBlock",
    "GuardErrors",
    "GuardSlow",
    "GuardSilent",
}
PAGES = {"DuplicateSideEffectConfirmed", "DuplicateEffectBudgetFastBurn", "GuardExecutedAfterBlock"}


def loaded(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / f"{name}.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALL_RULES = [rule for name in RULE_FILES for rule in loaded(name)]
ALERTS = {rule["alert"]: rule for rule in ALL_RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in ALL_RULES if "record" in rule}


def headings() -> set[str]:
    text = (DASHBOARDS / "runbook.md").read_text(encoding="utf-8")
    return {line.removeprefix("## ").strip() for line in text.splitlines() if line.startswith("## ")}


@pytest.mark.parametrize("name", RULE_FILES)
def test_prometheus_accepts_the_rules(name: str) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES / f"{name}.yml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", RULE_FILES)
def test_the_rules_do_what_their_tests_say(name: str) -> None:
    done = subprocess.run(
        [program("promtool"), "test", "rules", f"{name}_test.yml"],
        cwd=RULES,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_test_of_the_rules_can_fail(tmp_path: Any) -> None:
    for name in ("recording.yml", "alerts.yml", "alerts_test.yml"):
        text = (RULES / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("> 1\n", "> 1000\n"), encoding="utf-8")

    done = subprocess.run(
        [program("promtool"), "test", "rules", "alerts_test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode != 0
    assert "AgentLoopRateHigh" in done.stdout + done.stderr


def test_every_alert_that_is_promised_is_there() -> None:
    assert set(ALERTS) == EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(name: str) -> None:
    alert = ALERTS[name]

    assert alert["labels"]["severity"] == ("page" if name in PAGES else "warning")
    assert re.fullmatch(r"\d+m", alert["for"])
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["description"].endswith(".")
    assert alert["annotations"]["runbook_url"] == f"runbook.md#{name.lower()}"


def test_the_runbook_has_a_heading_for_each_alert_and_no_other() -> None:
    assert headings() == EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_alert_is_tested_to_fire_and_to_be_silent(name: str) -> None:
    cases = [
        case
        for file in RULE_FILES
        for test in yaml.safe_load((RULES / f"{file}_test.yml").read_text(encoding="utf-8"))["tests"]
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == name
    ]

    assert any(case["exp_alerts"] for case in cases)
    assert any(not case["exp_alerts"] for case in cases)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_tested_with_a_series_that_is_born_at_1(name: str) -> None:
    tests = [
        test
        for file in RULE_FILES
        for test in yaml.safe_load((RULES / f"{file}_test.yml").read_text(encoding="utf-8"))["tests"]
    ]

    born = [
        test
        for test in tests
        if any(case["alertname"] == name and case["exp_alerts"] for case in test.get("alert_rule_test", ()))
        and any(re.match(r"_x\d+ 1[x+]", series["values"]) for series in test["input_series"])
    ]

    assert born


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_reads_only_what_there_is(rule: dict[str, Any]) -> None:
    known = {spec.name for spec in METRICS} | {f"{spec.name}_bucket" for spec in METRICS if spec.type == "histogram"}

    read = set(re.findall(r"\b(?:agentguard|gen_ai)[a-z0-9_:]+", rule["expr"]))

    assert read
    assert read <= known | RECORDED


def test_every_recorded_series_is_told_apart_by_job() -> None:
    bare = [rule["record"] for rule in ALL_RULES if "record" in rule and "sum by (job" not in rule["expr"]]

    assert all(re.search(r"agentguard:", rule["expr"]) for rule in ALL_RULES if rule.get("record") in bare)


def test_prometheus_accepts_its_configuration() -> None:
    done = subprocess.run(
        [program("promtool"), "check", "config", DASHBOARDS / "prometheus.yml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rule files found" in done.stdout


def test_alertmanager_accepts_its_configuration() -> None:
    done = subprocess.run(
        [program("amtool"), "check-config", DASHBOARDS / "alertmanager.yml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_pages_go_out_at_once() -> None:
    route = yaml.safe_load((DASHBOARDS / "alertmanager.yml").read_text(encoding="utf-8"))["route"]

    (page,) = [one for one in route["routes"] if one["matchers"] == ['severity="page"']]

    assert page["group_wait"] == "0s"


def test_the_page_on_boards_lists_every_alert_with_its_severity() -> None:
    page = (DASHBOARDS.parent / "docs" / "dashboards.md").read_text(encoding="utf-8")

    listed = dict(re.findall(r"^\| ([A-Z]\w+) \| (page|warning) \|", page, re.MULTILINE))

    assert listed == {name: alert["labels"]["severity"] for name, alert in ALERTS.items()}


def test_every_command_of_the_runbook_is_one_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DASHBOARDS / "runbook.md").read_text(encoding="utf-8")
    commands = re.findall(r"`otel-agentguard ([a-z]+(?: [a-z]+)?)([^`]*)`", text)

    assert commands
    for words, rest in commands:
        path = words.split() if words.split()[0] in {"ledger", "runs"} else words.split()[:1]
        assert main([*path, "--help"]) == 0, words
        shown = capsys.readouterr().out
        assert all(option in shown for option in re.findall(r"--[a-z-]+", rest)), words
