"""Taking changes back, and bringing back what files held before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, tool

from .._workspace.place import entry_at, name_of, workspace_of
from .history import Change, apply, digest, history_of, in_turn

__all__ = ["Backup", "Backups", "Undone", "list_backups", "restore_backup", "undo_edit"]


class Undone(TypedDict):
    """What was taken back."""

    undone: Annotated[str, Field(description="The tool whose change was taken back.")]
    paths: list[str]
    pending: Annotated[bool, Field(description="It waits for review: the disk is as it was.")]


class Backup(TypedDict):
    """What a file held before a change."""

    id: str
    path: str
    tool: Annotated[str, Field(description="The tool that made the change.")]
    time: str
    size: Annotated[int | None, Field(description="Bytes; null where there was no file.")]


class Backups(TypedDict):
    """The newest first."""

    backups: list[Backup]


@tool(
    op="x.file.undo",
    category="files",
    kind="write",
    open_world=False,
    needs=["workspace"],
    traits=["file_writer"],
    locks=["path"],
    tags=["undo", "revert", "restore", "file"],
    examples=[{}, {"path": "src/app.py"}],
    policy={
        "do": ["Use it right after a change that turned out wrong."],
        "edge_cases": [
            "A change of several files is taken back as a whole.",
            "It refuses when somebody else has changed such a file since.",
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
    return Undone(undone=change.tool, paths=list(change.paths), pending=pending)


@tool(
    op="x.file.backup.list",
    category="files",
    kind="read",
    open_world=False,
    needs=["workspace"],
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
        _shown(change, one, content)
        for change in history_of(ctx).all(name)
        for one, content in change.before.items()
        if not name or one == name
    ]
    if name and not backups:
        await entry_at(workspace, path)
    return Backups(backups=backups)


@tool(
    op="x.file.backup.restore",
    category="files",
    kind="write",
    open_world=False,
    needs=["workspace"],
    traits=["file_writer"],
    locks=["path"],
    tags=["backup", "restore", "file"],
    examples=[{"path": "src/app.py"}, {"path": "src/app.py", "backup": "b3"}],
    policy={"edge_cases": ["It is a change like any other: undo_edit takes it back."]},
)
async def restore_backup(path: str, ctx: Context, backup: str = "") -> Undone:
    """Bring back what a file held before one of the changes that list_backups shows.

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
        before = None if entry is None else await workspace.read(name)
        written, _ = await apply(ctx, workspace, "restore_backup", {name: before}, {name: content})
    return Undone(undone=known[backup].tool, paths=[name], pending=any(one.pending for one in written))


async def _take_back(workspace: Workspace, change: Change) -> bool:
    """Make the files what they were before; raises `ToolFailure` where they are no longer what the change made."""
    if change.moved:
        source, target = change.moved
        if await workspace.stat(target) is None:
            raise ToolFailure("tool_error", f"{target!r} is not there any more, so its move cannot be taken back")
        return (await workspace.move(target, source)).pending
    changed: list[str] = []
    for path, made in change.after.items():
        entry = await workspace.stat(path)
        now = await workspace.read(path) if entry is not None and entry.kind == "file" else None
        if digest(now) != made or (entry is not None and entry.kind != "file"):
            changed.append(path)
    if changed:
        raise ToolFailure(
            "tool_error",
            f"{', '.join(changed)} changed since {change.tool} did, so that change cannot be taken back",
            hint="restore_backup brings back what a file held before, whatever it holds now",
        )
    written = await workspace.write_all(change.before)
    return any(one.pending for one in written)


def _shown(change: Change, path: str, content: bytes | None) -> Backup:
    return Backup(
        id=change.id,
        path=path,
        tool=change.tool,
        time=datetime.fromtimestamp(change.time, UTC).isoformat(timespec="seconds"),
        size=None if content is None else len(content),
    )
