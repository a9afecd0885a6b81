"""Loops written by hand around a vendor's client, as adapters of such clients are tested with."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from adapters.contract_suite import AdapterContract


class RawLoop(AdapterContract):
    """A loop that calls the client of a vendor and runs the tools itself."""

    answers_inline = False
    has_entry = False
    has_conversations = False

    # A client makes no tool result, has no run to leave and no agent to ask another one.
    test_hints_and_refusals_reach_the_model_as_tool_results = None
    test_a_run_that_is_marked_while_the_model_answers_ends_in_the_stop = None
    test_a_new_user_turn_goes_on_after_a_stop = None
    test_a_stopped_conversation_does_not_go_on_without_a_new_turn = None
    test_a_looping_sub_agent_stops_the_whole_run = None

    def client(self, url: str) -> Any:
        raise NotImplementedError

    def client_async(self, url: str) -> Any:
        raise NotImplementedError

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
        is_stream = kind.endswith("stream")
        if kind.startswith("async"):
            return self.loop_async(self.client_async(url), tools, text, is_stream)
        return self.loop(self.client(url), tools, text, is_stream)

    def loop(self, client: Any, tools: Sequence[Any], text: str, is_stream: bool) -> str:
        history = self.begun(text)
        while True:
            calls, said = self.turn(client, history, tools, is_stream)
            if not calls:
                return said
            named = {one.__name__: one for one in tools}
            history += self.results([(id_, named[name](**arguments)) for id_, name, arguments in calls])

    async def loop_async(self, client: Any, tools: Sequence[Any], text: str, is_stream: bool) -> str:
        history = self.begun(text)
        while True:
            calls, said = await self.turn_async(client, history, tools, is_stream)
            if not calls:
                return said
            named = {one.__name__: one for one in tools}
            values = [(id_, named[name](**arguments)) for id_, name, arguments in calls]
            history += self.results(
                [(id_, await value if inspect.isawaitable(value) else value) for id_, value in values]
            )

    def begun(self, text: str) -> list[Any]:
        """The history that begins with what the user says."""
        raise NotImplementedError

    def results(self, values: list[tuple[str, str]]) -> list[Any]:
        """The messages that tell the results of calls, by their ids."""
        raise NotImplementedError

    def turn(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        """Ask the model and add its message to the history; the calls (id, name, arguments) and the text of it."""
        raise NotImplementedError

    async def turn_async(self, client: Any, history: list[Any], tools: Sequence[Any], is_stream: bool) -> Any:
        raise NotImplementedError
