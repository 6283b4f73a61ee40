"""Operations on the documents of a project: their tree, and earlier versions of it and of a document."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure, fit_page, invalid_argument

from .model import KINDS, VERSION_HISTORY
from .nodes import date_of, publish, update_node, view
from .operations import ID, OFFSET, counted, note, operation_tool, part, storage_of
from .tree import Node, earlier_tree, page_of_tree, part_of_tree, path_to, rename_in_tree, replace_tree, walk

_VERSION: Final = {"type": "integer", "minimum": 0, "description": "Number of the version, as listed"}
_TEXTS: Final = ("title", "description", "content")


@operation_tool(
    "x.document.version.list",
    "list_onto_document_versions",
    "read",
    {"document_id": ID("document")},
    ["document_id"],
    category="work",
    examples=[{"document_id": "<document_id>"}],
)
async def list_onto_document_versions(ctx: Context, document_id: str) -> dict[str, Any]:
    """List the earlier versions of a document, newest first: the last 50 are kept."""

    def work(rows: Rows) -> tuple[Row, list[dict[str, Any]]]:
        document = rows.get("documents", document_id)
        sql = (
            "SELECT number, title, length(content) AS characters, updated_at FROM {versions} AS one"
            " WHERE document_id = ? ORDER BY number DESC"
        )
        return document, [
            {
                "version": row["number"],
                "title": row["title"],
                "characters": row["characters"] or 0,
                "replaced_at": date_of(row["updated_at"]),
            }
            for row in rows.select(sql, (document_id,))
        ]

    document, versions = await storage_of(ctx).read(work)
    note(ctx, "x.document.version.list", document["project_id"], kind="document", id=document_id)
    message = f"{counted(len(versions), 'earlier version')} of document {document['title']!r}."
    return {"current": document["version"], "versions": versions, "total": len(versions), "message": message}


@operation_tool(
    "x.document.version.get",
    "get_onto_document_version",
    "read",
    {"document_id": ID("document"), "version": _VERSION},
    ["document_id", "version"],
    category="work",
    examples=[{"document_id": "<document_id>", "version": 2}],
)
async def get_onto_document_version(ctx: Context, document_id: str, version: int) -> dict[str, Any]:
    """Get the title, description and content of an earlier version of a document."""

    def work(rows: Rows) -> tuple[Row, Row]:
        document = rows.get("documents", document_id)
        return document, _earlier(rows, document, version)

    document, found = await storage_of(ctx).read(work)
    note(ctx, "x.document.version.get", document["project_id"], kind="document", id=document_id)
    shown = {"version": version, **{name: found[name] for name in _TEXTS}, "replaced_at": date_of(found["updated_at"])}
    return {"document_id": document_id, "version": shown, "message": f"Version {version} of {document['title']!r}."}


@operation_tool(
    "x.document.version.restore",
    "restore_onto_document_version",
    "write",
    {"document_id": ID("document"), "version": _VERSION},
    ["document_id", "version"],
    category="work",
    examples=[{"document_id": "<document_id>", "version": 2}],
)
async def restore_onto_document_version(ctx: Context, document_id: str, version: int) -> dict[str, Any]:
    """Undo changes of a document: restore an earlier version of its texts; the present one is kept as a version."""
    kind = KINDS["document"]

    def work(rows: Rows) -> Row:
        found = _earlier(rows, rows.get("documents", document_id, "editor"), version)
        row = update_node(rows, kind, document_id, {name: found[name] for name in _TEXTS})
        rename_in_tree(rows, rows.get("projects", row["project_id"]), document_id, row["title"])
        publish(rows, "x.document.version.restore", row["project_id"], "document", document_id, version=version)
        return row

    row = await storage_of(ctx).write(work)
    message = f"Restored version {version} of document {row['title']!r} as version {row['version']}."
    return {"document": view(kind, row), "message": message}


@operation_tool(
    "x.document.tree.version.list",
    "list_onto_tree_versions",
    "read",
    {"project_id": ID("project")},
    ["project_id"],
    category="work",
    examples=[{"project_id": "<project_id>"}],
)
async def list_onto_tree_versions(ctx: Context, project_id: str) -> dict[str, Any]:
    """List the earlier states of the tree of a project's documents, newest first: the last 50 are kept."""

    def work(rows: Rows) -> tuple[int, list[dict[str, Any]]]:
        current = rows.get("projects", project_id)["doc_structure"]["version"]
        sql = "SELECT version, structure, updated_at FROM {trees} AS one WHERE project_id = ? ORDER BY version DESC"
        return current, [
            {
                "version": row["version"],
                "documents": sum(1 for _ in walk(row["structure"])),
                "replaced_at": date_of(row["updated_at"]),
            }
            for row in rows.select(sql, (project_id,))
        ]

    current, versions = await storage_of(ctx).read(work)
    note(ctx, "x.document.tree.version.list", project_id)
    message = f"{counted(len(versions), 'earlier state')} of the tree."
    return {"current": current, "versions": versions, "total": len(versions), "message": message}


