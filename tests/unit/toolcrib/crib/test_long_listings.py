"""A long listing is taken while everything else goes on, and is in force whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from rig import PATIENCE
from toolcrib.catalog.catalog import Catalog
from toolcrib.config import bare
from toolcrib.core import builds
from toolcrib.core.context import Context
from toolcrib.core.events import SourceState
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.crib import Toolcrib
from toolcrib.errors import UsageError
from toolcrib.sources.source import Listing, Publish

MANY = 150


@pytest.fixture(scope="module", autouse=True)
def a_turn_after_every_step() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builds, "_SLICE", 0.0)
        yield


def listing(words: str, count: int = MANY, first: int = 0) -> Listing:
    """A listing whose descriptions all say which one it is."""
    numbers = range(first, first + count)
    return Listing(
        tools=tuple(
            Tool(name=f"t{number}", local_name=f"t{number}", source="s", description=words) for number in numbers
        )
    )


class Source:
    """A source that lists what it is told, whenever it is told."""

    def __init__(self, *first: Listing, name: str = "s") -> None:
        self.name = name
        self._first = first
        self.publish: Publish = lambda listing: None
        self.state = SourceState(source=name, kind="test", state="connecting")

    async def open(self, publish: Publish) -> None:
        self.publish = publish
        for listing in self._first:
            self.list(listing)

    def list(self, listing: Listing) -> None:
        self.state = SourceState(source=self.name, kind="test", state="ready", tools=len(listing.tools))
        self.publish(listing)

    async def ready(self) -> None:
        """It says what it has at once."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text(tool.description)

    async def close(self) -> None:
        """Nothing is open."""


def words_of(catalog: Catalog) -> dict[str, str]:
    return {tool.local_name: tool.description for tool in catalog.values() if tool.source == "s"}


def words_in(listing: Listing | None) -> dict[str, str]:
    return {tool.local_name: tool.description for tool in listing.tools} if listing else {}


def opened(*, guard: bool = False) -> Toolcrib:
    """A crib that takes definitions as they come, unless it has a `guard`."""
    return Toolcrib(bare().with_values(mode="autonomous", guard=guard), memory=True)


async def mounted(crib: Toolcrib, *first: Listing) -> Source:
    source = Source(*first)
    await crib.tools.mount_source(source)
    return source


async def seen_until(crib: Toolcrib, done: Callable[[], bool]) -> list[dict[str, str]]:
    """What the catalog has of the source at each turn of the loop, each once."""
    seen = [words_of(crib.catalog)]
    for _ in range(20 * MANY):
        if done():
            break
        await checkpoint()
        now = words_of(crib.catalog)
        seen += [now] if now != seen[-1] else []
    return seen


async def test_the_loop_goes_on_while_a_source_is_mounted_and_sees_all_its_tools_or_none() -> None:
    async with opened() as crib, asyncio.TaskGroup() as tasks:
        mounting = tasks.create_task(mounted(crib, listing("first")))
        seen = await seen_until(crib, mounting.done)
    assert seen == [{}, words_in(listing("first"))]


async def test_a_newer_listing_takes_the_place_of_one_that_is_not_taken_yet() -> None:
    async with opened() as crib:
        source = await mounted(crib, listing("first"))
        source.list(listing("second"))
        await checkpoint()
        source.list(listing("third", first=10))
        seen = await seen_until(crib, lambda: words_of(crib.catalog) == words_in(listing("third", first=10)))
        changes = [words_in(listing("first")), words_in(listing("third", first=10))]
    assert seen == changes


async def test_a_short_listing_is_in_force_at_once_and_ends_a_long_one() -> None:
    async with opened() as crib:
        source = await mounted(crib, listing("first"))
        source.list(listing("second"))
        await checkpoint()
        source.list(listing("short", count=2))
        at_once = words_of(crib.catalog)
        await crib.tools.wait_ready(PATIENCE)
        later = words_of(crib.catalog)
    assert (at_once, later) == (words_in(listing("short", count=2)),) * 2


async def test_nothing_is_left_of_a_source_that_is_unmounted_while_its_listing_is_taken() -> None:
    async with opened() as crib:
        source = await mounted(crib)
        source.list(listing("first"))
        await checkpoint()
        await crib.tools.unmount("s")
        await mounted(crib, listing("another", count=1))
        for _ in range(4 * MANY):
            await checkpoint()
        assert words_of(crib.catalog) == words_in(listing("another", count=1))


async def test_a_crib_closes_while_a_listing_is_taken() -> None:
    async with opened() as crib:
        source = await mounted(crib)
        source.list(listing("first"))
        await checkpoint()
    assert words_of(crib.catalog) == {}


