"""Projects of a user: goals, plans, tasks, documents and what else belongs to them, in one graph.

These tools are guests: they import `toolcrib.plugin` and arrive by the entry point group `toolcrib.tools`.
"""

TOOLS_ARE_STATIC = True
TOOL_MODULES = (
    "calendar.event_list",
    "calendar.events",
    "calendar.project_calendars",
    "graph.changes",
    "graph.documents",
    "graph.links",
    "graph.members",
    "graph.project_creation",
    "graph.project_export",
    "graph.project_import",
    "graph.project_reads",
    "graph.reads",
    "graph.reorganization",
)
