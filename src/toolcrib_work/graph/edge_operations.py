"""Operations that link two entities, and remove a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.plugin import Context, Rows

from .edges import (
    End,
    link,
    unlink,
)
from .model import DEPRECATED, KINDS, RELATIONS
from .nodes import edge_view, get_row, node_kind, publish
from .operations import ID, operation_tool, storage_of

__all__ = ["link_onto_entities", "unlink_onto_edge"]


@operation_tool(
    "onto.edge.link",
    "link_onto_entities",
    "write",
    {
        "src_kind": {"type": "string", "enum": list(KINDS)},
        "src_id": ID("entity that it goes from"),
        "dst_kind": {"type": "string", "enum": list(KINDS)},
        "dst_id": ID("entity that it goes to"),
        "rel": {
            "type": "string",
            "maxLength": 50,
            "description": f"One of {', '.join((*RELATIONS, *DEPRECATED))}",
        },
        "props": {"type": "object", "maxProperties": 100},
    },
    ["src_kind", "src_id", "dst_kind", "dst_id", "rel"],
    idempotent=True,
    examples=[
        {"src_kind": "task", "src_id": "<src_id>", "dst_kind": "task", "dst_id": "<dst_id>", "rel": "depends_on"},
    ],
)
async def link_onto_entities(
    ctx: Context,
    src_kind: str,
    src_id: str,
    dst_kind: str,
    dst_id: str,
    rel: str,
    props: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Link two entities of a project. The edge is stored in the canonical direction of its relation."""

    def work(rows: Rows) -> dict[str, Any]:
        project_id = get_row(rows, node_kind(src_kind, "src_kind"), src_id, "editor")["project_id"]
        linked = link(rows, project_id, (End(src_kind, src_id), rel, End(dst_kind, dst_id)), props)
        if linked.is_new:
            publish(rows, "onto.edge.link", project_id, "edge", linked.edge["id"], rel=linked.edge["rel"])
        edge = edge_view(linked.edge)
        statement = f"{edge['src_kind']} {edge['rel']} {edge['dst_kind']}"
        message = f"Linked: {statement}." if linked.is_new else f"There is an edge already: {statement}."
        if linked.removed:
            message += " The project's own link was redundant and is removed."
        return {"created": linked.is_new, "edge": edge, "removed": list(linked.removed), "message": message}

    return await storage_of(ctx).write(work)


@operation_tool(
    "onto.edge.unlink",
    "unlink_onto_edge",
    "destructive",
    {"edge_id": ID("edge")},
    ["edge_id"],
    examples=[{"edge_id": "<edge_id>"}],
)
async def unlink_onto_edge(ctx: Context, edge_id: str) -> dict[str, Any]:
    """Remove an edge.

    An entity that loses its last parent belongs to the project again, if a project may contain it.
    """

    def work(rows: Rows) -> dict[str, Any]:
        edge, instead = unlink(rows, edge_id)
        publish(rows, "onto.edge.unlink", edge["project_id"], "edge", edge_id, rel=edge["rel"])
        shown = edge_view(instead) if instead else None
        message = f"Removed the edge {edge['src_kind']} {edge['rel']} {edge['dst_kind']}."
        return {"deleted": edge_id, "project_link": shown, "message": message}

    return await storage_of(ctx).write(work)
