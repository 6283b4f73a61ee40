"""Long results in the profile of seed 002."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from seeds.rigging import built_in
from toolcrib.crib import Session, Toolcrib


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with built_in() as opened:
        yield opened


def flat(crib: Toolcrib, folder: Path) -> Session:
    return crib.session(profile="flat", workspace=folder)


async def test_a_long_result_shows_its_head_and_its_tail_and_counts_what_was_elided(
    crib: Toolcrib, tmp_path: Path
) -> None:
    text = "".join(f"line {number:06d}\n" for number in range(8000))
    (tmp_path / "big.txt").write_text(text)
    shown = (await flat(crib, tmp_path).call("read_file", {"path": "big.txt"})).text
    head, _, tail = shown.partition("bytes elided")
    assert text.startswith(head[:9000]) and text.rstrip().endswith(tail[-5900:].rstrip())
    assert len(shown.encode()) <= 4000 * 4


@pytest.mark.process
async def test_grep_keeps_whole_first_lines_and_says_how_to_narrow(crib: Toolcrib, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("".join(f"match {number:06d}\n" for number in range(8000)))
    shown = (await flat(crib, tmp_path).call("grep", {"pattern": "match"})).text
    lines = shown.splitlines()
    kept = [line for line in lines if line.startswith("big.txt:")]
    assert kept == [f"big.txt:{number}:match {number - 1:06d}" for number in range(1, len(kept) + 1)]
    assert (len(kept), lines[len(kept)]) == (
        100,
        "[100 of at least 8000 matching lines shown: narrow it with path, glob or type]",
    )
