"""`toolcrib work`: projects as a list, a tree with its calendar, a picture or files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

import typer

from toolcrib.plugin import CommandHost, ToolCaller, ToolFailure, UsageError, nearest

from .model import KINDS

Tree = list[tuple[int, Mapping[str, Any]]]
"""Entities in the order of the tree, each with its depth; an entity with two parents is below both."""

_CATEGORIES: Final = ("onto", "work", "cal")
_FORMATS: Final = ("svg", "mermaid", "json", "markdown")
DAYS: Final = 14
"""Of the calendar that is shown."""
_PAGE: Final = 50
"""Projects of one list."""
_NAMED: Final = 3
"""Projects that an error names."""
_WHOLE: Final = 100_000
"""Entities of a graph that is shown or written whole."""
_DEEPEST: Final = 20
_NOT_TREE: Final = ("document", "event")
"""Kinds that the tree of a project's work leaves out: documents have a tree of their own, events a calendar."""
_COLOURS: Final = {
    "project": "#d9d9d9",
    "goal": "#c6e2b5",
    "milestone": "#ffe08a",
    "plan": "#b9d4f1",
    "task": "#ffffff",
    "risk": "#f4b6ae",
    "requirement": "#dcc8ec",
}
_ROW, _STEP, _WIDE, _BOX = 34, 28, 420, 24
"""Sizes of a picture, in pixels: the height of a line, the shift of a level, the width and height of a box."""


