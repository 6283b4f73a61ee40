"""Projects in the console: a list with the calendar, each project as a tree, and its documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolcrib.plugin import ConsoleView, ToolCaller, ViewFields, ViewLink, ViewPage, ViewTable, ViewText

from .command import DAYS, line_of, list_projects, read_project, tree_of, wall_time

_DOCUMENT: Final = "document-"
"""Begins the path of a document's page."""


async def _show(tools: ToolCaller, path: str) -> ViewPage:
    if path.startswith(_DOCUMENT):
        return await _document(tools, path.removeprefix(_DOCUMENT))
    return await _project(tools, path) if path else await _projects(tools)


async def _projects(tools: ToolCaller) -> ViewPage:
    listed = await list_projects(tools)
    rows = [
        (ViewLink(one["name"], one["id"]), one["state_key"], one["type_key"].removeprefix("project."))
        for one in listed["projects"]
    ]
    table = ViewTable(columns=("Project", "State", "Type"), rows=rows, empty="There are no projects yet.")
    return ViewPage(title="Projects", blocks=(table, *_events(listed["calendar"])))


async def _project(tools: ToolCaller, id: str) -> ViewPage:
    graph = await read_project(tools, id)
    lines = [f"{'  ' * depth}{node['kind']}: {line_of(node)}" for depth, node in tree_of(graph)[1:]]
    titles = {one["id"]: one["title"] for one in graph["nodes"]["documents"]}
    documents = [
        (ViewLink(f"{'– ' * depth}{titles[node['id']]}", f"{_DOCUMENT}{node['id']}"),)
        for depth, node in _walk(graph["project"]["doc_structure"]["root"], 0)
        if node["id"] in titles
    ]
    project = graph["project"]
    fields = {"State": project["state_key"], "Type": project["type_key"], "Description": project["description"] or ""}
    return ViewPage(
        title=project["name"],
        blocks=(
            ViewFields(fields=fields),
            ViewText(heading="Work", text="\n".join(lines) or "Nothing yet."),
            ViewTable(heading="Documents", columns=("Document",), rows=documents, empty="No documents."),
            *_events(graph["calendar"]),
        ),
    )


async def _document(tools: ToolCaller, id: str) -> ViewPage:
    document = (await tools.call("onto.document.get", {"document_id": id}))["document"]
    project = ViewLink("Back to the project", document["project_id"])
    fields: dict[str, str | ViewLink] = {"Project": project, "State": document["state_key"]}
    return ViewPage(title=document["title"], blocks=(ViewFields(fields=fields), ViewText(text=document["content"])))


def _walk(nodes: Sequence[Mapping[str, Any]], depth: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for node in nodes:
        yield depth, node
        yield from _walk(node["children"], depth + 1)


def _events(events: Sequence[Mapping[str, Any]] | None) -> tuple[ViewTable, ...]:
    if events is None:
        return ()
    rows = [(wall_time(event["start_at"]), event["title"]) for event in events]
    heading = f"Calendar, the next {DAYS} days"
    return (ViewTable(heading=heading, columns=("Time", "Event"), rows=rows, empty="Nothing is due."),)


VIEW: Final = ConsoleView(label="Projects", categories=("onto", "work", "cal"), tool="onto.project.list", show=_show)
