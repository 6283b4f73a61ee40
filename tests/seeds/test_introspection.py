"""Seed 003, walked along its checklist: discoverability, the two verbs, activation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seeds.introspection_world.state import WORLD, reset
from seeds.rigging import failed, names, said, told
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.base import estimate_tokens
from toolcrib.plugin import tool
from toolcrib.sources.source import Listing, Publish
from toolcrib.testing import ScriptedSource

DOCUMENT_CORE = ["list_tools", "get_tool_schemas", "readFile", "run", "get_environment"]
PLAN = [
    "createPlan",
    "startPlan",
    "setStepStatus",
    "getPlanStatus",
    "completePlan",
    "addStep",
    "completeStepWithOutput",
    "getBlockedSteps",
]
MARKED = ["store_memory", "retrieve_memories", "list_memory_tags", "listReferences"]
CORE = [*DOCUMENT_CORE, *PLAN, *MARKED]
COUNTS = {
    "code": 9,
    "communication": 1,
    "coordination": 30,
    "filesystem": 13,
    "knowledge": 12,
    "memory": 7,
    "prompt": 2,
    "search": 3,
    "system": 22,
    "web": 11,
}
NAMED_BY_THE_DOCUMENT = {
    "filesystem": {"updateFile", "writeNewFile", "removeFile", "moveFile", "copyFile", "glob_files", "list_directory"},
    "search": {"grep_content", "web_search", "ast_search"},
    "web": {"fetch_url", "fetch_url_post"},
    "coordination": {"delegate", "start_background", "save_waypoint"},
    "communication": {"request_clarification"},
    "memory": {"list_templates", "get_template", "create_template"},
}


SEED = "introspection"


@pytest.fixture(autouse=True)
def _() -> None:
    reset()


class Plugin(ScriptedSource):
    """A source with instructions of its own."""

    def __init__(self, name: str, instructions: str, *tools: Tool) -> None:
        super().__init__(name, dict.fromkeys((tool.local_name for tool in tools), said), listed=tools)
        self._instructions = instructions

    async def open(self, publish: Publish) -> None:
        await super().open(lambda listing: publish(Listing(tools=listing.tools, instructions=self._instructions)))

    def says(self, instructions: str) -> None:
        """Publish the same tools with other instructions."""
        self._instructions = instructions
        self._republish()


def made(name: str, source: str, **fields: Any) -> Tool:
    reads = Annotations(read_only=True, destructive=False)
    return Tool(name=name, local_name=name, source=source, description=f"{name} it.", annotations=reads, **fields)


# Discoverability


async def test_a_session_begins_with_the_core_of_the_profile_and_what_is_marked_core(session: Session) -> None:
    assert names(session) == CORE


async def test_a_tool_is_discoverable_unless_it_or_the_profile_says_core(crib: Toolcrib) -> None:
    marked = [name for name, tool in crib.catalog.tools.items() if tool.core]
    assert set(MARKED) < set(marked)
    assert not crib.catalog.tools["grep_content"].core


async def test_the_start_costs_what_the_document_says_1500_to_2500_tokens_and_70_to_85_percent_less_than_all(
    crib: Toolcrib, session: Session
) -> None:
    crib.profiles.add({"extends": "introspection", "name": "eager", "progressive": False})
    everything = sum(map(estimate_tokens, crib.session(profile="eager").tools))
    start = sum(map(estimate_tokens, session.tools)) + len(session.instructions.encode()) // 4
    assert 8_000 <= everything <= 15_000
    assert 1_500 <= start <= 2_500
    assert 0.15 <= start / everything <= 0.30


# list_tools


async def test_list_tools_gives_the_sorted_categories_with_counts_and_no_names_of_tools(
    crib: Toolcrib, session: Session
) -> None:
    shown = await told(session, "list_tools")
    assert {entry["name"]: entry["tool_count"] for entry in shown["categories"]} == COUNTS
    assert [entry["name"] for entry in shown["categories"]] == sorted(COUNTS)
    assert all(
        set(entry) == {"name", "tool_count", "description"} and entry["description"] for entry in shown["categories"]
    )
    assert (set(shown), shown["total_tools"]) == ({"categories", "total_tools", "hint"}, sum(COUNTS.values()))
    text = json.dumps(shown)
    assert [name for name in crib.catalog.tools if len(name) > 8 and name in text] == []


async def test_the_category_is_an_enum_of_those_that_there_are(session: Session) -> None:
    (listing,) = [tool for tool in session.tools if tool.name == "list_tools"]
    assert listing.input_schema["properties"]["category"]["enum"] == sorted(COUNTS)


@pytest.mark.parametrize("category", NAMED_BY_THE_DOCUMENT)
async def test_a_category_has_the_tools_that_the_document_names(session: Session, category: str) -> None:
    shown = await told(session, "list_tools", {"category": category})
    listed = [entry["name"] for entry in shown["tools"]]
    assert set(listed) >= NAMED_BY_THE_DOCUMENT[category]
    assert listed == sorted(listed)
    assert (shown["category"], shown["tool_count"]) == (category, len(listed))


async def test_a_listed_tool_says_where_it_comes_from_and_what_it_is_in_a_sentence(session: Session) -> None:
    shown = await told(session, "list_tools", {"category": "Search"})
    assert shown == {
        "category": "search",
        "tool_count": 3,
        "tools": [
            {
                "name": "ast_search",
                "plugin_source": "ast_search",
                "enabled": True,
                "streaming": False,
                "description": "Find definitions by name in source code, by its syntax.",
            },
            {
                "name": "grep_content",
                "plugin_source": "filesystem_query",
                "enabled": True,
                "streaming": True,
                "description": "Search the content of files.",
            },
            {
                "name": "web_search",
                "plugin_source": "web_search",
                "enabled": True,
                "streaming": False,
                "description": "Search the web for pages.",
            },
        ],
        "hint": shown["hint"],
    }
    assert "get_tool_schemas" in shown["hint"]


async def test_verbose_shows_whole_descriptions(session: Session) -> None:
    shown = await told(session, "list_tools", {"category": "search", "verbose": True})
    assert shown["tools"][1]["description"] == "Search the content of files. Matches come as they are found."


@pytest.mark.parametrize(("length", "shown"), [(100, "w" * 100), (101, "w" * 97 + "...")])
async def test_a_description_that_is_no_sentence_is_cut_at_97_characters(
    other: Toolcrib, length: int, shown: str
) -> None:
    wordy = Tool(name="wordy", local_name="wordy", source="p", description="w" * length, category="search")
    await other.tools.mount_source(ScriptedSource("p", {"wordy": said}, listed=[wordy]), prefix=False)
    listed = await told(other.session(profile="introspection"), "list_tools", {"category": "search"})
    assert listed["tools"][-1]["description"] == shown


async def test_a_category_that_there_is_not_is_an_error_that_names_the_others(session: Session) -> None:
    assert await failed(session, "list_tools", {"category": "serach"}) == {
        "error": "Unknown category: serach",
        "hint": f"Available categories: {', '.join(sorted(COUNTS))}",
    }


async def test_tools_without_a_category_are_listed_as_uncategorized(other: Toolcrib) -> None:
    await other.tools.mount_source(ScriptedSource("odd", {"odd_one": said}), prefix=False)
    session = other.session(profile="introspection")
    shown = await told(session, "list_tools", {"category": "uncategorized"})
    assert [entry["name"] for entry in shown["tools"]] == ["odd_one"]


async def test_tools_of_mcp_servers_are_in_their_own_category_and_bear_the_servers_name(other: Toolcrib) -> None:
    remote = Tool(name="create_issue", local_name="create_issue", source="github", origin="mcp")
    await other.tools.mount_source(ScriptedSource("github", {"create_issue": said}, listed=[remote]))
    session = other.session(profile="introspection")
    shown = await told(session, "list_tools", {"category": "MCP"})
    assert [(entry["name"], entry["plugin_source"]) for entry in shown["tools"]] == [
        ("mcp__github__create_issue", "github")
    ]
    await session.call("get_tool_schemas", {"names": ["mcp__github__create_issue"]})
    assert names(session)[-1] == "mcp__github__create_issue"
    assert (await session.call("mcp__github__create_issue")).text == "said"


# get_tool_schemas


async def test_get_tool_schemas_gives_the_schema_and_activates_in_one(session: Session) -> None:
    shown = await told(session, "get_tool_schemas", {"names": ["web_search"]})
    assert shown == {
        "schemas": [
            {
                "name": "web_search",
                "description": "Search the web for pages.",
                "plugin_source": "web_search",
                "enabled": True,
                "category": "search",
                "parameters": {
                    "query": {"type": "string", "required": True},
                    "max_results": {"type": "integer", "required": False, "default": 5},
                },
            }
        ],
        "count": 1,
        "activated": ["web_search"],
        "activation_note": "These tools are now available to call.",
    }
    assert names(session) == [*CORE, "web_search"]


async def test_the_type_of_a_parameter_is_words_also_of_a_union(other: Toolcrib) -> None:
    @tool(kind="read")
    def union(one: dict[str, int] | None = None, two: str | int = "", three: list[int | None] | None = None) -> str:
        """Take several types."""
        return f"{one} {two} {three}"

    other.add(union)
    shown = await told(other.session(profile="introspection"), "get_tool_schemas", {"names": ["union"]})
    types = {name: one["type"] for name, one in shown["schemas"][0]["parameters"].items()}

    assert types == {"one": "object | null", "two": "string | integer", "three": "array of integer | null | null"}


async def test_parameters_say_what_is_allowed_and_what_a_list_holds(other: Toolcrib) -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"], "description": "Which."},
            "tags": {"type": "array", "items": {"type": "string"}},
            "anything": {},
        },
        "required": ["kind"],
    }
    await other.tools.mount_source(
        ScriptedSource("p", {"pick": said}, listed=[made("pick", "p", input_schema=schema)]), prefix=False
    )
    shown = await told(other.session(profile="introspection"), "get_tool_schemas", {"names": ["pick"]})
    assert shown["schemas"][0]["parameters"] == {
        "kind": {"type": "string", "required": True, "description": "Which.", "allowed_values": ["a", "b"]},
        "tags": {"type": "array", "required": False, "items_type": "string"},
        "anything": {"type": "any", "required": False},
    }


async def test_a_single_name_is_taken_for_a_list_of_one(session: Session) -> None:
    assert (await told(session, "get_tool_schemas", {"names": "web_search"}))["activated"] == ["web_search"]


async def test_unknown_names_are_reported_with_suggestions_and_the_known_ones_are_activated(session: Session) -> None:
    shown = await told(session, "get_tool_schemas", {"names": ["search", "copyFile", "Qqq"]})
    assert (shown["count"], shown["activated"], shown["not_found"]) == (1, ["copyFile"], ["search", "Qqq"])
    assert shown["suggestions"] == {"search": ["ast_search", "web_search"]}
    assert "list_tools" in shown["hint"]


async def test_suggestions_are_three_at_most(session: Session) -> None:
    shown = await told(session, "get_tool_schemas", {"names": ["file"]})
    assert len(shown["suggestions"]["file"]) == 3
    assert all("file" in name.lower() for name in shown["suggestions"]["file"])


@pytest.mark.parametrize("given", [[], "", [" "]])
async def test_no_names_are_an_error(session: Session, given: object) -> None:
    shown = await failed(session, "get_tool_schemas", {"names": given})
    assert shown["error"] == "names is required: the names of tools"
    assert names(session) == CORE


async def test_core_tools_are_described_and_not_activated_again(session: Session) -> None:
    shown = await told(session, "get_tool_schemas", {"names": ["readFile"]})
    assert (shown["count"], "activated" in shown) == (1, False)
    assert names(session) == CORE


async def test_only_what_is_new_is_reported_as_activated(session: Session) -> None:
    await session.call("get_tool_schemas", {"names": ["copyFile"]})
    shown = await told(session, "get_tool_schemas", {"names": ["copyFile", "moveFile", "copyFile"]})
    assert (shown["count"], shown["activated"]) == (2, ["moveFile"])
    assert names(session) == [*CORE, "copyFile", "moveFile"]


async def test_an_exact_set_is_not_added_to(crib: Toolcrib) -> None:
    session = crib.session(profile="introspection", tools=["get_tool_schemas", "copyFile"])
    shown = await told(session, "get_tool_schemas", {"names": ["copyFile"]})
    assert ("activated" in shown, names(session)) == (False, ["get_tool_schemas", "copyFile"])


async def test_activation_lasts_for_the_session_and_is_of_this_session_only(crib: Toolcrib, session: Session) -> None:
    await session.call("get_tool_schemas", {"names": ["copyFile"]})
    session.begin()
    assert names(session) == [*CORE, "copyFile"]
    assert names(crib.session(profile="introspection")) == CORE


# A tool that was not activated


async def test_a_tool_that_was_not_activated_is_not_callable_and_the_error_says_how_to_activate_it(
    session: Session,
) -> None:
    arguments = {"path": "/new", "content": "text"}
    shown = await failed(session, "writeNewFile", arguments)
    assert "get_tool_schemas" in shown["hint"]
    assert "writeNewFile" in shown["hint"]
    assert "/new" not in WORLD.files
    await session.call("get_tool_schemas", {"names": ["writeNewFile"]})
    assert await told(session, "writeNewFile", arguments) == {"success": True, "path": "/new"}
    assert WORLD.files["/new"] == "text"


async def test_the_codes_own_names_are_aliases_of_the_documents(session: Session) -> None:
    await session.call("get_tool_schemas", {"names": ["web_fetch"]})
    assert names(session)[-1] == "fetch_url"
    assert await told(session, "cli_based_tool", {"command": "echo", "args": ["hi"]}) == {
        "returncode": 0,
        "stdout": "hi",
        "stderr": "",
    }


async def test_where_the_list_stands_still_activated_tools_are_called_through_call_tool(crib: Toolcrib) -> None:
    session = crib.session(profile="introspection", grows=False)
    before = names(session)
    assert before == [*CORE, "call_tool", "read_artifact"]
    wanted = {"name": "calculate", "arguments": {"expression": "6 * 7"}}
    assert "get_tool_schemas" in (await failed(session, "call_tool", wanted))["hint"]
    shown = await told(session, "get_tool_schemas", {"names": ["calculate"]})
    assert shown["activation_note"] == "These tools are now available to call through call_tool."
    assert await told(session, "call_tool", wanted) == {"result": 42}
    assert names(session) == before


async def test_with_deferral_off_everything_is_declared_and_callable(crib: Toolcrib) -> None:
    crib.profiles.add({"extends": "introspection", "name": "eager", "progressive": False})
    session = crib.session(profile="eager")
    assert names(session)[-3:] == ["list_tools", "get_tool_schemas", "read_artifact"]
    assert len(names(session)) == sum(COUNTS.values()) + 3
    assert await told(session, "calculate", {"expression": "6 * 7"}) == {"result": 42}


# Instructions of plugins


async def test_instructions_of_a_plugin_without_a_core_tool_come_with_its_first_activation_and_once(
    other: Toolcrib,
) -> None:
    await other.tools.mount_source(Plugin("lazy", "Be lazy.", made("nap", "lazy"), made("doze", "lazy")), prefix=False)
    await other.tools.mount_source(Plugin("keen", "Be keen.", made("go", "keen", core=True)), prefix=False)
    session = other.session(profile="introspection")
    before = session.instructions
    assert ("Be lazy." in before, before.count("Be keen.")) == (False, 1)
    await session.call("get_tool_schemas", {"names": ["nap"]})
    await session.call("get_tool_schemas", {"names": ["doze"]})
    assert session.instructions == f"{before}\n\nBe lazy."


async def test_where_the_list_stands_still_the_instructions_come_with_the_answer_and_once(other: Toolcrib) -> None:
    await other.tools.mount_source(Plugin("lazy", "Be lazy.", made("nap", "lazy"), made("doze", "lazy")), prefix=False)
    session = other.session(profile="introspection", grows=False)
    before = session.instructions
    first = await told(session, "get_tool_schemas", {"names": ["nap"]})
    second = await told(session, "get_tool_schemas", {"names": ["doze"]})
    assert (first["instructions"], "instructions" in second, session.instructions) == ("Be lazy.", False, before)


async def test_instructions_that_change_are_shown_though_no_tool_does(other: Toolcrib) -> None:
    plugin = Plugin("keen", "Be keen.", made("go", "keen", core=True))
    await other.tools.mount_source(plugin, prefix=False)
    session = other.session(profile="introspection")
    before = session.instructions
    plugin.says("Be calm.")
    assert session.instructions == before.replace("Be keen.", "Be calm.")


async def test_with_deferral_off_the_instructions_of_every_plugin_are_there_at_once(other: Toolcrib) -> None:
    await other.tools.mount_source(Plugin("lazy", "Be lazy.", made("nap", "lazy")), prefix=False)
    other.profiles.add({"extends": "introspection", "name": "eager", "progressive": False})
    assert other.session(profile="eager").instructions == "Be lazy."


async def test_the_instructions_name_nothing_that_cannot_be_called(session: Session) -> None:
    assert "list_tools" in session.instructions
    assert "call_tool" not in session.instructions


# Which definitions are in use


async def test_a_definition_is_kept_once_it_was_used_and_may_be_collected_before(session: Session) -> None:
    await session.call("get_tool_schemas", {"names": ["calculate", "add", "divide"]})
    await session.call("calculate", {"expression": "1 + 1"})
    await session.call("divide", {"a": 1, "b": 0})
    assert session.loaded == {"calculate": True, "add": False, "divide": False}
    assert session.unload_unused() == ("add", "divide")
    assert names(session) == [*CORE, "calculate"]
