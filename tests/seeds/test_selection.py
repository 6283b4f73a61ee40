"""Seed 004, walked along its checklist: the registry, the three levels, simple tasks, routing."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from seeds.rigging import SEEDS, seeded
from seeds.selection_skills import GROUPS, SKILLS, names, skills_of, write_skill
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Capability, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import ConfigError, UsageError
from toolcrib.plugin import tool
from toolcrib.sources.yaml.source import YamlSource
from toolcrib.testing import ScriptedSource

CORE = [
    "plan",
    "hitl",
    "nodes",
    "knowledge_search",
    "memory_recall",
    "observe_screen",
    "api_calling",
    "scheduled_task",
    "open_system_preferences",
]
"""By priority, the catalog's order among equals."""
SIMPLE = ["nodes", "knowledge_search", "hitl", "memory_recall"]


@pytest.fixture(scope="module")
async def crib(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolcrib]:
    async with seeded("selection") as opened:
        source = skills_of(tmp_path_factory.mktemp("skills"), SKILLS, GROUPS)
        await opened.tools.mount_source(source, prefix=False, trusted=True)
        await source.ready()
        yield opened


@pytest.fixture
async def other() -> AsyncGenerator[Toolcrib]:
    """A crib of its own, for a test that changes what there is."""
    async with seeded("selection") as opened:
        yield opened


def of(crib: Toolcrib, **wanted: Any) -> Session:
    return crib.session(profile="selection", **wanted)


def with_options(crib: Toolcrib, **options: Any) -> str:
    """Add a profile of the user's own that has these options; return its name."""
    crib.profiles.add({"name": "mine", "extends": "selection", "options": options})
    return "mine"


async def runs(*_: Any) -> ToolResult:
    return ToolResult.of_text("done")


async def added(crib: Toolcrib, *tools: Tool) -> None:
    """Add tools of which only the record matters."""
    source = ScriptedSource(tools[0].source, {tool.local_name: runs for tool in tools}, listed=tools)
    await crib.tools.mount_source(source, prefix=False, trusted=True)


READING = ("list_resources", "read_resource")
"""Tools of ours, there because the files of skills are resources."""


def made(name: str, *tags: str, **record: Any) -> Tool:
    return Tool(
        name=name,
        local_name=name,
        source="more",
        tags=tags,
        annotations=Annotations(read_only=True),
        capability=Capability(**record),
    )


class TestRegistry:
    async def test_a_skill_whose_name_a_capability_has_is_not_taken_and_is_reported(self, crib: Toolcrib) -> None:
        assert [(problem.source, problem.tool, problem.code) for problem in crib.problems] == [
            ("skills", "browser", "collision")
        ]

    @pytest.mark.parametrize("name", ["memory-recall", "memory_recall", "Memory Recall"])
    async def test_hyphen_underscore_and_case_do_not_matter_to_a_name(self, crib: Toolcrib, name: str) -> None:
        found = crib.catalog.find(name)
        assert (found.name if found else None) == "memory_recall"

    async def test_a_bad_entry_and_a_switched_off_one_hide_nothing_else(self, tmp_path: Path) -> None:
        text = (SEEDS / "selection.yaml").read_text(encoding="utf-8")
        text += "\n  - name: broken\n    priority: 900\n  - {name: off, enabled: false}\n  - x: [\n"
        file = tmp_path / "capabilities.yaml"
        file.write_text(text, encoding="utf-8")
        async with Toolcrib() as crib:
            source = YamlSource("selection", file)
            await crib.tools.mount_source(source, prefix=False, trusted=True)
            await source.ready()
            assert (names(of(crib)), "broken" in crib.catalog.tools, "off" in crib.catalog.tools) == (
                CORE,
                False,
                False,
            )
            assert any("broken" in problem.message for problem in crib.problems)

    async def test_the_tools_of_an_instance_are_selected_for_it_alone(self, other: Toolcrib) -> None:
        @tool(tags=["web_browsing"], kind="read", priority=80)
        def api_weather() -> str:
            """Say what the weather is."""
            return "clear"

        await other.tools.add_for("office", api_weather)
        wanted = ["web_browsing"]
        mine, theirs = (
            of(other, instance="office", required_capabilities=wanted),
            of(other, required_capabilities=wanted),
        )
        assert (names(mine)[9:], names(theirs)[9:]) == (["api_weather", "browser"], ["browser"])

    async def test_a_tag_does_not_hide_the_category_of_the_same_name(self, other: Toolcrib) -> None:
        await added(other, replace(made("peel"), category="fruit"), made("weigh", "fruit"))
        assert set(names(of(other, intent={"required_tools": ["fruit"]}))) - set(CORE) == {"peel", "weigh"}


