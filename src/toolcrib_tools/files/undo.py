"""Undo of file changes in a session, and the backups that it restores from."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final, TypedDict
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import RunVar
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, Written, unshown

from .._records import date_of
from .._workspace.place import entry_at, name_of, workspace_of, workspace_tool

MOST_CHANGES: Final = 100
MOST_BYTES: Final = 64 * 1024 * 1024
MOST_FILE_BYTES: Final = 16 * 1024 * 1024
_KEY: Final = "files.history"

_turns: Final = RunVar[WeakValueDictionary[object, anyio.Lock]]("toolcrib_tools.files.turns")


def in_turn(workspace: Workspace) -> AbstractAsyncContextManager[None]:
    """Return a lock to hold from reading files to writing them back: changes in the same folders take turns.

    The turns of the pipeline go by the words of a path; these go by the workspace, so that two spellings of one file,
    and two sessions, cannot lose each other's changes.
    """
    known = _turns.get(None)
    turns = WeakValueDictionary[object, anyio.Lock]() if known is None else known
    if known is None:
        _turns.set(turns)
    lock = turns.get(workspace.roots)
    if lock is None:
        lock = turns[workspace.roots] = anyio.Lock()
    return lock


class Change(Struct, frozen=True, kw_only=True):
    """One change: the files before it, and digests of its result. None stands for a missing file."""

    id: str
    time: float
    """Seconds since 1970."""
    before: Mapping[str, bytes | None]
    after: Mapping[str, bytes | None]
    moved: tuple[str, str] | None = None
    """A move of what holds no content here: from, to."""

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return sum(len(content) for content in self.before.values() if content is not None)

    @property
    def paths(self) -> Sequence[str]:
        """The paths that it touched."""
        return self.moved or tuple(self.before)


class History(Struct):
    """The changes of one session, the newest last."""

    _changes: deque[Change] = field(default_factory=deque[Change])
    _count: int = 0
    _size: int = 0

    def record(self, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> bool:
        """Keep what is needed to take a change back; return whether there was room for it."""
        contents = [content for content in before.values() if content is not None]
        if any(len(content) > MOST_FILE_BYTES for content in contents) or sum(map(len, contents)) > MOST_BYTES:
            return False
        digests = {path: digest(content) for path, content in after.items()}
        self._add(dict(before), digests, None)
        return True

    def record_move(self, source: str, target: str) -> None:
        """Keep that something was moved as it was."""
        self._add({}, {}, (source, target))

    def newest(self, path: str = "") -> Change | None:
        """Return the newest change, or the newest that touched `path`."""
        return next(self.all(path), None)

    def all(self, path: str = "") -> Iterator[Change]:
        """Yield the changes, the newest first."""
        return (change for change in reversed(self._changes) if not path or path in change.paths)

    def forget(self, change: Change) -> None:
        """Let a change go that was taken back."""
        self._changes.remove(change)
        self._size -= change.size

    def _add(
        self,
        before: Mapping[str, bytes | None],
        after: Mapping[str, bytes | None],
        moved: tuple[str, str] | None,
    ) -> None:
        self._count += 1
        change = Change(id=f"b{self._count}", time=time.time(), before=before, after=after, moved=moved)
        self._changes.append(change)
        self._size += change.size
        while len(self._changes) > MOST_CHANGES or self._size > MOST_BYTES:
            self._size -= self._changes.popleft().size


def history_of(ctx: Context) -> History:
    """Return the changes of the session that makes this call."""
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, History):
        found = ctx.runtime[_KEY] = History()
    return found


async def apply(
    ctx: Context,
    workspace: Workspace,
    before: Mapping[str, bytes | None],
    after: Mapping[str, bytes | None],
) -> tuple[Sequence[Written], bool]:
    """Write all files of `after` or none, and keep those of `before`.

    Paths are as the workspace names them. Returns what was written, and whether it can be undone.
    """
    written = await workspace.write_all(after)
    return written, history_of(ctx).record(before, after)


def digest(content: bytes | None) -> bytes | None:
    """Return the digest of a file's content."""
    return None if content is None else hashlib.blake2b(content, digest_size=16).digest()


class Undone(TypedDict):
    """Changes that were taken back."""

    paths: list[str]
    pending: Annotated[bool, Field(description="It waits for review: the disk is as it was.")]


class Backup(TypedDict):
    """Content of a file before a change."""

    id: str
    path: str
    time: str
    size: Annotated[int | None, Field(description="Bytes; null where there was no file.")]


class Backups(TypedDict):
    """The newest first."""

    backups: list[Backup]


