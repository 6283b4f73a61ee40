"""Long results in the profile of seed 002."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from rig.sandbox import needs_sandbox
from seeds.rigging import built_in
from toolcrib.crib import Session, Toolcrib


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with built_in() as opened:
        yield opened


def flat(crib: Toolcrib, folder: Path) -> Session:
    return crib.session(profile="flat", workspace=folder)


@needs_sandbox
@pytest.mark.process
async def test_a_long_result_shows_its_head_and_its_tail_and_counts_what_was_elided(
    crib: Toolcrib, tmp_path: Path
) -> None:
    whole = "".join(f"{number}\n" for number in range(1, 40_001))

    shown = (await flat(crib, tmp_path).call("run_command", {"command": "seq 40000"})).text

    head, _, rest = shown.partition("[")
    note, _, tail = rest.partition("]")
    elided = re.search(r"(\d+) bytes elided", note)
    assert elided is not None
    assert (whole.startswith(head), whole.rstrip().endswith(tail.strip())) == (True, True)
    assert round(len(head) / (len(head) + len(tail)), 1) == 0.6
    assert abs(len(whole) - int(elided[1]) - len(head) - len(tail)) <= 2  # line ends beside the note
    assert 15_000 < len(shown.encode()) <= 4000 * 4


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
