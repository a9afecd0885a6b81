"""LangChain and LangGraph under guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("langchain", reason="pip install 'otel-agentguard[langchain]'")
pytest.importorskip("langchain_openai", reason="the scripted model is reached through langchain-openai")

import openai
from adapters.contract_suite import AdapterContract, pytest_generate_tests  # noqa: F401
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt.tool_node import ToolNode
from langgraph.pregel.main import Pregel

SAVER = InMemorySaver()


def chat(url: str, **options: Any) -> ChatOpenAI:
    http = {
        "http_client": openai.DefaultHttpxClient(verify=False),  # reading certificates takes most of a test's time
        "http_async_client": openai.DefaultAsyncHttpxClient(verify=False),
    }
    return ChatOpenAI(model="gpt-scripted", base_url=f"{url}/v1", max_retries=0, **http, **options)


def made(function: Any) -> StructuredTool:
    if hasattr(function, "__wrapped__"):
        is_async = function.__agentguard__.function.__code__.co_flags & 0x80
    else:
        is_async = function.__code__.co_flags & 0x80
    if is_async:
        return StructuredTool.from_function(coroutine=function)
    return StructuredTool.from_function(function)


async def last_of(stream: Any) -> Any:
    last = None
    async for item in stream:
        last = item
    return last


class TestLangChain(AdapterContract):
    adapter = "langchain"

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
        made_of = [made(function) for function in tools]
        saver = None if conversation is None else SAVER
        graph = create_agent(chat(url), made_of, name=agent, checkpointer=saver)
        return self.run(kind, graph, text, conversation)

    def run(self, kind: str, graph: Any, text: str, conversation: str | None = None) -> Any:
        given = {"messages": [{"role": "user", "content": text}]}
        config = None if conversation is None else {"configurable": {"thread_id": conversation}}
        if kind == "sync":
            return graph.invoke(given, config)["messages"][-1].content
        if kind == "stream":
            *_, last = graph.stream(given, config, stream_mode="values")
            return last["messages"][-1].content

        async def ask() -> Any:
            if kind == "async":
                return (await graph.ainvoke(given, config))["messages"][-1].content
            return (await last_of(graph.astream(given, config, stream_mode="values")))["messages"][-1].content

        return ask()

    def patched(self) -> Sequence[tuple[Any, str]]:
        return [
            (BaseChatModel, "_generate_with_cache"),
            (BaseChatModel, "_agenerate_with_cache"),
            (BaseChatModel, "stream"),
            (BaseChatModel, "astream"),
            (BaseTool, "run"),
            (BaseTool, "arun"),
            (ToolNode, "_run_one"),
            (ToolNode, "_arun_one"),
            (Pregel, "invoke"),
            (Pregel, "ainvoke"),
            (Pregel, "stream"),
            (Pregel, "astream"),
        ]

    def resume(self, url: str, tools: Sequence[Any], conversation: str) -> Any:
        graph = create_agent(chat(url), [made(one) for one in tools], checkpointer=SAVER)
        return graph.invoke(None, {"configurable": {"thread_id": conversation}})

    def ask_team(self, kind: str, url: str, tools: Sequence[Any]) -> Any:
        inner_agent = create_agent(chat(f"{url}-inner"), [made(one) for one in tools], name="Inner")

        def inner(q: str) -> str:
            """Ask the inner agent."""
            given = {"messages": [{"role": "user", "content": q}]}
            return str(inner_agent.invoke(given)["messages"][-1].content)

        async def inner_async(q: str) -> str:
            """Ask the inner agent."""
            given = {"messages": [{"role": "user", "content": q}]}
            return str((await inner_agent.ainvoke(given))["messages"][-1].content)

        if kind.startswith("async"):
            asked = StructuredTool.from_function(coroutine=inner_async, name="inner")
        else:
            asked = StructuredTool.from_function(inner)
        return self.run(kind, create_agent(chat(f"{url}-outer"), [asked], name="Outer"), "go")
