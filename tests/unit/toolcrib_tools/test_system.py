"""The system tools: figures that agree with what the machine and the records say, and nobody else's business."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.budget import Budget, Budgets
from toolcrib.core.context import Context
from toolcrib.crib.session import Session
from toolcrib.errors import ToolFailure
from toolcrib.plugin import tool
from toolcrib_tools import system
from toolcrib_tools.system import system_monitor
from unit.toolcrib_tools.telling import told


@tool(category="shop", kind="read")
def price(item: str) -> str:
    """Tell a price.

    Args:
        item: Of what.
    """
    if item == "nothing":
        raise ToolFailure("not_found", "there is no such thing")
    return f"{item}: " + "9" * 98


@asynccontextmanager
async def opened(**settings: Any) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(**settings), memory=True) as crib:
        crib.add(system, price)
        yield crib


# The machine


async def test_the_machine_is_told_as_it_is(ctx: Context, folder: Path) -> None:
    told = await system_monitor(ctx)
    disk = shutil.disk_usage(folder)

    assert told.keys() == {"system", "uptime_seconds", "cpu", "memory", "swap", "disk"}
    assert told["cpu"]["cores"] == os.cpu_count()
    assert 0 <= told["cpu"]["percent"] <= 100
    assert told["disk"]["total_mib"] == disk.total >> 20
    assert 0 < told["memory"]["available_mib"] < told["memory"]["total_mib"]
    if sys.platform == "linux":
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        assert told["memory"]["total_mib"] == int(lines["MemTotal"].split()[0]) // 1024


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a driver's program on the path, and nothing else."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.process
async def test_graphics_cards_are_told_by_their_driver(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "--query-gpu=name,utilization.gpu,memory.used,memory.total,temperature.gpu --format=csv,noheader,nounits"
    cards = "NVIDIA A100, 35, 1024, 40960, 51\\nTesla T4, [N/A], 0, 15360, 33\\n"
    driver(tmp_path, monkeypatch, f"""[ "$*" = "{asked}" ] && printf '{cards}'""")

    told = await system_monitor(ctx, include_gpu=True)

    assert told["gpus"] == [
        {"name": "NVIDIA A100", "percent": 35, "memory_used_mib": 1024, "memory_total_mib": 40960, "celsius": 51},
        {"name": "Tesla T4", "percent": None, "memory_used_mib": 0, "memory_total_mib": 15360, "celsius": 33},
    ]


@pytest.mark.process
async def test_a_driver_that_fails_or_is_missing_is_said(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, monkeypatch, "echo no devices were found; exit 6")
    with pytest.raises(ToolFailure) as failed:
        await system_monitor(ctx, include_gpu=True)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(ToolFailure) as missing:
        await system_monitor(ctx, include_gpu=True)

    assert (failed.value.code, failed.value.message) == ("tool_error", "nvidia-smi failed: no devices were found")
    assert missing.value.code == "unavailable"


async def test_without_the_library_the_extra_is_named(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)

    with pytest.raises(ToolFailure) as failure:
        await system_monitor(ctx)

    assert failure.value.code == "unavailable"
    assert "install the extra `system`" in (failure.value.hint or "")


# Toolcrib itself


async def test_the_status_is_that_of_the_session(folder: Path) -> None:
    async with opened() as crib:
        plain = await told(crib.session(profile="flat"), "get_status")
        working = await told(crib.session(profile="flat", mode="autonomous", workspace=folder), "get_status")

    assert plain["version"] == version("toolcrib")
    assert plain["session"] == {
        "profile": "flat",
        "mode": "cautious",
        "folders": [],
        "has": [],
        "tainted_by": None,
        "description": None,
    }
    assert plain["tools"]["by_category"]["shop"] == 1
    assert plain["tools"]["count"] == sum(plain["tools"]["by_category"].values())
    assert (working["session"]["mode"], working["session"]["folders"]) == ("autonomous", [str(folder)])
    assert "workspace" in working["session"]["has"]


@pytest.mark.process
async def test_problems_and_sources_are_for_whoever_runs_it() -> None:
    broken = {"mcpServers": {"gone": {"command": "toolcrib-no-such-program"}}}
    async with opened() as crib:
        await crib.mount(broken)
        await crib.tools.wait_ready(60)
        ours = await told(crib.session(profile="flat"), "get_status")
        theirs = await told(crib.session(profile="flat", principal="guest"), "get_status")

    gone = next(source for source in ours["sources"] if source["source"] == "gone")
    assert (gone["kind"], gone["state"]) == ("mcp", "failed")
    assert ours["problem_count"] == len(ours["problems"])
    assert {"sources", "problems", "problem_count"}.isdisjoint(theirs)


async def test_usage_counts_calls_failures_and_tokens_of_this_session() -> None:
    budgets = Budgets(session=Budget(calls=10, tokens=5000))
    async with opened(budgets=budgets) as crib:
        other, session = crib.session(profile="flat"), crib.session(profile="flat")
        await told_text(other, "rope")
        await told_text(session, "rope")
        await told_text(session, "sail")
        await session.call("price", {"item": "nothing"})
        used = await told(session, "get_token_usage")
        stranger = await told(crib.session(profile="flat", principal="guest"), "get_token_usage")
        rows = await crib.store.calls.list(tool="price", session=session.state.key)

    assert used["by_tool"]["price"]["calls"] == 3
    assert used["by_tool"]["price"]["failed"] == 1
    assert used["by_tool"]["price"]["tokens"] == sum(-(-row.result_bytes // 4) for row in rows) > 50
    assert used["session"] == {"calls": 3, "tokens": used["by_tool"]["price"]["tokens"]}
    assert used["today"]["calls"] == 4
    assert used["definitions"]["tokens"] > 100
    assert used["left"]["calls"] == 10 - 4
    assert 0 < used["left"]["tokens"] < 5000
    assert (stranger["session"]["calls"], stranger["today"]["calls"]) == (0, 0)


async def told_text(session: Session, item: str) -> None:
    assert (await session.call("price", {"item": item})).error is None


async def test_recent_events_are_the_callers_own_newest_first_and_filtered() -> None:
    async with opened() as crib:
        mine, guest = crib.session(profile="flat"), crib.session(profile="flat", principal="guest")
        await told_text(guest, "rope")
        await told_text(mine, "rope")
        await mine.call("price", {"item": "nothing"})
        await told_text(crib.session(profile="flat"), "sail")
        everything = await told(mine, "get_recent_events", tool="pri*")
        failed = await told(mine, "get_recent_events", outcome="error")
        one = await told(mine, "get_recent_events", limit=1, tool="price")
        refused = await mine.call("get_recent_events", {"limit": 0})

    assert [(event["outcome"], event["in_this_session"]) for event in everything["events"]] == [
        ("ok", False),
        ("not_found", True),
        ("ok", True),
    ]
    assert (everything["count"], one["events"]) == (3, everything["events"][:1])
    assert [event["tool"] for event in failed["events"]] == ["price"]
    assert everything["events"][0].keys() == {
        *("call_id", "time", "tool", "outcome", "decision", "milliseconds", "in_this_session"),
    }
    assert abs(datetime.now(UTC) - datetime.fromisoformat(everything["events"][0]["time"])) < timedelta(minutes=5)
    assert refused.error is not None
    assert refused.error.code == "invalid_arguments"
