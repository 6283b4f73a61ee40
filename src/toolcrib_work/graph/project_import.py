"""Operation that imports a project, whole or not at all."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final, cast

from toolcrib.plugin import Context, Rows, ToolFailure, Workspace, invalid_argument, read_json

from .edges import End, attach, canonical, count_edges, link, parent_edges
from .import_formats import from_data, from_files
from .model import KINDS, MAX_CHILDREN, PARENTS
from .nodes import insert_node, new_id, publish
from .operations import operation_tool, shift, storage_of
from .portable_project import MAX_ENTRIES, RESTORED, PortableEntity, PortableProject
from .tree import MAX_DEPTH, Node, walk

_BYTES: Final = 100_000_000
"""Of a file that is imported."""
_SECONDS: Final = 600
"""For 20,000 entities, where others write as well: a call that ends before leaves nothing."""
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
    timeout=_SECONDS,
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
    ids = _ids(id, content)
    counts = await _build(ctx, ids, content)
    label = str(content.fields["name"])
    shifted = shift(ctx, id, label)
    message = f"Imported project {label!r}."
    named = {one.id: ids[one.id] for one in content.entities} if len(content.entities) <= _NAMED else {}
    return {"project_id": id, "counts": counts, "entities": named, "context_shift": shifted, "message": message}


async def _read(workspace: Workspace | None, path: str) -> PortableProject:
    """Return the content of a JSON file or of a folder, whose name is that of its notes."""
    if workspace is None:
        hint = "give data or files; or declare one: `workspace: .` in the config"
        raise invalid_argument("path", "this session has no workspace to read it from", hint=hint)
    entry = await workspace.stat(path)
    if entry is None:
        raise ToolFailure("not_found", f"there is no file or folder {path!r}")
    if entry.kind != "folder":
        try:
            found = await workspace.read(path, limit=_BYTES)
            return from_data(read_json(found.removeprefix(BOM_UTF8), limit=_BYTES))
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
            files.append(
                {"path": str(PurePosixPath(place).relative_to(entry.path)), "content": found.decode("utf-8-sig")}
            )
        except UnicodeDecodeError as error:
            raise invalid_argument("path", f"{place!r} is not UTF-8: {error}") from None
    content = from_files(files, is_folder=True)
    if not content.is_export:
        content.fields["name"] = PurePosixPath(entry.path).name or workspace.root.name
    return content


def _ids(project_id: str, content: PortableProject) -> dict[str, str]:
    """Return the new id of each entity, by the one that it has in the import."""
    ids = {content.id: project_id}
    for one in content.entities:
        if one.id in ids:
            raise invalid_argument(f"{one.path}.id", f"{one.id!r} is the id of another entity")
        ids[one.id] = new_id()
    return ids


async def _build(ctx: Context, ids: Mapping[str, str], content: PortableProject) -> dict[str, int]:
    """Create the project, and return the number of its entities by kind, and of its edges."""
    project_id = ids[content.id]
    ends = {one.id: End(one.kind.name, ids[one.id]) for one in content.entities}
    ends[content.id] = End("project", project_id)

    def begin(rows: Rows) -> None:
        insert_node(rows, KINDS["project"], project_id, content.fields, path=content.path, id=project_id)

    def connect(rows: Rows, edge: Mapping[str, Any], path: str) -> None:
        src, dst = (_end(ends, edge.get(name), f"{path}.{name}") for name in ("src_id", "dst_id"))
        ends_of = canonical(src, str(edge.get("rel") or ""), dst, path)
        link(rows, project_id, ends_of, _props(edge.get("props"), f"{path}.props"), path=path)

    def attach_orphan(rows: Rows, one: PortableEntity) -> None:
        if "project" in PARENTS.get(one.kind.name, ()) and not parent_edges(rows, ids[one.id]):
            attach(rows, project_id, ends[one.id], (), path=one.path)

    def finish(rows: Rows) -> dict[str, int]:
        _save_tree(rows, project_id, content.entities, ids)
        counts: dict[str, int] = dict(Counter(one.kind.plural for one in content.entities))
        counts["edges"] = count_edges(rows, project_id)
        publish(rows, "x.graph.import", project_id, "project", project_id, counts=counts)
        return counts

    parts = [
        begin,
        *(partial(_insert, project_id=project_id, one=one, id=ids[one.id]) for one in content.entities),
        *(partial(connect, edge=edge, path=path) for edge, path in content.edges),
        # a milestone whose goal was deleted has no parent in an export either
        *(partial(attach_orphan, one=one) for one in content.entities),
    ]
    return await storage_of(ctx).build(project_id, parts, finish, ctx.report)


def _insert(rows: Rows, project_id: str, one: PortableEntity, id: str) -> None:
    kept = {name: one.fields[name] for name in RESTORED if name in one.kind.kept and one.fields.get(name)}
    fields = {name: value for name, value in one.fields.items() if name not in kept}
    row = insert_node(rows, one.kind, project_id, fields, path=one.path, id=id)
    if kept and row["completed_at"]:  # it names the completion that the export knows, not this import
        try:
            datetime.fromisoformat(kept["completed_at"])
        except (TypeError, ValueError):
            message = "it is not an ISO 8601 date or time (example: 2026-11-30T09:00:00Z)"
            raise invalid_argument(f"{one.path}.completed_at", message, keyword="format") from None
        rows.update(one.kind.plural, id, kept)


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


def _save_tree(rows: Rows, project_id: str, entities: Sequence[PortableEntity], ids: Mapping[str, str]) -> None:
    """Write the document tree at once."""
    titles = dict(rows.select_values("SELECT id, title FROM {documents} AS one WHERE project_id = ?", (project_id,)))
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
            Node(id=ids[one.id], title=titles[ids[one.id]], order=order, children=nodes(one.id, depth + 1))
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
