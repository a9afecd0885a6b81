"""The boards as they are committed: up to date, and after the rules of grafana/dashboard-linter.

https://github.com/grafana/dashboard-linter/tree/main/docs/rules
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from monitoring import BOARDS, DASHBOARDS, program

from otel_agentguard.semconv import METRICS

yaml = pytest.importorskip("yaml", reason="pip install PyYAML")

LOADED = {name: json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8")) for name in BOARDS}
PROVISIONED = DASHBOARDS / "grafana" / "provisioning"

# Units of Grafana that these boards have a use for.
UNITS = {"short", "percentunit", "s", "bytes"}

# `increase` cannot see the first count of a series that is born above 0, and these panels must not miss one:
# they add the least value of series that are new in the range. The linter calls that an exclusion with a reason.
MAY_READ_TOTALS = {
    "Done twice for sure",
    "Perhaps done twice",
    "Duplicates prevented",
    "Outcome unknown",
    "Carried out",
    "Replayed",
    "Which tool",
    "Tools and outcomes",
    "Ran after a block",
    "Errors of the guard",
}

SELECTOR = re.compile(r"(?P<call>\w+\()?(?P<metric>[a-z_:]+)\{(?P<matchers>[^}]*)\}(?P<range>\[[^\]]*\])?")


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in LOADED[name]["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str, str]]:
    for name in BOARDS:
        for panel in panels(name):
            for target in panel["targets"]:
                yield name, panel["title"], target["expr"]


def variables(name: str) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in LOADED[name]["templating"]["list"]}


EXPRESSIONS = list(expressions())


def test_the_committed_boards_are_those_that_build_makes() -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="pip install 'otel-agentguard[dashboards]'")

    done = subprocess.run(
        [sys.executable, DASHBOARDS / "build.py", "--check"], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_cannot_be_edited_and_has_a_title_a_description_and_a_uid_of_its_own(name: str) -> None:
    board = LOADED[name]

    assert board["editable"] is False
    assert board["title"].startswith("AgentGuard / ")
    assert board["description"].endswith("?")
    assert board["uid"] == f"agentguard-{name.replace('_', '-')}"
    assert board["schemaVersion"] == 42


@pytest.mark.parametrize("name", BOARDS)
def test_data_sources_are_variables(name: str) -> None:
    kinds = {variable["name"]: variable for variable in variables(name).values() if variable["type"] == "datasource"}

    assert {label: one["query"] for label, one in kinds.items()} == {
        "prometheus_datasource": "prometheus",
        "tempo_datasource": "tempo",
    }
    assert kinds["prometheus_datasource"]["label"] == "Prometheus data source"
    assert kinds["tempo_datasource"]["label"] == "Tempo data source"


@pytest.mark.parametrize("label", ["job", "instance"])
@pytest.mark.parametrize("name", BOARDS)
def test_job_and_instance_are_variables_over_everything_that_is_scraped(name: str, label: str) -> None:
    variable = variables(name)[label]

    assert variable["type"] == "query"
    assert variable["label"] == label.title()
    assert variable["datasource"]["uid"] == "${prometheus_datasource}"
    assert variable["multi"]
    assert variable["includeAll"]
    assert variable["allValue"] == ".+"
    assert variable["refresh"] == 2  # when the time range changes


@pytest.mark.parametrize("name", BOARDS)
def test_every_variable_is_used_and_every_used_one_is_there(name: str) -> None:
    text = json.dumps(LOADED[name])
    used = set(re.findall(r"\$\{?([a-z][a-z_]+)\b", text)) - {"literal"}

    assert used == set(variables(name))


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_has_a_title_a_description_a_unit_and_the_variable_for_its_source(name: str) -> None:
    for panel in panels(name):
        assert panel["title"], panel["id"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"]["uid"] == "${prometheus_datasource}", panel["title"]
        assert panel["targets"], panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${prometheus_datasource}"}


@pytest.mark.parametrize("name", BOARDS)
def test_ids_and_titles_of_panels_are_unique_on_a_board(name: str) -> None:
    every = LOADED[name]["panels"]

    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in every}) == len(every)


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in LOADED[name]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize(("name", "title", "expr"), EXPRESSIONS)
def test_every_selector_follows_job_and_instance(name: str, title: str, expr: str) -> None:
    selectors = list(SELECTOR.finditer(expr))

    assert selectors
    for selector in selectors:
        assert 'job=~"$job"' in selector["matchers"]
        assert 'instance=~"$instance"' in selector["matchers"]
    assert "{" not in SELECTOR.sub("", expr)


@pytest.mark.parametrize(("name", "title", "expr"), EXPRESSIONS)
def test_rates_are_taken_over_the_interval_that_grafana_chooses(name: str, title: str, expr: str) -> None:
    for selector in SELECTOR.finditer(expr):
        if selector["call"] in {"rate(", "irate("}:
            assert selector["range"] == "[$__rate_interval]"


@pytest.mark.parametrize(("name", "title", "expr"), EXPRESSIONS)
def test_counters_are_read_only_through_rate_or_increase(name: str, title: str, expr: str) -> None:
    for selector in SELECTOR.finditer(expr):
        if selector["metric"].endswith("_total") and selector["call"] not in {"rate(", "irate(", "increase("}:
            assert title in MAY_READ_TOTALS
            assert selector["call"] == "min_over_time(" or f"unless {selector[0]} offset" in expr


@pytest.mark.parametrize(("name", "title", "expr"), EXPRESSIONS)
def test_every_metric_of_a_board_is_one_that_the_guard_has(name: str, title: str, expr: str) -> None:
    known = {spec.name for spec in METRICS} | {
        f"{spec.name}{end}" for spec in METRICS if spec.type == "histogram" for end in ("_bucket", "_sum", "_count")
    }

    assert {selector["metric"] for selector in SELECTOR.finditer(expr)} <= known


@pytest.mark.parametrize(("name", "title", "expr"), EXPRESSIONS)
def test_every_label_of_an_expression_is_one_of_its_metric(name: str, title: str, expr: str) -> None:
    labels = {spec.name: {*spec.labels, "job", "instance", "le"} for spec in METRICS}
    bases = re.compile(r"_(bucket|sum|count)$")
    for selector in SELECTOR.finditer(expr):
        known = labels.get(selector["metric"]) or labels[bases.sub("", selector["metric"])]
        assert set(re.findall(r"(\w+)(?:=~|!=|=)", selector["matchers"])) <= known
    grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", expr) for label in found.split(",")}
    assert grouped <= set().union(*labels.values())


def test_every_metric_of_the_guard_is_on_a_board() -> None:
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", one["metric"]) for _, _, e in EXPRESSIONS for one in SELECTOR.finditer(e)
    }

    assert shown == {spec.name for spec in METRICS}


def test_prometheus_can_read_every_expression(tmp_path: Any) -> None:
    promtool = program("promtool")
    rules = [
        {"record": f"board:expression:number{place}", "expr": re.sub(r"\$__(rate_interval|range|interval)", "5m", expr)}
        for place, (_, _, expr) in enumerate(EXPRESSIONS)
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))

    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, timeout=60, check=False)

    assert f"{len(rules)} rules found" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", BOARDS)
def test_stopped_runs_are_annotations(name: str) -> None:
    (annotation,) = LOADED[name]["annotations"]["list"]

    assert annotation["enable"]
    assert 'outcome="stopped_by_guard"' in annotation["expr"]
    assert annotation["datasource"]["uid"] == "${prometheus_datasource}"


@pytest.mark.parametrize("name", BOARDS)
def test_links_to_traces_are_traceql_over_the_time_that_is_shown(name: str) -> None:
    links = [
        link for panel in panels(name) for link in panel["fieldConfig"]["defaults"].get("links", ()) if link["title"]
    ]

    for link in links:
        (panes,) = parse_qs(urlsplit(link["url"]).query)["panes"]
        (pane,) = json.loads(panes).values()
        assert pane["datasource"] == "${tempo_datasource}"
        assert pane["range"] == {"from": "${__from}", "to": "${__to}"}
        assert pane["queries"][0]["queryType"] == "traceql"
        assert re.search(r"span\.agentguard\.\w+", pane["queries"][0]["query"])
    assert links


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_leads_to_the_others(name: str) -> None:
    (link,) = LOADED[name]["links"]

    assert link["type"] == "dashboards"
    assert link["tags"] == LOADED[name]["tags"] == ["agentguard"]
    assert link["keepTime"]
    assert link["includeVars"]


def test_exemplars_lead_to_the_traces_of_tempo() -> None:
    sources = yaml.safe_load((PROVISIONED / "datasources" / "agentguard.yml").read_text())["datasources"]
    by_uid = {source["uid"]: source for source in sources}

    destinations = by_uid["agentguard-prometheus"]["jsonData"]["exemplarTraceIdDestinations"]

    assert {one["name"] for one in destinations} == {"trace_id"}
    assert [one["datasourceUid"] for one in destinations if "datasourceUid" in one] == ["agentguard-tempo"]
    assert all("$${__value.raw}" in one["url"] for one in destinations if "url" in one)
    assert by_uid["agentguard-tempo"]["jsonData"]["tracesToMetrics"]["datasourceUid"] in by_uid
    assert any(target.get("exemplar") for panel in panels("overview") for target in panel["targets"])


def test_the_metrics_behind_a_trace_are_ones_that_the_guard_has() -> None:
    text = (PROVISIONED / "datasources" / "agentguard.yml").read_text()

    assert set(re.findall(r"(agentguard_\w+)\{", text)) <= {spec.name for spec in METRICS}


def test_grafana_finds_the_boards_where_compose_puts_them() -> None:
    (provider,) = yaml.safe_load((PROVISIONED / "dashboards" / "agentguard.yml").read_text())["providers"]
    compose = (DASHBOARDS.parent / "docker-compose.yml").read_text()

    assert f"./dashboards:{provider['options']['path']}:ro" in compose
    assert provider["allowUiUpdates"] is False
