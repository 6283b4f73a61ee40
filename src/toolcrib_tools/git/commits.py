"""Tools that change the local repository: index, commits, stash, branches, merges."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import anyio
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure

from .repository import Repository, checked_name, git_tool, repository_at

_MODEL: Final = "agent.model"
"""Key of the session's runtime for the name of its model."""
_NAMED: Final = 5

_UNFILTERED: Final = frozenset({"unspecified", "unset", "set"})


@git_tool(
    op="x.git.stage",
    kind="write",
    idempotent=True,
    locks=["repo"],
    tags=["git", "add", "index"],
    examples=[{"files": ["src/app.py"]}, {"files": []}],
    policy={"edge_cases": ["Files that .gitignore leaves out are not staged."]},
)
async def git_stage(ctx: Context, files: list[str] | None = None, repo: str = ".") -> dict[str, Any]:
    """Stage changes for the next commit, deletions included. Returns what is staged then.

    Args:
        files: Files or folders of the workspace; everything that has changed when not given.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    await stage(repository, [repository.relative(path) for path in files or ()])
    return {"staged": await _staged(repository)}


async def stage(repository: Repository, paths: list[str]) -> None:
    """Stage these paths, all when there are none. Raises `ToolFailure` for files that git would have filtered."""
    await _check_filters(repository, paths)
    await _check_exists(repository, paths)
    await repository.ask("add", "--all", "--", *(paths or ["."]))


async def _check_exists(repository: Repository, paths: list[str]) -> None:
    """Raise `ToolFailure` for a path that is neither on the disk nor tracked, as deleted files are."""
    absent = [path for path in dict.fromkeys(paths) if not await anyio.Path(repository.tree / path).exists()]
    if not absent:
        return
    tracked = set((await repository.run("ls-files", "--cached", "-z", "--", *absent)).text.split("\0"))
    for path in absent:
        # A deleted folder, or a pattern, stands for other names than its own: git is asked about each of these alone.
        if (
            path not in tracked
            and not (await repository.run("ls-files", "--cached", "--others", "-z", "--", path)).text
        ):
            raise ToolFailure("not_found", f"there is no {path!r}")


async def _check_filters(repository: Repository, paths: list[str]) -> None:
    """Refuse what a filter makes of a file (Git LFS, git-crypt): without the program the wrong content would go in."""
    listed = await repository.ask("ls-files", "--modified", "--others", "--exclude-standard", "-z", "--", *paths)
    if not listed:
        return
    words = (await repository.ask("check-attr", "--stdin", "-z", "filter", given=listed.encode())).split("\0")
    filtered = {name: value for name, value in zip(words[0::3], words[2::3], strict=False) if value not in _UNFILTERED}
    if filtered:
        names = ", ".join(list(filtered)[:_NAMED])
        raise ToolFailure(
            "tool_error",
            f"{names} go through the filter {next(iter(filtered.values()))!r}, a program that this tool does not run",
            hint="let the user stage these files",
        )


async def _staged(repository: Repository) -> list[str]:
    text = await repository.ask("diff", "--cached", "--name-status", "--no-renames", "-z")
    words = text.split("\0")
    return [f"{kind} {path}" for kind, path in zip(words[0::2], words[1::2], strict=False)]


@git_tool(
    op="x.git.commit",
    kind="write",
    idempotent=False,
    locks=["repo"],
    tags=["git", "save", "record"],
    examples=[{"message": "Fix the login of new users"}, {"message": "Add search", "all": True}],
    policy={
        "do": ["Look at git_diff with staged first."],
        "dont": ["Commit what the user did not ask to be committed."],
        "edge_cases": ["The repository's hooks do not run.", "The model is named in a trailer where it is known."],
    },
)
async def git_commit(
    ctx: Context, message: Annotated[str, Field(min_length=1)], all: bool = False, repo: str = "."
) -> dict[str, Any]:
    """Commit what is staged. Returns the commit and its files.

    Args:
        message: The commit message: a short subject, an empty line, the reasons.
        all: Stage everything that has changed first, new files included.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    if not message.strip():
        raise ToolFailure("invalid_arguments", "message: a commit says what it changes")
    if all:
        names = await repository.conflicts()
        if names and "conflict marker" in (await repository.run("diff", "--check", "--", *names)).text:
            raise ToolFailure(
                "conflict", f"conflicts are not resolved: {', '.join(names)}", hint="edit the files, then commit"
            )
        await stage(repository, [])
    staged = await _staged(repository)
    if not staged and not await repository.has("MERGE_HEAD"):
        raise ToolFailure("tool_error", "nothing is staged", hint="git_stage does that, or all=true")
    text = _with_trailers(message, ctx)
    environment = await repository.identity()
    await repository.ask("commit", "--quiet", "--no-verify", "--file=-", given=text.encode(), environment=environment)
    return {
        "commit": await repository.ask("rev-parse", "HEAD"),
        "branch": await repository.branch(),
        "subject": message.strip().splitlines()[0],
        "files": staged,
    }


