from collections.abc import Mapping
from typing import Any

from toolcrib import (
    Annotations,
    Context,
    Listing,
    Publish,
    SourceState,
    Tool,
    Toolcrib,
    ToolResult,
    filtered,
    prefixed,
    run,
)


class Shelves:
    """A source of your own: it lists tools and runs them."""

    name = "library"

    def __init__(self) -> None:
        self.state = SourceState(source=self.name, kind="shelves", state="connecting")

    async def open(self, publish: Publish) -> None:
        """List the tools."""
        tools = tuple(self._tool(name) for name in ("list_books", "list_authors", "burn_books"))
        publish(Listing(tools=tools))  # again whenever the tools change
        self.state = SourceState(source=self.name, kind="shelves", state="ready", tools=len(tools))

    def _tool(self, name: str) -> Tool:
        hints = Annotations(read_only=name.startswith("list_"))  # without hints a tool counts as destructive
        return Tool(name=name, local_name=name, source=self.name, description=f"{name}.", annotations=hints)

    async def ready(self) -> None:
        """Listed already."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run one."""
        return ToolResult.of_text(f"{tool.local_name}: nothing yet")

    async def close(self) -> None:
        """Stop."""
        self.state = SourceState(source=self.name, kind="shelves", state="closed")


async def main() -> None:
    async with Toolcrib() as crib, crib.session() as session:
        await crib.tools.mount_source(prefixed(filtered(Shelves(), ["list_*"]), "old_"))
        print(list(crib.catalog))
        print((await session.call("library__old_list_books", {})).text)


run(main())
