"""Real agents, scraped by a real Prometheus: what the boards show, which alerts arrive, and where an exemplar leads.

Windows and waits of the rules are cut from minutes to seconds; nothing else about them is changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from monitoring import BOARDS, DASHBOARDS, RULE_FILES, RULES, program
from otlp_receiver import OtlpReceiver, receiving
from services import free_port

from otel_agentguard.demo.pager import pager

yaml = pytest.importorskip("yaml", reason="pip install PyYAML")

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

WAIT_S = 90.0
RAISED = {
    "AgentLoopRateHigh",
    "AgentRepeatRatioHigh",
    "AgentRunsStopped",
    "DuplicateSideEffectConfirmed",
    "DuplicateSideEffectPossible",
    "SideEffectUnknown",
    "DuplicateEffectBudgetFastBurn",
    "DuplicateEffectBudgetSlowBurn",
    "GuardErrors",
}
NOT_RAISED = {"GuardExecutedAfterBlock", "GuardSilent"}


class Watch:
    """The agents and everything that watches them.

    Attributes:
        prometheus: URL of Prometheus.
        collector: What the agents have exported.
        pages: What has reached the pager, one line an alert.
        agents: The process of the agents.
    """

    def __init__(
        self, prometheus: str, collector: OtlpReceiver, pages: list[str], agents: subprocess.Popen[str]
    ) -> None:
        self.prometheus = prometheus
        self.collector = collector
        self.pages = pages
        self.agents = agents

    def ask(self, api: str, **parameters: str | float) -> Any:
        url = f"{self.prometheus}/api/v1/{api}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
            return json.load(answer)["data"]

    def value(self, expr: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("query", query=expr)["result"]
        return found

    def fired(self) -> set[str]:
        """Names of the alerts that have reached the pager."""
        return {line.split()[2] for line in list(self.pages) if line.startswith("FIRING")}


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    prometheus, alertmanager = program("prometheus"), program("prometheus-alertmanager", "alertmanager")
    folder = tmp_path_factory.mktemp("watch")
    pages: list[str] = []
    with ExitStack() as stack:
        collector = stack.enter_context(receiving())
        pager_port = stack.enter_context(paging(pages))
        agents, page = stack.enter_context(working(collector.grpc_url, folder))
        alerts = free_port()
        write_alertmanager(folder, pager_port)
        stack.enter_context(
            serving(
                [
                    alertmanager,
                    f"--config.file={folder / 'alertmanager.yml'}",
                    f"--storage.path={folder / 'alerts'}",
                    f"--web.listen-address=127.0.0.1:{alerts}",
                    "--cluster.listen-address=",
                ],
                f"http://127.0.0.1:{alerts}/-/ready",
                folder / "alertmanager.log",
            )
        )
        port = free_port()
        write_prometheus(folder, urllib.parse.urlsplit(page).netloc, f"127.0.0.1:{alerts}")
        stack.enter_context(
            serving(
                [
                    prometheus,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--enable-feature=exemplar-storage",
                ],
                f"http://127.0.0.1:{port}/-/ready",
                folder / "prometheus.log",
            )
        )
        watch = Watch(f"http://127.0.0.1:{port}", collector, pages, agents)
        until(lambda: watch.value('sum(agentguard_runs_total{outcome="stopped_by_guard"}) > 12'), "no runs are stopped")
        yield watch


@contextmanager
def paging(pages: list[str]) -> Iterator[int]:
    with pager(0, "127.0.0.1", pages.append) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@contextmanager
def working(collector: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    workload = Path(__file__).with_name("workload.py")
    with (
        (folder / "agents.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, workload, "0", collector, "300"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_BSP_SCHEDULE_DELAY": "200",
                "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            },
            cwd=folder,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def serving(command: list[str], ready: str, log: Path) -> Iterator[None]:
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            until(lambda: answers(ready), f"{command[0]} does not start: {log.read_text()[-2000:]}")
            yield
        finally:
            process.terminate()
            process.wait(20)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - loopback
            return True
    except (urllib.error.URLError, OSError):
        return False


def until(true: Callable[[], object], otherwise: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(otherwise if isinstance(otherwise, str) else otherwise())
        time.sleep(0.2)


def write_alertmanager(folder: Path, pager_port: int) -> None:
    text = (DASHBOARDS / "alertmanager.yml").read_text(encoding="utf-8")
    text = text.replace("http://pager:8080/", f"http://127.0.0.1:{pager_port}/")
    text = re.sub(r"group_wait: \w+", "group_wait: 0s", text)
    text = re.sub(r"group_interval: \w+", "group_interval: 1s", text)
    # An inhibited alert does not reach anybody, which is right, and would hide whether it fires.
    config = yaml.safe_load(text)
    del config["inhibit_rules"]
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))


def write_prometheus(folder: Path, agents: str, alertmanager: str) -> None:
    (folder / "rules").mkdir()
    for name in RULE_FILES:
        (folder / "rules" / f"{name}.yml").write_text(hurried((RULES / f"{name}.yml").read_text(encoding="utf-8")))
    text = (DASHBOARDS / "prometheus.yml").read_text(encoding="utf-8")
    text = re.sub(r"(scrape_interval|evaluation_interval): \w+", r"\1: 1s", text)
    text = text.replace("demo:9464", agents).replace("alertmanager:9093", alertmanager)
    (folder / "prometheus.yml").write_text(text)


def hurried(rules: str) -> str:
    """The rules with minutes and hours cut to seconds."""
    rules = re.sub(r"\[(5m|10m)\]", "[10s]", rules)
    rules = re.sub(r"\[(15m|30m|1h|6h)\]", "[20s]", rules)
    rules = re.sub(r"offset 5m", "offset 10s", rules)
    return re.sub(r"((?:keep_firing_)?for): \d+m", r"\1: 1s", rules)


def filled_in(expr: str) -> str:
    expr = expr.replace("$__rate_interval", "15s").replace("$__range", "60s")
    return re.sub(r"\$(job|instance)\b", ".+", re.sub(r"\$(agent|tool)\b", ".*", expr))


def panels() -> Iterator[Any]:
    for board in BOARDS:
        loaded = json.loads((DASHBOARDS / f"{board}.json").read_text(encoding="utf-8"))
        for panel in loaded["panels"]:
            for target in panel.get("targets", ()):
                yield pytest.param(target["expr"], id=f"{board}: {panel['title']} {target['refId']}")


@pytest.mark.parametrize("expr", list(panels()))
def test_every_expression_of_every_panel_returns_data(watch: Watch, expr: str) -> None:
    until(lambda: watch.value(filled_in(expr)), f"nothing for {filled_in(expr)}")


@pytest.mark.parametrize("board", BOARDS)
def test_every_variable_has_values_and_stopped_runs_are_annotated(watch: Watch, board: str) -> None:
    loaded = json.loads((DASHBOARDS / f"{board}.json").read_text(encoding="utf-8"))
    for variable in loaded["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            assert watch.ask(f"label/{label}/values", **{"match[]": filled_in(metric)}), variable["name"]
    (annotation,) = loaded["annotations"]["list"]
    until(lambda: watch.value(filled_in(annotation["expr"])), "no stopped run is annotated")


def test_the_alerts_that_these_agents_deserve_reach_the_pager(watch: Watch) -> None:
    until(lambda: watch.fired() >= RAISED, lambda: f"missing: {sorted(RAISED - watch.fired())}")

    assert not watch.fired() & NOT_RAISED
    pages = [line for line in list(watch.pages) if line.startswith("FIRING page DuplicateSideEffectConfirmed")]
    assert "tool=send_mail" in pages[0]
    assert "runbook.md#duplicatesideeffectconfirmed" in pages[0]


def test_an_exemplar_of_a_panel_leads_to_the_trace_of_a_stopped_run(watch: Watch) -> None:
    overview = json.loads((DASHBOARDS / "overview.json").read_text(encoding="utf-8"))
    (loops,) = [panel for panel in overview["panels"] if panel["title"] == "Loops a minute, by agent"]
    (target,) = loops["targets"]
    now = time.time()

    def exemplars() -> list[str]:
        found = watch.ask("query_exemplars", query=filled_in(target["expr"]), start=now - 120, end=time.time())
        return [
            one["labels"]["trace_id"]
            for series in found
            if series["seriesLabels"]["action"] == "stop"
            for one in series["exemplars"]
        ]

    assert target["exemplar"]
    until(exemplars, "no exemplars")
    until(lambda: set(exemplars()) & watch.collector.trace_ids(), "the traces of the exemplars were not exported")
    (trace, *_) = set(exemplars()) & watch.collector.trace_ids()
    spans = [span for span in list(watch.collector.spans) if span.trace_id.hex() == trace]
    actions = {
        attribute.value.string_value
        for span in spans
        for attribute in span.attributes
        if attribute.key == "agentguard.action"
    }

    assert "stop" in actions


def test_metrics_arrive_at_the_collector_too(watch: Watch) -> None:
    watch.collector.wait_for(lambda arrived: any(metric.name == "agentguard_findings" for metric in arrived.metrics))


def test_silence_is_told_of(watch: Watch) -> None:
    watch.agents.terminate()
    watch.agents.wait(20)

    until(lambda: "GuardSilent" in watch.fired(), "nobody is told that the agents are gone")
