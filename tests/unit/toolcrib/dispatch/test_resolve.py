"""Which tool a name means and with which arguments: what a profile fixes and a verb promises holds on every way."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolcrib import Toolcrib, tool
from toolcrib.crib import Session


class Tools:
    """Two tools, and what reached them."""

    def __init__(self) -> None:
        self.reached: list[tuple[Any, ...]] = []

    @tool(kind="read")
    async def look(self, path: str = "", force: bool = False) -> str:
        """Look at a path."""
        self.reached.append(("look", path, force))
        return "looked"

    @tool(kind="write")
    async def wipe(self, path: str = "") -> str:
        """Wipe a path."""
        self.reached.append(("wipe", path))
        return "wiped"


@asynccontextmanager
async def resolving(**profile: Any) -> AsyncGenerator[tuple[Toolcrib, Tools]]:
    async with Toolcrib() as crib:
        tools = Tools()
        crib.add(tools)
        crib.profiles.add({"name": "mine", "extends": "adaptive", "budget_tokens": 0, **profile})
        yield crib, tools


def code(result: Any) -> str:
    return result.error.code if result.error else "ok"


GIVEN: dict[str, Any] = {
    "an object": {"p": "a", "force": True},
    "JSON text": json.dumps({"p": "a", "force": True}),
    "JSON text of JSON text": json.dumps(json.dumps({"p": "a", "force": True})),
    "a wrapped object": {"arguments": {"p": "a", "force": True}},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("way", ["its name", "call_tool"])
async def test_what_a_profile_fixes_holds_however_the_arguments_are_written(given: Any, way: str) -> None:
    names = {"peek": {"tool": "look", "args": {"p": "path"}, "fixed": {"force": False}}}
    async with resolving(names=names) as (crib, tools):
        session = crib.session(profile="mine")
        if way == "call_tool":
            result = await session.call("call_tool", {"name": "peek", "arguments": given})
        else:
            result = await session.call("peek", given)
        assert (result.text, tools.reached) == ("looked", [("look", "a", False)])


async def test_a_label_that_is_the_tools_own_name_shows_what_it_takes_under_it() -> None:
    async with resolving(names={"look": {"tool": "look", "fixed": {"force": False}}}, budget_tokens=9000) as (
        crib,
        tools,
    ):
        session = crib.session(profile="mine")
        shown = next(tool for tool in session.tools if tool.name == "look")
        await session.call("look", {"force": True})
        assert (list(shown.input_schema["properties"]), tools.reached) == (["path"], [("look", "", False)])


async def test_an_op_takes_the_arguments_that_its_help_tells() -> None:
    names = {"peek": {"tool": "look", "args": {"p": "path"}, "fixed": {"force": True}}}
    async with resolving(extends="gateway", names=names) as (crib, tools):
        session = crib.session(profile="mine")
        helped = (await session.call("tool_help", {"path": "look"})).structured_content
        await session.call("tool_exec", {"op": helped["op"], "args": {"p": "a"}})
        await session.call("tool_exec", {"op": "peek", "args": {"p": "b"}})
        assert [argument["name"] for argument in helped["args"]] == ["p"]
        assert tools.reached == [("look", "a", True), ("look", "b", True)]


async def test_a_tool_out_of_scope_is_refused_by_the_name_that_was_asked_for() -> None:
    async with resolving(names={"peek": "look"}) as (crib, _):
        result = await crib.session(profile="mine", allowed_tools=["wipe"]).call("peek", {})
        assert (code(result), "look" in result.text) == ("not_in_scope", False)


VERBS = {"batch": "tool_batch", "exec": "tool_exec", "help": "tool_help"}


def batch(session: Session) -> dict[str, Any]:
    return {"name": "tool_batch", "arguments": {"ops": [{"type": "exec", "op": "wipe", "args": {"path": "a"}}]}}


async def test_the_read_only_verb_runs_no_verb_that_makes_calls_of_its_own() -> None:
    async with resolving(verbs=VERBS) as (crib, tools):
        session = crib.session(profile="mine", mode="autonomous")
        refused = await session.call("call_tool_readonly", batch(session))
        assert (code(refused), tools.reached) == ("denied", [])
        ran = await session.call("call_tool", batch(session))
        assert (code(ran), tools.reached) == ("ok", [("wipe", "a")])


async def test_a_verb_outside_of_an_exact_set_is_reached_through_no_other_verb() -> None:
    async with resolving() as (crib, _):
        session = crib.session(profile="mine", tools=["call_tool", "look"])
        assert code(await session.call("call_tool", {"name": "search_tools", "arguments": {"query": "look"}})) == (
            "not_in_scope"
        )


async def test_a_tool_that_a_label_hides_is_found_nowhere_and_no_name_is_shown_twice() -> None:
    async with resolving(names={"wipe": "look"}, budget_tokens=9000) as (crib, tools):
        session = crib.session(profile="mine", mode="autonomous")
        assert [tool.name for tool in session.tools] == ["wipe", "read_artifact"]
        found = await session.call("search_tools", {"query": "wipe a path"})
        await session.call("wipe", {"path": "a"})
        assert ("Wipe a path" in found.text, tools.reached) == (False, [("look", "a", False)])


async def test_a_name_that_is_nearly_that_of_a_meta_tool_gets_it_first() -> None:
    async with resolving(extends="selection", core=["look"]) as (crib, _):
        result = await crib.session(profile="mine").call("search_tools", {})
        assert result.error
        assert result.error.details["nearest"][0] == "select_tools"
