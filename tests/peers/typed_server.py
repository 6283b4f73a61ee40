"""Full-featured servers made with FastMCP, in this process, on loopback: typed tools, icons, titles, instructions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from mcp_types import Icon
from pydantic import BaseModel

from peers.serving import serving

ICON = Icon(src="https://icons.example/a.png", mime_type="image/png", sizes=["48x48"])
DATA_ICON = Icon(src="data:image/svg+xml;base64,PHN2Zy8+", mime_type="image/svg+xml", sizes=["any"])


class Row(BaseModel):
    """One line of a report."""

    number: int
    text: str
    tags: list[str]


class Report(BaseModel):
    """A typed result."""

    title: str
    rows: list[Row]


def report(size: int) -> Report:
    """Return a report of about `size` bytes of JSON."""
    rows = [Row(number=number, text="word " * 30, tags=["a", "b"]) for number in range(size // 195)]
    return Report(title="All of it", rows=rows)


def typed_server(name: str, instructions: str | None = None) -> FastMCP[Any]:
    """Return a server that has everything that MCP lists."""
    server: FastMCP[Any] = FastMCP(
        name, instructions=instructions, version="1.2.3", website_url="https://typed.example", icons=[ICON, DATA_ICON]
    )

    @server.tool(
        title="Make a report",
        icons=[ICON, DATA_ICON],
        annotations={"title": "Report maker", "readOnlyHint": True},
        meta={"vendor.example/kind": "report"},
    )
    def make(size: int) -> Report:
        """Make a report."""
        return report(size)

    @server.tool
    def numbers(count: int) -> list[int]:
        """Count."""
        return list(range(count))

    @server.tool(annotations={"readOnlyHint": True}, output_schema=FIXED)
    def fixed() -> dict[str, Any]:
        """Return exactly two million bytes."""
        return {"blob": "x" * 2_000_000}

    @server.resource("data://table", title="A table", icons=[ICON], mime_type="text/csv")
    def table() -> str:
        """Rows."""
        return "a,b"

    @server.resource("data://table/{row}", title="A row", icons=[DATA_ICON])
    def row(row: str) -> str:
        """One row."""
        return row

    @server.prompt(title="A prompt", icons=[ICON])
    def ask(topic: str, depth: str = "1") -> str:
        """Ask about a topic."""
        return f"Tell me about {topic} ({depth})"

    return server


FIXED: dict[str, Any] = {
    "type": "object",
    "properties": {"blob": {"type": "string", "minLength": 2_000_000}},
    "required": ["blob"],
}


@asynccontextmanager
async def running(server: FastMCP[Any]) -> AsyncGenerator[str]:
    """Serve until the block ends; yields the URL."""
    async with serving(server.http_app()) as origin:
        yield f"{origin}/mcp"
