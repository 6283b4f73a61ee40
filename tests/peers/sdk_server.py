"""A server made with the MCP SDK, which speaks both eras.

`python sdk_server.py stdio`, or `http` or `sse` and the descriptor of a listening socket.
"""

import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from starlette.applications import Starlette

server = MCPServer("sdk-peer", instructions="Adds and greets.")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, telling how far it is."""
    for step in range(1, to + 1):
        await ctx.report_progress(step, to, f"step {step}")
    return "counted"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("this went wrong")


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool from now on."""
    server.add_tool(_late, name="late", description="A tool that came later")
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


def _late() -> str:
    return "late"


def main(transport: str, listener: int = 0) -> None:
    """Serve until the process is ended."""
    if transport == "stdio":
        server.run(transport="stdio")
        return
    app: Starlette = server.streamable_http_app() if transport == "http" else server.sse_app()
    uvicorn.run(app, fd=listener, log_level="critical")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
