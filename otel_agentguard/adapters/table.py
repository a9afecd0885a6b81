"""The adapters that there are, and the versions of frameworks that they know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What of an adapter is put in when one module of a framework has been imported.

    Attributes:
        module: The module; not imported for the adapter's sake.
        distribution: The distribution that it comes from.
        versions: The versions that the part was run with, as a specifier: `>=1.2,<3`.
        hook: `package.module:function`; called with `Patches`, it puts the part in.
    """

    module: str
    distribution: str
    versions: str
    hook: str

    @property
    def hook_module(self) -> str:
        """The module of the hook."""
        return self.hook.partition(":")[0]

    @property
    def hook_function(self) -> str:
        """The name of the hook in its module."""
        return self.hook.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEntry:
    """One adapter.

    Attributes:
        name: How settings, `doctor` and `OTEL_PYTHON_DISABLED_INSTRUMENTATIONS` call it; also its extra.
        parts: Its parts, in the order in which they are put in.
    """

    name: str
    parts: tuple[Part, ...]


_HERE = "otel_agentguard.adapters"

ADAPTERS: tuple[AdapterEntry, ...] = (
    AdapterEntry(
        name="langchain",
        parts=(
            Part(
                module="langchain_core.language_models.chat_models",
                distribution="langchain-core",
                versions=">=1.0,<2",
                hook=f"{_HERE}.langchain.core:hook_models",
            ),
            Part(
                module="langchain_core.tools.base",
                distribution="langchain-core",
                versions=">=1.0,<2",
                hook=f"{_HERE}.langchain.by_hand:hook_tools",
            ),
            Part(
                module="langgraph.prebuilt.tool_node",
                distribution="langgraph-prebuilt",
                versions=">=1.0,<2",
                hook=f"{_HERE}.langchain.graph:hook_tool_node",
            ),
            Part(
                module="langgraph.pregel.main",
                distribution="langgraph",
                versions=">=1.0,<2",
                hook=f"{_HERE}.langchain.graph:hook_graphs",
            ),
        ),
    ),
    AdapterEntry(
        name="openai",
        parts=(
            Part(
                module="openai._base_client",
                distribution="openai",
                versions=">=1.66,<4",
                hook=f"{_HERE}.openai:hook",
            ),
        ),
    ),
    AdapterEntry(
        name="anthropic",
        parts=(
            Part(
                module="anthropic._base_client",
                distribution="anthropic",
                versions=">=0.50,<3",
                hook=f"{_HERE}.anthropic:hook",
            ),
            Part(
                module="anthropic.lib.tools._beta_runner",
                distribution="anthropic",
                versions=">=2,<3",
                hook=f"{_HERE}.anthropic:hook_runner",
            ),
        ),
    ),
    AdapterEntry(
        name="openai-agents",
        parts=(
            Part(
                module="agents.run",
                distribution="openai-agents",
                versions=">=0.22,<0.25",
                hook=f"{_HERE}.openai_agents:hook",
            ),
        ),
    ),
    AdapterEntry(
        name="pydantic-ai",
        parts=(
            Part(
                module="pydantic_ai.agent",
                distribution="pydantic-ai-slim",
                versions=">=2.50,<3",
                hook=f"{_HERE}.pydantic_ai:hook",
            ),
        ),
    ),
    AdapterEntry(
        name="mcp",
        parts=(
            Part(
                module="mcp.client.session",
                distribution="mcp",
                versions=">=2.1,<3",
                hook=f"{_HERE}.mcp:hook_client",
            ),
            Part(
                module="mcp.client.client",
                distribution="mcp",
                versions=">=2.1,<3",
                hook=f"{_HERE}.mcp:hook_connection",
            ),
            Part(
                module="mcp.server.mcpserver.tools.base",
                distribution="mcp",
                versions=">=2.1,<3",
                hook=f"{_HERE}.mcp:hook_server",
            ),
        ),
    ),
    AdapterEntry(
        name="fastmcp",
        parts=(
            Part(
                module="fastmcp.server.server",
                distribution="fastmcp",
                versions=">=4.0,<5",
                hook=f"{_HERE}.fastmcp:hook",
            ),
        ),
    ),
)
