"""The calendar of a user and of projects: operations `cal.*`.

    read      accounts that were not tried for a minute: sync ──> own tables ──> result
    change    own tables, "pending" ──> result ··> sync of its calendar; a failure is a warning of the result

Every operation works on the own tables, with or without a calendar server; `sync` keeps both in step.
"""

from .event_list import list_calendar_events
from .events import (
    create_calendar_event,
    delete_calendar_event,
    get_calendar_event_details,
    update_calendar_event,
)
from .project_calendars import get_project_calendar, set_project_calendar

__all__ = [
    "create_calendar_event",
    "delete_calendar_event",
    "get_calendar_event_details",
    "get_project_calendar",
    "list_calendar_events",
    "set_project_calendar",
    "update_calendar_event",
]
