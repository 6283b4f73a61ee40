"""The world behind gateway.yaml: projects and what belongs to them, in memory, one world a session.

Every function is a tool of the catalog. What it does lasts: a task that was created is in the list afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from toolcrib.plugin import ToolFailure
from toolcrib.sources.yaml.run_code import ToolContext

PROJECT = "prj-1"
"""A project that every world has from the start."""

_LABEL = {"project": "name", "goal": "name", "plan": "name", "requirement": "text"}
"""The field that names an entity, where it is not its title."""
_PLURAL = {
    "task": "tasks",
    "goal": "goals",
    "plan": "plans",
    "document": "documents",
    "milestone": "milestones",
    "risk": "risks",
    "requirement": "requirements",
    "project": "projects",
}
_FIELDS = {
    "ontology_project": {"name": "text", "type_key": "text", "state_key": "planning, active, done"},
    "ontology_task": {"title": "text", "state_key": "todo, in_progress, blocked, done", "priority": "1 to 5"},
    "ontology_goal": {"name": "text", "target_date": "date"},
    "ontology_document": {"title": "text", "content": "Markdown"},
}
_PAGES = {
    "https://example.com/herons": "Herons stand still for a long time.",
    "https://example.org/bridges": "A bridge carries what crosses it.",
}

Row = dict[str, Any]


class World:
    """Entities by id, edges, events. Lives as long as its session is used by a test."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.rows: dict[str, Row] = {}
        self.edges: dict[str, Row] = {}
        self.events: dict[str, Row] = {}
        self.calendars: dict[str, Row] = {}
        self.rows[PROJECT] = {
            "id": PROJECT,
            "kind": "project",
            "name": "Bridge",
            "type_key": "project.build",
            "state_key": "active",
        }
        for kind, label in (("milestone", "Foundation"), ("risk", "Flood"), ("requirement", "Carries 40 t")):
            self.add(kind, {_LABEL.get(kind, "title"): label, "project_id": PROJECT})

    def number(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"

    def add(self, kind: str, fields: Mapping[str, Any]) -> Row:
        if "project_id" in fields:
            self.get("project", fields["project_id"])
        row = {"id": self.number(kind), "kind": kind, **fields}
        self.rows[row["id"]] = row
        return row

    def get(self, kind: str, key: str) -> Row:
        row = self.rows.get(key)
        if row is None or row["kind"] != kind:
            raise ToolFailure(
                "not_found", f"there is no {kind} {key!r}", hint=f"list the {_PLURAL.get(kind, kind)} for their ids"
            )
        return row

    def list(self, kind: str, limit: int, /, **wanted: Any) -> Row:
        fields = {name: value for name, value in wanted.items() if value is not None}
        found = [row for row in self.rows.values() if row["kind"] == kind and _has(row, fields)]
        return {_PLURAL[kind]: found[:limit], "total": len(found)}

    def search(self, kinds: tuple[str, ...], words: str, limit: int, /, **wanted: Any) -> list[Row]:
        fields = {name: value for name, value in wanted.items() if value is not None}
        texts = ("title", "name", "description", "content", "text")
        found = [
            row
            for row in self.rows.values()
            if row["kind"] in kinds
            and _has(row, fields)
            and all(any(word in str(row.get(text) or "").lower() for text in texts) for word in words.lower().split())
        ]
        return found[:limit]

    def update(self, kind: str, key: str, fields: Mapping[str, Any]) -> Row:
        row = self.get(kind, key)
        how = fields.get("update_strategy", "replace")
        changes = {
            name: value for name, value in fields.items() if name not in ("update_strategy", "merge_instructions")
        }
        if not changes:
            raise ToolFailure("invalid_arguments", f"nothing to change in {key}", hint="name at least one field")
        for name, value in changes.items():
            adds = how == "append" and isinstance(row.get(name), str) and isinstance(value, str)
            row[name] = f"{row[name]}\n{value}" if adds else value
        return {kind: dict(row), "message": f"Updated {kind} {key}."}

    def delete(self, kind: str, key: str) -> Row:
        del self.rows[self.get(kind, key)["id"]]
        self.edges = {i: edge for i, edge in self.edges.items() if key not in (edge["src_id"], edge["dst_id"])}
        return {"deleted": key, "message": f"Deleted {kind} {key}."}

    def edges_of(self, key: str) -> list[Row]:
        return [edge for edge in self.edges.values() if key in (edge["src_id"], edge["dst_id"])]

    def children(self, project_id: str, parent: str | None) -> list[Row]:
        found = [
            row
            for row in self.rows.values()
            if row["kind"] == "document" and row.get("project_id") == project_id and row.get("parent_id") == parent
        ]
        return sorted(found, key=lambda row: row.get("position") or 0)


_WORLDS: dict[str, World] = {}


def world_of(context: ToolContext) -> World:
    """Return the world of a session."""
    return _WORLDS.setdefault(context.session_id, World())


def _has(row: Row, fields: Mapping[str, Any]) -> bool:
    return all(row.get(name) == value for name, value in fields.items())


def _lister(kind: str) -> Any:
    def run(context: ToolContext, limit: int, **wanted: Any) -> Row:
        return world_of(context).list(kind, limit, **wanted)

    return run


def _getter(kind: str) -> Any:
    def run(context: ToolContext, **given: str) -> Row:
        return {kind: dict(world_of(context).get(kind, given[f"{kind}_id"]))}

    return run


def _searcher(kind: str) -> Any:
    def run(context: ToolContext, search: str, limit: int, **wanted: Any) -> Row:
        found = world_of(context).search((kind,), search, limit, **wanted)
        return {_PLURAL[kind]: found, "total": len(found)}

    return run


def _creator(kind: str) -> Any:
    def run(context: ToolContext, **fields: Any) -> Row:
        row = world_of(context).add(kind, fields)
        return {kind: dict(row), "message": f"Created {kind} {row['id']}."}

    return run


def _updater(kind: str) -> Any:
    def run(context: ToolContext, **fields: Any) -> Row:
        return world_of(context).update(kind, fields.pop(f"{kind}_id"), fields)

    return run


def _deleter(kind: str) -> Any:
    def run(context: ToolContext, **given: str) -> Row:
        return world_of(context).delete(kind, given[f"{kind}_id"])

    return run


list_onto_tasks = _lister("task")
list_onto_goals = _lister("goal")
list_onto_documents = _lister("document")
list_onto_milestones = _lister("milestone")
list_onto_risks = _lister("risk")
list_onto_requirements = _lister("requirement")
list_onto_plans = _lister("plan")
list_onto_projects = _lister("project")
search_onto_tasks = _searcher("task")
search_onto_projects = _searcher("project")
search_onto_documents = _searcher("document")
get_onto_task_details = _getter("task")
get_onto_goal_details = _getter("goal")
get_onto_plan_details = _getter("plan")
get_onto_document_details = _getter("document")
get_onto_milestone_details = _getter("milestone")
get_onto_risk_details = _getter("risk")
get_onto_requirement_details = _getter("requirement")
create_onto_task = _creator("task")
create_onto_goal = _creator("goal")
create_onto_plan = _creator("plan")
create_onto_document = _creator("document")
update_onto_task = _updater("task")
update_onto_project = _updater("project")
update_onto_goal = _updater("goal")
update_onto_plan = _updater("plan")
update_onto_document = _updater("document")
update_onto_milestone = _updater("milestone")
update_onto_risk = _updater("risk")
update_onto_requirement = _updater("requirement")
delete_onto_task = _deleter("task")
delete_onto_document = _deleter("document")
delete_onto_goal = _deleter("goal")
delete_onto_plan = _deleter("plan")


def search_ontology(
    context: ToolContext, query: str, limit: int, project_id: str | None = None, types: list[str] | None = None
) -> Row:
    found = world_of(context).search(tuple(types or _PLURAL), query, limit, project_id=project_id)
    return {"results": found, "total": len(found)}


def get_onto_project_details(context: ToolContext, project_id: str) -> Row:
    world = world_of(context)
    inside = [row for row in world.rows.values() if row.get("project_id") == project_id]
    counts = {kind: sum(row["kind"] == kind for row in inside) for kind in _PLURAL if kind != "project"}
    return {"project": dict(world.get("project", project_id)), "counts": counts}


def get_onto_project_graph(context: ToolContext, project_id: str) -> Row:
    world = world_of(context)
    world.get("project", project_id)
    nodes = [row for row in world.rows.values() if row.get("project_id") == project_id]
    known = {row["id"] for row in nodes}
    edges = [edge for edge in world.edges.values() if edge["src_id"] in known or edge["dst_id"] in known]
    return {"nodes": nodes, "edges": edges}


def create_onto_project(
    context: ToolContext,
    project: Row,
    entities: list[Row],
    relationships: list[list[Row]],
    **more: Any,
) -> Row:
    world = world_of(context)
    made = world.add("project", project)
    ids: dict[str, str] = {}
    for entity in entities:
        fields = {key: value for key, value in entity.items() if key not in ("temp_id", "kind")}
        ids[entity["temp_id"]] = world.add(entity["kind"], {**fields, "project_id": made["id"]})["id"]
    for source, target in relationships:
        _link(world, source["kind"], ids[source["temp_id"]], target["kind"], ids[target["temp_id"]], "relates_to")
    if "context_document" in more:
        world.add("document", {**more["context_document"], "project_id": made["id"]})
    said = {"clarifications": more.get("clarifications", []), "meta": more.get("meta", {})}
    return {"project": made, "entities": ids, **said}


def list_task_documents(context: ToolContext, task_id: str) -> Row:
    world = world_of(context)
    world.get("task", task_id)
    ids = [edge["dst_id"] for edge in world.edges_of(task_id) if edge["rel"] == "has_document"]
    return {"documents": [world.rows[key] for key in ids]}


def create_task_document(
    context: ToolContext, task_id: str, document_id: str | None = None, title: str | None = None, **fields: Any
) -> Row:
    world = world_of(context)
    task = world.get("task", task_id)
    if document_id is None and title is None:
        raise ToolFailure("invalid_arguments", "a document_id or a title is needed")
    if document_id is None:
        document = world.add("document", {"title": title, "project_id": task["project_id"], **fields})
    else:
        document = world.get("document", document_id)
    return {"document": document, "edge": _link(world, "task", task_id, "document", document["id"], "has_document")}


def _link(world: World, src_kind: str, src_id: str, dst_kind: str, dst_id: str, rel: str, **more: Any) -> Row:
    world.get(src_kind, src_id)
    world.get(dst_kind, dst_id)
    edge = {"src_kind": src_kind, "src_id": src_id, "dst_kind": dst_kind, "dst_id": dst_id, "rel": rel, **more}
    edge = {"id": world.number("edge"), **edge}
    world.edges[edge["id"]] = edge
    return edge


def link_onto_entities(context: ToolContext, **ends: Any) -> Row:
    return {"edge": _link(world_of(context), **ends)}


def unlink_onto_edge(context: ToolContext, edge_id: str) -> Row:
    if world_of(context).edges.pop(edge_id, None) is None:
        raise ToolFailure("not_found", f"there is no edge {edge_id!r}")
    return {"unlinked": edge_id}


def get_entity_relationships(context: ToolContext, entity_id: str, direction: str) -> Row:
    edges = world_of(context).edges_of(entity_id)
    shown = {
        "outgoing": [edge for edge in edges if edge["src_id"] == entity_id],
        "incoming": [edge for edge in edges if edge["dst_id"] == entity_id],
        "both": edges,
    }
    return {"relationships": shown[direction]}


def get_linked_entities(context: ToolContext, entity_id: str, entity_kind: str, filter_kind: str) -> Row:
    world = world_of(context)
    world.get(entity_kind, entity_id)
    ids = [edge["dst_id"] if edge["src_id"] == entity_id else edge["src_id"] for edge in world.edges_of(entity_id)]
    linked = [world.rows[key] for key in ids if filter_kind in ("all", world.rows[key]["kind"])]
    return {"entities": linked}


def reorganize_onto_project_graph(
    context: ToolContext, project_id: str, nodes: list[Row], options: Row | None = None
) -> Row:
    world, plan = world_of(context), list[tuple[Row, Row]]()
    for node in nodes:
        world.get(node["kind"], node["id"])
        plan += [(node, connection) for connection in node.get("connections", ())]
    if not (options or {}).get("dry_run"):
        for node, connection in plan:
            _link(world, node["kind"], node["id"], connection["kind"], connection["id"], "relates_to")
    return {"project_id": project_id, "planned": len(plan), "applied": not (options or {}).get("dry_run")}


def get_document_tree(context: ToolContext, project_id: str, include_documents: bool, include_content: bool) -> Row:
    world = world_of(context)

    def branch(parent: str | None) -> list[Row]:
        shown: list[Row] = []
        for row in world.children(project_id, parent):
            node: Row = {"id": row["id"], "children": branch(row["id"])}
            if include_documents:
                node["document"] = {name: row[name] for name in row if include_content or name != "content"}
            shown.append(node)
        return shown

    return {"tree": branch(None)}


def move_document_in_tree(
    context: ToolContext, project_id: str, document_id: str, new_position: int, new_parent_id: str | None = None
) -> Row:
    world = world_of(context)
    document = world.get("document", document_id)
    siblings = [row for row in world.children(project_id, new_parent_id) if row is not document]
    document["parent_id"] = new_parent_id
    siblings.insert(new_position, document)
    for position, row in enumerate(siblings):
        row["position"] = position
    return {"document_id": document_id, "new_parent_id": new_parent_id, "new_position": siblings.index(document)}


def get_document_path(context: ToolContext, document_id: str, project_id: str | None = None) -> Row:
    world, path = world_of(context), list[str]()
    key: str | None = document_id
    while key is not None:
        row = world.get("document", key)
        path.insert(0, row["title"])
        key = row.get("parent_id")
    return {"path": path, "project_id": project_id}


def get_field_info(context: ToolContext, entity_type: str, field_name: str | None = None) -> Row:
    fields = _FIELDS[entity_type]
    return {"fields": fields if field_name is None else {field_name: fields.get(field_name)}}


def web_search(context: ToolContext, query: str, max_results: int, **how: Any) -> Row:
    wanted, unwanted = how.get("include_domains"), how.get("exclude_domains") or ()
    found = [
        {"url": url, "text": text}
        for url, text in _PAGES.items()
        if (not wanted or any(domain in url for domain in wanted)) and not any(domain in url for domain in unwanted)
    ]
    answer = {"answer": f"About {query}."} if how["include_answer"] else {}
    return {"results": found[:max_results], "search_depth": how["search_depth"], **answer}


def web_visit(context: ToolContext, url: str, max_chars: int, **how: Any) -> Row:
    if url not in _PAGES:
        raise ToolFailure("not_found", f"there is nothing at {url}")
    return {"url": url, "content": _PAGES[url][:max_chars], "mode": how["mode"], "format": how["output_format"]}


def get_buildos_overview(context: ToolContext) -> Row:
    return {"overview": "Projects, and everything that belongs to them."}


def get_buildos_usage_guide(context: ToolContext) -> Row:
    return {"guide": ["Create a project", "Add tasks", "Work"]}


def list_calendar_events(
    context: ToolContext, limit: int, offset: int, timeMin: str = "", timeMax: str = "~", **where: Any
) -> Row:
    events = world_of(context).events.values()
    of_project = where.get("project_id") if where["calendar_scope"] == "project" else None
    found = [
        event
        for event in sorted(events, key=lambda event: event["start_at"])
        if timeMin <= event["start_at"] < timeMax and of_project in (None, event.get("project_id"))
    ]
    return {"events": found[offset : offset + limit], "total": len(found)}


def create_calendar_event(context: ToolContext, **fields: Any) -> Row:
    world = world_of(context)
    event = {"id": world.number("event"), **fields}
    world.events[event["id"]] = event
    return {"event": event}


def _event(context: ToolContext, given: Row) -> Row:
    key = given.pop("onto_event_id", None) or given.pop("event_id", None)
    event = world_of(context).events.get(str(key))
    if event is None:
        raise ToolFailure("not_found", f"there is no event {key!r}", hint="give onto_event_id or event_id")
    return event


def get_calendar_event_details(context: ToolContext, **given: Any) -> Row:
    return {"event": dict(_event(context, given))}


def update_calendar_event(context: ToolContext, **given: Any) -> Row:
    event = _event(context, given)
    event.update(given)
    return {"event": dict(event)}


def delete_calendar_event(context: ToolContext, **given: Any) -> Row:
    event = _event(context, given)
    del world_of(context).events[event["id"]]
    return {"deleted": event["id"], "synced": given["sync_to_calendar"]}


def get_project_calendar(context: ToolContext, project_id: str) -> Row:
    world_of(context).get("project", project_id)
    return {"calendar": world_of(context).calendars.get(project_id)}


def set_project_calendar(context: ToolContext, project_id: str, action: str, **fields: Any) -> Row:
    world = world_of(context)
    world.get("project", project_id)
    if action == "update" and project_id not in world.calendars:
        raise ToolFailure("conflict", f"{project_id} has no calendar yet", hint="create it first")
    calendar = world.calendars.setdefault(project_id, {"project_id": project_id})
    calendar.update(fields)
    return {"calendar": dict(calendar), "action": action}
