"""Operations that read the tree of a project's documents."""

from __future__ import annotations

from typing import Any

from toolcrib.plugin import Context, Rows, ToolFailure

from .model import KINDS
from .nodes import view
from .operations import ID, counted, note, operation_tool, storage_of
from .tree import path_to, walk

__all__ = ["get_document_path", "get_document_tree"]


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
        message = f"{counted(len(linked), 'document')} in the tree, {len(unlinked)} unlinked."
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
