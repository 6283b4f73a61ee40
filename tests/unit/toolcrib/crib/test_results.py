"""What a session's model sees of long results, in the style of its profile."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from toolcrib.crib import Toolcrib
from toolcrib.errors import ConfigError
from toolcrib.plugin import tool

LINES = "\n".join(f"src/file{number}.py:1: heron" for number in range(2000))


@tool(kind="read", core=True)
def read_file() -> str:
    """Read a file."""
    return LINES


@tool(kind="read", core=True, metadata={"result": "lines"})
def grep() -> str:
    """Search files."""
    return LINES


@tool(kind="read", core=True, metadata={"compression_hint": "skip"})
def precious() -> str:
    """Say something of which every word counts."""
    return LINES[:9000]


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib() as opened:
        opened.add(read_file, grep, precious)
        yield opened


async def test_the_flat_profile_shows_head_and_tail_and_counts_the_bytes_elided(crib: Toolcrib) -> None:
    shown = (await crib.session(profile="flat").call("read_file")).text
    assert (shown.startswith("src/file0.py"), shown.endswith(LINES[-20:]), " bytes elided of " in shown) == (True,) * 3
    assert 0.9 * 16_000 < len(shown) <= 16_000


async def test_a_tool_whose_result_is_lines_keeps_whole_first_ones_everywhere(crib: Toolcrib) -> None:
    for profile in ("flat", "adaptive", "selection"):
        shown = (await crib.session(profile=profile).call("grep")).text
        kept = shown.split("\n")[:-1]
        assert kept == LINES.split("\n")[: len(kept)]
        assert f"{2000 - len(kept)} of 2000 lines dropped" in shown.split("\n")[-1]


async def test_a_tool_may_declare_that_nothing_is_to_be_left_out(crib: Toolcrib) -> None:
    assert (await crib.session(profile="selection").call("precious")).text == LINES[:9000]


async def test_the_budget_of_a_profile_is_data(crib: Toolcrib) -> None:
    crib.profiles.add({"name": "mine", "extends": "flat", "results": {"tokens": 500}})
    shown = (await crib.session(profile="mine").call("read_file")).text
    assert (len(shown) <= 2000, " bytes elided of " in shown) == (True, True)


async def test_and_one_that_cannot_be_is_refused(crib: Toolcrib) -> None:
    with pytest.raises(ConfigError, match=r"results: tokens: takes a number above 0"):
        crib.profiles.add({"name": "mine", "extends": "flat", "results": {"tokens": "many"}})


async def test_promised_structured_content_outlives_the_budget_of_a_profile(crib: Toolcrib) -> None:
    @tool(kind="read", core=True)
    def rows() -> dict[str, list[int]]:
        """Return rows."""
        return {"rows": list(range(1000))}

    crib.add(rows)
    direct = await crib.session(profile="selection").call("rows")
    assert (len(direct.text) <= 1500, direct.structured_content) == (True, {"rows": list(range(1000))})


async def test_what_was_cut_is_read_on_where_the_marker_says(crib: Toolcrib) -> None:
    session = crib.session(profile="selection")
    cut = (await session.call("read_file")).text
    asked = json.loads(cut[cut.index('{"id"') : cut.index("}") + 1])
    page = (await session.call("read_artifact", {**asked, "limit": 1000})).text
    head = cut.split("\n[COMPRESSED")[0]
    assert LINES.startswith(head + page.split("\n[bytes")[0])
