"""Operations that read the graph: lists, searches, single entities, a project's graph, its documents, links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, TextHit, ToolFailure

from .edges import edges_of, in_list, version_of
from .model import CONTEXT_DOCUMENT, KINDS, Kind
from .nodes import brief, date_of, edge_view, label_of, node_kind, view
from .operations import ID, Operation, fields_of, limit, listed, note, operation_tool, storage_of
from .pages import ROOM, page_of, size_of
from .tree import path_to, walk

__all__ = [
    "get_document_path",
    "get_document_tree",
    "get_entity_relationships",
    "get_linked_entities",
    "get_onto_document_details",
    "get_onto_field_info",
    "get_onto_goal_details",
    "get_onto_milestone_details",
    "get_onto_plan_details",
    "get_onto_project_details",
    "get_onto_project_graph",
    "get_onto_requirement_details",
    "get_onto_risk_details",
    "get_onto_task_details",
    "links_of",
    "list_onto_documents",
    "list_onto_goals",
    "list_onto_milestones",
    "list_onto_plans",
    "list_onto_projects",
    "list_onto_requirements",
    "list_onto_risks",
    "list_onto_tasks",
    "list_task_documents",
    "search_onto_documents",
    "search_onto_projects",
    "search_onto_tasks",
    "search_ontology",
]

_PROJECT: Final = ID("project", "; without it all projects of the user")
_SHOWN: Final = 50
"""Entities of one kind that `project.get` returns."""
_SNIPPET: Final = 200
_SNIPPETS: Final = 2000
"""Characters of descriptions in one list: a long list is read for its titles."""
_SHORTEST: Final = 50
"""Characters of a description that is worth a place in a list."""
_LINKS: Final = 50
"""Links that come with an entity: all of them are in pages of `entity.links.get`."""
_EDGES: Final = 40
"""Edges of one result with all their fields."""
_OFFSET: Final = {"type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 0}
_LONG_PROJECT: Final = 2000
"""Characters of a project that is shown in full with its graph; `project.get` shows a longer one."""
_HITS: Final = 500
"""Candidates of a search that is filtered afterwards."""

_NODE: Final = (
    *("id", "title", "name", "text", "state_key", "type_key", "priority", "impact", "probability"),
    *("start_at", "due_at", "target_date", "completed_at"),
)
"""Fields of an entity in a project's graph."""
_BY_TABLE: Final[Mapping[str, Kind]] = {kind.plural: kind for kind in KINDS.values()}

_OF_PROJECT: Final = [kind.plural for kind in KINDS.values() if kind.name not in ("project", "source")]

_PREFIX: Final = "ontology_"


def _keys(kind: Kind, *names: str) -> dict[str, Any]:
    return {"project_id": _PROJECT, **(fields_of(kind, *names) if names else {})}


def _counted(kind: Kind, shown: Sequence[Any], total: int) -> str:
    noun = kind.name if total == 1 else kind.plural
    return f"{len(shown)} of {total} {noun}." if total > len(shown) else f"{total} {noun}."


def _listing(rows: Rows, kind: Kind, found: Sequence[Row], total: int, project_id: str | None) -> dict[str, Any]:
    """Return the result of a list. Tasks come with the name of their project: once where the call names one."""
    snippet = _SNIPPETS // max(1, len(found))
    lines = [brief(kind, row, project_id, snippet=snippet if snippet >= _SHORTEST else 0) for row in found]
    about: dict[str, Any] = {}
    if kind.name == "task":
        ids = sorted({row["project_id"] for row in found})
        marks = ", ".join("?" * len(ids)) or "''"
        sql = f"SELECT id, name FROM {{projects}} AS p WHERE id IN ({marks})"
        names = {row["id"]: row["name"] for row in rows.select(sql, ids)}
        if project_id is None:
            lines = [{**line, "project_name": names[row["project_id"]]} for line, row in zip(lines, found, strict=True)]
        elif names:
            about["project_name"] = names[project_id]
    return {kind.plural: lines, "total": total, **about, "message": _counted(kind, found, total)}


