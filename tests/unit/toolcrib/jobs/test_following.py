"""A model that was told of a task can ask for it; where it could not, its call has no task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib import Toolcrib
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.errors import ToolFailure
from toolcrib.testing import ScriptedSource

READS = Annotations(read_only=True, destructive=False)
BUILD = Tool(
    name="build",
    local_name="build",
    source="make",
    execution=Execution(background_after=0.01),
    annotations=READS,
    tags=("made",),
)
SETUPS: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "flat": {},
    "tiered": {},
    "introspection": {},
    "selection": {"required_capabilities": ["made"]},
}


class Maker:
    """A tool that the test lets go."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.begun = anyio.Event()

    async def __call__(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.begun.set()
        await self.go.wait()
        return ToolResult.of_text("built")

    async def mounted(self, crib: Toolcrib) -> None:
        await crib.tools.mount_source(
            ScriptedSource("make", {"build": self}, listed=[BUILD]), prefix=False, trusted=True
        )


@pytest.mark.parametrize("profile", SETUPS)
async def test_a_model_can_ask_for_the_task_that_it_was_told_of(profile: str) -> None:
    maker = Maker()
    async with Toolcrib() as crib:
        await maker.mounted(crib)
        session = crib.session(profile=profile, **SETUPS[profile])
        if profile == "introspection":
            await session.call("get_tool_schemas", {"names": ["build"]})
        told = await session.call("build", {})
        maker.go.set()
        asked = {"task_id": told.structured_content["task_id"], "wait_seconds": 30}
        assert (await session.call("get_background_task", asked)).text == "built"


async def test_a_gateway_tells_of_a_task_by_the_op_that_it_runs() -> None:
    maker = Maker()
    async with Toolcrib() as crib:
        await maker.mounted(crib)
        session = crib.session(profile="gateway")
        told = (await session.call("tool_exec", {"op": "build", "args": {}})).structured_content["result"]
        listed = await crib.jobs.list("local")
        assert (told["tool_name"], [job.tool for job in listed]) == ("x.make.build", ["x.make.build"])


@pytest.mark.parametrize("scope", [{"tools": ["build"]}, {"allowed_tools": ["build"]}])
async def test_a_session_that_may_not_ask_for_tasks_waits_for_its_result(scope: dict[str, Any]) -> None:
    maker = Maker()
    async with Toolcrib() as crib:
        await maker.mounted(crib)
        session = crib.session(profile="adaptive", **scope)
        results: list[ToolResult] = []

        async def call() -> None:
            results.append(await session.call("build", {}))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await maker.begun.wait()
                maker.go.set()
        assert ([result.text for result in results], await crib.jobs.list("local")) == (["built"], ())


async def test_asking_for_a_task_that_failed_is_no_failure_of_the_tool_that_asks() -> None:
    async def broken(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        raise ToolFailure("tool_error", "no such target")

    async with Toolcrib() as crib:
        source = ScriptedSource("make", {"build": broken}, listed=[BUILD])
        await crib.tools.mount_source(source, prefix=False, trusted=True)
        session = crib.session(profile="flat")
        told = await session.call("build", {}, background=True)
        for _ in range(4):
            asked = {"task_id": told.structured_content["task_id"], "wait_seconds": 30}
            assert (await session.call("get_background_task", asked)).is_error
        assert dict(session.state.history.failures) == {"build": 1}


async def test_while_the_crib_closes_no_other_job_begins() -> None:
    maker, refused = Maker(), list[str]()
    crib = Toolcrib()
    async with crib:
        session = crib.session(profile="flat")

        async def stubborn(arguments: Mapping[str, Any], context: Context) -> ToolResult:
            maker.begun.set()
            try:
                await maker.go.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    result = await session.call("build", {}, background=True)
                    refused.append(result.error.code if result.error else "ok")
            return ToolResult.of_text("built")

        await crib.tools.mount_source(
            ScriptedSource("make", {"build": stubborn}, listed=[BUILD]), prefix=False, trusted=True
        )
        await session.call("build", {}, background=True)
        await maker.begun.wait()
        with anyio.fail_after(PATIENCE):
            await crib.jobs.close()
    assert refused == ["unavailable"]
