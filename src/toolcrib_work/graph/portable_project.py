"""Format of an exported project: what JSON and Markdown have in common, and the content of an import."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field

from .model import Kind

FORMAT: Final = "toolcrib.project"
FENCE: Final = "---\n"
"""Line around the front matter of a Markdown file."""
MAX_ENTRIES: Final = 20_000
"""Entities, edges and files of one import."""
RESTORED: Final = ("completed_at",)
"""Columns that an import restores and a caller does not write."""


def body_field(kind: Kind) -> str:
    """Return the field of an entity that is the text of its Markdown file; empty without one."""
    return "content" if "content" in kind.fields else "description" if "description" in kind.fields else ""


class PortableEntity(Struct, kw_only=True):
    """One entity to import; `path` is the place of its fields in the arguments."""

    id: str
    kind: Kind
    fields: dict[str, Any]
    path: str
    parent: str | None = None
    """Of a document: the one above it in the tree."""
    order: int = 0
    is_linked: bool = True
    """Of a document: whether it is in the tree."""


class PortableProject(Struct, kw_only=True):
    """Content of an import. The project's own id among the edges is that of the exported one."""

    id: str
    fields: dict[str, Any]
    path: str
    is_export: bool = False
    """Of files: whether one of them is that of an exported project."""
    entities: list[PortableEntity] = field(default_factory=list[PortableEntity])
    edges: list[tuple[dict[str, Any], str]] = field(default_factory=list[tuple[dict[str, Any], str]])
