"""Changes to several files before they are made: later ones see what earlier ones did."""

from __future__ import annotations

from typing import Final

from toolcrib.plugin import ToolFailure, Workspace

from .._workspace.place import file_at, name_of

__all__ = ["EDIT_BYTES", "Draft"]

EDIT_BYTES: Final = 32 * 1024 * 1024
"""Of a file that is edited: its text is held several times."""


class Draft:
    """Contents by path, as the workspace names paths. Lives as long as one call."""

    def __init__(self, workspace: Workspace) -> None:
        """Start with what the workspace holds."""
        self._workspace = workspace
        self.before: dict[str, bytes | None] = {}
        """Each file that was touched as it was; None is no file."""
        self.after: dict[str, bytes | None] = {}
        """Each as it is to be."""

    async def find(self, path: str, *, limit: int | None = None) -> bytes | None:
        """Return what is to be at `path`, None for no file. Raises `ToolFailure` for a folder."""
        name = name_of(self._workspace, path)
        if name in self.after:
            return self.after[name]
        if await self._workspace.stat(path) is None:
            return None
        await file_at(self._workspace, path)
        return await self._workspace.read(path, limit=limit)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return what is to be at `path`; raises `ToolFailure` for no file, or one with more than `limit` bytes."""
        content = await self.find(path, limit=limit)
        if content is None:
            await file_at(self._workspace, path)  # raises, with the nearest names
            raise ToolFailure("not_found", f"there is no {path!r} any more: an operation before this one took it away")
        return content

    async def put(self, path: str, content: bytes | None) -> str:
        """Let `content` be what is at `path`; return the path as the workspace names it."""
        name = name_of(self._workspace, path)
        if name not in self.before:
            entry = await self._workspace.stat(path)
            self.before[name] = None if entry is None else await self._workspace.read(path)
        self.after[name] = content
        return name
