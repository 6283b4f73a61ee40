"""Operations on links: those of an entity are read, two entities are linked, and a link is removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure, fit_page

from .calendar_tables import is_deleting
from .edges import End, edges_of, in_list, link, unlink
from .model import DEPRECATED, KINDS, RELATIONS, Kind
from .nodes import brief, edge_view, get_row, label_of, node_kind, publish, view
from .operations import ID, MOST, OFFSET, limit, note, operation_tool, part, storage_of

LINKS: Final = 50
"""Links that come with an entity: all of them are in pages of `get_linked_entities`."""

_EDGES: Final = 40
"""Edges of one result with all their fields."""

HITS: Final = 500
"""Candidates of a search that is filtered afterwards."""


def links_of(rows: Rows, id: str, edges: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the entities to which edges link an entity, with the edge of each."""
    others = [_other_end(edge, id) for edge in edges]
    found = entities_of(rows, others, lambda kind: f"id, {kind.label}")
    return [
        {
            "edge_id": edge["id"],
            "rel": edge["rel"],
            "direction": "outgoing" if edge["src_id"] == id else "incoming",
            "kind": kind,
            "id": other,
            "label": label_of(KINDS[kind], found[other]) if other in found else "",
        }
        for edge, (kind, other) in zip(edges, others, strict=True)
    ]


def _other_end(edge: Row, id: str) -> tuple[str, str]:
    """Return kind and id of the entity at the other end of an edge."""
    return (edge["dst_kind"], edge["dst_id"]) if edge["src_id"] == id else (edge["src_kind"], edge["src_id"])


def entities_of(
    rows: Rows, ends: Sequence[tuple[str, str]], columns: Callable[[Kind], str] = lambda kind: "*"
) -> dict[str, Row]:
    """Return the entities behind kinds and ids."""
    by_kind: dict[str, list[str]] = {}
    for kind, id in dict.fromkeys(ends):
        by_kind.setdefault(kind, []).append(id)
    found: dict[str, Row] = {}
    for kind, ids in by_kind.items():
        for start in range(0, len(ids), HITS):
            marks, values = in_list(ids[start : start + HITS])
            of = KINDS[kind]
            sql = f"SELECT {columns(of)} FROM {{{of.plural}}} AS one WHERE id IN ({marks}) AND {of.shown}"
            found |= {row["id"]: row for row in rows.select(sql, values)}
    return found


def _find_any(rows: Rows, id: str) -> tuple[Kind, Row]:
    """Return the entity with an id, of any kind. Raises `ToolFailure("not_found")`."""
    for kind in KINDS.values():
        if (row := rows.find(kind.plural, id)) and not is_deleting(row):
            return kind, row
    raise ToolFailure("not_found", f"there is no entity {id[:200]!r}", hint="search_ontology has the ids")


@operation_tool(
    "onto.entity.relationships.get",
    "get_entity_relationships",
    "read",
    {
        "entity_id": ID("entity"),
        "direction": {"type": "string", "enum": ["outgoing", "incoming", "both"], "default": "both"},
        "limit": limit(_EDGES),
        "offset": OFFSET,
    },
    ["entity_id"],
    examples=[{"entity_id": "<entity_id>", "direction": "outgoing"}],
)
async def get_entity_relationships(
    ctx: Context, entity_id: str, direction: str, limit: int, offset: int
) -> dict[str, Any]:
    """Get the edges of an entity of any kind, oldest first."""

    def work(rows: Rows) -> tuple[str, dict[str, Any]]:
        kind, row = _find_any(rows, entity_id)
        edges = edges_of(rows, entity_id, direction)
        shown = [edge_view(edge) for edge in edges[offset : offset + min(limit, MOST)]]
        message = part(len(shown), offset, len(edges), f"edges of {kind.name} {label_of(kind, row)!r}")
        return row["project_id"], {"relationships": shown, "total": len(edges), "message": message}

    project_id, result = await storage_of(ctx).read(work)
    note(ctx, "onto.entity.relationships.get", project_id, id=entity_id)
    return result


@operation_tool(
    "onto.entity.links.get",
    "get_linked_entities",
    "read",
    {
        "entity_id": ID("entity"),
        "entity_kind": {"type": "string", "enum": list(KINDS)},
        "filter_kind": {"type": "string", "enum": ["all", *KINDS], "default": "all"},
        "limit": limit(LINKS),
        "offset": OFFSET,
    },
    ["entity_id", "entity_kind"],
    examples=[
        {"entity_id": "<entity_id>", "entity_kind": "goal", "filter_kind": "task"},
    ],
)
async def get_linked_entities(
    ctx: Context, entity_id: str, entity_kind: str, filter_kind: str, limit: int, offset: int
) -> dict[str, Any]:
    """Get the entities that are linked to one, with the relation of each, and counts by kind.

    Such as what contains it, what it depends on, what blocks or threatens it.
    """
    kind = node_kind(entity_kind, "entity_kind")

    def work(rows: Rows) -> tuple[str, dict[str, Any]]:
        row = get_row(rows, kind, entity_id)
        edges = edges_of(rows, entity_id)
        counts = dict(Counter(_other_end(edge, entity_id)[0] for edge in edges))
        wanted = [edge for edge in edges if filter_kind in ("all", _other_end(edge, entity_id)[0])]
        shown = links_of(rows, entity_id, wanted[offset : offset + min(limit, MOST)])
        message = part(len(shown), offset, len(wanted), "linked entities")
        return row["project_id"], {"entities": shown, "counts": counts, "total": len(wanted), "message": message}

    project_id, result = await storage_of(ctx).read(work)
    note(ctx, "onto.entity.links.get", project_id, kind=entity_kind, id=entity_id)
    return result


@operation_tool(
    "onto.task.docs.list",
    "list_task_documents",
    "read",
    {"task_id": ID("task"), "offset": OFFSET},
    ["task_id"],
    examples=[{"task_id": "<task_id>"}],
)
async def list_task_documents(ctx: Context, task_id: str, offset: int) -> dict[str, Any]:
    """List the documents of a task with the edge of each; scratch_pad is the one with the role scratch_pad."""
    kind = KINDS["document"]

    def work(rows: Rows) -> tuple[str, dict[str, Any]]:
        task = rows.get("tasks", task_id)
        edges = [edge for edge in edges_of(rows, task_id, "outgoing") if edge["rel"] == "task_has_document"]
        found = entities_of(rows, [("document", edge["dst_id"]) for edge in edges])
        documents = [
            {"document": brief(kind, found[edge["dst_id"]]), "edge": edge_view(edge)}
            for edge in edges
            if edge["dst_id"] in found
        ]
        pads = [one["document"] for one in documents if one["edge"]["props"].get("role") == "scratch_pad"]
        pad = view(kind, found[pads[0]["id"]]) if pads else None
        shown, total = fit_page(documents[offset:]), len(documents)
        message = part(len(shown), offset, total, f"document{'' if total == 1 else 's'} of task {task['title']!r}")
        return task["project_id"], {"documents": shown, "total": total, "scratch_pad": pad, "message": message}

    project_id, result = await storage_of(ctx).read(work)
    note(ctx, "onto.task.docs.list", project_id, kind="task", id=task_id)
    return result


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