class TestLevelOne:
    async def test_core_tools_are_there_whatever_the_task_is(self, crib: Toolcrib) -> None:
        selection = of(crib, required_capabilities=["web_browsing"]).selection
        assert [entry.name for entry in selection.base_tools] == CORE

    async def test_an_override_takes_their_place_in_its_own_order(self, crib: Toolcrib) -> None:
        mine = with_options(crib, core_tools_override=["hitl", "browser"])
        session = crib.session(profile=mine, intent={"required_tools": ["browser"]})
        assert (names(session), [entry.name for entry in session.selection.base_tools]) == (["hitl", "browser"],) * 2

    async def test_the_core_of_a_profile_comes_first_and_stands_still(self, crib: Toolcrib) -> None:
        crib.profiles.add({"name": "mine", "extends": "selection", "core": ["browser", "nodes"]})
        assert names(crib.session(profile="mine"))[:3] == ["browser", "nodes", "plan"]


class TestLevelTwo:
    @pytest.mark.parametrize(
        "wanted",
        [
            {"required_capabilities": ["web_browsing"]},
            {"required_capabilities": ["Web-Browsing"]},
            {"plan": {"required_capabilities": ["web_browsing"]}},
            {"plan": {"required_skills": ["web_browsing"]}},
            {"plan": {"required_tools": ["browser"]}},
            {"intent": {"required_capabilities": ["web_browsing"]}},
            {"intent": {"required_tools": ["browser"]}},
        ],
        ids=str,
    )
    async def test_a_capability_is_asked_for_by_caller_plan_or_intent(
        self, crib: Toolcrib, wanted: dict[str, Any]
    ) -> None:
        assert "browser" in names(of(crib, **wanted))[9:]

    async def test_what_nobody_asked_for_is_not_there(self, crib: Toolcrib) -> None:
        assert names(of(crib, required_capabilities=["code_execution"])) == [*CORE, "code_execution"]

    async def test_where_nobody_asks_the_capabilities_of_the_core_count(self, crib: Toolcrib) -> None:
        session = of(crib)
        assert (names(session), session.selection.reason) == (
            CORE,
            "nothing is known of the task: the capabilities of the core tools",
        )

    async def test_then_a_tool_that_shares_one_of_them_is_there_too(self, other: Toolcrib) -> None:
        await added(other, made("organizer", "task_planning"))
        assert names(of(other)) == [*CORE, "organizer"]

    async def test_or_all_tools_are_there_where_the_profile_says_so(self, crib: Toolcrib) -> None:
        mine = with_options(crib, unknown_task="all")
        assert len(names(crib.session(profile=mine))) == 69 + len(READING)

    async def test_the_matching_tools_come_by_priority(self, other: Toolcrib) -> None:
        tools = [made(f"p{priority}", "drawing", priority=priority) for priority in (10, 90, 50)]
        await added(other, *tools)
        assert names(of(other, required_capabilities=["drawing"])) == [*CORE, "p90", "p50", "p10"]

    @pytest.mark.parametrize("group", ["slides", "Slides"])
    async def test_a_skill_group_of_the_intent_becomes_its_skills(self, crib: Toolcrib, group: str) -> None:
        session = of(crib, intent={"relevant_skill_groups": [group]})
        assert names(session) == [*CORE, "ppt-generator", "slidespeak-generator"]

    async def test_and_its_capabilities(self, crib: Toolcrib) -> None:
        assert names(of(crib, intent={"skill_groups": ["research"]})) == [*CORE, "browser", "summarize"]

    async def test_the_example_of_the_document_comes_true(self, other: Toolcrib, tmp_path: Path) -> None:
        made_up = ["excel-analyzer", "csv-processor", "chart-generator"]
        tags = ["[data_processing]", "[data_processing]", "[visualization]"]
        for name, said in zip(made_up, tags, strict=True):
            write_skill(tmp_path, name, priority="high", capabilities=said)
        groups = {"data_analysis": {"capabilities": ["data_processing", "visualization"]}}
        source = skills_of(tmp_path, made_up, groups)
        await other.tools.mount_source(source, prefix=False, trusted=True)
        await source.ready()
        session = of(other, intent={"relevant_skill_groups": ["data_analysis"]})
        assert set(names(session)[9:]) == {*made_up, "code_execution"}

    async def test_also_for_tools_of_a_catalog_without_a_group_of_its_own(self, other: Toolcrib) -> None:
        tags = ("data_processing", "visualization", "data_analysis", "gardening")
        await added(other, *(made(f"about_{tag}", tag) for tag in tags))
        session = of(other, intent={"relevant_skill_groups": ["data_analysis", "Gardening"]})
        assert {f"about_{tag}" for tag in tags} <= set(names(session))
        assert session.selection.warnings == ()

    async def test_groups_can_be_said_in_the_profile(self, crib: Toolcrib) -> None:
        mine = with_options(crib, skill_groups={"talk": ["slack", "discord"], "_always": ["weather"]})
        session = crib.session(profile=mine, intent={"skill_groups": ["talk"]})
        assert names(session)[9:] == ["discord", "slack", "weather"]

    async def test_the_group_of_all_tasks_asks_for_nothing(self, crib: Toolcrib) -> None:
        mine = with_options(crib, skill_groups={"_always": ["weather"]}, unknown_task="all")
        session = crib.session(profile=mine)
        shown = (len(names(session)) - len(READING), session.selection.reason)
        assert shown == (69, "nothing is known of the task: all tools")

    async def test_a_tool_that_is_named_does_not_bring_those_that_have_its_name_as_a_tag(self, other: Toolcrib) -> None:
        await added(other, made("notebook", "code_execution"))
        by_name = of(other, intent={"required_tools": ["code_execution"]})
        by_tag = of(other, required_capabilities=["code_execution"])
        assert (names(by_name)[9:], names(by_tag)[9:]) == (["code_execution"], ["code_execution", "notebook"])

    @pytest.mark.parametrize(
        ("available", "is_there"),
        [({}, True), ({"network": True}, True), ({"network": False}, False)],
    )
    async def test_what_needs_the_network_is_there_with_it(
        self, crib: Toolcrib, available: dict[str, bool], is_there: bool
    ) -> None:
        session = of(crib, required_capabilities=["web_browsing"], available=available)
        assert ("browser" in names(session)) is is_there
        assert session.selection.left_out == ({} if is_there else {"browser": "it needs the network"})

    @pytest.mark.parametrize(
        ("needs", "available", "why"),
        [
            ({"requires_auth": True}, {"auth": False}, "it needs a signed-in user"),
            ({"requires_api": True, "api_name": "stripe"}, {"apis": ["github"]}, "it needs the API stripe"),
            ({"requires_api": True, "api_name": "stripe"}, {"apis": ["Stripe"]}, ""),
            ({"requires_api": True}, {"apis": []}, "it needs an API"),
            ({"requires_api": True, "api_name": "stripe"}, {}, ""),
        ],
        ids=str,
    )
    async def test_what_needs_something_else_is_left_out_with_the_reason(
        self, other: Toolcrib, needs: dict[str, Any], available: dict[str, Any], why: str
    ) -> None:
        await added(other, made("pay", "payment", constraints=needs))
        session = of(other, required_capabilities=["payment"], available=available)
        assert (session.selection.left_out.get("pay", ""), "pay" in names(session)) == (why, not why)

    async def test_what_is_for_internal_use_is_never_selected(self, other: Toolcrib) -> None:
        await added(other, made("audit", "payment", constraints={"internal_use_only": True}))
        assert names(of(other, required_capabilities=["payment", "audit"])) == CORE

    async def test_a_chosen_skill_brings_its_fallback_and_the_tools_of_its_kind(self, other: Toolcrib) -> None:
        await added(
            other,
            made("deck", "slides", "drawing", type="SKILL", fallback_tool="browser"),
            made("draw", "drawing"),
            made("drawing-lore", "drawing", type="SKILL"),
        )
        assert set(names(of(other, required_capabilities=["slides"]))[9:]) == {"deck", "browser", "draw"}

    @pytest.mark.parametrize(
        ("wanted", "warning"),
        [
            (
                {"required_capabilities": ["web_browsin"]},
                "the caller asks for 'web_browsin', which no tool here offers; did you mean web_browsing",
            ),
            ({"plan": {"required_skills": ["juggling"]}}, "the plan asks for 'juggling', which no tool here offers"),
            ({"intent": {"skill_groups": ["slide"]}}, "the intent chose the skill group 'slide', which does not exist"),
            ({"intent": {"skillgroups": ["slides"]}}, "'skillgroups'"),
            ({"intent": {"skill_groups": ["empty"]}}, "the skill group 'empty' brings no tool: it wants pottery"),
        ],
        ids=str,
    )
    async def test_what_does_not_exist_is_a_warning_and_ignored(
        self, crib: Toolcrib, wanted: dict[str, Any], warning: str
    ) -> None:
        mine = with_options(crib, skill_groups={"empty": {"skills": ["pottery"]}})
        selection = crib.session(profile=mine, **wanted).selection
        assert (len(selection.warnings), warning in selection.warnings[0]) == (1, True)
        assert list(selection.names) == CORE


