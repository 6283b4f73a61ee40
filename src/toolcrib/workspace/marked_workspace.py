"""Workspace that taints the session which reads a marked file, and marks what a tainted session writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread

from ..core.taint import StoredTaint, TaintedFile
from ..core.workspace import FileEntry, OpenFile, Workspace, Written
from ..errors import ToolFailure
from .tainted_files import FileMarks


class MarkedWorkspace:
    """The protocol `Workspace` for one call: it marks what the call writes, and notes the marks of what it reads.

    Made for each call by `Execute`; holds nothing but references.
    """

    def __init__(self, files: Workspace, marks: FileMarks, taint: StoredTaint, session: str) -> None:
        """`taint` is that of the call, `session` the key of its session."""
        self.files = files
        self._marks = marks
        self._taint = taint
        self._session = session

    @property
    def root(self) -> Path:
        """Base folder of relative paths."""
        return self.files.root

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders inside which tools may work."""
        return self.files.roots

    @property
    def diverts(self) -> bool:
        """Whether changes wait for review instead of going to the disk."""
        return self.files.diverts

    async def stat(self, path: str) -> FileEntry | None:
        """Return the entry at `path`, None if missing."""
        return await self.files.stat(path)

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileEntry | None]:
        """Return the entry at each path."""
        return await self.files.stat_many(paths)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the whole file."""
        content = await self.files.read(path, limit=limit)
        await self.note({path: content})
        return content

    @asynccontextmanager
    async def opened(self, path: str, *, limit: int | None = None) -> AsyncGenerator[OpenFile]:
        """Open a file for as long as the block runs."""
        async with self.files.opened(path, limit=limit) as file:
            await self._marks.refresh()
            if self._marks.has_any and not self._taint.read:
                self._note(await self._marks.of_open(self.files.local(path), file))
            yield file

    async def read_many(self, paths: Sequence[str], *, limit: int | None = None) -> Sequence[bytes | ToolFailure]:
        """Return the content or the error for each path."""
        contents = await self.files.read_many(paths, limit=limit)
        found = zip(paths, contents, strict=True)
        await self.note({path: content for path, content in found if not isinstance(content, ToolFailure)})
        return contents

    async def note(self, contents: Mapping[str, bytes]) -> None:
        """Note the marks of contents that were read, by path."""
        await self._marks.refresh()  # after the read: a mark is stored before its content is there
        if not self._marks.has_any:
            return
        for path, content in contents.items():
            if self._taint.read:
                return
            self._note(await self._marks.of(self.files.local(path), content))

    def _note(self, mark: TaintedFile | None) -> None:
        if mark is not None:
            self._taint.note_file(mark.source, mark.reason)

    async def write(self, path: str, content: bytes) -> Written:
        """Put the file there."""
        return (await self.write_all({path: content}))[0]

    async def write_all(self, contents: Mapping[str, bytes | None]) -> Sequence[Written]:
        """Put all these files there or none of them; None removes one."""
        source = self._taint.mark
        if not source:
            await self._marks.refresh()
        if source or self._marks.has_any:
            new = {self.files.local(path): content for path, content in contents.items() if content is not None}
            await self._marks.put(new, self.files.roots, source, self._session)
        await self._trace(path for path, content in contents.items() if content is not None)
        return await self.files.write_all(contents)

    async def remove(self, path: str, *, recursive: bool = False) -> Sequence[Written]:
        """Remove a file, or a folder."""
        return await self.files.remove(path, recursive=recursive)

    async def move(self, source: str, target: str) -> Written:
        """Move a file or a folder."""
        await self._trace((target,))
        await self._marks.refresh()
        if not self._marks.has_any:
            return await self.files.move(source, target)
        old, new = self.files.local(source), self.files.local(target)
        written = await self.files.move(source, target)
        await self._marks.keep_moved(old, new, self.files.roots)
        return written

    async def make_folder(self, path: str) -> None:
        """Make a folder and its parents."""
        await self._trace((path,))
        await self.files.make_folder(path)

    async def _trace(self, paths: Iterable[str]) -> None:
        """Leave a trace at what a server of a confirmed project would run, which a tool is about to make."""
        awaited = self._marks.awaited
        if awaited is not None and not self.files.diverts and awaited.has_any:
            await to_thread.run_sync(awaited.begin, [self.files.local(path) for path in paths])

    async def list(self, path: str = ".") -> Sequence[FileEntry]:
        """Return the entries of a folder, by name."""
        return await self.files.list(path)

    async def walk(self, path: str = ".", *, hidden: bool = False, limit: int = 100_000) -> Sequence[FileEntry]:
        """Return the files below a folder, by path."""
        return await self.files.walk(path, hidden=hidden, limit=limit)

    def local(self, path: str) -> Path:
        """Return a real path for a program."""
        return self.files.local(path)

    async def overlay(self, path: str = ".") -> Mapping[str, bytes | None]:
        """Return the pending changes below `path`."""
        return await self.files.overlay(path)


def unshown(workspace: Workspace) -> Workspace:
    """Return the same files for content that no result shows, such as a backup: reading it notes no mark."""
    return workspace.files if isinstance(workspace, MarkedWorkspace) else workspace


async def note_shown(workspace: Workspace, contents: Mapping[str, bytes]) -> None:
    """Note the marks of contents, by path, that were read by `unshown` and that the result shows after all."""
    if isinstance(workspace, MarkedWorkspace):
        await workspace.note(contents)
