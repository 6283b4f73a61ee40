"""Every tool of every seed's inventory, by the seed's own name and arguments, on the tools that come with us."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from rig.sandbox import WHY_NOT
from seeds.builtin_world import World, show, world_of
from seeds.inventory import Case, cases_of, check_declared, play
from toolcrib.crib import Session
from toolcrib.disclosure.settings import BY_CATALOG

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

SEEDS = ("tiered", "flat", "introspection", "selection", "gateway")
CASES = [
    pytest.param(seed, case, id=f"{seed}-{case.name}", marks=case.marks) for seed in SEEDS for case in cases_of(seed)
]
EXPECTED = {"tiered": 107, "flat": 27, "introspection": 113, "selection": 9, "gateway": 5}
"""How many tools each inventory has, without those of the next part: projects, agents, hooks, calendar."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
async def world() -> AsyncGenerator[World]:
    async with world_of() as opened:
        yield opened


@pytest.mark.parametrize("seed", SEEDS)
def test_an_inventory_has_every_tool_of_its_seed_and_looks_at_what_each_did(seed: str) -> None:
    cases = cases_of(seed)

    assert len(cases) == EXPECTED[seed]
    assert [case.name for case in cases if not case.has_effect] == []


@pytest.mark.process
@pytest.mark.parametrize(("seed", "case"), CASES)
async def test_a_tool_is_listed_takes_what_the_seed_gives_it_and_does_it(
    world: World, seed: str, case: Case, folder: Path
) -> None:
    session = world.begin(seed, case, folder)
    await check_listed(session, seed, case)

    await play(case, session, folder, world.server.received, world.server.origin)


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_the_seed_calls_core_is_shown_from_the_start(world: World, seed: str, folder: Path) -> None:
    shown = {tool.name for tool in world.session(seed, folder).tools}

    assert {case.name for case in here(seed) if case.core} <= shown


async def test_who_is_asked_for_which_tool_is_as_seed_002_declares_it(world: World, folder: Path) -> None:
    asked: dict[str, str] = {}
    for case in here("flat"):
        careful, free = (
            world.crib.explainer.why(case.name, world.session("flat", folder, mode=mode, key=mode), case.given).verdict
            for mode in ("cautious", "autonomous")
        )
        asked[case.name] = "AA" if free == "asks" else "A" if careful == "asks" else ""

    assert asked == {case.name: case.approval for case in here("flat")}
    for profile, verdict in (("flat", "asks"), (BY_CATALOG, "runs")):  # a person's own command is no tool of the seed
        session = world.session(profile, folder, mode="cautious")
        for name in {"run_command", "run_tests"} & asked.keys():
            assert world.crib.explainer.why(name, session, {"command": "ls"}).verdict == verdict


def here(seed: str) -> list[Case]:
    """The cases of a seed that this machine has the tools of: some are there in a sandbox only."""
    return [case for case in cases_of(seed) if not (case.sandbox and WHY_NOT)]


async def check_listed(session: Session, seed: str, case: Case) -> None:
    """Find the tool in the way of the seed, so that it may be called, and check how it is declared."""
    if seed == "gateway":
        told = (await session.call("tool_help", {"path": case.name})).structured_content
        assert (told["type"], told["op"]) == ("op", case.name)
        assert case.arguments.keys() <= {argument["name"] for argument in told["args"]}
        return
    if case.name not in {tool.name for tool in session.tools}:
        await show(session, seed, case.name)
    check_declared(case, {tool.name: tool for tool in session.tools}[case.name])
