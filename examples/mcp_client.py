"""An MCP client under guard: it asks for the same book until the guard ends its run.

Without the argument `client`, only the server is guarded: it hints, and then refuses to look again.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters

import otel_agentguard
from otel_agentguard import RunAborted, run

SERVER = StdioServerParameters(command=sys.executable, args=[str(Path(__file__).with_name("mcp_server.py"))])


async def main(rounds: int = 9) -> None:
    async with Client(SERVER) as client:
        for number in range(1, rounds + 1):
            result = await client.call_tool("find_book", {"title": "Middlemarch"})
            said = " | ".join(str(getattr(block, "text", "")).splitlines()[0] for block in result.content)
            print(f"{number}: {'refused: ' if result.is_error else ''}{said}")


async def guarded() -> None:
    async with run("find-a-book"):
        await main()


if __name__ == "__main__":
    if "client" in sys.argv[1:]:
        otel_agentguard.install(mode="enforce")
        try:
            asyncio.run(guarded())
        except RunAborted as stop:
            print(f"stopped: {stop.finding.kind if stop.finding else 'earlier'}")
    else:
        asyncio.run(main())
