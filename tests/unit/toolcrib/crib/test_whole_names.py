"""Names are whole everywhere but in declared tools, and calls may use either form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.catalog.names import MAX_NAME
from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.testing import ScriptedSource

LOCAL = "list_every_workflow_run_of_a_repository"
WHOLE = f"github-enterprise__{LOCAL}"


async def ran(_: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("ran")


async def test_the_catalog_searches_and_records_have_the_whole_name() -> None:
    async with Toolcrib(bare().with_values(mode="autonomous", builtins=False), memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("github-enterprise", {LOCAL: ran}))
        async with crib.session() as session:
            [declared] = [tool.name for tool in session.tools if tool.source == "github-enterprise"]
            found = await session.call("search_tools", {"query": "workflow runs"})
            described = await session.call("describe_tools", {"names": [declared]})
            results = [
                await session.call(declared, {}),
                await session.call(WHOLE, {}),
                await session.call("call_tool", {"name": WHOLE, "arguments": {}}),
                await session.call("call_tool", {"name": declared, "arguments": {}}),
            ]
            exported = session.definitions("anthropic")
        rows = await crib.store.calls.list()
        names = [*crib.catalog]
    assert (names, len(WHOLE) > MAX_NAME >= len(declared)) == ([WHOLE], True)
    assert found.text.startswith(f"{WHOLE}(")
    assert f'"{WHOLE}"' in described.text
    assert [result.text for result in results] == ["ran"] * 4
    assert [row.tool for row in rows if row.tool.startswith("github")] == [WHOLE] * 4
    assert declared in [tool["name"] for tool in exported]


@pytest.mark.parametrize("profile", ["flat", "tiered", "introspection"])
async def test_a_profile_with_names_of_its_own_declares_short_ones_and_takes_both(profile: str) -> None:
    async with Toolcrib(bare().with_values(mode="autonomous", builtins=False), memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("github-enterprise", {LOCAL: ran}))
        async with crib.session(profile=profile) as session:
            if profile == "introspection":
                await session.call("get_tool_schemas", {"names": [WHOLE]})
            declared = [tool.name for tool in session.tools]
            results = [await session.call(name, {}) for name in (WHOLE, *declared) if "github" in name]
    assert max(map(len, declared)) <= MAX_NAME
    assert {result.text for result in results} == {"ran"}
