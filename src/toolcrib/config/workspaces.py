"""Settings of the folders that tools may work in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import model_validator

from ..core.events import Problem
from ..core.settings import Section, Texts, a_list_of, expected

__all__ = ["WorkspaceSpec", "workspace_at", "workspace_spec"]


class WorkspaceSpec(Section):
    """The key `workspace`: folders of every session that names none itself."""

    replaced_whole = True

    roots: Annotated[tuple[Path, ...], a_list_of("strings")] = ()
    """Folders; relative paths of tools begin in the first one."""
    guarded: Texts = ()
    """Patterns of names that no tool reads or writes, beside the built-in ones; `!` in front lets one through."""
    hard_links: Texts = ()
    """Patterns of folders whose files may have a second name elsewhere, beside the built-in ones."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return cast("Any", value)
        if not isinstance(value, str) or not value.strip():
            raise expected("a string")
        return {"roots": (value,)}


def workspace_at(values: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """Return `values` of one file with the folders of its `workspace` counted from `base`."""
    spec: WorkspaceSpec | None = values.get("workspace")
    if spec is None:
        return values
    roots = tuple(base / root.expanduser() for root in spec.roots)
    return {**values, "workspace": spec.model_copy(update={"roots": roots})}


def workspace_spec(spec: WorkspaceSpec | None, problems: list[Problem]) -> WorkspaceSpec:
    """Return the workspace without the folders that do not exist; each of them is a problem."""
    spec = spec or WorkspaceSpec.model_construct()
    for root in spec.roots:
        if not root.is_dir():
            message = f"the workspace {root} is not an existing folder"
            problems.append(
                Problem(source="workspace", code="bad_config", message=message, hint="make it, or name another one")
            )
    return spec.model_copy(update={"roots": tuple(root for root in spec.roots if root.is_dir())})
