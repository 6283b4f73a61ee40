"""git: the real one, in the session's folder."""

from __future__ import annotations

import anyio

from toolcrib import ToolFailure
from toolcrib.sources.yaml.run_code import ToolContext

__all__ = [
    "git_branch",
    "git_commit",
    "git_diff",
    "git_log",
    "git_pull",
    "git_push",
    "git_stage",
    "git_stash",
    "git_status",
]

_WHO = ("-c", "user.name=SideCar", "-c", "user.email=sidecar@localhost", "-c", "commit.gpgsign=false")


async def _git(context: ToolContext, *words: str) -> str:
    done = await anyio.run_process(["git", *_WHO, *words], cwd=context.call.cwd, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode:
        raise ToolFailure("tool_error", f"git {words[0]}: {said or done.returncode}")
    return said


async def git_diff(context: ToolContext, ref1: str = "", ref2: str = "") -> str:
    references = [reference for reference in (ref1 or "HEAD", ref2) if reference]
    return await _git(context, "diff", *references, "--") or "No differences."


async def git_status(context: ToolContext) -> str:
    return await _git(context, "status", "--short", "--branch")


async def git_stage(context: ToolContext, files: list[str] | None = None) -> str:
    await _git(context, "add", "--all", "--", *(files or ["."]))
    return await git_status(context)


async def git_commit(message: str, context: ToolContext) -> str:
    return await _git(context, "commit", f"--message={message}")


async def git_log(context: ToolContext, count: int = 10) -> str:
    return await _git(context, "log", "--oneline", f"--max-count={count}")


async def git_push(context: ToolContext, setUpstream: bool = False) -> str:
    branch = await _git(context, "branch", "--show-current")
    words = ["--set-upstream", "origin", branch] if setUpstream else []
    return await _git(context, "push", *words)


async def git_pull(context: ToolContext, rebase: bool = False) -> str:
    return await _git(context, "pull", "--rebase" if rebase else "--ff-only")


async def git_branch(context: ToolContext, action: str = "list", name: str = "") -> str:
    if action != "list" and not name:
        raise ToolFailure("tool_error", f"{action} needs the name of a branch")
    words = {
        "list": ("branch", "--list"),
        "create": ("switch", "--create", name),
        "switch": ("switch", name),
        "delete": ("branch", "--delete", name),
    }
    return await _git(context, *words[action])


async def git_stash(context: ToolContext, action: str = "push", message: str = "", index: int = 0) -> str:
    if action == "push":
        return await _git(
            context, "stash", "push", "--include-untracked", *([f"--message={message}"] if message else [])
        )
    return await _git(context, "stash", action, *([] if action == "list" else [f"stash@{{{index}}}"]))
