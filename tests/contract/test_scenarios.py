"""A corpus of requests, in every profile: the right tools run in the right order with the right arguments (F4 13).

The model is a plain reader: it finds its tools by the profile's own verbs and takes the one whose words fit best. What
may run is for the profile to get right, what the words of a tool say is for the tool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from contract.readers import discovered
from contract.seats import PROFILES, Seat, at
from contract.workshop import Workshop, opened
from toolcrib.core.tool import Tool

CORPUS: Final[Mapping[str, list[dict[str, Any]]]] = yaml.safe_load(
    Path(__file__).with_name("scenarios.yaml").read_text(encoding="utf-8")
)
CASES: Final = {f"{group}: {case['ask']}": case for group, cases in CORPUS.items() for case in cases}
WITHOUT: Final = {"hang": "never ends; `test_profile_runs` has a caller that leaves it"}
"""Tools that no case can end with, and why."""


async def found(seat: Seat, words: str) -> str:
    """Return the tool that fits the words best, of those that the profile lets its model find for them."""
    assert seat.session is not None
    tools = seat.crib.catalog.tools
    asked = [words] if seat.profile == "adaptive" else list(tools)
    names = await discovered(seat.session, asked)
    return max(sorted(names & tools.keys()), key=lambda name: _fit(words, tools[name]))


def _fit(words: str, tool: Tool) -> float:
    wanted, said = _words(words), _words(tool.summary)
    return len(wanted & said) / len(wanted | said)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_request_leads_to_the_right_calls_and_to_no_others(profile: str, case: dict[str, Any]) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        codes = [(await seat.use(await found(seat, step["find"]), step["with"])).code for step in case["steps"]]

        assert codes == [step.get("code", "ok") for step in case["steps"]]
        assert _reached(world, case["expected"]) == case["expected"]
        assert set(world.reached) & set(case.get("forbidden", ())) == set()
        assert sorted(world.notes) == case.get("left", ["draft", "plan"])


def _reached(world: Workshop, expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what reached the tools, in order, with the arguments that the case speaks of."""
    ledger = [entry for entry in world.ledger if entry != ("pace", {"end": True})]
    shown: list[dict[str, Any]] = []
    for place, (name, given) in enumerate(ledger):
        (wanted,) = expected[place].values() if place < len(expected) else (given,)
        shown.append({name: {key: value for key, value in given.items() if key in wanted}})
    return shown


async def test_every_tool_is_in_a_case_and_every_case_names_tools_that_there_are() -> None:
    async with opened() as (crib, _):
        there = {name for name in crib.catalog.tools if not name.startswith("open_drawer")}
        named = {name for case in CASES.values() for step in case["expected"] for name in step}
        spared = {name for case in CASES.values() for name in case.get("forbidden", ())}
        assert named | spared <= there
        assert there - named - spared == WITHOUT.keys()
        assert set(CORPUS) == {"plain", "ambiguous", "multi_step", "errors"}
