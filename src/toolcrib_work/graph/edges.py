"""Edges: one row a relation in canonical direction, between entities of one project, without cycles.

What always holds after a function of this module:

    one row for a relation of two entities, in one direction (`canonical`); `relates_to` counts both ways
    no entity contains itself, and none waits for itself, over any number of others
    a nearer parent takes the place of the project's own edge; the last parent that goes gives the entity back to it
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct, field

from toolcrib.plugin import Row, Rows, ToolFailure, invalid_argument

from .model import CONTEXT_DOCUMENT, DEPRECATED, KINDS, MAX_CHILDREN, PARENTS, RELATIONS, SEMANTIC, containment
from .nodes import check_node, label_of, new_id, node_kind

_CONTAINS: Final = (*(containment(kind) for kind in PARENTS), CONTEXT_DOCUMENT, "contains")
_MARKS: Final = ", ".join("?" * len(_CONTAINS))
_SYMMETRIC: Final = ("relates_to",)
_WAITS: Final = ("depends_on", "blocks")

_AFTER: Final = (
    "WITH RECURSIVE later(id) AS ("
    "SELECT dst_id FROM {edges} AS a WHERE src_id = ? AND rel = 'depends_on' UNION "
    "SELECT src_id FROM {edges} AS b WHERE dst_id = ? AND rel = 'blocks' UNION "
    "SELECT CASE e.rel WHEN 'depends_on' THEN e.dst_id ELSE e.src_id END FROM later AS l JOIN {edges} AS e"
    " ON (e.rel = 'depends_on' AND e.src_id = l.id) OR (e.rel = 'blocks' AND e.dst_id = l.id)"
    ") SELECT id FROM later WHERE id = ? LIMIT 1"
)
"""Whether the first entity waits for the last, over any number of others."""

_PART: Final = 500
"""Ids of one statement."""
_LABEL: Final = 100
"""Characters of a title in a message."""


class End(Struct, frozen=True):
    """One end of an edge."""

    kind: str
    id: str


class Linked(Struct, frozen=True, kw_only=True):
    """Outcome of a link."""

    edge: Row
    is_new: bool
    removed: tuple[str, ...] = field(default=())
    """Ids of redundant edges that went."""


class Known(Struct):
    """State of a project that a change of many edges has read: it replaces two or three statements of each `link`."""

    edges: dict[tuple[str, str, str], Row] = field(default_factory=dict[tuple[str, str, str], Row])
    """All edges by source, relation and target; `link` adds and removes those that it does."""
    entities: set[End] = field(default_factory=set[End])
    """Entities that were found in the project."""

    def put(self, edge: Row) -> None:
        """Add an edge, or its present state."""
        self.edges[edge["src_id"], edge["rel"], edge["dst_id"]] = edge

    def check_waits(self, rows: Rows, new: Iterable[tuple[tuple[End, str, End], str]]) -> None:
        """Raise `ToolFailure` for the first of the `new` edges, with their paths, that closes a cycle of dependencies.

        A cycle without any of them was stored before: it stays.
        """
        needs: dict[str, set[str]] = {}
        for src, rel, dst in self.edges:
            if rel in _WAITS:
                waiting, needed = (src, dst) if rel == "depends_on" else (dst, src)
                needs.setdefault(waiting, set()).add(needed)
        added = {(src.id, dst.id): (src, rel, dst, path) for (src, rel, dst), path in new if rel in _WAITS}
        while True:
            try:
                return TopologicalSorter(needs).prepare()
            except CycleError as error:
                cycle: list[str] = error.args[1]
            links = {*pairwise(cycle), *pairwise(reversed(cycle))}
            for link, (src, rel, dst, path) in added.items():
                if link in links:
                    raise _cycle(rows, src, rel, dst, f"{path}.id")
            needs[cycle[1]].discard(cycle[0])  # stored before


def canonical(src: End, rel: str, dst: End, path: str = "") -> tuple[End, str, End]:
    """Return an edge in canonical direction.

    Deprecated names are turned round, `contains` becomes the relation of its kinds, and an edge that only fits the
    other way is turned. Raises `ToolFailure` for an unknown relation, and for kinds that it does not connect.
    """
    at = f"{path}." if path else ""
    for end, name in ((src, "src_kind"), (dst, "dst_kind")):
        node_kind(end.kind, f"{at}{name}")
    if rel in DEPRECATED:
        rel, is_turned = DEPRECATED[rel]
        src, dst = (dst, src) if is_turned else (src, dst)
    if rel not in RELATIONS:
        known = ", ".join((*RELATIONS, *DEPRECATED))
        raise invalid_argument(f"{at}rel", f"{rel!r} is not a relation", keyword="enum", hint=f"relations: {known}")
    if rel == "contains" or rel.startswith("has_"):
        for parent, child in ((src, dst), (dst, src)):
            if rel in ("contains", containment(child.kind)) and parent.kind in PARENTS.get(child.kind, ()):
                return parent, containment(child.kind), child
    sources, targets = RELATIONS[rel]
    if src.kind in sources and dst.kind in targets:
        return src, rel, dst
    if dst.kind in sources and src.kind in targets:
        return dst, rel, src
    raise invalid_argument(
        f"{at}rel",
        f"{rel} does not go from a {src.kind} to a {dst.kind}",
        hint=f"{rel} goes from {', '.join(sources)} to {', '.join(targets)}",
    )


def link(
    rows: Rows,
    project_id: str,
    ends: tuple[End, str, End],
    props: Mapping[str, Any] | None = None,
    *,
    path: str = "",
    paths: tuple[str, str] = ("src_id", "dst_id"),
    known: Known | None = None,
) -> Linked:
    """Add an edge; an existing one is returned as it is.

    `paths` name the arguments of the two ends as they were given, `path` is the place before them. With `known` it is
    for the caller to look for cycles of dependencies, once for all edges (`Known.check_waits`).
    """
    src, rel, dst = canonical(*ends, path)
    at = f"{path}." if path else ""
    for end, name in ((ends[0], paths[0]), (ends[2], paths[1])):
        if known is None or end not in known.entities:
            check_node(rows, KINDS[end.kind], end.id, project_id, f"{at}{name}")
            if known is not None:
                known.entities.add(end)
    if src.id == dst.id:
        raise invalid_argument(f"{at}{paths[1]}", "an entity has no edge to itself")
    found = _find(rows, src, rel, dst, known)
    if found is not None:
        return Linked(edge=found, is_new=False)
    if known is None or rel not in _WAITS:
        _check_cycle(rows, src, rel, dst, f"{at}{paths[1]}")
    if rel in _CONTAINS:
        others = parent_edges(rows, dst.id)
        linked = _contain(rows, project_id, (src, rel, dst), props, others, f"{at}{paths[0]}")
    else:
        linked = Linked(edge=_insert(rows, project_id, src, rel, dst, props), is_new=True)
    if known is not None and linked.is_new:
        known.put(linked.edge)
        if linked.removed:  # the project's own edge
            known.edges.pop((project_id, rel, dst.id), None)
    return linked


def _contain(
    rows: Rows,
    project_id: str,
    ends: tuple[End, str, End],
    props: Mapping[str, Any] | None,
    others: Sequence[Row],
    path: str,
) -> Linked:
    """Add a containment beside `others`; a nearer parent makes the project's own link redundant."""
    src, rel, dst = ends
    if src.kind == "project" and rel != CONTEXT_DOCUMENT and others:  # a nearer parent is there
        return Linked(edge=others[0], is_new=False)
    sql = f"SELECT count(*) FROM {{edges}} AS e WHERE src_id = ? AND rel IN ({_MARKS})"
    if not rows.has_room(src.id, MAX_CHILDREN, lambda: rows.select_values(sql, (src.id, *_CONTAINS))[0][0]):
        raise invalid_argument(
            path, f"{_named(rows, src)} contains {MAX_CHILDREN:,} entities, the maximum", keyword="maxItems"
        )
    removed = [edge["id"] for edge in others if edge["src_kind"] == "project" and edge["rel"] == rel]
    for id in removed:
        rows.delete("edges", id)
    return Linked(edge=_insert(rows, project_id, src, rel, dst, props), is_new=True, removed=tuple(removed))


