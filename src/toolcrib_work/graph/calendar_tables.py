"""Tables of the calendar in the schema of the graph: an event is an entity, and shares transactions with its edges.

`starts` and `ends` bound an event in seconds since 1970; without `ends` its occurrences must be expanded. Its
`sync_status` is local, synced, pending, deleting or conflict; `synced` are its fields as the server had them last (of
an event that is hidden until its server has deleted it, with the edges that it had),
`conflict` is the server's version that a local change contradicts. A calendar's `kind` is `project` or `user`, or
`account`: the place from which calendars of a user are discovered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.plugin import Table

PERSONAL: Final = "personal "
"""Beginning of the project id of a principal's own rows; the principal follows. Ids of projects hold no blank."""

NOT_DELETING: Final = "sync_status <> 'deleting'"
"""Condition of events that reads show; the others are kept until their server has deleted them, see `is_deleting`."""

EVENT_COLUMNS: Final[Mapping[str, str]] = {
    "uid": "TEXT NOT NULL",
    "all_day": "INTEGER NOT NULL",
    "exceptions": "JSON NOT NULL",
    "starts": "REAL NOT NULL",
    "ends": "REAL",
    "external_link": "TEXT",
    "calendar_id": "TEXT",
    "origin": "TEXT NOT NULL",
    "href": "TEXT",
    "etag": "TEXT",
    "ical": "TEXT",
    "synced": "JSON",
    "sync_status": "TEXT NOT NULL",
    "sync_error": "TEXT",
    "synced_at": "REAL",
    "conflict": "JSON",
}
"""Beside the fields of the kind `event`."""

EVENT_INDEXES: Final = (("starts",), ("calendar_id", "href"), ("uid",))

CALENDARS: Final = Table(
    name="calendars",
    noun="calendar",
    listed_by="list_calendar_events",
    columns={
        "kind": "TEXT NOT NULL",
        "principal": "TEXT NOT NULL",
        "name": "TEXT NOT NULL",
        "description": "TEXT",
        "color_id": "TEXT",
        "sync_enabled": "INTEGER NOT NULL",
        "account": "TEXT NOT NULL",
        "href": "TEXT NOT NULL",
        "is_shared": "INTEGER NOT NULL",
        "sync_token": "TEXT",
        "checked_at": "REAL",
        "synced_at": "REAL",
        "sync_error": "TEXT",
    },
    unique=(("project_id", "kind", "account", "href"),),
)

_ROW: Final = "id, project_id, revision, created_by, created_at, updated_at, deleted_at"
_EVENT: Final = (
    f"{_ROW}, uid, title, description, location, start_at, end_at, all_day, timezone, recurrence, exceptions, starts,"
    " ends, type_key, state_key, external_link, calendar_id, origin, href, etag, ical, synced, sync_status, sync_error,"
    " synced_at, conflict"
)
_CALENDAR: Final = (
    f"{_ROW}, kind, principal, name, description, color_id, sync_enabled, account, href, is_shared, sync_token,"
    " checked_at, synced_at, sync_error"
)

_OWNED: Final = (
    f"INSERT INTO {{edges}} ({_ROW}, src_kind, src_id, rel, dst_kind, dst_id, props)"
    " SELECT e.id, e.project_id, 1, e.created_by, e.created_at, e.created_at, NULL,"
    " CASE WHEN t.id IS NULL THEN 'project' ELSE 'task' END, COALESCE(t.id, p.id), 'has_event', 'event', e.id, '{}'"
    " FROM calendar_events AS e JOIN {projects} AS p ON p.id = e.project_id"
    " LEFT JOIN {tasks} AS t ON t.id = e.task_id AND t.project_id = e.project_id AND t.deleted_at IS NULL"
    f" WHERE e.deleted_at IS NULL AND e.{NOT_DELETING}"
)

FORMER_CALENDAR: Final = (
    f"INSERT INTO {{events}} ({_EVENT}) SELECT {_EVENT} FROM calendar_events",
    f"INSERT INTO {{calendars}} ({_CALENDAR}) SELECT {_CALENDAR} FROM calendar_calendars",
    _OWNED,
    "DROP TABLE calendar_events",
    "DROP TABLE calendar_calendars",
)
"""Migration of the tables of the schema `calendar`, in which an event named its task in a column and had no edges."""


def project_of(row: Mapping[str, Any]) -> str | None:
    """Return the project of a row; None for one that belongs to its principal alone."""
    project_id = str(row["project_id"])
    return None if project_id.startswith(PERSONAL) else project_id


def is_deleting(row: Mapping[str, Any]) -> bool:
    """Whether an entity was deleted here, and is kept until its calendar server has deleted it as well."""
    return row.get("sync_status") == "deleting"