class TestLevelThree:
    async def test_the_whitelist_limits_core_tools_too(self, crib: Toolcrib) -> None:
        allowed = ["hitl", "browser", "code_execution"]
        session = of(crib, allowed_tools=allowed, required_capabilities=["web_browsing"])
        assert names(session) == ["hitl", "browser"]

    async def test_a_whitelist_of_the_intent_does_the_same(self, crib: Toolcrib) -> None:
        intent = {"allowed_tools": ["hitl", "browser"], "required_capabilities": ["web_browsing"]}
        selection = of(crib, intent=intent).selection
        assert (list(selection.names), selection.left_out["plan"]) == (
            ["hitl", "browser"],
            "the whitelist does not name it",
        )

    async def test_the_list_of_the_schema_is_wanted_and_a_whitelist(self, crib: Toolcrib) -> None:
        mine = with_options(crib, tools=["browser", "plan"])
        assert names(crib.session(profile=mine)) == ["plan", "browser"]

    async def test_a_category_in_it_stands_for_all_its_tools(self, crib: Toolcrib) -> None:
        mine = with_options(crib, tools=["slides", "file_operations"])
        assert names(crib.session(profile=mine)) == ["nodes", "ppt-generator", "slidespeak-generator"]

    async def test_names_in_it_that_do_not_exist_are_dropped_and_reported(self, crib: Toolcrib) -> None:
        mine = with_options(crib, tools=["browser", "teleport"])
        session = crib.session(profile=mine)
        assert (names(session), len(session.selection.warnings)) == (["browser"], 1)

    async def test_a_list_of_nothing_but_unknown_names_is_no_whitelist(self, crib: Toolcrib) -> None:
        mine = with_options(crib, tools=["teleport"])
        assert names(crib.session(profile=mine)) == CORE

    @pytest.mark.parametrize(
        "wanted", [{"allowed_tools": []}, {"intent": {"allowed_tools": []}}, {"tools": []}], ids=str
    )
    async def test_only_an_empty_whitelist_gives_no_tool(self, crib: Toolcrib, wanted: dict[str, Any]) -> None:
        assert names(of(crib, **wanted)) == []

    async def test_an_exact_set_is_taken_as_it_is(self, crib: Toolcrib) -> None:
        assert names(of(crib, tools=["weather", "plan"])) == ["weather", "plan"]