def unlink(rows: Rows, edge_id: str) -> tuple[Row, Row | None]:
    """Remove an edge; an entity that loses its last parent becomes the project's, where a project may contain it.

    Return the removed edge, and the one in its place.
    """
    edge = rows.delete("edges", edge_id)
    if edge["rel"] not in _CONTAINS or edge["rel"] == CONTEXT_DOCUMENT:
        return edge, None
    if edge["src_id"] == edge["project_id"]:
        return edge, None
    return edge, adopt(rows, edge["project_id"], End(edge["dst_kind"], edge["dst_id"]))


def attach(
    rows: Rows, project_id: str, child: End, parents: Sequence[tuple[End, str]], *, path: str = "", primary: str = ""
) -> list[Linked]:
    """Link an entity without parents to these, each with the path of its argument; without any to the project.

    The edge to the `primary` one, by id, says so (`is_primary` in its props). Raises `ToolFailure` for an entity that a
    project does not contain, without a parent.
    """
    allowed = PARENTS[child.kind]
    if not parents:
        if "project" not in allowed:
            message = f"a {child.kind} needs a parent: {', '.join(allowed)}"
            raise invalid_argument(path or "parent", message, keyword="required", hint="relate it to one")
        parents = [(End("project", project_id), path or "project_id")]
    made, edges = list[Linked](), list[Row]()
    for parent, at in parents:
        node_kind(parent.kind, at)
        if parent.kind not in allowed:
            message = f"a {parent.kind} does not contain a {child.kind}"
            raise invalid_argument(
                at, message, hint=f"parents of a {child.kind}, the nearest first: {', '.join(allowed)}"
            )
        props = {"is_primary": True} if parent.id == primary else None
        linked = _link_parent(rows, project_id, (parent, child), props, edges, at)
        made.append(linked)
        edges = [edge for edge in edges if edge["id"] not in linked.removed]
        edges += [linked.edge] if linked.is_new else []
    return made


