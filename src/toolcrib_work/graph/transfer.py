"""Projects as files: export and import as JSON or as a folder of Markdown files, and import of GitHub issues.

JSON is `{"format": "toolcrib.project", "version": 1, "project", "entities", "edges", "tree"}`, with the ids of the
exported project. In a folder, an entity is a file with its fields as front matter (`name: JSON`) and its longest text
below; a Markdown file without front matter becomes a document. An import makes a new project: whole, or nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final, Literal, cast

from msgspec import Struct, field

from toolcrib.plugin import Context, Row, Rows, UsageError, parse_yaml

from .changes import heading_of
from .edges import End, attach, canonical, link, parent_edges, project_edges
from .model import KINDS, MAX_CHILDREN, Kind, containment
from .nodes import insert_node, invalid, label_of, new_id, node_kind, publish
from .operations import ID, note, operation_tool, shift, storage_of
from .tree import MAX_DEPTH, Node, walk

__all__ = ["export_onto_project", "import_onto_project"]

_FORMAT: Final = "toolcrib.project"
_FENCE: Final = "---\n"
_SLUG: Final = re.compile(r"[^a-z0-9]+")
_MOST: Final = 20_000
"""Entities, edges and files of one import."""
_KEPT: Final = ("completed_at",)
"""Columns that an import restores and a caller does not write."""

_CLOSED: Final = "closed"


class _Entity(Struct, kw_only=True):
    """One entity to import; `path` is the place of its fields in the arguments."""

    id: str
    kind: Kind
    fields: dict[str, Any]
    path: str
    parent: str | None = None
    """Of a document: the one above it in the tree."""
    order: int = 0
    is_linked: bool = True
    """Of a document: whether it is in the tree."""


class _Project(Struct, kw_only=True):
    """Content of an import. The project's own id among the edges is that of the exported one."""

    id: str
    fields: dict[str, Any]
    path: str
    entities: list[_Entity] = field(default_factory=list[_Entity])
    edges: list[tuple[dict[str, Any], str]] = field(default_factory=list[tuple[dict[str, Any], str]])


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
    for kind in KINDS.values():
        if kind.name != "project":
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
    ]
    return {
        "format": _FORMAT,
        "version": 1,
        "project": _plain(KINDS["project"], project),
        "entities": entities,
        "edges": edges,
        "tree": _brief_tree(project["doc_structure"]["root"]),
    }


def _plain(kind: Kind, row: Row) -> dict[str, Any]:
    names = [*kind.schema["properties"], *(name for name in _KEPT if name in kind.kept)]
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
    yield "project.md", _file(project, links.get(project["id"], []), {"format": _FORMAT, "version": 1})
    placed = dict(_placed(exported["tree"], by_id, "documents"))
    for one in exported["entities"]:
        id, kind = one["id"], KINDS[one["kind"]]
        path, more = placed.get(id, (f"{kind.plural}/{_slug(str(one[kind.label]))}-{id[:8]}.md", {}))
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
    body = _body_field(KINDS[one["kind"]])
    about = {**more, **{name: value for name, value in one.items() if name != body}}
    if links:
        about["links"] = list(links)
    lines = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in about.items())
    return f"{_FENCE}{lines}{_FENCE}{one.get(body) or ''}"


def _body_field(kind: Kind) -> str:
    return "content" if "content" in kind.fields else "description" if "description" in kind.fields else ""


def _slug(text: str) -> str:
    return _SLUG.sub("-", text.lower()).strip("-")[:60] or "untitled"


