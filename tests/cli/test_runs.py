from otel_agentguard.cli import main


def test_marks_that_live_in_a_process_are_not_listed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code = main(["runs", "ls"])

    out, err = capsys.readouterr()
    assert (code, out) == (0, "")
    assert "memory://" in err


def test_a_stop_that_is_not_known_cannot_be_lifted(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code = main(["runs", "release", "r-1"])

    assert code == 1
    assert "guard.release('r-1')" in capsys.readouterr().err
