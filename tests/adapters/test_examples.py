"""The examples run and show what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from adapters.scripted_model import ScriptedModel, looping

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTGUARD_", "OTEL_"))}


def printed(example: str, *arguments: str, **environment: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / example), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**ENVIRONMENT, **environment},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("example", "module"),
    [
        ("langchain_agent.py", "langchain"),
        ("openai_agents_agent.py", "agents"),
        ("pydantic_ai_agent.py", "pydantic_ai"),
    ],
)
def test_the_agent_of_an_example_looks_four_times_and_is_stopped(example: str, module: str) -> None:
    pytest.importorskip(module)

    assert printed(example) == ["looking for Middlemarch"] * 4 + ["stopped: loop"]


@pytest.mark.parametrize(("vendor", "path"), [("openai", "/v1"), ("anthropic", "")])
def test_the_loop_of_an_example_is_stopped_before_its_eighth_request(
    vendor: str, path: str, model: ScriptedModel
) -> None:
    pytest.importorskip(vendor)
    url = model.play(f"example-{vendor}", looping("find_book", title="Middlemarch"))
    name = vendor.upper()

    lines = printed(f"{vendor}_loop.py", **{f"{name}_BASE_URL": f"{url}{path}", f"{name}_API_KEY": "none"})

    assert lines == ["looking for Middlemarch"] * 7 + ["stopped: loop"]
    assert len(model.requests(f"example-{vendor}")) == 7


def test_the_example_of_a_server_refuses_from_the_fifth_call_on() -> None:
    pytest.importorskip("mcp")

    lines = printed("mcp_client.py")

    assert ["refused" in line for line in lines] == [False] * 4 + [True] * 5
    assert "[agentguard]" in lines[2]


def test_the_example_of_a_client_is_stopped() -> None:
    pytest.importorskip("mcp")

    assert printed("mcp_client.py", "client")[-1] == "stopped: loop"
