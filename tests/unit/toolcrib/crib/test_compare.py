"""What a profile costs is measured by walking to the tool, not by formula."""

from __future__ import annotations

import pytest

from toolcrib import Toolcrib, tool
from toolcrib.cli.commands.compare import PLAIN_LIST, Cost, Query, compare_profiles, own_queries
from toolcrib.disclosure.profiles import BUILT_IN
from toolcrib.telemetry.tokens import Tokenizer

WORDS = Tokenizer(name="words", count=lambda text: len(text.split()), exact=True)
ANIMALS = "otter badger heron lynx stoat marten plover curlew hare viper"
VERBS = "groom weigh feed photograph release"


def make(animal: str, verb: str) -> object:
    @tool(
        name=f"{verb}_{animal}",
        kind="read",
        category=animal,
        tags=[animal],
        op=f"zoo.{animal}.{verb}",
        core=(animal, verb) == ("otter", "weigh"),
    )
    def work(reason: str) -> str:
        return reason

    work.__doc__ = f"{verb.title()} the {animal} of the park. " + "It takes a reason, which is kept. " * 12
    return work


def park() -> list[object]:
    return [make(animal, verb) for animal in ANIMALS.split() for verb in VERBS.split()]


async def rows(*queries: Query) -> dict[str, Cost]:
    async with Toolcrib() as crib:
        crib.add(*park())
        return {row.profile: row for row in await compare_profiles(crib, BUILT_IN, queries, WORDS)}


async def test_every_built_in_profile_and_the_plain_list_are_measured_and_reach_the_tool() -> None:
    found = await rows(Query(text="photograph the heron", tool="photograph_heron"))

    assert list(found) == [PLAIN_LIST, *BUILT_IN]
    assert {name: row.reached for name, row in found.items()} == dict.fromkeys(found, 1.0)


@pytest.mark.slow
async def test_the_plain_list_costs_every_definition_in_the_one_turn_that_calls() -> None:
    plain = (await rows(Query(text="feed the hare", tool="feed_hare")))[PLAIN_LIST]

    assert (plain.tools, plain.turns) == (50, 1.0)
    assert plain.shown == plain.read == plain.sent


async def test_a_progressive_profile_shows_less_at_first_than_the_plain_list() -> None:
    found = await rows(Query(text="feed the hare", tool="feed_hare"))

    for profile in [name for name in BUILT_IN if name != "flat"]:
        assert found[profile].shown < found[PLAIN_LIST].shown / 2, profile
        assert found[profile].sent >= found[profile].read >= found[profile].shown, profile


async def test_a_query_that_the_search_does_not_answer_is_a_miss() -> None:
    found = await rows(
        Query(text="groom the viper", tool="groom_viper"), Query(text="weigh the lynx", tool="feed_badger")
    )

    assert (found["adaptive"].reached, found["flat"].reached) == (0.5, 1.0)


async def test_queries_of_tools_that_are_not_there_are_left_out() -> None:
    assert (await rows(Query(text="x", tool="no_such_tool")))["flat"].turns == 0


async def test_own_queries_are_spread_over_the_catalog() -> None:
    async with Toolcrib() as crib:
        crib.add(*park())
        queries = own_queries(tuple(crib.catalog.tools.values()), 10)

    assert len(queries) == 10
    assert len({query.tool.partition("_")[2] for query in queries}) == 10