def _link_parent(
    rows: Rows,
    project_id: str,
    ends: tuple[End, End],
    props: Mapping[str, Any] | None,
    edges: Sequence[Row],
    path: str,
) -> Linked:
    """Link an entity, the second of `ends`, to a parent; `edges` are those to its other parents."""
    parent, child = ends
    check_node(rows, KINDS[parent.kind], parent.id, project_id, path)
    for edge in edges:
        if edge["src_id"] == parent.id:
            return Linked(edge=edge, is_new=False)
    return _contain(rows, project_id, (parent, containment(child.kind), child), props, edges, path)


def connection_edge(entity: End, connection: Mapping[str, Any], path: str) -> tuple[End, str, End]:
    """Return the edge of an entry of `connections`: kind, id, intent and rel of the other entity.

    Containment means that the other contains this entity, or this one the other, as their kinds allow.
    """
    other = End(str(connection.get("kind", "")), str(connection.get("id", "")))
    node_kind(other.kind, f"{path}.kind")
    rel = connection.get("rel")
    intent = connection.get("intent") or ("containment" if rel is None and contained_in(entity, other) else "semantic")
    if intent == "containment":
        return canonical(other, rel or "contains", entity, path)
    rel = rel or "relates_to"
    if rel not in SEMANTIC and rel not in DEPRECATED:
        return canonical(other, rel, entity, path)
    return canonical(entity, rel, other, path)


def contained_in(entity: End, other: End) -> bool:
    """Whether one of two kinds may contain the other."""
    return other.kind in PARENTS.get(entity.kind, ()) or entity.kind in PARENTS.get(other.kind, ())


def detach_all(rows: Rows, entity: End, project_id: str) -> int:
    """Remove all edges of an entity that goes; what it contained falls back to the project. Return their number."""
    edges = edges_of(rows, entity.id)
    rows.delete_all("edges", [edge["id"] for edge in edges])
    below = {edge["dst_id"]: edge for edge in edges if edge["src_id"] == entity.id and edge["rel"] in _CONTAINS}
    for edge in _edges_to(rows, below):
        if _is_parent(edge):
            below.pop(edge["dst_id"], None)
    for id, edge in below.items():
        _adopt(rows, project_id, End(edge["dst_kind"], id))
    return len(edges)


def adopt(rows: Rows, project_id: str, child: End) -> Row | None:
    """Make an entity without parents the project's own, if a project may contain it; return the new edge.

    It is not refused for the number of the project's children, as `attach` does: it must not get lost.
    """
    return None if parent_edges(rows, child.id) else _adopt(rows, project_id, child)


def _adopt(rows: Rows, project_id: str, child: End) -> Row | None:
    if "project" not in PARENTS.get(child.kind, ()):
        return None
    return _insert(rows, project_id, End("project", project_id), containment(child.kind), child, None)


def edges_of(rows: Rows, id: str, direction: str = "both") -> list[Row]:
    """Return the edges of an entity, oldest first: `outgoing`, `incoming` or `both`."""
    ends = {"outgoing": ("src_id",), "incoming": ("dst_id",)}.get(direction, ("src_id", "dst_id"))
    sql = " UNION ".join(f"SELECT * FROM {{edges}} AS {end} WHERE {end} = ?" for end in ends)
    return rows.select(f"SELECT * FROM ({sql}) AS found ORDER BY created_at, id", (id,) * len(ends))