@operation_tool(
    "x.graph.import",
    "import_onto_project",
    "write",
    {
        "data": {
            "type": ["object", "array"],
            "description": "An export as JSON; or issues of GitHub, of its REST API or of `gh issue list --json …`",
        },
        "files": {
            "type": "array",
            "minItems": 1,
            "maxItems": _MOST,
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
        "name": {**KINDS["project"].fields["name"], "description": "Of the new project; else that of the import"},
        "type_key": KINDS["project"].schema["properties"]["type_key"],
    },
    category="work",
    examples=[
        {"data": [{"number": 1, "title": "Crash on start", "state": "OPEN"}], "name": "Issues"},
        {"files": [{"path": "notes/plan.md", "content": "# Plan"}], "name": "Notes"},
    ],
)
async def import_onto_project(
    ctx: Context,
    data: Any = None,
    files: Sequence[Mapping[str, str]] | None = None,
    name: str = "",
    type_key: str = "",
) -> dict[str, Any]:
    """Import a project from JSON, Markdown files or GitHub issues, as a new one.

    If one entity or edge is not valid, nothing is created. Issues become tasks, their milestones milestones of one
    goal; state, labels, assignees and numbers are kept. The new project becomes the session's current one.
    """
    if (data is None) == (files is None):
        raise invalid("data", "give either data or files", keyword="required")
    if files is not None:
        content = _from_files(files)
    elif isinstance(data, Mapping) and cast("Mapping[str, Any]", data).get("format") == _FORMAT:
        content = _from_json(cast("Mapping[str, Any]", data))
    else:
        content = _from_issues(data)
    content.fields |= {**({"name": name} if name else {}), **({"type_key": type_key} if type_key else {})}
    id = new_id()
    counts, ids = await storage_of(ctx).write(lambda rows: _create(rows, id, content))
    label = str(content.fields["name"])
    shifted = shift(ctx, id, label)
    message = f"Imported project {label!r}."
    return {"project_id": id, "counts": counts, "entities": ids, "context_shift": shifted, "message": message}


def _create(rows: Rows, project_id: str, content: _Project) -> tuple[dict[str, int], dict[str, str]]:
    rows.create_project(project_id)
    insert_node(rows, KINDS["project"], project_id, content.fields, path=content.path, id=project_id)
    ends = {content.id: End("project", project_id)}
    counts: dict[str, int] = {}
    titles: dict[str, str] = {}
    for one in content.entities:
        if one.id in ends:
            raise invalid(f"{one.path}.id", f"{one.id!r} is the id of another entity")
        row = _insert(rows, project_id, one)
        ends[one.id] = End(one.kind.name, row["id"])
        titles[one.id] = label_of(one.kind, row)
        counts[one.kind.plural] = counts.get(one.kind.plural, 0) + 1
    for edge, path in content.edges:
        src, dst = (_end(ends, edge.get(name), f"{path}.{name}") for name in ("src_id", "dst_id"))
        ends_of = canonical(src, str(edge.get("rel") or ""), dst, path)
        link(rows, project_id, ends_of, _props(edge.get("props"), f"{path}.props"), path=path)
    for one in content.entities:
        if not parent_edges(rows, ends[one.id].id):
            attach(rows, project_id, ends[one.id], (), path=one.path)
    _save_tree(rows, project_id, content.entities, {id: end.id for id, end in ends.items()}, titles)
    counts["edges"] = len(project_edges(rows, project_id))
    publish(rows, "x.graph.import", project_id, "project", project_id, counts=counts)
    return counts, {id: end.id for id, end in ends.items() if id != content.id}


def _insert(rows: Rows, project_id: str, one: _Entity) -> Row:
    kept = {name: one.fields[name] for name in _KEPT if name in one.kind.kept and one.fields.get(name)}
    fields = {name: value for name, value in one.fields.items() if name not in kept}
    row = insert_node(rows, one.kind, project_id, fields, path=one.path)
    if kept and row["completed_at"]:  # it names the completion that the export knows, not this import
        try:
            datetime.fromisoformat(kept["completed_at"])
        except (TypeError, ValueError):
            message = "it is not an ISO 8601 date or time (example: 2026-11-30T09:00:00Z)"
            raise invalid(f"{one.path}.completed_at", message, keyword="format") from None
        row = rows.update(one.kind.plural, row["id"], kept)
    return row


def _end(ends: Mapping[str, End], id: Any, path: str) -> End:
    found = ends.get(str(id))
    if found is None:
        raise invalid(path, f"no entity of this import has the id {str(id)[:100]!r}")
    return found


def _props(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(path, "props are an object", keyword="type")
    return cast("dict[str, Any]", value)


def _save_tree(
    rows: Rows, project_id: str, entities: Sequence[_Entity], ids: Mapping[str, str], titles: Mapping[str, str]
) -> None:
    """Write the document tree at once."""
    documents = [one for one in entities if one.kind.name == "document" and one.is_linked]
    known = {one.id for one in documents}
    below: dict[str | None, list[_Entity]] = {}
    for one in documents:
        if one.parent is not None and one.parent not in known:
            raise invalid(f"{one.path}.parent", f"document {one.parent!r} is not in the tree of this import")
        below.setdefault(one.parent, []).append(one)

    def nodes(parent: str | None, depth: int) -> list[Node]:
        found = sorted(below.get(parent, ()), key=lambda one: one.order)
        if found and depth > MAX_DEPTH:
            raise invalid(f"{found[0].path}.parent", f"the tree is at most {MAX_DEPTH} levels deep", keyword="maxDepth")
        if len(found) > MAX_CHILDREN:
            message = f"a place in the tree holds {MAX_CHILDREN:,} documents at most"
            raise invalid(f"{found[-1].path}.parent", message, keyword="maxItems")
        return [
            Node(id=ids[one.id], title=titles[one.id], order=order, children=nodes(one.id, depth + 1))
            for order, one in enumerate(found)
        ]

    root = nodes(None, 1)
    reached = sum(1 for _ in walk(root))
    if reached < len(documents):
        inside = {node["id"] for node in walk(root)}
        lost = next(one for one in documents if ids[one.id] not in inside)
        raise invalid(f"{lost.path}.parent", f"document {lost.id!r} is below itself")
    if root:
        rows.update("projects", project_id, {"doc_structure": {"version": 1, "root": root}})


def _from_json(data: Mapping[str, Any]) -> _Project:
    if data.get("version") != 1:
        raise invalid("data.version", f"{data.get('version')!r} is not a version of exports; this one reads 1")
    project = dict(_object(data.get("project"), "data.project"))
    id = str(project.pop("id", "project"))
    project.pop("kind", None)
    content = _Project(id=id, fields=project, path="data.project")
    for number, given in enumerate(_list(data.get("entities", []), "data.entities")):
        content.entities.append(_entity(_object(given, f"data.entities[{number}]"), f"data.entities[{number}]"))
    for number, given in enumerate(_list(data.get("edges", []), "data.edges")):
        content.edges.append((dict(_object(given, f"data.edges[{number}]")), f"data.edges[{number}]"))
    documents = {one.id: one for one in content.entities if one.kind.name == "document"}
    for one in documents.values():
        one.is_linked = False
    _read_tree(data.get("tree", []), "data.tree", documents, None)
    return content


def _read_tree(given: Any, path: str, documents: Mapping[str, _Entity], parent: str | None, depth: int = 1) -> None:
    if depth > MAX_DEPTH:
        raise invalid(path, f"the tree is at most {MAX_DEPTH} levels deep", keyword="maxDepth")
    for order, node in enumerate(_list(given, path)):
        about = _object(node, f"{path}[{order}]")
        found = documents.get(str(about.get("id")))
        if found is None or found.is_linked:
            reason = "is in the tree twice" if found else "is not a document of this import"
            raise invalid(f"{path}[{order}].id", f"{str(about.get('id'))[:100]!r} {reason}")
        found.parent, found.order, found.is_linked = parent, order, True
        _read_tree(about.get("children", []), f"{path}[{order}].children", documents, found.id, depth + 1)


def _entity(given: Mapping[str, Any], path: str) -> _Entity:
    kind = node_kind(str(given.get("kind")), f"{path}.kind")
    if kind.name == "project" or not given.get("id"):
        at = "kind" if kind.name == "project" else "id"
        raise invalid(f"{path}.{at}", "an entity has an id and a kind other than project", keyword="required")
    fields = {name: value for name, value in given.items() if name not in ("id", "kind")}
    return _Entity(id=str(given["id"]), kind=kind, fields=fields, path=path)


def _from_files(files: Sequence[Mapping[str, str]]) -> _Project:
    content = _Project(id="project", fields={}, path="files")
    places: dict[str, _Entity] = {}
    links: list[tuple[str, Any, str]] = []
    for number, file in sorted(enumerate(files), key=lambda one: PurePosixPath(one[1]["path"]).parts):
        path, place = f"files[{number}]", PurePosixPath(file["path"])
        if place.suffix.lower() not in (".md", ".markdown"):
            continue
        about, body = _front_matter(file["content"], f"{path}.content")
        if about is None:
            one = _note_of(place, body, path)
        elif about.pop("format", None) == _FORMAT:
            content.id, content.path = str(about.get("id", "project")), path
            links.append((content.id, about.pop("links", []), path))
            content.fields = _with_body(KINDS["project"], about, body)
            continue
        else:
            one = _of_front_matter(about, body, path)
            links.append((one.id, about.pop("links", []), path))
            one.fields.pop("links", None)
        content.entities.append(one)
        places[str(place.with_suffix(""))] = one
    for stem, one in places.items():
        above = places.get(str(PurePosixPath(stem).parent))
        if one.order < 0:  # a file without front matter: its place in the folder is its place in the tree
            one.parent, one.order = above.id if above and above.kind.name == "document" else None, _MOST
    for src, given, path in links:
        for number, about in enumerate(_list(given, f"{path}.links")):
            link_of = _object(about, f"{path}.links[{number}]")
            edge = {"src_id": src, "rel": link_of.get("rel"), "dst_id": link_of.get("to")}
            content.edges.append(({**edge, "props": link_of.get("props")}, f"{path}.links[{number}]"))
    content.fields.setdefault("name", "Imported documents")
    content.fields.setdefault("type_key", "project.personal.documents")
    return content


def _front_matter(text: str, path: str) -> tuple[dict[str, Any] | None, str]:
    """Return the front matter of an export and the text below it; None for a file without."""
    head, fence, body = text.removeprefix(_FENCE).partition(f"\n{_FENCE}")
    if not text.startswith(_FENCE) or not fence:
        return None, text
    try:  # JSON as it was exported: YAML cannot hold every character
        lines = [line.partition(": ") for line in head.split("\n")]
        given: Any = {name: json.loads(value) for name, _, value in lines}
    except ValueError:
        try:
            given = parse_yaml(head).plain()
        except UsageError as error:
            raise invalid(path, f"the front matter is not YAML: {error}") from None
    about = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return (about, body) if "kind" in about or about.get("format") == _FORMAT else (None, text)


def _with_body(kind: Kind, about: Mapping[str, Any], body: str) -> dict[str, Any]:
    fields = {name: value for name, value in about.items() if name not in ("id", "kind", "version")}
    name = _body_field(kind)
    return {**fields, name: body} if name and body else fields


def _of_front_matter(about: Mapping[str, Any], body: str, path: str) -> _Entity:
    one = _entity(about, path)
    one.fields = _with_body(one.kind, one.fields, body)
    one.parent, order = one.fields.pop("parent", None), one.fields.pop("order", None)
    one.is_linked = isinstance(order, int)
    one.order = order if isinstance(order, int) else 0
    return one


def _note_of(place: PurePosixPath, text: str, path: str) -> _Entity:
    title = heading_of(text) or place.stem.replace("-", " ").replace("_", " ")
    fields = {"title": title, "content": text}
    return _Entity(id=f"file {place}", kind=KINDS["document"], fields=fields, path=path, order=-1)


def _from_issues(data: Any) -> _Project:
    """Return a project of issues; pull requests of the REST API are left out."""
    given = cast("Mapping[str, Any]", data).get("issues") if isinstance(data, Mapping) else data
    if not isinstance(given, list):
        message = f"it is neither an export ({_FORMAT}) nor a list of issues"
        raise invalid("data", message, keyword="type", hint="gh issue list --state all --json number,title,body,state")
    content = _Project(id="project", fields={"name": "GitHub issues", "type_key": "project.technical.issues"}, path="")
    milestones: dict[str, str] = {}
    for number, issue in enumerate(cast("list[Any]", given)):
        path = f"data[{number}]"
        about = _object(issue, path)
        if "pull_request" in about:
            continue
        one = _task_of(about, path)
        content.entities.append(one)
        if milestone := about.get("milestone"):
            milestone = _object(milestone, f"{path}.milestone")
            title = str(milestone.get("title") or "")
            if title not in milestones:
                milestones[title] = f"milestone {title}"
                fields = _milestone_of(milestone)
                kind = KINDS["milestone"]
                content.entities.append(
                    _Entity(id=milestones[title], kind=kind, fields=fields, path=f"{path}.milestone")
                )
            edge = {"src_id": milestones[title], "rel": containment("task"), "dst_id": one.id}
            content.edges.append((edge, path))
    if milestones:
        goal = _Entity(id="goal", kind=KINDS["goal"], fields={"name": "Milestones on GitHub"}, path="data")
        content.entities.append(goal)
        rel = containment("milestone")
        content.edges += [({"src_id": goal.id, "rel": rel, "dst_id": id}, "data") for id in milestones.values()]
    return content


def _task_of(issue: Mapping[str, Any], path: str) -> _Entity:
    number = issue.get("number")
    if not isinstance(number, int):
        raise invalid(f"{path}.number", "an issue has a number", keyword="required")
    labels, people = (_names(issue.get(name), f"{path}.{name}") for name in ("labels", "assignees"))
    is_closed = str(issue.get("state") or "").lower() == _CLOSED
    closed_at = issue.get("closedAt") or issue.get("closed_at")
    about = {
        "number": number,
        "url": issue.get("html_url") or issue.get("url"),
        "labels": labels,
        "assignees": people,
        "created_at": issue.get("createdAt") or issue.get("created_at"),
    }
    fields: dict[str, Any] = {
        "title": issue.get("title"),
        "description": issue.get("body") or None,
        "state_key": "done" if is_closed else "todo",
        "props": {"github": {name: value for name, value in about.items() if value}},
    }
    if is_closed and closed_at:
        fields["completed_at"] = closed_at
    return _Entity(id=f"issue {number}", kind=KINDS["task"], fields=fields, path=path)


def _milestone_of(given: Mapping[str, Any]) -> dict[str, Any]:
    is_closed = str(given.get("state") or "").lower() == _CLOSED
    return {
        "title": given.get("title"),
        "description": given.get("description") or None,
        "due_at": given.get("dueOn") or given.get("due_on"),
        "state_key": "completed" if is_closed else "pending",
    }


def _names(given: Any, path: str) -> list[str]:
    found = _list(given or [], path)
    return [
        str(one) if isinstance(one, str) else str(_object(one, path).get("name") or _object(one, path).get("login"))
        for one in found
    ]


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid(path, "it is not an object", keyword="type")
    return cast("Mapping[str, Any]", value)


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise invalid(path, "it is not a list", keyword="type")
    found = cast("list[Any]", value)
    if len(found) > _MOST:
        raise invalid(path, f"it has more than {_MOST:,} entries", keyword="maxItems")
    return found
