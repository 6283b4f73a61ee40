"""Operations on the graph of a project: creation whole or not at all, edges, reorganization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from toolcrib.plugin import Context, Role, Rows, ToolFailure

from .changes import new_document
from .edges import (
    End,
    attach,
    canonical,
    connection_edge,
    contained_in,
    edges_of,
    link,
    parent_edges,
    project_edges,
    unlink,
    version_of,
)
from .model import CONTEXT_DOCUMENT, DEPRECATED, KINDS, PARENTS, RELATIONS, SEMANTIC, Kind, containment
from .nodes import edge_view, get_node, insert_node, invalid, new_id, node_kind, publish
from .operations import ID, fields_of, note, operation_tool, shift, storage_of

__all__ = [
    "create_onto_project",
    "link_onto_entities",
    "list_onto_members",
    "reorganize_onto_project_graph",
    "set_onto_member",
    "unlink_onto_edge",
]

_MOST: Final = 2000
"""Entities that one call creates."""
_INSIDE: Final = [name for name in KINDS if name != "project"]
_REFERENCE: Final = {
    "type": "object",
    "properties": {"temp_id": {"type": "string", "maxLength": 100}, "kind": {"type": "string", "enum": _INSIDE}},
    "required": ["temp_id"],
    "additionalProperties": False,
}
_ENDS: Final = {"anyOf": [_REFERENCE, {"type": "string", "maxLength": 100, "description": "A temp_id"}]}

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


@operation_tool(
    "onto.project.create",
    "create_onto_project",
    "write",
    {
        "project": {
            "type": "object",
            "properties": fields_of(
                KINDS["project"], "name", "type_key", "description", "state_key", "props", "start_at", "end_at"
            ),
            "required": ["name", "type_key"],
            "additionalProperties": False,
        },
        "entities": {
            "type": "array",
            "maxItems": _MOST,
            "description": "temp_id, kind and the fields of that kind",
            "items": {
                "type": "object",
                "properties": {
                    "temp_id": {"type": "string", "minLength": 1, "maxLength": 100},
                    "kind": {"type": "string", "enum": _INSIDE},
                },
                "required": ["temp_id", "kind"],
            },
        },
        "relationships": {
            "type": "array",
            "maxItems": 4 * _MOST,
            "description": "Pairs of entities, or from, to and rel; a pair is containment where the kinds allow it",
            "items": {
                "anyOf": [
                    {"type": "array", "items": _ENDS, "minItems": 2, "maxItems": 2},
                    {
                        "type": "object",
                        "properties": {
                            "from": _ENDS,
                            "to": _ENDS,
                            "rel": {"type": "string", "maxLength": 50},
                            "intent": {"type": "string", "enum": ["containment", "semantic"]},
                        },
                        "required": ["from", "to"],
                        "additionalProperties": False,
                    },
                ]
            },
        },
        "context_document": {
            "type": "object",
            "properties": fields_of(KINDS["document"], "title", "content", "description", "type_key", "props"),
            "required": ["title", "content"],
            "additionalProperties": False,
        },
        "clarifications": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "type": "object",
                "properties": {
                    "key": {"type": "string", "maxLength": 100},
                    "question": {"type": "string", "maxLength": 2000},
                    "required": {"type": "boolean"},
                    "choices": {"type": "array", "items": {"type": "string", "maxLength": 500}, "maxItems": 20},
                    "help_text": {"type": "string", "maxLength": 2000},
                },
                "required": ["key", "question", "required"],
                "additionalProperties": False,
            },
        },
        "meta": {"type": "object", "description": "Kept in the project's props"},
    },
    ["project", "entities", "relationships"],
    examples=[
        {
            "project": {"name": "Spring launch", "type_key": "project.business.launch"},
            "entities": [
                {"temp_id": "g1", "kind": "goal", "name": "100 customers"},
                {"temp_id": "t1", "kind": "task", "title": "Write the page"},
            ],
            "relationships": [[{"temp_id": "g1", "kind": "goal"}, {"temp_id": "t1", "kind": "task"}]],
        }
    ],
    policy={
        "do": [
            "List the projects first: the same one may be there already.",
            "Infer what the user implied: goals, plans and tasks that follow from the request.",
            "Give every entity a temp_id, and relate each to its parent.",
        ],
        "dont": [
            "Do not log what was just discussed as tasks.",
            "Do not use ids of existing entities as temp_id.",
            "Do not ask by clarifications what can be inferred.",
        ],
        "edge_cases": [
            "A project alone has empty entities and relationships.",
            "A milestone needs a goal as its parent.",
            "An entity without a parent belongs to the project itself.",
        ],
    },
)
async def create_onto_project(
    ctx: Context,
    project: Mapping[str, Any],
    entities: Sequence[Mapping[str, Any]],
    relationships: Sequence[Any],
    context_document: Mapping[str, Any] | None = None,
    clarifications: Sequence[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Create a project with its entities, the relationships between them and a context document.

    If one of them is not valid, nothing is created. With clarifications nothing is created either: the questions come
    back for the user. The new project becomes the current one: later calls that require a project_id and have none
    mean it.
    """
    if clarifications:
        message = "Nothing was created: ask the user, then call again without clarifications."
        return {"project_id": None, "counts": {}, "clarifications": list(clarifications), "message": message}
    given = dict(project)
    if meta:
        given["props"] = {**(given.get("props") or {}), "meta": dict(meta)}
    id = new_id()
    result = await storage_of(ctx).write(
        lambda rows: _create(rows, id, given, entities, relationships, context_document)
    )
    shifted = shift(ctx, id, given["name"])
    return {**result, "context_shift": shifted, "message": f"Created project {given['name']!r}."}


