"""What can be checked of docker-compose.yml and the Dockerfile without a Docker engine."""

from __future__ import annotations

import re
from typing import Any

import pytest
from monitoring import ROOT

yaml = pytest.importorskip("yaml", reason="pip install PyYAML")

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# These come without a shell and without a command that could ask them whether they are well.
WITHOUT_TOOLS = {"tempo", "collector"}
ONE_SHOT = {"traces-ready"}


def test_compose_spec_accepts_the_file() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="pip install compose-spec")

    compose = compose_spec.PyCompose.from_yaml(TEXT)
    compose.validate()

    assert set(compose.service_names()) == set(SERVICES)


def test_the_images_are_the_ones_that_the_files_are_written_for() -> None:
    images = {name: service["image"] for name, service in SERVICES.items()}

    assert images == {
        "demo": "agentguard-demo:0.1.0",
        "pager": "agentguard-demo:0.1.0",
        "traces-ready": "agentguard-demo:0.1.0",
        "prometheus": "prom/prometheus:v3.14.0",
        "alertmanager": "prom/alertmanager:v0.34.1",
        "tempo": "grafana/tempo:3.0.3",
        "collector": "otel/opentelemetry-collector-contrib:0.160.0",
        "grafana": "grafana/grafana:13.2.1",
    }


def test_whoever_uses_an_image_of_ours_can_build_it() -> None:
    for service in SERVICES.values():
        assert service["image"].startswith("agentguard-demo:") == (service.get("build") == ".")


def test_dependencies_are_services_and_healthy_ones_have_a_check() -> None:
    for name, service in SERVICES.items():
        for target, how in service.get("depends_on", {}).items():
            assert target in SERVICES, name
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[target], name
            if how["condition"] == "service_completed_successfully":
                assert target in ONE_SHOT, name


def test_nobody_waits_for_himself() -> None:
    def reach(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        for target in SERVICES[name].get("depends_on", {}):
            reach(target, (*path, name))

    for name in SERVICES:
        reach(name, ())


def test_every_mount_is_there_or_a_volume_of_the_file() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source, _, rest = mount.partition(":")
            if source.startswith("."):
                assert (ROOT / source).exists(), mount
                assert rest.endswith(":ro"), mount
            else:
                assert source in COMPOSE["volumes"], mount


def test_ports_are_open_on_the_loopback_address_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]

    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    assert len(set(ports)) == len(ports)


def test_every_server_has_a_health_check_or_is_asked_from_outside() -> None:
    unchecked = {name for name, service in SERVICES.items() if "healthcheck" not in service} - ONE_SHOT
    asked = " ".join(SERVICES["traces-ready"]["command"])

    assert unchecked == WITHOUT_TOOLS
    assert all(f"http://{name}:" in asked for name in WITHOUT_TOOLS)


def test_health_checks_use_what_the_image_has() -> None:
    programs = {
        name: service["healthcheck"]["test"][1] for name, service in SERVICES.items() if "healthcheck" in service
    }

    assert programs == {
        "demo": "python",
        "pager": "python",
        "prometheus": "/bin/promtool",
        "alertmanager": "/bin/amtool",
        "grafana": "curl",
    }


def test_addresses_in_the_configurations_are_those_of_services() -> None:
    files = ["prometheus.yml", "alertmanager.yml", "collector.yaml", "grafana/provisioning/datasources/agentguard.yml"]
    text = "\n".join((ROOT / "dashboards" / name).read_text(encoding="utf-8") for name in files)

    named = set(re.findall(r"(?:https?://|\[|endpoint: )([a-z][a-z-]*):\d+", text))

    assert named == {"demo", "alertmanager", "pager", "tempo", "prometheus"}
    assert named <= set(SERVICES)


def test_prometheus_keeps_exemplars() -> None:
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]


def test_our_containers_may_write_and_do_next_to_nothing() -> None:
    for name in ("demo", "pager"):
        assert SERVICES[name]["read_only"] is True
        assert SERVICES[name]["cap_drop"] == ["ALL"]


def test_the_image_is_pinned_runs_as_nobody_special_and_is_built_from_what_is_copied() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]

    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}

    assert len(bases) == 1
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", bases.pop())
    assert any(re.fullmatch(r"USER [1-9]\d+:\d+", line) for line in lines)
    assert ignored[0] == "*"
    assert {f"!{source}" for source in sources} <= set(ignored)
    assert all((ROOT / source).exists() for source in sources)
