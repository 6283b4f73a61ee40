"""Tools that reach a remote: push, pull, pull requests. They use configured credentials and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Annotated, Any, Final

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .branches import merge
from .remotes import PRIVATE, RemoteAddress, configured_file, reach_of, remote_of, token_for
from .repository import Program, Repository, checked_name, repository_at, run

__all__ = ["git_create_pr", "git_pull", "git_push"]

_SECONDS: Final = 330
"""Time limit of a call: fetching a large repository is slow."""
_OF_GITHUB: Final = ("api.github.com:443", "uploads.github.com:443")


@tool(
    op="x.git.push",
    category="git",
    kind="destructive",
    idempotent=True,
    approval="mode",
    needs=["workspace"],
    locks=["repo"],
    timeout=_SECONDS,
    traits=["outbound"],
    tags=["git", "publish", "upload", "remote"],
    examples=[{}, {"branch": "feature/login", "set_upstream": True}],
    policy={
        "dont": ["Push what the user did not ask to be pushed."],
        "edge_cases": ["It never forces: when the remote has more, pull first."],
    },
)
async def git_push(
    ctx: Context, branch: str = "", remote: str = "origin", set_upstream: bool = False, repo: str = "."
) -> dict[str, Any]:
    """Push a branch to a remote, never by force.

    Args:
        branch: Which one; the current branch when not given.
        remote: Where to.
        set_upstream: Let the branch follow the remote's from now on.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    name = await _branch_name(repository, branch)
    commit = await repository.commit_of(f"refs/heads/{name}")
    there = await remote_of(repository, remote)
    await there.push(name, commit)
    if set_upstream:
        await repository.ask("branch", "--quiet", f"--set-upstream-to={remote}/{name}", name)
    return {"branch": name, "remote": remote, "commit": commit}


@tool(
    op="x.git.pull",
    category="git",
    kind="destructive",
    idempotent=True,
    needs=["workspace"],
    locks=["repo"],
    timeout=_SECONDS,
    tags=["git", "update", "download", "remote", "sync"],
    examples=[{}, {"branch": "main", "rebase": True}],
    policy={"edge_cases": ["With conflicts nothing is merged, and the files are named."]},
)
async def git_pull(
    ctx: Context, branch: str = "", remote: str = "origin", rebase: bool = False, repo: str = "."
) -> dict[str, Any]:
    """Fetch a branch from a remote and merge it into the current one. With conflicts everything stays as it was.

    Args:
        branch: The remote's branch; the one of the current branch's name when not given.
        remote: Where from.
        rebase: Put the own commits on top instead of merging.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    name = await _branch_name(repository, branch)
    before = (await repository.run("rev-parse", "--quiet", "--verify", "HEAD")).text
    there = await remote_of(repository, remote)
    commit = await there.fetch(name)
    if rebase and before:
        await _rebase(repository, commit)
    else:
        await merge(repository, commit, f"Merge branch '{name}' of {remote}")
    after = await repository.ask("rev-parse", "HEAD")
    count = await repository.ask("rev-list", "--count", f"{before}..{after}" if before else after)
    return {"branch": await repository.branch(), "commit": after, "new_commits": int(count)}


async def _rebase(repository: Repository, commit: str) -> None:
    environment = await repository.identity()
    done = await repository.run("rebase", "--no-autostash", "--no-verify", "--quiet", commit, environment=environment)
    if not done.status:
        return
    names = await repository.conflicts()
    await repository.run("rebase", "--abort")
    if names:
        raise ToolFailure("conflict", f"the rebase was taken back, for these files conflict: {', '.join(names)}")
    raise ToolFailure("tool_error", f"git rebase failed: {done.message}")


@tool(
    op="x.git.pull_request.create",
    category="git",
    kind="destructive",
    idempotent=False,
    needs=["workspace"],
    locks=["repo"],
    timeout=_SECONDS,
    traits=["outbound"],
    tags=["git", "github", "pull request", "review"],
    examples=[{"title": "Fix the login of new users", "body": "Closes #12.", "base": "main"}],
    policy={
        "do": ["Push the branch first: git_push."],
        "edge_cases": ["It needs gh on this machine and a token for github.com in the configuration."],
    },
)
async def git_create_pr(
    ctx: Context,
    title: Annotated[str, Field(min_length=1)],
    body: str = "",
    branch: str = "",
    base: str = "",
    draft: bool = False,
    repo: str = ".",
) -> str:
    """Open a pull request on GitHub for a branch that was pushed. Returns its address.

    Args:
        title: Its title.
        body: What it changes and why, in Markdown.
        branch: The branch with the changes; the current one when not given.
        base: The branch to merge into; the default branch when not given.
        draft: Open it as a draft.
        repo: A folder in the repository; the workspace's root when not given.
    """
    repository = await repository_at(ctx, repo)
    head = await _branch_name(repository, branch)
    into = checked_name(base or await repository.default_branch())
    if head == into:
        raise ToolFailure("invalid_arguments", f"{head} cannot be merged into itself", hint="create a branch first")
    remote = await remote_of(repository, "origin")
    if remote.place is None:
        raise ToolFailure("tool_error", "origin is a folder of the workspace: it has no pull requests")
    server = replace(remote.place, scheme="https", port=remote.place.port if remote.place.scheme == "https" else 443)
    words = ("--repo", f"{server.name}/{server.path}", "--title", title, "--body", body, "--head", head, "--base", into)
    return await _gh(repository, server, ("pr", "create", *words, *(["--draft"] if draft else [])))


async def _gh(repository: Repository, server: RemoteAddress, words: tuple[str, ...]) -> str:
    """Return what gh says, which reaches one server, with the token for it, and knows no other login."""
    ctx = repository.ctx
    token = token_for(ctx, server)
    if not token:
        raise ToolFailure(
            "unavailable",
            f"there is no token for {server.name}",
            hint=f"the operator names it in the config: tools: {{git: {{tokens: {{{server.name}: …}}}}}}",
        )
    authority = configured_file(ctx, "ca_file")
    is_public = server.name == "github.com"
    folder = await to_thread.run_sync(lambda: Path(mkdtemp(dir=ctx.lent.folder("git"))))
    program = Program(
        argv=("gh", *words),
        cwd=folder,
        folders=(folder,),
        environment={
            "GH_TOKEN" if is_public else "GH_ENTERPRISE_TOKEN": token,
            "GH_CONFIG_DIR": str(folder),
            "GH_PROMPT_DISABLED": "1",
            "GH_NO_UPDATE_NOTIFIER": "1",
            "GIT_DIR": "/nonexistent",
            **({"SSL_CERT_FILE": str(authority)} if authority else {}),
        },
        readable=(authority,) if authority else (),
        network=reach_of(ctx, server, _OF_GITHUB if is_public else ()),
    )
    try:
        done = await run(ctx, program)
    finally:
        await to_thread.run_sync(lambda: rmtree(folder, ignore_errors=True))
    if done.refused:
        raise ToolFailure("denied", f"gh was refused: {done.refused[0]}", hint=PRIVATE)
    if done.status:
        raise ToolFailure("tool_error", f"gh {words[0]} {words[1]} failed: {done.message}")
    return done.text


async def _branch_name(repository: Repository, branch: str) -> str:
    name = branch or await repository.branch()
    if not name:
        raise ToolFailure("tool_error", "no branch is checked out", hint="name the branch")
    return checked_name(name)