class TestSimpleTasks:
    async def test_a_simple_task_gets_four_tools_and_nothing_else(self, crib: Toolcrib) -> None:
        session = of(crib, intent={"complexity": "simple", "skill_groups": ["slides"]})
        assert (names(session), session.selection.reason) == (SIMPLE, "a simple task")

    @pytest.mark.parametrize(
        "wanted",
        [
            {"intent": {"complexity": "simple", "needs_plan": True}},
            {"intent": {"complexity": "simple", "is_follow_up": True}},
            {"intent": {"complexity": "simple"}, "plan": {"name": "p"}},
            {"intent": {"complexity": "medium"}},
            {"intent": {}},
        ],
        ids=str,
    )
    async def test_it_is_none_with_a_plan_in_it_or_behind_it(self, crib: Toolcrib, wanted: dict[str, Any]) -> None:
        assert names(of(crib, **wanted)) == CORE

    async def test_what_the_intent_asks_for_by_name_comes_along(self, crib: Toolcrib) -> None:
        session = of(crib, intent={"complexity": "simple", "required_tools": ["browser", "hitl"]})
        assert names(session) == [*SIMPLE, "browser"]

    async def test_the_whitelist_holds_here_too(self, crib: Toolcrib) -> None:
        session = of(crib, intent={"complexity": "simple"}, allowed_tools=["hitl", "plan"])
        assert names(session) == ["hitl"]

    async def test_the_set_can_be_another(self, crib: Toolcrib) -> None:
        mine = with_options(crib, simple_task_tools=["weather", "plan"])
        assert names(crib.session(profile=mine, intent={"complexity": "simple"})) == ["weather", "plan"]

    async def test_where_there_is_none_of_it_the_task_is_treated_as_any_other(self, crib: Toolcrib) -> None:
        mine = with_options(crib, simple_task_tools=["teleport"])
        assert names(crib.session(profile=mine, intent={"complexity": "simple"})) == CORE


