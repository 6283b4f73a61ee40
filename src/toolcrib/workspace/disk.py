"""Disk workspace: a change by a tool takes effect at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from anyio import to_thread

from ..core.workspace import Entry, OpenFile, Written
from ..errors import ToolFailure
from .paths import Roots
from .protected_names import Guard
from .tree import Tree

__all__ = ["DiskWorkspace", "in_thread"]

T = TypeVar("T")


class DiskWorkspace:
    """The protocol `Workspace` on the disk. Immutable, holds nothing open; used from any event loop.

    The work is done in threads, and a write that began ends, even when its caller is cancelled.
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

    async def stat(self, path: str) -> Entry | None:
        """Return the entry at `path`, None if missing."""
        return await in_thread(self.tree.stat, path)

    async def stat_many(self, paths: Sequence[str]) -> Sequence[Entry | None]:
        """Return the entry at each path that a tool may read."""
        return await in_thread(self.tree.stat_many, paths)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the whole file."""
        return (await in_thread(self.tree.read, path, limit))[0]

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
        return await in_thread(self.tree.read_many, paths, limit)

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

    async def list(self, path: str = ".") -> Sequence[Entry]:
        """Return the entries of a folder, by name."""
        return await in_thread(self.tree.list, path)

    async def walk(self, path: str = ".", *, hidden: bool = False, limit: int = 100_000) -> Sequence[Entry]:
        """Return the files below a folder that may be read, by path."""
        return await in_thread(partial(self.tree.walk, hidden=hidden, limit=limit), path)

    def local(self, path: str) -> Path:
        """Return a real path for a program. The code that starts the program answers for the links that it follows."""
        return self.tree.readable(path).path

    async def overlay(self, path: str = ".") -> Mapping[str, bytes | None]:
        """Return nothing: no change waits."""
        self.tree.readable(path)
        return {}


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """Run `work` in a thread and return its result; an error of the disk becomes a `ToolFailure`."""
    try:
        return await to_thread.run_sync(work, *args)
    except OSError as error:
        raise ToolFailure("tool_error", f"the files cannot be worked on: {error.strerror or error}") from error
