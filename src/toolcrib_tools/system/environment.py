"""`get_environment`: working environment of a session: system, shell, folders, languages, limits."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, cast

import anyio

from toolcrib.plugin import Command, Context, Reach, ToolFailure, Workspace, tool

from ..git.repository import repository_at
from ..shell.processes import command_of, run, seconds_of

__all__ = ["get_environment"]

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
