"""Rows of events with their edges: each function keeps both in step, in the caller's transaction.

    insert_event ──> hide_event (deleted here, the server still has it) ──> delete_event (the server has deleted it)
                        └─> show_event (it was changed there: a conflict, for the user to see)

An event of a project has an owner: a task or another entity that contains it by the relation `has_event`, at least the
project itself. An event of a user alone has none, and its edges lead to other events of that user only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from toolcrib.plugin import Row, Rows, ToolFailure

from ..graph.edges import End, adopt, attach, detach_all, edges_of, in_list, link
from ..graph.model import containment
from ..graph.nodes import new_id
from .model import KIND

_EDGES: Final = "edges"
"""In `synced` of a hidden event: its edges, of which reads show none."""


def insert_event(rows: Rows, values: Mapping[str, Any], *, task_id: str = "") -> Row:
    """Add an event of a task, of a project, or of a user alone. Raises `ToolFailure` for a task of another project."""
    row = rows.insert(KIND.plural, values, id=new_id())
    if task_id:
        attach(rows, row["project_id"], _end(row), [(End("task", task_id), "task_id")])
    else:
        _give_to_project(rows, row)
    return row


def _give_to_project(rows: Rows, row: Row) -> None:
    """Make an event without an owner its project's, if the graph has that project."""
    if rows.select_values("SELECT id FROM {projects} AS p WHERE id = ?", (row["project_id"],)):
        adopt(rows, row["project_id"], _end(row))


def hide_event(rows: Rows, row: Row, changes: Mapping[str, Any]) -> Row:
    """Change an event that is to be deleted on its server first: reads show neither it nor its edges."""
    names = ("src_kind", "src_id", "rel", "dst_kind", "dst_id", "props")
    edges = [{name: edge[name] for name in names} for edge in edges_of(rows, row["id"])]
    detach_all(rows, _end(row), row["project_id"])
    synced: dict[str, Any] = changes.get("synced", row["synced"]) or {}
    changes = {**changes, "synced": {**synced, _EDGES: edges}, "sync_status": "deleting"}
    return rows.update(KIND.plural, row["id"], changes)


def show_event(rows: Rows, row: Row) -> None:
    """Give a hidden event its edges back, but those to entities that are gone meanwhile."""
    synced: dict[str, list[Row]] = row["synced"] or {}
    for edge in synced.get(_EDGES, ()):
        ends = End(edge["src_kind"], edge["src_id"]), edge["rel"], End(edge["dst_kind"], edge["dst_id"])
        with suppress(ToolFailure):
            link(rows, row["project_id"], ends, edge["props"])
    _give_to_project(rows, row)


def delete_event(rows: Rows, row: Row) -> None:
    """Mark an event as deleted."""
    detach_all(rows, _end(row), row["project_id"])
    rows.delete(KIND.plural, row["id"])


def owners_of(rows: Rows, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return kind and id of the owner of each event that has one: of several the first."""
    if not ids:
        return {}
    marks, values = in_list([*ids])
    sql = f"SELECT src_kind, src_id, dst_id FROM {{edges}} AS e WHERE rel = ? AND dst_id IN ({marks})"
    found = rows.select_values(f"{sql} ORDER BY created_at DESC, id DESC", (containment(KIND.name), *values))
    return {event: {"kind": kind, "id": id} for kind, id, event in found}


def _end(row: Row) -> End:
    return End(KIND.name, row["id"])
