"""Every tool of every seed's inventory, by the seed's own name and arguments, on the tools that come with us."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from peers.api import Api, api
from rig.sandbox import needs_sandbox
from seeds.inventory import Case, cases_of, check_declared, play, prepare
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.clarification import Clarification
from toolcrib.core.session import LOCAL
from toolcrib.crib import Session
from toolcrib.policy.taint import Taint
from toolcrib.testing import RecordingApprover

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

PEERS = Path(__file__).parents[1] / "peers"
SERVER = [sys.executable, "-IS", str(PEERS / "language_server.py"), ".script.json"]
SEEDS = ("tiered", "flat", "introspection", "selection", "gateway")
CASES = [
    pytest.param(seed, case, id=f"{seed}-{case.name}", marks=[needs_sandbox] if case.sandbox else [])
    for seed in SEEDS
    for case in cases_of(seed)
]
EXPECTED = {"tiered": 45, "flat": 27, "introspection": 113, "selection": 8, "gateway": 5}
"""How many tools each inventory has, without those of the next part: projects, agents, hooks, calendar, schedules."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A crib with the tools that come with us, and a server that they may reach though it is on loopback."""

    crib: Toolcrib
    server: Api

    def session(self, seed: str, folder: Path, **options: Any) -> Session:
        """Open a conversation of nobody else's in a folder."""
        own = f"{seed} {folder}"
        known: dict[str, Any] = {"profile": seed, "mode": "autonomous", "key": own, "principal": own}
        known |= {"workspace": folder, "clarifier": _answer, "approver": RecordingApprover("yes"), **options}
        return self.crib.session(**known)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


async def _answer(asked: Clarification) -> str | None:
    return "yes"


@pytest.fixture(scope="module")
async def world() -> AsyncGenerator[World]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(api())
        host = server.origin.removeprefix("http://")
        tools = {
            "web": {"private_hosts": [host], "robots": "ignore", "search": {"searxng_url": f"{server.origin}/find"}},
            "api": {"shop": {"url": server.origin, "private": True}},
            "lsp": {"servers": {"peer": {"command": SERVER, "files": ["*.py"], "readable": [str(PEERS)]}}},
            "references": {"sources": [{"id": "style", "name": "Style", "content": "Two blanks.", "tags": ["code"]}]},
            "services": {"credentials": {"shop": {"secret": "sesame-open-1", "url": server.origin}}},
            "messaging": {"channels": {"team": f"json://{host}/hook"}},
        }
        settings = replace(bare(), builtins=True, tools=tools, untrusted=Taint(ask=False))
        crib = await stack.enter_async_context(Toolcrib(settings, memory=True))
        yield World(crib=crib, server=server)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_inventory_has_every_tool_of_its_seed_and_looks_at_what_each_did(seed: str) -> None:
    cases = cases_of(seed)

    assert len(cases) == EXPECTED[seed]
    assert [case.name for case in cases if not case.has_effect] == []


@pytest.mark.parametrize(("seed", "case"), CASES)
async def test_a_tool_is_listed_takes_what_the_seed_gives_it_and_does_it(
    world: World, seed: str, case: Case, folder: Path
) -> None:
    roots = prepare(case, folder, world.server.origin)
    whose = {"principal": LOCAL} if case.local else {}
    session = world.session(seed, folder, workspace=roots, required_capabilities=case.needs, **whose)
    await listed(session, seed, case)

    await play(case, session, folder, world.server.received, world.server.origin)


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_the_seed_calls_core_is_shown_from_the_start(world: World, seed: str, folder: Path) -> None:
    shown = {tool.name for tool in world.session(seed, folder).tools}

    assert {case.name for case in cases_of(seed) if case.core} <= shown


async def test_who_is_asked_for_which_tool_is_as_seed_002_declares_it(world: World, folder: Path) -> None:
    asked: dict[str, str] = {}
    for case in cases_of("flat"):
        careful, free = (
            world.crib.why(case.name, world.session("flat", folder, mode=mode, key=mode), case.given).verdict
            for mode in ("cautious", "autonomous")
        )
        asked[case.name] = "AA" if free == "asks" else "A" if careful == "asks" else ""

    assert asked == {case.name: case.approval for case in cases_of("flat")}


async def listed(session: Session, seed: str, case: Case) -> None:
    """Find the tool in the way of the seed, so that it may be called, and check how it is declared."""
    if seed == "gateway":
        told = (await session.call("tool_help", {"path": case.name})).structured_content
        assert (told["type"], told["op"]) == ("op", case.name)
        assert case.arguments.keys() <= {argument["name"] for argument in told["args"]}
        return
    shown = {tool.name: tool for tool in session.tools}
    if case.name not in shown and seed == "tiered":
        categories = (await session.call("browse_tools", {})).structured_content["categories"]
        for category in categories:
            loaded = await session.call("load_tools", {"category": category["name"]})
            if case.name in loaded.structured_content["tools_added"]:
                break
    elif case.name not in shown and seed == "introspection":
        names = [entry["name"] for entry in await _everything(session)]
        assert case.name in names
        await session.call("get_tool_schemas", {"names": [case.name]})
    shown = {tool.name: tool for tool in session.tools}
    check_declared(case, shown[case.name])


async def _everything(session: Session) -> list[dict[str, Any]]:
    overview = (await session.call("list_tools", {})).structured_content
    found: list[dict[str, Any]] = []
    for category in overview["categories"]:
        found += (await session.call("list_tools", {"category": category["name"]})).structured_content["tools"]
    return found
