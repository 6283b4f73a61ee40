"""Shadows: one git worktree for each task, in which its tools work while the main tree stays as it is.

A shadow begins as the main tree is, uncommitted changes included: that state is a commit of its own, on the branch
`toolcrib/<task>`. Files ignored by git are absent. On acceptance, the task's changes since then are applied to the main
tree, all of them or none; the index and the branches of the main tree are left alone, and nothing is committed. Marks
of untrusted content (`tainted_files`) go with their files.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ..core.files import make_private_folder
from ..core.patterns import regex
from ..errors import ToolFailure, UsageError
from .batch import MAX_BYTES, NOTHING, Change, Conflict, apply, state_of
from .disk import DiskWorkspace, Tree, in_thread
from .git import Git, repository_of
from .nodes import digest_of_content, kind_of, look, parent_of, read_file
from .paths import Guard, Place
from .review import locked, merged
from .tainted_files import FileMarks

FOLDER: Final = (".toolcrib", "shadows")
"""Folder of the shadows, below the workspace's root."""
_TASK_NAME: Final = regex(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$)){0,63}")
_PLAIN_MODES: Final = ("000000", "100644", "100755")
"""Modes of git for nothing and for files; others are links and submodules."""
_MAX_DIFF_LENGTH: Final = 1 << 20


class ShadowChange(Struct, frozen=True, kw_only=True):
    """A file that is not in the shadow as it was when the shadow was made."""

    path: str
    """From the top of the repository."""
    old: str
    """Git's mode and the id of the content before; `000000` for nothing."""
    new: str
    is_plain: bool
    """False for links and submodules, which are not merged."""


