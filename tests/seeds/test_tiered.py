"""Seed 000, walked along its checklist: the registry, dispatch, the two verbs, the tools of one interaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from seeds.rigging import every_argument, failed, names, said, told
from seeds.tiered_world.state import WORLD, reset
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Capability, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.base import estimate_tokens
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
    "send_message",
    "browse_rules",
    "load_rule",
    "save_rule",
    "delete_rule",
]
GIT = [
    "get_git_status",
    "git_commit",
    "git_pull",
    "git_push",
    "git_create_branch",
    "git_merge",
    "git_create_pr",
    "git_changed_files",
    "git_log",
    "git_diff",
    "checkout_branch",
]
CATEGORIES = [
    ("git", "Branch, commit, push, PR, and merge operations", 11),
    ("project", "Project CRUD, workspace management", 16),
    ("agent", "Agent management, agent profiles", 17),
    ("hooks", "Direct hook management (low-level)", 6),
    ("memory", "Memory operations beyond search, notes, project profiles", 13),
    ("files", "Read, write, edit, search, and browse files in project workspaces", 8),
    ("system", "Token usage, config, diagnostics, task lifecycle ops, prompts", 28),
]
AVAILABLE = ", ".join(name for name, _, _ in CATEGORIES)
RULES = {"browse_rules": {}, "load_rule": {"id": "r"}, "save_rule": {"content": "c"}, "delete_rule": {"id": "r"}}


SEED = "tiered"


@pytest.fixture(autouse=True)
def _() -> None:
    reset()


async def error(session: Session, name: str, arguments: Mapping[str, Any] | None = None) -> str:
    shown = await failed(session, name, arguments)
    assert set(shown) == {"error"}
    return str(shown["error"])


# Registry


async def test_an_interaction_begins_with_the_twelve_core_tools_in_their_order(session: Session) -> None:
    assert names(session) == CORE


async def test_browse_tools_names_the_seven_categories_word_for_word(session: Session) -> None:
    assert await told(session, "browse_tools") == {
        "categories": [
            {"name": name, "description": description, "tool_count": count} for name, description, count in CATEGORIES
        ]
    }


@pytest.mark.parametrize("category", [name for name, _, _ in CATEGORIES])
async def test_a_category_has_as_many_tools_as_browse_tools_says_and_none_of_the_core(
    session: Session, category: str
) -> None:
    counts = {entry["name"]: entry["tool_count"] for entry in (await told(session, "browse_tools"))["categories"]}
    added = (await told(session, "load_tools", {"category": category}))["tools_added"]
    assert len(added) == len(set(added)) == counts[category]
    assert not set(added) & set(CORE)


async def test_loading_everything_shows_every_tool_in_scope_once(crib: Toolcrib, session: Session) -> None:
    for name, _, _ in CATEGORIES:
        await session.call("load_tools", {"category": name})
    shown = names(session)
    assert len(shown) == len(set(shown)) == len(CORE) + sum(count for _, _, count in CATEGORIES)
    assert set(crib.catalog.tools) - set(shown) == {"restart_daemon", "orchestrator_control"}


async def test_every_definition_says_what_it_does_and_takes_an_object(crib: Toolcrib, session: Session) -> None:
    for name, _, _ in CATEGORIES:
        await session.call("load_tools", {"category": name})
    assert all(len(tool.description) > 10 and tool.input_schema["type"] == "object" for tool in session.tools)


async def test_core_is_between_five_and_twenty_tools_and_less_than_a_quarter_of_all(
    crib: Toolcrib, session: Session
) -> None:
    assert 5 <= len(session.tools) <= 20
    assert len(session.tools) < (len(crib.catalog) + 6) / 4


async def test_the_core_costs_less_than_1500_tokens_and_a_sixth_of_everything(crib: Toolcrib, session: Session) -> None:
    core = sum(map(estimate_tokens, session.tools)) + len(session.instructions.encode()) // 4
    assert core < 1_500
    assert core * 6 < sum(map(estimate_tokens, crib.catalog.tools.values()))


async def test_a_tool_without_a_category_is_in_one_named_after_its_source_and_never_in_the_core(
    other: Toolcrib,
) -> None:
    session = other.session(profile="tiered")
    plugin = ScriptedSource("weather", {"forecast": said, "alerts": said, "history": said, "radar": said})
    await other.tools.mount_source(plugin, prefix=False)
    described = (await told(session, "browse_tools"))["categories"][-1]
    assert described == {"name": "weather", "description": "forecast, alerts, history and 1 more", "tool_count": 4}
    loaded = await told(session, "load_tools", {"category": "weather"})
    assert loaded["tools_added"] == ["forecast", "alerts", "history", "radar"]
    assert names(session) == [*CORE, "forecast", "alerts", "history", "radar"]


async def test_counts_follow_the_catalog(other: Toolcrib) -> None:
    session = other.session(profile="tiered")
    before = await told(session, "browse_tools")
    blame = Tool(name="git_blame", local_name="git_blame", source="more", category="git")
    await other.tools.mount_source(ScriptedSource("more", {"git_blame": said}, listed=[blame]), prefix=False)
    after = await told(session, "browse_tools")
    assert (before["categories"][0]["tool_count"], after["categories"][0]["tool_count"]) == (11, 12)
    assert (await told(session, "load_tools", {"category": "git"}))["tools_added"] == [*GIT, "git_blame"]


async def test_tools_for_operators_are_counted_for_operators_only(crib: Toolcrib) -> None:
    operator = crib.session(profile="tiered", contexts=["global", "operator"])
    assert (await told(operator, "browse_tools"))["categories"][-1]["tool_count"] == 30
    assert await told(operator, "restart_daemon", {"reason": "new version"}) == {
        "restarting": True,
        "reason": "new version",
    }


# Loading


async def test_load_tools_answers_with_names_and_puts_the_schemas_into_the_list_only(session: Session) -> None:
    assert await told(session, "load_tools", {"category": "git"}) == {
        "loaded": "git",
        "tools_added": GIT,
        "message": "11 git tools are now available.",
    }
    assert names(session) == [*CORE, *GIT]
    assert {tool.name: tool.input_schema for tool in session.tools}["git_commit"]["required"] == ["message"]


async def test_loading_twice_changes_nothing(session: Session) -> None:
    first = await told(session, "load_tools", {"category": "git"})
    shown = session.listing
    assert await told(session, "load_tools", {"category": "git"}) == first
    assert session.listing == shown


async def test_later_categories_are_appended_and_move_nothing(session: Session) -> None:
    before = session.listing
    await session.call("load_tools", {"category": "hooks"})
    between = session.listing
    await session.call("load_tools", {"category": "git"})
    assert between.startswith(before[:-1])
    assert session.listing.startswith(between[:-1])


@pytest.mark.parametrize("category", ["gti", "", "core", "Git"])
async def test_an_unknown_or_empty_category_names_those_that_there_are(session: Session, category: str) -> None:
    said_of = await error(session, "load_tools", {"category": category})
    assert said_of == f"Unknown category: {category}. Available: {AVAILABLE}"
    assert names(session) == CORE


async def test_load_tools_without_an_argument_is_an_error(session: Session) -> None:
    assert await error(session, "load_tools") == f"Unknown category: . Available: {AVAILABLE}"


async def test_one_tool_can_be_loaded_by_its_name(session: Session) -> None:
    assert await told(session, "load_tools", {"tool_name": "git_log"}) == {
        "loaded": "git_log",
        "tools_added": ["git_log"],
        "message": "git_log is now available.",
        "single_tool": True,
    }
    assert names(session) == [*CORE, "git_log"]


@pytest.mark.parametrize(
    ("arguments", "said_of"),
    [
        ({"tool_name": "create_task"}, "create_task is a core tool: it is already loaded."),
        ({"tool_name": "git_lgo"}, "Unknown tool: git_lgo. Did you mean git_log"),
        ({"tool_name": "git_log", "category": "git"}, "Give a category or a tool_name, not both."),
    ],
)
async def test_one_tool_that_cannot_be_loaded_is_an_error_and_loads_nothing(
    session: Session, arguments: Mapping[str, Any], said_of: str
) -> None:
    assert (await error(session, "load_tools", arguments)).startswith(said_of)
    assert names(session) == CORE


async def test_an_interaction_keeps_what_it_loaded_and_the_next_one_begins_with_the_core(session: Session) -> None:
    await session.call("load_tools", {"category": "git"})
    await session.call("git_log")
    assert names(session) == [*CORE, *GIT]
    session.begin()
    assert names(session) == CORE


async def test_what_one_session_loads_no_other_one_sees(crib: Toolcrib, session: Session) -> None:
    await session.call("load_tools", {"category": "git"})
    assert names(crib.session(profile="tiered")) == CORE


# Dispatch


async def test_a_tool_runs_whether_it_is_loaded_or_not(session: Session) -> None:
    before = await told(session, "git_log")
    await session.call("load_tools", {"category": "git"})
    assert before == await told(session, "git_log") == {"branch": "main", "commits": ["Begin"]}


async def test_every_tool_runs_with_all_of_its_arguments_and_with_none_that_it_can_do_without(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", contexts=["global", "operator"])
    codes: dict[str, set[str]] = {}
    for tool in crib.catalog.tools.values():
        everything = every_argument(tool.input_schema)
        needed = {name: everything[name] for name in tool.input_schema.get("required", ())}
        results = [await session.call(tool.name, given) for given in (needed, everything)]
        codes[tool.name] = {result.error.code for result in results if result.error}
    assert {name: found for name, found in codes.items() if found - {"tool_error"}} == {}


async def test_an_unknown_name_is_an_unknown_command(session: Session) -> None:
    assert await error(session, "frobnicate") == "Unknown command: frobnicate"


async def test_a_misspelt_name_is_told_what_it_may_have_meant(session: Session) -> None:
    assert (await error(session, "git_comit")).startswith("Unknown command: git_comit. Did you mean git_commit")


async def test_whatever_a_tool_raises_is_an_error_with_its_text(other: Toolcrib) -> None:
    session = other.session(profile="tiered")
    assert await error(session, "get_task", {"task_id": "t9"}) == "There is no task 't9'; there are: none"

    async def breaks(arguments: Mapping[str, Any], context: object) -> ToolResult:
        raise RuntimeError("secret-42")

    await other.tools.mount_source(ScriptedSource("broken", {"breaks": breaks}), prefix=False)
    assert "secret-42" not in await error(session, "breaks")


async def test_a_task_that_was_created_is_in_the_list(session: Session) -> None:
    created = await told(session, "create_task", {"title": "Write tests", "task_type": "test"})
    listed = await told(session, "list_tasks", {"display_mode": "compact"})
    assert listed["tasks"] == [{"id": created["created"], "title": "Write tests", "status": "READY"}]
    assert WORLD.tasks[created["created"]]["task_type"] == "test"


async def test_what_was_written_can_be_committed_merged_noted_and_found_again(session: Session) -> None:
    await told(session, "git_create_branch", {"branch_name": "more"})
    await told(session, "write_file", {"path": "demo/new.py", "content": "x = 1\n"})
    assert (await told(session, "get_git_status"))["is_clean"] is False
    assert (await told(session, "git_commit", {"message": "Add x"}))["committed"] is True
    assert await told(session, "git_merge", {"branch_name": "more"}) == {
        "merged": True,
        "branch": "more",
        "into": "main",
    }
    await told(session, "checkout_branch", {"branch_name": "main"})
    assert (await told(session, "git_log", {"count": 1}))["commits"] == ["Add x"]
    await told(session, "write_note", {"project_id": "demo", "title": "x", "content": "why there is an x"})
    found = await told(session, "memory_search", {"project_id": "demo", "query": "why x"})
    assert found["results"][0] == {"title": "x", "content": "why there is an x"}


async def test_paths_outside_of_the_workspaces_are_denied(session: Session) -> None:
    for name, arguments in (
        ("read_file", {"path": "/etc/passwd"}),
        ("write_file", {"path": "../x", "content": ""}),
        ("grep", {"pattern": "root", "path": "/etc"}),
    ):
        assert (await error(session, name, arguments)).startswith("Access denied: ")


# An exact set for one interaction


async def test_an_exact_set_is_all_there_is_in_the_order_given(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", tools=["git_log", "create_task"])
    assert names(session) == ["git_log", "create_task"]
    assert await error(session, "git_commit", {"message": "m"}) == "git_commit is not in the scope of this session"
    assert await error(session, "browse_tools") == "browse_tools is not in the scope of this session"


async def test_an_empty_exact_set_is_no_tool_at_all(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", tools=[])
    assert (names(session), session.instructions) == ([], "")
    assert await error(session, "create_task", {"title": "t"}) == "create_task is not in the scope of this session"
    assert WORLD.tasks == {}


async def test_an_unknown_name_in_an_exact_set_raises_before_anything_runs(crib: Toolcrib, session: Session) -> None:
    with pytest.raises(UsageError, match="no tool 'git_lgo' in the scope of this session; did you mean git_log"):
        crib.session(profile="tiered", tools=["git_lgo"])
    session.begin(tools=["git_log"])
    with pytest.raises(UsageError):
        session.begin(tools=["git_log", "no_such_tool"])
    assert names(session) == ["git_log"]


async def test_loading_is_switched_off_under_an_exact_set(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", tools=["load_tools", "git_log"])
    said_of = await error(session, "load_tools", {"category": "git"})
    assert said_of == "load_tools is switched off: this interaction has an exact set of tools"
    assert names(session) == ["load_tools", "git_log"]


async def test_an_exact_set_is_gone_with_its_interaction(session: Session) -> None:
    session.begin(tools=["git_log"])
    session.begin()
    assert names(session) == CORE


# The rules that once were


@pytest.mark.parametrize("rule", RULES)
async def test_a_rule_tool_says_where_rules_went_and_changes_nothing(other: Toolcrib, rule: str) -> None:
    skill = Tool(
        name="release-notes",
        local_name="release-notes",
        source="skills",
        description="How release notes are written.",
        capability=Capability(type="SKILL"),
        annotations=Annotations(read_only=True),
    )
    await other.tools.mount_source(ScriptedSource("skills", {"release-notes": said}, listed=[skill]), prefix=False)
    before = repr(WORLD)
    shown = await told(other.session(profile="tiered"), rule, RULES[rule])
    assert (shown["deprecated"], shown["skills"]) == (
        True,
        [{"name": "release-notes", "description": "How release notes are written."}],
    )
    assert "skills" in shown["message"]
    assert repr(WORLD) == before


async def test_a_rule_is_redirected_to_the_skill_that_fits_what_was_asked(other: Toolcrib) -> None:
    session = other.session(profile="tiered")
    skills = [
        Tool(name=name, local_name=name, source="skills", description=text, capability=Capability(type="SKILL"))
        for name, text in (("deploying", "How to deploy to production."), ("naming", "How variables are named."))
    ]
    source = ScriptedSource("skills", {"deploying": said, "naming": said}, listed=skills)
    await other.tools.mount_source(source, prefix=False)
    shown = await told(session, "save_rule", {"id": "naming", "content": "name variables in full"})
    assert shown["skills"][0]["name"] == "naming"


# What a list that cannot grow shows instead, and long results


async def test_where_the_list_stands_still_the_verbs_that_reach_the_rest_are_in_it(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered", grows=False)
    before = names(session)
    assert before == [*CORE, "describe_tools", "call_tool", "read_artifact"]
    await session.call("load_tools", {"category": "git"})
    assert names(session) == before
    assert "call_tool" in session.instructions
    shown = await told(session, "call_tool", {"name": "git_log", "arguments": {"count": 1}})
    assert shown == {"branch": "main", "commits": ["Begin"]}


async def test_a_long_result_brings_the_verb_that_reads_it(session: Session) -> None:
    WORLD.files["/workspace/demo/long.txt"] = "".join(f"line {number}\n" for number in range(9_000))
    result = await session.call("read_file", {"path": "demo/long.txt", "max_lines": 9_000})
    assert "read_artifact" in result.text
    assert names(session) == [*CORE, "read_artifact"]
    page = await session.call("read_artifact", {"id": result.meta["artifact"], "offset": 0, "limit": 200})
    assert "line 1" in page.text


async def test_switched_off_the_profile_shows_everything_and_has_nothing_to_load(other: Toolcrib) -> None:
    other.profiles.add({"extends": "tiered", "name": "all", "progressive": False})
    shown = names(other.session(profile="all"))
    assert shown == [name for name in other.catalog.tools if name not in ("restart_daemon", "orchestrator_control")] + [
        "read_artifact"
    ]