def _lister(name: str, default: int, *filters: str) -> Operation:
    kind = KINDS[name]
    op = f"onto.{name}.list"
    properties = {**_keys(kind, *filters), "limit": limit(default)}
    if name == "project":
        del properties["project_id"]

    @operation_tool(
        op,
        f"list_onto_{kind.plural}",
        "read",
        properties,
        examples=[{}],
        description=f"List {kind.plural}, newest change first, with their total.",
    )
    async def run(ctx: Context, limit: int, **wanted: Any) -> dict[str, Any]:
        def work(rows: Rows) -> dict[str, Any]:
            found, total = listed(rows, kind, wanted, limit)
            if wanted.get("project_id") and not found:  # visible rows prove the membership: one statement less
                rows.require(wanted["project_id"], "viewer")
            return _listing(rows, kind, found, total, wanted.get("project_id"))

        result = await storage_of(ctx).read(work)
        note(ctx, op, wanted.get("project_id") or "", total=result["total"])
        return result

    return run


def _searcher(name: str, default: int, *filters: str) -> Operation:
    kind = KINDS[name]
    op = f"onto.{name}.search"
    words = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words to look for"}
    properties = {"search": words, **_keys(kind, *filters), "limit": limit(default)}
    if name == "project":
        del properties["project_id"]

    @operation_tool(
        op,
        f"search_onto_{kind.plural}",
        "read",
        properties,
        ["search"],
        examples=[{"search": "launch"}],
        description=f"Find {kind.plural} by words in their {kind.label}, description and other texts, best first.",
    )
    async def run(ctx: Context, search: str, limit: int, **wanted: Any) -> dict[str, Any]:
        project = wanted.get("project_id") or ""
        storage = storage_of(ctx)
        if project:
            await storage.read(lambda rows: rows.require(project, "viewer"))
        hits = await storage.search(search, project_id=project, tables=[kind.plural], limit=_HITS)

        def work(rows: Rows) -> dict[str, Any]:
            matching, total = listed(rows, kind, wanted, _HITS, ids=[hit.id for hit in hits])
            by_id = {row["id"]: row for row in matching}
            found = [by_id[hit.id] for hit in hits if hit.id in by_id][:limit]
            return _listing(rows, kind, found, total, wanted.get("project_id"))

        result = await storage.read(work)
        note(ctx, op, project, total=result["total"])
        return result

    return run


def _getter(name: str) -> Operation:
    kind = KINDS[name]
    op = f"onto.{name}.get"

    @operation_tool(
        op,
        f"get_onto_{name}_details",
        "read",
        {f"{name}_id": ID(name)},
        [f"{name}_id"],
        examples=[{f"{name}_id": f"<{name}_id>"}],
        description=f"Get one {name} with all its fields and its links to other entities.",
    )
    async def run(ctx: Context, **given: str) -> dict[str, Any]:
        id = given[f"{name}_id"]

        def work(rows: Rows) -> dict[str, Any]:
            row = rows.get(kind.plural, id)
            edges = edges_of(rows, id)
            message = f"{name} {label_of(kind, row)!r}."
            if len(edges) > _LINKS:
                message += f" The first {_LINKS} of {len(edges)} links; onto.entity.links.get pages through all."
            return {name: view(kind, row), "links": links_of(rows, id, edges[:_LINKS]), "message": message}

        result = await storage_of(ctx).read(work)
        note(ctx, op, result[name]["project_id"], kind=name, id=id)
        return result

    return run


