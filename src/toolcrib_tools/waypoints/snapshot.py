"""Snapshot of a workspace's files, and the difference between two snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anyio import to_thread

from toolcrib.plugin import ToolFailure, Workspace

from .._workspace.file_search import FileFilter, base_at, files_below
from .blobs import Blobs, Manifest

__all__ = ["MOST_BYTES", "MOST_FILES", "MOST_FILE_BYTES", "Difference", "Snapshot", "compare", "take"]

MOST_FILES: Final = 20_000
MOST_FILE_BYTES: Final = 16 << 20
"""A file that is larger is left out, and named."""
MOST_BYTES: Final = 512 << 20
"""Bytes of all files of one waypoint."""
_AT_ONCE: Final = 64


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """Files of the workspace."""

    files: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """Path → why its content is not known."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Changes from one state to another."""

    changed: Sequence[str]
    """There in both, with another content."""
    missing: Sequence[str]
    """There in the wanted state only."""
    new: Sequence[str]
    """There in the present state only."""


def compare(wanted: Manifest, present: Manifest) -> Difference:
    """Return what is different."""
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
        contents = dict(zip(paths, await workspace.read_many(paths, limit=MOST_FILE_BYTES), strict=True))
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
