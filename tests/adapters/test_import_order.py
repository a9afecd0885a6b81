"""Adapters find their frameworks whichever is imported first, the guard's installation or the framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

from otel_agentguard.adapters.table import ADAPTERS

FRAMEWORKS = {
    "langchain": ("langchain", "from langchain.agents import create_agent"),
    "openai": ("openai", "import openai; openai.OpenAI(api_key='none').chat"),
    "anthropic": ("anthropic", "import anthropic; anthropic.Anthropic(api_key='none').beta.messages"),
    "openai-agents": ("agents", "from agents import Agent, Runner"),
    "pydantic-ai": ("pydantic_ai", "from pydantic_ai import Agent"),
    "mcp": ("mcp", "from mcp import Client, ClientSession"),
    "fastmcp": ("fastmcp", "from fastmcp import Client, FastMCP"),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_that_is_imported_after_the_installation_is_guarded_whole(name: str) -> None:
    module, imports = FRAMEWORKS[name]
    pytest.importorskip(module, reason=f"pip install 'otel-agentguard[{name}]'")

    assert_guarded_whole(name, imports)


@pytest.mark.parametrize(
    ("name", "hook_module"), sorted({(entry.name, part.hook_module) for entry in ADAPTERS for part in entry.parts})
)
def test_an_adapter_that_is_imported_before_its_framework_guards_it_whole(name: str, hook_module: str) -> None:
    module, imports = FRAMEWORKS[name]
    pytest.importorskip(module, reason=f"pip install 'otel-agentguard[{name}]'")

    assert_guarded_whole(name, f"import {hook_module}\n{imports}")


def assert_guarded_whole(name: str, imports: str) -> None:
    """Run the imports after an installation, in a process of their own, and look what became of the adapter."""
    program = f"""
import otel_agentguard
from otel_agentguard.testing import RecordingSink
sink = RecordingSink()
otel_agentguard.install(sinks=[sink])
{imports}
from otel_agentguard.adapters.attaching import adapters
one = adapters()["{name}"]
assert one.attached and set(one.attached) == set(one.entry.parts), one.attached
assert sink.failures == [], sink.failures
"""

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)

    assert ended.returncode == 0, ended.stderr
