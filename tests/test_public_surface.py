from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import otel_agentguard

HEAVY = (
    "opentelemetry.sdk",
    "opentelemetry.exporter",
    "prometheus_client",
    "jsonschema",
    "rapidfuzz",
    "redis",
    "psycopg",
    "wordllama",
    "genai_prices",
    "click",
    "rich",
)


def test_the_names_are_sorted_and_all_there() -> None:
    assert otel_agentguard.__all__ == sorted(otel_agentguard.__all__)
    assert [name for name in otel_agentguard.__all__ if not hasattr(otel_agentguard, name)] == []


def test_every_public_name_says_what_it_is() -> None:
    silent = [name for name in otel_agentguard.__all__ if not inspect.getdoc(getattr(otel_agentguard, name))]

    assert silent == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = otel_agentguard.nothing  # type: ignore[attr-defined]


def in_a_new_interpreter(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_bare_import_loads_no_extra_and_no_sdk() -> None:
    loaded = json.loads(in_a_new_interpreter("import json, sys, otel_agentguard; print(json.dumps(list(sys.modules)))"))

    assert [name for name in loaded if name.startswith(HEAVY)] == []


@pytest.mark.parametrize("first", ["otel_agentguard", "otel_agentguard.install", "otel_agentguard.cli"])
def test_install_is_the_function_whatever_was_imported_first(first: str) -> None:
    said = in_a_new_interpreter(f"import {first}; from otel_agentguard import install; print(callable(install))")

    assert said == "True\n"
