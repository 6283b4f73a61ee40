"""Operation that gives entities of a project other parents and connections, all or none.

All edges that go are removed first, then the new ones are added, then the parents are checked: entities may change
places in one call, which an order entity by entity would refuse as a cycle. A dry run makes all of that in a
transaction, and rolls it back by an exception that carries the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, cast

from toolcrib.plugin import Context, Row, Rows, ToolFailure, invalid_argument

from .edges import (
    End,
    Known,
    Linked,
    attach,
    connection_edge,
    edges_of,
    link,
    parent_edges,
    project_edges,
    version_of,
)
from .model import KINDS, KINDS_INSIDE, PARENTS, SEMANTIC, containment
from .nodes import get_node, node_kind, publish
from .operations import ID, operation_tool, storage_of

_MODES: Final = {
    "mode": {"type": "string", "enum": ["replace", "merge"], "description": "Of parents; replace by default"},
    "semantic_mode": {
        "type": "string",
        "enum": ["replace_auto", "merge", "preserve"],
        "description": "replace_auto (default) also removes edges that were inferred; preserve changes none",
    },
    "allow_project_fallback": {"type": "boolean", "description": "Without a parent it is the project's; default true"},
    "allow_multi_parent": {"type": "boolean", "description": "Default false"},
}

_DEFAULTS: Final[Mapping[str, Any]] = {
    "mode": "replace",
    "semantic_mode": "replace_auto",
    "allow_project_fallback": True,
    "allow_multi_parent": False,
}

_Wanted = list[tuple[tuple[End, str, End], Mapping[str, Any], str]]
"""Canonical edges, each with its connection and its path."""


class _DryRun(ToolFailure):
    """Ends the transaction of a dry run: nothing of it is stored."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("cancelled", "dry run")
        self.result = result


