"""The branch of a task: begun with what the task depends on, committed to, and merged when the task is COMPLETED.

It may be published before the task ends, by a plain push or a pull request:

    tools:
      queue:
        completion: pull_request # merge (the default), push

Push and pull request are calls of the session: its rules decide, and what they ask is asked.

What a task did is the difference between its ground and its branch. Commits of others are merged into the ground
first, and the ground then into the branch, so that they are on both sides of the difference:

    ground   ────o────────o         o: newer commits of the default branch, and of tasks that it depends on
                 │        │
    branch   ─w──o──w──w──o──w      w: work of the task
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from msgspec import Struct

from toolcrib.plugin import Context, Row, ToolFailure, as_mapping
from toolcrib_tools.git.commits import merge
from toolcrib_tools.git.repository import Repository, checked_name, repository_at

from ..state import BRANCHES, branch_of

_NAME, _EMAIL = "toolcrib queue", "queue@toolcrib.invalid"
_COMMITTER: Final = {
    "GIT_AUTHOR_NAME": _NAME,
    "GIT_AUTHOR_EMAIL": _EMAIL,
    "GIT_COMMITTER_NAME": _NAME,
    "GIT_COMMITTER_EMAIL": _EMAIL,
}
"""Author of commits if neither the repository nor the user has one."""
_LOCAL: Final = {"GIT_ALLOW_PROTOCOL": "file"}
"""Fetches from another workspace of the same project, which git would not read otherwise."""
_SUMMARY: Final = 2000
"""Characters of a summary that the message of a commit has."""
_TRIES: Final = 5
"""Merges into a default branch that moves meanwhile."""
_COMPLETIONS: Final = ("merge", "push", "pull_request")
_ORIGIN: Final = "origin"


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


class Begun(Struct, frozen=True, kw_only=True):
    """Branch of a task, checked out for a run."""

    branch: str
    start: str
    """Commit that its work is measured from; empty before the first commit."""
    conflict: str = ""
    """Which newer commits of the default branch it could not take, with the files; empty where it has them all."""


async def begin_branch(repository: Repository, task: Row, needed: Sequence[str], others: Sequence[str]) -> Begun:
    """Check out the branch of a task with the branches `needed` and the newest default branch in it.

    Branches and newer commits come from `others`, too, the workspaces of the same project. The work began at the commit
    of the task's baseline, while the branch holds work of earlier runs that was not merged; what is taken in later is
    no work of the task. What an interrupted run left is committed on its own branch before. Raises
    `ToolFailure("conflict")` for changes of another author, and for branches of `needed` that cannot be merged.
    """
    branch = checked_name(branch_of(task))
    is_new = await _checked_out(repository, branch, others)
    if not await repository.has("HEAD"):
        return Begun(branch=branch, start="")
    ground = await _begun(repository, "" if is_new else task["baseline"].get("begin", ""))
    if await repository.has("MERGE_HEAD"):  # an interrupted run was resolving conflicts: the next one goes on
        conflict = "A merge into this branch is not finished: resolve the conflicts that are left."
        return Begun(branch=branch, start=ground, conflict=conflict)
    for other in needed:
        for commit in await _commits_of(repository, checked_name(other), others):
            ground = await _taken(repository, ground, commit, f"Merge branch '{other}' into {branch}")
    target = await repository.default_branch()
    refused: list[str] = []
    for commit in await _commits_of(repository, target, others):
        try:
            ground = await _taken(repository, ground, commit, f"Merge branch '{target}' into {branch}")
        except ToolFailure as failure:
            if failure.code != "conflict":
                raise
            refused.append(
                f"Newer commits of {target} conflict with this branch: {failure.message}. Take them in by"
                f" `git merge --no-commit {commit}` and resolve the conflicts, else the result cannot be merged."
            )
    return Begun(branch=branch, start=ground, conflict="\n".join(refused))


async def _checked_out(repository: Repository, branch: str, others: Sequence[str]) -> bool:
    """Check out the branch of a task, made from the default branch where it is missing; return whether it was."""
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
    return is_new


async def _commits_of(repository: Repository, branch: str, others: Sequence[str]) -> list[str]:
    """Return the commits that a branch has here and in other workspaces of the project; their objects are here then."""
    ref = f"refs/heads/{branch}"
    found = [await repository.commit_of(ref)] if await repository.has(ref) else []
    for place in others:
        if not (await repository.run("fetch", "--quiet", "--no-tags", place, ref, environment=_LOCAL)).status:
            found += [await repository.commit_of("FETCH_HEAD")]
    return list(dict.fromkeys(found))


async def _taken(repository: Repository, ground: str, commit: str, message: str) -> str:
    """Merge a commit into the current branch; return the ground of its work, which has the commit from then on.

    The commit is merged with the ground first, and that with the branch, so that the difference of the two is the work.
    Raises `ToolFailure("conflict")` with the files; then nothing changed.
    """
    if await _has_merged(repository, commit, "HEAD"):
        return ground
    if await _has_merged(repository, ground, commit):
        joined = commit
    else:
        tree = await _merged_tree(repository, ground, commit)
        words = ("commit-tree", tree, "-p", ground, "-p", commit, "-F", "-")
        joined = await repository.ask(*words, given=message.encode())
    if await repository.ask("status", "--porcelain"):
        await _save(repository, "Keep what an interrupted run left")
    await merge(repository, joined, message)
    return joined


async def _has_merged(repository: Repository, commit: str, other: str) -> bool:
    """Whether `other` is a commit, or goes back to it."""
    return not (await repository.run("merge-base", "--is-ancestor", commit, other)).status


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
    """Return `known` where HEAD holds unmerged work since then, else HEAD."""
    if known and await repository.has(known):
        is_merged = await _has_merged(repository, "HEAD", await repository.default_branch())
        if not is_merged and await _has_merged(repository, known, "HEAD"):
            return known
    return await repository.commit_of("HEAD")


async def check_markers(repository: Repository, start: str, branch: str) -> None:
    """Raise `ToolFailure("conflict")` for changed files of a branch that hold the marks of a conflict."""
    names = (await repository.ask("diff", "--name-only", "--diff-filter=d", "-z", start, branch)).split("\0")
    marks = ("grep", "-z", "-l", "--all-match", "-e", "^<<<<<<< ", "-e", "^>>>>>>> ", branch, "--")
    found = (await repository.run(*marks, *filter(None, names))).text if any(names) else ""
    if found:
        shown = ", ".join(name.removeprefix(f"{branch}:") for name in found.rstrip("\0").split("\0"))
        raise ToolFailure("conflict", f"conflicts are not resolved in {shown}")


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
    """Merge the branch of a completed task into the default branch; return that, empty before the first commit.

    No working tree changes: another run may have the workspace by now. A default branch that moves meanwhile is merged
    with again. Raises `ToolFailure("conflict")` where it conflicts by now, or moves all the time.
    """
    if not await repository.has("HEAD"):
        return ""
    target = await repository.default_branch()
    theirs = await repository.commit_of(branch)
    for _ in range(_TRIES):
        ours = await repository.commit_of(target)
        if await _has_merged(repository, theirs, ours):
            return target
        tree = await _merged_tree(repository, ours, theirs)
        message = f"Merge branch '{branch}'\n\nTask: {task['id']}\n"
        words = ("commit-tree", tree, "-p", ours, "-p", theirs, "-F", "-")
        made = await repository.ask(*words, given=message.encode())
        # With the old value, so that a commit of another process is never overwritten.
        if not (await repository.run("update-ref", f"refs/heads/{target}", made, ours)).status:
            return target
    raise ToolFailure("conflict", f"{target} changed {_TRIES} times while {branch} was merged: merge it by hand")


async def _merged_tree(repository: Repository, target: str, branch: str) -> str:
    """Return the tree of a merge, made without a working tree. Raises `ToolFailure("conflict")` with the files."""
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


def completion_of(settings: Any) -> str:
    """Return the completion of runs; `settings` is the configuration under `tools: {queue: …}`.

    Raises `ToolFailure("unavailable")` for a value that there is not.
    """
    given = as_mapping(settings).get("completion")
    if given is None:
        return _COMPLETIONS[0]
    if given not in _COMPLETIONS:
        message = f"tools: {{queue: {{completion: {given!r}}}}} is unknown"
        raise ToolFailure("unavailable", message, hint=f"it is {', '.join(_COMPLETIONS)}")
    return str(given)


async def publish_branch(ctx: Context, completion: str, task: Row, folder: str, target: str, summary: str) -> str:
    """Push the branch of a task to `origin`, and open a pull request where that is wanted; return its address.

    Raises `ToolFailure` where either cannot be done, or is refused.
    """
    branch = task["branch_name"]
    await _call(ctx, "git_push", {"branch": branch, "remote": _ORIGIN, "repo": folder})
    if completion != "pull_request" or task["pr_url"]:
        return str(task["pr_url"] or "")  # a push goes to the open pull request of an earlier attempt
    words = {"title": task["title"], "body": f"{summary}\n\nTask: {task['id']}"}
    opened = await _call(ctx, "git_create_pr", {**words, "branch": branch, "base": target, "repo": folder})
    return opened.strip().rpartition("\n")[2]


async def _call(ctx: Context, tool: str, arguments: Mapping[str, Any]) -> str:
    result = await ctx.call(tool, arguments)
    if result.error is not None:
        raise ToolFailure(result.error.code, f"{tool}: {result.error.message}", hint=result.error.hint)
    return result.text