def _create(
    rows: Rows,
    project_id: str,
    project: Mapping[str, Any],
    entities: Sequence[Mapping[str, Any]],
    relationships: Sequence[Any],
    context_document: Mapping[str, Any] | None,
) -> dict[str, Any]:
    rows.create_project(project_id)
    insert_node(rows, KINDS["project"], project_id, project, path="project", id=project_id)
    ends: dict[str, End] = {}
    counts: dict[str, int] = {}
    for number, one in enumerate(entities):
        path = f"entities[{number}]"
        temp_id, kind = one["temp_id"], node_kind(one["kind"], f"{path}.kind")
        if temp_id in ends:
            raise invalid(f"{path}.temp_id", f"{temp_id!r} is the temp_id of another entity")
        fields = _labelled(kind, {name: value for name, value in one.items() if name not in ("temp_id", "kind")})
        if kind.name == "document":
            row = new_document(rows, project_id, fields, path=path)
        else:
            row = insert_node(rows, kind, project_id, fields, path=path)
        ends[temp_id] = End(kind.name, row["id"])
        counts[kind.plural] = counts.get(kind.plural, 0) + 1
    edges = [_relation(one, ends, f"relationships[{number}]") for number, one in enumerate(relationships)]
    contained = {edge[2].id for edge, _ in edges if edge[1] == containment(edge[2].kind)}
    for edge, path in edges:
        link(rows, project_id, edge, path=path, paths=("from", "to"))
    for number, end in enumerate(ends.values()):
        if end.id not in contained and end.kind != "document":
            attach(rows, project_id, end, (), path=f"entities[{number}]")
    if context_document is not None:
        document = new_document(rows, project_id, _with_context_type(context_document), path="context_document")
        ends_of = (End("project", project_id), CONTEXT_DOCUMENT, End("document", document["id"]))
        link(rows, project_id, ends_of)
        counts["documents"] = counts.get("documents", 0) + 1
    counts["edges"] = len(project_edges(rows, project_id))
    publish(rows, "onto.project.create", project_id, "project", project_id, title=project["name"], counts=counts)
    return {"project_id": project_id, "counts": counts, "entities": {key: end.id for key, end in ends.items()}}