class TestInteractions:
    async def test_every_interaction_is_selected_for_anew(self, crib: Toolcrib) -> None:
        session = of(crib, intent={"complexity": "simple"})
        seen = [names(session)]
        session.begin(intent={"required_tools": ["browser"]})
        seen.append(names(session))
        session.begin()
        seen.append(names(session))
        assert seen == [SIMPLE, [*CORE, "browser"], CORE]

    async def test_the_same_task_gives_the_same_bytes(self, crib: Toolcrib) -> None:
        wanted = {"intent": {"skill_groups": ["slides", "research"]}}
        assert of(crib, **wanted).listing == of(crib, **wanted).listing

    async def test_something_is_always_left(self, crib: Toolcrib) -> None:
        mine = with_options(crib, core_tools_override=["teleport"], tools=["browser"], available={"network": False})
        assert names(crib.session(profile=mine)) == ["browser"]

    async def test_a_catalog_without_tags_or_core_is_shown_whole(self) -> None:
        async with Toolcrib() as crib:
            await added(crib, made("one"), made("two"))
            assert names(crib.session(profile="selection")) == ["one", "two"]

    async def test_where_the_list_stands_still_the_reader_of_long_results_is_always_in_it(self, crib: Toolcrib) -> None:
        assert names(of(crib, grows=False)) == [*CORE, "read_artifact"]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"available": {"netwrok": True}},
            {"available": {"network": "no"}},
            {"available": {"apis": "stripe"}},
            {"intent": "simple"},
            {"intent": {"skill_groups": 1j}},
            {"required_capabilities": "web_browsing"},
        ],
        ids=str,
    )
    async def test_what_cannot_be_is_refused_at_once(self, crib: Toolcrib, wrong: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            of(crib, **wrong)

    @pytest.mark.parametrize(
        "options",
        [{"unknown_task": "some"}, {"unknown_task": True}, {"simple_task_tools": "plan"}, {"simple": []}],
        ids=str,
    )
    async def test_so_is_an_option_that_the_strategy_does_not_have(
        self, crib: Toolcrib, options: dict[str, Any]
    ) -> None:
        with pytest.raises(ConfigError, match="options"):
            with_options(crib, **options)


class TestRouting:
    async def test_a_name_that_is_said_beats_everything(self, crib: Toolcrib) -> None:
        route = of(crib).route("make slides with ppt-generator please")
        assert route.best is not None
        assert (route.best.tool.name, route.best.score) == ("ppt-generator", 10_000)

    @pytest.mark.parametrize("query", ["plan", "use the `plan` tool"])
    async def test_a_name_that_is_a_word_counts_alone_or_in_quotes(self, crib: Toolcrib, query: str) -> None:
        best, other = of(crib).route(query).best, of(crib).route("the plan is to search the web").best
        assert (best.score if best else 0, (other.score if other else 0) < 10_000) == (10_000, True)

    async def test_the_score_is_priority_type_subtype_and_cost(self, crib: Toolcrib) -> None:
        best = of(crib).route(capability="web_browsing").best
        assert best is not None
        assert (best.tool.name, best.score) == ("browser", 60 + 5 * 8 + 5 * 5 - 15)

    async def test_quality_and_context_add_to_it(self, other: Toolcrib) -> None:
        await added(
            other,
            made("fine", "drawing", metadata={"quality": "high"}),
            made("fair", "drawing", metadata={"quality": "medium"}),
            made("poor", "drawing", metadata={"quality": "low"}),
        )
        session = of(other, required_capabilities=["drawing"])
        scores = {c.tool.name: c.score for c in _all(session.route(capability="drawing", quality="high"))}
        await session.call("poor")
        again = {c.tool.name: c.score for c in _all(session.route(capability="drawing"))}
        base = 50 + 5 * 8
        assert scores == {"fine": base + 20, "fair": base + 10, "poor": base}
        assert again == {"poor": base + 15, "fine": base + 10, "fair": base + 10}

    async def test_up_to_three_others_are_named(self, other: Toolcrib) -> None:
        await added(other, *(made(f"d{priority}", "drawing", priority=priority) for priority in (1, 2, 3, 4, 5)))
        route = of(other).route(capability="drawing")
        assert (route.tool and route.tool.name, [c.tool.name for c in route.alternatives]) == ("d5", ["d4", "d3", "d2"])

    async def test_what_cannot_work_here_is_no_candidate(self, crib: Toolcrib) -> None:
        found = of(crib, available={"network": False}).route(capability="web_browsing").tool
        assert found is not None
        assert found.name == "summarize"

    async def test_words_find_what_they_describe(self, crib: Toolcrib) -> None:
        found = of(crib).route("what is on the screen").tool
        assert found is not None
        assert found.name == "observe_screen"


def _all(route: Any) -> list[Any]:
    return [route.best, *route.alternatives]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