def work(
    context: typer.Context,
    project: Annotated[
        str, typer.Argument(help="Id or name of a project, with --import a new name; else all are listed.")
    ] = "",
    format: Annotated[
        Literal["svg", "mermaid", "json", "markdown"] | None,
        typer.Option("--format", help="Write a picture, a diagram, or an export of the project."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File, or folder for markdown.")] = None,
    source: Annotated[
        Path | None, typer.Option("--import", help="Make a project of a JSON export, GitHub issues or a folder.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --import: say yes to what would be asked.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: Annotated[
        list[Path] | None, typer.Option("--config", "-c", metavar="FILE", help="Instead of your own; repeatable.")
    ] = None,
) -> None:
    """List your projects; print one as a tree, with its calendar.

    With --format a project is written to a file: as svg or mermaid, or exported as json or a folder of markdown.
    """
    host: CommandHost = context.obj
    if source is not None:
        if format or output:
            raise UsageError("--import makes a project: it takes no --format and no --output")
        place = (host.folder / source).resolve()
        if not place.exists():  # before anything is asked
            raise UsageError(f"there is no file or folder {source}")
        given = {"path": str(place), **({"name": project} if project else {})}

        async def imported(tools: ToolCaller) -> tuple[dict[str, Any], int]:
            made = await tools.call("x.graph.import", given)
            name = made["context_shift"]["entity_name"]
            return made, sum(one["name"] == name for one in await _projects(tools))

        folder = place if place.is_dir() else place.parent
        made, same = host.run(imported, categories=_CATEGORIES, config=config, yes=yes, workspace=folder)
        again = f"; {same} projects have this name now: an import makes a new one" if same > 1 else ""
        host.json(made) if as_json else host.out(f"{made['message']} {made['project_id']}{again}")
    elif not project:
        if format or output:
            raise UsageError("--format and --output are for one project: name it")
        shown = host.run(list_projects, categories=_CATEGORIES, config=config)
        host.json(shown) if as_json else _list(host, shown)
    elif format:
        target = host.run(lambda tools: _exported(tools, project, format), categories=_CATEGORIES, config=config)
        place = _write(*target, host.folder, output, format)
        host.json({"written": str(place), "format": format}) if as_json else host.out(f"Wrote {place}")
    else:
        if output:
            raise UsageError("--output is for --format")
        shown = host.run(lambda tools: _whole(tools, project), categories=_CATEGORIES, config=config)
        host.json(shown) if as_json else _print(host, shown)


async def list_projects(tools: ToolCaller) -> dict[str, Any]:
    """Return all projects, how many there are, and the calendar of the next days."""
    found = await _projects(tools)
    return {"projects": found, "total": len(found), "calendar": await _calendar(tools, None)}


async def _projects(tools: ToolCaller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = await tools.call("onto.project.list", {"limit": _PAGE, "offset": len(found)})
        found += page["projects"]
        if not page["projects"] or len(found) >= page["total"]:
            return found


async def _whole(tools: ToolCaller, wanted: str) -> dict[str, Any]:
    return await read_project(tools, await _find(tools, wanted))


async def read_project(tools: ToolCaller, id: str) -> dict[str, Any]:
    """Return the whole graph of a project, with its calendar of the next days."""
    found = await tools.call("onto.project.graph.get", {"project_id": id, "limit": _WHOLE})
    return {**found["graph"], "calendar": await _calendar(tools, id)}


async def _find(tools: ToolCaller, wanted: str) -> str:
    """Return the id of a project by its id, the beginning of it, or its name. Raises `UsageError`."""
    listed = await _projects(tools)
    named = [one["id"] for one in listed if one["name"].casefold() == wanted.casefold()]
    found = named or [one["id"] for one in listed if one["id"].startswith(wanted)]
    if len(found) > 1:
        raise UsageError(f"{len(found)} projects are called {wanted!r}: give an id ({', '.join(found)})")
    if not found:
        names = [one["name"] for one in listed]
        there = _nearest(wanted, names) if names else "you have none yet"
        raise ToolFailure("not_found", f"there is no project {wanted!r}; {there}")
    return found[0]


def _nearest(wanted: str, names: Sequence[str]) -> str:
    """Return the names that are like the wanted one, or have a word like one of its words; else some that there are."""
    words = {word: name for name in names for word in (*name.casefold().split(), name.casefold())}
    near = [match for part in (wanted, *wanted.split()) for match in nearest(part.casefold(), words)]
    if near:
        return f"did you mean {', '.join(dict.fromkeys(words[one] for one in near[:_NAMED]))}?"
    return f"there are {', '.join(names[:_NAMED])}" + (" …" if len(names) > _NAMED else "")


async def _calendar(tools: ToolCaller, project_id: str | None) -> list[dict[str, Any]] | None:
    """Return the events of the next days; None where no calendar is installed.

    Their times are in the zone of the setting `tools.calendar.timezone`, else in that of this machine.
    """
    now = datetime.now(UTC)
    span = {"timeMin": now.isoformat(), "timeMax": (now + timedelta(days=DAYS)).isoformat()}
    scope = {"calendar_scope": "project", "project_id": project_id} if project_id else {}
    events: list[dict[str, Any]] = []
    while True:
        try:
            page = await tools.call("cal.event.list", {**span, **scope, "offset": len(events)})
        except ToolFailure as failure:
            if failure.code != "not_found":
                raise
            return None
        events += page["events"]
        if not page["events"] or len(events) >= page["total"]:
            break
    zone = ZoneInfo(page["timezone"]) if "timezone" in page else None
    times = ("start_at", "end_at")
    return [{**event, **{name: _in_zone(event[name], zone) for name in times}} for event in events]


def _in_zone(moment: str | None, zone: tzinfo | None) -> str | None:
    if moment is None or "T" not in moment:
        return moment
    return datetime.fromisoformat(moment).astimezone(zone).isoformat()


def tree_of(graph: Mapping[str, Any]) -> Tree:
    """Return the project, and below each entity what it contains; at the end what lost its only parent."""
    by_id: dict[str, dict[str, Any]] = {}
    for kind in KINDS.values():
        if kind.name not in _NOT_TREE:
            nodes = graph["nodes"].get(kind.plural, ())
            by_id |= {node["id"]: {**node, "kind": kind.name, "label": node[kind.label]} for node in nodes}
    project = graph["project"]
    by_id[project["id"]] = {"id": project["id"], "kind": "project", "label": project["name"], **_state(project)}
    below: dict[str, list[str]] = {}
    for edge in graph["edges"]:
        if edge["rel"] == f"has_{edge['dst_kind']}" and edge["dst_id"] in by_id:
            below.setdefault(edge["src_id"], []).append(edge["dst_id"])

    def walked(id: str, depth: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        yield depth, by_id[id]
        if depth < _DEEPEST:
            for child in sorted(below.get(id, ()), key=lambda one: tuple(KINDS).index(by_id[one]["kind"])):
                yield from walked(child, depth + 1)

    contained = {project["id"], *(child for children in below.values() for child in children)}
    alone = (line for id in by_id if id not in contained for line in walked(id, 1))
    return [*walked(project["id"], 0), *alone]


def _state(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"state_key": one["state_key"]} if one.get("state_key") else {}


def line_of(node: Mapping[str, Any]) -> str:
    """Return an entity in one line: its label, state and date."""
    due = node.get("due_at") or node.get("target_date")
    state = node.get("state_key") or node.get("impact")
    more = ", ".join(filter(None, (state, f"due {due[:10]}" if due else "")))
    text = _on_one_line(node["label"])
    return f"{text} ({more})" if more else text


def _on_one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def mermaid(tree: Tree, edges: Sequence[Mapping[str, Any]]) -> str:
    """Return a flowchart: containment as arrows, other relations between shown entities as dotted ones."""
    names: dict[str, str] = {}
    lines = ["flowchart TD"]
    for _, node in tree:
        if node["id"] not in names:
            names[node["id"]] = f"n{len(names)}"
            label = escape(f"{node['kind']}: {line_of(node)}").replace("\n", " ")
            lines.append(f'  {names[node["id"]]}["{label}"]')
    for edge in edges:
        if edge["src_id"] in names and edge["dst_id"] in names:
            is_part = edge["rel"] == f"has_{edge['dst_kind']}"
            arrow = "-->" if is_part else f"-. {edge['rel']} .->"
            lines.append(f"  {names[edge['src_id']]} {arrow} {names[edge['dst_id']]}")
    return "\n".join(lines) + "\n"


def svg(tree: Tree) -> str:
    """Return the tree as a picture."""
    width = _STEP * (max(depth for depth, _ in tree) + 1) + _WIDE
    size = f'width="{width}" height="{_ROW * len(tree) + _STEP}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">']
    above: dict[int, int] = {}
    for number, (depth, node) in enumerate(tree):
        x, y = _STEP // 2 + _STEP * depth, _STEP // 2 + _ROW * number
        middle = y + _BOX // 2
        if depth:
            parts.append(f'<path d="M{x - _STEP // 2} {above[depth - 1]} V{middle} H{x}" fill="none" stroke="#888"/>')
        above[depth] = y + _BOX
        text = line_of(node)
        shown = escape(text if len(text) <= 55 else f"{text[:54]}…")
        colour = _COLOURS.get(node["kind"], "#eeeeee")
        parts.append(
            f'<g><title>{escape(node["kind"])}: {escape(text)}</title><rect x="{x}" y="{y}" width="{_WIDE}"'
            f' height="{_BOX}" rx="4" fill="{colour}" stroke="#555"/><text x="{x + 8}" y="{y + 17}">{shown}</text></g>'
        )
    return "\n".join((*parts, "</svg>")) + "\n"


async def _exported(tools: ToolCaller, wanted: str, format: str) -> tuple[str, Any]:
    """Return the name of a project, and its text, or its files by path."""
    id = await _find(tools, wanted)
    graph = (await tools.call("onto.project.graph.get", {"project_id": id, "limit": _WHOLE}))["graph"]
    name = graph["project"]["name"]
    if format in ("svg", "mermaid"):
        tree = tree_of(graph)
        return name, svg(tree) if format == "svg" else mermaid(tree, graph["edges"])
    exported = await tools.call("x.graph.export", {"project_id": id, "format": format})
    if format == "json":
        return name, json.dumps(exported["data"], ensure_ascii=False, indent=2) + "\n"
    return name, {file["path"]: file["content"] for file in exported["files"]}


def _write(name: str, content: Any, folder: Path, output: Path | None, format: str) -> Path:
    ending = {"svg": ".svg", "mermaid": ".mmd", "json": ".json", "markdown": ""}[format]
    stem = "".join(char if char.isalnum() or char in "-_" else "-" for char in name).strip("-")[:60] or "project"
    shown = output or Path(f"{stem}{ending}")
    place = folder / shown
    try:
        if isinstance(content, str):
            place.write_text(content, encoding="utf-8", newline="")
            return shown
        if place.exists() and any(place.iterdir()):
            raise UsageError(f"{shown} is not empty: name another folder with --output")
        for path, text in content.items():
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"{shown} cannot be written: {error}") from None
    return shown


def _list(host: CommandHost, shown: Mapping[str, Any]) -> None:
    rows = [
        (_on_one_line(one["name"]), one["state_key"], one["type_key"].removeprefix("project."), one["id"])
        for one in shown["projects"]
    ]
    if rows:
        host.table((("PROJECT", "<"), ("STATE", "<"), ("TYPE", "<"), ("ID", "<")), rows)
    else:
        host.out("No projects yet: a model makes one with create_onto_project, `toolcrib work --import` from files.")
    _events(host, shown["calendar"])


def _print(host: CommandHost, shown: Mapping[str, Any]) -> None:
    for depth, node in tree_of(shown):
        kind = "" if not depth else f"{node['kind']}: "
        host.out(f"{'  ' * depth}{kind}{line_of(node)}")
    documents = {one["id"]: one["title"] for one in shown["nodes"]["documents"]}
    if documents:
        host.out("documents:")
        _documents(host, shown["project"]["doc_structure"]["root"], documents, 1)
        for title in documents.values():
            host.out(f"  {_on_one_line(title)} (unlinked)")
    _events(host, shown["calendar"])


def _documents(host: CommandHost, nodes: Sequence[Mapping[str, Any]], titles: dict[str, str], depth: int) -> None:
    """Print a tree, and take its documents out of `titles`."""
    for node in nodes:
        host.out(f"{'  ' * depth}{_on_one_line(titles.pop(node['id'], node['title']))}")
        _documents(host, node["children"], titles, depth + 1)


def _events(host: CommandHost, events: Sequence[Mapping[str, Any]] | None) -> None:
    if events is None:
        return
    if not events:
        host.out(f"Calendar: nothing in the next {DAYS} days.")
        return
    host.out(f"Calendar, the next {DAYS} days:")
    for event in events:
        host.out(f"  {wall_time(event['start_at']):16}  {_on_one_line(event['title'])}")


def wall_time(moment: str) -> str:
    """Return a day as it is, a moment without seconds and offset."""
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M}" if "T" in moment else moment
