"""Tools that read a repository: state, history, differences."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from toolcrib.plugin import Context

from .._workspace.place import workspace_of
from .repository import Repository, git_tool, repository_at

_RECENT: Final = 5
_FORMAT: Final = "%h %ad %an: %s%d"

_CHANGES: Final = {
    "A": "added",
    "D": "deleted",
    "M": "modified",
    "T": "type changed",
    "U": "conflict",
    "?": "untracked",
}


@git_tool(
    op="x.git.status",
    kind="read",
    tags=["git", "branch", "state", "changes"],
    examples=[{}, {"repo": "services/api"}],
    policy={"edge_cases": ["Changes that wait for review are not on the disk, so git does not know them."]},
)
async def git_status(ctx: Context, repo: str = ".") -> dict[str, Any]:
    """Tell the branch, its distance from its upstream, what is staged, changed, new or in conflict, and recent commits.

    Args:
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    text = await repository.ask("status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z")
    status: dict[str, Any] = {"branch": "", "staged": [], "changed": [], "untracked": [], "conflicts": []}
    entries = iter(text.split("\0"))
    for entry in entries:
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            _head(status, rest)
        elif kind in ("1", "2"):
            parts = rest.split(" ", 7 if kind == "1" else 8)
            path = parts[-1]
            if kind == "2":
                path = f"{next(entries)} -> {path}"
            if parts[0][0] != ".":
                status["staged"].append(f"{parts[0][0]} {path}")
            if parts[0][1] != ".":
                status["changed"].append(f"{parts[0][1]} {path}")
        elif kind == "u":
            status["conflicts"].append(rest.split(" ", 9)[-1])
        elif kind == "?":
            status["untracked"].append(rest)
    status["recent"] = (await _recent(repository)).splitlines()
    status["clean"] = not any(status[key] for key in ("staged", "changed", "untracked", "conflicts"))
    if workspace_of(ctx).diverts and await workspace_of(ctx).overlay():
        status["note"] = "changes that wait for review are not on the disk, and not shown here"
    return status


def _head(status: dict[str, Any], line: str) -> None:
    key, _, value = line.partition(" ")
    if key == "branch.head":
        status["branch"] = "" if value == "(detached)" else value
    elif key == "branch.upstream":
        status["upstream"] = value
    elif key == "branch.ab":
        ahead, behind = value.split()
        status |= {"ahead": int(ahead), "behind": -int(behind)}


async def _recent(repository: Repository) -> str:
    done = await repository.run("log", f"--format={_FORMAT}", "--date=short", f"--max-count={_RECENT}")
    return done.text if done.status == 0 else ""


@git_tool(
    op="x.git.diff",
    kind="read",
    tags=["git", "difference", "patch", "compare"],
    metadata={"result": "output"},
    examples=[{}, {"ref1": "main", "ref2": "feature/login"}, {"staged": True, "path": "src/app.py"}],
    policy={"do": ["Use stat first when much may have changed."]},
)
async def git_diff(
    ctx: Context,
    ref1: str = "",
    ref2: str = "",
    staged: bool = False,
    path: str = "",
    stat: bool = False,
    repo: str = ".",
) -> str:
    """Show what differs, as a patch: without refs the changes that are not staged.

    Args:
        ref1: A commit or branch to compare with the files as they are.
        ref2: A second one: then the two are compared.
        staged: What is staged instead, against ref1 or the last commit.
        path: Only this file or folder of the workspace.
        stat: Only how much has changed in each file.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    refs = [await repository.commit_of(ref) for ref in (ref1, ref2) if ref]
    options = ["--no-ext-diff", "--no-textconv", "--submodule=short", *(["--stat=120"] if stat else [])]
    only = ["--", repository.relative(path)] if path else ["--"]
    patch = await repository.ask("diff", *options, *(["--cached"] if staged else []), *refs, *only)
    if path and not patch:
        await repository.check_known(path)
    return patch or "[no difference]"


@git_tool(
    op="x.git.log",
    kind="read",
    tags=["git", "history", "commits"],
    metadata={"result": "lines"},
    examples=[{}, {"count": 30, "path": "src/app.py"}, {"ref": "origin/main", "full": True, "count": 1}],
)
async def git_log(
    ctx: Context,
    count: Annotated[int, Field(ge=1, le=1000)] = 10,
    ref: str = "",
    path: str = "",
    full: bool = False,
    repo: str = ".",
) -> str:
    """List commits, the newest first: hash, day, author, subject and refs.

    Args:
        count: How many.
        ref: The branch or commit to begin with; the current one when not given.
        path: Only commits that changed this file or folder of the workspace.
        full: Whole messages, and which files changed how much.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    shape = ["--format=fuller", "--stat=120", "--no-ext-diff", "--no-textconv"] if full else [f"--format={_FORMAT}"]
    begin = [await repository.commit_of(ref)] if ref else []
    if not begin and not await repository.has("HEAD"):
        return "[no commits yet]"
    only = ["--", repository.relative(path)] if path else ["--"]
    listed = await repository.ask("log", *shape, "--date=short", f"--max-count={count}", *begin, *only)
    if path and not listed:
        await repository.check_known(path)
    return listed or "[no commits]"


@git_tool(
    op="x.git.changed_files",
    kind="read",
    tags=["git", "changes", "branch"],
    metadata={"result": "lines"},
    examples=[{}, {"base_branch": "develop"}],
)
async def git_changed_files(ctx: Context, base_branch: str = "", repo: str = ".") -> list[dict[str, str]]:
    """List the files that differ from where this branch left another: committed, staged, changed and new ones.

    Args:
        base_branch: The other branch; the repository's default branch when not given.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    base = await repository.commit_of(base_branch or await repository.default_branch())
    left = await repository.ask("merge-base", base, "HEAD")
    words = (await repository.ask("diff", "--name-status", "--no-renames", "-z", left, "--")).split("\0")
    found = dict(zip(words[1::2], words[0::2], strict=False))
    new = (await repository.ask("ls-files", "--others", "--exclude-standard", "-z")).split("\0")
    found |= {name: "?" for name in new if name}
    return [{"path": path, "change": _CHANGES.get(kind, kind)} for path, kind in sorted(found.items()) if path]
