"""Import formats of projects: an export as JSON or Markdown, notes in Markdown, issues of GitHub."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, cast

from toolcrib.plugin import UsageError, invalid_argument, parse_yaml

from .changes import heading_of
from .model import KINDS, KINDS_CREATED, Kind, containment
from .nodes import node_kind
from .portable_project import FENCE, FORMAT, MAX_ENTRIES, PortableEntity, PortableProject, body_field
from .tree import MAX_DEPTH

_CLOSED: Final = "closed"
"""State of an issue of GitHub."""
_ISSUE: Final = re.compile(r"https?://[^/]+/([^/]+/[^/]+)/issues/\d+")
_OF_FOLDER: Final = ("index", "readme", "_index")
"""Names of the file that is the page of its folder, as of `notes/plans.md` beside `notes/plans`."""


def from_data(data: Any) -> PortableProject:
    """Read JSON: an export, or issues of GitHub. Raises `ToolFailure` with the path of what is not valid."""
    if isinstance(data, Mapping) and cast("Mapping[str, Any]", data).get("format") == FORMAT:
        return _from_export(cast("Mapping[str, Any]", data))
    return _from_issues(data)


def _from_export(data: Mapping[str, Any]) -> PortableProject:
    """Read an export as JSON. Raises `ToolFailure` with the path of what is not valid."""
    if data.get("version") != 1:
        raise invalid_argument("data.version", f"{data.get('version')!r} is not a version of exports; this one reads 1")
    project = dict(_object(data.get("project"), "data.project"))
    id = str(project.pop("id", "project"))
    project.pop("kind", None)
    content = PortableProject(id=id, fields=project, path="data.project")
    for number, given in enumerate(_list(data.get("entities", []), "data.entities")):
        content.entities.append(_entity(_object(given, f"data.entities[{number}]"), f"data.entities[{number}]"))
    for number, given in enumerate(_list(data.get("edges", []), "data.edges")):
        content.edges.append((dict(_object(given, f"data.edges[{number}]")), f"data.edges[{number}]"))
    documents = {one.id: one for one in content.entities if one.kind.name == "document"}
    for one in documents.values():
        one.is_linked = False
    _read_tree(data.get("tree", []), "data.tree", documents, None)
    return content


def _read_tree(
    given: Any, path: str, documents: Mapping[str, PortableEntity], parent: str | None, depth: int = 1
) -> None:
    if depth > MAX_DEPTH:
        raise invalid_argument(path, f"the tree is at most {MAX_DEPTH} levels deep", keyword="maxDepth")
    for order, node in enumerate(_list(given, path)):
        about = _object(node, f"{path}[{order}]")
        found = documents.get(str(about.get("id")))
        if found is None or found.is_linked:
            reason = "is in the tree twice" if found else "is not a document of this import"
            raise invalid_argument(f"{path}[{order}].id", f"{str(about.get('id'))[:100]!r} {reason}")
        found.parent, found.order, found.is_linked = parent, order, True
        _read_tree(about.get("children", []), f"{path}[{order}].children", documents, found.id, depth + 1)


def _entity(given: Mapping[str, Any], path: str) -> PortableEntity:
    kind = node_kind(str(given.get("kind")), f"{path}.kind")
    if kind.name not in KINDS_CREATED or not given.get("id"):
        at = "id" if kind.name in KINDS_CREATED else "kind"
        message = f"an entity has an id and a kind: {', '.join(KINDS_CREATED)}"
        raise invalid_argument(f"{path}.{at}", message, keyword="required")
    fields = {name: value for name, value in given.items() if name not in ("id", "kind")}
    return PortableEntity(id=str(given["id"]), kind=kind, fields=fields, path=path)


def from_files(files: Sequence[Mapping[str, str]], *, is_folder: bool = False) -> PortableProject:
    """Read Markdown files: an export, or notes, whose folders become the tree of documents.

    Errors name the files of a folder by their paths, others by their place in the argument `files`.
    """
    content = PortableProject(id="project", fields={}, path="files")
    places: dict[str, PortableEntity] = {}
    links: list[tuple[str, Any, str]] = []
    for number, file in sorted(enumerate(files), key=lambda one: PurePosixPath(one[1]["path"]).parts):
        path, place = file["path"] if is_folder else f"files[{number}]", PurePosixPath(file["path"].lstrip("/"))
        if place.suffix.lower() not in (".md", ".markdown"):
            continue
        about, body = _front_matter(file["content"], f"{path}.content")
        if "kind" not in about and about.get("format") != FORMAT:
            one = _note_of(place, about, file["content"], path)
        elif about.pop("format", None) == FORMAT:
            content.id, content.path, content.is_export = str(about.get("id", "project")), path, True
            links.append((content.id, about.pop("links", []), path))
            content.fields = _with_body(KINDS["project"], about, body)
            continue
        else:
            one = _of_front_matter(about, body, path)
            links.append((one.id, about.pop("links", []), path))
            one.fields.pop("links", None)
        content.entities.append(one)
        places[str(place.with_suffix(""))] = one
    _arrange(content, places)
    for src, given, path in links:
        for number, about in enumerate(_list(given, f"{path}.links")):
            link_of = _object(about, f"{path}.links[{number}]")
            edge = {"src_id": src, "rel": link_of.get("rel"), "dst_id": link_of.get("to")}
            content.edges.append(({**edge, "props": link_of.get("props")}, f"{path}.links[{number}]"))
    content.fields.setdefault("name", "Imported documents")
    content.fields.setdefault("type_key", "project.personal.documents")
    return content


def _arrange(content: PortableProject, places: Mapping[str, PortableEntity]) -> None:
    """Give notes, files without front matter of an export, the place in the tree that they have in the folders."""
    notes = {PurePosixPath(stem): one for stem, one in places.items() if one.order < 0}
    pages = {PurePosixPath(stem): one for stem, one in places.items() if one.kind.name == "document"}
    for stem, one in notes.items():
        if stem.name.lower() in _OF_FOLDER:
            pages.setdefault(stem.parent, one)
    top = [PurePosixPath(), PurePosixPath("documents")] if content.is_export else [PurePosixPath()]

    def page_of(folder: PurePosixPath, path: str) -> str | None:
        """Return the document of a folder, which is made where no file is that."""
        if folder in top:
            return None
        if folder not in pages:
            title = _title_of(folder.name)
            pages[folder] = PortableEntity(
                id=f"folder {folder}", kind=KINDS["document"], fields={"title": title}, path=path, order=MAX_ENTRIES
            )
            pages[folder].parent = page_of(folder.parent, path)
            content.entities.append(pages[folder])
        return pages[folder].id

    for stem, one in notes.items():
        is_page = pages.get(stem.parent) is one
        one.parent, one.order = page_of(stem.parent.parent if is_page else stem.parent, one.path), MAX_ENTRIES


def _front_matter(text: str, path: str) -> tuple[dict[str, Any], str]:
    """Return the front matter of a file and the text below it; nothing and the whole text for a file without."""
    head, fence, body = text.removeprefix(FENCE).partition(f"\n{FENCE}")
    if not text.startswith(FENCE) or not fence:
        return {}, text
    try:  # JSON as it was exported: YAML cannot hold every character
        lines = [line.partition(": ") for line in head.split("\n")]
        given: Any = {name: json.loads(value) for name, _, value in lines}
    except (ValueError, RecursionError):
        try:
            given = parse_yaml(head).plain()
        except UsageError as error:
            if not any(line.startswith(("kind:", "format:")) for line in head.split("\n")):  # two lines of a note
                return {}, text
            raise invalid_argument(path, f"the front matter is not YAML: {error}") from None
    return (cast("dict[str, Any]", given), body) if isinstance(given, dict) else ({}, text)


def _with_body(kind: Kind, about: Mapping[str, Any], body: str) -> dict[str, Any]:
    fields = {name: value for name, value in about.items() if name not in ("id", "kind", "version")}
    name = body_field(kind)
    return {**fields, name: body} if name and body else fields


def _of_front_matter(about: Mapping[str, Any], body: str, path: str) -> PortableEntity:
    one = _entity(about, path)
    one.fields = _with_body(one.kind, one.fields, body)
    parent, order = one.fields.pop("parent", None), one.fields.pop("order", None)
    one.parent = None if parent is None else str(parent)
    one.is_linked = isinstance(order, int)
    one.order = order if isinstance(order, int) else 0
    return one


def _title_of(name: str) -> str:
    return name.replace("-", " ").replace("_", " ")


def _note_of(place: PurePosixPath, about: Mapping[str, Any], text: str, path: str) -> PortableEntity:
    stem = place.parent.name if place.stem.lower() in _OF_FOLDER and place.parent.name else place.stem
    title = str(about.get("title") or "").strip() or heading_of(text) or _title_of(stem)
    fields = {"title": title, "content": text}
    return PortableEntity(id=f"file {place}", kind=KINDS["document"], fields=fields, path=path, order=-1)


def _from_issues(data: Any) -> PortableProject:
    """Return a project of issues; pull requests of the REST API are left out."""
    given = cast("Mapping[str, Any]", data).get("issues") if isinstance(data, Mapping) else data
    if not isinstance(given, list):
        message = f"it is neither an export ({FORMAT}) nor a list of issues"
        raise invalid_argument(
            "data",
            message,
            keyword="type",
            hint="gh issue list --state all --limit 10000 --json number,title,body,state,closedAt,labels,milestone,url",
        )
    content = PortableProject(
        id="project", fields={"name": "GitHub issues", "type_key": "project.technical.issues"}, path=""
    )
    milestones: dict[str, str] = {}
    for number, issue in enumerate(cast("list[Any]", given)):
        path = f"data[{number}]"
        about = _object(issue, path)
        if "pull_request" in about:
            continue
        one = _task_of(about, path)
        content.entities.append(one)
        if repository := _ISSUE.match(str(one.fields["props"]["github"].get("url"))):
            content.fields["name"] = f"Issues of {repository[1]}"
        if milestone := about.get("milestone"):
            milestone = _object(milestone, f"{path}.milestone")
            title = str(milestone.get("title") or "")
            if title not in milestones:
                milestones[title] = f"milestone {title}"
                fields = _milestone_of(milestone)
                kind = KINDS["milestone"]
                content.entities.append(
                    PortableEntity(id=milestones[title], kind=kind, fields=fields, path=f"{path}.milestone")
                )
            edge = {"src_id": milestones[title], "rel": containment("task"), "dst_id": one.id}
            content.edges.append((edge, path))
    if milestones:
        goal = PortableEntity(id="goal", kind=KINDS["goal"], fields={"name": "Milestones on GitHub"}, path="data")
        content.entities.append(goal)
        rel = containment("milestone")
        content.edges += [({"src_id": goal.id, "rel": rel, "dst_id": id}, "data") for id in milestones.values()]
    return content


def _task_of(issue: Mapping[str, Any], path: str) -> PortableEntity:
    number = issue.get("number")
    if not isinstance(number, int):
        raise invalid_argument(f"{path}.number", "an issue has a number", keyword="required")
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
    return PortableEntity(id=f"issue {number}", kind=KINDS["task"], fields=fields, path=path)


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
        raise invalid_argument(path, "it is not an object", keyword="type")
    return cast("Mapping[str, Any]", value)


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise invalid_argument(path, "it is not a list", keyword="type")
    found = cast("list[Any]", value)
    if len(found) > MAX_ENTRIES:
        raise invalid_argument(path, f"it has more than {MAX_ENTRIES:,} entries", keyword="maxItems")
    return found
