"""Pages of a project's graph, which fit into one result and give the whole graph together.

A cursor is `NUMBER-VERSION-COUNT`: the place of the first item, and the state of the graph that it counts in. After a
change of the graph the places mean other items, and the cursor is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from toolcrib.plugin import ToolFailure, invalid_argument

__all__ = ["ROOM", "GraphPage", "page_of", "size_of"]

ROOM: Final = 12_000
"""Bytes of the entities and edges of a page: a result has room for 16,000 (4,000 estimated tokens by default)."""
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
    room: int = ROOM,
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
            size += size_of(item)
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
    """Return every entity in the order of pages, each followed by its edges to earlier ones."""
    place: dict[str, int] = {}
    for kind in _ORDER:
        for node in nodes[kind]:
            place[node["id"]] = len(place)
    behind: dict[int, list[dict[str, Any]]] = {}
    for edge in edges:
        last = max(place.get(edge["src_id"], -1), place.get(edge["dst_id"], -1))
        behind.setdefault(last, []).append(edge)
    for edge in behind.get(-1, ()):  # of the project alone
        yield "", edge
    number = 0
    for kind in _ORDER:
        for node in nodes[kind]:
            yield kind, node
            for edge in behind.get(number, ()):
                yield "", edge
            number += 1


def size_of(item: Mapping[str, Any]) -> int:
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
