"""Operation that imports a project, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final, cast

from toolcrib.plugin import Context, Row, Rows, ToolFailure, Workspace, invalid_argument, read_json

from .edges import End, attach, canonical, link, parent_edges, project_edges
from .import_formats import from_data, from_files
from .model import KINDS, MAX_CHILDREN, PARENTS
from .nodes import insert_node, label_of, new_id, publish
from .operations import operation_tool, shift, storage_of
from .portable_project import MAX_ENTRIES, RESTORED, PortableEntity, PortableProject
from .tree import MAX_DEPTH, Node, walk

__all__ = ["import_onto_project"]

_BYTES: Final = 100_000_000
"""Of a file that is imported."""
_NAMED: Final = 100
"""Entities of which a result names the new ids: each takes a model 20 tokens."""


@operation_tool(
    "x.graph.import",
    "import_onto_project",
    "write",
    {
        "data": {
            "type": ["object", "array"],
            "items": {"type": "object"},
            "description": "An export as JSON; or issues of GitHub, of its REST API or of `gh issue list --json …`",
        },
        "files": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_ENTRIES,
            "description": "Instead of data: the Markdown files of a folder",
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "maxLength": 1000},
                    "content": {"type": "string"},
                },
                "required": ["path", "content"],
                "additionalProperties": False,
            },
        },
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1000,
            "description": "Instead of data: a JSON file or a folder of Markdown files in the workspace",
        },
        "name": {**KINDS["project"].fields["name"], "description": "Of the new project; else that of the import"},
        "type_key": KINDS["project"].schema["properties"]["type_key"],
    },
    category="work",
    traits=["file_reader"],
    examples=[
        {"data": [{"number": 1, "title": "Crash on start", "state": "OPEN"}], "name": "Issues"},
        {"path": "notes", "name": "Notes"},
    ],
)
async def import_onto_project(
    ctx: Context,
    data: Any = None,
    files: Sequence[Mapping[str, str]] | None = None,
    path: str | None = None,
    name: str = "",
    type_key: str = "",
) -> dict[str, Any]:
    """Import a project from JSON, Markdown files or GitHub issues, as a new one.

    If one entity or edge is not valid, nothing is created. Issues become tasks, their milestones milestones of one
    goal; state, labels, assignees and numbers are kept. The new project becomes the session's current one. `entities`
    has the new ids of up to 100 entities; lists and searches have all.
    """
    if [data, files, path].count(None) != 2:
        raise invalid_argument("data", "give either data, files or a path", keyword="required")
    if path is not None:
        content = await _read(ctx.workspace, path)
    else:
        content = from_data(data) if files is None else from_files(files)
    content.fields |= {**({"name": name} if name else {}), **({"type_key": type_key} if type_key else {})}
    id = new_id()
    counts, ids = await storage_of(ctx).write(lambda rows: _create(rows, id, content))
    label = str(content.fields["name"])
    shifted = shift(ctx, id, label)
    message = f"Imported project {label!r}."
    named = ids if len(ids) <= _NAMED else {}
    return {"project_id": id, "counts": counts, "entities": named, "context_shift": shifted, "message": message}


async def _read(workspace: Workspace | None, path: str) -> PortableProject:
    """Return the content of a JSON file or of a folder, whose name is that of its notes."""
    if workspace is None:
        raise ToolFailure("unavailable", "this session has no workspace to read the import from")
    entry = await workspace.stat(path)
    if entry is None:
        raise ToolFailure("not_found", f"there is no file or folder {path!r}")
    if entry.kind != "folder":
        try:
            return from_data(read_json(await workspace.read(path, limit=_BYTES), limit=_BYTES))
        except ValueError as error:
            raise invalid_argument("path", f"{path!r} is not JSON: {error}") from None
    places = [one.path for one in await workspace.walk(path) if one.path.endswith((".md", ".markdown"))]
    if not 0 < len(places) <= MAX_ENTRIES:
        message = f"{path!r} has {len(places):,} Markdown files; an import takes 1 to {MAX_ENTRIES:,}"
        raise invalid_argument("path", message)
    files: list[dict[str, str]] = []
    for place, found in zip(places, await workspace.read_many(places, limit=_BYTES), strict=True):
        if isinstance(found, ToolFailure):
            raise found
        try:
            files.append({"path": str(PurePosixPath(place).relative_to(entry.path)), "content": found.decode()})
        except UnicodeDecodeError as error:
            raise invalid_argument("path", f"{place!r} is not UTF-8: {error}") from None
    content = from_files(files, is_folder=True)
    if not content.is_export:
        content.fields["name"] = PurePosixPath(entry.path).name or workspace.root.name
    return content


def _create(rows: Rows, project_id: str, content: PortableProject) -> tuple[dict[str, int], dict[str, str]]:
    rows.create_project(project_id)
    insert_node(rows, KINDS["project"], project_id, content.fields, path=content.path, id=project_id)
    ends = {content.id: End("project", project_id)}
    counts: dict[str, int] = {}
    titles: dict[str, str] = {}
    for one in content.entities:
        if one.id in ends:
            raise invalid_argument(f"{one.path}.id", f"{one.id!r} is the id of another entity")
        row = _insert(rows, project_id, one)
        ends[one.id] = End(one.kind.name, row["id"])
        titles[one.id] = label_of(one.kind, row)
        counts[one.kind.plural] = counts.get(one.kind.plural, 0) + 1
    for edge, path in content.edges:
        src, dst = (_end(ends, edge.get(name), f"{path}.{name}") for name in ("src_id", "dst_id"))
        ends_of = canonical(src, str(edge.get("rel") or ""), dst, path)
        link(rows, project_id, ends_of, _props(edge.get("props"), f"{path}.props"), path=path)
    for one in content.entities:  # a milestone whose goal was deleted has no parent in an export either
        if "project" in PARENTS.get(one.kind.name, ()) and not parent_edges(rows, ends[one.id].id):
            attach(rows, project_id, ends[one.id], (), path=one.path)
    _save_tree(rows, project_id, content.entities, {id: end.id for id, end in ends.items()}, titles)
    counts["edges"] = len(project_edges(rows, project_id))
    publish(rows, "x.graph.import", project_id, "project", project_id, counts=counts)
    return counts, {id: end.id for id, end in ends.items() if id != content.id}


def _insert(rows: Rows, project_id: str, one: PortableEntity) -> Row:
    kept = {name: one.fields[name] for name in RESTORED if name in one.kind.kept and one.fields.get(name)}
    fields = {name: value for name, value in one.fields.items() if name not in kept}
    row = insert_node(rows, one.kind, project_id, fields, path=one.path)
    if kept and row["completed_at"]:  # it names the completion that the export knows, not this import
        try:
            datetime.fromisoformat(kept["completed_at"])
        except (TypeError, ValueError):
            message = "it is not an ISO 8601 date or time (example: 2026-11-30T09:00:00Z)"
            raise invalid_argument(f"{one.path}.completed_at", message, keyword="format") from None
        row = rows.update(one.kind.plural, row["id"], kept)
    return row


def _end(ends: Mapping[str, End], id: Any, path: str) -> End:
    found = ends.get(str(id))
    if found is None:
        raise invalid_argument(path, f"no entity of this import has the id {str(id)[:100]!r}")
    return found


def _props(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_argument(path, "props are an object", keyword="type")
    return cast("dict[str, Any]", value)


def _save_tree(
    rows: Rows, project_id: str, entities: Sequence[PortableEntity], ids: Mapping[str, str], titles: Mapping[str, str]
) -> None:
    """Write the document tree at once."""
    documents = [one for one in entities if one.kind.name == "document" and one.is_linked]
    known = {one.id for one in documents}
    below: dict[str | None, list[PortableEntity]] = {}
    for one in documents:
        if one.parent is not None and one.parent not in known:
            raise invalid_argument(f"{one.path}.parent", f"document {one.parent!r} is not in the tree of this import")
        below.setdefault(one.parent, []).append(one)

    def nodes(parent: str | None, depth: int) -> list[Node]:
        found = sorted(below.get(parent, ()), key=lambda one: one.order)
        if found and depth > MAX_DEPTH:
            raise invalid_argument(
                f"{found[0].path}.parent", f"the tree is at most {MAX_DEPTH} levels deep", keyword="maxDepth"
            )
        if len(found) > MAX_CHILDREN:
            message = f"a place in the tree holds {MAX_CHILDREN:,} documents at most"
            raise invalid_argument(f"{found[-1].path}.parent", message, keyword="maxItems")
        return [
            Node(id=ids[one.id], title=titles[one.id], order=order, children=nodes(one.id, depth + 1))
            for order, one in enumerate(found)
        ]

    root = nodes(None, 1)
    reached = sum(1 for _ in walk(root))
    if reached < len(documents):
        inside = {node["id"] for node in walk(root)}
        lost = next(one for one in documents if ids[one.id] not in inside)
        raise invalid_argument(f"{lost.path}.parent", f"document {lost.id!r} is below itself")
    if root:
        rows.update("projects", project_id, {"doc_structure": {"version": 1, "root": root}})
