"""Seed 000, walked along its checklist: categories, loading, dispatch, an exact set, the rules that once were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from seeds.rigging import failed, names, said, told
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Capability, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import UsageError
from toolcrib.testing import ScriptedSource

CORE = [
    "create_task",
    "list_tasks",
    "edit_task",
    "get_task",
    "browse_tools",
    "load_tools",
    "memory_search",
    "browse_rules",
    "load_rule",
    "save_rule",
    "delete_rule",
]
"""`send_message` is there where a channel is configured."""
RULES = {"browse_rules": {}, "load_rule": {"id": "r"}, "save_rule": {"content": "c"}, "delete_rule": {"id": "r"}}
PROFILE = "tiered"


async def error(session: Session, name: str, arguments: Mapping[str, Any] | None = None) -> str:
    shown = await failed(session, name, arguments)
    assert set(shown) == {"error"}
    return str(shown["error"])


async def available(session: Session) -> str:
    return ", ".join(entry["name"] for entry in (await told(session, "browse_tools"))["categories"])


# Categories


async def test_an_interaction_begins_with_the_core_tools_in_their_order(session: Session) -> None:
    assert names(session) == CORE


async def test_a_tool_without_a_category_is_in_one_named_after_its_source_and_never_in_the_core(
    other: Toolcrib,
) -> None:
    session = other.session(profile="tiered")
    core = names(session)
    plugin = ScriptedSource("weather", {"forecast": said, "alerts": said, "history": said, "radar": said})
    await other.tools.mount_source(plugin, prefix=False)
    described = (await told(session, "browse_tools"))["categories"][-1]
    assert described == {"name": "weather", "description": "forecast, alerts, history and 1 more", "tool_count": 4}
    loaded = await told(session, "load_tools", {"category": "weather"})
    assert loaded["tools_added"] == ["forecast", "alerts", "history", "radar"]
    assert names(session) == [*core, "forecast", "alerts", "history", "radar"]


async def test_counts_follow_the_catalog(other: Toolcrib) -> None:
    session = other.session(profile="tiered")

    async def count() -> int:
        listed = (await told(session, "browse_tools"))["categories"]
        return next(entry["tool_count"] for entry in listed if entry["name"] == "math")

    before = await count()
    moon = Tool(name="moon_phase", local_name="moon_phase", source="more", category="math")
    await other.tools.mount_source(ScriptedSource("more", {"moon_phase": said}, listed=[moon]), prefix=False)
    assert await count() == before + 1
    assert "moon_phase" in (await told(session, "load_tools", {"category": "math"}))["tools_added"]


# Loading


@pytest.mark.parametrize("category", ["hoks", "", "core", "Hooks"])
async def test_an_unknown_or_empty_category_names_those_that_there_are(session: Session, category: str) -> None:
    said_of = await error(session, "load_tools", {"category": category})
    assert said_of == f"Unknown category: {category}. Available: {await available(session)}"
    assert names(session) == CORE


async def test_load_tools_without_an_argument_is_an_error(session: Session) -> None:
    assert await error(session, "load_tools") == f"Unknown category: . Available: {await available(session)}"


async def test_one_tool_can_be_loaded_by_its_name(session: Session) -> None:
    assert await told(session, "load_tools", {"tool_name": "list_hooks"}) == {
        "loaded": "list_hooks",
        "tools_added": ["list_hooks"],
        "message": "list_hooks is now available.",
        "single_tool": True,
    }
    assert names(session) == [*CORE, "list_hooks"]


@pytest.mark.parametrize(
    ("arguments", "said_of"),
    [
        ({"tool_name": "create_task"}, "create_task is a core tool: it is already loaded."),
        ({"tool_name": "list_hoks"}, "Unknown tool: list_hoks. Did you mean list_hooks"),
        ({"tool_name": "list_hooks", "category": "hooks"}, "Give a category or a tool_name, not both."),
    ],
)
async def test_one_tool_that_cannot_be_loaded_is_an_error_and_loads_nothing(
    session: Session, arguments: Mapping[str, Any], said_of: str
) -> None:
    assert (await error(session, "load_tools", arguments)).startswith(said_of)
    assert names(session) == CORE


# Dispatch


async def test_an_unknown_name_is_an_unknown_command(session: Session) -> None:
    assert await error(session, "frobnicate") == "Unknown command: frobnicate"


async def test_a_misspelt_name_is_told_what_it_may_have_meant(session: Session) -> None:
    assert (await error(session, "list_hoks")).startswith("Unknown command: list_hoks. Did you mean list_hooks")


# An exact set for one interaction


async def test_an_exact_set_is_all_there_is_in_the_order_given(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", tools=["list_hooks", "create_task"])
    assert names(session) == ["list_hooks", "create_task"]
    assert await error(session, "fire_hook", {"hook_id": "h"}) == "fire_hook is not in the scope of this session"
    assert await error(session, "browse_tools") == "browse_tools is not in the scope of this session"


async def test_an_empty_exact_set_is_no_tool_at_all(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", tools=[])
    assert (names(session), session.instructions) == ([], "")
    assert await error(session, "create_task", {"title": "t"}) == "create_task is not in the scope of this session"


async def test_an_unknown_name_in_an_exact_set_raises_before_anything_runs(crib: Toolcrib, session: Session) -> None:
    with pytest.raises(UsageError, match="no tool 'list_hoks' in the scope of this session; did you mean list_hooks"):
        crib.session(profile="tiered", tools=["list_hoks"])
    session.begin(tools=["list_hooks"])
    with pytest.raises(UsageError):
        session.begin(tools=["list_hooks", "no_such_tool"])
    assert names(session) == ["list_hooks"]


async def test_loading_is_switched_off_under_an_exact_set(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", tools=["load_tools", "list_hooks"])
    said_of = await error(session, "load_tools", {"category": "hooks"})
    assert said_of == "load_tools is switched off: this interaction has an exact set of tools"
    assert names(session) == ["load_tools", "list_hooks"]


async def test_an_exact_set_is_gone_with_its_interaction(session: Session) -> None:
    session.begin(tools=["list_hooks"])
    session.begin()
    assert names(session) == CORE


# The rules that once were


def skill(name: str, description: str) -> Tool:
    return Tool(
        name=name,
        local_name=name,
        source="skills",
        description=description,
        capability=Capability(type="SKILL"),
        annotations=Annotations(read_only=True),
    )


@pytest.mark.parametrize("rule", RULES)
async def test_a_rule_tool_says_where_rules_went(other: Toolcrib, rule: str) -> None:
    notes = skill("release-notes", "How release notes are written.")
    await other.tools.mount_source(ScriptedSource("skills", {notes.name: said}, listed=[notes]), prefix=False)
    shown = await told(other.session(profile="tiered"), rule, RULES[rule])
    assert (shown["deprecated"], shown["skills"]) == (
        True,
        [{"name": "release-notes", "description": "How release notes are written."}],
    )
    assert "skills" in shown["message"]


async def test_a_rule_is_redirected_to_the_skill_that_fits_what_was_asked(other: Toolcrib) -> None:
    skills = [skill("deploying", "How to deploy to production."), skill("naming", "How variables are named.")]
    source = ScriptedSource("skills", {one.name: said for one in skills}, listed=skills)
    await other.tools.mount_source(source, prefix=False)
    session = other.session(profile="tiered")
    shown = await told(session, "save_rule", {"id": "naming", "content": "name variables in full"})
    assert shown["skills"][0]["name"] == "naming"


# What a list that cannot grow shows instead, and long results


async def test_where_the_list_stands_still_the_verbs_that_reach_the_rest_are_in_it(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", grows=False)
    before = names(session)
    assert before == [*CORE, "describe_tools", "call_tool", "read_artifact"]
    await session.call("load_tools", {"category": "hooks"})
    assert names(session) == before
    assert "call_tool" in session.instructions
    assert not (await session.call("call_tool", {"name": "list_hooks", "arguments": {}})).is_error


async def test_a_long_result_brings_the_verb_that_reads_it(other: Toolcrib) -> None:
    async def tells(arguments: Mapping[str, Any], context: object) -> ToolResult:
        return ToolResult.of_text("".join(f"line {number}\n" for number in range(9_000)))

    await other.tools.mount_source(ScriptedSource("long", {"tells": tells}), prefix=False)
    session = other.session(profile="tiered")
    before = names(session)
    result = await session.call("tells")
    assert "read_artifact" in result.text
    assert names(session) == [*before, "read_artifact"]
    page = await session.call("read_artifact", {"id": result.meta["artifact"], "offset": 0, "limit": 200})
    assert "line 1" in page.text
