"""What an identity costs: the digest of a value, the binding of a call, the facts about a text.

Run with `python -m pytest benchmarks/fingerprint.py --benchmark-only`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from otel_agentguard.binding import Binder
from otel_agentguard.fingerprint import call_digest, digest, exported, new_key
from otel_agentguard.text import content_words, mask, names, words

SMALL = {
    "path": "src/auth/login.py",
    "start": 10,
    "end": 80,
    "follow": True,
    "pattern": "def login\\(",
    "context": None,
}


def rows(count: int) -> dict[str, Any]:
    """A result as a search gives it, about 100 bytes a row."""
    return {
        "rows": [{"id": n, "title": f"result {n}", "url": f"https://example.com/{n}", "ok": True} for n in range(count)]
    }


VALUES: dict[str, Any] = {
    "100 B": SMALL,
    "1 KB": rows(12),
    "100 KB": rows(1250),
    "100 KB of text": {"text": "One line of a long document, repeated.\n" * 2560},
    "100 B with accents": {**SMALL, "path": "src/grüße/überall.py"},
    "100 B with floats": {**SMALL, "start": 10.5, "end": 80.0},
    "100 B with a date": {**SMALL, "since": dt.datetime(2024, 5, 1, tzinfo=dt.UTC)},
}

TEXT = "\n".join(
    f"2024-05-{day:02d}T10:00:{day:02d}Z worker-{day} served request a3f{day:02d}9c2e1 in {day * 7} ms, then waited"
    for day in range(1, 60)
)[:4096]


def read(path: str, start: int = 1, end: int | None = None, *, follow: bool = False) -> None:
    """A tool with what most tools have."""


def json_sha256(value: object) -> bytes:
    """What is usually written by hand."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).digest()


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("made_by", [digest, json_sha256], ids=lambda made_by: made_by.__name__)
def test_digest(benchmark: Any, made_by: Callable[[object], bytes], value: object) -> None:
    assert benchmark(made_by, value)


def test_call_digest(benchmark: Any) -> None:
    assert benchmark(call_digest, "read", SMALL, scope="/work")


def test_exported(benchmark: Any) -> None:
    assert benchmark(exported, digest(SMALL), new_key())


def test_bind(benchmark: Any) -> None:
    assert benchmark(Binder(read).bind, ("a", 1), {"follow": True})


def test_signature_bind(benchmark: Any) -> None:
    signature = inspect.signature(read)

    def bind() -> dict[str, Any]:
        bound = signature.bind("a", 1, follow=True)
        bound.apply_defaults()
        return dict(bound.arguments)

    assert benchmark(bind)


@pytest.mark.parametrize("fact", [mask, words, content_words, names], ids=lambda fact: fact.__name__)
def test_fact_about_4_kb(benchmark: Any, fact: Callable[[str], object]) -> None:
    assert benchmark(fact, TEXT)
