"""A git repository of the workspace, and git processes in the sandbox."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct

from toolcrib.plugin import Command, Context, Reach, Running, ToolFailure, harmless_git

from .._extras import lacks_program
from .._workspace.place import folder_at, path_of, workspace_of, workspace_tool

_MOST: Final = 16 * 1024 * 1024
"""Bytes of output; more is an error."""
_SECONDS: Final = 120.0

git_tool = partial(workspace_tool, category="git", lacks=lacks_program("git"))

_IDENTITY: Final = {"name": "NAME", "email": "EMAIL"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program with its arguments."""

    argv: Sequence[str]
    cwd: Path
    folders: tuple[Path, ...]
    """Folders that it may write in."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str], repr=False)
    readable: tuple[Path, ...] = ()
    network: bool | Reach = False
    trusted: bool = True
    """It runs nothing of the workspace."""
    seconds: float = _SECONDS


class GitOutput(Struct, frozen=True, kw_only=True):
    """Result of a git process."""

    status: int
    stdout: bytes
    stderr: bytes
    refused: tuple[str, ...] = ()
    """Connections that were refused, each with the reason."""

    @property
    def text(self) -> str:
        """Its output, without the last line end."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")

    @property
    def message(self) -> str:
        """Text for an error message: the end of stderr, else of stdout."""
        return (self.stderr or self.stdout).decode("utf-8", "replace").strip()[-1500:]


async def run(ctx: Context, program: Program, given: bytes = b"") -> GitOutput:
    """Run a program to its end, with `given` as its input.

    Raises `ToolFailure`: `unavailable` when it is not installed, `timeout`, `too_large`.
    """
    name = program.argv[0]
    found = shutil.which(name)
    if found is None:
        raise ToolFailure("unavailable", f"{name} is not installed")
    places = dict.fromkeys([str(Path(found).parent), *os.defpath.split(os.pathsep)])
    environment = {"PATH": os.pathsep.join(places), **program.environment}
    argv = (found, *program.argv[1:])
    seconds = min(program.seconds, max(1.0, ctx.remaining - 1.0))
    try:
        with anyio.fail_after(seconds):
            if ctx.sandbox is None:
                done = await anyio.run_process(argv, input=given, cwd=program.cwd, env=environment, check=False)
                return GitOutput(status=done.returncode, stdout=done.stdout, stderr=done.stderr)
            command = Command(
                argv=argv,
                cwd=program.cwd,
                folders=program.folders,
                environment=environment,
                readable=program.readable,
                network=program.network,
                trusted=program.trusted,
            )
            async with ctx.sandbox.open(command) as running:
                return await _finished(running, given)
    except TimeoutError:
        raise ToolFailure("timeout", f"{name} {program.argv[1]} did not end within {seconds:.0f} s") from None