def _with_trailers(message: str, ctx: Context) -> str:
    """Return the message with the model that wrote it (seed 002: `X-AI-Model`), if known."""
    model = ctx.runtime.get(_MODEL)
    if not isinstance(model, str) or not model.strip():
        return message
    last = message.rstrip().rpartition("\n\n")[2]
    gap = "\n" if _is_trailers(last) and "\n\n" in message.rstrip() else "\n\n"
    return f"{message.rstrip()}{gap}X-AI-Model: {' '.join(model.split())}\n"


def _is_trailers(text: str) -> bool:
    return all(": " in line and " " not in line.partition(": ")[0] for line in text.splitlines())


@git_tool(
    op="x.git.stash",
    kind="destructive",
    idempotent=False,
    locks=["repo"],
    traits=["by_action"],
    metadata={"reads": {"action": ["list", "show"]}},
    tags=["git", "shelve", "set aside"],
    examples=[{"action": "push", "message": "half of the parser"}, {"action": "list"}, {"action": "pop", "index": 0}],
    policy={"edge_cases": ["A stash that does not fit is kept, and the files as they are.", "drop cannot be undone."]},
)
async def git_stash(
    ctx: Context,
    action: Literal["push", "pop", "apply", "list", "show", "drop"] = "push",
    message: str = "",
    index: Annotated[int, Field(ge=0)] = 0,
    repo: str = ".",
) -> str:
    """Set changes aside, new files included, and bring them back later.

    Args:
        action: push sets aside, pop brings back and forgets, apply brings back, list and show tell, drop forgets.
        message: What to call it, for push.
        index: Which stash, for pop, apply, show and drop; 0 is the newest.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    environment = await repository.identity()
    name = f"stash@{{{index}}}"
    if action == "list":
        return await repository.ask("stash", "list") or "[no stashes]"
    if action == "push":
        await _check_filters(repository, [])
        words = ["push", "--include-untracked", *(["--message", message] if message else [])]
        return await repository.ask("stash", *words, environment=environment) or "set aside"
    if not (await repository.run("rev-parse", "--quiet", "--verify", f"refs/{name}")).text:
        raise ToolFailure("not_found", f"there is no stash {index}", hint="git_stash with action list shows them")
    if action == "show":
        return await repository.ask("stash", "show", "--patch", "--no-ext-diff", "--no-textconv", name)
    if action == "drop":
        return await repository.ask("stash", "drop", name)
    return await _bring_back(repository, action, name, environment)


async def _bring_back(repository: Repository, action: str, name: str, environment: Any) -> str:
    """Apply a stash; one that conflicts leaves the files as they were."""
    await repository.check_finished()
    if (await repository.run("diff", "--quiet", "HEAD", "--")).status:
        raise ToolFailure(
            "tool_error",
            "files have changes that a conflict would be mixed with",
            hint="commit them, or set them aside with git_stash",
        )
    new = (await repository.run("ls-tree", "-r", "--full-tree", "--name-only", "-z", f"{name}^3")).text.split("\0")
    if there := [path for path in filter(None, new) if await anyio.Path(repository.tree / path).exists()]:
        raise ToolFailure("conflict", f"the stash has new files that are there already: {', '.join(there)}")
    done = await repository.run("stash", "apply", name, environment=environment)
    if done.status and (names := await repository.conflicts()):
        await repository.ask("reset", "--merge")
        raise ToolFailure("conflict", f"the stash does not fit, and nothing was changed: {', '.join(names)}")
    if done.status:
        raise ToolFailure("tool_error", f"git stash {action} failed: {done.message}")
    if action == "pop":
        await repository.ask("stash", "drop", "--quiet", name)
    return done.text


@git_tool(
    op="x.git.branch",
    kind="write",
    idempotent=False,
    locks=["repo"],
    traits=["by_action"],
    metadata={"reads": {"action": ["list"]}},
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
        checked_name(name)
        if (await repository.run("check-ref-format", "--branch", name)).status:
            raise ToolFailure("invalid_arguments", f"git takes no branch of the name {name!r}")
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


@git_tool(
    op="x.git.merge",
    kind="write",
    idempotent=False,
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
    await repository.check_finished()
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
