"""Document tree of a project: `{version, root: [{id, title, order, children}]}`, kept with its last states.

A folder is a document with children. A document outside of the tree is unlinked.

The tree is one JSON value in the row of the project, so that it is read and moved as a whole. Its states before are
rows of `trees`, in a ring as the versions of documents are (`nodes`). Functions that change it take a copy, and the row
of the project as this transaction has read it last, which `replace_tree` brings up to date.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

from toolcrib.plugin import Row, Rows, ToolFailure, fit_page, invalid_argument

from .model import MAX_CHILDREN, TREE_HISTORY

MAX_DEPTH: Final = 30
"""Levels of a tree."""


class Node(TypedDict):
    """One document in the tree."""

    id: str
    title: str
    order: int
    children: list[Node]


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield all nodes, parents first."""
    for node in nodes:
        yield node
        yield from walk(node["children"])


def path_to(nodes: Sequence[Node], id: str) -> list[Node]:
    """Return the nodes from the root to a document; empty for one that is not in the tree."""
    for node in nodes:
        if node["id"] == id:
            return [node]
        if below := path_to(node["children"], id):
            return [node, *below]
    return []


def page_of_tree(nodes: Sequence[Node], ids: Container[str]) -> list[Node]:
    """Return the part of a tree that has these documents, and those above them."""
    page: list[Node] = []
    for node in nodes:
        children = page_of_tree(node["children"], ids)
        if children or node["id"] in ids:
            page.append({**node, "children": children})
    return page


def part_of_tree(structure: Mapping[str, Any], id: str = "") -> tuple[dict[str, Any], str]:
    """Return what of a changed tree fits into one result, and the sentence that counts it, empty for the whole tree.

    The document `id` comes first, then its siblings; without one, the tree from the top down.
    """
    root: list[Node] = structure["root"]
    path = path_to(root, id)
    siblings = path[-2]["children"] if path[1:] else root
    nodes = {node["id"]: node for node in (*path, *siblings, *walk(root))}
    alone = (Node(id=id, title=node["title"], order=node["order"], children=[]) for id, node in nodes.items())
    page = {node["id"] for node in fit_page(alone)}
    rest = f" {len(page)} of {len(nodes)} documents of the tree; get_document_tree has the others."
    return {**structure, "root": page_of_tree(root, page)}, rest if len(page) < len(nodes) else ""


def add_to_tree(rows: Rows, project: Row, document: Row, parent_id: str | None, position: int | None) -> None:
    """Add a document below a parent, or at the root."""
    root = _copy(project["doc_structure"])
    node = Node(id=document["id"], title=document["title"], order=0, children=[])
    _place(root, node, parent_id, position, "parent_id")
    replace_tree(rows, project, root)


def move_in_tree(rows: Rows, project: Row, document: Row, parent_id: str | None, position: int) -> dict[str, Any]:
    """Move a document with all below it; one that is unlinked comes into the tree. Return the new structure."""
    root = _copy(project["doc_structure"])
    found = _take(root, document["id"])
    node = found or Node(id=document["id"], title=document["title"], order=0, children=[])
    if parent_id is not None and any(one["id"] == parent_id for one in walk([node])):
        raise invalid_argument("new_parent_id", "a document is not moved below itself")
    _place(root, node, parent_id, position, "new_parent_id")
    return replace_tree(rows, project, root)


def remove_from_tree(rows: Rows, project: Row, id: str) -> int:
    """Take a document out; the documents below it are unlinked. Return their number."""
    root = _copy(project["doc_structure"])
    taken = _take(root, id)
    if taken is None:
        return 0
    replace_tree(rows, project, root)
    return sum(1 for _ in walk(taken["children"]))


def rename_in_tree(rows: Rows, project: Row, id: str, title: str) -> None:
    """Write a document's new title into the tree."""
    root = _copy(project["doc_structure"])
    found = path_to(root, id)
    if found and found[-1]["title"] != title:
        found[-1]["title"] = title
        replace_tree(rows, project, root)


