import pytest

from otel_agentguard.cli import main


def test_the_help_names_every_command(capsys):
    code = main(["--help"])

    out = capsys.readouterr().out
    assert code == 0
    assert all(name in out for name in ("dashboards", "demo", "doctor", "ledger", "run", "runs", "scan"))


def test_the_help_promises_nothing_that_is_not_there(capsys):
    main(["--help"])

    assert "serve" not in capsys.readouterr().out.split()


@pytest.mark.parametrize("argv", [["bogus"], ["scan"], ["scan", "--bogus", "x"], ["run"]])
def test_misuse_is_told_on_stderr(argv, capsys):
    code = main(argv)

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "Usage:" in err


def test_the_version_is_that_of_the_distribution(capsys):
    code = main(["--version"])

    assert code == 0
    assert capsys.readouterr().out.startswith("otel-agentguard ")


def test_a_bad_setting_is_misuse_with_its_name(monkeypatch, capsys):
    monkeypatch.setenv("AGENTGUARD_MODE", "loud")

    code = main(["doctor"])

    assert code == 2
    assert "AGENTGUARD_MODE" in capsys.readouterr().err
