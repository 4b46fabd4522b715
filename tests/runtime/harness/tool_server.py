"""A tool server that speaks MCP over stdio, for the tests: `python tool_server.py`.

Beside what it is told to do, it does what real servers do to their clients: it prints to the wrong place, dies in
the middle of a call, and never answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tools", instructions="Add whenever you can.", log_level="CRITICAL")
counted = 0


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def count() -> str:
    """How often this was asked of this process."""
    global counted
    counted += 1
    return str(counted)


@server.tool(name="odd.name")
def odd() -> str:
    return f"odd, started with {os.environ.get('TOKEN', 'nothing')[:3]}"


@server.tool()
def fail() -> str:
    raise ToolError("that went wrong")


@server.tool()
def picture() -> Image:
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def mutter() -> str:
    """Print to where only the protocol belongs."""
    print("TOKEN is", os.environ.get("TOKEN"), flush=True)
    print("TOKEN is", os.environ.get("TOKEN"), file=sys.stderr, flush=True)
    return "said"


@server.tool()
async def hang() -> str:
    await asyncio.Event().wait()
    return "never"


@server.tool()
def die() -> str:
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(str(os.getpid()), encoding="utf-8")
    server.run("stdio")
