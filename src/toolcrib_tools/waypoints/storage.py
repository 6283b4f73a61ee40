"""Storage of waypoints: snapshots of a workspace's files, metadata in the store, file contents under their digests.

Blocking parts run in threads.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from anyio import to_thread
from msgspec import Struct, field
from pydantic import Field, TypeAdapter, ValidationError

from toolcrib.plugin import Context, Record, Records, ToolFailure, Workspace, unshown

from .._records import date_of, names_of
from .._workspace.file_search import FileFilter, base_at, files_below
from .._workspace.place import workspace_of

Manifest = Mapping[str, tuple[str, int]]
"""Path → digest and bytes of what was there."""

_MANIFEST: Final = TypeAdapter[dict[str, tuple[str, int]]](dict[str, tuple[str, int]])
_YOUNG: Final = 3600.0
"""Seconds that a content is left alone after it was wanted last: a waypoint that is being saved may need it."""

MOST_FILES: Final = 20_000
MOST_FILE_BYTES: Final = 16 << 20
"""A file that is larger is left out, and named."""
MOST_BYTES: Final = 512 << 20
"""Bytes of all files of one waypoint."""
_AT_ONCE: Final = 64

MOST: Final = 100
"""Waypoints of one workspace."""
MOST_AUTOMATIC: Final = 10
"""Waypoints saved automatically before a restore: the oldest are deleted first."""


class Blobs(Struct, frozen=True, kw_only=True):
    """Contents and manifests of the waypoints of one owner and workspace. Holds no open files."""

    folder: Path

    def put(self, content: bytes) -> str:
        """Keep a content; return its digest."""
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if path.exists():
            os.utime(path)
        else:
            _write(path, zlib.compress(content, 3))
        return digest

    def get(self, digest: str) -> bytes:
        """Return a content. Raises `ToolFailure("storage")` for one that is gone or is not what it was."""
        try:
            content = zlib.decompress(self._path(digest).read_bytes())
        except (OSError, zlib.error) as error:
            raise _broken(digest) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise _broken(digest)
        return content

    def write_list(self, number: int, manifest: Manifest) -> None:
        """Keep what a waypoint holds."""
        _write(self._list(number), zlib.compress(_MANIFEST.dump_json(dict(manifest)), 3))

    def read_list(self, number: int) -> Manifest:
        """Return the files of a waypoint. Raises `ToolFailure("storage")` if they are gone."""
        try:
            return _MANIFEST.validate_json(zlib.decompress(self._list(number).read_bytes()))
        except (OSError, zlib.error, ValidationError) as error:
            raise _broken("the list of its files") from error

    def sweep(self, numbers: Collection[int]) -> None:
        """Delete contents that no waypoint refers to and that were not used for an hour.

        Nothing goes where one of their lists cannot be read: it is not known then what that one holds.
        """
        try:
            wanted = {digest for number in numbers for digest, _ in self.read_list(number).values()}
        except ToolFailure:
            return
        lists = {self._list(number).name for number in numbers}
        oldest = time.time() - _YOUNG
        for path in self.folder.glob("*/*"):
            keep = path.name in lists if path.parent.name == "lists" else path.name in wanted
            with suppress(FileNotFoundError):  # another process sweeps, too
                if not keep and path.stat().st_mtime < oldest:
                    path.unlink()

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def _list(self, number: int) -> Path:
        return self.folder / "lists" / str(number)


def _write(path: Path, content: bytes) -> None:
    """Put a file there, at once or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with begun.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        begun.replace(path)
    except OSError as error:
        begun.unlink(missing_ok=True)
        raise ToolFailure("storage", f"the waypoint cannot be kept: {error.strerror or error}") from error


def _broken(what: Any) -> ToolFailure:
    return ToolFailure("storage", f"this waypoint cannot be read any more: {what} is damaged or gone")


class Snapshot(Struct, kw_only=True):
    """Files of the workspace."""

    files: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """Path → why its content is not known."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files.values())


class Difference(Struct, frozen=True, kw_only=True):
    """Changes from one state to another."""

    changed: Sequence[str]
    """There in both, with another content."""
    missing: Sequence[str]
    """There in the wanted state only."""
    new: Sequence[str]
    """There in the present state only."""


def compare(wanted: Manifest, present: Manifest) -> Difference:
    """Return the differences."""
    return Difference(
        changed=sorted(path for path in wanted if path in present and present[path][0] != wanted[path][0]),
        missing=sorted(path for path in wanted if path not in present),
        new=sorted(path for path in present if path not in wanted),
    )


async def take(workspace: Workspace, blobs: Blobs) -> Snapshot:
    """Read the files that `.gitignore` does not leave out, and keep their contents.

    Raises `ToolFailure("too_large")` for more than a waypoint takes.
    """
    base = await base_at(workspace, ".")
    found = await files_below(workspace, base, FileFilter(hidden=True))
    if len(found.paths) > MOST_FILES or not found.is_whole:
        raise ToolFailure(
            "too_large",
            f"a waypoint takes at most {MOST_FILES:,} files, this workspace has more",
            hint="name in .gitignore what can be made anew",
        )
    snapshot = Snapshot()
    for start in range(0, len(found.paths), _AT_ONCE):
        paths = found.paths[start : start + _AT_ONCE]
        contents = dict(zip(paths, await unshown(workspace).read_many(paths, limit=MOST_FILE_BYTES), strict=True))
        await to_thread.run_sync(_keep, snapshot, blobs, contents)
        if snapshot.size > MOST_BYTES:
            raise ToolFailure(
                "too_large",
                f"a waypoint takes at most {MOST_BYTES >> 20} MiB, this workspace has more",
                hint="name in .gitignore what can be made anew",
            )
    return snapshot


def _keep(snapshot: Snapshot, blobs: Blobs, contents: Mapping[str, bytes | ToolFailure]) -> None:
    for path, content in contents.items():
        if isinstance(content, ToolFailure):
            snapshot.left_out[path] = content.message
        else:
            snapshot.files[path] = (blobs.put(content), len(content))


class Waypoint(TypedDict):
    """A state of the workspace that was saved."""

    id: str
    description: str
    saved: str
    files: int
    size: Annotated[int, Field(description="Bytes of all files.")]
    automatic: Annotated[bool, Field(description="It was saved before another one was restored.")]


class Waypoints(Struct, frozen=True, kw_only=True):
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
        """Return the files of a waypoint."""
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
