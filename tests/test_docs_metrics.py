"""Keeps the table of docs/metrics.md equal to `semconv.METRICS`; run as a script, it rewrites the table."""

from __future__ import annotations

from pathlib import Path

from otel_agentguard.semconv import METRICS, MetricSpec

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->"


def row(spec: MetricSpec) -> str:
    labels = "; ".join(
        f"{label}: {', '.join(spec.values[label])}" if label in spec.values and label != "metric" else label
        for label in spec.labels
    )
    return f"| `{spec.name}` | {spec.type} | {labels} | {spec.unit} | {spec.question} |"


def table() -> str:
    head = ["| metric | type | labels | unit | question it answers |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(row, METRICS)]) + "\n"


def rewritten(page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def test_the_page_lists_every_metric_as_it_is() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == rewritten(page), "run: python tests/test_docs_metrics.py"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
