"""Changes of files in the workspaces of projects, for the hooks and playbooks that wait for them.

Each tick of the queue looks for files and folders that changed since the last look, in workspaces for whose files
something waits; one time is stored for each workspace. What an agent changes during its task is in the result of the
task and not published: a hook whose task changes files would start itself.

    tick ─> files and folders newer than the last look ─> file.changed, folder.changed and the new time, in one
            transaction ─> due runs of the hooks and playbooks that wait for them
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
from msgspec import Struct

from toolcrib.plugin import Context, Host, Row, Rows

from ..events import FILE_EVENTS, publish_file
from ..model import SCHEMA
from ..operations import storage_of

_SKIPPED: Final = frozenset({".git", ".hg", ".svn", ".toolcrib", ".venv", "__pycache__", "node_modules"})
_MOST: Final = 50_000
"""Entries of one workspace that a look reads: 0.2 s."""
_PUBLISHED: Final = 20
"""Events of one type, of one workspace and look: the newest changes. What a checkout changes besides is in no event."""


class _Watched(Struct, frozen=True, kw_only=True):
    """A workspace for whose files something waits."""

    workspace: Row
    watch: Row | None
    since: float


_Change = tuple[float, str, str]
"""Time, type of the event, and path from the workspace."""


async def has_changed_files(host: Host, principal: str) -> bool:
    """Whether `publish_changed_files` would publish anything."""
    watched = await host.storage(principal, SCHEMA).read(_watched)
    return bool(watched) and bool(await anyio.to_thread.run_sync(_look, watched))


async def publish_changed_files(ctx: Context) -> int:
    """Publish what changed in the workspaces that the caller added; return the number of events."""
    watched = await storage_of(ctx).read(_watched)
    changes = await anyio.to_thread.run_sync(_look, watched) if watched else {}
    if not changes:
        return 0

    def work(rows: Rows) -> int:
        published = 0
        for one in _watched(rows):
            found = [change for change in changes.get(one.workspace["id"], ()) if change[0] > one.since]
            for moment, type, path in found:
                publish_file(rows, type, one.workspace, path, moment)
            if found:
                _remember(rows, one, max(found)[0])
            published += len(found)
        return published

    return await storage_of(ctx).write(work)


def _watched(rows: Rows) -> list[_Watched]:
    """Return the workspaces to look at: free ones that the caller added, in projects where something waits.

    Another member may have added a folder that is not for the eyes of all, and names of files are in the events.
    """
    waiting = dict(_waiting(rows))
    if not waiting:
        return []
    watches = {row["workspace_id"]: row for row in rows.select("SELECT * FROM {watches} AS w")}
    workspaces = rows.select("SELECT * FROM {workspaces} AS w ORDER BY id")
    locked = {one["workspace_path"] for one in workspaces if one["locked_by_task_id"]}  # perhaps by another project
    freed: dict[str, float] = {}  # a lock that ends is an update
    for one in workspaces:
        freed[one["workspace_path"]] = max(one["updated_at"], freed.get(one["workspace_path"], 0.0))
    found: list[_Watched] = []
    for workspace in workspaces:
        project_id, path = workspace["project_id"], workspace["workspace_path"]
        begun = waiting.get(project_id, waiting.get(""))
        is_own = workspace["created_by"] == rows.principal and rows.role(project_id) != "viewer"
        if begun is not None and is_own and path not in locked:
            watch = watches.get(workspace["id"])
            since = max(begun, freed[path], watch["newest"] if watch else 0.0)
            found.append(_Watched(workspace=workspace, watch=watch, since=since))
    return found


def _waiting(rows: Rows) -> Iterator[tuple[str, float]]:
    """Yield the projects in which something waits for files, empty for all, and since when."""
    for hook in rows.select("SELECT * FROM {hooks} AS h WHERE enabled = 1"):
        trigger = hook["trigger_config"]
        if trigger["type"] == "event" and trigger["event_type"] in FILE_EVENTS:
            yield hook["project_id"], hook["created_at"]
    for playbook in rows.select("SELECT * FROM {playbooks} AS p WHERE enabled = 1"):
        types = {trigger if isinstance(trigger, str) else trigger["event_type"] for trigger in playbook["triggers"]}
        if types & {*FILE_EVENTS}:
            yield "" if playbook["scope"] == "system" else playbook["project_id"], playbook["created_at"]


def _look(watched: list[_Watched]) -> dict[str, list[_Change]]:
    """Return the changes by workspace. Runs in a thread: a disk may be slow."""
    found = {one.workspace["id"]: _changes(Path(one.workspace["workspace_path"]), one.since) for one in watched}
    return {id: changes for id, changes in found.items() if changes}


def _changes(root: Path, since: float) -> list[_Change]:
    files: list[_Change] = []
    folders: list[_Change] = []
    pending, left, now = [root], _MOST, time.time()
    while pending and left > 0:
        folder = pending.pop()
        try:
            stamp = _stamp(folder.stat(), now)
            with os.scandir(folder) as entries:
                listed = [entry for entry in entries if entry.name not in _SKIPPED and not entry.is_symlink()]
        except OSError:  # it is gone, not on this machine, or not for this user
            continue
        left -= len(listed)
        if stamp > since:
            folders.append((stamp, "folder.changed", _shown(folder, root)))
        for entry in listed:
            try:
                if entry.is_dir():
                    pending.append(Path(entry.path))
                elif (stamp := _stamp(entry.stat(), now)) > since:
                    files.append((stamp, "file.changed", _shown(Path(entry.path), root)))
            except OSError:
                continue
    return [*sorted(files)[-_PUBLISHED:], *sorted(folders)[-_PUBLISHED:]]


def _shown(path: Path, root: Path) -> str:
    """Return the path from the workspace; bytes that are not UTF-8 are replaced."""
    return os.fsencode(path.relative_to(root).as_posix()).decode(errors="replace")


def _stamp(found: os.stat_result, now: float) -> float:
    """Return when a file changed; a time that a program set into the future counts as now."""
    return max(found.st_ctime, min(found.st_mtime, now))


def _remember(rows: Rows, one: _Watched, newest: float) -> None:
    values: dict[str, Any] = {"project_id": one.workspace["project_id"], "workspace_id": one.workspace["id"]}
    if one.watch is None:
        rows.insert("watches", {**values, "newest": newest})
    else:
        rows.update("watches", one.watch["id"], {"newest": newest})
