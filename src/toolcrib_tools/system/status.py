"""State of this machine and of Toolcrib, and the environment and name of a session."""

from __future__ import annotations

import csv
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import anyio
from pydantic import Field

from toolcrib.plugin import SESSIONS, Command, Context, Reach, ToolFailure, Workspace, tool

from .._extras import lacks_library, optional
from ..git.repository import repository_at
from ..shell.processes import command_of, run, seconds_of

_MEASURED: Final = 0.2
"""Seconds that the load of the processor is measured over."""
_GPU_SECONDS: Final = 10
"""Time limit of the driver, which has to wake a sleeping card."""
_GPU_FIELDS: Final = ("name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu")
_GPU_FIGURES: Final = ("percent", "memory_used_mib", "memory_total_mib", "celsius")
_MIB: Final = 1 << 20

_TOOLCHAINS: Final = """
python3 pip uv node npm pnpm bun deno ruby go rustc cargo java javac gcc clang make cmake dotnet php perl
docker git gh rg jq sqlite3 psql
""".split()
"""Programs that are looked for: languages, what builds with them, and what is often called by a command."""
_UNUSUAL: Final[Mapping[str, str]] = {"go": "version"}
"""Version options of programs that have no `--version`."""
_ASK: Final = """
for pair in "$@"; do
  name=${pair%%=*}
  ( command -v -- "$name" >/dev/null || exit 0
    text=$("$name" "${pair#*=}" 2>&1 </dev/null) || text=
    printf '%s\\t%s\\n' "$name" "$(printf '%s' "$text" | grep -m 1 .)" ) &
done
wait
"""
"""Asks all of them at once; each gets a line of its own, as soon as it has answered."""
_ASK_SECONDS: Final = 20.0
_LONGEST: Final = 100
"""Characters of what a program says of its version."""
_KEY: Final = "environment.toolchains"
_ZONES: Final = "zoneinfo/"
_BYTES_A_TOKEN: Final = 4

_Aspect = Literal[
    "all", "os", "arch", "shell", "cwd", "workspace", "git", "toolchains", "network", "sandbox", "datetime", "session",
    "context",
]  # fmt: skip


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
    return dict(await ctx.lent.insight(ctx.principal, ctx.session_key, ctx.stored_taint).status())


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


@tool(
    op="x.system.environment",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["os", "platform", "shell", "directory", "versions", "installed", "languages", "date", "context"],
    examples=[{}, {"aspect": "toolchains"}],
    policy={
        "do": ["Ask for toolchains before you choose the commands that build and test."],
        "edge_cases": ["toolchains are those that commands find; they are looked for once in a session."],
    },
)
async def get_environment(ctx: Context, aspect: _Aspect = "all") -> dict[str, Any]:
    """Tell where you work: operating system, shell, folders, git, installed languages, network, date, session, context.

    Args:
        aspect: Only this part.
    """
    if aspect != "all":
        return {aspect: await _ASPECTS[aspect](ctx)}
    report: dict[str, Any] = dict.fromkeys(_ASPECTS)

    async def tell(name: str) -> None:
        try:
            report[name] = await _ASPECTS[name](ctx)
        except ToolFailure as failure:
            report[name] = {"unavailable": failure.message}

    async with anyio.create_task_group() as group:
        for name in report:
            group.start_soon(tell, name)
    return report


async def _os(ctx: Context) -> Any:
    report = {"system": platform.system(), "release": platform.release()}
    if sys.platform == "darwin":
        return {**report, "name": f"macOS {platform.mac_ver()[0]}"}
    try:
        return {**report, "name": platform.freedesktop_os_release().get("PRETTY_NAME", "")}
    except OSError:
        return report


async def _arch(ctx: Context) -> Any:
    return {"machine": platform.machine(), "cores": os.cpu_count(), "bits": sys.maxsize.bit_length() + 1}


async def _shell(ctx: Context) -> Any:
    report: dict[str, Any] = {"path_separator": os.pathsep, "folder_separator": os.sep}
    if ctx.sandbox is None or ctx.workspace is None:
        missing = "sandbox" if ctx.sandbox is None else "workspace"
        return {"program": None, "why": f"commands cannot run: there is no {missing}", **report}
    return {"program": (await command_of(ctx, ":", ".")).argv[0], **report}


async def _cwd(ctx: Context) -> Any:
    return str(ctx.workspace.root if ctx.workspace is not None else ctx.cwd.absolute())


