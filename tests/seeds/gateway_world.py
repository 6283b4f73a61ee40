"""The world behind gateway.yaml: pages and events in memory, one world a session.

Every function is a tool of the catalog. What it does lasts: an event that was created is in the list afterwards.
"""

from __future__ import annotations

import itertools
from typing import Any

from toolcrib.plugin import ToolFailure
from toolcrib.sources.yaml.run_code import ToolContext

_PAGES = {
    "https://example.com/herons": "Herons stand still for a long time.",
    "https://example.org/bridges": "A bridge carries what crosses it.",
}

Row = dict[str, Any]


class World:
    """Events and calendars. Lives as long as its session is used by a test."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.events: dict[str, Row] = {}
        self.calendars: dict[str, Row] = {}

    def number(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"


_WORLDS: dict[str, World] = {}


def world_of(context: ToolContext) -> World:
    """Return the world of a session."""
    return _WORLDS.setdefault(context.session_id, World())


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
    return {"calendar": world_of(context).calendars.get(project_id)}


def set_project_calendar(context: ToolContext, project_id: str, action: str, **fields: Any) -> Row:
    world = world_of(context)
    if action == "update" and project_id not in world.calendars:
        raise ToolFailure("conflict", f"{project_id} has no calendar yet", hint="create it first")
    calendar = world.calendars.setdefault(project_id, {"project_id": project_id})
    calendar.update(fields)
    return {"calendar": dict(calendar), "action": action}
