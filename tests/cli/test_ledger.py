from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard import CallBlocked, Effect, install, run, tool
from otel_agentguard.cli import main

_DIES = """
import os, signal, sys
from otel_agentguard import Effect, install, run, tool

@tool(effect=Effect.SIDE_EFFECT)
def charge(invoice: str, *, idempotency_key: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)

with install(store=sys.argv[1]), run("r-1"):
    charge("i-7")
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'effects.db'}"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def asked(*arguments: str) -> tuple[int, str, str]:
        code = main(["ledger", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return asked


def _killed(store: str) -> None:
    ended = subprocess.run([sys.executable, "-c", _DIES, store], check=False, env=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL


def _charged(store: str) -> str:
    @tool(effect=Effect.SIDE_EFFECT)
    def charge(invoice: str, *, idempotency_key: str) -> str:
        return "charged"

    with install(store=store), run("r-1"):
        return charge("i-7")


def _listed(ask: Any, store: str, *more: str) -> list[dict[str, Any]]:
    code, out, _ = ask("ls", "--store", store, "--json", *more)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_what_happened_is_listed(store: str, ask: Any) -> None:
    _charged(store)

    [record] = _listed(ask, store)

    assert (record["tool"], record["state"], record["run_id"]) == ("charge", "succeeded", "r-1")


_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def test_on_a_terminal_the_list_has_a_head_and_whole_keys(
    store: str, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _charged(store)
    [record] = _listed(ask, store)

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    code, out, _ = ask("ls", "--store", store)

    head, line = out.splitlines()
    assert code == 0
    assert head.split()[:4] == ["key", "tool", "state", "run"]
    assert line.split()[:4] == [record["key"], "charge", "succeeded", "r-1"]
    assert head.index("tool") == line.index("charge")
    assert re.search(_TIME + "$", line)


def test_for_programs_each_effect_is_a_line_with_tabs(store: str, ask: Any) -> None:
    _charged(store)
    [record] = _listed(ask, store)

    _, out, _ = ask("ls", "--store", store)

    [line] = out.splitlines()
    *values, changed = line.split("\t")
    assert values == [record["key"], "charge", "succeeded", "r-1", "1", "0", "0"]
    assert re.fullmatch(_TIME, changed)


def test_a_name_cannot_break_a_line_or_command_the_terminal(store: str, ask: Any) -> None:
    @tool(effect=Effect.SIDE_EFFECT)
    def pay() -> None: ...

    with install(store=store), run("one\ntwo\tthree\x1b[2J"):
        pay()

    _, out, _ = ask("ls", "--store", store)

    [line] = out.splitlines()
    assert line.split("\t")[3] == r"one\ntwo\tthree\x1b[2J"


def test_times_are_shown_as_times(store: str, ask: Any) -> None:
    _killed(store)
    with pytest.raises(CallBlocked):
        _charged(store)
    [record] = _listed(ask, store)
    ask("resolve", record["key"], "not-applied", "--store", store, "--yes")
    _charged(store)

    _, out, _ = ask("show", record["key"], "--store", store)

    shown = dict(line.split("\t") for line in out.splitlines())
    assert shown["key"] == record["key"]
    assert all(re.fullmatch(_TIME, shown[name]) for name in ("created", "started", "updated"))
    assert re.fullmatch(f"not_applied, {_TIME} to {_TIME}, by .+", shown["attempt 1"])
    assert shown["attempt"] == "2"


def test_on_a_terminal_the_fields_of_an_effect_stand_in_two_columns(
    store: str, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _charged(store)
    [record] = _listed(ask, store)

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    lines = ask("show", record["key"], "--store", store)[1].splitlines()

    assert f"key                   {record['key']}" in lines


def test_an_effect_of_a_killed_process_is_settled_by_a_person(store: str, ask: Any) -> None:
    _killed(store)
    with pytest.raises(CallBlocked):
        _charged(store)
    [record] = _listed(ask, store, "--state", "unknown")

    code, _, err = ask("resolve", record["key"], "applied", "--result", '"charged by hand"', "--store", store, "--yes")

    assert code == 0, err
    assert _charged(store) == "charged by hand"


def test_an_effect_that_did_not_happen_may_be_made_again(store: str, ask: Any) -> None:
    _killed(store)
    with pytest.raises(CallBlocked):
        _charged(store)
    [record] = _listed(ask, store)

    assert ask("resolve", record["key"], "not-applied", "--store", store, "--yes")[0] == 0
    assert _charged(store) == "charged"


def test_resolving_asks_first(store: str, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _killed(store)
    with pytest.raises(CallBlocked):
        _charged(store)
    [record] = _listed(ask, store)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)

    code, _, _ = ask("resolve", record["key"], "applied", "--store", store)

    assert code == 1
    assert _listed(ask, store)[0]["state"] == "unknown"


def test_what_is_settled_cannot_be_resolved(store: str, ask: Any) -> None:
    _charged(store)
    [record] = _listed(ask, store)

    code, _, err = ask("resolve", record["key"], "applied", "--store", store, "--yes")

    assert code == 1
    assert "nothing to settle" in err


def test_one_effect_is_shown_with_its_attempts(store: str, ask: Any) -> None:
    _charged(store)
    [record] = _listed(ask, store)

    code, out, _ = ask("show", record["key"], "--store", store, "--json")

    assert code == 0
    assert json.loads(out)["attempts"] == []


def test_an_unknown_key_is_misuse(store: str, ask: Any) -> None:
    _charged(store)

    code, _, err = ask("show", "nonsense", "--store", store)

    assert code == 2
    assert "nonsense" in err


def test_settled_effects_are_dropped_when_they_are_old_enough(store: str, ask: Any) -> None:
    _charged(store)

    assert ask("gc", "--older-than-days", "1", "--store", store, "--yes")[2] == "dropped 0\n"
    assert ask("gc", "--older-than-days", "0", "--store", store, "--yes")[2] == "dropped 1\n"


def test_a_store_in_memory_is_refused_with_the_way_out(ask: Any) -> None:
    code, _, err = ask("ls", "--store", "memory://")

    assert code == 2
    assert "--store sqlite:///" in err


def test_a_mistyped_store_is_an_error_and_makes_no_file(tmp_path: Path, ask: Any) -> None:
    missing = tmp_path / "effcts.db"

    code, out, err = ask("ls", "--store", f"sqlite:///{missing}")

    assert (code, out) == (2, "")
    assert "there is no store" in err
    assert not missing.exists()