@operation_tool(
    "onto.project.graph.reorganize",
    "reorganize_onto_project_graph",
    "write",
    {
        "project_id": ID("project"),
        "nodes": {
            "type": "array",
            "minItems": 1,
            "maxItems": 200,
            "items": {
                "type": "object",
                "properties": {
                    "id": ID("entity"),
                    "kind": {"type": "string", "enum": KINDS_INSIDE},
                    "connections": {
                        "type": "array",
                        "maxItems": 100,
                        "items": {
                            "type": "object",
                            "properties": {
                                "kind": {"type": "string", "enum": list(KINDS)},
                                "id": ID("other entity"),
                                "intent": {"type": "string", "enum": ["containment", "semantic"]},
                                "rel": {"type": "string", "maxLength": 50},
                                "props": {"type": "object", "maxProperties": 100},
                            },
                            "required": ["kind", "id"],
                            "additionalProperties": False,
                        },
                    },
                    **_MODES,
                },
                "required": ["id", "kind"],
                "additionalProperties": False,
            },
        },
        "options": {
            "type": "object",
            "properties": {
                **_MODES,
                "dry_run": {"type": "boolean", "default": False},
                "version": {"type": "string", "maxLength": 100},
            },
            "additionalProperties": False,
        },
    },
    ["project_id", "nodes"],
    examples=[
        {
            "project_id": "<project_id>",
            "nodes": [{"id": "<task_id>", "kind": "task", "connections": [{"kind": "plan", "id": "<plan_id>"}]}],
            "options": {"dry_run": True},
        }
    ],
)
async def reorganize_onto_project_graph(
    ctx: Context, project_id: str, nodes: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Move entities of a project below other parents and change their connections, all or none.

    options.dry_run shows the changes; options.version (metadata.version of the graph) refuses them if the edges were
    changed meanwhile.
    """
    try:
        return await storage_of(ctx).write(lambda rows: _reorganize(rows, project_id, nodes, options or {}))
    except _DryRun as dry_run:
        return dry_run.result


def _reorganize(
    rows: Rows, project_id: str, nodes: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> dict[str, Any]:
    rows.require(project_id)
    before = {edge["id"]: edge for edge in project_edges(rows, project_id)}
    version = version_of([*before], [edge["revision"] for edge in before.values()])
    if options.get("version") and options["version"] != version:
        raise ToolFailure(
            "conflict",
            "the project's edges were changed meanwhile: nothing was changed",
            hint="read get_onto_project_graph again and plan with its present edges",
            details={"version": version},
        )
    entities = _entities(rows, project_id, nodes)
    wanted = [
        _wanted(entity, node, f"nodes[{number}]")
        for number, (entity, node) in enumerate(zip(entities, nodes, strict=True))
    ]
    modes = [{**_DEFAULTS, **_of_modes(options), **_of_modes(node)} for node in nodes]
    removed = {id for node in zip(entities, wanted, modes, strict=True) for id in _replaced(rows, project_id, *node)}
    rows.delete_all("edges", removed)
    known = Known(entities={*entities})
    for id, edge in before.items():
        if id not in removed:
            known.put(edge)
    added = [_add_new(rows, project_id, edges, mode, known) for edges, mode in zip(wanted, modes, strict=True)]
    known.check_waits(rows, chain.from_iterable(added))
    for number, (entity, mode) in enumerate(zip(entities, modes, strict=True)):
        for linked in _check_parents(rows, project_id, entity, mode, f"nodes[{number}]"):
            known.put(linked.edge)
    after = {edge["id"]: edge for edge in known.edges.values()}
    result = _result(before, after, len(nodes), is_dry=bool(options.get("dry_run")))
    if result["dry_run"]:
        raise _DryRun(result)
    publish(rows, "onto.project.graph.reorganize", project_id, "project", project_id, counts=result["counts"])
    return result


def _result(before: Mapping[str, Row], after: Mapping[str, Row], node_count: int, *, is_dry: bool) -> dict[str, Any]:
    """Return the edges, here by their ids, that differ."""
    changed = [edge for id, edge in after.items() if id in before and edge["revision"] != before[id]["revision"]]
    changes = {
        "edges_to_create": [_line(edge, has_id=not is_dry) for id, edge in after.items() if id not in before],
        "edges_to_delete": [_line(edge) for id, edge in before.items() if id not in after],
        "edges_to_update": [_line(edge) for edge in changed],
    }
    counts = {name: len(changes[f"edges_to_{name}"]) for name in ("create", "delete", "update")}
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    message = f"{'Would change' if is_dry else 'Changed'} edges: {summary}."
    about = {"dry_run": is_dry, "node_count": node_count}
    return {**about, "counts": counts, "changes": changes, "message": message}


def _line(edge: Row, *, has_id: bool = True) -> dict[str, Any]:
    """Return an edge without what is the same for all of a change; a dry run creates none, so that it has no id."""
    names = ("id", "src_kind", "src_id", "rel", "dst_kind", "dst_id", "props")
    return {name: edge[name] for name in names if edge[name] and (has_id or name != "id")}


def _of_modes(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in _MODES if name in given}


def _entities(rows: Rows, project_id: str, nodes: Sequence[Mapping[str, Any]]) -> list[End]:
    """Return the entity of each node. Raises `ToolFailure` for one of another project, and for one that comes twice."""
    found: list[End] = []
    for number, node in enumerate(nodes):
        kind = node_kind(node["kind"], f"nodes[{number}].kind")
        get_node(rows, kind, node["id"], project_id, f"nodes[{number}].id")
        entity = End(kind.name, node["id"])
        if entity in found:
            message = f"{entity.kind} {entity.id} is nodes[{found.index(entity)}], too"
            raise invalid_argument(f"nodes[{number}].id", message)
        found.append(entity)
    return found


def _wanted(entity: End, node: Mapping[str, Any], path: str) -> _Wanted:
    connections = cast("Sequence[Mapping[str, Any]]", node.get("connections") or ())
    return [
        (connection_edge(entity, one, f"{path}.connections[{number}]"), one, f"{path}.connections[{number}]")
        for number, one in enumerate(connections)
    ]


def _replaced(rows: Rows, project_id: str, entity: End, edges: _Wanted, mode: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of edges that are to be replaced.

    The one to the project stays where no parent is given: `_check_parents` would put it there again.
    """
    kept = {(src.id, rel, dst.id) for (src, rel, dst), _, _ in edges}
    parent_rel = containment(entity.kind)
    has_parent = any((rel, dst) == (parent_rel, entity) for (_, rel, dst), _, _ in edges)
    if mode["allow_project_fallback"] and not has_parent:
        kept.add((project_id, parent_rel, entity.id))
    for edge in edges_of(rows, entity.id):
        is_kept = (edge["src_id"], edge["rel"], edge["dst_id"]) in kept
        is_parent = edge["dst_id"] == entity.id and edge["rel"] == parent_rel
        is_inferred = edge["rel"] in SEMANTIC and edge["props"].get("auto")
        replaced = (is_parent and mode["mode"] == "replace") or (
            is_inferred and edge["src_id"] == entity.id and mode["semantic_mode"] == "replace_auto"
        )
        if replaced and not is_kept:
            yield edge["id"]


def _add_new(
    rows: Rows, project_id: str, edges: _Wanted, mode: Mapping[str, Any], known: Known
) -> list[tuple[tuple[End, str, End], str]]:
    """Add the edges that are not there, and return them with their paths; give the others their new props."""
    added: list[tuple[tuple[End, str, End], str]] = []
    for ends, connection, path in edges:
        if ends[1] in SEMANTIC and mode["semantic_mode"] == "preserve":
            continue
        linked = link(rows, project_id, ends, connection.get("props"), path=path, paths=("id", "id"), known=known)
        props = connection.get("props")
        if linked.is_new:
            added.append((ends, path))
        elif props is not None and linked.edge["props"] != props:
            known.put(rows.update("edges", linked.edge["id"], {"props": props}))
    return added


def _check_parents(rows: Rows, project_id: str, entity: End, mode: Mapping[str, Any], path: str) -> list[Linked]:
    """Raise `ToolFailure` for too many parents, or none; return the link to the project that takes their place."""
    edges = parent_edges(rows, entity.id)
    parents = [edge for edge in edges if edge["rel"] == containment(entity.kind)]
    if len(parents) > 1 and not mode["allow_multi_parent"]:
        message = f"{entity.kind} {entity.id} would have {len(parents)} parents"
        raise invalid_argument(
            f"{path}.connections", message, hint="allow_multi_parent allows it; mode replace keeps the new one"
        )
    if parents:
        return []
    if not mode["allow_project_fallback"] or "project" not in PARENTS[entity.kind]:
        message = f"{entity.kind} {entity.id} would have no parent"
        raise invalid_argument(f"{path}.connections", message, hint=f"parents: {', '.join(PARENTS[entity.kind])}")
    return [] if edges else attach(rows, project_id, entity, (), path=f"{path}.connections")
