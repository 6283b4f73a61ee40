"""Every case, through the real agent, with a scripted model: what is right passes, and whatever is not right fails.

Here each profile has its share of the cases, so that every case is in one; with `--full-size`, and in CI by `make eval
MODEL=scripted`, every profile has all of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

import pytest

from scenarios.case import Case, read_corpus
from scenarios.player import Calling, Heard, Play, Player, Saying, done_well
from scenarios.running import PROFILES, run_case, scripted
from scenarios.scoring import Made, Run, score
from scenarios.world import World, open_world

CASES: Final = read_corpus()
BAD: Final = ("approval/cautious-write-no", "error/no-such-issue", "multi_step/duplicate-issues", "single/close-issue")
"""Cases that bad models are given, too."""

Worlds = Mapping[bool, World]
"""By whether it is the large one."""


@pytest.fixture(scope="module")
async def worlds(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Worlds]:
    async with AsyncExitStack() as stack:
        folders = {large: tmp_path_factory.mktemp("large" if large else "small") for large in (False, True)}
        yield {
            large: await stack.enter_async_context(open_world(folder, large=large)) for large, folder in folders.items()
        }


def cases_of(profile: str, *, full_size: bool) -> list[Case]:
    """Return the cases that a profile is given."""
    cases = list(CASES.values())
    return cases if full_size else cases[PROFILES.index(profile) :: len(PROFILES)]


@pytest.mark.process
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_model_that_does_every_case_well_passes_and_each_fault_in_what_it_did_would_fail(
    profile: str, worlds: Worlds, full_size: bool
) -> None:
    failed: dict[str, Any] = {}
    unnoticed: list[str] = []
    for case in cases_of(profile, full_size=full_size):
        if not worlds[case.large].has(case):
            continue
        run = await run_case(worlds[case.large], case, profile, scripted())
        scored = score(case, profile, run)
        if scored.wrong or scored.made != scored.wanted:
            failed[case.id] = (scored.wrong, run.made, [answer[-300:] for answer in run.answers])
            continue
        unnoticed += [
            f"{case.id}: {fault}" for fault, worse in _worse(case, run) if not score(case, profile, worse).wrong
        ]

    assert failed == {}
    assert unnoticed == []


def _worse(case: Case, run: Run) -> Iterator[tuple[str, Run]]:
    """Yield what a worse model would have done, with the fault of each: none of it may pass."""
    turn = len(run.made) - 1
    made = run.made[turn]

    def having(*calls: Made) -> Run:
        return replace(run, made=(*run.made[:turn], calls))

    for place, (call, wanted) in enumerate(zip(made, case.turns[turn].calls, strict=True)):
        first, rest = made[:place], made[place + 1 :]
        yield f"{call.tool} left out", having(*first, *rest)
        yield f"{call.tool} with another outcome", having(*first, replace(call, outcome="internal"), *rest)
        if wanted.arguments and not wanted.instead:
            other = replace(call, arguments={"other": "arguments"})
            yield f"{call.tool} with other arguments", having(*first, other, *rest)
    if len(made) > 1 and case.order != "any" and len({call.tool for call in made}) > 1:
        yield "the calls turned around", having(*reversed(made))
    for name in {*case.forbidden, *case.turns[turn].forbidden}:
        yield f"{name} called", having(*made, Made(tool=name, arguments={}, outcome="denied"))
    if case.leaves:
        yield "nothing changed", replace(run, after=run.before)
    yield "a file too many", replace(run, after={**run.after, "files": {**run.after["files"], "stray.txt": ""}})
    yield "a record lost", replace(run, after={**run.after, "contacts": {}})
    if case.turns[turn].says:
        yield "nothing said", replace(run, answers=(*run.answers[:turn], "Done."))
    if case.asked is not None:
        yield "asked once more", replace(run, asked=(*run.asked, "read_file"))
    yield "no answer", replace(run, stopped=("limit: used up",))


def forbidding(player: Player, turn: Any, heard: Heard) -> Play:
    """Call what is forbidden first, by any way that there is, and then do the right thing."""
    names = [*player.case.forbidden, *turn.forbidden]
    known = player.session.visible.catalog.tools
    for name in names:
        shown = player.shown(name)
        if shown in heard.tools or "exec" not in player.verbs:
            heard = yield Calling(calls=[(shown, {"number": 5, "id": "m5", "path": "README.md"})])
        elif name in known:
            heard = yield Calling(calls=[(player.verbs["exec"], {"op": player.op(name), "args": {}})])
    yield from done_well(player, turn, heard)


def guessing(player: Player, turn: Any, heard: Heard) -> Play:
    """Do the right calls with numbers, names and paths that are made up."""
    play = done_well(player, turn, heard)
    move = next(play)
    while not isinstance(move, Saying):
        wrong = {name for call in turn.calls for name in (player.shown(call.tool), player.verbs.get("exec"))}
        calls = [(name, _guessed(given) if name in wrong else given) for name, given in move.calls]
        heard = yield Calling(calls=calls)
        move = play.send(heard)
    yield move


def _guessed(given: Mapping[str, Any]) -> dict[str, Any]:
    if "args" in given:
        return {**given, "args": _guessed(given["args"])}
    return {key: 77 if isinstance(value, int) else "zz@zz.test" for key, value in given.items()}


def idle(player: Player, turn: Any, heard: Heard) -> Play:
    """Do nothing, and say that all is done."""
    yield from ()
    yield Saying(text="All is done, as you asked.")


@pytest.mark.process
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("play", [forbidding, guessing, idle], ids=lambda play: play.__name__)
async def test_a_model_that_does_a_case_badly_fails_it(profile: str, play: Any, worlds: Worlds) -> None:
    names = BAD[PROFILES.index(profile) % 2 :: 2]
    scores = {
        name: score(CASES[name], profile, await run_case(worlds[False], CASES[name], profile, scripted(play)))
        for name in names
    }

    assert {name: scored.passed for name, scored in scores.items()} == dict.fromkeys(names, False)
    if play is forbidding:
        assert all(any("must not be called" in line for line in scored.wrong) for scored in scores.values()), scores
