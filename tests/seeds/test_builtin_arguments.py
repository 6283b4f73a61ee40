"""Every argument that a seed gives a tool has an effect: what comes of a call with it does not come of one without."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seeds.builtin_world import World, world_of
from seeds.inventory import Case, cases_of

pytestmark = [pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"), pytest.mark.process]

SEEDS = ("tiered", "flat", "introspection", "selection", "gateway")

ELSEWHERE = {
    ("git_create_pr", "body"): "test_git_remotes: with a program `gh`",
    ("git_create_pr", "base"): "test_git_remotes: with a program `gh`",
    ("shell_read", "timeout"): "test_shell: with a terminal that says something late",
    ("notebook_create", "gpu"): "test_notebook_bounds: with and without a graphics card",
    ("system_monitor", "include_gpu"): "test_system: with and without a graphics card",
    ("hitl", "timeout"): "test_human: with a user who does not answer",
    ("nodes", "title"): "test_nodes: with a desktop",
    ("nodes", "message"): "test_nodes: with a desktop",
    ("observe_screen", "app"): "test_screen: with a screen",
    ("observe_screen", "window_title"): "test_screen: with a screen",
    ("observe_screen", "mode"): "test_screen: with a screen",
}
"""What takes more than this machine is known to have, or longer than a test should: where it is seen to matter."""


def _optional(seed: str) -> dict[tuple[str, str], tuple[Case, bool]]:
    """Return the case of each argument that may be left out: its own, else that of its tool in the inventory.

    True beside it: the case is to be played with the argument, too. Those of the inventory are in
    test_builtin_inventories, and a case of several arguments once is enough.
    """
    written = cases_of(f"arguments/{seed}")
    own = {
        (case.name, argument): (case, place == 0)
        for case in written
        for place, argument in enumerate(case.shows.split())
    }
    found: dict[tuple[str, str], tuple[Case, bool]] = {}
    for case in cases_of(seed):
        for argument, is_required in case.arguments.items():
            if not is_required and (case.name, argument) not in ELSEWHERE:
                found[case.name, argument] = own.pop((case.name, argument), (case, False))
    assert not own, f"no tool of {seed} takes these: {[*own]}"
    return found


CASES = [
    pytest.param(seed, case, argument, plays, id=f"{seed}-{name}-{argument}", marks=case.marks)
    for seed in SEEDS
    for (name, argument), (case, plays) in _optional(seed).items()
]


@pytest.fixture(scope="module")
async def world() -> AsyncGenerator[World]:
    async with world_of() as opened:
        yield opened


@pytest.mark.parametrize(("seed", "case", "argument", "plays"), CASES)
async def test_what_comes_of_an_argument_does_not_come_without_it(
    world: World, seed: str, case: Case, argument: str, plays: bool, full_size: bool, tmp_path: Path
) -> None:
    given, left = tmp_path / "given" / "work", tmp_path / "left" / "work"
    given.mkdir(parents=True)
    left.mkdir(parents=True)
    lacking = _without(case, argument)

    if plays or full_size:
        await world.play(seed, case, given)

    with pytest.raises(AssertionError):
        await world.play(seed, lacking, left)


def _without(case: Case, argument: str) -> Case:
    """Return a case with a call that lacks an argument which it has."""
    given: dict[str, Any] = dict(case.given)
    if case.through:
        given["args"] = dict(given["args"])
    within = given["args"] if case.through else given
    assert argument in within, f"no call of {case.name} gives it {argument}"
    del within[argument]
    return replace(case, given=given)
