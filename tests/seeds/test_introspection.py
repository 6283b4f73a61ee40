"""Seed 003, walked along its checklist: the two verbs, activation, instructions, tools switched off and on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from seeds.rigging import failed, names, said, told
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import UsageError
from toolcrib.plugin import tool
from toolcrib.sources.source import Listing, Publish
from toolcrib.testing import RecordingApprover, ScriptedSource

PROFILE = "introspection"


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
    description: str = fields.pop("description", f"{name} it.")
    return Tool(name=name, local_name=name, source=source, description=description, annotations=reads, **fields)


# list_tools


async def categories(session: Session) -> list[str]:
    return [entry["name"] for entry in (await told(session, "list_tools"))["categories"]]


async def test_list_tools_gives_the_sorted_categories_with_their_counts(session: Session) -> None:
    shown = await told(session, "list_tools")
    listed = [entry["name"] for entry in shown["categories"]]
    (verb,) = [tool for tool in session.tools if tool.name == "list_tools"]
    assert set(shown) == {"categories", "total_tools", "hint"}
    assert listed == sorted(listed) == verb.input_schema["properties"]["category"]["enum"]
    assert shown["total_tools"] == sum(entry["tool_count"] for entry in shown["categories"])


async def test_a_listed_tool_says_where_it_comes_from_and_what_it_is_in_a_sentence_or_whole(other: Toolcrib) -> None:
    grep = made("grep_content", "query", category="search", description="Search the content of files. Matches stream.")
    grep = replace(grep, execution=Execution(streaming=True))
    await other.tools.mount_source(ScriptedSource("query", {"grep_content": said}, listed=[grep]), prefix=False)
    session = other.session(profile="introspection")
    shown = await told(session, "list_tools", {"category": "Search"})
    whole = await told(session, "list_tools", {"category": "search", "verbose": True})
    assert (shown["category"], shown["tool_count"], "get_tool_schemas" in shown["hint"]) == ("search", 1, True)
    assert shown["tools"] == [
        {
            "name": "grep_content",
            "plugin_source": "query",
            "enabled": True,
            "streaming": True,
            "description": "Search the content of files.",
        }
    ]
    assert whole["tools"][0]["description"] == "Search the content of files. Matches stream."


async def test_a_category_that_there_is_not_is_an_error_that_names_the_others(session: Session) -> None:
    assert await failed(session, "list_tools", {"category": "serach"}) == {
        "error": "Unknown category: serach",
        "hint": f"Available categories: {', '.join(await categories(session))}",
    }


@pytest.mark.parametrize(("length", "shown"), [(100, "w" * 100), (101, "w" * 97 + "...")])
async def test_a_description_that_is_no_sentence_is_cut_at_97_characters(
    other: Toolcrib, length: int, shown: str
) -> None:
    wordy = Tool(name="wordy", local_name="wordy", source="p", description="w" * length, category="search")
    await other.tools.mount_source(ScriptedSource("p", {"wordy": said}, listed=[wordy]), prefix=False)
    listed = await told(other.session(profile="introspection"), "list_tools", {"category": "search"})
    assert listed["tools"][-1]["description"] == shown


async def test_tools_without_a_category_are_listed_as_uncategorized(other: Toolcrib) -> None:
    await other.tools.mount_source(ScriptedSource("odd", {"odd_one": said}), prefix=False)
    session = other.session(profile="introspection")
    shown = await told(session, "list_tools", {"category": "uncategorized"})
    assert [entry["name"] for entry in shown["tools"]] == ["odd_one"]


# get_tool_schemas


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
    assert (await told(session, "get_tool_schemas", {"names": "calculate"}))["activated"] == ["calculate"]


async def test_unknown_names_are_reported_with_suggestions_and_the_known_ones_are_activated(session: Session) -> None:
    shown = await told(session, "get_tool_schemas", {"names": ["tags", "calculate", "Qqq"]})
    assert (shown["count"], shown["activated"], shown["not_found"]) == (1, ["calculate"], ["tags", "Qqq"])
    assert shown["suggestions"] == {"tags": ["list_memory_tags"]}
    assert "list_tools" in shown["hint"]


@pytest.mark.parametrize("given", [[], "", [" "]])
async def test_no_names_are_an_error(session: Session, given: object) -> None:
    core = names(session)
    shown = await failed(session, "get_tool_schemas", {"names": given})
    assert shown["error"] == "names is required: the names of tools"
    assert names(session) == core


async def test_core_tools_are_described_and_not_activated_again(session: Session) -> None:
    core = names(session)
    shown = await told(session, "get_tool_schemas", {"names": ["get_environment"]})
    assert (shown["count"], "activated" in shown) == (1, False)
    assert names(session) == core


async def test_only_what_is_new_is_reported_as_activated(session: Session) -> None:
    core = names(session)
    await session.call("get_tool_schemas", {"names": ["calculate"]})
    shown = await told(session, "get_tool_schemas", {"names": ["calculate", "add", "calculate"]})
    assert (shown["count"], shown["activated"]) == (2, ["add"])
    assert names(session) == [*core, "calculate", "add"]


async def test_an_exact_set_is_not_added_to(crib: Toolcrib) -> None:
    session = crib.session(profile="introspection", tools=["get_tool_schemas", "calculate"])
    shown = await told(session, "get_tool_schemas", {"names": ["calculate"]})
    assert ("activated" in shown, names(session)) == (False, ["get_tool_schemas", "calculate"])


# A tool that was not activated


async def test_where_the_list_stands_still_activated_tools_are_called_through_call_tool(crib: Toolcrib) -> None:
    session = crib.session(profile="introspection", grows=False)
    before = names(session)
    assert before[-2:] == ["call_tool", "read_artifact"]
    wanted = {"name": "calculate", "arguments": {"expression": "6 * 7"}}
    assert "get_tool_schemas" in (await failed(session, "call_tool", wanted))["hint"]
    shown = await told(session, "get_tool_schemas", {"names": ["calculate"]})
    assert shown["activation_note"] == "These tools are now available to call through call_tool."
    assert (await session.call("call_tool", wanted)).text == "42"
    assert names(session) == before


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


# Which definitions are in use


async def test_a_definition_is_kept_once_it_was_used_and_may_be_collected_before(session: Session) -> None:
    core = names(session)
    await session.call("get_tool_schemas", {"names": ["calculate", "add", "divide"]})
    await session.call("calculate", {"expression": "1 + 1"})
    await session.call("divide", {"a": 1, "b": 0})
    assert session.loaded == {"calculate": True, "add": False, "divide": False}
    assert session.unload_unused() == ("add", "divide")
    assert names(session) == [*core, "calculate"]


# On and off


async def test_a_tool_that_is_off_leaves_the_list_is_listed_as_off_and_runs_on_no_path(session: Session) -> None:
    core = names(session)
    await session.call("get_tool_schemas", {"names": ["calculate"]})
    session.disable("calculate", "get_environment")
    assert names(session) == [name for name in core if name != "get_environment"]
    given = {"expression": "6 * 7"}
    for name, arguments in (
        ("calculate", given),
        ("call_tool", {"name": "calculate", "arguments": given}),
        ("get_environment", {}),
    ):
        shown = await failed(session, name, arguments)
        assert "is switched off for this session" in shown["error"]
    (many,) = await session.call_many([("calculate", given)])
    assert many.error is not None
    assert many.error.code == "disabled"
    listed = await told(session, "list_tools", {"category": "system"})
    assert {"calculate"} <= {entry["name"] for entry in listed["tools"] if not entry["enabled"]}
    described = await told(session, "get_tool_schemas", {"names": ["calculate"]})
    assert (described["schemas"][0]["enabled"], "activated" in described) == (False, False)


async def test_a_tool_that_is_on_again_is_where_it_was(session: Session) -> None:
    await session.call("get_tool_schemas", {"names": ["calculate"]})
    before = session.listing
    session.disable("calculate", "get_environment")
    session.enable("calculate", "get_environment")
    assert session.listing == before


async def test_all_tools_can_be_switched_off_and_on_and_the_status_says_so(session: Session) -> None:
    core = names(session)
    session.disable_all()
    assert names(session) == ["list_tools", "get_tool_schemas"]
    assert set(session.status.values()) == {False}
    session.enable_all()
    assert (set(session.status.values()), names(session)) == ({True}, core)


async def test_what_the_crib_switches_off_is_off_in_every_session_and_no_session_can_undo_it(other: Toolcrib) -> None:
    earlier = other.session(profile="introspection")
    core = names(earlier)
    heard: list[tuple[str, ...]] = []
    other.tools.on_change(lambda change: heard.append(change.changed))
    other.tools.disable("add")
    earlier.enable("add")
    for session in (earlier, other.session(profile="introspection"), other.session(profile="flat")):
        result = await session.call("add", {"a": 1, "b": 2})
        assert result.error is not None
        assert (result.error.code, "add" in names(session)) == ("disabled", False)
    assert (other.tools.status["add"], earlier.status["add"]) == (False, False)
    other.tools.enable_all()
    assert names(earlier) == core
    assert heard == [("add",), ("add",)]


async def test_a_name_that_no_tool_has_cannot_be_switched(session: Session) -> None:
    with pytest.raises(UsageError, match="there is no tool 'calculte' to switch; did you mean calculate"):
        session.disable("add", "calculte")
    assert session.status["add"]


# Who is asked


async def test_a_name_that_no_tool_has_is_refused_before_anybody_is_asked(crib: Toolcrib) -> None:
    approver = RecordingApprover("yes")
    session = crib.session(profile="introspection", mode="cautious", approver=approver)
    shown = await failed(session, "frobnicate", {"path": "/x"})
    assert shown["error"] == "No executor registered for frobnicate"
    assert approver.questions == []


async def test_the_two_verbs_ask_nobody(crib: Toolcrib) -> None:
    approver = RecordingApprover("no")
    session = crib.session(profile="introspection", mode="cautious", approver=approver)
    await told(session, "list_tools")
    await told(session, "get_tool_schemas", {"names": ["calculate"]})
    assert approver.questions == []
