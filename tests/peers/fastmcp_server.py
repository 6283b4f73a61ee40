"""A server made with FastMCP: `python fastmcp_server.py stdio`, or `http` and the descriptor of a listening socket."""

import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

server = FastMCP("fastmcp-peer")


@server.tool(annotations={"readOnlyHint": True})
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("this went wrong")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run(transport="stdio", show_banner=False)
    else:
        uvicorn.run(server.http_app(), fd=int(sys.argv[2]), log_level="critical")
