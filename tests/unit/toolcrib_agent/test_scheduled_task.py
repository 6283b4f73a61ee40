"""Tasks of schedules: an agent does them with the rights of the creator, and nobody waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import Settings
from toolcrib.config.directories import Directories
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.crib import Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.testing import ScriptedSource
from toolcrib.testing.models import ScriptedModel, calls
from toolcrib_agent.scheduled_task import run_task

START = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncIterator[Toolcrib]:
    async def ping(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text(f"pong for {context.principal}")

    directories = Directories.of({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")})
    environment = {"TOOLCRIB_MODEL": "nobody:none"}
    async with Toolcrib(Settings.of(directories, builtins=False, environment=environment)) as opened:
        tools = [Tool(name="ping", local_name="ping", source="net", input_schema=SCHEMA)]
        source = ScriptedSource("net", {"ping": ping}, listed=tools)
        await opened.tools.mount_source(source, prefix=False, trusted=True)
        yield opened


@pytest.mark.parametrize(("rules", "outcome"), [({}, "ok"), ({"deny": ["ping"]}, "denied")])
async def test_an_agent_does_a_task_with_the_rights_of_the_session(
    crib: Toolcrib, rules: dict[Any, list[str]], outcome: str
) -> None:
    model = ScriptedModel(calls("ping", text="hello"), "All is well.")
    session = crib.session(mode="autonomous", principal="ada", rules=rules, contexts=("global", "schedule"))

    result = await run_task(session, "Look whether all is well.", model=model)

    rows = [(row.tool, row.outcome, row.principal) for row in await crib.store.calls.list()]
    assert (result.text, rows) == ("All is well.", [("ping", outcome, "ada")])


async def test_without_a_model_a_task_is_unavailable(crib: Toolcrib) -> None:
    with pytest.raises(ToolFailure) as failure:
        await run_task(crib.session(), "Look.")

    assert failure.value.code == "unavailable"


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [None, ["ping"]])
async def test_a_schedule_runs_an_agent_and_no_other_session_can(crib: Toolcrib, allowed: list[str] | None) -> None:
    scheduler, now = crib.schedules.scheduler, START
    scheduler.clock = lambda: now
    session = crib.session(mode="autonomous", principal="ada", allowed_tools=allowed, key="k")
    one, _ = await crib.schedules.of("ada", "k").create(
        title="Look",
        trigger_type="interval",
        trigger_config={"interval_seconds": 60},
        action={"type": "agent_task", "prompt": "Say ping."},
    )
    await crib.schedules.start()
    now += 60

    await scheduler.stop()  # a run ends within `fire_due`
    await scheduler.fire_due()

    rows = [(row.tool, row.outcome, row.principal) for row in await crib.store.calls.list()]
    assert (rows, (await scheduler.get(one.id, None)).outcome) == (
        [("run_agent_task", "unavailable", "ada")],  # this configuration has no model that can be used
        "unavailable",
    )
    assert (await session.call("run_agent_task", {"prompt": "x"})).is_error
    assert "run_agent_task" not in {tool.name for tool in session.tools}
