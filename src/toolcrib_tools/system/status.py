"""State of this machine and of this Toolcrib, and the name of a session."""

from __future__ import annotations

import csv
import platform
import shutil
import subprocess
import time
from typing import Annotated, Any, Final, Literal

import anyio
from pydantic import Field

from toolcrib.plugin import SESSIONS, Context, ToolFailure, tool

from .._extras import lacks_library, optional

__all__ = ["get_recent_events", "get_status", "get_token_usage", "session_describe", "system_monitor"]

_MEASURED: Final = 0.2
"""Seconds that the load of the processor is measured over."""
_GPU_SECONDS: Final = 10
"""Time limit of the driver, which has to wake a sleeping card."""
_GPU_FIELDS: Final = ("name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu")
_GPU_FIGURES: Final = ("percent", "memory_used_mib", "memory_total_mib", "celsius")
_MIB: Final = 1 << 20


@tool(
    lacks=lacks_library("psutil", "system"),
    op="x.system.monitor",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["cpu", "ram", "free memory", "disk", "gpu", "load", "health"],
    examples=[{}, {"include_gpu": True}],
    policy={
        "do": ["Look before you start something large: a build, a test run, a model."],
        "edge_cases": ["The disk is that of the workspace. Of graphics cards only NVIDIA's are known (nvidia-smi)."],
    },
)
async def system_monitor(ctx: Context, include_gpu: bool = False) -> dict[str, Any]:
    """Tell how busy this machine is: processor, memory, swap, disk and uptime; sizes in MiB.

    Args:
        include_gpu: Also tell load, memory and temperature of the graphics cards.
    """
    folder = str(ctx.workspace.root) if ctx.workspace is not None else "/"
    report = await anyio.to_thread.run_sync(_measured, folder)
    if include_gpu:
        report["gpus"] = await _gpus()
    return report


def _measured(folder: str) -> dict[str, Any]:
    psutil = optional("psutil", "system")
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    disk = shutil.disk_usage(folder)
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "uptime_seconds": round(time.time() - psutil.boot_time()),
        "cpu": {
            "percent": psutil.cpu_percent(interval=_MEASURED),
            "cores": psutil.cpu_count(),
            "load": [round(load, 2) for load in psutil.getloadavg()],
        },
        "memory": {
            "total_mib": memory.total // _MIB,
            "available_mib": memory.available // _MIB,
            "percent": memory.percent,
        },
        "swap": {"total_mib": swap.total // _MIB, "used_mib": swap.used // _MIB},
        "disk": {"total_mib": disk.total // _MIB, "free_mib": disk.free // _MIB},
    }


async def _gpus() -> list[dict[str, Any]]:
    """Query the driver. Raises `ToolFailure`: `unavailable` without one, `tool_error` if it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        hint = "call it without include_gpu for everything else"
        raise ToolFailure("unavailable", "there is no nvidia-smi here: graphics cards cannot be looked at", hint=hint)
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        with anyio.fail_after(_GPU_SECONDS):
            ended = await anyio.run_process(command, stderr=subprocess.STDOUT, check=False)
    except TimeoutError:
        raise ToolFailure("timeout", f"nvidia-smi did not answer within {_GPU_SECONDS} s") from None
    except OSError as error:
        raise ToolFailure("tool_error", f"nvidia-smi cannot be run: {error.strerror}") from error
    output = ended.stdout.decode(errors="replace")
    if ended.returncode:
        raise ToolFailure("tool_error", f"nvidia-smi failed: {output.strip()[:500]}")
    rows = csv.reader(output.strip().splitlines(), skipinitialspace=True)
    return [{"name": name, **dict(zip(_GPU_FIGURES, map(_number, figures), strict=False))} for name, *figures in rows]


def _number(text: str) -> float | None:
    """Return a figure; None if the card does not say (`[N/A]`)."""
    try:
        return float(text)
    except ValueError:
        return None


@tool(
    op="x.session.describe",
    category="system",
    kind="write",
    open_world=False,
    idempotent=True,
    approval="never",
    tags=["title", "name", "label", "conversation", "topic"],
    examples=[{"description": "Fix the login redirect"}],
    policy={
        "do": ["Describe it once it is clear what it is about, and again when that changes."],
        "edge_cases": ["It is the user who reads it: in the list of conversations, the status and the log."],
    },
)
async def session_describe(
    description: Annotated[str, Field(min_length=1, max_length=120, pattern=r"\S")], ctx: Context
) -> dict[str, Any]:
    """Say in a few words what this session is about, so that the user finds it again.

    Args:
        description: A title of one line.
    """
    shown = " ".join("".join(one if one.isprintable() else " " for one in description).split())
    if not shown:
        raise ToolFailure("invalid_arguments", "description: there is nothing in it that can be shown")
    records = ctx.records(SESSIONS)
    before = await records.get(ctx.session_key)
    kept = await records.put(ctx.session_key, {"description": shown}, text=shown)
    return {**kept.value, "before": before.value["description"] if before else None}


@tool(
    op="x.system.status",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["health", "sources", "servers", "problems", "version", "state"],
    examples=[{}],
    policy={"do": ["Look here when a tool that should be there is missing: problems tells why."]},
)
async def get_status(ctx: Context) -> dict[str, Any]:
    """Tell how Toolcrib is doing: its version, how this session is set up, how many tools it has, sources, problems."""
    return dict(await ctx.lent.insight(ctx.principal, ctx.session_key).status())


@tool(
    op="x.system.token_usage",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["tokens", "cost", "budget", "calls", "spent"],
    examples=[{}],
    policy={"edge_cases": ["Tokens are estimated at four bytes each. What the model itself says is not counted here."]},
)
async def get_token_usage(ctx: Context) -> dict[str, Any]:
    """Tell what this session has used: calls and tokens of results by tool, of definitions, today's, what is left."""
    return dict(await ctx.lent.insight(ctx.principal, ctx.session_key).usage())


@tool(
    op="x.system.events",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["history", "log", "audit", "calls", "errors"],
    examples=[{"limit": 5}, {"outcome": "error"}, {"tool": "git_*", "limit": 50}],
    policy={"edge_cases": ["Arguments and results are not shown. The call that asks is not in it yet."]},
)
async def get_recent_events(
    ctx: Context,
    limit: Annotated[int, Field(ge=1, le=500)] = 20,
    tool: Annotated[str, Field(max_length=200)] = "",
    outcome: Literal["", "ok", "error", "denied", "timeout", "cancelled"] = "",
) -> dict[str, Any]:
    """List the newest calls of tools, the newest first: when, which tool, what came of it, how long it took.

    Args:
        limit: How many at most.
        tool: Only calls of this tool; * stands for anything.
        outcome: Only calls that ended like this; "error" is every one that failed.
    """
    insight = ctx.lent.insight(ctx.principal, ctx.session_key)
    events = await insight.events(limit=limit, tool=tool, outcome=outcome)
    return {"events": events, "count": len(events)}
