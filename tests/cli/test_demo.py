import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from otel_agentguard.cli import main
from otel_agentguard.demo.scenes import SCENES

COMMAND = [sys.executable, "-c", "import sys; from otel_agentguard.cli import main; sys.exit(main())", "demo"]


@pytest.fixture
def _apart_from_other_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("AGENTGUARD_", "OTEL_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.usefixtures("_apart_from_other_settings")
def test_the_demo_catches_what_it_was_built_to_show(capsys):
    code = main(["demo", "--once"])

    out, err = capsys.readouterr()
    assert code == 0, err
    assert all(scene.agents.split(",")[0] in out for scene in SCENES)
    assert out.count("left alone") == sum(scene.kind is None and not scene.told for scene in SCENES)


@pytest.mark.usefixtures("_apart_from_other_settings")
def test_the_demo_opens_no_port_unless_it_is_asked_to(capsys, monkeypatch):
    def refuse(self, address):
        raise AssertionError(f"a port was opened: {address}")

    monkeypatch.setattr(socket.socket, "bind", refuse)

    assert main(["demo", "--once"]) == 0


@pytest.mark.usefixtures("_apart_from_other_settings")
def test_a_guard_that_lets_everything_through_fails_the_demo(monkeypatch, capsys):
    monkeypatch.setenv("AGENTGUARD_MODE", "off")

    code = main(["demo", "--once"])

    assert code == 1
    assert "no loop was found" in capsys.readouterr().err


@pytest.mark.usefixtures("_apart_from_other_settings")
def test_settings_of_the_directory_do_not_change_the_demo(tmp_path):
    (tmp_path / "agentguard.toml").write_text('[loop.same]\nhint = "never"\nblock = "never"\nstop = "never"\n')

    assert main(["demo", "--once"]) == 0


@pytest.mark.usefixtures("_apart_from_other_settings")
def test_a_taken_port_ends_the_demo_as_misuse(taken_port, capsys):
    code = main(["demo", "--once", "--port", str(taken_port)])

    assert code == 2
    assert str(taken_port) in capsys.readouterr().err


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_repeats_and_serves_metrics_until_it_is_told_to_end(tmp_path, end):
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTGUARD_", "OTEL_"))}
    with subprocess.Popen(
        [*COMMAND, "--port", "0"], cwd=tmp_path, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as demo:
        url = demo.stderr.readline().split()[-1]
        assert "Ctrl-C" in demo.stderr.readline()

        page = urllib.request.urlopen(url, timeout=10).read().decode()  # noqa: S310 - it is a loopback address
        demo.send_signal(end)

        assert demo.wait(20) == 0
    samples = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
    assert ('agentguard_runs_total{outcome="stopped_by_guard"}', " ", "2.0") in samples
    assert not [name for name, _, value in samples if name.startswith("agentguard_executed_after") and value != "0.0"]
