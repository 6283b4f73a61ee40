"""A crib ranks by words, and by meaning when an embedder is named in its settings."""

from pathlib import Path

import pytest

from rig import eventually
from toolcrib import Toolcrib, tool
from toolcrib.config.keys import check
from toolcrib.config.loader import bare
from toolcrib.core.exceptions import ErrorList
from toolcrib.disclosure.settings import RankingSettings

DETAILS = " ".join(f"detail{number}" for number in range(80))


def outlook() -> str:
    """Tell the weather of tomorrow."""
    return "sunny"


def tidy() -> str:
    return "done"


def test_the_embedder_is_a_setting() -> None:
    errors = ErrorList()
    assert check({"ranking": {"embedder": "minilm"}}, {}, errors) == {"ranking": RankingSettings(embedder="minilm")}
    assert (check({"ranking": {"embeder": "minilm"}}, {}, errors), len(errors.found)) == ({}, 1)
    assert "embeder" in str(errors.found[0])


async def test_a_crib_whose_embedder_does_not_exist_says_so_and_finds_tools_by_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Toolcrib(bare().with_values(ranking={"embedder": "nowhere"}), memory=True) as crib:
        crib.add(outlook)
        await eventually(lambda: "named 'nowhere'" in caplog.text)
        assert [hit.name.rpartition("__")[2] for hit in crib.catalog.search("weather tomorrow")] == ["outlook"]


async def test_a_crib_that_closes_at_once_stops_making_vectors(tmp_path: Path) -> None:
    async with Toolcrib(bare().with_values(ranking={"embedder": str(tmp_path)}), memory=True) as crib:
        crib.add(outlook)


async def test_a_search_that_nothing_fits_also_names_the_tools_that_share_a_word_with_it() -> None:
    query = "juggle torches, tame lions, carve pumpkins, braid ropes, swallow swords, mend kites, churn butter"
    async with Toolcrib(bare().with_values(builtins=False), memory=True) as crib:
        crib.add(tool(description=f"Tidy the rope. {DETAILS}")(tidy), outlook)
        async with crib.session() as session:
            told = await session.call("search_tools", {"query": query})
    assert told.text == (
        f"No tool fits {query!r}. Say it in other words; nearest: python (2). Tools that share a word with it: tidy."
    )