async def test_waiting_for_the_sources_includes_listings_that_are_taken() -> None:
    async with opened() as crib:
        source = await mounted(crib)
        source.list(listing("first"))
        await crib.tools.wait_ready(PATIENCE)
        assert words_of(crib.catalog) == words_in(listing("first"))


async def test_a_call_of_a_tool_whose_source_has_just_listed_it_waits_for_the_catalog() -> None:
    async with opened() as crib:
        source = await mounted(crib)
        source.list(listing("first"))
        with anyio.fail_after(PATIENCE):
            result = await crib.session(profile="flat").call("s__t7", {})
    assert (result.text, result.error) == ("first", None)


async def test_acceptance_counts_for_a_listing_that_comes_meanwhile() -> None:
    async with opened(guard=True) as crib:
        source = await mounted(crib, listing("first"))
        source.list(listing("second"))
        await crib.tools.wait_ready(PATIENCE)
        withheld = words_of(crib.catalog)
        source.list(listing("second", count=MANY + 1))
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(crib.tools.accept("s"))
            await checkpoint()
            source.list(listing("second", count=MANY + 2))
        await crib.tools.wait_ready(PATIENCE)
        assert withheld == {}
        assert len(accepting.result()) == MANY
        assert words_of(crib.catalog) == words_in(listing("second", count=MANY + 2))


async def test_a_listing_that_cannot_be_taken_fails_its_mounting_and_no_other() -> None:
    broken = Listing(tools=(*listing("first").tools, Tool(name="x", local_name="x", source="s", description="\ud800")))
    async with opened() as crib:
        with pytest.raises(Exception, match="surrogates"):
            await mounted(crib, broken)
        await mounted(crib, listing("second"))
        assert words_of(crib.catalog) == words_in(listing("second"))


async def test_two_sources_of_one_name_for_a_tool_keep_their_order_whichever_is_taken_first() -> None:
    async with opened() as crib:
        first, second = Source(name="a"), Source(name="b")
        for source in (first, second):
            await crib.tools.mount_source(source, prefix=False)
        second.list(listing("of b"))
        first.list(listing("of a", first=MANY - 1))
        await crib.tools.wait_ready(PATIENCE)
        tools = [(tool.name, tool.description) for tool in crib.catalog.values() if tool.name.startswith("t")]
        assert tools[0] == (f"t{MANY - 1}", "of a")
        assert len(tools) == 2 * MANY - 1
        assert [problem.tool for problem in crib.tools.problems] == [f"t{MANY - 1}"]


Step = tuple[Literal["long", "short", "turns", "unmount", "accept", "search"], int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["long", "short", "turns", "unmount", "accept", "search"]), st.integers(0, 400)),
    max_size=12,
)


@pytest.mark.slow
@given(STEPS)
def test_in_any_order_of_events_readers_see_whole_listings_never_an_older_one_and_at_last_the_newest(
    steps: list[Step],
) -> None:
    asyncio.run(_interleave(steps))


async def _interleave(steps: Iterable[Step]) -> None:
    async with opened() as crib:
        listed: list[Listing | None] = [None]
        source = await mounted(crib)
        place = 0

        def look() -> None:
            """The catalog has one of the listings since the last that was seen."""
            nonlocal place
            now = words_of(crib.catalog)
            place = next(at for at in range(place, len(listed)) if words_in(listed[at]) == now)

        for kind, number in steps:
            if kind == "turns":
                for _ in range(number):
                    await checkpoint()
                    look()
            elif kind == "unmount":
                await crib.tools.unmount("s")
                listed, place = [*listed[:1]], 0
                source = await mounted(crib)
            elif kind == "accept":
                try:
                    await crib.tools.accept("s")
                except UsageError:
                    assert listed == [None]
            elif kind == "search":
                await crib.catalog.prepare("t7")
                assert all(hit.name in crib.catalog for hit in crib.catalog.search("t7", 500))
            else:
                # The same words: the definitions of one name never change, so that none is withheld.
                now = listing(
                    "archive invoices", count=MANY + number if kind == "long" else 1 + number % 50, first=number % 7
                )
                listed.append(now)
                source.list(now)
            look()
        await crib.tools.wait_ready(PATIENCE)
        await crib.catalog.prepare("archive")
        assert words_of(crib.catalog) == words_in(listed[-1])
        found = {hit.name for hit in crib.catalog.search("archive", 1_000) if hit.name.startswith("s__")}
        assert found == {name for name, tool in crib.catalog.items() if tool.source == "s"}
