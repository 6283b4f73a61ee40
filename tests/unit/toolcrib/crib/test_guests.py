"""Built-in tools by category: the chosen ones alone, and never beside a server that does the same work."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from toolcrib import Toolcrib
from toolcrib.config.loader import bare, load_gateway
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.crib.plugins import categories_of_guests, load_guests
from toolcrib.disclosure.settings import seed_tools
from toolcrib.errors import ConfigError
from toolcrib.testing import ScriptedSource

INVENTORIES = Path(__file__).parents[3] / "seeds" / "inventories"
MINE = {tool.name for tool in load_guests(True, lambda section: None).every_tool}


def categories(crib: Toolcrib) -> set[str]:
    return {tool.category for tool in crib.catalog.tools.values() if tool.source == "builtin"}


def server(name: str, *tools: str) -> ScriptedSource:
    async def body(*_: object) -> ToolResult:
        return ToolResult()

    listed = [Tool(name=tool, local_name=tool, source=name, origin="mcp") for tool in tools]
    return ScriptedSource(name, dict.fromkeys(tools, body), listed=listed)


async def test_only_chosen_categories_are_there_and_an_unknown_one_is_a_problem_with_the_nearest_name() -> None:
    async with Toolcrib(bare().with_values(builtins=("text", "tim", "time")), memory=True) as crib:
        assert categories(crib) == {"text", "time"}
        [problem] = [problem for problem in crib.problems if problem.source == "builtins"]
        assert (problem.code, "'tim'; did you mean time?" in problem.message) == ("bad_config", True)


async def test_a_category_unlike_any_other_is_a_problem_with_all_categories() -> None:
    async with Toolcrib(bare().with_values(builtins=("util",)), memory=True) as crib:
        [problem] = crib.problems
        assert "'util'; categories: " in problem.message


@pytest.mark.parametrize(
    ("source", "left"),
    [
        (server("git", "anything"), {"files", "time", "web"}),
        (server("filesystem", "read_file", "write_file"), {"git", "time", "web"}),
        (server("mine", "read_file", "write_file", "x", "y", "z"), {"git", "time", "web"}),
        (server("fetch", "fetch"), {"files", "git", "time"}),
        (server("clock", "get_current_time", "convert_time"), {"files", "git", "web"}),
        (server("github", "create_issue", "get_file_contents", "search_code"), {"files", "git", "time", "web"}),
    ],
    ids=lambda value: value.name if isinstance(value, ScriptedSource) else "",
)
async def test_a_category_whose_work_a_server_does_is_left_out(
    tmp_path: Path, source: ScriptedSource, left: set[str]
) -> None:
    chosen = ("files", "git", "time", "web")
    settings = bare().with_values(builtins=chosen, workspace=WorkspaceSpec(roots=(tmp_path,)))
    async with Toolcrib(settings, memory=True) as crib:
        assert categories(crib) == set(chosen)
        await crib.tools.mount_source(source, trusted=True)
        assert categories(crib) == left
        await crib.tools.unmount(source.name)
        assert categories(crib) == set(chosen)


async def test_no_category_gives_way_to_a_server_of_other_work() -> None:
    every = tuple(sorted(set(categories_of_guests().values())))
    async with Toolcrib(bare().with_values(builtins=every), memory=True) as crib:
        before = set(crib.catalog.tools)
        await crib.tools.mount_source(server("zebra", "graze"), trusted=True)
        assert before - set(crib.catalog.tools) == set()


@pytest.mark.parametrize("profile", ["flat", "gateway", "tiered"])
async def test_the_tools_of_a_seed_stand_beside_a_server_that_does_the_same_work(profile: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("mode: cautious\n")
    settings = load_gateway([file], {"profile": profile}).with_values(workspace=WorkspaceSpec(roots=(tmp_path,)))
    async with Toolcrib(settings, memory=True) as crib:
        before = categories(crib)
        for name, tools in {"git": ["git_log"], "todo": ["list_tasks", "create_task"], "web": ["fetch"]}.items():
            await crib.tools.mount_source(server(name, *tools), trusted=True)
        assert categories(crib) == before


def gateway(tmp_path: Path, text: str, **options: str) -> bool | tuple[str, ...]:
    file = tmp_path / "config.yaml"
    file.write_text(f"mode: cautious\n{text}")
    return load_gateway([file], options).sources.builtins


async def test_single_tools_can_be_chosen_beside_categories() -> None:
    async with Toolcrib(bare().with_values(builtins=("math", "convert_time", "convrt_time")), memory=True) as crib:
        assert categories(crib) == {"math", "time"}
        assert "current_time" not in crib.catalog
        [problem] = [problem for problem in crib.problems if problem.source == "builtins"]
        assert "'convrt_time'; did you mean convert_time?" in problem.message


@pytest.mark.parametrize("profile", ["flat", "gateway", "introspection", "selection", "tiered"])
async def test_a_gateway_started_with_the_profile_of_a_seed_has_the_tools_of_that_seed_alone(
    profile: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("mode: cautious\n")
    lacks = [one.source for one in load_gateway([file], {"profile": profile}).problems]
    assert lacks == ([] if profile == "gateway" else ["builtins"])  # a workspace
    file.write_text(f"mode: cautious\nworkspace: {tmp_path}\n")
    settings = load_gateway([file], {"profile": profile})
    async with Toolcrib(settings, memory=True) as crib:
        there = {tool.name for tool in crib.catalog.tools.values() if tool.source == "builtin"}
        wanting = {name for source in crib.parts.inventory.sources.values() for name in getattr(source, "held", ())}
        labels = crib.session(profile=profile).visible.aliases
        words = yaml.load((INVENTORIES / f"{profile}.yaml").read_text(), yaml.CSafeLoader)
        own = {real.tool for word in words if (real := labels.rename_of(word)) and real.tool in MINE}
        assert own <= there | wanting
        assert [problem for problem in crib.problems if problem.source == "builtins"] == []
    assert 0 < len(there) < len(MINE)


def test_a_gateway_has_built_in_tools_when_they_are_chosen_or_when_it_is_started_with_the_profile_of_a_seed(
    tmp_path: Path,
) -> None:
    assert gateway(tmp_path, "") is False
    assert gateway(tmp_path, "builtins: [files, git]\n") == ("files", "git")
    assert gateway(tmp_path, "builtins: true\n") is True
    assert gateway(tmp_path, "", profile="selection") == seed_tools("selection")
    assert gateway(tmp_path, "builtins: [files]\n", profile="tiered") == ("files",)
    assert gateway(tmp_path, "", profile="tiered", guard="off") is False
    assert gateway(tmp_path, "builtins: [files]\n", guard="off") == ("files",)
    with pytest.raises(ConfigError, match=r"config\.yaml:2.*builtins.*true, false or a list of categories"):
        gateway(tmp_path, "builtins: files\n")
