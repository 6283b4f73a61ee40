from collections.abc import Mapping
from typing import Any

from toolcrib import Annotations, BaseSource, Context, Tool, Toolcrib, ToolResult, filtered, prefixed, run


class Shelves(BaseSource):
    """A source of your own: it lists tools and runs them."""

    def __init__(self) -> None:
        super().__init__("library", "shelves")
        self.offer(*map(self._tool, ("list_books", "list_authors", "burn_books")))  # again whenever the tools change

    def _tool(self, name: str) -> Tool:
        hints = Annotations(read_only=name.startswith("list_"))  # without hints a tool counts as destructive
        return Tool(name=name, local_name=name, source=self.name, description=f"{name}.", annotations=hints)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run one."""
        return ToolResult.of_text(f"{tool.local_name}: nothing yet")


async def main() -> None:
    async with Toolcrib() as crib, crib.session() as session:
        await crib.tools.mount_source(prefixed(filtered(Shelves(), ["list_*"]), "old_"))
        print(list(crib.catalog))
        print((await session.call("library__old_list_books", {})).text)


run(main())
