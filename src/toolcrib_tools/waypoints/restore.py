"""Restoring of a waypoint. The current state is saved as a waypoint first, so that no work is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, TypedDict

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, tool

from ..files.undo import in_turn
from .blobs import Blobs, Manifest
from .snapshot import Difference, Snapshot, compare, take
from .storage import Waypoint, Waypoints, to_waypoint

__all__ = [
    "Restored",
    "SkippedFile",
    "restore_waypoint",
]


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


@dataclass(slots=True, kw_only=True)
class _Work:
    """Contents to write, by path; None for a file to delete."""

    contents: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    left: dict[str, str] = field(default_factory=dict[str, str])
    pending: bool = False


@tool(
    op="x.waypoint.restore",
    category="coordination",
    kind="destructive",
    open_world=False,
    needs=["workspace"],
    traits=["file_writer"],
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
    """Return what is to be written. What is there and was not saved is left alone."""
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
