from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard import RunAborted, install, run, tool
from otel_agentguard.cli import main


@tool
def look() -> str:
    return "nothing new in this place at all, as before"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'guard.db'}"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def asked(*arguments: str) -> tuple[int, str, str]:
        code = main(["runs", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return asked


def _loop(store: str) -> None:
    with install(store=store), run("ticket-42", conversation="c-1"):
        while True:
            with suppress(Exception):
                look()


def test_a_stopped_run_is_listed(store: str, ask: Any) -> None:
    with pytest.raises(RunAborted):
        _loop(store)

    code, out, _ = ask("ls", "--store", store, "--json")

    assert code == 0
    [mark] = [json.loads(line) for line in out.splitlines()]
    assert (mark["run_id"], mark["conversation"], mark["kind"]) == ("ticket-42", "c-1", "loop")


def test_for_programs_each_stopped_run_is_a_line_with_tabs(store: str, ask: Any) -> None:
    with pytest.raises(RunAborted):
        _loop(store)

    [line] = ask("ls", "--store", store)[1].splitlines()

    run_id, conversation, stopped, kind, why = line.split("\t")
    assert (run_id, conversation, kind) == ("ticket-42", "c-1", "loop")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stopped)
    assert "look" in why


def test_on_a_terminal_the_list_has_a_head(store: str, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunAborted):
        _loop(store)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    head, line = ask("ls", "--store", store)[1].splitlines()

    assert head.split() == ["run", "conversation", "stopped", "kind", "why"]
    assert line.startswith("ticket-42  c-1")


def test_a_released_run_may_be_entered_again(store: str, ask: Any) -> None:
    with pytest.raises(RunAborted):
        _loop(store)

    code, _, _ = ask("release", "ticket-42", "--store", store)

    assert code == 0
    with install(store=store), run("ticket-42"):
        assert look()


def test_releasing_what_is_not_stopped_says_so(store: str, ask: Any) -> None:
    with pytest.raises(RunAborted):
        _loop(store)

    code, _, err = ask("release", "nobody", "--store", store)

    assert code == 1
    assert "nobody" in err


def test_a_store_in_memory_is_refused_with_the_way_out(ask: Any) -> None:
    code, _, err = ask("ls", "--store", "memory://")

    assert code == 2
    assert "guard.release" in err


def test_a_mistyped_store_is_an_error_and_makes_no_file(tmp_path: Path, ask: Any) -> None:
    missing = tmp_path / "gard.db"

    code, out, err = ask("ls", "--store", f"sqlite:///{missing}")

    assert (code, out) == (2, "")
    assert "there is no store" in err
    assert not missing.exists()


def test_the_table_shows_the_whole_time_of_a_stop(store: str, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(RunAborted):
        _loop(store)

    _, out, _ = ask("ls", "--store", store)

    assert "\N{HORIZONTAL ELLIPSIS}" not in out
