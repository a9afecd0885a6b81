"""Anthropic's tool runner under guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("anthropic.lib.tools._beta_runner", reason="this release of anthropic has no tool runner")

from adapters.contract_suite import AdapterContract, pytest_generate_tests  # noqa: F401
from adapters.test_anthropic import PATCHED, SYSTEM, client, client_async, system_of, told_in
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools._beta_runner import BaseAsyncToolRunner, BaseSyncToolRunner

if not hasattr(BaseSyncToolRunner, "_run_tool"):
    pytest.skip("tool runners before anthropic 2.0 are guarded as loops by hand", allow_module_level=True)


class TestToolRunner(AdapterContract):
    adapter = "anthropic"
    has_conversations = False

    # The runner knows no conversation and no other agent.
    test_a_new_user_turn_goes_on_after_a_stop = None
    test_a_stopped_conversation_does_not_go_on_without_a_new_turn = None
    test_a_looping_sub_agent_stops_the_whole_run = None

    def patched(self) -> Sequence[tuple[Any, str]]:
        runners = [
            (kind, name) for kind in (BaseSyncToolRunner, BaseAsyncToolRunner) for name in ("_run_tool", "__run__")
        ]
        return [*PATCHED, *runners]

    def ask(
        self,
        kind: str,
        url: str,
        tools: Sequence[Any],
        text: str = "go",
        *,
        agent: str = "Looper",
        conversation: str | None = None,
    ) -> Any:
        asked: dict[str, Any] = {
            "model": "claude-scripted",
            "max_tokens": 99,
            "system": SYSTEM,
            "messages": [{"role": "user", "content": text}],
            **({"stream": True} if kind.endswith("stream") else {}),
        }
        if kind.startswith("async"):
            return self.ask_async(url, [beta_async_tool(one) for one in tools], asked)
        runner = client(url).beta.messages.tool_runner(tools=[beta_tool(one) for one in tools], **asked)
        return runner.until_done().content[0].text

    async def ask_async(self, url: str, tools: Sequence[Any], asked: dict[str, Any]) -> str:
        runner = client_async(url).beta.messages.tool_runner(tools=tools, **asked)
        return str((await runner.until_done()).content[0].text)

    def system_text(self, request: dict[str, Any]) -> str:
        return system_of(request)

    def told(self, request: dict[str, Any]) -> list[str]:
        return told_in(request["messages"])

    def all_told(self, requests: Sequence[dict[str, Any]]) -> list[str]:
        # In newer releases the history stays on the server: each request brings what is new.
        return told_in([message for request in requests for message in request["messages"]])
