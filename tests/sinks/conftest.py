from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_agentguard.config import Settings
from otel_agentguard.protocols import RunInfo
from otel_agentguard.sinks.prometheus import PrometheusSink


@pytest.fixture
def run() -> RunInfo:
    return RunInfo(run_id="run-1", agent="coder", settings=Settings())


@pytest.fixture
def sink() -> Iterator[PrometheusSink]:
    sink = PrometheusSink()
    yield sink
    sink.close()
