"""Operation that exports a project: as JSON, or as a folder of Markdown files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from toolcrib.plugin import Context, Row, Rows

from .edges import project_edges
from .model import KINDS, KINDS_CREATED, Kind
from .operations import ID, note, operation_tool, storage_of
from .portable_project import FENCE, FORMAT, RESTORED, body_field
from .tree import Node

_SLUG: Final = re.compile(r"[\W_]+")
_STEM: Final = 50
"""Characters of a title in the name of a file: of any script, which have up to four bytes each."""


@operation_tool(
    "x.graph.export",
    "export_onto_project",
    "read",
    {
        "project_id": ID("project"),
        "format": {"type": "string", "enum": ["json", "markdown"], "default": "json"},
    },
    ["project_id"],
    category="work",
    examples=[{"project_id": "<project_id>", "format": "markdown"}],
)
async def export_onto_project(ctx: Context, project_id: str, format: Literal["json", "markdown"]) -> dict[str, Any]:
    """Export the graph of a project: as one JSON value, or as Markdown files with their paths in a folder.

    Its calendar is not part of it.
    """

    def work(rows: Rows) -> dict[str, Any]:
        exported = _exported(rows, project_id)
        if format == "json":
            return {"data": exported}
        return {"files": [{"path": path, "content": text} for path, text in _files(exported)]}

    result = await storage_of(ctx).read(work, long=True)
    note(ctx, "x.graph.export", project_id)
    what = f"{len(result['files'])} files" if format == "markdown" else f"{len(result['data']['entities'])} entities"
    return {"format": format, **result, "message": f"Exported {what}, without calendar events."}


def _exported(rows: Rows, project_id: str) -> dict[str, Any]:
    project = rows.get("projects", project_id)
    entities: list[dict[str, Any]] = []
    for kind in [KINDS[name] for name in KINDS_CREATED]:
        sql = f"SELECT * FROM {{{kind.plural}}} AS one WHERE project_id = ? ORDER BY created_at, id"
        entities += [_plain(kind, row) for row in rows.select(sql, (project_id,))]
    edges = [
        {
            "src_id": edge["src_id"],
            "rel": edge["rel"],
            "dst_id": edge["dst_id"],
            **({"props": edge["props"]} if edge["props"] else {}),
        }
        for edge in project_edges(rows, project_id)
        if "event" not in (edge["src_kind"], edge["dst_kind"])
    ]
    return {
        "format": FORMAT,
        "version": 1,
        "project": _plain(KINDS["project"], project),
        "entities": entities,
        "edges": edges,
        "tree": _brief_tree(project["doc_structure"]["root"]),
    }


def _plain(kind: Kind, row: Row) -> dict[str, Any]:
    names = [*kind.schema["properties"], *(name for name in RESTORED if name in kind.kept)]
    fields = {name: row[name] for name in names if row[name] not in (None, {}, [], "")}
    if "is_public" in fields:
        fields["is_public"] = bool(fields["is_public"])
    return {"id": row["id"], "kind": kind.name, **fields}


def _brief_tree(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    return [{"id": node["id"], "children": _brief_tree(node["children"])} for node in nodes]


def _files(exported: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the files of a folder: `project.md`, one a document where it is in the tree, one for any other entity."""
    links: dict[str, list[dict[str, Any]]] = {}
    for edge in exported["edges"]:
        about = {"rel": edge["rel"], "to": edge["dst_id"], **({"props": edge["props"]} if "props" in edge else {})}
        links.setdefault(edge["src_id"], []).append(about)
    by_id = {one["id"]: one for one in exported["entities"]}
    project = exported["project"]
    yield "project.md", _file(project, links.get(project["id"], []), {"format": FORMAT, "version": 1})
    placed = dict(_placed(exported["tree"], by_id, "documents"))
    for one in exported["entities"]:
        id, kind = one["id"], KINDS[one["kind"]]
        path, more = placed.get(id, (f"{kind.plural}/{_slug(str(one[kind.label]))}-{id}.md", {}))
        yield path, _file(one, links.get(id, []), more)


def _placed(
    tree: Sequence[Mapping[str, Any]], by_id: Mapping[str, Mapping[str, Any]], folder: str, above: str | None = None
) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    for order, node in enumerate(tree):
        stem = f"{order + 1:02}-{_slug(str(by_id[node['id']]['title']))}"
        yield node["id"], (f"{folder}/{stem}.md", {"parent": above, "order": order})
        yield from _placed(node["children"], by_id, f"{folder}/{stem}", node["id"])


def _file(one: Mapping[str, Any], links: Sequence[Mapping[str, Any]], more: Mapping[str, Any]) -> str:
    """Return an entity as Markdown: its body follows the front matter character by character."""
    body = body_field(KINDS[one["kind"]])
    about = {**more, **{name: value for name, value in one.items() if name != body}}
    if links:
        about["links"] = list(links)
    lines = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in about.items())
    return f"{FENCE}{lines}{FENCE}{one.get(body) or ''}"


def _slug(text: str) -> str:
    return _SLUG.sub("-", text.lower()).strip("-")[:_STEM] or "untitled"
