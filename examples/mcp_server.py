"""An MCP server under guard: a client that asks the same thing again and again is told so.

Run `mcp_client.py`, which starts this server and talks to it over stdio.
"""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

import otel_agentguard

server = MCPServer("library")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_book(title: str) -> str:
    """Tell where a book stands.

    Args:
        title: Title of the book.
    """
    return f"{title}: shelf 12"


if __name__ == "__main__":
    otel_agentguard.install(mode="enforce")
    server.run("stdio")
