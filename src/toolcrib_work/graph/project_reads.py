"""Operations that read a whole project: with what belongs to it, and as a graph in pages.

A cursor is `NUMBER-VERSION-COUNT`: the place of the first item, and the state of the graph that it counts in. After a
change of the graph the places mean other items, and the cursor is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct, field

from toolcrib.plugin import PAGE_BYTES, Context, Row, Rows, ToolFailure, invalid_argument

from .edges import edges_of, version_of
from .model import CONTEXT_DOCUMENT, KIND_OF_TABLE, KINDS
from .nodes import brief, view
from .operations import ID, counted, listed, note, operation_tool, storage_of

_SNIPPET: Final = 200
"""Characters of a description in the lists of a project."""
_SHOWN: Final = 50
"""Entities of one kind that `project.get` returns."""

_LONG_PROJECT: Final = 2000
"""Characters of a project that is shown in full with its graph, and of a tree that is shown with its project."""

_NODE: Final = (
    *("id", "title", "name", "text", "state_key", "type_key", "priority", "impact", "probability"),
    *("start_at", "due_at", "end_at", "target_date", "completed_at", "recurrence"),
)
"""Fields of an entity in a project's graph."""

_OF_PROJECT: Final = [kind.plural for kind in KINDS.values() if kind.name not in ("project", "source", "event")]


def _fitted(lists: Mapping[str, Sequence[Row]], project_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of lists that fit into one result together: with descriptions, without, then fewer lines."""
    most, snippet = _SHOWN, _SNIPPET
    while True:
        lines = {
            name: [brief(KIND_OF_TABLE[name], row, project_id, snippet=snippet) for row in rows[:most]]
            for name, rows in lists.items()
        }
        if most == 1 or sum([_size_of(line) for shown in lines.values() for line in shown]) <= PAGE_BYTES:
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
    """Get a project with an overview of what belongs to it, the newest 50 of each kind, and its context document.

    A large project's lists are shorter and without descriptions, and its tree is left to get_document_tree;
    counts has all.
    """

    def work(rows: Rows) -> dict[str, Any]:
        project = rows.get("projects", project_id)
        shown = view(KINDS["project"], project)
        if len(str(shown["doc_structure"])) > _LONG_PROJECT:
            shown["doc_structure"] = {"version": shown["doc_structure"]["version"]}
        result: dict[str, Any] = {"project": shown}
        counts: dict[str, int] = {}
        lists: dict[str, list[Row]] = {}
        for name in _OF_PROJECT:
            lists[name], counts[name] = listed(rows, KIND_OF_TABLE[name], {"project_id": project_id}, _SHOWN)
        result |= _fitted(lists, project_id)
        context = [edge["dst_id"] for edge in edges_of(rows, project_id, "outgoing") if edge["rel"] == CONTEXT_DOCUMENT]
        document = rows.find("documents", context[-1]) if context else None
        result["context_document"] = view(KINDS["document"], document) if document else None
        named = ", ".join(counted(count, KIND_OF_TABLE[name].name) for name, count in counts.items() if count)
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
                sql = f"SELECT {', '.join(names)} FROM {{{kind.plural}}} AS one WHERE project_id = ? AND {kind.shown}"
                found = rows.select_values(f"{sql} ORDER BY created_at, id", (project_id,))
                left_out = [(None, kind.usual.get(name)) for name in names]
                nodes[kind.plural] = [
                    {name: value for name, value, no in zip(names, row, left_out) if value not in no}  # noqa: B905 - a third more
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
        }
        page = page_of(nodes, edges, version=version, limit=limit, cursor=cursor)
        graph = {"project": _project_of_page(project, limit, cursor), "nodes": page.nodes, "edges": page.edges}
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


def _project_of_page(project: Row, limit: int | None, cursor: str) -> dict[str, Any]:
    """Return a project in full on the first page; else, or if it is too long for a page, as a line."""
    kind = KINDS["project"]
    if not cursor:
        full = view(kind, project)
        if limit is not None or len(str(full)) <= _LONG_PROJECT:
            return full
    return brief(kind, project)


_PUNCTUATION: Final = 6
"""Bytes of a field around its name and its value: quotes, colon and comma; a number needs two less."""
_ORDER: Final = (
    *("goals", "milestones", "plans", "tasks", "risks", "requirements", "metrics"),
    *("events", "documents", "sources"),
)
"""Parents before children, so that most edges come with the entity below."""

_Item = tuple[str, dict[str, Any]]
"""An entity with the plural of its kind, or an edge with an empty text."""


class GraphPage(Struct, kw_only=True):
    """A part of a graph."""

    nodes: dict[str, list[dict[str, Any]]]
    edges: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    next_cursor: str | None = None
    """The `cursor` of the next page; None behind the last one."""


def page_of(
    nodes: Mapping[str, list[dict[str, Any]]],
    edges: list[dict[str, Any]],
    *,
    version: str,
    limit: int | None,
    cursor: str,
    room: int = PAGE_BYTES,
) -> GraphPage:
    """Return a page: `limit` entities with their edges, or as many entities and edges as `room` bytes hold.

    An edge comes with the later one of its ends, or behind it on the next page. Raises `ToolFailure` for a cursor that
    is not one, and `conflict` for one of a graph that has changed since.
    """
    count = sum(map(len, nodes.values()))
    mark = f"{version}-{count}"
    start = _start(cursor, mark)
    if not start and limit is not None and count <= limit:
        return GraphPage(nodes=dict(nodes), edges=edges)
    page = GraphPage(nodes={kind: [] for kind in nodes})
    taken = size = 0
    for number, (kind, item) in enumerate(_items(nodes, edges)):
        if number < start:
            continue
        if limit is not None:
            is_full = bool(kind) and taken == limit
        else:
            size += _size_of(item)
            is_full = size > room and number > start
        if is_full:
            page.next_cursor = f"{number}-{mark}"
            break
        if kind:
            page.nodes[kind].append(item)
            taken += 1
        else:
            page.edges.append(item)
    return page


def _items(nodes: Mapping[str, Sequence[dict[str, Any]]], edges: Sequence[dict[str, Any]]) -> Iterator[_Item]:
    """Return every entity in the order of pages, each followed by its edges to earlier ones.

    Edges come in any order, another one for each page perhaps: they are sorted by their ids.
    """
    place: dict[str, int] = {}
    for kind in _ORDER:
        for node in nodes[kind]:
            place[node["id"]] = len(place)
    behind: dict[int, list[dict[str, Any]]] = {}
    for edge in edges:
        last = max(place.get(edge["src_id"], -1), place.get(edge["dst_id"], -1))
        behind.setdefault(last, []).append(edge)
    for edge in sorted(behind.get(-1, ()), key=itemgetter("id")):  # of the project alone
        yield "", edge
    number = 0
    for kind in _ORDER:
        for node in nodes[kind]:
            yield kind, node
            for edge in sorted(behind.get(number, ()), key=itemgetter("id")):
                yield "", edge
            number += 1


def _size_of(item: Mapping[str, Any]) -> int:
    """Return about the bytes of an item as JSON."""
    return sum([len(name) + len(str(value).encode()) + _PUNCTUATION for name, value in item.items()])


def _start(cursor: str, mark: str) -> int:
    if not cursor:
        return 0
    number, _, of = cursor.partition("-")
    if not number.isdecimal() or not of:
        raise invalid_argument("cursor", f"{cursor[:100]!r} is not a cursor: give next_cursor of the page before")
    if of != mark:
        raise ToolFailure(
            "conflict",
            "the project's entities or edges were changed since the page before",
            hint="read the graph again from its first page, without a cursor",
        )
    return int(number)