def _labelled(kind: Kind, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the name of an entity under the word of its kind: title, name or text."""
    labels = ("title", "name") if kind.name == "document" else ("title", "name", "text")  # its text is its content
    others = [name for name in labels if name in fields and name not in kind.fields]
    if kind.label in fields or len(others) != 1:
        return fields
    return {kind.label if name in others else name: value for name, value in fields.items()}


def _with_context_type(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"type_key": "document.context.project", **document}


def _relation(given: Any, ends: Mapping[str, End], path: str) -> tuple[tuple[End, str, End], str]:
    """Return the canonical edge of a relationship, and its path."""
    if isinstance(given, Mapping):
        one = cast("Mapping[str, Any]", given)
        src, dst = _end(one["from"], ends, f"{path}.from"), _end(one["to"], ends, f"{path}.to")
        rel, intent = one.get("rel"), one.get("intent")
    else:
        pair = cast("Sequence[Any]", given)
        src, dst = _end(pair[0], ends, f"{path}[0]"), _end(pair[1], ends, f"{path}[1]")
        rel = intent = None
    if rel is None:
        is_contained = intent == "containment" or (intent is None and contained_in(src, dst))
        rel = "contains" if is_contained else "relates_to"
    return canonical(src, rel, dst, path), path


def _end(given: Any, ends: Mapping[str, End], path: str) -> End:
    temp_id = given if isinstance(given, str) else given["temp_id"]
    found = ends.get(temp_id)
    if found is None:
        raise invalid(path, f"no entity of this call has the temp_id {temp_id!r}", hint=f"temp_ids: {', '.join(ends)}")
    kind = found.kind if isinstance(given, str) else given.get("kind", found.kind)
    if kind != found.kind:
        raise invalid(f"{path}.kind", f"{temp_id!r} is a {found.kind}, not a {kind}")
    return found


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
        project_id = rows.get(node_kind(src_kind, "src_kind").plural, src_id, "editor")["project_id"]
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
                    "kind": {"type": "string", "enum": _INSIDE},
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
    """Give entities of a project other parents and connections, all or none.

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
            hint="read onto.project.graph.get again and plan with its present edges",
            details={"version": version},
        )
    entities = [_entity(rows, project_id, node, number) for number, node in enumerate(nodes)]
    wanted = [
        _wanted(entity, node, f"nodes[{number}]")
        for number, (entity, node) in enumerate(zip(entities, nodes, strict=True))
    ]
    modes = [{**_DEFAULTS, **_of_modes(options), **_of_modes(node)} for node in nodes]
    for entity, edges, mode in zip(entities, wanted, modes, strict=True):
        _remove_old(rows, entity, edges, mode)
    for edges, mode in zip(wanted, modes, strict=True):
        _add_new(rows, project_id, edges, mode)
    for number, (entity, mode) in enumerate(zip(entities, modes, strict=True)):
        _check_parents(rows, project_id, entity, mode, f"nodes[{number}]")
    after = {edge["id"]: edge for edge in project_edges(rows, project_id)}
    changes = {
        "edges_to_create": [edge_view(edge) for id, edge in after.items() if id not in before],
        "edges_to_delete": [edge_view(edge) for id, edge in before.items() if id not in after],
        "edges_to_update": [
            edge_view(edge) for id, edge in after.items() if id in before and edge["revision"] != before[id]["revision"]
        ],
    }
    counts = {name: len(changes[f"edges_to_{name}"]) for name in ("create", "delete", "update")}
    is_dry = bool(options.get("dry_run"))
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    result: dict[str, Any] = {
        "dry_run": is_dry,
        "node_count": len(nodes),
        "counts": counts,
        "changes": changes,
        "message": f"{'Would change' if is_dry else 'Changed'} edges: {summary}.",
    }
    if is_dry:
        raise _DryRun(result)
    publish(rows, "onto.project.graph.reorganize", project_id, "project", project_id, counts=counts)
    return result


def _of_modes(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in _MODES if name in given}


def _entity(rows: Rows, project_id: str, node: Mapping[str, Any], number: int) -> End:
    kind = node_kind(node["kind"], f"nodes[{number}].kind")
    return End(kind.name, get_node(rows, kind, node["id"], project_id, f"nodes[{number}].id")["id"])


def _wanted(entity: End, node: Mapping[str, Any], path: str) -> _Wanted:
    connections = cast("Sequence[Mapping[str, Any]]", node.get("connections") or ())
    return [
        (connection_edge(entity, one, f"{path}.connections[{number}]"), one, f"{path}.connections[{number}]")
        for number, one in enumerate(connections)
    ]


