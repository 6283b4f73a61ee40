"""What a session is told of: nothing that it cannot call, nothing twice; and no profile that makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Toolcrib, tool
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Capability, Tool
from toolcrib.errors import ConfigError, ToolFailure
from toolcrib.testing import ScriptedSource


@tool(kind="read")
async def look(path: str = "") -> str:
    """Look at a path."""
    return "looked"


@tool(kind="write")
async def wipe(path: str = "") -> str:
    """Wipe a path."""
    return "wiped"


@tool(kind="read", contexts=["project"])
async def wipe_log() -> str:
    """Read the log of what was wiped."""
    return "log"


async def read(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("how to write one")


SMALL = {"name": "mine", "extends": "adaptive", "budget_tokens": 0}


async def test_describing_a_name_that_is_none_names_no_tool_of_another_context() -> None:
    async with Toolcrib() as crib:
        crib.add(look, wipe_log)
        crib.profiles.add(SMALL)
        told = await crib.session(profile="mine").call("describe_tools", {"names": ["wipe_lg"]})
        inside = await crib.session(profile="mine", contexts=["project"]).call("describe_tools", {"names": ["wipe_lg"]})
        assert (told.text, inside.text) == (
            "wipe_lg: not found; use search_tools",
            "wipe_lg: not found; nearest: wipe_log",
        )


async def test_a_core_tool_that_is_named_twice_is_shown_once() -> None:
    async with Toolcrib() as crib:
        crib.add(look, wipe)
        crib.profiles.add({**SMALL, "core": ["look", "Look", "look"]})
        names = [tool.name for tool in crib.session(profile="mine").tools]
        assert (names.count("look"), len(names)) == (1, len(set(names)))


async def test_a_skill_that_was_described_is_not_shown_as_a_tool_where_skills_are_read() -> None:
    skill = Tool(name="essay", local_name="essay", source="s", capability=Capability(type="SKILL"), core=True)
    async with Toolcrib() as crib:
        crib.add(look)
        await crib.tools.mount_source(ScriptedSource("s", {"essay": read}, listed=[skill]), prefix=False, trusted=True)
        crib.profiles.add({**SMALL, "core": ["essay"]})
        session = crib.session(profile="mine")
        await session.call("describe_tools", {"names": ["essay", "look"]})
        names = {tool.name for tool in session.tools}
        assert "essay" in crib.catalog.tools
        assert ("essay" in names, "look" in names) == (False, True)


@pytest.mark.parametrize("strategy", ["adaptive", "flat", "tiered", "introspection", "gateway", "selection"])
async def test_a_tool_that_is_called_as_a_verb_is_left_out_of_the_list(strategy: str) -> None:
    async with Toolcrib() as crib:
        crib.add(look, wipe)
        crib.profiles.add({"name": "mine", "extends": strategy, "progressive": False, "verbs": {"read": "look"}})
        names = [tool.name for tool in crib.session(profile="mine").tools]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("strategy", ["adaptive", "flat", "tiered", "introspection", "gateway", "selection"])
async def test_braces_in_instructions_that_are_no_verb_are_text(strategy: str) -> None:
    async with Toolcrib() as crib:
        crib.add(look)
        said = 'Say {"a": 1} or {nothing}; long results: {read}.'
        crib.profiles.add({"name": "mine", "extends": strategy, "budget_tokens": 0, "instructions": said})
        told = crib.session(profile="mine").instructions
        assert 'Say {"a": 1} or {nothing}; long results: read_artifact.' in told.splitlines()


@pytest.mark.parametrize("envelope", ["mcp", "error", "text"])
async def test_a_failure_names_tools_as_the_profile_does_in_every_envelope(envelope: str) -> None:
    @tool(kind="write")
    async def keep_note() -> str:
        """Keep a note."""
        raise ToolFailure("conflict", "read it with read_note first", hint="read_note returns it")

    @tool(kind="read")
    async def read_note() -> str:
        """Read a note."""
        return "a note"

    async with Toolcrib(mode="autonomous") as crib:
        crib.add(keep_note, read_note)
        names = {"view_note": {"tool": "read_note"}}
        crib.profiles.add({"name": "mine", "extends": "adaptive", "envelope": envelope, "names": names})
        text = (await crib.session(profile="mine").call("keep_note")).text

    assert (text.count("view_note"), text.count("read_note")) == (2, 0)


BAD: dict[str, dict[str, Any]] = {
    "parallel": {"parallel": -1},
    "budget_tokens": {"budget_tokens": -5},
    "names.True": {"names": {True: "look"}},
    "categories.1": {"categories": {1: "one"}},
    "names.a.args.x": {"names": {"a": {"tool": "look", "args": {"x": 1}}}},
    "names.search_tools": {"names": {"search_tools": "look"}},
    "options.fixed_list": {"extends": "tiered", "options": {"fixed_list": 5}},
    "verbs.batch": {"verbs": {"batch": "tool_batch"}},
    "verbs.describe": {"verbs": {"describe": "search_tools"}},
    "mcp_names": {"mcp_names": "{serve}"},
    "treat_as_write.0": {"treat_as_write": [1]},
    "name": {"name": " "},
}


@pytest.mark.parametrize(("key", "said"), BAD.items(), ids=BAD)
async def test_a_profile_that_makes_no_sense_is_refused_by_the_key(key: str, said: dict[str, Any]) -> None:
    async with Toolcrib() as crib:
        with pytest.raises(ConfigError) as caught:
            crib.profiles.add({**SMALL, **said})
        assert caught.value.key == key


async def test_a_profile_that_is_replaced_says_at_once_which_origins_are_not_trusted() -> None:
    async with Toolcrib() as crib:
        crib.add(look)
        crib.profiles.add(SMALL)
        session = crib.session(profile="mine")
        before = await session.call("look", {})
        crib.profiles.add({**SMALL, "treat_as_write": ["python"]})
        after = await session.call("look", {})
        assert (before.text, after.error and after.error.code) == ("looked", "denied")


async def test_sessions_of_two_instances_keep_their_labels_between_turns() -> None:
    async with Toolcrib() as crib:
        crib.add(look)
        await crib.tools.add_for("one", wipe)
        sessions = [crib.session(profile="gateway", instance=name) for name in ("", "one")]
        first = [session.visible.aliases for session in sessions]
        assert [session.visible.aliases is kept for session, kept in zip(sessions, first, strict=True)] == [True, True]


async def test_an_mcp_client_gets_the_structure_that_a_tool_promised_whatever_the_envelope() -> None:
    async def count(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text('{"n":1}', structured_content={"n": 1})

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    counter = Tool(name="count", local_name="count", source="s", output_schema=schema)
    async with Toolcrib() as crib:
        await crib.tools.mount_source(
            ScriptedSource("s", {"count": count}, listed=[counter]), prefix=False, trusted=True
        )
        crib.profiles.add({"name": "mine", "extends": "flat", "envelope": "gateway"})
        session = crib.session(profile="mine", mode="autonomous")
        promised = await session.call("count", {}, origin="mcp")
        wrapped = await session.call("count", {})
        assert promised.structured_content == {"n": 1}
        assert wrapped.structured_content["result"] == {"n": 1}


async def test_the_number_of_tools_leaves_out_what_is_denied_or_off_in_a_source_of_any_size() -> None:
    names = [f"run_{number}" for number in range(6_000)]
    async with Toolcrib(rules={"deny": ["big__run_1*", "big__run_7"]}) as crib:
        await crib.tools.mount_source(ScriptedSource("big", dict.fromkeys(names, read)))
        session = crib.session(profile="adaptive")
        for name in ("big__run_2", "big__run_10", "big__run_7"):
            session.disable(name)
        left = [name for name in names if not name.startswith("run_1") and name not in ("run_2", "run_7")]

        assert f"\n{len(left)} tools in all." in session.instructions
        session.enable("big__run_2")
        assert f"\n{len(left) + 1} tools in all." in session.instructions
