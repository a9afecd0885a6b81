"""Prometheus and Alertmanager for tests: where their programs are, and what to say where they are not."""

from __future__ import annotations

import shutil
from pathlib import Path

from services import missing

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = ROOT / "dashboards"
RULES = DASHBOARDS / "rules"
BOARDS = ("overview", "loops", "side_effects", "guard_health")
RULE_FILES = ("recording", "alerts", "burn_rate")

HINT = "no {program} here: apt-get install --no-install-recommends prometheus prometheus-alertmanager"


def program(*names: str) -> str:
    """The first of these programs that is installed; skips the test where none is."""
    for name in names:
        if found := shutil.which(name):
            return found
    missing(HINT.format(program=names[0]))
    raise AssertionError