@operation_tool(
    "x.document.tree.version.get",
    "get_onto_tree_version",
    "read",
    {"project_id": ID("project"), "version": _VERSION},
    ["project_id", "version"],
    category="work",
    examples=[{"project_id": "<project_id>", "version": 7}],
)
async def get_onto_tree_version(ctx: Context, project_id: str, version: int) -> dict[str, Any]:
    """Get the tree that restoring an earlier state would give."""

    def work(rows: Rows) -> list[Node]:
        return earlier_tree(rows, rows.get("projects", project_id), version)

    root = await storage_of(ctx).read(work)
    note(ctx, "x.document.tree.version.get", project_id)
    return {"structure": {"version": version, "root": root}, "message": f"Version {version} of the tree."}


@operation_tool(
    "x.document.tree.version.restore",
    "restore_onto_tree_version",
    "write",
    {"project_id": ID("project"), "version": _VERSION},
    ["project_id", "version"],
    category="work",
    examples=[{"project_id": "<project_id>", "version": 7}],
)
async def restore_onto_tree_version(ctx: Context, project_id: str, version: int) -> dict[str, Any]:
    """Arrange the documents of a project as in an earlier state of the tree.

    Documents that were deleted since stay deleted, and those that came since stay below their present parent.
    """

    def work(rows: Rows) -> dict[str, Any]:
        rows.require(project_id)
        project = rows.get("projects", project_id)
        structure = replace_tree(rows, project, earlier_tree(rows, project, version))
        publish(rows, "x.document.tree.version.restore", project_id, "project", project_id, version=version)
        shown, rest = part_of_tree(structure)
        message = f"Restored version {version} of the tree as version {structure['version']}.{rest}"
        return {"structure": shown, "message": message}

    return await storage_of(ctx).write(work)


def _earlier(rows: Rows, document: Row, version: int) -> Row:
    """Return an earlier version of a document. Raises `ToolFailure` for one that is not kept."""
    if version == document["version"]:
        raise invalid_argument("version", f"version {version} is the present one of document {document['id']}")
    found = rows.find("versions", f"{document['id']}.{version % VERSION_HISTORY}")
    if found is None or found["number"] != version:
        hint = "list_onto_document_versions has those that are kept"
        raise ToolFailure("not_found", f"document {document['id']} has no version {version}", hint=hint)
    return found


@operation_tool(
    "onto.document.tree.get",
    "get_document_tree",
    "read",
    {
        "project_id": ID("project"),
        "include_documents": {"type": "boolean", "default": False, "description": "Add the documents by id"},
        "include_content": {"type": "boolean", "default": False, "description": "With their content"},
        "offset": OFFSET,
    },
    ["project_id"],
    examples=[{"project_id": "<project_id>", "include_documents": True}],
)
async def get_document_tree(
    ctx: Context, project_id: str, include_documents: bool, include_content: bool, offset: int
) -> dict[str, Any]:
    """Get the tree of a project's documents, and those that are unlinked.

    A large tree comes in pages, from the top down: a page has what is above its documents, too.
    """
    kind = KINDS["document"]

    def work(rows: Rows) -> dict[str, Any]:
        structure = rows.get("projects", project_id)["doc_structure"]
        linked = {node["id"]: node for node in walk(structure["root"])}
        is_full = include_documents or include_content
        named = "*" if is_full else "id, title"
        sql = f"SELECT {named} FROM {{documents}} AS d WHERE project_id = ? ORDER BY created_at, id"
        documents = {row["id"]: row for row in rows.select(sql, (project_id,))}
        unlinked = {id: {"id": id, "title": row["title"]} for id, row in documents.items() if id not in linked}
        order = [*linked, *unlinked]

        def entry(id: str) -> dict[str, Any]:
            place = unlinked.get(id) or {**linked[id], "children": []}
            full = view(kind, documents[id]) if is_full else {}
            return {"place": place, "full": {k: v for k, v in full.items() if include_content or k != "content"}}

        page = {one["place"]["id"]: one for one in fit_page(entry(id) for id in order[offset:])}
        message = f"{counted(len(linked), 'document')} in the tree, {len(unlinked)} unlinked."
        if len(page) < len(order):
            message = f"{message} {part(len(page), offset, len(order), 'documents')}"
        return {
            "structure": {**structure, "root": page_of_tree(structure["root"], page)},
            "documents": {id: one["full"] for id, one in page.items() if is_full},
            "unlinked": [one["place"] for id, one in page.items() if id in unlinked],
            "message": message,
        }

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
