from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from otel_agentguard import semconv
from otel_agentguard.config import Mode
from otel_agentguard.events import Similarity
from otel_agentguard.findings import Action, CheckName, Kind
from otel_agentguard.semconv import METRICS, MetricSpec

SOURCE = Path(semconv.__file__).read_text(encoding="utf-8")
CONSTANTS = {name: value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}


def test_names_can_be_imported_without_the_rest_of_the_package() -> None:
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(SOURCE))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }

    assert imported <= {"__future__", "collections.abc", "dataclasses", "typing"}


def test_every_metric_is_a_plain_string_in_the_source() -> None:
    written = {
        node.value.value
        for node in ast.parse(SOURCE).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }

    assert {spec.name for spec in METRICS} <= written


def test_every_metric_has_one_row() -> None:
    names = [spec.name for spec in METRICS]

    assert len(names) == len(set(names))
    assert {value for value in CONSTANTS.values() if re.match(r"agentguard_|gen_ai_", value)} == set(names)


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_a_metric_is_named_as_prometheus_wants_it(spec: MetricSpec) -> None:
    assert re.fullmatch(r"(agentguard|gen_ai)_[a-z_]+", spec.name)
    assert spec.name.endswith("_total") == (spec.type == "counter")
    assert bool(spec.buckets) == (spec.type == "histogram")
    assert spec.question.endswith((".", "?"))
    assert set(spec.values) <= set(spec.labels)
    base = spec.name.removesuffix("_total")
    assert base.endswith("_seconds") == (spec.unit == "s")
    assert base.endswith("_bytes") == (spec.unit == "By")
    assert base.endswith("_ratio") == (spec.unit == "1")


def test_no_metric_has_an_id_for_a_label() -> None:
    labels = {label for spec in METRICS for label in spec.labels}

    assert labels == {
        "action",
        "agent",
        "certainty",
        "check",
        "code",
        "kind",
        "metric",
        "mode",
        "outcome",
        "part",
        "similarity",
        "tool",
        "verdict",
        "where",
    }


def test_closed_sets_are_those_of_the_types_they_come_from() -> None:
    assert tuple(Similarity) == semconv.SIMILARITIES
    assert tuple(CheckName) == semconv.CHECKS
    assert tuple(Kind) == semconv.FINDING_KINDS
    assert tuple(str(action) for action in Action) == semconv.ACTIONS
    assert tuple(Mode) == semconv.MODES


def test_every_labelled_metric_can_tell_that_its_labels_overflow() -> None:
    labelled = {spec.name for spec in METRICS if spec.labels} - {semconv.LABEL_OVERFLOW_TOTAL}

    assert set(semconv.CAPPED_METRICS) == labelled


def test_no_two_constants_of_one_vocabulary_are_the_same_name() -> None:
    for prefix in ("AGENTGUARD_", "GEN_AI_", "OPENINFERENCE_", "TRACELOOP_", "OPERATION_"):
        names = [value for name, value in CONSTANTS.items() if name.startswith(prefix)]
        assert len(names) == len(set(names)), prefix
