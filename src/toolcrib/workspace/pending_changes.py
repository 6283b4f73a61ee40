"""Workspace with pending changes: writes of tools are kept in the store until a review, and every reader sees them.

Several sessions of one task, and several processes, may work on the same set: each operation reads the newest version
and is made again when another one was faster.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from ..core.workspace import FileEntry, OpenFile, PendingKey, PendingSet, PendingStore, Written
from ..errors import ToolFailure
from .batch import MAX_BYTES
from .disk import Tree, in_thread, read_each, read_whole
from .overlay import Overlay
from .review import finish

T = TypeVar("T")

_MAX_TRIES: Final = 20
"""Times that an operation is made again because another one of the same set was faster."""


class _InMemoryFile:
    """A file whose content is in memory."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self._content = content

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on."""
        return self._content[offset : offset + size]


class PendingWorkspace:
    """The protocol `Workspace` with the disk behind it. Lives as long as its store; used from any event loop.

    Keeps the set that it read last, and asks the store for its version alone before each operation.
    """

    def __init__(
        self, tree: Tree, store: PendingStore, *, principal: str, owner: str, files: Literal["review", "audit"]
    ) -> None:
        """`owner` is the session or task of the set, `files` the way of accepting its changes."""
        self.tree = tree
        self.store = store
        self.key = PendingKey(principal=principal, workspace="\n".join(map(str, tree.roots.all)), owner=owner)
        self._files = files
        self._known = PendingSet(key=self.key)

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
        """True: the disk stays unchanged."""
        return True

    async def stat(self, path: str) -> FileEntry | None:
        """Return the entry at `path`, None if missing."""
        overlay, place = await self._overlay(), self.tree.place(path)
        return await in_thread(overlay.stat, place)

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileEntry | None]:
        """Return the present or pending entry at each path that a tool may read."""
        overlay = await self._overlay()
        return await in_thread(self.tree.stat_many, paths, overlay.stat)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the whole file, as it shall be."""
        content = await self._pending_content(path, limit)
        return await read_whole(self.tree, path, limit) if content is None else content

    async def _pending_content(self, path: str, limit: int | None) -> bytes | None:
        """Return the pending content of a file; None where the session sees the disk."""
        overlay, place = await self._overlay(), self.tree.readable(path)
        seen = await in_thread(overlay.at, place)
        if seen is None:
            raise await in_thread(self.tree.not_there, place)
        if seen.change is None:
            return None
        if seen.kind != "file":
            raise ToolFailure("tool_error", f"{place.shown} is a folder")
        most = MAX_BYTES if limit is None else limit
        if seen.change.size > most:
            message = f"{place.shown} has {seen.change.size:,} bytes, {most:,} may be read"
            raise ToolFailure("too_large", message, hint="read a part of it")
        return await self.store.content(self.key, seen.change.content)

    @asynccontextmanager
    async def opened(self, path: str, *, limit: int | None = None) -> AsyncGenerator[OpenFile]:
        """Open a file for as long as the block runs. One that waits is held whole: a set has at most 64 MiB."""
        content = await self._pending_content(path, limit)
        if content is not None:
            yield _InMemoryFile(content)
            return
        file = await in_thread(self.tree.open, path, limit)
        try:
            yield file
        finally:
            file.close()

    async def read_many(self, paths: Sequence[str], *, limit: int | None = None) -> Sequence[bytes | ToolFailure]:
        """Return the content of each file as it shall be, or why it may not be read."""
        overlay = await self._overlay()
        changed = await in_thread(_changed, overlay, paths)
        on_disk = iter(await read_each(self.tree, [path for path in paths if path not in changed], limit))
        found: list[bytes | ToolFailure] = []
        for path in paths:
            try:
                found.append(await self.read(path, limit=limit) if path in changed else next(on_disk))
            except ToolFailure as failure:
                found.append(failure)
        return found

    async def write(self, path: str, content: bytes) -> Written:
        """Record the new content of the file."""
        return (await self.write_all({path: content}))[0]

    async def write_all(self, contents: Mapping[str, bytes | None]) -> Sequence[Written]:
        """Write all of it down or nothing; None removes a file."""
        places = {self.tree.writable(path): content for path, content in contents.items()}
        if len(places) < len(contents):
            raise ToolFailure("invalid_arguments", "a file is named twice")

        def put(overlay: Overlay) -> list[Written]:
            written: list[Written] = []
            for place, content in places.items():
                if content is None:
                    seen = overlay.at(place)
                    if seen is not None and seen.kind == "folder":
                        raise ToolFailure("tool_error", f"{place.shown} is a folder")
                    overlay.remove(place, recursive=False)
                    written.append(Written(path=place.shown, created=False, size=0, pending=True))
                else:
                    written.append(overlay.put(place, content))
            return written

        return await self._change(put)

    async def remove(self, path: str, *, recursive: bool = False) -> Sequence[Written]:
        """Record the removal of a file or folder."""
        place = self.tree.writable(path)
        return await self._change(lambda overlay: overlay.remove(place, recursive=recursive))

    async def move(self, source: str, target: str) -> Written:
        """Write down that a file or folder moves."""
        old, new = self.tree.writable(source), self.tree.writable(target)
        overlay = await self._overlay()
        contents = {digest: await self.store.content(self.key, digest) for digest in overlay.needed(old)}

        def move(overlay: Overlay) -> Written:
            if any(digest not in contents for digest in overlay.needed(old)):
                raise ToolFailure("conflict", f"{old.shown} changed while it was moved", hint="try again")
            return overlay.move(old, new, contents)

        return await self._change(move)

    async def make_folder(self, path: str) -> None:
        """Write down a folder and those above it."""
        if self.tree.place(path).steps:
            place = self.tree.writable(path)
            await self._change(lambda overlay: overlay.make_folder(place))

    async def list(self, path: str = ".") -> Sequence[FileEntry]:
        """Return the entries of a folder, by name."""
        overlay, place = await self._overlay(), self.tree.readable(path)
        return await in_thread(overlay.list, place)

    async def walk(self, path: str = ".", *, hidden: bool = False, limit: int = 100_000) -> Sequence[FileEntry]:
        """Return the files below a folder that may be read, by path."""
        overlay, place = await self._overlay(), self.tree.readable(path)
        return await in_thread(partial(overlay.walk, hidden=hidden, limit=limit), place)

    def local(self, path: str) -> Path:
        """Return a real path for a program, where the changes that wait are not."""
        return self.tree.readable(path).path

    async def overlay(self, path: str = ".") -> Mapping[str, bytes | None]:
        """Return the pending changes at and below `path`: content by path, None for removed files."""
        overlay, place = await self._overlay(), self.tree.readable(path)
        found: dict[str, bytes | None] = {
            inner.shown: None for inner in await in_thread(overlay.hidden_files, place) if inner.steps
        }
        for change in overlay.changes.values():
            inner = overlay.place_of(change)
            if change.kind == "file" and (inner.path == place.path or inner.path.is_relative_to(place.path)):
                found[inner.shown] = await self.store.content(self.key, change.content)
        return dict(sorted(found.items()))

    async def waiting(self) -> PendingSet:
        """Return the present set; an acceptance that a crash interrupted is completed first."""
        if self._known.version != await self.store.version(self.key) or not self._known.version:
            self._known = await self.store.get(self.key)
        if any(change.applying for change in self._known.changes):
            await finish(self.tree, self.store, self.key)
            self._known = await self.store.get(self.key)
        return self._known

    async def _overlay(self) -> Overlay:
        return Overlay(self.tree, (await self.waiting()).changes)

    async def _change(self, work: Callable[[Overlay], T]) -> T:
        """Do `work` on the newest set and write down its outcome; again when another writer was faster.

        `work` may run several times, each on a fresh overlay.
        """
        for _ in range(_MAX_TRIES):
            before = await self.waiting()
            overlay = Overlay(self.tree, before.changes)
            done = await in_thread(work, overlay)
            changes = tuple(overlay.changes[path] for path in sorted(overlay.changes))
            if changes == before.changes:
                return done
            held = {digest for change in changes for digest in (change.content, change.before)}
            kept = {digest for change in before.changes for digest in (change.content, change.before)}
            new = {digest: content for digest, content in overlay.contents.items() if digest in held - kept}
            after = replace(before, files=self._files, version=before.version + 1, changes=changes)
            if await self.store.replace(after, new):
                self._known = after
                return done
        raise ToolFailure("conflict", "others changed the same files all the time", hint="try again")


def _changed(overlay: Overlay, paths: Sequence[str]) -> set[str]:
    """Return those of the paths that are not as the disk has them."""
    changed: set[str] = set()
    for path in paths:
        with suppress(ToolFailure):  # the reader of the path reports why it is invalid
            place = overlay.tree.place(path)
            if place.path in overlay.changes or overlay.hides(place):
                changed.add(path)
    return changed
