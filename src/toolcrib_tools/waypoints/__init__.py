"""Waypoints: saved states of the workspace that can be restored.

A restore saves the current state as a waypoint first, so that no work is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, TypedDict

from anyio import to_thread
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace

from .._records import finds
from .._workspace.place import workspace_tool
from ..files.undo import in_turn
from .storage import Blobs, Difference, Manifest, Snapshot, Waypoint, Waypoints, compare, take, to_waypoint

__all__ = ["delete_waypoint", "list_waypoints", "restore_waypoint", "save_waypoint", "waypoint_info"]


class LeftOut(TypedDict):
    """A file that is in no waypoint."""

    path: str
    reason: str


class Saved(TypedDict):
    """The new waypoint."""

    waypoint: Waypoint
    left_out: list[LeftOut]


class WaypointList(TypedDict):
    """The newest first."""

    waypoints: list[Waypoint]


class Info(TypedDict):
    """A waypoint, and what has changed since."""

    waypoint: Waypoint
    changed: Annotated[list[str], Field(description="Files that hold something else now.")]
    missing: Annotated[list[str], Field(description="Files that are gone now.")]
    new: Annotated[list[str], Field(description="Files that were not there then.")]


@workspace_tool(
    op="x.waypoint.save",
    category="coordination",
    kind="write",
    approval="never",
    serial=True,
    tags=["waypoint", "checkpoint", "snapshot", "backup", "save"],
    examples=[{"description": "before the new parser"}],
    policy={
        "do": ["Save one before a change of many files that may go wrong."],
        "edge_cases": [
            "What .gitignore leaves out is not in it, nor are empty folders and files of more than 16 MiB.",
            "Changes that wait for review are in it as they are.",
        ],
    },
)
async def save_waypoint(
    description: Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S")], ctx: Context
) -> Saved:
    """Save all files of the workspace as they are now, so that restore_waypoint can bring this state back.

    Args:
        description: What state it is, such as "before the new parser".
    """
    waypoints = Waypoints.of(ctx)
    async with in_turn(waypoints.workspace):
        await waypoints.check_room()
        snapshot = await take(waypoints.workspace, waypoints.blobs)
        record = await waypoints.save(description.strip(), snapshot)
    left_out = [
        LeftOut(path=path, reason=reason)
        for path, reason in snapshot.left_out.items()
        if await _is_inside(waypoints.workspace, path)
    ]
    return Saved(waypoint=to_waypoint(record), left_out=left_out)


async def _is_inside(workspace: Workspace, path: str) -> bool:
    """Whether the workspace has something at `path`: a folder that is swapped for a link lists names from outside."""
    try:
        return await workspace.stat(path) is not None
    except ToolFailure:
        return False


@workspace_tool(
    op="x.waypoint.list",
    category="coordination",
    kind="read",
    tags=["waypoint", "checkpoint", "snapshot"],
    examples=[{}],
)
async def list_waypoints(ctx: Context) -> WaypointList:
    """List the waypoints of this workspace, the newest first."""
    return WaypointList(waypoints=[to_waypoint(record) for record in await Waypoints.of(ctx).all()])


@workspace_tool(
    op="x.waypoint.get",
    category="coordination",
    kind="read",
    tags=["waypoint", "checkpoint", "snapshot", "diff", "compare"],
    examples=[{"waypoint_id": "3"}],
)
async def waypoint_info(waypoint_id: Annotated[str, Field(min_length=1)], ctx: Context) -> Info:
    """Tell what has changed in the workspace since a waypoint was saved.

    Args:
        waypoint_id: Its id, as save_waypoint and list_waypoints tell it.
    """
    waypoints = Waypoints.of(ctx)
    record = await waypoints.find(waypoint_id)
    present = await take(waypoints.workspace, waypoints.blobs)
    difference = compare(await waypoints.files(record), present.files)
    return Info(
        waypoint=to_waypoint(record),
        changed=list(difference.changed),
        missing=[path for path in difference.missing if path not in present.left_out],
        new=list(difference.new),
    )


@workspace_tool(
    check=finds(lambda given, ctx: Waypoints.of(ctx).find(given["waypoint_id"])),
    op="x.waypoint.delete",
    category="coordination",
    kind="destructive",
    tags=["waypoint", "checkpoint", "snapshot", "remove"],
    examples=[{"waypoint_id": "3"}],
)
async def delete_waypoint(waypoint_id: Annotated[str, Field(min_length=1)], ctx: Context) -> str:
    """Delete a waypoint. The files of the workspace stay as they are.

    Args:
        waypoint_id: Its id.
    """
    waypoints = Waypoints.of(ctx)
    record = await waypoints.find(waypoint_id)
    await waypoints.remove(record)
    return f"deleted: {record.value['description']}"


class SkippedFile(TypedDict):
    """A file that is left as it is."""

    path: str
    reason: str


class Restored(TypedDict):
    """Changes of the workspace, made or planned."""

    waypoint: Waypoint
    changed: Annotated[list[str], Field(description="Files that hold what they held then.")]
    recreated: list[str]
    removed: Annotated[list[str], Field(description="Files that were not there then.")]
    left: list[SkippedFile]
    saved_as: Annotated[str, Field(description="Id of the waypoint of the state before; empty where none was saved.")]
    pending: Annotated[bool, Field(description="It waits for review: the disk is as it was.")]
    dry_run: bool


class _Work(Struct, kw_only=True):
    """Contents to write, by path; None for a file to delete."""

    contents: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    left: dict[str, str] = field(default_factory=dict[str, str])
    pending: bool = False


@workspace_tool(
    op="x.waypoint.restore",
    category="coordination",
    kind="destructive",
    traits=["file_writer", "by_action"],
    metadata={"reads": {"dry_run": [True]}},
    serial=True,
    tags=["waypoint", "checkpoint", "snapshot", "rollback", "undo", "restore"],
    examples=[{"waypoint_id": "3", "dry_run": True}, {"waypoint_id": "3"}],
    policy={
        "do": ["dry_run tells what would change: show it to the user first."],
        "edge_cases": [
            "The state before is saved as a waypoint of its own, which saved_as names: restoring it takes this back.",
            "What .gitignore leaves out, and what could not be saved before, is left as it is.",
            "Files made anew are not executable.",
        ],
    },
)
async def restore_waypoint(
    waypoint_id: Annotated[str, Field(min_length=1)], ctx: Context, dry_run: bool = False, keep_new: bool = False
) -> Restored:
    """Bring all files of the workspace back to what they were when a waypoint was saved.

    Args:
        waypoint_id: Its id, as save_waypoint and list_waypoints tell it.
        dry_run: Change nothing, only tell what would change.
        keep_new: Leave files that were not there then.
    """
    waypoints = Waypoints.of(ctx)
    async with in_turn(waypoints.workspace):
        record = await waypoints.find(waypoint_id)
        wanted = await waypoints.files(record)
        present = await take(waypoints.workspace, waypoints.blobs)
        difference = compare(wanted, present.files)
        if keep_new:
            difference = Difference(changed=difference.changed, missing=difference.missing, new=())
        work = await _work(waypoints, wanted, difference, present)
        saved_as = ""
        if work.contents and not dry_run:
            named = f"before waypoint {record.id} was restored"
            saved_as = (await waypoints.save(named, present, automatic=True)).id
            await _write(waypoints.workspace, work)

    def done(paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path in work.contents]

    return Restored(
        waypoint=to_waypoint(record),
        changed=done(difference.changed),
        recreated=done(difference.missing),
        removed=done(difference.new),
        left=[SkippedFile(path=path, reason=reason) for path, reason in sorted(work.left.items())],
        saved_as=saved_as,
        pending=work.pending,
        dry_run=dry_run,
    )


async def _work(waypoints: Waypoints, wanted: Manifest, difference: Difference, present: Snapshot) -> _Work:
    """Return the files to write. Files that were not saved are left alone."""
    work = _Work()
    missing: list[str] = []
    for path in difference.missing:
        if path in present.left_out or await waypoints.workspace.stat(path) is not None:
            work.left[path] = present.left_out.get(path, "what is there now is not in a waypoint, and would be lost")
        else:
            missing.append(path)
    digests = {path: wanted[path][0] for path in (*difference.changed, *missing)}
    work.contents = dict(await to_thread.run_sync(_contents, waypoints.blobs, digests))
    work.contents |= dict.fromkeys(difference.new)
    return work


def _contents(blobs: Blobs, digests: Mapping[str, str]) -> Mapping[str, bytes]:
    return {path: blobs.get(digest) for path, digest in digests.items()}


async def _write(workspace: Workspace, work: _Work) -> None:
    """Write everything at once, but for hidden files, some of which no tool may write: these one by one."""
    plain = {path: content for path, content in work.contents.items() if not _is_hidden(path)}
    if plain:
        work.pending = any(one.pending for one in await workspace.write_all(plain))
    for path in [path for path in work.contents if path not in plain]:
        try:
            (written,) = await workspace.write_all({path: work.contents[path]})
        except ToolFailure as failure:
            work.left[path] = failure.message
            del work.contents[path]
        else:
            work.pending = work.pending or written.pending


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(path).parts)