async def _workspace(ctx: Context) -> Any:
    if ctx.workspace is None:
        return None
    report: dict[str, Any] = {"root": str(ctx.workspace.root), "folders": [str(root) for root in ctx.workspace.roots]}
    if ctx.workspace.diverts:
        report["waiting_for_review"] = sorted(await ctx.workspace.overlay())
    return report


async def _git(ctx: Context) -> Any:
    """Return branch and number of changes; the reason if there is no repository or no git."""
    try:
        repository = await repository_at(ctx, ".")
        changed = await repository.ask("status", "--porcelain", "--no-renames", "-z")
        head = await repository.run("rev-parse", "--short", "HEAD")
        branch = await repository.branch()
    except ToolFailure as failure:
        return {"repository": None, "why": failure.message}
    return {
        "repository": str(repository.tree),
        "branch": branch or None,
        "commit": head.text if head.status == 0 else None,
        "changed_files": len(changed.split("\0")) - 1 if changed else 0,
    }


async def _toolchains(ctx: Context) -> Any:
    """Tell which programs there are, and their versions where a sandbox holds them: asked once in a session."""
    if ctx.sandbox is None or ctx.sandbox.kind == "none" or ctx.workspace is None:
        return {name: None for name in _TOOLCHAINS if shutil.which(name)}
    known = ctx.runtime.get(_KEY)
    if not isinstance(known, dict):
        known = ctx.runtime[_KEY] = await _versions(ctx, ctx.workspace)
    return cast("dict[str, Any]", known)


async def _versions(ctx: Context, workspace: Workspace) -> dict[str, Any]:
    """Ask each program for its version where commands run. A program without output has no version."""
    pairs = (f"{name}={_UNUSUAL.get(name, '--version')}" for name in _TOOLCHAINS)
    command = Command(
        argv=("/bin/sh", "-c", _ASK, "versions", *pairs),
        cwd=workspace.local("."),
        folders=workspace.roots,
        read_only=True,
    )
    ended = await run(ctx, command, seconds_of(ctx, _ASK_SECONDS))
    versions = dict(line.split("\t", 1) for line in ended.stdout.splitlines() if "\t" in line)
    return {name: versions[name].strip()[:_LONGEST] or None for name in _TOOLCHAINS if name in versions}


async def _network(ctx: Context) -> Any:
    """Tell what commands reach. What the tools for the web reach is each one's own business."""
    reach = ctx.sandbox.network if ctx.sandbox is not None else False
    return {"commands": {"hosts": [*reach.hosts, *reach.private]} if isinstance(reach, Reach) else reach}


async def _sandbox(ctx: Context) -> Any:
    return {"kind": ctx.sandbox.kind if ctx.sandbox is not None else None}


async def _datetime(ctx: Context) -> Any:
    now = datetime.now().astimezone()
    return {
        "local": now.isoformat(timespec="seconds"),
        "utc": now.astimezone(UTC).isoformat(timespec="seconds"),
        "weekday": now.strftime("%A"),
        "zone": _zone() or now.tzname(),
    }


def _zone() -> str:
    """Return the name of the machine's time zone; empty if unknown."""
    try:
        return str(Path("/etc/localtime").readlink()).partition(_ZONES)[2]
    except OSError:
        return ""


async def _session(ctx: Context) -> Any:
    insight = ctx.lent.insight(ctx.principal, ctx.session_key)
    return (await insight.status())["session"]


async def _context(ctx: Context) -> Any:
    """Tell how much of the model's window the tools have taken, as far as it is known here."""
    usage = await ctx.lent.insight(ctx.principal, ctx.session_key).usage()
    return {
        "tokens_of_definitions": usage["definitions"]["tokens"],
        "tokens_of_results": usage["session"]["tokens"],
        "tokens_of_one_result_at_most": ctx.result_bytes // _BYTES_A_TOKEN,
        "left": usage["left"],
    }


_ASPECTS: Final[Mapping[str, Callable[[Context], Awaitable[Any]]]] = {
    "os": _os,
    "arch": _arch,
    "shell": _shell,
    "cwd": _cwd,
    "workspace": _workspace,
    "git": _git,
    "toolchains": _toolchains,
    "network": _network,
    "sandbox": _sandbox,
    "datetime": _datetime,
    "session": _session,
    "context": _context,
}
"""Every value of `aspect` but `all`, in output order."""