def _edges_to(rows: Rows, ids: Iterable[str]) -> list[Row]:
    """Return ends and relation of the edges that reach several entities: one step of a walk."""
    wanted, found = sorted(ids), list[Row]()
    for start in range(0, len(wanted), _PART):
        part = wanted[start : start + _PART]
        marks, values = in_list(part)
        sql = f"SELECT src_kind, src_id, rel, dst_kind, dst_id FROM {{edges}} AS e WHERE dst_id IN ({marks})"
        found += rows.select(sql, values)
    return found


def in_list(ids: list[str]) -> tuple[str, list[str]]:
    """Return the marks and the values of an IN list of few lengths: PostgreSQL plans each statement once."""
    length = 1 << (len(ids) - 1).bit_length()
    return ", ".join("?" * length), [*ids, *ids[-1:] * (length - len(ids))]


def parent_edges(rows: Rows, id: str) -> list[Row]:
    """Return the edges by which an entity is contained."""
    sql = f"SELECT * FROM {{edges}} AS e WHERE dst_id = ? AND rel IN ({_MARKS}) ORDER BY created_at, id"
    return [edge for edge in rows.select(sql, (id, *_CONTAINS)) if _is_parent(edge)]


def _is_parent(edge: Row) -> bool:
    return edge["rel"] in _CONTAINS and edge["rel"] != CONTEXT_DOCUMENT


def project_edges(rows: Rows, project_id: str) -> list[Row]:
    """Return all edges of a project, oldest first."""
    return rows.select("SELECT * FROM {edges} AS e WHERE project_id = ? ORDER BY created_at, id", (project_id,))


def count_edges(rows: Rows, project_id: str) -> int:
    """Return the number of edges of a project."""
    return int(rows.select_values("SELECT count(*) FROM {edges} AS e WHERE project_id = ?", (project_id,))[0][0])


def version_of(ids: Sequence[str], revisions: Sequence[int]) -> str:
    """Return a digest of a project's edges: another one after each change of them, which adds one to a revision."""
    states = [*sorted(ids), str(sum(revisions))]
    return hashlib.sha256("\n".join(states).encode()).hexdigest()[:16]


def _find(rows: Rows, src: End, rel: str, dst: End, known: Known | None) -> Row | None:
    if known is not None:
        found = known.edges.get((src.id, rel, dst.id))
        return known.edges.get((dst.id, rel, src.id)) if found is None and rel in _SYMMETRIC else found
    sql = "SELECT * FROM {edges} AS e WHERE src_id = ? AND rel = ? AND dst_id = ?"
    found = rows.select(sql, (src.id, rel, dst.id))
    if not found and rel in _SYMMETRIC:
        found = rows.select(sql, (dst.id, rel, src.id))
    return found[0] if found else None


def _insert(rows: Rows, project_id: str, src: End, rel: str, dst: End, props: Mapping[str, Any] | None) -> Row:
    return rows.insert(
        "edges",
        {
            "project_id": project_id,
            "src_kind": src.kind,
            "src_id": src.id,
            "rel": rel,
            "dst_kind": dst.kind,
            "dst_id": dst.id,
            "props": dict(props or {}),
        },
        id=new_id(),
    )


def _check_cycle(rows: Rows, src: End, rel: str, dst: End, path: str) -> None:
    """Raise `ToolFailure` where an edge would close a cycle of containment or of dependencies."""
    if rel in _WAITS:
        waiting, needed = (src, dst) if rel == "depends_on" else (dst, src)
        is_cycle = bool(rows.select(_AFTER, (needed.id, needed.id, waiting.id)))
    elif rel in _CONTAINS:
        is_cycle = dst.id in _ancestors(rows, src.id)
    else:
        return
    if is_cycle:
        raise _cycle(rows, src, rel, dst, path)


def _cycle(rows: Rows, src: End, rel: str, dst: End, path: str) -> ToolFailure:
    return invalid_argument(path, f"{rel} from {_named(rows, src)} to {_named(rows, dst)} would close a cycle")


def _named(rows: Rows, end: End) -> str:
    """Return kind and label: the id of an entity that this call makes would say nothing."""
    kind = KINDS[end.kind]
    return f"{kind.name} {label_of(kind, rows.get(kind.plural, end.id))[:_LABEL]!r}"


def _ancestors(rows: Rows, id: str) -> set[str]:
    """Return an entity and everything that contains it: one statement for each level of the graph."""
    found, above = set[str](), {id}
    while above:
        found |= above
        reached = _edges_to(rows, above)
        above = {edge["src_id"] for edge in reached if _is_parent(edge)} - found
    return found
