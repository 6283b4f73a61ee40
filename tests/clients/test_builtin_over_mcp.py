"""The inventories of the seeds as a client meets them: the MCP SDK over stdio, under the profile of the seed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mcp_types
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from contract.ways_in import TOOLCRIB, Home
from peers.api import Api
from rig.sandbox import WHY_NOT
from seeds.builtin_world import server_of, show, tools_of
from seeds.inventory import Case, cases_of, play, prepare
from toolcrib.core.result import ToolError, ToolResult

Era = Literal["legacy", "2026-07-28"]
BOTH: tuple[Era, ...] = ("legacy", "2026-07-28")
FULL = pytest.mark.full_size
WALKED: dict[str, tuple[tuple[Era, ...], list[str]]] = {
    "tiered": (BOTH, ["git_commit", "search_files", "send_message", "run_command"]),
    "introspection": (BOTH, ["updateFile", "run", "restore_waypoint", "call_service"]),
    "flat": (("legacy",), ["edit_file", "git_stash", "run_tests", "ask_user"]),
    "selection": (("2026-07-28",), ["api_calling", "knowledge_search", "hitl", "plan"]),
    "gateway": (("2026-07-28",), ["util.schema.field_info", "util.web.visit"]),
}
"""Some of each inventory, one of every kind of effect: each takes a server of its own. The rest is done in process,
and what is walked in both eras is walked in the second with `--full-size`."""
CASES = [
    pytest.param(
        seed, case, era, id=f"{seed}-{case.name}-{era}", marks=case.marks if era == eras[0] else [*case.marks, FULL]
    )
    for seed, (eras, names) in WALKED.items()
    for case in cases_of(seed)
    for era in eras
    if case.name in names
]


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A conversation over the wire, which is spoken to like one in the library."""

    client: Client
    through: str = ""
    """The tool that calls what is not listed, where the list of tools stands still."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        given = dict(arguments)
        if self.through and name not in await self.listed():
            name, given = self.through, {"name": name, "arguments": given}
        result = await self.client.call_tool(name, given)
        told = (result.meta or {}).get("io.toolcrib/error")
        return ToolResult(
            content=tuple(block.model_dump(by_alias=True, exclude_none=True) for block in result.content),
            structured_content=result.structured_content,
            error=ToolError(code=told["code"], message=told["message"]) if told else None,
        )

    async def listed(self) -> list[str]:
        """Return the names of the tools that the client is shown now."""
        return [tool.name for tool in (await self.client.list_tools()).tools]


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Api]:
    async with server_of() as running:
        yield running


@asynccontextmanager
async def remote(seed: str, case: Case, home: Path, server: Api, era: Era) -> AsyncGenerator[Remote]:
    """Serve the folder that a case needs, and connect a client whose user says yes to everything."""
    folder = home / "work"
    folder.mkdir()
    roots = [str(root) for root in prepare(case, folder, server.origin)]
    config = home / "toolcrib.yaml"
    told = {"tools": tools_of(server), "workspace": {"roots": roots}, "untrusted": {"ask": False}}
    config.write_text(json.dumps(told))
    words = ["serve", "--config", str(config), "--profile", seed, "--mode", "autonomous", "--no-daemon"]
    process = StdioServerParameters(command=TOOLCRIB, args=words, env=Home(folder=home).environ, cwd=folder)

    async def fill(context: Any, params: Any) -> mcp_types.ElicitResult:
        asked = params.requested_schema["properties"]
        server.received.append({"question": params.message})
        return mcp_types.ElicitResult(action="accept", content={name: _filled(node) for name, node in asked.items()})

    with (home / "stderr").open("w") as log:
        async with Client(stdio_client(process, errlog=log), mode=era, elicitation_callback=fill) as client:
            yield Remote(client=client, through="call_tool" if era != "legacy" and seed != "gateway" else "")
    assert "Traceback" not in (home / "stderr").read_text()


def _filled(node: Mapping[str, Any]) -> Any:
    choices = node.get("oneOf")
    return choices[0]["const"] if choices else True if node["type"] == "boolean" else "yes"


@pytest.mark.parametrize(("seed", "case", "era"), CASES)
async def test_a_tool_does_for_a_client_what_it_does_in_the_library(
    seed: str, case: Case, era: Era, server: Api, tmp_path: Path
) -> None:
    async with remote(seed, case, tmp_path, server, era) as session:
        if seed != "gateway":
            await show(session, seed, case.name)
            assert era != "legacy" or case.name in await session.listed()
        await play(case, session, tmp_path / "work", server.received, server.origin)


@pytest.mark.parametrize("seed", ["tiered", "flat", "introspection"])
async def test_a_client_is_listed_the_whole_inventory_once_it_has_loaded_it(
    seed: str, server: Api, tmp_path: Path
) -> None:
    known = [case.name for case in cases_of(seed) if not (case.sandbox and WHY_NOT)]
    async with remote(seed, Case(name="", files={"a.txt": ""}), tmp_path, server, "legacy") as session:
        if seed == "tiered":
            told = (await session.call("browse_tools", {})).structured_content
            for category in told["categories"]:
                loaded = (await session.call("load_tools", {"category": category["name"]})).structured_content
                assert len(loaded["tools_added"]) == category["tool_count"]
        elif seed == "introspection":
            await session.call("get_tool_schemas", {"names": known})

        assert set(known) <= set(await session.listed())
