"""The shadows of a workspace, for whoever decides on them: what a task changed is merged or discarded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import ToolFailure, UsageError
from ..workspace.paths import Roots
from ..workspace.protected_names import Guard
from ..workspace.shadow import Shadow, ShadowChange, shadow_of, shadows_of
from ..workspace.tree import Tree

__all__ = ["Shadows"]


class Shadows:
    """One for a crib. `workspace` is the first folder of the configured workspace unless it is said."""

    def __init__(self, roots: Sequence[Path], guard: Guard, programs: str) -> None:
        """`programs` is where git is looked for."""
        self._roots = roots
        self._guard = guard
        self._programs = programs

    def list(self, *, workspace: str | Path | None = None) -> Sequence[str]:
        """Return the tasks that have a shadow, by name."""
        return [shadow.task for shadow in shadows_of(self._root(workspace), self._programs)]

    async def changes(self, task: str, *, workspace: str | Path | None = None) -> Sequence[ShadowChange]:
        """Return what a task changed, by path."""
        return await self._shadow(task, workspace).changes()

    async def diff(self, task: str, *, workspace: str | Path | None = None) -> str:
        """Return what a task changed, as a unified diff."""
        return await self._shadow(task, workspace).diff()

    async def merge(self, task: str, *, workspace: str | Path | None = None) -> Sequence[str]:
        """Put what a task changed into the main tree, all of it or nothing; return the paths. The shadow stays.

        Raises `ToolFailure("conflict")` naming every file that cannot be merged.
        """
        shadow = self._shadow(task, workspace)
        return await shadow.merge(Tree(Roots(shadow.workspace), self._guard))

    async def discard(self, task: str, *, workspace: str | Path | None = None) -> None:
        """Remove a shadow and its branch; what was not merged is gone."""
        await self._shadow(task, workspace).discard()

    def _root(self, workspace: str | Path | None) -> Path:
        if workspace is None and not self._roots:
            raise UsageError("no workspace is configured: say which one is meant")
        return Path(self._roots[0] if workspace is None else workspace).resolve()

    def _shadow(self, task: str, workspace: str | Path | None) -> Shadow:
        root = self._root(workspace)
        shadow = shadow_of(root, task, self._programs)
        if not shadow.top.is_dir():
            there = ", ".join(self.list(workspace=root)) or "none"
            raise ToolFailure("not_found", f"the task {task} has no shadow in {root}; there are {there}")
        return shadow
