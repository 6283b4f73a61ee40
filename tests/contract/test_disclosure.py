"""What every profile shows can be reached, and what it does not show is hidden on purpose (F4 1–3, 5, 6 and 14).

Over three catalogs (tools that come with us, and those of seeds 001 and 004), each under all six profiles, and over
the workshop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from contract.readers import discovered, everything_said
from contract.seats import PROFILES, at
from contract.workshop import opened
from seeds.rigging import catalog_of
from toolcrib.core.events import CallFinished
from toolcrib.core.result import ToolResult
from toolcrib.core.schema import example
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.telemetry.tokens import definition_text, estimate
from toolcrib.testing import ScriptedSource

CATALOGS: Final = ("builtin", "gateway", "selection")
HIDDEN: Final = {"internal_use_only": ("selection",)}
"""Marks of a tool, and the profiles that do not show such a one."""
MISSED: Final = {
    "adaptive": "ok",
    "flat": "ok",
    "gateway": "ok",
    "introspection": "not_loaded",
    "selection": "not_loaded",
    "tiered": "ok",
}
"""What becomes of a call of a tool that exists and was not loaded."""
LASTS: Final = {
    "adaptive": True,
    "flat": True,
    "gateway": False,
    "introspection": True,
    "selection": False,
    "tiered": False,
}
"""Whether a tool that was reached is still in the list when the next interaction begins."""

CEILINGS: Final[Mapping[str, tuple[int, ...]]] = {
    #                 adaptive flat gateway introspection selection tiered
    "builtin": (530, 11_700, 680, 940, 760, 1_950),
    "gateway": (
        520,
        13_600,
        690,
        290,
        9_000,
        440,
    ),  # with the calendar, export, import and members of projects, pages of graphs, and tools for three more kinds
    "selection": (1150, 1150, 660, 1270, 1130, 1390),
}
"""Tokens (estimated, UTF-8 bytes / 4) of what a model of each profile is shown at first, by catalog. May only shrink.

Without an intent `selection` shows all of a catalog that marks nothing as core."""
SLACK: Final = 0.1
"""How far below its ceiling a figure may lie before the ceiling is to be lowered."""

REFUSED: Final = ("denied", "disabled", "invalid_arguments", "not_in_scope", "not_loaded")
"""Outcomes by which a call ends before the tool has a say."""

per_profile = pytest.mark.parametrize("profile", PROFILES)


@pytest.fixture(scope="module", params=CATALOGS)
async def named(request: pytest.FixtureRequest) -> AsyncGenerator[tuple[str, Toolcrib]]:
    async with catalog_of(request.param) as crib:
        yield request.param, crib


def offered(session: Session) -> set[str]:
    """Return what the session's model may use, by what the tools say of themselves."""
    hides = [mark for mark, profiles in HIDDEN.items() if session.state.profile in profiles]
    tools = session.visible.offered()
    return {tool.name for tool in tools if not any(tool.capability.constraints.get(mark) for mark in hides)}


# 1: reachable and executable


@per_profile
async def test_every_tool_of_every_catalog_can_be_found_and_nothing_else_is(
    named: tuple[str, Toolcrib], profile: str
) -> None:
    session = named[1].session(profile=profile)
    names = offered(session)
    verbs = set(session.visible.profile.verbs.values())
    found = await discovered(session, sorted(names))
    assert found | (names & verbs) == names