def links_of(rows: Rows, id: str, edges: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the entities to which edges link an entity, with the edge of each."""
    others = [_other_end(edge, id) for edge in edges]
    found = _entities(rows, others, lambda kind: f"id, {kind.label}")
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


def _entities(
    rows: Rows, ends: Sequence[tuple[str, str]], columns: Callable[[Kind], str] = lambda kind: "*"
) -> dict[str, Row]:
    """Return the entities behind kinds and ids."""
    by_kind: dict[str, list[str]] = {}
    for kind, id in dict.fromkeys(ends):
        by_kind.setdefault(kind, []).append(id)
    found: dict[str, Row] = {}
    for kind, ids in by_kind.items():
        for start in range(0, len(ids), _HITS):
            marks, values = in_list(ids[start : start + _HITS])
            sql = f"SELECT {columns(KINDS[kind])} FROM {{{KINDS[kind].plural}}} AS one WHERE id IN ({marks})"
            found |= {row["id"]: row for row in rows.select(sql, values)}
    return found


list_onto_tasks = _lister("task", 20, "state_key")
list_onto_goals = _lister("goal", 10)
list_onto_plans = _lister("plan", 10)
list_onto_documents = _lister("document", 20, "type_key", "state_key")
list_onto_milestones = _lister("milestone", 20, "state_key")
list_onto_risks = _lister("risk", 20, "state_key", "impact")
list_onto_requirements = _lister("requirement", 20, "type_key")
list_onto_projects = _lister("project", 10, "state_key", "type_key")
search_onto_tasks = _searcher("task", 20, "state_key")
search_onto_projects = _searcher("project", 10, "state_key", "type_key")
search_onto_documents = _searcher("document", 20, "type_key", "state_key")
get_onto_task_details = _getter("task")
get_onto_goal_details = _getter("goal")
get_onto_plan_details = _getter("plan")
get_onto_document_details = _getter("document")
get_onto_milestone_details = _getter("milestone")
get_onto_risk_details = _getter("risk")
get_onto_requirement_details = _getter("requirement")


@operation_tool(
    "onto.search",
    "search_ontology",
    "read",
    {
        "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words to look for"},
        "project_id": _PROJECT,
        "types": {"type": "array", "items": {"type": "string", "enum": list(KINDS)}, "maxItems": len(KINDS)},
        "limit": limit(20),
    },
    ["query"],
    examples=[{"query": "launch date", "types": ["task", "document"]}],
)
async def search_ontology(
    ctx: Context, query: str, limit: int, project_id: str | None = None, types: Sequence[str] | None = None
) -> dict[str, Any]:
    """Find entities of any kind by words and meaning, best first.

    Returns results with type, id, project_id, title, snippet and score.
    """
    project = project_id or ""
    storage = storage_of(ctx)
    if project:
        await storage.read(lambda rows: rows.require(project, "viewer"))
    tables = [KINDS[name].plural for name in types or ()]
    hits = await storage.search(query, project_id=project, tables=tables, limit=limit)
    results = await storage.read(partial(_results, hits=hits, query=query))
    note(ctx, "onto.search", project, total=len(results))
    noun = "entity" if len(results) == 1 else "entities"
    return {"results": results, "total": len(results), "message": f"{len(results)} {noun}."}


def _results(rows: Rows, hits: Sequence[TextHit], query: str) -> list[dict[str, Any]]:
    known = [hit for hit in hits if hit.table in _BY_TABLE]
    found = _entities(rows, [(_BY_TABLE[hit.table].name, hit.id) for hit in known])
    results: list[dict[str, Any]] = []
    for hit in known:
        if hit.id not in found:
            continue
        kind, row = _BY_TABLE[hit.table], found[hit.id]
        results.append(
            {
                "type": kind.name,
                "id": hit.id,
                "project_id": hit.project_id,
                "title": label_of(kind, row),
                "snippet": _snippet(kind, row, query),
                "score": round(hit.score, 3),
            }
        )
    return results


def _snippet(kind: Kind, row: Row, query: str) -> str:
    """Return the text around the first word of a query that occurs in it."""
    text = " ".join(" ".join(str(row[name]).split()) for name in kind.text if row[name])
    folded = text.casefold()
    places = [folded.find(word) for word in query.casefold().split()]
    start = max(0, min((place for place in places if place >= 0), default=0) - _SNIPPET // 4)
    part = text[start : start + _SNIPPET]
    return f"{'…' if start else ''}{part}{'…' if start + _SNIPPET < len(text) else ''}"


def _fitted(lists: Mapping[str, Sequence[Row]], project_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of lists that fit into one result together: with descriptions, without, then fewer lines."""
    most, snippet = _SHOWN, _SNIPPET
    while True:
        lines = {
            name: [brief(_BY_TABLE[name], row, project_id, snippet=snippet) for row in rows[:most]]
            for name, rows in lists.items()
        }
        if most == 1 or sum([size_of(line) for shown in lines.values() for line in shown]) <= ROOM:
            return lines
        most, snippet = (most if snippet else most * 2 // 3), 0


@operation_tool(
    "onto.project.get",
    "get_onto_project_details",
    "read",
    {"project_id": ID("project")},
    ["project_id"],
    examples=[{"project_id": "<project_id>"}],
)
async def get_onto_project_details(ctx: Context, project_id: str) -> dict[str, Any]:
    """Get a project with what belongs to it, the newest 50 of each kind, and its context document.

    A large project's lists are shorter and without descriptions; counts has all.
    """

    def work(rows: Rows) -> dict[str, Any]:
        project = rows.get("projects", project_id)
        result: dict[str, Any] = {"project": view(KINDS["project"], project)}
        counts: dict[str, int] = {}
        lists: dict[str, list[Row]] = {}
        for name in _OF_PROJECT:
            lists[name], counts[name] = listed(rows, _BY_TABLE[name], {"project_id": project_id}, _SHOWN)
        result |= _fitted(lists, project_id)
        context = [edge["dst_id"] for edge in edges_of(rows, project_id, "outgoing") if edge["rel"] == CONTEXT_DOCUMENT]
        document = rows.find("documents", context[-1]) if context else None
        result["context_document"] = view(KINDS["document"], document) if document else None
        named = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return {**result, "counts": counts, "message": f"project {project['name']!r}: {named or 'empty'}."}

    result = await storage_of(ctx).read(work)
    note(ctx, "onto.project.get", project_id)
    return result


@operation_tool(
    "onto.project.graph.get",
    "get_onto_project_graph",
    "read",
    {
        "project_id": ID("project"),
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100_000,
            "description": "Entities of a page; otherwise as many as fit",
        },
        "cursor": {"type": "string", "maxLength": 100, "description": "metadata.next_cursor of the last page"},
    },
    ["project_id"],
    examples=[{"project_id": "<project_id>"}],
)
async def get_onto_project_graph(
    ctx: Context, project_id: str, limit: int | None = None, cursor: str = ""
) -> dict[str, Any]:
    """Get all entities of a project and the edges between them, in pages.

    metadata.version is what reorganize compares.
    """

    def work(rows: Rows) -> dict[str, Any]:
        project = rows.get("projects", project_id)
        nodes: dict[str, list[dict[str, Any]]] = {}
        for kind in KINDS.values():
            if kind.name != "project":
                names = [name for name in _NODE if name == "id" or name in kind.table.columns]
                named = f"SELECT {', '.join(names)} FROM {{{kind.plural}}} AS one"
                found = rows.select_values(f"{named} WHERE project_id = ? ORDER BY created_at, id", (project_id,))
                nodes[kind.plural] = [
                    {name: value for name, value in zip(names, row) if value is not None}  # noqa: B905 - a third more
                    for row in found
                ]
        named = ("id", "revision", "src_kind", "src_id", "rel", "dst_kind", "dst_id")
        ids, revisions, *ends = rows.select_columns(named, "FROM {edges} AS e WHERE project_id = ?", (project_id,))
        version = version_of(ids, revisions)
        edges = [
            {"id": id, "src_kind": src_kind, "src_id": src_id, "rel": rel, "dst_kind": dst_kind, "dst_id": dst_id}
            for id, src_kind, src_id, rel, dst_kind, dst_id in zip(ids, *ends, strict=True)
        ]
        counted = {name: len(found) for name, found in nodes.items()}
        metadata = {
            "node_count": sum(counted.values()),
            "edge_count": len(edges),
            "counts": counted,
            "version": version,
            "fetched_at": date_of(rows.now),
        }
        page = page_of(nodes, edges, version=version, limit=limit, cursor=cursor)
        graph = {"project": _project_of_page(project, cursor), "nodes": page.nodes, "edges": page.edges}
        message = f"{metadata['node_count']} entities, {len(edges)} edges."
        if page.next_cursor:
            metadata["next_cursor"] = page.next_cursor
        if page.next_cursor or cursor:
            shown = sum(map(len, page.nodes.values()))
            message = f"{shown} of {metadata['node_count']} entities, {len(page.edges)} of {len(edges)} edges."
        return {"graph": graph, "metadata": metadata, "message": message}

    result = await storage_of(ctx).read(work, long=True)
    note(ctx, "onto.project.graph.get", project_id)
    return result


def _project_of_page(project: Row, cursor: str) -> dict[str, Any]:
    """Return a project in full on the first page; as a line of a list on later ones, and if it is long."""
    kind = KINDS["project"]
    if not cursor:
        full = view(kind, project)
        if len(str(full)) <= _LONG_PROJECT:
            return full
    return brief(kind, project)


@operation_tool(
    "onto.document.tree.get",
    "get_document_tree",
    "read",
    {
        "project_id": ID("project"),
        "include_documents": {"type": "boolean", "default": False, "description": "Add the documents by id"},
        "include_content": {"type": "boolean", "default": False, "description": "With their content"},
    },
    ["project_id"],
    examples=[{"project_id": "<project_id>", "include_documents": True}],
)
async def get_document_tree(
    ctx: Context, project_id: str, include_documents: bool, include_content: bool
) -> dict[str, Any]:
    """Get the tree of a project's documents, and those that are unlinked."""
    kind = KINDS["document"]

    def work(rows: Rows) -> dict[str, Any]:
        structure = rows.get("projects", project_id)["doc_structure"]
        linked = {node["id"] for node in walk(structure["root"])}
        is_full = include_documents or include_content
        named = "*" if is_full else "id, title"
        sql = f"SELECT {named} FROM {{documents}} AS d WHERE project_id = ? ORDER BY created_at, id"
        documents = rows.select(sql, (project_id,))
        shown: dict[str, Any] = {}
        for row in documents if is_full else ():
            full = view(kind, row)
            shown[row["id"]] = full if include_content else {k: v for k, v in full.items() if k != "content"}
        unlinked = [{"id": row["id"], "title": row["title"]} for row in documents if row["id"] not in linked]
        message = f"{len(linked)} documents in the tree, {len(unlinked)} unlinked."
        return {"structure": structure, "documents": shown, "unlinked": unlinked, "message": message}

    result = await storage_of(ctx).read(work)
    note(ctx, "onto.document.tree.get", project_id)
    return result


@operation_tool(
    "onto.document.path.get",
    "get_document_path",
    "read",
    {"document_id": ID("document"), "project_id": ID("project", "; without it that of the document")},
    ["document_id"],
    explicit=["project_id"],
    examples=[{"document_id": "<document_id>"}],
)
async def get_document_path(ctx: Context, document_id: str, project_id: str | None = None) -> dict[str, Any]:
    """Get the documents from the root of the tree to a document."""

    def work(rows: Rows) -> dict[str, Any]:
        document = rows.get("documents", document_id)
        if project_id and document["project_id"] != project_id:
            raise ToolFailure("not_found", f"project {project_id} has no document {document_id!r}")
        project = rows.get("projects", document["project_id"])
        path = path_to(project["doc_structure"]["root"], document_id)
        return {
            "path": [{"id": node["id"], "title": node["title"]} for node in path],
            "document_id": document_id,
            "project_id": document["project_id"],
            "message": " / ".join(node["title"] for node in path) or f"{document['title']!r} is unlinked.",
        }

    result = await storage_of(ctx).read(work)
    note(ctx, "onto.document.path.get", result["project_id"], kind="document", id=document_id)
    return result


def _part(shown: int, offset: int, total: int, nouns: str) -> str:
    """Return the message of a part of a list, with the offset of the next part."""
    if shown == total:
        return f"{total} {nouns}."
    rest = f"; go on with offset {offset + shown}" if offset + shown < total else ""
    return f"{shown} of {total} {nouns}{rest}."


def _find_any(rows: Rows, id: str) -> tuple[Kind, Row]:
    """Return the entity with an id, of any kind. Raises `ToolFailure("not_found")`."""
    for kind in KINDS.values():
        if row := rows.find(kind.plural, id):
            return kind, row
    raise ToolFailure("not_found", f"there is no entity {id[:200]!r}", hint="onto.search finds ids")


@operation_tool(
    "onto.entity.relationships.get",
    "get_entity_relationships",
    "read",
    {
        "entity_id": ID("entity"),
        "direction": {"type": "string", "enum": ["outgoing", "incoming", "both"], "default": "both"},
        "limit": limit(_EDGES),
        "offset": _OFFSET,
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
        shown = [edge_view(edge) for edge in edges[offset : offset + limit]]
        message = _part(len(shown), offset, len(edges), f"edges of {kind.name} {label_of(kind, row)!r}")
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
        "limit": limit(_LINKS),
        "offset": _OFFSET,
    },
    ["entity_id", "entity_kind"],
    examples=[
        {"entity_id": "<entity_id>", "entity_kind": "goal", "filter_kind": "task"},
    ],
)
async def get_linked_entities(
    ctx: Context, entity_id: str, entity_kind: str, filter_kind: str, limit: int, offset: int
) -> dict[str, Any]:
    """Get the entities that are linked to one, with the relation of each, and counts by kind."""
    kind = node_kind(entity_kind, "entity_kind")

    def work(rows: Rows) -> tuple[str, dict[str, Any]]:
        row = rows.get(kind.plural, entity_id)
        edges = edges_of(rows, entity_id)
        counts = dict(Counter(_other_end(edge, entity_id)[0] for edge in edges))
        wanted = [edge for edge in edges if filter_kind in ("all", _other_end(edge, entity_id)[0])]
        shown = links_of(rows, entity_id, wanted[offset : offset + limit])
        message = _part(len(shown), offset, len(wanted), "linked entities")
        return row["project_id"], {"entities": shown, "counts": counts, "total": len(wanted), "message": message}

    project_id, result = await storage_of(ctx).read(work)
    note(ctx, "onto.entity.links.get", project_id, kind=entity_kind, id=entity_id)
    return result


@operation_tool(
    "onto.task.docs.list",
    "list_task_documents",
    "read",
    {"task_id": ID("task")},
    ["task_id"],
    examples=[{"task_id": "<task_id>"}],
)
async def list_task_documents(ctx: Context, task_id: str) -> dict[str, Any]:
    """List the documents of a task with the edge of each; scratch_pad is the one with the role scratch_pad."""
    kind = KINDS["document"]

    def work(rows: Rows) -> tuple[str, dict[str, Any]]:
        task = rows.get("tasks", task_id)
        edges = [edge for edge in edges_of(rows, task_id, "outgoing") if edge["rel"] == "task_has_document"]
        found = _entities(rows, [("document", edge["dst_id"]) for edge in edges])
        documents = [
            {"document": brief(kind, found[edge["dst_id"]]), "edge": edge_view(edge)}
            for edge in edges
            if edge["dst_id"] in found
        ]
        pads = [one["document"] for one in documents if one["edge"]["props"].get("role") == "scratch_pad"]
        pad = view(kind, found[pads[0]["id"]]) if pads else None
        message = f"{len(documents)} documents of task {task['title']!r}."
        return task["project_id"], {"documents": documents, "scratch_pad": pad, "message": message}

    project_id, result = await storage_of(ctx).read(work)
    note(ctx, "onto.task.docs.list", project_id, kind="task", id=task_id)
    return result


@operation_tool(
    "util.schema.field_info",
    "get_onto_field_info",
    "read",
    {
        "entity_type": {"type": "string", "minLength": 1, "maxLength": 100, "description": "Such as ontology_task"},
        "field_name": {"type": "string", "maxLength": 100, "description": "One field; else all"},
    },
    ["entity_type"],
    examples=[{"entity_type": "ontology_task", "field_name": "state_key"}],
)
async def get_onto_field_info(ctx: Context, entity_type: str, field_name: str = "") -> dict[str, Any]:
    """Describe the fields of a kind of entity (ontology_task, ontology_project …): type, values, default, required."""
    kind = KINDS.get(entity_type.removeprefix(_PREFIX)) if entity_type.startswith(_PREFIX) else None
    if kind is None:
        return _fields_of_tools(ctx, entity_type, field_name)
    properties = kind.schema["properties"]
    if field_name and field_name not in properties:
        raise ToolFailure(
            "not_found", f"a {kind.name} has no field {field_name!r}", hint=f"fields: {', '.join(properties)}"
        )
    defaults = {**kind.defaults, "state_key": kind.states[:1] and kind.states[0], "type_key": kind.default_type}
    fields = {
        name: {
            **schema,
            "required": name in kind.required,
            **({"default": defaults[name]} if defaults.get(name) else {}),
        }
        for name, schema in properties.items()
        if field_name in ("", name)
    }
    return {"entity_type": entity_type, "fields": fields, "message": f"{len(fields)} fields of a {kind.name}."}


def _fields_of_tools(ctx: Context, entity_type: str, field_name: str) -> dict[str, Any]:
    """Return the arguments of the session's tools that work on another kind of entity."""
    fields = ctx.lent.insight(ctx.principal, ctx.session_key).fields(entity_type)
    shown = {name: field for name, field in fields.items() if field_name in ("", name)}
    if not shown:
        known = ", ".join(f"{_PREFIX}{name}" for name in KINDS)
        named = f"field {field_name!r} of {entity_type!r}" if fields else f"entity type {entity_type!r}"
        raise ToolFailure("not_found", f"there is no {named}", hint=f"types: {known}; {', '.join(fields)}".rstrip("; "))
    return {"entity_type": entity_type, "fields": shown, "message": f"{len(shown)} fields."}
