"""The folders that tools may work in, as our configuration file names them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.events import Problem

__all__ = ["WorkspaceSpec", "workspace_at", "workspace_spec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSpec:
    """Where tools may work, for every session that names no folders itself."""

    roots: tuple[Path, ...] = ()
    """Empty: no session has a workspace of itself."""
    guarded: tuple[str, ...] = ()
    """Patterns of names that no tool reads or writes, beside the built-in ones; `!` in front lets one through."""
    hard_links: tuple[str, ...] = ()
    """Patterns of folders whose files may have a second name elsewhere, beside the built-in ones."""

    def key(self) -> list[Any]:
        """Return what tells two apart, as JSON."""
        return [[str(root) for root in self.roots], self.guarded, self.hard_links]


def workspace_at(values: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """Return `values` of one file with the folders of its `workspace` counted from `base`."""
    if "workspace" not in values:
        return values
    said = values["workspace"]
    roots = tuple(base / os.path.expanduser(root) for root in said.get("roots", ()))
    return {**values, "workspace": {**said, "roots": roots}}


def workspace_spec(said: Mapping[str, Any] | None, problems: list[Problem]) -> WorkspaceSpec:
    """Return what was said; a folder that is not there is a problem, the others count."""
    spec = WorkspaceSpec(**(said or {}))
    for root in spec.roots:
        if not root.is_dir():
            message = f"the workspace {root} is no folder that is there"
            problems.append(
                Problem(source="workspace", code="bad_config", message=message, hint="make it, or name another one")
            )
    there = tuple(root for root in spec.roots if root.is_dir())
    return WorkspaceSpec(roots=there, guarded=spec.guarded, hard_links=spec.hard_links)
