"""Problems that come up while a crib is served are logged, once for as long as they last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rig import eventually
from toolcrib import Toolcrib, ToolResult
from toolcrib.core.context import Context
from toolcrib.core.tool import Tool
from toolcrib.server.problem_log import log_new_problems
from toolcrib.testing import ScriptedSource


async def run(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("ran")


def described(name: str, description: str) -> Tool:
    return Tool(name=name, source="s", local_name=name, description=description)


async def test_a_definition_that_changes_while_it_is_served_is_logged_once_and_again_when_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, other = ScriptedSource("s", {"echo": run}), ScriptedSource("t", {"look": run})
    async with Toolcrib() as crib:
        await crib.tools.mount_source(other, accept=False)
        await crib.tools.mount_source(source)
        log_new_problems(crib)
        lines: list[list[str]] = []
        for tool in ("Echo, and more", "Echo, and more!", "Scripted echo", "Echo, and more"):
            caplog.clear()
            source.set("echo", run, described("echo", tool))
            source.set("late", run)
            lines.append([record.getMessage() for record in caplog.records])

    assert [len(logged) for logged in lines] == [1, 0, 0, 1]
    assert lines[0] == lines[3]
    assert lines[0][0].startswith("s/echo: ")
    assert "`toolcrib accept s`" in lines[0][0]


async def test_what_comes_up_at_once_and_is_alike_is_logged_in_one_line_of_its_source(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = ScriptedSource("s", {"one": run, "two": run, "three": run})
    async with Toolcrib() as crib:
        log_new_problems(crib)
        await crib.tools.mount_source(source, accept=False)

    assert len(caplog.records) == 1
    assert "s: 3 tools are withheld" in caplog.records[0].getMessage()


async def test_a_name_that_looks_like_another_is_logged_once_when_it_comes_up_and_shown_among_the_problems(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, evil = ScriptedSource("good", {"get_log": run}), ScriptedSource("evil", {"look": run})
    async with Toolcrib() as crib:
        await crib.tools.mount_source(good)
        await crib.tools.mount_source(evil)
        log_new_problems(crib)
        evil.set("get_l0g", run)
        evil.set("later", run)
        found = await crib.tools.find_look_alikes()
        await eventually(lambda: bool(caplog.records))
        evil.set("last", run)
        await crib.tools.find_look_alikes()

    assert [(problem.source, problem.tool, problem.code) for problem in found] == [("evil", "get_l0g", "look_alike")]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["evil/get_l0g"]
    assert found[0] in crib.problems
