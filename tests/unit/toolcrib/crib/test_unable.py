"""Tools that cannot run here or as configured: not offered, and named with what they need where a seed lists."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolcrib import Toolcrib, UsageError, tool
from toolcrib.config import bare
from toolcrib.core.result import ToolResult

NEEDS = "the setting tools.lamp.key"
NOTHING: dict[str, str] = {}


def _lacks_key(setting: Callable[[str], Any]) -> str:
    lamp: dict[str, str] = setting("lamp") or {}
    return "" if lamp.get("key") else NEEDS


@tool(category="lamps", op="x.lamp.dim", kind="write", lacks=_lacks_key)
def dim_lamp() -> str:
    """Dim the lamp. Slowly."""
    return "dimmed"


@tool(category="lamps", op="x.lamp.read", kind="read")
def read_lamp() -> str:
    """Read the lamp."""
    return "bright"


@asynccontextmanager
async def opened(**tools: Any) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(mode="autonomous", builtins=False, tools=tools), memory=True) as crib:
        crib.add(dim_lamp, read_lamp)
        yield crib


def read(result: ToolResult) -> Any:
    return json.loads(result.text)


async def test_a_tool_that_lacks_a_setting_is_neither_listed_nor_found() -> None:
    async with opened() as crib, crib.session() as session:
        names = [shown.name for shown in session.tools]
        found = await session.call("search_tools", {"query": "dim the lamp"})
    assert [name for name in names if name.endswith("lamp")] == ["read_lamp"]
    assert "dim_lamp" not in found.text


@pytest.mark.parametrize("profile", ["adaptive", "tiered", "gateway", "flat", "introspection", "selection"])
async def test_a_call_of_it_names_the_setting(profile: str) -> None:
    async with opened() as crib, crib.session(profile=profile) as session:
        result = await session.call("dim_lamp", {})
    assert result.error is not None
    assert (result.error.code, result.error.details) == ("unavailable", {"needs": NEEDS})
    assert NEEDS in result.text


async def test_with_the_setting_it_is_a_tool_like_any_other() -> None:
    async with opened(lamp={"key": "k"}) as crib, crib.session() as session:
        result = await session.call("dim_lamp", {})
        [shown] = [shown for shown in session.tools if shown.name == "dim_lamp"]
    assert (result.text, shown.description) == ("dimmed", "Dim the lamp. Slowly.")


async def test_listings_and_help_of_the_seeds_keep_its_name_with_what_it_needs() -> None:
    async with opened() as crib:
        async with crib.session(profile="gateway") as session:
            helped = read(await session.call("tool_help", {"path": "x.lamp"}))
            op = read(await session.call("tool_help", {"path": "x.lamp.dim"}))
        async with crib.session(profile="introspection") as session:
            listed = read(await session.call("list_tools", {"category": "lamps"}))
        async with crib.session(profile="tiered") as session:
            counts = {one["name"]: one["tool_count"] for one in read(await session.call("browse_tools"))["categories"]}
            loaded = read(await session.call("load_tools", {"category": "lamps"}))
            alone = await session.call("load_tools", {"tool_name": "dim_lamp"})
            declared = [shown.name for shown in session.tools]
    marked = f"needs: {NEEDS}; Dim the lamp."
    assert {item["name"]: item["summary"] for item in helped["items"]}["x.lamp.dim"] == marked
    assert op["summary"] == marked
    assert {item["name"]: item["description"] for item in listed["tools"]}["dim_lamp"] == marked
    assert (loaded["tools_added"], loaded["needs"]) == (["read_lamp"], {"dim_lamp": NEEDS})
    assert (counts["lamps"], loaded["message"]) == (1, "1 lamps tools are now available.")
    assert alone.error is not None
    assert (alone.error.code, "dim_lamp" in declared) == ("unavailable", False)


async def test_tiered_lists_no_category_of_core_tools_alone_though_one_cannot_run() -> None:
    async with opened() as crib:
        crib.profiles.add({"extends": "tiered", "name": "lit", "core": ["dim_lamp", "read_lamp"]})
        session = crib.session(profile="lit")
        listed = read(await session.call("browse_tools"))["categories"]
        shown = {shown.name for shown in session.tools}
    assert "lamps" not in {one["name"] for one in listed}
    assert ("read_lamp" in shown, "dim_lamp" in shown) == (True, False)


@pytest.mark.parametrize(
    ("profile", "call", "code"),
    [
        ("gateway", ("tool_exec", {"op": "x.lamp.dim", "args": NOTHING}), "INTERNAL"),
        ("selection", ("dim_lamp", NOTHING), "EXECUTION_ERROR"),
    ],
)
async def test_in_the_envelope_of_a_seed_the_refusal_has_that_seeds_code(
    profile: str, call: tuple[str, dict[str, Any]], code: str
) -> None:
    async with opened() as crib, crib.session(profile=profile) as session:
        answer = read(await session.call(*call))
    assert (answer["error"]["code"] if profile == "gateway" else answer["error_type"]) == code


async def test_a_tool_whose_check_fails_is_a_problem_of_its_own() -> None:
    def breaks(setting: Callable[[str], Any]) -> str:
        return setting("lamp")["key"]

    @tool(kind="read", lacks=breaks)
    def broken_lamp() -> str:
        """Never there."""
        return ""

    async with opened() as crib:
        with pytest.raises(UsageError, match="broken_lamp"):
            crib.add(broken_lamp)

        assert "read_lamp" in crib.catalog


@pytest.mark.parametrize(
    ("library", "name", "arguments", "extra"),
    [("trafilatura", "web_fetch", {"url": "https://example.org"}, "web"), ("PIL", "observe_screen", {}, "screen")],
)
async def test_without_its_extra_a_built_in_tool_is_not_offered_and_a_call_names_it(
    monkeypatch: pytest.MonkeyPatch, library: str, name: str, arguments: dict[str, Any], extra: str
) -> None:
    async def is_shown(call: bool) -> tuple[bool, ToolResult | None]:
        settings = bare().with_values(mode="autonomous", builtins=("web", "screen"))
        async with Toolcrib(settings, memory=True) as crib, crib.session(profile="flat") as session:
            result = await session.call(name, arguments) if call else None
            return name in {tool.name for tool in session.tools}, result

    there, _ = await is_shown(call=False)
    monkeypatch.setitem(sys.modules, library, None)
    shown, called = await is_shown(call=True)

    assert (there, shown) == (True, False)
    assert called is not None
    assert called.error is not None
    assert (called.error.code, called.error.details) == ("unavailable", {"needs": f"the extra `{extra}`"})
