"""The golden files against the real thing: every agent under the instrumentations of every family; `make golden`.

`AGENTGUARD_WRITE_GOLDEN=1` writes the files anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tracing.golden_files import RUNS, golden, path_of, plain, written
from tracing.golden_told import TOLD

from otel_agentguard.protocols import EndedSpan
from otel_agentguard.tracing.decoders import DECODERS

if find_spec("openinference") is None or find_spec("opentelemetry.instrumentation.genai") is None:
    pytest.skip("the instrumentations of others are not here; make golden", allow_module_level=True)

every_run = pytest.mark.parametrize(("family", "framework"), RUNS)


@cache
def seen(family: str, framework: str) -> dict[str, Any]:
    program = Path(__file__).with_name("golden_agents.py")
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTGUARD_", "OTEL_"))}
    done = subprocess.run(
        [sys.executable, str(program), family, framework],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=quiet,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def is_event(name: str, attributes: dict[str, Any]) -> bool:
    told = EndedSpan(name=name, attributes=attributes)
    return any(
        decoder.decode(told) is not None
        for decoder in DECODERS
        if any(marker in attributes for marker in decoder.markers)
    )


@every_run
def test_an_instrumentation_emits_what_its_golden_file_says(family: str, framework: str) -> None:
    spans = plain(seen(family, framework)["spans"], is_event=is_event)

    if os.environ.get("AGENTGUARD_WRITE_GOLDEN"):
        path_of(family, framework).parent.mkdir(parents=True, exist_ok=True)
        path_of(family, framework).write_text(written(spans), encoding="utf-8")

    assert spans == golden(family, framework)


@every_run
def test_spans_alone_tell_of_each_call_that_was_really_made_once(family: str, framework: str) -> None:
    alone, told = seen(family, framework)["alone"], TOLD[family, framework]

    assert alone["failures"] == []
    tools = [event["tool"] for event in alone["events"] if event["kind"] == "ToolCall"]
    models = [event["tokens"] for event in alone["events"] if event["kind"] == "ModelCall"]
    assert tools == (alone["ran"] if told.tools else [])
    assert models == [[11, 7]] * alone["asked"] * (2 if told.model_in_two_traces else 1)


@every_run
def test_a_call_that_an_adapter_and_a_span_both_tell_of_counts_once(family: str, framework: str) -> None:
    beside = seen(family, framework)["beside"]

    counted = Counter(event["kind"] for event in beside["events"])
    assert beside["failures"] == []
    assert sorted(event["tool"] for event in beside["events"] if event["kind"] == "ToolCall") == sorted(beside["ran"])
    assert counted["ModelCall"] == beside["asked"]
    assert counted["Message"] <= 1
