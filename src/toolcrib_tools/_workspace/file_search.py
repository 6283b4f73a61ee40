"""Files below a folder as the session sees them, listed by ripgrep if it is installed.

ripgrep knows the disk alone. What the session adds is put to its list: changes that wait for review, by the same ignore
rules (`patterns`). Where its rules would differ from ours, as when an ignore file itself waits for review, the folders
are walked here, so that both ways name the same files; guarded ones fall out at `still_there`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Literal
from unicodedata import category

import anyio
from anyio import to_thread
from msgspec import Struct

from toolcrib.plugin import FileEntry, ToolFailure, Workspace

from .file_text import decoded
from .patterns import IGNORE_FILES, NEVER, AnyGlob, Glob, IgnoreRules
from .place import folder_at

_MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of names, enough for some 200,000 of them."""
_LONGEST: Final = 30_000
"""Characters of one argument: Linux takes 128 KiB in one, and a character has up to 4 bytes."""
_COMMON: Final = (
    *("--no-config", "--no-messages", "--color=never", "--null", "--no-follow"),
    *("--no-require-git", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent"),
)
"""Options that override a user's or a repository's settings, so that a search is the same on every machine."""

MOST_FILES: Final = 100_000
"""Files of one walk; a note reports that more were left out."""
_IGNORE_BYTES: Final = 1024 * 1024


def ripgrep() -> str | None:
    """Return the path of ripgrep; None if it is not installed."""
    return shutil.which("rg")


async def names_of(program: str, arguments: Sequence[str], root: Path, inner: str) -> tuple[list[str], bool] | None:
    """Run it in `root` on the folder `inner`; return the files it names, relative to `root`, and whether that is all.

    None when it failed: it cannot read every pattern that we can.
    """
    command = [program, *_COMMON, *arguments, "--", f"./{inner}" if inner else "./"]
    if any("\0" in word or len(word) > _LONGEST for word in command):
        return None
    process = await anyio.open_process(
        command, cwd=root, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pieces: list[bytes] = []
    size = 0
    async with process:
        if process.stdout is not None:
            async for piece in process.stdout:
                pieces.append(piece)
                size += len(piece)
                if size > _MOST_BYTES:
                    process.kill()
                    break
        status = await process.wait()
    is_whole = size <= _MOST_BYTES
    if status > 1 and not pieces:
        return None
    return await to_thread.run_sync(_names, pieces, abandon_on_cancel=True), is_whole


def _names(pieces: Sequence[bytes]) -> list[str]:
    """Return the names that paths can say, in no order that matters; the last one may be cut."""
    return [name for raw in b"".join(pieces).split(b"\0")[:-1] if (name := _name(raw))]


def _name(raw: bytes) -> str:
    """Return a name below the root; empty for one that no path can say: no UTF-8, or with control characters in it."""
    try:
        name = raw.decode().removeprefix("./")
    except UnicodeDecodeError:
        return ""
    is_plain = name.isprintable() or not any(category(character) == "Cc" for character in name)
    return name if is_plain else ""


class Base(Struct, frozen=True, kw_only=True, dict=True):
    """The folder that is searched: `inner` below one of the workspace's roots, with `/`; empty is the root itself."""

    root: Path
    inner: str
    begin: Path
    """Base of relative paths."""

    def display(self, name: str) -> str:
        """Return the path that tools give a file of this root; `""` is the root itself."""
        inside = self._begin
        if inside == ".":
            return name or "."
        if inside is not None and (name == inside or name.startswith(f"{inside}/")):
            return name[len(inside) + 1 :] or "."
        return f"{self.root.as_posix().rstrip('/')}/{name}" if name else str(self.root)

    @cached_property
    def _begin(self) -> str | None:
        """Return the base of relative paths, from the root; None if it lies outside of it."""
        return self.begin.relative_to(self.root).as_posix() if self.begin.is_relative_to(self.root) else None

    def name(self, shown: str) -> str | None:
        """Return a path of the workspace relative to the root; None if it is not below the folder."""
        path = self.begin / shown
        if not path.is_relative_to(self.root / self.inner):
            return None
        return path.relative_to(self.root).as_posix()

    def below(self, name: str) -> str:
        """Return a name in the root as it is seen from the folder."""
        return name[len(self.inner) + 1 :] if self.inner else name


class FileFilter(Struct, frozen=True, kw_only=True):
    """Conditions on the files of a search."""

    hidden: bool = False
    """Also those with a dot in front, or in such a folder."""
    ignored: bool = False
    """Also those that `.gitignore` leaves out."""
    globs: Sequence[Glob | AnyGlob] = ()
    """Matched against the path below the folder; every one must take it."""

    def takes(self, below: str) -> bool:
        """True if a file matches the patterns."""
        return all(glob.takes(below) for glob in self.globs)


class FileList(Struct, frozen=True, kw_only=True):
    """Paths as tools name them, in order."""

    paths: Sequence[str]
    is_whole: bool = True
    """False: there are more than one walk goes through."""


async def base_at(workspace: Workspace, path: str) -> Base:
    """Return the folder at `path`; raises `ToolFailure` for what is none."""
    await folder_at(workspace, path)
    begin, folder = workspace.local("."), workspace.local(path)
    around = [root for root in workspace.roots if folder.is_relative_to(root)]
    root = max(around, key=lambda root: len(root.parts), default=folder)
    inner = folder.relative_to(root).as_posix()
    return Base(root=root, inner="" if inner == "." else inner, begin=begin)


async def files_below(
    workspace: Workspace, base: Base, wanted: FileFilter, *, containing: Sequence[str] | None = None
) -> FileList:
    """Return the wanted files below the folder.

    `containing` are ripgrep's arguments for a pattern: where it is installed only files that could hold it are
    returned, and those whose content waits for review.
    """
    overlay = await workspace.overlay(base.display(base.inner))
    waiting = {name: content for path, content in overlay.items() if (name := base.name(path)) is not None}
    rules = IgnoreRules()
    if not wanted.ignored:
        await _gather_above(workspace, base, rules)
    program = ripgrep()
    found = None
    if program is not None and not any(name.rpartition("/")[2] in IGNORE_FILES for name in waiting):
        found = await _by_ripgrep(workspace, program, base, wanted, containing)
    if found is None:
        found = await _by_walking(workspace, base, wanted, rules)
    else:
        found = await _with_waiting(workspace, base, wanted, rules, found, waiting)
    names, is_whole = found
    shown = await to_thread.run_sync(_display_paths, base, wanted, names, abandon_on_cancel=True)
    return FileList(paths=shown[:MOST_FILES], is_whole=is_whole and len(shown) <= MOST_FILES)


async def still_there(workspace: Workspace, paths: Sequence[str]) -> list[str]:
    """Return the paths at which the workspace finds something that is for tools.

    ripgrep knows of no guarded names, and a folder may become a link to elsewhere while it walks.
    """
    found = await workspace.stat_many(paths)
    return [path for path, entry in zip(paths, found, strict=True) if entry is not None]


def _display_paths(base: Base, wanted: FileFilter, names: Sequence[str]) -> list[str]:
    """Return the paths of the files that are wanted, by path."""
    return sorted(base.display(name) for name in names if wanted.takes(base.below(name)))


async def _by_ripgrep(
    workspace: Workspace, program: str, base: Base, wanted: FileFilter, containing: Sequence[str] | None
) -> tuple[list[str], bool] | None:
    """Return the files that ripgrep names; None if it would follow other rules than we do, or fails."""
    arguments = [f"--glob=!{name}/" for name in sorted(NEVER)]
    if wanted.hidden:
        arguments.append("--hidden")
    if wanted.ignored:
        arguments.append("--no-ignore")
    elif base.inner:
        for folder in _folders_above(base.inner)[1:]:
            if any([await workspace.stat(base.display(f"{folder}/{name}")) for name in IGNORE_FILES]):
                return None
        there = [name for name in reversed(IGNORE_FILES) if await workspace.stat(base.display(name))]
        arguments += [f"--ignore-file={name}" for name in there]
    arguments += ["--files"] if containing is None else ["--files-with-matches", *containing]
    return await names_of(program, arguments, base.root, base.inner)


async def _by_walking(
    workspace: Workspace, base: Base, wanted: FileFilter, rules: IgnoreRules
) -> tuple[list[str], bool]:
    """Walk the folders ourselves; what is left out is not entered."""
    names: list[str] = []
    folders = [base.inner]
    while folders and len(names) <= MOST_FILES:
        folder = folders.pop()
        try:
            entries = await workspace.list(base.display(folder))
        except ToolFailure:
            if folder == base.inner:
                raise
            continue  # guarded, or gone: what is beside it is there all the same
        inside = await to_thread.run_sync(_by_name, entries, abandon_on_cancel=True)
        if not wanted.ignored:
            await _gather(workspace, base, folder, rules, [name for name in IGNORE_FILES if name in inside])
        taken = await to_thread.run_sync(_filtered, folder, inside, wanted, rules, abandon_on_cancel=True)
        folders += taken["folder"]
        names += taken["file"]
    return names, not folders


def _by_name(entries: Iterable[FileEntry]) -> dict[str, FileEntry]:
    return {entry.path.rpartition("/")[2]: entry for entry in entries}


def _filtered(
    folder: str, inside: Mapping[str, FileEntry], wanted: FileFilter, rules: IgnoreRules
) -> dict[Literal["file", "folder"], list[str]]:
    """Return the files and folders in a folder that are looked at."""
    taken: dict[Literal["file", "folder"], list[str]] = {"file": [], "folder": []}
    for name, entry in inside.items():
        path = f"{folder}/{name}" if folder else name
        if entry.kind not in ("file", "folder"):
            continue
        if not _is_left_out(path, is_folder=entry.kind == "folder", wanted=wanted, rules=rules):
            taken[entry.kind].append(path)
    return taken


async def _with_waiting(
    workspace: Workspace,
    base: Base,
    wanted: FileFilter,
    rules: IgnoreRules,
    found: tuple[list[str], bool],
    waiting: Mapping[str, bytes | None],
) -> tuple[list[str], bool]:
    """Return the files found on the disk with the pending changes applied: new files added, deleted ones removed."""
    names = [name for name in found[0] if name not in waiting]
    gathered = set(_folders_above(base.inner)) if base.inner else set[str]()
    for name, content in waiting.items():
        if content is None:
            continue
        steps = [step for step in _folders_above(name) if len(step) >= len(base.inner)]
        for folder in steps:
            if not wanted.ignored and folder not in gathered:
                gathered.add(folder)
                await _gather(workspace, base, folder, rules, IGNORE_FILES)
        inside = [step for step in steps if len(step) > len(base.inner)]
        if any(_is_left_out(step, is_folder=True, wanted=wanted, rules=rules) for step in inside):
            continue
        if not _is_left_out(name, is_folder=False, wanted=wanted, rules=rules):
            names.append(name)
    return names, found[1]


def _is_left_out(name: str, *, is_folder: bool, wanted: FileFilter, rules: IgnoreRules) -> bool:
    """True if a file or folder itself is excluded from the search."""
    if not wanted.hidden and name.rpartition("/")[2].startswith("."):
        return True
    return rules.leaves_out(name, is_folder=is_folder)


async def _gather_above(workspace: Workspace, base: Base, rules: IgnoreRules) -> None:
    """Read the ignore files of the root and of the folders between it and the one that is searched."""
    for folder in _folders_above(base.inner) if base.inner else ():
        await _gather(workspace, base, folder, rules, IGNORE_FILES)


async def _gather(workspace: Workspace, base: Base, folder: str, rules: IgnoreRules, names: Sequence[str]) -> None:
    files: dict[str, str] = {}
    for name in names:
        path = base.display(f"{folder}/{name}" if folder else name)
        try:
            entry = await workspace.stat(path)
            if entry is not None and entry.kind == "file":
                files[name] = decoded(await workspace.read(path, limit=_IGNORE_BYTES), path=path).plain
        except ToolFailure:
            continue  # one that may not be read leaves nothing out
    rules.put(folder, files)


def stamp_of(path: Path) -> tuple[int, int] | None:
    """Return the time and size of what is at `path`, which differ after a change; None if missing."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _folders_above(name: str) -> list[str]:
    """Return the folders that a name is in, the root (`""`) first."""
    steps = name.split("/")[:-1]
    return ["/".join(steps[:count]) for count in range(len(steps) + 1)]
