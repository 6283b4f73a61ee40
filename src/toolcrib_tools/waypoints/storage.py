"""Waypoints of one workspace: metadata in the store, contents in files beside it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, Record, Records, ToolFailure, Workspace

from .._records import date_of, names_of
from .._workspace.place import workspace_of
from .blobs import Blobs, Manifest
from .snapshot import Snapshot

__all__ = ["MOST", "MOST_AUTOMATIC", "Waypoint", "Waypoints", "to_waypoint"]

MOST: Final = 100
"""Waypoints of one workspace."""
MOST_AUTOMATIC: Final = 10
"""Waypoints saved automatically before a restore: the oldest are deleted first."""


class Waypoint(TypedDict):
    """A state of the workspace that was saved."""

    id: str
    description: str
    saved: str
    files: int
    size: Annotated[int, Field(description="Bytes of all files.")]
    automatic: Annotated[bool, Field(description="It was saved before another one was restored.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waypoints:
    """The waypoints that the caller has of the workspace of a session. Lives as long as a call."""

    records: Records
    blobs: Blobs
    workspace: Workspace

    @classmethod
    def of(cls, ctx: Context) -> Waypoints:
        """Return the waypoints of the calling session. Raises `ToolFailure` without a workspace."""
        workspace = workspace_of(ctx)
        name = hashlib.sha256(f"{ctx.principal}\0{workspace.root}".encode()).hexdigest()[:32]
        folder = ctx.lent.folder("waypoints", kept=True) / name
        return cls(records=ctx.records("waypoints"), blobs=Blobs(folder=folder), workspace=workspace)

    @property
    def group(self) -> str:
        """Group of their records in the store."""
        return str(self.workspace.root)

    async def all(self) -> Sequence[Record]:
        """Return all of them, the newest first."""
        found = await self.records.list(group=self.group, limit=MOST + MOST_AUTOMATIC)
        return sorted(found, key=lambda record: -int(record.id))

    async def find(self, waypoint_id: str) -> Record:
        """Return one; raises `ToolFailure` with those that there are."""
        found = await self.records.get(waypoint_id.strip())
        if found is None or found.group != self.group:
            ids = [record.id for record in await self.all()]
            raise ToolFailure("not_found", f"this workspace has no waypoint {waypoint_id!r}", hint=names_of(ids))
        return found

    async def files(self, record: Record) -> Manifest:
        """Return what one holds."""
        return await to_thread.run_sync(self.blobs.read_list, record.value["list"])

    async def check_room(self) -> None:
        """Raise `ToolFailure("too_large")` where no more can be saved."""
        if len([one for one in await self.all() if not one.value["automatic"]]) >= MOST:
            raise ToolFailure(
                "too_large", f"this workspace has {MOST} waypoints already", hint="delete_waypoint makes room"
            )

    async def save(self, description: str, snapshot: Snapshot, *, automatic: bool = False) -> Record:
        """Keep a snapshot as a waypoint."""
        number = time.time_ns()
        await to_thread.run_sync(self.blobs.write_list, number, snapshot.files)
        value = {
            "description": description,
            "files": len(snapshot.files),
            "size": snapshot.size,
            "automatic": automatic,
            "list": number,
        }
        record = await self.records.add(value, group=self.group)
        others = [one for one in await self.all() if one.value["automatic"]]
        for one in others[MOST_AUTOMATIC:]:
            await self.remove(one)
        return record

    async def remove(self, record: Record) -> None:
        """Forget one, and what no other holds."""
        await self.records.remove(record.id)
        numbers = [one.value["list"] for one in await self.all()]
        await to_thread.run_sync(self.blobs.sweep, numbers)


def to_waypoint(record: Record) -> Waypoint:
    """Return the view of a waypoint."""
    value = record.value
    return Waypoint(
        id=record.id,
        description=value["description"],
        saved=date_of(record.created),
        files=value["files"],
        size=value["size"],
        automatic=value["automatic"],
    )
