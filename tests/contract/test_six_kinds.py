"""One crib with every kind of source at once: functions, a catalog, skills, a server, an API, and what is registered.

Each kind brings a tool that works and an entry that cannot be taken. The configuration is a file, as a user writes it;
the MCP server and the HTTP API are real.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from peers import SCRIPTED
from peers.api import Api, api, described
from peers.journal import Journal
from rig import PATIENCE, eventually
from toolcrib import Toolcrib, UsageError, tool
from toolcrib.config import load
from toolcrib.core.json import fields_of
from toolcrib.core.permission import Answer, Question
from toolcrib.crib.session import Session
from toolcrib.registration import Registrations
from toolcrib.registration.definitions import BadDefinition
from toolcrib.workflows import Workflows

pytestmark = pytest.mark.process


_CATALOG = """\
capabilities:
  - name: measure_text
    description: Say of a text how it is written.
    kind: read
    implementation: {command: [printf, "%s is a text", "{text}"]}
  - name: measure_nothing
    implementation: {command: [true], endpoint: {url: "https://example.org"}}
"""
_SKILL = "---\nname: {0}\ndescription: How to {0} a letter.\n---\nFold it twice.\n"
_PARCEL = {"name": "find_parcel", "description": "Find a parcel on its way.", "kind": "read"}


@tool(kind="read")
def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def endpoint(origin: str, name: str = "find_parcel") -> dict[str, Any]:
    how = {"url": f"{origin}/parcels/{{id}}", "allow_private": True}
    return {**_PARCEL, "name": name, "implementation": {"endpoint": how}}


def shop(*more: str) -> dict[str, Any]:
    """A description with an operation that works, one that cannot be called, and `more` like the first."""
    given = {"in": "path", "required": True, "schema": {"type": "string"}}
    paths: dict[str, Any] = {
        f"/{name}/{{id}}": {
            "get": {
                "operationId": name,
                "summary": f"Get {name.replace('_', ' ')} of the shop",
                "parameters": [{"name": "id", **given}],
            }
        }
        for name in ("an_order", *more)
    }
    paths["/broken/{id}"] = {"get": {"operationId": "broken", "parameters": [{"$ref": "#/components/nowhere"}]}}
    return described(paths)


@dataclass(frozen=True, kw_only=True)
class World:
    """A crib in which every kind is open, and what stands behind it."""

    crib: Toolcrib
    folder: Path
    shop: Api
    journal: Journal

    def session(self, profile: str = "adaptive") -> Session:
        return self.crib.session(instance="desk-7", mode="autonomous", profile=profile)


KINDS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "python": ("add_numbers", {"a": 2, "b": 3}, "5"),
    "catalog": ("measure_text", {"text": "this"}, "this is a text"),
    "skills": ("fold", {}, "Fold it twice."),
    "server": ("office__echo", {"text": "hello"}, "hello"),
    "api": ("shop__an_order", {"id": "a/b"}, "/an_order/a%2Fb"),
    "registered": ("find_parcel", {"id": "7"}, "/parcels/7"),
}
"""By source: a tool, arguments, and what its result has in it."""
SOURCES = {"python": "python", "catalog": "catalog", "skills": "skills", "server": "office", "api": "shop"}
NAMES = [name for name, _, _ in KINDS.values()]


@asynccontextmanager
async def opened(folder: Path, origin: str) -> AsyncGenerator[Toolcrib]:
    """Open the crib that a configuration in `folder` describes."""
    (folder / "catalog.yaml").write_text(_CATALOG)
    (folder / "shop.json").write_text(json.dumps(shop()))
    for name, text in (("fold", _SKILL.format("fold")), ("tear", "no frontmatter")):
        (folder / "skills" / name).mkdir(parents=True)
        (folder / "skills" / name / "SKILL.md").write_text(text)
    server = {"command": sys.executable, "args": ["-IS", SCRIPTED, str(folder / "journal"), "ugly"]}
    told = {
        "accept": True,
        "builtins": False,
        "catalogs": ["catalog.yaml"],
        "skills": ["skills"],
        "servers": {"office": server, "nobody": {"comand": "true"}},
        "sources": {"openapi": {"shop": {"spec": "shop.json", "base_url": origin, "allow_private": True}}},
        "untrusted": {"ask": False},
        "rules": {"ask": ["twice"]},
    }
    (folder / "toolcrib.yaml").write_text(json.dumps(told))
    async with Toolcrib(load([folder / "toolcrib.yaml"], environ={"HOME": str(folder)}), memory=True) as crib:
        crib.add(add_numbers)
        await crib.slice(Registrations).register("desk-7", endpoint(origin))
        with anyio.fail_after(PATIENCE):
            await crib.tools.wait_ready(PATIENCE)
        yield crib


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    journal = Journal(tmp_path / "journal")
    async with api() as running, opened(tmp_path, running.origin) as crib:
        yield World(crib=crib, folder=tmp_path, shop=running, journal=journal)
    journal.close()


async def test_one_session_lists_and_finds_a_tool_of_every_kind(world: World) -> None:
    session = world.session()
    listed = {tool.name: tool.source for tool in session.visible.catalog.tools.values()}
    assert {name: listed.get(name) for name in NAMES} == dict(
        zip(NAMES, [*SOURCES.values(), "rest@desk-7"], strict=True)
    )

    asked = {
        "add two numbers": "add_numbers",
        "how is a text written": "measure_text",
        "fold a letter": "fold",
        "echo": "office__echo",
        "get an order of the shop": "shop__an_order",
        "where is my parcel": "find_parcel",
    }
    found = {query: session.visible.catalog.search(query, 1)[0].name for query in asked}
    assert found == asked
    told = await session.call("search_tools", {"query": "find a parcel on its way"})
    assert "find_parcel" in told.text


async def test_one_session_calls_a_tool_of_every_kind_and_leaves_the_same_record(world: World) -> None:
    session = world.session("selection")
    session.begin(tools=NAMES)
    assert [tool.name for tool in session.tools] == NAMES

    results = await session.call_many([(name, dict(arguments)) for name, arguments, _ in KINDS.values()])

    assert [
        (result.is_error, expected in result.text)
        for result, (_, _, expected) in zip(results, KINDS.values(), strict=True)
    ] == [(False, True)] * len(KINDS)
    rows = sorted(await world.crib.store.calls.list(limit=6), key=lambda row: NAMES.index(row.tool))
    passing = ("seq", "id", "started", "finished", "latency_ms", "result_bytes", "result_hash", "arguments_hash")
    seen = [{key: value for key, value in fields_of(row).items() if key not in passing} for row in rows]
    catalog = session.visible.catalog
    assert seen == [
        {
            "session": session.state.key,
            "principal": "local",
            "origin": "library",
            "client": "",
            "tool": name,
            "requested": name,
            "decision": "allow",
            "rule": rows[0].rule,
            "arguments": json.dumps(arguments, separators=(",", ":")),
            "definition": catalog.tools[name].digest.hex(),
            "outcome": "ok",
        }
        for name, arguments, _ in KINDS.values()
    ]
    assert all(row.finished >= row.started and row.result_hash and row.arguments_hash for row in rows)
    assert (await world.crib.store.calls.verify()).problem == ""


async def test_what_cannot_be_taken_of_a_kind_is_told_and_hides_nothing_else(world: World) -> None:
    sideways: Any = "sideways"
    with pytest.raises(UsageError, match="kind"):
        world.crib.add(tool(name="worse", kind=sideways)(add_numbers))
    with pytest.raises(BadDefinition, match="url"):
        await world.crib.slice(Registrations).register(
            "desk-7", {"name": "worse", "implementation": {"endpoint": {"url": "file:///x"}}}
        )

    told = {(problem.source, problem.tool, problem.code) for problem in world.crib.problems}
    assert told >= {
        ("catalog", "measure_nothing", "bad_tool"),
        ("skills", "tear", "bad_tool"),
        ("office", "broken", "bad_schema"),
        ("office", "hidden", "hidden_text"),
        ("shop", "GET /broken/{id}", "bad_operation"),
        ("nobody", "", "bad_config"),
    }
    assert set(NAMES) <= set(world.session().visible.catalog.tools)
    assert "worse" not in world.session().visible.catalog.tools


async def test_every_kind_tells_of_a_tool_that_comes(world: World) -> None:
    session, noticed = world.session(), set[str]()
    world.crib.tools.on_change(lambda _: noticed.update(session.visible.catalog.tools))

    @tool(kind="read")
    def multiply_numbers(a: int, b: int) -> int:
        return a * b

    world.crib.add(multiply_numbers)
    (world.folder / "catalog.yaml").write_text(_CATALOG.replace("measure_text", "weigh_text"))
    (world.folder / "skills" / "seal").mkdir()
    (world.folder / "skills" / "seal" / "SKILL.md").write_text(_SKILL.format("seal"))
    await session.call("office__grow", {})
    (world.folder / "shop.json").write_text(json.dumps(shop("a_receipt")))
    await world.crib.slice(Registrations).register("desk-7", endpoint(world.shop.origin, "find_letter"))

    come = {"multiply_numbers", "weigh_text", "seal", "office__late", "shop__a_receipt", "find_letter"}
    await eventually(lambda: noticed >= come)
    assert "measure_text" not in session.visible.catalog.tools
    assert "find_letter" not in world.crib.catalog.tools


STEP = {"tool": "add_numbers", "arguments": {"a": 2, "b": 3}}
ASKED = {**{name: arguments for name, arguments, _ in KINDS.values()}, "office__effect": {"id": "7"}, "twice": {}}


async def _catalog(world: World) -> None:
    (world.folder / "catalog.yaml").write_text(_CATALOG.replace("is a text", "is no text"))


async def _skills(world: World) -> None:
    (world.folder / "skills" / "fold" / "SKILL.md").write_text(_SKILL.format("fold") + "Burn it.\n")


async def _server(world: World) -> None:
    for name, arguments in (("office__become", {"mode": "changed"}), ("office__grow", {})):
        await world.session().call(name, arguments)


async def _description(world: World) -> None:
    (world.folder / "shop.json").write_text(json.dumps(shop()).replace("/an_order/", "/a_refund/"))


async def _registered(world: World) -> None:
    registrations = world.crib.slice(Registrations)
    await registrations.unregister("desk-7", "find_parcel")
    await registrations.register("desk-7", endpoint(f"{world.shop.origin}/elsewhere"))


async def _workflow(world: World) -> None:
    await world.crib.slice(Workflows).add("twice", {"steps": {"find": {**STEP, "arguments": {"a": 2, "b": 8}}}})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("measure_text", _catalog),
        ("fold", _skills),
        ("office__effect", _server),
        ("shop__an_order", _description),
        ("find_parcel", _registered),
        ("twice", _workflow),
    ],
)
async def test_a_tool_of_any_kind_that_changes_while_a_person_is_asked_does_not_run(
    world: World, name: str, change: Callable[[World], Awaitable[None]]
) -> None:
    """Also where its definition stays, and only what it runs, shows or calls is another one.

    A function stands in no table: none can take the place of one that was added.
    """
    await world.crib.slice(Workflows).add("twice", {"steps": {"find": STEP}})

    async def swap(question: Question) -> Answer:
        sources = world.crib.parts.inventory.sources
        source: Any = sources[question.tool.source]
        told = [lambda: session.visible.catalog.tools.get(name)]
        if hasattr(source, "implementation_of"):
            told.append(lambda: source.implementation_of(question.tool))
        before = [tell() for tell in told]
        await change(world)
        await eventually(lambda: [tell() for tell in told] != before)
        return Answer(verdict="yes")

    session = world.crib.session(instance="desk-7", mode="manual", profile="selection", approver=swap)
    session.begin(tools=[name])
    result = await session.call(name, dict(ASKED[name]))

    assert (result.error and result.error.code, world.shop.received) == ("definition_changed", [])
    assert world.journal.of("effect") == []


async def test_closing_ends_every_kind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    async with api() as running:
        before = asyncio.all_tasks()
        async with opened(tmp_path, running.origin) as crib:
            session = crib.session(instance="desk-7", mode="autonomous", profile="flat")
            for name, arguments, _ in KINDS.values():
                await session.call(name, dict(arguments))
            assert {state.state for state in crib.tools.sources} == {"ready"}
        left = {task.get_name() for task in asyncio.all_tasks() - before}

        assert {name for name in left if not name.startswith(("anyio.abc._sockets", "uvicorn"))} == set()
        assert {state.state for state in crib.tools.sources} <= {"closed"}
        with pytest.raises(UsageError, match="not open"):
            await session.call("add_numbers", {"a": 1, "b": 1})
    journal.close()