@pytest.mark.process
@per_profile
async def test_every_tool_that_is_found_can_be_called(
    named: tuple[str, Toolcrib], profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what searches would search wherever the tests were started
    (tmp_path / "notes.py").write_text("def plan(): ...\n")
    _, crib = named
    finished: list[CallFinished] = []
    stop = crib.calls.on_finished(finished.append)
    async with at(crib, profile) as seat:
        assert seat.session is not None
        names = sorted(offered(seat.session) - set(seat.session.visible.profile.verbs.values()))
        for name in names:
            tool = crib.catalog.tools[name]
            await seat.reach(name)
            given = tool.guidance.examples[0] if tool.guidance.examples else example(tool.input_schema)
            await seat.session.call(*await seat.way(name, given), dry_run=True)
    stop()
    calls = [event for event in finished if event.tool in names]
    assert [event.tool for event in calls] == names
    assert [(event.tool, event.outcome) for event in calls if event.outcome in REFUSED] == []


@per_profile
async def test_every_tool_and_verb_in_the_list_can_be_called_by_the_name_it_has_there(
    named: tuple[str, Toolcrib], profile: str
) -> None:
    session = named[1].session(profile=profile)
    results = {
        tool.name: await session.call(tool.name, example(tool.input_schema), dry_run=True) for tool in session.tools
    }
    unknown = ("not_in_scope", "not_loaded", "disabled")
    own = set(session.visible.profile.verbs.values())
    missing = {name for name, result in results.items() if result.error and result.error.code == "not_found"}
    assert {name for name, result in results.items() if result.error and result.error.code in unknown} == set()
    assert missing <= own, "a verb may say that what it was asked for does not exist, a tool in the list exists"


# 3: ceilings


@per_profile
async def test_what_a_model_is_shown_at_first_stays_below_its_ceiling(
    named: tuple[str, Toolcrib], profile: str
) -> None:
    name, crib = named
    session = crib.session(profile=profile)
    measured = sum(estimate(definition_text(tool)) for tool in session.tools) + estimate(session.instructions)
    ceiling = CEILINGS[name][PROFILES.index(profile)]
    assert measured <= ceiling
    assert measured >= ceiling * (1 - SLACK), f"lower the ceiling to {measured}"


# 5: activation


@per_profile
async def test_reaching_a_tool_twice_is_reaching_it_once(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        await seat.reach("greet")
        once = (await seat.listed(), seat.session and seat.session.instructions)
        await seat.reach("greet")
        assert (await seat.listed(), seat.session and seat.session.instructions) == once


@per_profile
async def test_an_unknown_name_beside_a_known_one_stops_nothing(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        await seat.reach("zzqx", "greet")
        assert (await seat.ask(*await seat.way("greet", {"name": "Bo"}))).value == "Hello, Bo"
        assert world.reached == ["greet"]


@per_profile
async def test_what_was_reached_lasts_as_long_as_the_profile_says_and_is_nobody_elses(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat, at(crib, profile) as other:
        assert seat.session is not None
        before = (await seat.listed(), await other.listed())
        await seat.use("greet", {"name": "Bo"})
        assert await other.listed() == before[1]
        seat.session.begin()
        assert ("greet" in await seat.listed()) is LASTS[profile]
        if not LASTS[profile]:
            assert await seat.listed() == before[0]


@per_profile
async def test_what_is_added_comes_after_what_was_there(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        before = await seat.listed()
        await seat.use("greet", {"name": "Bo"})
        middle = await seat.listed()
        await seat.use("open_drawer_3")
        if profile != "selection":  # selected anew for each task; its core stays in front
            assert middle[: len(before)] == before
            assert (await seat.listed())[: len(middle)] == middle
        assert (await seat.listed())[0] == before[0]


# 6: known and not loaded


@per_profile
async def test_a_tool_that_was_not_loaded_runs_or_tells_how_to_get_it_as_the_profile_says(profile: str) -> None:
    async with opened() as (crib, world), at(crib, profile) as seat:
        reply = await seat.ask("greet", {"name": "Bo"})
        assert reply.code == MISSED[profile]
        assert world.reached == (["greet"] if reply.code == "ok" else [])
        if reply.is_error:
            way_out = {"introspection": "get_tool_schemas", "selection": "select_tools"}
            assert way_out[profile] in reply.text
            assert (await seat.use("greet", {"name": "Bo"})).code == "ok"


WAYS_ROUND: Final[Mapping[str, tuple[str, Any]]] = {
    "by name": ("erase_note", {"path": "plan"}),
    "in another spelling": ("EraseNote", {"path": "plan"}),
    "by its op": ("notes.note.erase", {"path": "plan"}),
    "call_tool": ("call_tool", {"name": "erase_note", "arguments": {"path": "plan"}}),
    "call_tool, in another spelling": ("call_tool", {"tool": "Erase-Note", "path": "plan"}),
    "call_tool_readonly": ("call_tool_readonly", {"name": "erase_note", "arguments": {"path": "plan"}}),
    "tool_exec": ("tool_exec", {"op": "notes.note.erase", "args": {"path": "plan"}}),
    "tool_exec, by name": ("tool_exec", {"op": "erase_note", "args": {"path": "plan"}}),
    "tool_batch": ("tool_batch", {"ops": [{"type": "exec", "op": "notes.note.erase", "args": {"path": "plan"}}]}),
    "a batch of the host": ("", {}),
    "in the background": ("erase_note", {"path": "plan"}),
    "to be described": ("erase_note", {"path": "plan"}),
}
"""Every way on which somebody might get round a scope."""


async def every_way(session: Session) -> dict[str, ToolResult]:
    results: dict[str, ToolResult] = {}
    for way, (name, arguments) in WAYS_ROUND.items():
        options: dict[str, Any] = {"in the background": {"background": True}, "to be described": {"dry_run": True}}
        if way == "a batch of the host":
            (results[way],) = await session.call_many([("erase_note", {"path": "plan"})])
        else:
            results[way] = await session.call(name, arguments, **options.get(way, {}))
    return results


@pytest.mark.parametrize("barred", ["off here", "off for all", "out of scope", "outside the exact set"])
@per_profile
async def test_what_is_switched_off_or_out_of_scope_runs_on_no_path_and_is_never_spoken_of(
    profile: str, barred: str
) -> None:
    async with opened() as (crib, world):
        options: dict[str, Any] = {}
        if barred == "out of scope":
            options = {"allowed_tools": [name for name in crib.catalog.tools if name != "erase_note"]}
        elif barred == "outside the exact set":
            verbs = crib.profiles[profile].verbs.values()
            options = {"tools": [*verbs, "greet"]}
        session = crib.session(profile=profile, **options)
        if barred == "off here":
            session.disable("erase_note")
        elif barred == "off for all":
            crib.tools.disable("erase_note")
        results = await every_way(session)

        assert [way for way, result in results.items() if not result.is_error] == []
        assert (world.reached, "plan" in world.notes) == ([], True)
        by_name = results["by name"].error
        assert by_name is not None
        assert by_name.code == ("disabled" if barred.startswith("off") else "not_in_scope")
        if profile == "introspection" and barred.startswith("off"):
            return  # listed, and marked as switched off: seed 003 wants it so
        names = [] if barred == "outside the exact set" else ["write_note", "greet"]
        said = await everything_said(session, names)
        assert "Erase a note for good" not in said
        assert "notes.note.erase" not in said


# 14: the catalog changes


async def counted(session: Session) -> int:
    """Return how many tools the profile says there are."""
    profile = session.state.profile
    if profile == "tiered":
        told = (await session.call("browse_tools")).structured_content
        return sum(category["tool_count"] for category in told["categories"])
    if profile == "introspection":
        return (await session.call("list_tools")).structured_content["total_tools"]
    if profile in ("adaptive", "gateway"):
        number = next(word for word in session.instructions.splitlines()[-1].split() if word.replace(",", "").isdigit())
        return int(number.replace(",", ""))
    return len(await discovered(session, crib_names(session)))


def crib_names(session: Session) -> list[str]:
    return [tool.name for tool in session.visible.tools()]


async def polish(arguments: Mapping[str, Any], context: object) -> ToolResult:
    return ToolResult.of_text("shines")


POLISH = Tool(
    name="polish_lens",
    local_name="polish_lens",
    source="optics",
    description="Polish a lens until it shines.",
    category="optics",
    tags=("optics",),
    op="optics.lens.polish",
    annotations=Annotations(read_only=True, destructive=False),
)


@per_profile
async def test_a_tool_that_comes_or_goes_changes_version_counts_index_help_and_calls_together(profile: str) -> None:
    async with opened() as (crib, _), at(crib, profile) as seat:
        assert seat.session is not None
        session = seat.session
        before = (crib.catalog.version, await counted(session), await discovered(session, crib_names(session)))
        source = ScriptedSource("optics", {"polish_lens": polish}, listed=[POLISH])
        await crib.tools.mount_source(source, prefix=False, trusted=True)

        assert crib.catalog.version != before[0]
        assert await counted(session) == before[1] + 1
        assert await discovered(session, crib_names(session)) == before[2] | {"polish_lens"}
        assert crib.catalog.search("polish a lens", 1)[0].name == "polish_lens"
        assert (await seat.use("polish_lens")).value == "shines"

        await crib.tools.unmount("optics")
        session.begin()
        gone = await seat.use("polish_lens")
        assert (gone.code, crib.catalog.version) == ("not_found", before[0])
        assert await counted(session) == before[1]
        assert [hit.name for hit in crib.catalog.search("polish a lens", 5) if hit.name == "polish_lens"] == []
