"""The corpus is whole: enough cases, every tool in one of them, no tool that is not there, and each can fail."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rig import ROOT
from scenarios.case import GROUPS, Case, read_case, read_corpus
from scenarios.filler import TOOLS as DEPARTMENTS
from scenarios.office import FILES, RECORDS
from scenarios.player import PHRASES
from scenarios.scoring import patched
from scenarios.world import World, guests, open_world
from toolcrib.crib.plan_mode import SUBMIT
from toolcrib.errors import ConfigError
from toolcrib_agent.sub_agents.tools import TOOLS as MANAGING
from toolcrib_agent.tools import ASK, DELEGATE, SHARE, SPAWN

CASES = read_corpus()
FEWEST = 200
FEWEST_OF_A_GROUP = 15
OF_AGENTS = {ASK, SPAWN, *(tool.name for tool in MANAGING)} - {SHARE}
"""Tools that an agent has; `delegate_task` is there only beside a paid model, `share_context` in a sub-agent."""
WAITING = ("review", "audit")
"""Modes in which what is written waits, so that the disk stays as it is."""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with open_world(tmp_path_factory.mktemp("world"), large=True) as opened:
        yield opened


def test_there_are_enough_cases_of_every_group() -> None:
    counts = Counter(case.group for case in CASES.values())

    assert len(CASES) >= FEWEST
    assert {group: counts[group] for group in GROUPS if counts[group] < FEWEST_OF_A_GROUP} == {}


@pytest.mark.process
async def test_every_tool_is_called_in_a_case_and_every_case_names_tools_that_there_are(world: World) -> None:
    there = {*world.crib.catalog.tools, *world.missing, *OF_AGENTS, SUBMIT, "read_artifact"}
    departments = {tool.name for tool in DEPARTMENTS}
    called = {name for case in CASES.values() for name in called_in(case)}

    assert {case.id: case.tools - there for case in CASES.values() if case.tools - there} == {}
    assert there - departments - called - {DELEGATE} == set(), (
        "a new tool comes with its cases (docs/how-to/evaluate.md)"
    )
    assert {case.id for case in CASES.values() if not case.large and called_in(case) & departments} == set()
    assert world.crib.problems == ()


def called_in(case: Case) -> set[str]:
    return {call.tool for call in case.wanted}


async def test_every_guest_that_arrives_by_entry_point_is_called_in_a_case() -> None:
    uncalled = await guests() - {name for case in CASES.values() for name in called_in(case)}

    assert uncalled == set(), "a new tool comes with its cases (docs/how-to/evaluate.md)"


@pytest.mark.process
async def test_no_phrase_is_for_a_tool_that_is_not_there(world: World) -> None:
    assert PHRASES.keys() - world.crib.catalog.tools.keys() - world.missing == set()


def test_what_a_case_leaves_is_not_there_before_it() -> None:
    before = {"files": dict(FILES), **RECORDS}
    idle = [
        case.id
        for case in CASES.values()
        if case.leaves and patched(patched(before, {"files": dict(case.files)}), case.leaves) == before
    ]

    assert idle == []


@pytest.mark.process
async def test_a_case_whose_calls_change_something_says_what_is_left(world: World) -> None:
    silent = [
        case.id
        for case in CASES.values()
        if case.leaves is None
        and case.mode not in WAITING
        and "undo_edit" not in {call.tool for call in case.wanted}
        and any(call.code == "ok" and _changes(world, call.tool, call.arguments) for call in case.wanted)
    ]

    assert silent == []


def _changes(world: World, name: str, arguments: Any) -> bool:
    tool = world.crib.catalog.get(name)
    return tool is not None and tool.kind != "read" and not arguments.get("dry_run")


def test_a_case_asks_for_something_that_can_be_checked() -> None:
    empty = [
        case.id
        for case in CASES.values()
        if not (case.wanted or case.forbidden or case.leaves or any(turn.says for turn in case.turns))
    ]

    assert empty == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ask": "x", "call": []}, "there is no key 'call'"),
    ({"calls": []}, "needs `ask`"),
    ({"ask": "x", "calls": [{"a": {}, "b": {}}]}, "names one tool, not ['a', 'b']"),
    ({"ask": "x", "calls": [{"code": "ok"}]}, "names one tool, not []"),
    ({"ask": "x", "calls": [{"a": {"b": {"like": "c", "or": "d"}}}]}, "beside `like` stand say, from"),
    ({"ask": "x", "asked": [True]}, "asked takes texts"),
    ({"ask": "x", "answers": [False]}, "answers takes texts in quotes"),
    ({"ask": "x", "order": "some"}, "order is `any`"),
    ({"turns": [{"ask": "x", "mode": "plan"}]}, "there is no key 'mode'"),
]


@pytest.mark.parametrize(("given", "problem"), REFUSED, ids=[problem for _, problem in REFUSED])
def test_a_case_that_says_something_else_is_refused_with_its_name(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=r"^a/b: ") as caught:
        read_case("a/b", given)

    assert problem in str(caught.value)


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "single.yaml").write_text("a: {ask: x}\na: {ask: y}\n", encoding="utf-8")

    with pytest.raises(ConfigError, match="'a' stands here a second time"):
        read_corpus(tmp_path)


def test_the_case_that_the_document_shows_is_one_of_the_corpus() -> None:
    page = (ROOT / "docs" / "how-to" / "evaluate.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    given = yaml.safe_load(shown)

    assert {name: read_case(f"multi_step/{name}", case) for name, case in given.items()} == {
        name: CASES[f"multi_step/{name}"] for name in given
    }