async def _finished(running: Running, given: bytes) -> GitOutput:
    streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    size = 0

    async def feed() -> None:
        with suppress(ToolFailure):  # it has ended before it had read everything
            if given:
                await running.write(given)
            await running.close_input()

    async with anyio.create_task_group() as group:
        group.start_soon(feed)
        while size <= _MOST and (piece := await running.read()):
            streams[piece[0]].append(piece[1])
            size += len(piece[1])
        group.cancel_scope.cancel()
    if size > _MOST:
        raise ToolFailure(
            "too_large", f"it says more than {_MOST >> 20} MiB", hint="ask for less: one file, fewer commits"
        )
    finished = await running.wait()
    return GitOutput(
        status=finished.status,
        stdout=b"".join(streams["stdout"]),
        stderr=b"".join(streams["stderr"]),
        refused=tuple(running.refused),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Git in one working tree. Lives as long as one call."""

    ctx: Context = dataclasses.field(repr=False)
    tree: Path
    folder: Path
    """Its `.git`: what the tree says, not what its configuration claims."""
    environment: Mapping[str, str] = dataclasses.field(repr=False)
    target: str = ""
    """Default branch that the caller names; it counts where the repository has it."""

    async def run(self, *arguments: str, given: bytes = b"", environment: Mapping[str, str] | None = None) -> GitOutput:
        """Run `git <arguments>` and return the result, also of a failure."""
        place = {"GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self.tree)}
        literal = ["--literal-pathspecs"] if "--" in arguments else []  # stash has patterns of its own
        program = Program(
            argv=("git", "--no-pager", *literal, *arguments),
            cwd=self.tree,
            folders=workspace_of(self.ctx).roots,
            environment={**self.environment, **place, **(environment or {})},
        )
        return await run(self.ctx, program, given)

    async def ask(self, *arguments: str, given: bytes = b"", environment: Mapping[str, str] | None = None) -> str:
        """Return the output of `git <arguments>`. Raises `ToolFailure("tool_error")` with git's message."""
        done = await self.run(*arguments, given=given, environment=environment)
        if done.status:
            raise ToolFailure("tool_error", f"git {arguments[0]} failed: {done.message or f'status {done.status}'}")
        return done.text

    async def branch(self) -> str:
        """Return the current branch; empty when none is checked out."""
        return (await self.run("symbolic-ref", "--quiet", "--short", "HEAD")).text

    async def has(self, ref: str) -> bool:
        """True if there is a commit of that name."""
        return (await self.run("rev-parse", "--quiet", "--verify", "--end-of-options", f"{ref}^{{commit}}")).status == 0

    async def commit_of(self, ref: str) -> str:
        """Return the hash of a commit. Raises `ToolFailure` for what names none."""
        checked_name(ref)
        done = await self.run("rev-parse", "--quiet", "--verify", "--end-of-options", f"{ref}^{{commit}}")
        if done.status:
            branches = await self.ask("for-each-ref", "--format=%(refname:short)", "--count=20", "refs/heads")
            raise ToolFailure(
                "not_found", f"there is no commit {ref!r}", hint=f"branches: {', '.join(branches.split()) or 'none'}"
            )
        return done.text

    async def check_known(self, path: str) -> None:
        """Raise `ToolFailure("not_found")` for a path of the workspace that neither exists nor has a history."""
        if await workspace_of(self.ctx).stat(path) is not None:
            return
        done = await self.run("log", "--all", "--max-count=1", "--format=%h", "--", self.relative(path))
        if not done.text:
            raise ToolFailure("not_found", f"there is no {path!r}, and no commit has it")

    async def check_finished(self) -> None:
        """Raise `ToolFailure("conflict")` while a merge or rebase is unfinished: taking ours back would end it."""
        for name in ("MERGE_HEAD", "rebase-merge", "rebase-apply"):
            if await anyio.Path(self.folder / name).exists():
                kind = name.partition("-")[0].partition("_")[0].lower()
                raise ToolFailure(
                    "conflict",
                    f"a {kind} in this repository is not finished",
                    hint="resolve what is left and commit, or ask the user to end it",
                )

    async def default_branch(self) -> str:
        """Return the branch that work ends up in, the first there is of `target`, the remote's, main and master."""
        remote = await self.run("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
        named = remote.text.removeprefix("origin/") if remote.status == 0 else ""
        for name in filter(None, (self.target, named, "main", "master")):
            if await self.has(f"refs/heads/{name}"):
                return name
        raise ToolFailure("tool_error", "the default branch is unknown", hint="name it")

    async def identity(self) -> Mapping[str, str]:
        """Return the environment with the committer's name: the repository's setting, else the user's."""
        found: dict[str, str] = {}
        for key, word in _IDENTITY.items():
            own = await self.run("config", "--local", "--get", f"user.{key}")
            value = own.text or await _of_user(f"user.{key}")
            found |= {f"GIT_AUTHOR_{word}": value, f"GIT_COMMITTER_{word}": value} if value else {}
        return found

    async def conflicts(self) -> list[str]:
        """Return the files that could not be merged."""
        return [name for name in (await self.ask("diff", "--name-only", "--diff-filter=U", "-z")).split("\0") if name]

    def relative(self, path: str) -> str:
        """Return a path of the workspace as one of this tree. Raises `ToolFailure` outside."""
        local = workspace_of(self.ctx).local(path)
        if not local.is_relative_to(self.tree):
            raise ToolFailure("denied", f"{path!r} is not in the repository {self.tree.name!r}")
        return str(local.relative_to(self.tree))


async def repository_at(ctx: Context, path: str) -> Repository:
    """Return the repository that contains a folder of the workspace.

    Raises `ToolFailure`: `tool_error` if there is none, `denied` for one that lies outside of the workspace.
    """
    workspace, path = workspace_of(ctx), await path_of(ctx, path)
    await folder_at(workspace, path)
    start = workspace.local(path)
    inside = [folder for folder in (start, *start.parents) if _is_in(folder, workspace.roots)]
    tree = next(filter(_has_repository, inside), None)
    if tree is None:
        raise ToolFailure(
            "tool_error",
            f"{path!r} is in no git repository of the workspace",
            hint="a repository above the workspace is out of reach: declare its folder as the workspace",
        )
    first = Repository(ctx=ctx, tree=tree, folder=tree / ".git", environment=harmless_git())
    asked = await first.run("rev-parse", "--absolute-git-dir")
    if asked.status:
        raise ToolFailure("tool_error", f"git rev-parse failed: {asked.message or f'status {asked.status}'}")
    folder = Path(os.fsdecode(asked.stdout).rstrip("\n"))
    _check(folder, tree, workspace.roots)
    found = dataclasses.replace(first, folder=folder)
    configured = await found.ask("config", "--null", "--name-only", "--list")
    return dataclasses.replace(found, environment=harmless_git(configured.split("\0")))


def checked_name(name: str) -> str:
    """Return the name of a branch or commit. Raises `ToolFailure` for what git could take for something else."""
    if not name or name.startswith("-") or any(ord(character) < 33 for character in name) or ".." in name:
        raise ToolFailure("invalid_arguments", f"{name!r} is not a branch or commit name")
    return name


def _has_repository(folder: Path) -> bool:
    return os.path.lexists(folder / ".git")


def _check(folder: Path, tree: Path, roots: Sequence[Path]) -> None:
    """A `.git` that is a file names another folder: believed inside the workspace, or where that one says the same."""
    if _is_in(folder.resolve(), [root.resolve() for root in roots]):
        return
    try:
        says = Path((folder / "gitdir").read_text(encoding="utf-8").strip()).resolve()
    except (OSError, UnicodeDecodeError):
        says = None
    if says != (tree / ".git").resolve():
        raise ToolFailure("denied", f"the repository of {tree.name!r} lies outside of the workspace")


def _is_in(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


async def _of_user(key: str) -> str:
    """Return the user's own git configuration. Reading it runs no program."""
    try:
        done = await anyio.run_process(["git", "config", "--global", "--get", key], check=False)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace").strip()