@workspace_tool(
    op="x.file.undo",
    category="files",
    kind="write",
    traits=["file_writer"],
    locks=["path"],
    tags=["undo", "revert", "restore", "file"],
    examples=[{}, {"path": "src/app.py"}],
    policy={
        "do": ["Use it right after a change that turned out wrong."],
        "edge_cases": [
            "A change of several files is taken back as a whole.",
            "It refuses if such a file was changed again since, by another program or session.",
            "Only changes made in this session with these tools are known: the last 100, 64 MiB in all.",
        ],
    },
)
async def undo_edit(ctx: Context, path: str = "") -> Undone:
    """Take back the newest change of files that was made in this session, or the newest one of a file.

    Args:
        path: The file whose newest change is to be taken back; the newest change of all when not given.
    """
    workspace = workspace_of(ctx)
    async with in_turn(workspace):
        history = history_of(ctx)
        name = name_of(workspace, path) if path else ""
        change = history.newest(name)
        if change is None:
            raise ToolFailure(
                "not_found",
                f"no change of {path!r} is known in this session" if path else "no change is known in this session",
                hint="list_backups shows what can be brought back",
            )
        pending = await _take_back(workspace, change)
        history.forget(change)
    return Undone(paths=list(change.paths), pending=pending)


@workspace_tool(
    op="x.file.backup.list",
    category="files",
    kind="read",
    tags=["backup", "history", "file"],
    examples=[{}, {"path": "src/app.py"}],
)
async def list_backups(ctx: Context, path: str = "") -> Backups:
    """List earlier versions of files: what they held before the changes of this session, the newest first.

    Args:
        path: Only of this file.
    """
    workspace = workspace_of(ctx)
    name = name_of(workspace, path) if path else ""
    backups = [
        _to_backup(change, one, content)
        for change in history_of(ctx).all(name)
        for one, content in change.before.items()
        if not name or one == name
    ]
    if name and not backups:
        await entry_at(workspace, path)
    return Backups(backups=backups)


@workspace_tool(
    op="x.file.backup.restore",
    category="files",
    kind="write",
    traits=["file_writer"],
    locks=["path"],
    tags=["backup", "restore", "file"],
    examples=[{"path": "src/app.py"}, {"path": "src/app.py", "backup": "b3"}],
    policy={"edge_cases": ["It is a change like any other: undo_edit takes it back."]},
)
async def restore_backup(path: str, ctx: Context, backup: str = "") -> Undone:
    """Bring back an earlier version of a file: what it held before one of the changes that list_backups shows.

    Args:
        path: The file.
        backup: The id of the backup, such as "b3"; the newest of the file when not given.
    """
    workspace = workspace_of(ctx)
    async with in_turn(workspace):
        name = name_of(workspace, path)
        known = {change.id: change for change in history_of(ctx).all(name) if name in change.before}
        backup = backup or next(iter(known), "")
        if backup not in known:
            raise ToolFailure(
                "not_found",
                f"there is no backup {f'{backup!r} ' if backup else ''}of {path!r}",
                hint=f"there are {', '.join(known)}" if known else "list_backups shows those that there are",
            )
        content = known[backup].before[name]
        entry = await workspace.stat(name)
        before = None if entry is None else await unshown(workspace).read(name)
        written, _ = await apply(ctx, workspace, {name: before}, {name: content})
    return Undone(paths=[name], pending=any(one.pending for one in written))


async def _take_back(workspace: Workspace, change: Change) -> bool:
    """Restore the files of a change; raises `ToolFailure` if they were changed again since."""
    if change.moved:
        source, target = change.moved
        if await workspace.stat(target) is None:
            raise ToolFailure("tool_error", f"{target!r} is not there any more, so its move cannot be taken back")
        return (await workspace.move(target, source)).pending
    changed: list[str] = []
    for path, made in change.after.items():
        entry = await workspace.stat(path)
        now = await unshown(workspace).read(path) if entry is not None and entry.kind == "file" else None
        if digest(now) != made or (entry is not None and entry.kind != "file"):
            changed.append(path)
    if changed:
        raise ToolFailure(
            "tool_error",
            f"{', '.join(changed)} changed again since, so that change cannot be taken back",
            hint="restore_backup brings back a file's earlier content and overwrites its present one",
        )
    written = await workspace.write_all(change.before)
    return any(one.pending for one in written)


def _to_backup(change: Change, path: str, content: bytes | None) -> Backup:
    return Backup(
        id=change.id,
        path=path,
        time=date_of(change.time),
        size=None if content is None else len(content),
    )
