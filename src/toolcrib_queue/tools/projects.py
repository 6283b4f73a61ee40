"""Tools for projects."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from toolcrib.plugin import Context, Row, Rows, ToolFailure

from ..events import publish_message, publish_of
from ..model import CLAIMED, SCHEMA
from ..operations import (
    NAME,
    OF_ANY_PROJECT,
    OF_PROJECT,
    OFFSET,
    TEXT,
    changes_of,
    home_of,
    id_of,
    named_id,
    queue_tool,
    read_page,
    storage_of,
    transaction_tool,
)

_WEIGHT: Final = {"type": "number", "minimum": 0, "maximum": 1000}
_AGENTS: Final = {"type": "integer", "minimum": 0, "maximum": 100}
_BRANCH: Final = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^\s-][^\s]*$"}
_SHORT: Final = {"type": ["string", "null"], "maxLength": 200}
_NO_CHANNELS: Final = (
    "channels are named targets of the setting tools.messaging.channels: they are neither created nor archived here"
)


@transaction_tool("x.project.list", "project", "read", {"offset": OFFSET})
def list_projects(rows: Rows, offset: int) -> dict[str, Any]:
    """List the projects of the caller, with the folder of the first workspace of each."""
    places = {
        row["project_id"]: row["workspace_path"]
        for row in rows.select("SELECT project_id, workspace_path FROM {workspaces} AS w ORDER BY created_at DESC, id")
    }
    sql = "SELECT * FROM {projects} AS p ORDER BY created_at, id"
    projects, more = read_page(rows, sql, (), lambda row: _line(row, places.get(row["id"])), limit=200, offset=offset)
    return {"projects": projects, **more}


def _line(project: Row, workspace: str | None) -> dict[str, Any]:
    names = ("id", "name", "status", "credit_weight", "max_concurrent_agents")
    line = {**{name: project[name] for name in names}, "workspace": workspace}
    channel = project["discord_channel_id"]
    return {**line, "discord_channel_id": channel} if channel else line


@transaction_tool(
    "x.project.create",
    "project",
    "write",
    {
        "name": NAME,
        "credit_weight": {**_WEIGHT, "default": 1.0},
        "max_concurrent_agents": {**_AGENTS, "default": 2},
        "repo_url": {"type": "string", "maxLength": 1000, "default": ""},
        "default_branch": {**_BRANCH, "default": "main"},
        "auto_create_channels": {"type": "boolean", "default": False},
    },
    ["name"],
    idempotent=False,
    examples=[{"name": "Shop", "repo_url": "https://example.com/shop.git"}],
)
def create_project(rows: Rows, name: str, auto_create_channels: bool, **given: Any) -> dict[str, Any]:
    """Create a project; its id is made of its name."""
    same = rows.select("SELECT id FROM {projects} AS p WHERE name = ?", (name.strip(),))
    if same:
        raise ToolFailure("conflict", f"there is a project {name.strip()!r} already: {same[0]['id']}")
    id = named_id(rows, name)
    values: dict[str, Any] = {
        "project_id": id,
        "name": name.strip(),
        "status": "ACTIVE",
        "credit_weight": given["credit_weight"],
        "max_concurrent_agents": given["max_concurrent_agents"],
        "total_tokens_used": 0,
        "repo_url": given["repo_url"],
        "repo_default_branch": given["default_branch"],
    }
    publish_of(rows, "project.created", "project", rows.insert("projects", values, id=id))
    made = {"created": id, "project_id": id, "name": name.strip(), "auto_create_channels": auto_create_channels}
    return {**made, "warning": _NO_CHANNELS} if auto_create_channels else made


async def _set_status(ctx: Context, project_id: str, status: str) -> Row:
    def work(rows: Rows) -> Row:
        project = rows.get("projects", project_id, "editor")
        if project["status"] != status:
            project = rows.update("projects", project_id, {"status": status})
            publish_of(rows, "project.paused" if status == "PAUSED" else "project.resumed", "project", project)
        return project

    return await storage_of(ctx).write(work)


@queue_tool("x.project.pause", "project", "write", OF_PROJECT, ["project_id"], idempotent=True)
async def pause_project(ctx: Context, project_id: str) -> dict[str, Any]:
    """Pause a project: none of its tasks is assigned; those at work go on."""
    return {"paused": project_id, "name": (await _set_status(ctx, project_id, "PAUSED"))["name"]}


@queue_tool("x.project.resume", "project", "write", OF_PROJECT, ["project_id"], idempotent=True)
async def resume_project(ctx: Context, project_id: str) -> dict[str, Any]:
    """Resume a paused project."""
    return {"resumed": project_id, "name": (await _set_status(ctx, project_id, "ACTIVE"))["name"]}


@transaction_tool(
    "x.project.edit",
    "project",
    "write",
    {
        **OF_PROJECT,
        "name": NAME,
        "credit_weight": _WEIGHT,
        "max_concurrent_agents": _AGENTS,
        "budget_limit": {"type": ["integer", "null"], "minimum": 0, "description": "Tokens; null for no limit"},
        "discord_channel_id": {**_SHORT, "description": "Name of a channel of send_message; null for none"},
        "default_profile_id": _SHORT,
        "repo_default_branch": _BRANCH,
    },
    ["project_id"],
    examples=[{"project_id": "<project_id>", "budget_limit": 1_000_000}],
)
def edit_project(rows: Rows, project_id: str, **given: Any) -> dict[str, Any]:
    """Change settings of a project."""
    changes = {name: None if value == "" else value for name, value in changes_of(given).items()}
    if profile := changes.get("default_profile_id"):
        sql = "SELECT id FROM {profiles} AS p WHERE profile_id = ? AND project_id = ?"
        if not rows.select(sql, (profile, home_of(rows))):
            raise ToolFailure("not_found", f"there is no profile {profile!r}", hint="list_profiles has the ids")
    rows.get("projects", project_id, "editor")
    rows.update("projects", project_id, changes)
    done = {"updated": project_id, "fields": sorted(changes)}
    sql = "SELECT id FROM {projects} AS p WHERE discord_channel_id = ? ORDER BY id"
    sharing = [id for (id,) in rows.select_values(sql, (changes.get("discord_channel_id"),))]
    if len(sharing) > 1:  # as good for notices as one each
        return {**done, "note": f"{', '.join(sharing)} share this channel: {sharing[0]} takes its messages"}
    return done


@transaction_tool(
    "x.project.branch",
    "project",
    "write",
    {**OF_PROJECT, "branch": _BRANCH},
    ["project_id", "branch"],
    examples=[{"project_id": "<project_id>", "branch": "main"}],
)
def set_default_branch(rows: Rows, project_id: str, branch: str) -> dict[str, Any]:
    """Set the branch that the work of a project ends up in."""
    project = rows.get("projects", project_id, "editor")
    rows.update("projects", project_id, {"repo_default_branch": branch})
    before = project["repo_default_branch"]
    status = "unchanged" if before == branch else "updated"
    return {"project_id": project_id, "default_branch": branch, "previous_branch": before, "status": status}


@queue_tool(
    "x.project.delete",
    "project",
    "destructive",
    {**OF_PROJECT, "archive_channels": {"type": "boolean", "default": False}},
    ["project_id"],
)
async def delete_project(ctx: Context, project_id: str, archive_channels: bool) -> dict[str, Any]:
    """Delete a project with its tasks, hooks and playbooks; refused while an agent is at work. Folders stay."""

    def work(rows: Rows) -> tuple[dict[str, Any], list[str]]:
        rows.require(project_id, "owner")
        project = rows.get("projects", project_id)
        if project_id == home_of(rows):
            raise ToolFailure("conflict", "the inbox holds your agents and profiles: it cannot be deleted")
        marks = ", ".join("?" * len(CLAIMED))
        sql = f"SELECT id FROM {{tasks}} AS t WHERE project_id = ? AND status IN ({marks})"
        if busy := rows.select(sql, (project_id, *CLAIMED)):
            raise ToolFailure(
                "conflict", f"tasks are at work: {', '.join(one['id'] for one in busy)}", hint="stop_task"
            )
        sql = "SELECT schedule_id FROM {hooks} AS h WHERE project_id = ? AND schedule_id IS NOT NULL"
        schedules = [one["schedule_id"] for one in rows.select(sql, (project_id,))]
        for table in (table.name for table in SCHEMA.tables if table.name != "projects"):
            found = rows.select_values(f"SELECT id FROM {{{table}}} AS one WHERE project_id = ?", (project_id,))
            rows.delete_all(table, [id for (id,) in found])
        rows.publish("project.deleted", project_id, {"project_id": project_id, "title": project["name"]})
        rows.delete("projects", project_id)
        gone: dict[str, Any] = {"deleted": project_id, "name": project["name"]}
        if channel := project["discord_channel_id"]:
            gone["channel_ids"] = [channel]
        if archive_channels:
            gone |= {"archive_channels": False, "warning": _NO_CHANNELS}
        return gone, schedules

    gone, schedules = await storage_of(ctx).write(work)
    for schedule in schedules:
        with suppress(ToolFailure):  # the project is gone: one that ended meanwhile is not a reason to fail
            await ctx.schedules.cancel(schedule)
    return gone


@transaction_tool("x.project.channels", "project", "read", OF_PROJECT, ["project_id"])
def get_project_channels(rows: Rows, project_id: str) -> dict[str, Any]:
    """Get the channel of a project."""
    return {"project_id": project_id, "channel_id": rows.get("projects", project_id)["discord_channel_id"]}


@transaction_tool("x.project.of_channel", "project", "read", {"channel_id": id_of("channel")}, ["channel_id"])
def get_project_for_channel(rows: Rows, channel_id: str) -> dict[str, Any]:
    """Find the project of a channel."""
    found = _of_channel(rows, channel_id) or {"id": None, "name": None}
    return {"channel_id": channel_id, "project_id": found["id"], "project_name": found["name"]}


def _of_channel(rows: Rows, channel_id: str) -> Row | None:
    """Return the project of a channel: of several one that the caller began, as others may share theirs unasked."""
    sql = "SELECT * FROM {projects} AS p WHERE discord_channel_id = ? ORDER BY created_at, id"
    found = rows.select(sql, (channel_id,))
    return min(found, key=lambda one: one["created_by"] != rows.principal, default=None)


@queue_tool(
    "x.project.message",
    "queue",
    "write",
    {
        "channel_id": id_of("channel"),
        "author": NAME,
        "text": {**TEXT, "maxLength": 4000},
        "delivery": {**NAME, "maxLength": 200, "description": "Names the message: received once"},
    },
    ["channel_id", "author", "text"],
    idempotent=False,
)
async def receive_message(ctx: Context, channel_id: str, author: str, text: str, delivery: str = "") -> dict[str, Any]:
    """Take a message of a chat for the hooks and playbooks of the channel's project: the event chat.message.

    It answers no question of a task.
    """

    def work(rows: Rows) -> dict[str, Any]:
        project = _of_channel(rows, channel_id)
        if project is None:
            hint = "edit_project sets the discord_channel_id of a project"
            raise ToolFailure("not_found", f"no project has the channel {channel_id!r}", hint=hint)
        rows.require(project["id"], "editor")
        received = {"received": channel_id, "project_id": project["id"]}
        if delivery:
            row = {"project_id": project["id"], "delivery": delivery}
            if rows.select("SELECT id FROM {messages} AS m WHERE project_id = ? AND delivery = ?", tuple(row.values())):
                return received
            rows.insert("messages", row)
        publish_message(rows, project, author, text, delivery or ctx.call_id)
        return received

    return await storage_of(ctx, source="receive_message").write(work)


@queue_tool("x.project.activate", "project", "write", OF_ANY_PROJECT, explicit=["project_id"], idempotent=True)
async def set_active_project(ctx: Context, project_id: str = "") -> dict[str, Any]:
    """Set the project that fills `project_id` of later calls of this session; none given clears it.

    Git tools work in its first workspace.
    """
    if not project_id:
        for name in ("project_id", "repo"):
            ctx.set_default(name, None)
        return {"active_project": None, "message": "No project is active."}

    def work(rows: Rows) -> tuple[str, str | None]:
        project = rows.get("projects", project_id)
        sql = "SELECT workspace_path FROM {workspaces} AS w WHERE project_id = ? ORDER BY created_at, id LIMIT 1"
        found = rows.select(sql, (project_id,))
        return project["name"], found[0]["workspace_path"] if found else None

    name, folder = await storage_of(ctx).read(work)
    ctx.set_default("project_id", project_id)
    ctx.set_default("repo", folder)
    return {"active_project": project_id, "name": name, **({"repo": folder} if folder else {})}
