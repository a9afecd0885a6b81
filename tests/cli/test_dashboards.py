from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from otel_agentguard.cli import main

ROOT = Path(__file__).resolve().parents[2]
BOARDS = {"overview.json", "loops.json", "side_effects.json", "guard_health.json"}


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_export_writes_boards_rules_and_runbook_and_prints_each_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["dashboards", "export", str(tmp_path / "out")])

    printed = {Path(line).relative_to(tmp_path / "out").as_posix() for line in capsys.readouterr().out.splitlines()}
    assert code == 0
    assert names(tmp_path / "out") == printed
    assert printed >= BOARDS | {"runbook.md", "rules/alerts.yml", "rules/recording.yml", "rules/burn_rate.yml"}
    assert not {name for name in printed if name.endswith(".py")}
    assert json.loads((tmp_path / "out" / "overview.json").read_text())["uid"] == "agentguard-overview"


def test_a_second_export_has_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["dashboards", "export", str(tmp_path)])
    capsys.readouterr()

    code = main(["dashboards", "export", str(tmp_path)])

    assert code == 0
    assert capsys.readouterr().out == ""


def test_a_changed_file_is_not_overwritten_and_nothing_else_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "alerts.yml").write_text("groups: []\n")

    code = main(["dashboards", "export", str(tmp_path)])

    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert str(tmp_path / "rules" / "alerts.yml") in err
    assert "--force" in err
    assert names(tmp_path) == {"rules/alerts.yml"}


def test_force_overwrites_what_was_changed(tmp_path: Path) -> None:
    (tmp_path / "runbook.md").write_text("mine\n")

    code = main(["dashboards", "export", str(tmp_path), "--force"])

    assert code == 0
    assert (tmp_path / "runbook.md").read_text().startswith("# Runbook")


def test_alerts_can_link_to_a_runbook_elsewhere(tmp_path: Path) -> None:
    main(["dashboards", "export", str(tmp_path), "--runbook", "https://wiki.example.com/agentguard"])

    alerts = (tmp_path / "rules" / "alerts.yml").read_text()
    assert "runbook_url: https://wiki.example.com/agentguard#agentloopratehigh" in alerts
    assert "runbook.md#" not in alerts
    assert "runbook.md#" not in (tmp_path / "rules" / "alerts_test.yml").read_text()


def test_a_folder_that_cannot_be_written_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules").write_text("a file where a folder is needed")

    code = main(["dashboards", "export", str(tmp_path)])

    assert code == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_file_instead_of_a_folder_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("")

    assert main(["dashboards", "export", str(tmp_path / "out")]) == 2


def test_the_wheel_holds_all_that_an_export_writes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="pip install hatchling")
    main(["dashboards", "export", str(tmp_path / "out")])
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path / "site")], check=True, timeout=60)
    program = "import sys; from otel_agentguard.cli import main; sys.exit(main(sys.argv[1:]))"

    done = subprocess.run(
        [sys.executable, "-c", program, "dashboards", "export", str(tmp_path / "from_wheel")],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert names(tmp_path / "from_wheel") == names(tmp_path / "out")
    assert "otel_agentguard/dashboards_data/overview.json" in zipfile.ZipFile(wheel).namelist()
