"""The commands and settings in docs/tuning.md do what the page shows, and docs/defaults.md explains every default."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest

from otel_agentguard.cli import main
from otel_agentguard.config import Budget, LoopSettings, Settings, ToolSettings
from otel_agentguard.findings import Limits
from otel_agentguard.loading import load

DOCS = Path(__file__).resolve().parents[1] / "docs"
TUNING = (DOCS / "tuning.md").read_text(encoding="utf-8")
DEFAULTS = (DOCS / "defaults.md").read_text(encoding="utf-8")

JQ = "jq -c '[.id, .first_step, .stopped_at]'"
COMMANDS = [
    (command, shown.rstrip("\n"))
    for command, shown in re.findall(r"```console\n\$ otel-agentguard ([^\n]*)\n(.*?)```", TUNING, re.DOTALL)
]
TOML = re.findall(r"```toml\n(.*?)```", TUNING, re.DOTALL)
ROWS = dict(re.findall(r"^\| `([\w.]+)` \| (.*)$", DEFAULTS, re.MULTILINE))


def call(agent: str, tool: str, result: str, **arguments: object) -> dict[str, object]:
    return {"kind": "tool", "agent": agent, "tool": tool, "args": arguments, "result": result}


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three runs that the page speaks of; the first one is shown on it."""
    (shown,) = re.findall(r"```json\n(.*?)```", TUNING, re.DOTALL)
    stuck = {"id": "stuck", "steps": [call("coder", "read_file", "import md5", path="auth.py")] * 5}
    fine = {"id": "fine", "steps": [call("coder", "read_file", "x", path="a"), call("coder", "run_tests", "2 passed")]}
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "runs" / "monday.jsonl"
    log.parent.mkdir()
    log.write_text("\n".join(map(json.dumps, (json.loads(shown), stuck, fine))), encoding="utf-8")


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_a_command_in_the_page_prints_what_is_shown(
    command: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, _, piped = command.partition(" | ")

    main(shlex.split(words))
    out = capsys.readouterr().out.rstrip("\n")
    if piped:
        assert piped == JQ
        objects = [json.loads(line) for line in out.splitlines()]
        out = "\n".join(
            json.dumps([one["id"], one["first_step"], one["stopped_at"]], separators=(",", ":")) for one in objects
        )

    assert out == shown


def test_the_page_shows_commands() -> None:
    assert len(COMMANDS) >= 3


@pytest.mark.parametrize("content", TOML)
def test_the_settings_in_the_page_can_be_loaded(content: str, tmp_path: Path) -> None:
    file = tmp_path / "agentguard.toml"
    file.write_text(content, encoding="utf-8")

    settings = load(environ={}, file=file)

    assert settings != Settings()


def _fields(prefix: str, settings: type) -> list[tuple[str, object]]:
    return [
        (f"{prefix}{field.name}", field.default_factory() if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(settings)
        if field.name not in ("loop", "tools", "budget")
    ]


EVERY = [
    *_fields("loop.", LoopSettings),
    *_fields("budget.", Budget),
    *_fields("tools.NAME.", ToolSettings),
    *_fields("", Settings),
]


@pytest.mark.parametrize(("key", "default"), EVERY, ids=[key for key, _ in EVERY])
def test_every_default_is_explained_with_its_value_and_a_reason(key: str, default: object) -> None:
    value, _, reason = ROWS[key].rstrip(" |").partition(" | ")

    assert value == _shown(default)
    assert len(reason.split()) >= 8


def test_nothing_is_explained_that_is_no_setting() -> None:
    assert set(ROWS) == {key for key, _ in EVERY}


def _shown(default: object) -> str:
    match default:
        case Limits(hint=hint, block=block, stop=stop):
            return " / ".join("never" if one is None else str(one) for one in (hint, block, stop))
        case None:
            return "none"
        case bool():
            return str(default).lower()
        case frozenset() | tuple() | dict():
            return ", ".join(sorted(map(str, default))) or "none"
        case "":
            return "empty"
        case float():
            return f"{default:g}"
        case _:
            return str(default)