def _remove_old(rows: Rows, entity: End, edges: _Wanted, mode: Mapping[str, Any]) -> None:
    kept = {(src.id, rel, dst.id) for (src, rel, dst), _, _ in edges}
    for edge in edges_of(rows, entity.id):
        is_kept = (edge["src_id"], edge["rel"], edge["dst_id"]) in kept
        is_parent = edge["dst_id"] == entity.id and edge["rel"] == containment(entity.kind)
        is_inferred = edge["rel"] in SEMANTIC and edge["props"].get("auto")
        replaced = (is_parent and mode["mode"] == "replace") or (
            is_inferred and edge["src_id"] == entity.id and mode["semantic_mode"] == "replace_auto"
        )
        if replaced and not is_kept:
            rows.delete("edges", edge["id"])


def _add_new(rows: Rows, project_id: str, edges: _Wanted, mode: Mapping[str, Any]) -> None:
    for ends, connection, path in edges:
        if ends[1] in SEMANTIC and mode["semantic_mode"] == "preserve":
            continue
        linked = link(rows, project_id, ends, connection.get("props"), path=path, paths=("id", "id"))
        props = connection.get("props")
        if not linked.is_new and props is not None and linked.edge["props"] != props:
            rows.update("edges", linked.edge["id"], {"props": props})


def _check_parents(rows: Rows, project_id: str, entity: End, mode: Mapping[str, Any], path: str) -> None:
    edges = parent_edges(rows, entity.id)
    parents = [edge for edge in edges if edge["rel"] == containment(entity.kind)]
    if len(parents) > 1 and not mode["allow_multi_parent"]:
        message = f"{entity.kind} {entity.id} would have {len(parents)} parents"
        raise invalid(
            f"{path}.connections", message, hint="allow_multi_parent allows it; mode replace keeps the new one"
        )
    if parents:
        return
    if not mode["allow_project_fallback"] or "project" not in PARENTS[entity.kind]:
        message = f"{entity.kind} {entity.id} would have no parent"
        raise invalid(f"{path}.connections", message, hint=f"parents: {', '.join(PARENTS[entity.kind])}")
    if not edges:
        attach(rows, project_id, entity, (), path=f"{path}.connections")


@operation_tool(
    "x.member.list",
    "list_onto_members",
    "read",
    {"project_id": ID("project")},
    ["project_id"],
    category="work",
    examples=[{"project_id": "<project_id>"}],
)
async def list_onto_members(ctx: Context, project_id: str) -> dict[str, Any]:
    """List the members of a project with their roles."""
    members = await storage_of(ctx).read(lambda rows: rows.members(project_id))
    note(ctx, "x.member.list", project_id)
    shown = [{"principal": one.principal, "role": one.role} for one in members]
    return {"members": shown, "total": len(shown), "message": f"{len(shown)} members."}


@operation_tool(
    "x.member.set",
    "set_onto_member",
    "write",
    {
        "project_id": ID("project"),
        "principal": {"type": "string", "minLength": 1, "maxLength": 200, "description": "Name of the other user"},
        "role": {
            "type": ["string", "null"],
            "enum": ["viewer", "editor", "owner", None],
            "description": "null removes",
        },
    },
    ["project_id", "principal", "role"],
    category="work",
    approval="always",
    explicit=["project_id"],  # a project is shared by its id, never because it is the current one
    idempotent=True,
    examples=[{"project_id": "<project_id>", "principal": "eve", "role": "editor"}],
)
async def set_onto_member(ctx: Context, project_id: str, principal: str, role: Role | None) -> dict[str, Any]:
    """Share a project with another user: viewers read, editors change, owners also set members; null removes one."""

    def work(rows: Rows) -> None:
        rows.set_member(project_id, principal, role)
        publish(rows, "x.member.set", project_id, "project", project_id, principal=principal, role=role)

    await storage_of(ctx).write(work)
    message = f"{principal} is {role} of the project." if role else f"{principal} is not a member of the project."
    return {"project_id": project_id, "principal": principal, "role": role, "message": message}
