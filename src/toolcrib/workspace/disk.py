"""Disk workspace: the files inside declared folders, with the rules of the guard; changes take effect at once.

`Tree` is the work itself, for a thread: a path becomes a `Place` (`paths`), which is looked at and opened step by step
below its root, following no link (`nodes`), and changed by batches (`batch`). `DiskWorkspace` is `core.workspace`'s
interface over it. Workspaces with pending changes read through the same `Tree`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Self, TypeVar

from anyio import to_thread

from ..core.memory import SMALL, reserve
from ..core.similar import nearest
from ..core.workspace import FileEntry, OpenFile, Written
from ..errors import ToolFailure
from .batch import MAX_BYTES, Change, apply
from .nodes import NodeFile, kind_of, look, open_file, parent_of, scan, translated_errors
from .paths import TEMPORARY, Guard, Place, Roots
from .safe_paths import rename_new

SKIPPED: Final = frozenset({".git", ".hg", ".svn", ".toolcrib"})
"""Folders that no walk enters: those of version control, and our own. Sources of skills and plugins skip others
(`safe_paths.SKIPPED`).
"""
_SYSTEM_FOLDERS: Final = (Path("/proc"), Path("/sys"), Path("/dev"))

_SPECIAL_KINDS: Final = {"link": "link", "other": "device, a pipe or a socket"}
_HINT_TO_ASK: Final = "do not try another way to it; tell the user"

T = TypeVar("T")

_ENTRY_BYTES: Final = 100
"""Bytes that an entry of a walk takes, as `reserve` counts them: a quarter of what it takes with its texts."""
_UNRESERVED_ENTRIES: Final = SMALL // _ENTRY_BYTES
"""Entries that are not reserved."""


class Tree:
    """Files below the roots. Immutable; may be used from several threads.

    The checks of every workspace on the disk: `place` (inside, not private), `readable` (not guarded), `writable` (not
    protected). Blocking; `DiskWorkspace` and `PendingWorkspace` call it in threads.
    """

    def __init__(self, roots: Roots, guard: Guard | None = None) -> None:
        """Without `guard` the built-in names are guarded."""
        self.roots = roots
        self.guard = guard or Guard(private=_SYSTEM_FOLDERS)

    def place(self, path: str) -> Place:
        """Return the place of a path. Raises `ToolFailure` for one that leads outside, or into a private folder."""
        place = self.roots.place(path)
        if self.is_ours(place):
            raise ToolFailure("denied", f"{place.shown} is a file of Toolcrib's own on its way")
        return place

    def is_ours(self, place: Place) -> bool:
        """Whether it is one of our own files on their way."""
        return any(step.startswith(TEMPORARY) for step in place.steps)

    def readable(self, path: str) -> Place:
        """Return the place of a readable path. Raises `ToolFailure("denied")` for a guarded one."""
        place = self.place(path)
        if held := self.guard.hides(place.root, place.steps):
            raise ToolFailure(
                "denied", f"{place.shown} is guarded ({held}): no tool reads or writes it", hint=_HINT_TO_ASK
            )
        return place

    def writable(self, path: str) -> Place:
        """Return the place of a writable path.

        Raises `ToolFailure`: `denied` for a guarded or protected path, `tool_error` for a root.
        """
        place = self.place(path)
        if not place.steps:
            raise ToolFailure("tool_error", f"{place.shown} is the workspace itself")
        if held := self.guard.fixes(place.root, place.steps):
            raise ToolFailure("denied", f"{place.shown} is protected ({held}): no tool writes it", hint=_HINT_TO_ASK)
        return place

    def stat(self, path: str) -> FileEntry | None:
        """Return the entry at a path; None if missing."""
        return self.stat_at(self.place(path))

    def stat_at(self, place: Place) -> FileEntry | None:
        """Return the entry at a place; None if missing."""
        found = look(place)
        return None if found is None else self.entry(place, found)

    def stat_many(
        self, paths: Sequence[str], look_at: Callable[[Place], FileEntry | None] | None = None
    ) -> list[FileEntry | None]:
        """Return the entry at each path, by `look_at` if given; None for paths that tools may not read."""
        found: list[FileEntry | None] = []
        for path in paths:
            try:
                found.append((look_at or self.stat_at)(self.readable(path)))
            except ToolFailure:
                found.append(None)
        return found

    def open(self, path: str, limit: int | None = None) -> NodeFile:
        """Open a file to read it; the caller closes it."""
        place = self.readable(path)
        many_names = self.guard.may_be_hard_linked(place.steps)
        try:
            return open_file(place, MAX_BYTES if limit is None else limit, many_names=many_names)
        except ToolFailure as failure:
            if isinstance(failure.__cause__, FileNotFoundError):
                raise self.not_there(place) from failure
            raise

    def read(self, path: str, limit: int | None = None) -> tuple[bytes, int]:
        """Return content and mode of a file."""
        with closing(self.open(path, limit)) as file:
            return file.read_all(MAX_BYTES if limit is None else limit), file.mode

    def read_small(self, path: str, limit: int | None = None) -> bytes | int:
        """Return the content of a file, or its size alone where it is above `SMALL`."""
        with closing(self.open(path, limit)) as file:
            return file.size if file.size > SMALL else file.read_all(MAX_BYTES if limit is None else limit)

    def read_few(self, paths: Sequence[str], limit: int | None = None) -> list[bytes | int | ToolFailure]:
        """Return the result of `read_small` for each file, or the refusal; ends behind `SMALL` bytes."""
        found: list[bytes | int | ToolFailure] = []
        size = 0
        for path in paths:
            try:
                content = self.read_small(path, limit)
            except ToolFailure as failure:
                found.append(failure)
                continue
            found.append(content)
            size += content if isinstance(content, int) else len(content)
            if size > SMALL:
                break
        return found

    def replace(self, contents: Mapping[str, bytes | None]) -> list[Written]:
        """Put all these files there or none of them; None removes one."""
        changes: dict[Place, Change] = {}
        written: list[Written] = []
        for path, content in contents.items():
            place = self.writable(path)
            if place in changes:
                raise ToolFailure("invalid_arguments", f"{place.shown} is named twice")
            there = self.must_be_plain(place)
            if content is None and not there:
                raise self.not_there(place)
            check_size(place, content)
            changes[place] = Change(place=place, content=content)
            written.append(Written(path=place.shown, created=not there, size=len(content or b"")))
        apply(tuple(changes.values()))
        return written

    def remove(self, path: str, *, recursive: bool) -> list[Written]:
        """Remove a file, a link, or a folder.

        The folder goes as one rename; its content is removed afterwards.
        """
        place = self.writable(path)
        found = look(place)
        if found is None:
            raise self.not_there(place)
        gone = [place]
        if kind_of(found) == "folder":
            gone = self.changeable(place)
            if not recursive and any(self._names(place)):
                raise ToolFailure(
                    "tool_error", f"{place.shown} is a folder with something in it", hint="recursive=true"
                )
        apply([Change(place=place)])
        return [Written(path=one.shown, created=False, size=0) for one in gone]

    def move(self, source: str, target: str) -> Written:
        """Move a file or a folder to where nothing is."""
        old, new = self.writable(source), self.writable(target)
        found = look(old)
        if found is None:
            raise self.not_there(old)
        check_into_itself(old, new)
        if kind_of(found) == "folder":
            for place in self.changeable(old):
                self.writable(str(new.path.joinpath(*place.steps[len(old.steps) :])))
        with translated_errors(new):
            if new.steps[:-1]:
                apply([Change(place=Place(new.root, new.steps[:-1], new.shown), folder=True)])
            try:
                with parent_of(old) as old_folder, parent_of(new) as new_folder:
                    rename_new(old.steps[-1], old_folder, new.steps[-1], new_folder)
            except OSError as error:
                if error.errno != errno.EXDEV or kind_of(found) != "file":
                    raise
                content, mode = self.read(source)
                apply([Change(place=new, content=content, mode=mode, expected=""), Change(place=old)])
        return Written(path=new.shown, created=True, size=found.st_size if kind_of(found) == "file" else 0)

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        place = self.place(path)
        if place.steps and look(place) is None:
            apply([Change(place=self.writable(path), folder=True)])
        elif (found := look(place)) is not None and kind_of(found) != "folder":
            raise ToolFailure("tool_error", f"{place.shown} is there already, and no folder")

    def list(self, path: str) -> list[FileEntry]:
        """Return the entries of a folder, by name."""
        place = self.readable(path)
        with translated_errors(place):
            entries = [
                self.entry(self.roots.at(place.root, (*place.steps, name)), found)
                for name, found in scan(place.root, place.steps)
                if not name.startswith(TEMPORARY)
            ]
        return entries

    def walk(self, path: str, *, hidden: bool = False, limit: int) -> list[FileEntry]:
        """Return the files below a folder that may be read, at most `limit`, by path.

        A folder that vanishes or cannot be read meanwhile is left out. Raises `ToolFailure` unless `path` is a folder.
        """
        found = islice(self.files(self.readable(path), hidden=hidden), limit)
        return sorted((self.entry(place, state) for place, state in found), key=lambda entry: entry.path)

    def files(self, top: Place, *, hidden: bool) -> Iterator[tuple[Place, os.stat_result]]:
        """Yield the files below a folder that may be read, in no order that matters."""
        with translated_errors(top):
            waiting = [(top.steps, list(scan(top.root, top.steps)))]
        while waiting:
            steps, found = waiting.pop()
            for name, state in found:
                inner = (*steps, name)
                if self.is_left_out(top.root, inner, hidden=hidden):
                    continue
                if kind_of(state) == "folder":
                    waiting.append((inner, _scanned(top.root, inner)))
                elif kind_of(state) == "file":
                    yield self.roots.at(top.root, inner), state

    def entry(self, place: Place, found: os.stat_result, *, pending: bool = False) -> FileEntry:
        """Return the entry that tools get for a file status."""
        kind = kind_of(found)
        size = found.st_size if kind == "file" else 0
        return FileEntry(path=place.shown, kind=kind, size=size, modified=found.st_mtime, pending=pending)

    def must_be_plain(self, place: Place) -> bool:
        """Return whether a replaceable file is there; raises `ToolFailure` for anything but a file."""
        found = look(place)
        if found is None:
            return False
        kind = kind_of(found)
        if kind == "folder":
            raise ToolFailure("tool_error", f"{place.shown} is a folder")
        if kind != "file":
            raise ToolFailure("denied", f"{place.shown} is not a regular file but a {_SPECIAL_KINDS[kind]}")
        if found.st_nlink > 1 and not self.guard.may_be_hard_linked(place.steps):
            raise ToolFailure("denied", f"{place.shown} has a second name (a hard link), which may lie outside")
        return True

    def changeable(self, folder: Place) -> list[Place]:
        """Return the files below a folder, all of which may be changed; raises `ToolFailure` for one that may not."""
        files: list[Place] = []
        for name in self._names(folder):
            inner = self.roots.at(folder.root, (*folder.steps, name))
            self.writable(str(inner.path))
            found = look(inner)
            if found is not None and kind_of(found) == "folder":
                files += self.changeable(inner)
            else:
                files.append(inner)
        return files

    def is_left_out(self, root: Path, steps: tuple[str, ...], *, hidden: bool) -> bool:
        """Whether walks leave something out, by its last step; those before were let through."""
        name = steps[-1]
        if name in SKIPPED or name.startswith(TEMPORARY) or (name.startswith(".") and not hidden):
            return True
        return bool(self.guard.hides(root, steps))

    def _names(self, folder: Place) -> Sequence[str]:
        with translated_errors(folder):
            return [name for name, _ in scan(folder.root, folder.steps)]

    def not_there(self, place: Place) -> ToolFailure:
        """Return the failure for a missing path, with similar names."""
        try:
            names = [name for name, _ in scan(place.root, place.steps[:-1])]
        except OSError:
            names = []
        wanted = place.steps[-1] if place.steps else ""
        near = nearest(wanted, names) if wanted else []
        hint = f"near it there is {', '.join(near)}" if near else ""
        return ToolFailure("not_found", f"there is no {place.shown}", hint=hint)


def check_size(place: Place, content: bytes | None) -> None:
    """Raise `ToolFailure("too_large")` for content beyond the limit of a file."""
    if content is not None and len(content) > MAX_BYTES:
        raise ToolFailure("too_large", f"{place.shown} would have {len(content):,} bytes, {MAX_BYTES:,} are the most")


def check_into_itself(old: Place, new: Place) -> None:
    """Raise `ToolFailure("tool_error")` for a folder that would be moved below itself."""
    if old.root == new.root and new.steps[: len(old.steps)] == old.steps:
        raise ToolFailure("tool_error", f"{old.shown} cannot be moved into itself")


def _scanned(root: Path, steps: tuple[str, ...]) -> list[tuple[str, os.stat_result]]:
    try:
        return list(scan(root, steps))
    except OSError:
        return []


class DiskWorkspace:
    """The protocol `Workspace` on the disk. Immutable, holds nothing open; used from any event loop.

    The work is done in threads, and a write that began ends, even when its caller is cancelled.

    Raises `ToolFailure` as the protocol says: `not_found`, `denied`, `too_large`, `invalid_arguments`, `tool_error`.
    """

    def __init__(self, *folders: str | Path, begin: str | Path | None = None, guard: Guard | None = None) -> None:
        """Tools may work in `folders`; relative paths begin at `begin`, else at the first one.

        Raises `UsageError` for a path that is not a folder.
        """
        roots = Roots(*map(Path, folders), begin=Path(begin) if begin is not None else None)
        self.tree = Tree(roots, guard)

    @classmethod
    def over(cls, tree: Tree) -> Self:
        """Return the workspace of files that are known already."""
        workspace = cls.__new__(cls)
        workspace.tree = tree
        return workspace

    @property
    def root(self) -> Path:
        """Base folder of relative paths."""
        return self.tree.roots.begin

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders inside which tools may work."""
        return self.tree.roots.all

    @property
    def diverts(self) -> bool:
        """False: changes go to the disk."""
        return False

    async def stat(self, path: str) -> FileEntry | None:
        """Return the entry at `path`, None if missing."""
        return await in_thread(self.tree.stat, path)

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileEntry | None]:
        """Return the entry at each path that a tool may read."""
        return await in_thread(self.tree.stat_many, paths)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the whole file."""
        return await read_whole(self.tree, path, limit)

    @asynccontextmanager
    async def opened(self, path: str, *, limit: int | None = None) -> AsyncGenerator[OpenFile]:
        """Open a file for as long as the block runs, to read parts of it."""
        file = await in_thread(self.tree.open, path, limit)
        try:
            yield file
        finally:
            file.close()

    async def read_many(self, paths: Sequence[str], *, limit: int | None = None) -> Sequence[bytes | ToolFailure]:
        """Return the content of each file, or why it may not be read, in one go."""
        return await read_each(self.tree, paths, limit)

    async def write(self, path: str, content: bytes) -> Written:
        """Put the file there, at once or not at all."""
        return (await self.write_all({path: content}))[0]

    async def write_all(self, contents: Mapping[str, bytes | None]) -> Sequence[Written]:
        """Put all these files there or none of them; None removes one."""
        return await in_thread(self.tree.replace, dict(contents))

    async def remove(self, path: str, *, recursive: bool = False) -> Sequence[Written]:
        """Remove a file, or a folder."""
        return await in_thread(partial(self.tree.remove, recursive=recursive), path)

    async def move(self, source: str, target: str) -> Written:
        """Move a file or a folder to where nothing is."""
        return await in_thread(self.tree.move, source, target)

    async def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        await in_thread(self.tree.make_folder, path)

    async def list(self, path: str = ".") -> Sequence[FileEntry]:
        """Return the entries of a folder, by name."""
        return await in_thread(self.tree.list, path)

    async def walk(self, path: str = ".", *, hidden: bool = False, limit: int = 100_000) -> Sequence[FileEntry]:
        """Return the files below a folder that may be read, by path; the memory for very many is reserved first."""
        found = await in_thread(partial(self.tree.walk, hidden=hidden, limit=min(limit, _UNRESERVED_ENTRIES)), path)
        if len(found) < _UNRESERVED_ENTRIES or limit <= _UNRESERVED_ENTRIES:
            return found
        found.clear()
        await reserve(limit * _ENTRY_BYTES)
        return await in_thread(partial(self.tree.walk, hidden=hidden, limit=limit), path)

    def local(self, path: str) -> Path:
        """Return a real path for a program. The code that starts the program answers for the links that it follows."""
        return self.tree.readable(path).path

    async def overlay(self, path: str = ".") -> Mapping[str, bytes | None]:
        """Return nothing: no change waits."""
        self.tree.readable(path)
        return {}


async def read_whole(tree: Tree, path: str, limit: int | None) -> bytes:
    """Return the content of a file; the memory for a large one is reserved first."""
    content = await in_thread(tree.read_small, path, limit)
    if isinstance(content, bytes):
        return content
    await reserve(content)
    return (await in_thread(tree.read, path, limit))[0]


async def read_each(tree: Tree, paths: Sequence[str], limit: int | None) -> list[bytes | ToolFailure]:
    """Return the content of each file, or why it may not be read; memory is reserved before each piece of it.

    Small files are read in one hop to a thread; a large one is read alone, once memory was reserved for it.
    """
    found: list[bytes | ToolFailure] = []
    while len(found) < len(paths):
        few = await in_thread(tree.read_few, paths[len(found) :], limit)
        for content in few:
            if isinstance(content, int):
                try:
                    content = await read_whole(tree, paths[len(found)], limit)
                except ToolFailure as failure:
                    content = failure
            found.append(content)
        if len(few) > 1 and len(found) < len(paths):
            await reserve(SMALL + 1)
    return found


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """Run `work` in a thread and return its result; an error of the disk becomes a `ToolFailure`.

    The thread is not stopped when the caller is cancelled: what it began is done.
    """
    try:
        return await to_thread.run_sync(work, *args)
    except OSError as error:
        raise ToolFailure("tool_error", f"the files cannot be worked on: {error.strerror or error}") from error
