"""Tools for branches: list, create, switch, merge, delete."""

from __future__ import annotations

from typing import Any, Literal

from toolcrib.plugin import Context, ToolFailure, tool

from .repository import Repository, checked_name, repository_at

__all__ = ["git_branch", "git_merge", "merge"]


@tool(
    op="x.git.branch",
    category="git",
    kind="write",
    open_world=False,
    idempotent=False,
    needs=["workspace"],
    locks=["repo"],
    tags=["git", "checkout", "switch", "create"],
    examples=[{}, {"action": "create", "name": "feature/login"}, {"action": "switch", "name": "main"}],
    policy={"edge_cases": ["A branch is only deleted when everything in it was merged."]},
)
async def git_branch(
    ctx: Context,
    action: Literal["list", "create", "switch", "delete"] = "list",
    name: str = "",
    start: str = "",
    repo: str = ".",
) -> dict[str, Any]:
    """List branches, create one and switch to it, switch to one, or delete one that was merged.

    Args:
        action: What to do.
        name: The branch; not for list.
        start: The branch or commit that a new one begins at; the current one when not given.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    if action != "list":
        await _check(repository, name)
    match action:
        case "list":
            return await _list_branches(repository)
        case "create":
            begin = [await repository.commit_of(start)] if start else []
            await repository.ask("switch", "--quiet", "--no-track", "--create", name, *begin)
        case "switch":
            await _switch(repository, name)
        case "delete":
            await repository.commit_of(f"refs/heads/{name}")
            await repository.ask("branch", "--delete", "--", name)
            return {"deleted": name, "branch": await repository.branch()}
    return {"branch": await repository.branch(), "commit": (await repository.run("rev-parse", "HEAD")).text}


async def _check(repository: Repository, name: str) -> None:
    checked_name(name)
    if (await repository.run("check-ref-format", "--branch", name)).status:
        raise ToolFailure("invalid_arguments", f"git takes no branch of the name {name!r}")


async def _list_branches(repository: Repository) -> dict[str, Any]:
    text = await repository.ask(
        "for-each-ref",
        "--sort=-committerdate",
        "--format=%(refname:short)%00%(objectname:short)%00%(committerdate:short)%00%(subject)",
        "refs/heads",
        "refs/remotes",
    )
    keys = ("name", "commit", "date", "subject")
    branches = [dict(zip(keys, line.split("\0"), strict=False)) for line in text.splitlines()]
    return {"branch": await repository.branch(), "branches": branches}


async def _switch(repository: Repository, name: str) -> None:
    """Switch to a branch of ours, or to a new one that follows the remote's of that name."""
    if await repository.has(f"refs/heads/{name}"):
        await repository.ask("switch", "--quiet", name)
    elif await repository.has(f"refs/remotes/origin/{name}"):
        await repository.ask("switch", "--quiet", "--track", "--create", name, f"origin/{name}")
    else:
        await repository.commit_of(f"refs/heads/{name}")


@tool(
    op="x.git.merge",
    category="git",
    kind="write",
    open_world=False,
    idempotent=False,
    needs=["workspace"],
    locks=["repo"],
    tags=["git", "join", "integrate"],
    examples=[{"branch": "feature/login"}, {"branch": "hotfix", "into": "release"}],
    policy={"edge_cases": ["With conflicts nothing is merged, and the files are named.", "Files must be committed."]},
)
async def git_merge(ctx: Context, branch: str, into: str = "", repo: str = ".") -> dict[str, Any]:
    """Merge a branch into another, and stay on that one. With conflicts everything stays as it was.

    Args:
        branch: What to merge.
        into: The branch to merge into; the repository's default branch when not given.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    commit = await repository.commit_of(branch)
    target = into or await repository.default_branch()
    if not await repository.has(f"refs/heads/{checked_name(target)}"):
        await repository.commit_of(f"refs/heads/{target}")
    before = await repository.branch()
    back = [before] if before else ["--detach", await repository.ask("rev-parse", "HEAD")]
    if before != target:
        await repository.ask("switch", "--quiet", target)
    try:
        await merge(repository, commit, f"Merge branch '{branch}' into {target}")
    except ToolFailure:
        if before != target:
            await repository.run("switch", "--quiet", *back)
        raise
    return {"branch": target, "commit": await repository.ask("rev-parse", "HEAD"), "merged": branch}


async def merge(repository: Repository, commit: str, message: str) -> None:
    """Merge a commit into the current branch. Raises `ToolFailure("conflict")` with the files; then nothing changed."""
    words = ("merge", "--no-verify", "--no-edit", "--no-autostash", "-m", message, commit)
    done = await repository.run(*words, environment=await repository.identity())
    if not done.status:
        return
    names = await repository.conflicts()
    await repository.run("merge", "--abort")
    if names:
        raise ToolFailure(
            "conflict",
            f"the merge was taken back, for these files conflict: {', '.join(names)}",
            hint="change them on the branch so that they fit, commit, and merge again",
        )
    raise ToolFailure("tool_error", f"git merge failed: {done.message}")
