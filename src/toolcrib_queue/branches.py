"""The branch of a task: begun with what the task depends on, committed to, and merged when the task is COMPLETED."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from toolcrib.plugin import Context, Row, ToolFailure
from toolcrib_tools.git.commits import merge
from toolcrib_tools.git.repository import Repository, checked_name, repository_at

from .state import BRANCHES, branch_of

__all__ = [
    "begin_branch",
    "check_merge",
    "commit_work",
    "merge_branch",
    "refs_of",
    "repository_with",
    "restore_refs",
    "task_repository",
]

_NAME, _EMAIL = "toolcrib queue", "queue@toolcrib.invalid"
_COMMITTER: Final = {
    "GIT_AUTHOR_NAME": _NAME,
    "GIT_AUTHOR_EMAIL": _EMAIL,
    "GIT_COMMITTER_NAME": _NAME,
    "GIT_COMMITTER_EMAIL": _EMAIL,
}
"""Where neither the repository nor the user has a name."""
_LOCAL: Final = {"GIT_ALLOW_PROTOCOL": "file"}
"""Fetches from another workspace of the same project, which git would not read otherwise."""
_SUMMARY: Final = 2000
_TRIES: Final = 5


async def task_repository(ctx: Context, folder: str, target: str) -> Repository | None:
    """Return the repository of a workspace; None for a folder that is in none.

    `target` is the default branch of the project, which counts where the repository has it.
    """
    try:
        found = await repository_at(ctx, folder)
    except ToolFailure as failure:
        if failure.code != "tool_error":
            raise
        return None
    return replace(found, environment={**found.environment, **_COMMITTER, **await found.identity()}, target=target)


async def repository_with(ctx: Context, branch: str, target: str, places: Sequence[str]) -> Repository | None:
    """Return the repository of the first workspace that has a branch and can be reached from here, else None."""
    for place in places if ctx.workspace is not None else ():
        with suppress(ToolFailure):  # a folder outside the workspace of this session
            repository = await task_repository(ctx, place, target)
            if repository is not None and await repository.has(f"refs/heads/{checked_name(branch)}"):
                return repository
    return None


async def refs_of(repository: Repository) -> dict[str, str]:
    """Return the branches and tags of a repository with their objects."""
    listed = await repository.ask("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
    return dict(line.split(" ", 1) for line in listed.splitlines())


async def restore_refs(repository: Repository, branch: str, before: Mapping[str, str]) -> list[str]:
    """Put back what a program did to branches and tags other than the branch of its task; return a line for each.

    A branch that the program made is taken away: its name may be that of a task to come, or of the default branch. Its
    line has the commit. Where the branch of the task was made a name of another one, it is a branch of its own again.
    """
    own = f"refs/heads/{branch}"
    is_name = not (await repository.run("symbolic-ref", "--quiet", own)).status
    if is_name:
        await repository.ask("symbolic-ref", "--delete", own)
    after = await refs_of(repository)
    restored: list[str] = []
    for name in sorted(
        before.keys() | after.keys(), key=before.__contains__
    ):  # a new `a/b` is in the way of an old `a`
        was, now = before.get(name, ""), after.get(name, "")
        if was == now or (name == own and now):
            continue
        words = (name, was, now) if was else ("-d", name, now)
        await repository.ask("update-ref", "--no-deref", *words)
        restored.append(f"{name} {now or 'deleted'} → {was or 'removed'}")
    return sorted(restored)


async def begin_branch(
    repository: Repository, task: Row, needed: Sequence[str], others: Sequence[str]
) -> tuple[str, str]:
    """Check out the branch of a task with the branches `needed` in it; return its name and where its work began.

    Branches that are missing come from `others`, the workspaces of the same project. The work began at the commit of
    the task's baseline, while the branch holds work of earlier runs that was not merged. What an interrupted run left
    is committed on its own branch before. Raises `ToolFailure("conflict")` for changes of another author, and for
    branches that cannot be merged.
    """
    branch = checked_name(branch_of(task))
    current = await repository.branch()
    is_new = not await _fetched(repository, branch, others)
    if current != branch:
        if await repository.ask("status", "--porcelain"):
            if not current.startswith(BRANCHES):
                message = "the workspace has changes that are not committed"
                raise ToolFailure("conflict", message, hint="commit them, or git_stash")
            await _save(repository, "Keep what an interrupted run left")
        begin = ["-b"] if is_new else []
        start = [await repository.default_branch()] if begin and await repository.has("HEAD") else []
        await repository.ask("checkout", "--quiet", *begin, branch, *start)
    for other in needed:
        if not await _fetched(repository, checked_name(other), others):
            continue
        if (await repository.run("merge-base", "--is-ancestor", other, "HEAD")).status:
            await merge(repository, await repository.commit_of(other), f"Merge branch '{other}' into {branch}")
    return branch, await _begun(repository, "" if is_new else task["baseline"].get("begin", ""))


async def _fetched(repository: Repository, branch: str, others: Sequence[str]) -> bool:
    """Whether the repository has a branch, now that another workspace of the project was asked for it."""
    ref = f"refs/heads/{branch}"
    if await repository.has(ref):
        return True
    for place in others:
        words = ("fetch", "--quiet", "--no-tags", place, f"{ref}:{ref}")
        if not (await repository.run(*words, environment=_LOCAL)).status:
            return True
    return False


async def _begun(repository: Repository, known: str) -> str:
    """Return `known` where HEAD holds unmerged work since then, else HEAD; empty before the first commit."""
    if not await repository.has("HEAD"):
        return ""
    if known and await repository.has(known):
        target = await repository.default_branch()
        is_merged = not (await repository.run("merge-base", "--is-ancestor", "HEAD", target)).status
        is_before = not (await repository.run("merge-base", "--is-ancestor", known, "HEAD")).status
        if is_before and not is_merged:
            return known
    return await repository.commit_of("HEAD")


async def commit_work(repository: Repository, branch: str, task: Row, agent: Row, summary: str) -> str:
    """Commit what a run changed on the branch of its task; return the commit, empty without a change.

    A program that checked out another branch left its files in the folder: they are what is committed.
    """
    if await repository.branch() != branch:
        await repository.ask("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    if not await repository.ask("status", "--porcelain"):
        return ""
    trailers = f"Task: {task['id']}\nAgent: {agent['name']} ({agent['agent_type']})"
    return await _save(repository, f"{task['title']}\n\n{summary.strip()[:_SUMMARY]}\n\n{trailers}\n")


async def check_merge(repository: Repository, branch: str) -> None:
    """Raise `ToolFailure("conflict")` with the files, where a branch cannot be merged into the default branch."""
    if await repository.has("HEAD"):
        await _merged_tree(repository, await repository.default_branch(), branch)


async def merge_branch(repository: Repository, task: Row, branch: str) -> str:
    """Merge the branch of a completed task into the default branch; return that, empty where it could not be done.

    No working tree changes: another run may have the workspace by now. A default branch that moves meanwhile is merged
    with again.
    """
    if not await repository.has("HEAD"):
        return ""
    target = await repository.default_branch()
    theirs = await repository.commit_of(branch)
    for _ in range(_TRIES):
        ours = await repository.commit_of(target)
        if not (await repository.run("merge-base", "--is-ancestor", theirs, ours)).status:
            return target
        try:
            tree = await _merged_tree(repository, ours, theirs)
        except ToolFailure as failure:
            if failure.code != "conflict":
                raise
            return ""
        message = f"Merge branch '{branch}'\n\nTask: {task['id']}\n"
        words = ("commit-tree", tree, "-p", ours, "-p", theirs, "-F", "-")
        made = await repository.ask(*words, given=message.encode())
        if not (await repository.run("update-ref", f"refs/heads/{target}", made, ours)).status:
            return target
    return ""


async def _merged_tree(repository: Repository, target: str, branch: str) -> str:
    done = await repository.run("merge-tree", "--write-tree", "--name-only", "--no-messages", target, branch)
    if done.status == 1:
        names = ", ".join(done.text.splitlines()[1:])
        raise ToolFailure("conflict", f"the branch {branch} conflicts with {target} in {names}: merge {target} into it")
    if done.status:
        raise ToolFailure("tool_error", f"git merge-tree failed: {done.message}")
    return done.text


async def _save(repository: Repository, message: str) -> str:
    await repository.ask("add", "--all")
    await repository.ask("commit", "--quiet", "--no-verify", "--file=-", given=message.encode())
    return await repository.ask("rev-parse", "HEAD")
