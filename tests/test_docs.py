"""Every Python block in the README and the docs runs, and prints what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_agentguard import install
from otel_agentguard.guard import installed

pytest_examples = pytest.importorskip("pytest_examples", reason="pip install pytest-examples")

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [example for example in pytest_examples.find_examples(*map(str, PAGES)) if example.prefix != "console"]


@pytest.fixture(autouse=True)
def clean_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "auth.py").write_text("import md5\n")

    yield

    if installed.guard is not None:
        install().shutdown()


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_block_in_the_docs_runs_and_prints_what_it_shows(
    example: pytest_examples.CodeExample, eval_example: pytest_examples.EvalExample
) -> None:
    if "notest" in example.prefix_tags():
        pytest.skip("a fragment, shown for its shape")
    eval_example.set_config(line_length=100)

    eval_example.run_print_check(example)


def test_every_link_between_pages_leads_somewhere() -> None:
    links = [(page, target) for page in PAGES for target in _LINK.findall(page.read_text(encoding="utf-8"))]

    broken = [f"{page.relative_to(ROOT)} -> {target}" for page, target in links if not (page.parent / target).exists()]

    assert broken == []
