"""`toolcrib.testing.check_source` names the part of the interface that a source does not hold to."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib import BaseSource, Context, Publish, Tool, ToolFailure, ToolResult
from toolcrib.testing import check_source


class Shelves(BaseSource):
    """A source that holds to everything."""

    def __init__(self, **changed: Any) -> None:
        super().__init__("library", "shelves")
        self.offer(replace(Tool(name="list", local_name="list", source="library", description="Books."), **changed))

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text("a")


class Silent(Shelves):
    async def open(self, publish: Publish) -> None:
        """Publish nothing."""


class Failing(Shelves):
    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        raise ToolFailure("unavailable", "no shelf")


class Text(Shelves):
    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> Any:
        return "a"


class Open(Shelves):
    async def close(self) -> None:
        """Stay open."""


async def test_a_source_that_holds_to_it_gives_its_listing() -> None:
    listing = await check_source(Shelves(), "list")

    assert [tool.name for tool in listing.tools] == ["list"]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (Silent(), "ready returns once a listing was published"),
        (Shelves(local_name="books"), "`local_name` is the name"),
        (Shelves(source="other"), "`source` is 'library'"),
        (Shelves(name="books", local_name="books"), "lists no tool 'list'"),
        (Failing(), "unavailable: no shelf"),
        (Text(), "a call returns a ToolResult, not str"),
        (Open(), "'closed' after `close`, not 'ready'"),
    ],
)
async def test_a_source_that_does_not_is_refused_with_the_part(source: Shelves, part: str) -> None:
    with pytest.raises(AssertionError) as raised:
        await check_source(source, "list")

    assert part in str(raised.value)


async def test_a_tool_that_should_hang_and_answers_is_named() -> None:
    with pytest.raises(AssertionError, match="ended by itself"):
        await check_source(Shelves(), "list", hangs="list")