def earlier_tree(rows: Rows, project: Row, version: int) -> list[Node]:
    """Return an earlier state of the tree for the documents of today.

    What was below a document that is deleted by now takes its place. A document that came since is below its present
    parent. Raises `ToolFailure` for a version that is not kept, and where the tree would become too deep or too wide.
    """
    present = project["doc_structure"]
    if version == present["version"]:
        raise invalid_argument("version", f"version {version} is the present one of the tree")
    found = rows.find("trees", f"{project['id']}.{version % TREE_HISTORY}")
    if found is None or found["version"] != version:
        hint = "list_onto_tree_versions has those that are kept"
        raise ToolFailure("not_found", f"project {project['id']} has no version {version} of its tree", hint=hint)
    sql = "SELECT id, title FROM {documents} AS one WHERE project_id = ?"
    titles = {row["id"]: row["title"] for row in rows.select(sql, (project["id"],))}

    def kept(nodes: Sequence[Node]) -> list[Node]:
        result: list[Node] = []
        for node in nodes:
            below = kept(node["children"])
            if node["id"] in titles:
                result.append(Node(id=node["id"], title=titles[node["id"]], order=0, children=below))
            else:
                result += below
        return result

    root = kept(found["structure"])
    known = {node["id"] for node in walk(root)}

    def add_new(nodes: Sequence[Node], parent_id: str | None) -> None:
        for node in nodes:
            if node["id"] not in known:
                added = Node(id=node["id"], title=node["title"], order=0, children=[])
                _place(root, added, parent_id, None, "version")
            add_new(node["children"], node["id"])

    add_new(present["root"], None)
    _number(root)
    return root


def _copy(structure: Mapping[str, Any]) -> list[Node]:
    def copied(nodes: Sequence[Node]) -> list[Node]:
        return [
            Node(id=node["id"], title=node["title"], order=node["order"], children=copied(node["children"]))
            for node in nodes
        ]

    return copied(structure["root"])


def _take(nodes: list[Node], id: str) -> Node | None:
    """Remove a node from these or from below; return it with its children, None where it is not there."""
    for number, node in enumerate(nodes):
        if node["id"] == id:
            return nodes.pop(number)
        if found := _take(node["children"], id):
            return found
    return None


def _place(root: list[Node], node: Node, parent_id: str | None, position: int | None, path: str) -> None:
    siblings, depth = root, 0
    if parent_id is not None:
        found = path_to(root, parent_id)
        if not found:
            raise invalid_argument(path, f"document {parent_id} is not in the tree of this project")
        siblings, depth = found[-1]["children"], len(found)
    if len(siblings) >= MAX_CHILDREN:
        raise invalid_argument(
            path, f"a place in the tree holds {MAX_CHILDREN:,} documents at most", keyword="maxItems"
        )
    if depth + _depth(node) > MAX_DEPTH:
        raise invalid_argument(path, f"the tree is at most {MAX_DEPTH} levels deep", keyword="maxDepth")
    siblings.insert(len(siblings) if position is None else max(0, min(position, len(siblings))), node)


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, node["children"]), default=0)


def replace_tree(rows: Rows, project: Row, root: list[Node]) -> dict[str, Any]:
    """Store the structure as the next version, and the one before in the history."""
    before = project["doc_structure"]
    _number(root)
    id = f"{project['id']}.{before['version'] % TREE_HISTORY}"
    values = {"version": before["version"], "structure": before["root"]}
    oldest = rows.find("trees", id)
    if oldest is None:
        rows.insert("trees", {**values, "project_id": project["id"]}, id=id)
    else:
        rows.update("trees", id, values, before=oldest)
    after = {"version": before["version"] + 1, "root": root}
    project.update(rows.update("projects", project["id"], {"doc_structure": after}, before=project))
    return after


def _number(root: list[Node]) -> None:
    """Write the place of each document among its siblings."""
    for nodes in (root, *(node["children"] for node in walk(root))):
        for order, node in enumerate(nodes):
            node["order"] = order
