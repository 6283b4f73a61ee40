"""Tools that save, list, show and delete waypoints."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, tool

from ..files.undo import in_turn
from .snapshot import compare, take
from .storage import Waypoint, Waypoints, to_waypoint

__all__ = [
    "Info",
    "LeftOut",
    "Saved",
    "WaypointList",
    "delete_waypoint",
    "list_waypoints",
    "save_waypoint",
    "waypoint_info",
]


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


@tool(
    op="x.waypoint.save",
    category="coordination",
    kind="write",
    open_world=False,
    needs=["workspace"],
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


@tool(
    op="x.waypoint.list",
    category="coordination",
    kind="read",
    open_world=False,
    needs=["workspace"],
    tags=["waypoint", "checkpoint", "snapshot"],
    examples=[{}],
)
async def list_waypoints(ctx: Context) -> WaypointList:
    """List the waypoints of this workspace, the newest first."""
    return WaypointList(waypoints=[to_waypoint(record) for record in await Waypoints.of(ctx).all()])


@tool(
    op="x.waypoint.get",
    category="coordination",
    kind="read",
    open_world=False,
    needs=["workspace"],
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


@tool(
    op="x.waypoint.delete",
    category="coordination",
    kind="destructive",
    open_world=False,
    needs=["workspace"],
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
