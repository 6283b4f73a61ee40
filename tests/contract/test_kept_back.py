"""A tool that a rule denies or asks about is kept back on every way that a model has to it.

Each way is also taken without the rule, and there the tool runs: a way that leads nowhere would prove nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from contract.seats import PROFILES, in_library
from peers.api import Api, api
from rig import PATIENCE
from toolcrib import Session, Toolcrib, filtered, prefixed, renamed
from toolcrib.config import load
from toolcrib.config.settings import RegistrationSettings, TokenSpec
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.crib.options import SessionOptions
from toolcrib.registration import Registrations
from toolcrib.registration.rest import RestApi
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from toolcrib.sources.source import Source
from toolcrib.testing import ScriptedSource
from toolcrib.testing.models import ScriptedModel, calls
from toolcrib.workflows import Workflows
from toolcrib_agent import Agent
from unit.toolcrib.server.wire_client import call, initialize, serving

WIPE: Final = "box__wipe"
ARGUMENTS: Final = {"path": "a"}
CATALOG: Final = "- name: box_delegate\n  description: Wipe\n  implementation: {mcp: {server: box, tool: wipe}}\n"

Go = Callable[[Toolcrib, Session], Awaitable[object]]


class Box:
    """A server with one destructive tool, and the paths that it has wiped."""

    def __init__(self) -> None:
        self.wiped: list[str] = []

    def source(self) -> Source:
        """Return its tool."""

        async def run(arguments: Mapping[str, Any], context: Any) -> ToolResult:
            self.wiped.append(arguments["path"])
            return ToolResult.of_text("wiped")

        tool = Tool(
            name="wipe",
            source="box",
            local_name="wipe",
            op="x.box.wipe",
            description="Wipe a box",
            input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            aliases=("wipe_a_box",),
            origin="mcp",
            annotations=Annotations(destructive=True),
            execution=Execution(background_after=PATIENCE),
        )
        return ScriptedSource("box", {"wipe": run}, listed=[tool])


@asynccontextmanager
async def opened(
    box: Box, *, derive: Callable[[Source], Source] = lambda source: source, **keys: Any
) -> AsyncGenerator[Toolcrib]:
    """Open a crib with the box behind it; `keys` are those of a configuration file."""
    settings = load(None, {"mode": "autonomous", "builtins": False, **keys})
    async with Toolcrib(settings=settings, memory=True) as crib:
        await crib.tools.mount_source(derive(box.source()))
        yield crib


@dataclass(frozen=True, kw_only=True)
class Route:
    """One way to the tool."""

    go: Go
    profile: str = "flat"


def by(name: str, arguments: Any = ARGUMENTS, *, profile: str = "flat", **options: Any) -> Route:
    """Return the way of one call."""

    async def go(crib: Toolcrib, session: Session) -> object:
        return await session.call(name, arguments, **options)

    return Route(go=go, profile=profile)


def taught(profile: str) -> Route:
    """Return the way that a profile teaches."""

    async def go(crib: Toolcrib, session: Session) -> object:
        return await in_library(crib, session).use(WIPE, ARGUMENTS)

    return Route(go=go, profile=profile)


async def several(crib: Toolcrib, session: Session) -> object:
    return await session.call_many([(WIPE, ARGUMENTS), ("nothing", {})])


async def sibling(crib: Toolcrib, session: Session) -> object:
    return await session.sibling().call(WIPE, ARGUMENTS)


async def _job(crib: Toolcrib, session: Session, result: ToolResult) -> None:
    if "job" in result.meta:
        await crib.jobs.result(str(result.meta["job"]), session.state.principal, PATIENCE)


async def background(crib: Toolcrib, session: Session) -> None:
    await _job(crib, session, await session.call(WIPE, ARGUMENTS, background=True))


async def started_job(crib: Toolcrib, session: Session) -> None:
    given = {"tool_name": WIPE, "arguments": ARGUMENTS}
    await _job(crib, session, await session.call("start_background_task", given))


async def workflow(crib: Toolcrib, session: Session) -> object:
    await crib.slice(Workflows).add("tidy", {"steps": {"one": {"tool": WIPE, "arguments": ARGUMENTS}}})
    return await session.call("tidy", {})


async def agent(crib: Toolcrib, session: Session) -> object:
    model = ScriptedModel(calls(WIPE, **ARGUMENTS), "Done.")
    return await Agent(model, session).run("Wipe it")


async def sub_agent(crib: Toolcrib, session: Session) -> object:
    model = ScriptedModel(calls("spawn_agent", task="Wipe it"), calls(WIPE, **ARGUMENTS), "Done.", "Done.")
    return await Agent(model, session).run("Have it wiped")


BATCH: Final = {"ops": [{"type": "exec", "op": "x.box.wipe", "args": ARGUMENTS}]}
ROUTES: Final = {
    "by its name": by(WIPE),
    "by another spelling": by("BOX-wipe"),
    "by an alias": by("wipe_a_box"),
    "in the words of Claude Code": by("mcp__box__wipe"),
    "with a dry run turned off": by(WIPE, dry_run=False),
    "with a key": by(WIPE, idempotency_key="k"),
    "with arguments as text": by(WIPE, '{"path": "a"}'),
    **{f"as {profile} teaches": taught(profile) for profile in PROFILES},
    "through call_tool": by("call_tool", {"name": WIPE, "arguments": ARGUMENTS}, profile="adaptive"),
    "through call_tool, flat": by("call_tool", {"name": WIPE, **ARGUMENTS}, profile="adaptive"),
    "through call_tool, an alias": by("call_tool", {"tool": "wipe_a_box", "args": ARGUMENTS}, profile="adaptive"),
    "by its op": by("x.box.wipe", profile="gateway"),
    "by a spelling of its op": by("tool_exec", {"op": "x.Box.Wipe", "args": ARGUMENTS}, profile="gateway"),
    "in a batch": by("tool_batch", BATCH, profile="gateway"),
    "in a parallel batch": by("tool_batch", {**BATCH, "mode": "parallel"}, profile="gateway"),
    "several calls": Route(go=several),
    "a sibling session": Route(go=sibling),
    "in the background": Route(go=background),
    "as a started job": Route(go=started_job),
    "a started job through call_tool": Route(go=started_job, profile="adaptive"),
    "a workflow": Route(go=workflow),
    "an agent": Route(go=agent),
    "a sub-agent": Route(go=sub_agent),
    "a delegate of a catalog": by("box_delegate"),
}
NOT_A_WAY: Final = frozenset({"in the words of Claude Code"})
"""Names that lead to no tool here: they are tried because one day they may."""


async def gone(route: Route, tmp_path: Path, **keys: Any) -> list[str]:
    """Go the way, and return what was wiped."""
    box = Box()
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(CATALOG)
    async with opened(box, **keys) as crib:
        await crib.load(catalog)
        options: SessionOptions = {"profile": route.profile}
        async with crib.session(**options) as session:
            await route.go(crib, session)
    return box.wiped


@pytest.mark.parametrize("name", ROUTES)
async def test_a_tool_that_is_denied_or_asked_about_runs_on_no_way(tmp_path: Path, name: str) -> None:
    route = ROUTES[name]
    free = await gone(route, tmp_path)
    denied = await gone(route, tmp_path, rules={"deny": [WIPE]})
    asked = await gone(route, tmp_path, rules={"ask": [WIPE]})
    permission = await gone(route, tmp_path, tool_permissions={WIPE: "deny"})

    assert (free, denied, asked, permission) == ([] if name in NOT_A_WAY else ["a"], [], [], [])


LOOKS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "adaptive": ("search_tools", {"query": "wipe a box"}),
    "flat": ("search_tools", {"query": "wipe a box"}),
    "gateway": ("tool_help", {"path": "x.box", "format": "full"}),
    "introspection": ("list_tools", {"category": "MCP"}),
    "selection": ("nothing", {}),
    "tiered": ("browse_tools", {}),
}
"""What a model calls to see which tools there are."""


@pytest.mark.parametrize("profile", PROFILES)
async def test_what_a_rule_always_denies_is_in_no_list_and_its_call_is_denied(profile: str) -> None:
    async def shown(**keys: Any) -> tuple[bool, str]:
        async with (
            opened(Box(), **keys) as crib,
            crib.session(profile=profile, intent={"required_tools": [WIPE]}) as session,
        ):
            looked = await session.call(*LOOKS[profile])
            lists = [session.tools, session.instructions, looked.text, looked.structured_content, looked.error]
            wiped = await crib.session(profile="flat").call(WIPE, ARGUMENTS)
            return "wipe" in str(lists).replace("wipe a box", ""), wiped.error.code if wiped.error else ""

    sometimes = {"deny": [f"{WIPE}(path=b)"]}
    found = [await shown(), await shown(rules=sometimes), *[await shown(rules={"deny": [text]}) for text in DENIES]]
    assert found == [(True, ""), (True, ""), *[(False, "denied")] * len(DENIES)]


DENIES: Final = (WIPE, "mcp__box", "*wipe", "kind:destructive")


DERIVED: Final[Mapping[str, tuple[Callable[[Source], Source], str]]] = {
    "filtered": (lambda source: filtered(source, ["w*"]), WIPE),
    "prefixed": (lambda source: prefixed(source, "my_"), "box__my_wipe"),
    "renamed": (lambda source: renamed(source, {"wipe": "tidy"}), "box__tidy"),
    "renamed and prefixed": (lambda source: prefixed(renamed(source, {"wipe": "tidy"}), "my_"), "box__my_tidy"),
}


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("rule", ["the name in the source", "the new name", "the server"])
async def test_no_derived_source_leads_past_a_rule(name: str, rule: str) -> None:
    derive, shown = DERIVED[name]
    text = {"the name in the source": WIPE, "the new name": shown, "the server": "mcp__box"}[rule]

    async def gone(**keys: Any) -> list[str]:
        box = Box()
        async with opened(box, derive=derive, **keys) as crib, crib.session() as session:
            await session.call(shown, ARGUMENTS)
        return box.wiped

    assert [await gone(), await gone(rules={"deny": [text]}), await gone(rules={"ask": [text]})] == [["a"], [], []]


REGISTERED: Final = "tidy_up"


async def _by_rest(api: Api, *, accept: bool = True, mode: str = "autonomous", **keys: Any) -> int:
    """Register a tool over REST, call it over MCP in three ways, and count the requests that its API got."""
    options = HttpOptions(
        admin_token="admin-token",
        tokens=(TokenSpec(token="shop-token", principal="ada", instances=("shop",)),),
        profile="adaptive",
        mode=mode,
    )
    hosts = (api.origin.removeprefix("http://"),)
    settings = load(None, {"builtins": False, "untrusted": {"ask": False}, **keys}).with_values(
        registration=RegistrationSettings(private_hosts=hosts)
    )
    definition = {
        "name": REGISTERED,
        "description": "Tidy up",
        "aliases": ["tidy"],
        "implementation": {"endpoint": {"url": f"{api.origin}/tidy", "method": "DELETE"}},
    }
    api.received.clear()
    async with (
        Toolcrib(settings, memory=True) as crib,
        serving(CribBackend(crib), options, [partial(RestApi, crib.slice(Registrations))]) as site,
    ):
        tools = f"http://127.0.0.1:{site.port}/v1/instances/shop/tools"
        admin = {"Authorization": "Bearer admin-token"}
        made = (await site.client.post(tools, json=definition, headers=admin)).json()
        if accept:
            await site.client.post(f"{tools}/{REGISTERED}/accept", json={"hash": made["hash"]}, headers=admin)
        begun = await site.post(initialize(), Authorization="Bearer shop-token")
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        ways: list[tuple[str, dict[str, Any]]] = [
            (REGISTERED, {}),
            ("tidy", {}),
            ("call_tool", {"name": REGISTERED, "arguments": {}}),
        ]
        for name, given in ways:
            await site.post(call(name, given), Authorization="Bearer shop-token", **session)
    return len(api.received)


async def test_a_tool_that_was_registered_over_rest_is_kept_back_by_rules_on_every_way() -> None:
    async with api() as running:
        free = await _by_rest(running)
        waiting = await _by_rest(running, accept=False)
        kept = [
            await _by_rest(running, rules={"deny": [REGISTERED]}),
            await _by_rest(running, rules={"ask": [REGISTERED]}),
            await _by_rest(running, tool_permissions={REGISTERED: "deny"}),
            await _by_rest(running, mode="plan"),
        ]

    assert (free, waiting, kept) == (3, 0, [0, 0, 0, 0])


async def unnamed_workflow(crib: Toolcrib, session: Session) -> object:
    await crib.slice(Workflows).add("tidy", {"steps": {"one": {"tool": WIPE, "arguments": ARGUMENTS}}})
    return await session.call("call_tool", {"name": "tidy", "arguments": {}})


BEHIND_CLIENT: Final = {
    "a workflow through call_tool": Route(go=unnamed_workflow, profile="adaptive"),
    "a delegate through call_tool": by("call_tool", {"name": "box_delegate", **ARGUMENTS}, profile="adaptive"),
    "by its name": by(WIPE),
    "through call_tool": by("call_tool", {"name": WIPE, "arguments": ARGUMENTS}, profile="adaptive"),
    "by its op": by("tool_exec", {"op": "x.box.wipe", "args": ARGUMENTS}, profile="gateway"),
    "in a batch": by("tool_batch", BATCH, profile="gateway"),
    "as a started job": Route(go=started_job),
    "a workflow": Route(go=workflow),
    "a delegate of a catalog": by("box_delegate"),
}
NAMED_TO_THE_USER: Final = frozenset({"by its name", "a workflow", "a delegate of a catalog"})
"""The client's prompt showed this tool, or one that the user's own configuration makes of it."""


@pytest.mark.parametrize("name", BEHIND_CLIENT)
async def test_behind_a_client_a_tool_that_its_prompt_did_not_name_is_asked_about(tmp_path: Path, name: str) -> None:
    route, box = BEHIND_CLIENT[name], Box()
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    async with opened(box, guard=False) as crib:
        await crib.load(tmp_path / "catalog.yaml")
        await route.go(crib, crib.session(profile=route.profile, for_client=True))

    assert box.wiped == (["a"] if name in NAMED_TO_THE_USER else [])