class Shadow(Struct, frozen=True, kw_only=True):
    """The shadow of one task, whether it was made yet or not. Holds nothing open."""

    task: str
    workspace: Path
    """The root of the shadowed workspace."""
    repository: Path
    """The top of the main working tree."""
    programs: str = os.defpath

    @property
    def top(self) -> Path:
        """The top of the shadow's working tree."""
        return self.workspace.joinpath(*FOLDER, self.task)

    @property
    def root(self) -> Path:
        """The folder that replaces the workspace's root."""
        return self.top / self.workspace.relative_to(self.repository)

    @property
    def branch(self) -> str:
        """The branch that it is on."""
        return f"toolcrib/{self.task}"

    @property
    def _base(self) -> str:
        return f"refs/toolcrib/base/{self.task}"

    async def open(self, guard: Guard) -> DiskWorkspace:
        """Return its files; a missing shadow is made. Raises `ToolFailure` with git's message."""
        if not self.top.is_dir():
            git = await self._git(self.repository)
            place = Place(self.workspace, (*FOLDER, ".gitignore"), "/".join(FOLDER))
            await in_thread(apply, [Change(place=place, content=b"*\n")])
            tree = await _snapshot(git)
            parents: list[str] = []
            with suppress(ToolFailure):
                parents = ["-p", (await git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")).decode().strip()]
            output = await git.run("commit-tree", tree, *parents, "-m", f"Base of the task {self.task}")
            commit = output.decode().strip()
            await git.run("update-ref", self._base, commit)
            await git.run("worktree", "prune")
            await git.run("worktree", "add", "--quiet", "-B", self.branch, str(self.top), commit)
        await in_thread(make_private_folder, self.root)
        return DiskWorkspace(self.root, guard=guard)

    async def changes(self) -> list[ShadowChange]:
        """Return the task's changes, by path."""
        git = await self._git(self.top)
        return await _changed(git, self._base, await _snapshot(git))

    async def diff(self) -> str:
        """Return the task's changes as a unified diff, at most 1 MiB of it."""
        git = await self._git(self.top)
        flags = ("-p", "-r", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
        output = await git.run("diff-tree", *flags, self._base, await _snapshot(git))
        text = output[:_MAX_DIFF_LENGTH].decode(errors="replace")
        return text if len(output) <= _MAX_DIFF_LENGTH else f"{text}\n… {len(output) - _MAX_DIFF_LENGTH:,} more bytes\n"

    async def merge(self, tree: Tree, marks: FileMarks | None = None) -> list[str]:
        """Apply the task's changes to the main tree, all of them or none; return the paths. The shadow stays.

        A file that changed on both sides is merged where the two do not touch the same lines. Raises
        `ToolFailure("conflict")` naming every file that cannot be merged.

        The present state of both trees is compared with the base commit: no log of the task's changes is kept.
        """
        async with locked(tree):
            return await self._merge(tree, marks)

    async def _merge(self, tree: Tree, marks: FileMarks | None) -> list[str]:
        main = await self._git(self.repository)
        theirs = {change.path for change in await _changed(main, self._base, await _snapshot(main))}
        todo: list[Change] = []
        conflicts: dict[str, str] = {}
        taken = await self.changes()
        for change in taken:
            try:
                bases = await self._content(main, change) if change.path in theirs else None
                todo += await in_thread(self._merged, tree, change, change.path in theirs, bases)
            except ToolFailure as failure:
                conflicts[change.path] = failure.message
        if conflicts:
            raise _conflicts(conflicts)
        if marks is not None:
            contents = {change.place.path: change.content for change in todo if change.content is not None}
            places = {self.top / path.relative_to(self.repository): path for path in contents}
            await marks.copy(places, contents, (self.workspace,))
        try:
            await in_thread(apply, todo)
        except Conflict as conflict:
            raise _conflicts({change.place.shown: "it changed just now" for change in conflict.changes}) from conflict
        await in_thread(_prune, [change.place for change in todo if change.content is None])
        return [change.path for change in taken]

    async def discard(self) -> None:
        """Remove the shadow, its branch and its base commit."""
        main = await self._git(self.repository)
        with suppress(ToolFailure):
            await main.run("worktree", "remove", "--force", "--force", str(self.top))
        if self.top.is_dir():
            await in_thread(lambda: shutil.rmtree(self.top))
        await main.run("worktree", "prune")
        for reference in (f"refs/heads/{self.branch}", self._base):
            with suppress(ToolFailure):
                await main.run("update-ref", "-d", reference)

    async def _git(self, tree: Path) -> Git:
        return await Git.at(tree, self.programs)

    async def _content(self, git: Git, change: ShadowChange) -> bytes | None:
        """Return the content of the file when the shadow was made; None when missing, and for anything but a file."""
        mode, content = change.old.split()
        return await git.run("cat-file", "blob", content) if mode in _PLAIN_MODES[1:] else None

    def _merged(self, tree: Tree, change: ShadowChange, changed_here: bool, base: bytes | None) -> list[Change]:
        """Return the changes to the main tree for one file. Raises `ToolFailure` when it cannot be merged."""
        if not change.is_plain:
            raise ToolFailure("conflict", "it is a link or a submodule, which are not merged")
        place = tree.writable(str(self.repository / change.path))
        steps = Path(change.path).parts
        ours = _read(Place(self.top, steps, change.path)) if not change.new.startswith(_PLAIN_MODES[0]) else None
        state = state_of(place)
        if ours is None:
            if changed_here and state != NOTHING:
                raise ToolFailure("conflict", "the task removed it, and it changed in the main tree")
            return [] if state == NOTHING else [Change(place=place, expected=state)]
        content, mode = ours
        if state == digest_of_content(content):
            return []
        if changed_here:
            found = look(place)
            theirs = read_file(place, MAX_BYTES, many_names=True)[0] if found and kind_of(found) == "file" else None
            both = merged(base, content, theirs) if base is not None and theirs is not None else None
            if both is None:
                raise ToolFailure("conflict", "it changed in the main tree too")
            content = both
        return [Change(place=place, content=content, mode=mode, expected=state)]


def shadow_of(workspace: Path, task: str, programs: str = os.defpath) -> Shadow:
    """Return the shadow of `task` for the workspace at `workspace`.

    Raises `UsageError` when that is in no git repository, or `task` cannot name a branch and a folder.
    """
    if not _TASK_NAME.fullmatch(task):
        raise UsageError(f"a task is named by up to 64 letters, digits, dots, - and _, not {task!r}")
    repository = repository_of(workspace)
    if repository is None:
        raise UsageError(f"a shadow is a git worktree, and {workspace} is in no git repository: run `git init` there")
    return Shadow(task=task, workspace=workspace, repository=repository, programs=programs)


def shadows_of(workspace: Path, programs: str = os.defpath) -> list[Shadow]:
    """Return the shadows that were made for a workspace, by task."""
    folder = workspace.joinpath(*FOLDER)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return [shadow_of(workspace, name, programs) for name in names if _TASK_NAME.fullmatch(name)]


async def _snapshot(git: Git) -> str:
    """Return the id of a git tree of the working tree, uncommitted changes included; the index stays.

    Works on a copy of the index, so that what the user has staged stays.
    """
    index = git.folder / f"toolcrib-{secrets.token_hex(8)}.index"
    try:
        if (git.folder / "index").is_file():  # a copy to start from: files that it lists need not be read again
            await in_thread(shutil.copyfile, git.folder / "index", index)
        await git.run("add", "--all", "--", ".", index=index)
        return (await git.run("write-tree", index=index)).decode().strip()
    finally:
        for left in (index, index.with_name(f"{index.name}.lock")):
            left.unlink(missing_ok=True)


async def _changed(git: Git, old: str, new: str) -> list[ShadowChange]:
    output = await git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
    fields = os.fsdecode(output).split("\0")
    found: list[ShadowChange] = []
    for place in range(0, len(fields) - 1, 2):
        old_mode, new_mode, old_id, new_id, _ = fields[place].removeprefix(":").split()
        is_plain = old_mode in _PLAIN_MODES and new_mode in _PLAIN_MODES
        path = fields[place + 1]
        found.append(ShadowChange(path=path, old=f"{old_mode} {old_id}", new=f"{new_mode} {new_id}", is_plain=is_plain))
    return found


def _read(place: Place) -> tuple[bytes, int]:
    content, mode = read_file(place, MAX_BYTES, many_names=True)
    return content, stat.S_IMODE(mode)


def _prune(places: Sequence[Place]) -> None:
    """Remove the folders that the removal of their last file left empty, as git does."""
    for place in places:
        steps = place.steps[:-1]
        with suppress(OSError):
            while steps:
                with parent_of(Place(place.root, steps, "")) as folder:
                    os.rmdir(steps[-1], dir_fd=folder)
                steps = steps[:-1]


def _conflicts(reasons: dict[str, str]) -> ToolFailure:
    listed = "; ".join(f"{path}: {reason}" for path, reason in sorted(reasons.items()))
    return ToolFailure(
        "conflict",
        f"nothing was merged: {listed}",
        hint="settle these in the main tree or in the shadow, and merge again",
        details={"conflicts": [{"path": path, "reason": reason} for path, reason in sorted(reasons.items())]},
    )
