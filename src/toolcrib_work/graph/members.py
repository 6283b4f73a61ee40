"""Operations on the members of a project."""

from __future__ import annotations

from functools import partial
from typing import Any

from toolcrib.plugin import Context, Role, Rows, ToolFailure, rehearsal

from .calendar_tables import PERSONAL
from .model import SCHEMA
from .nodes import publish
from .operations import ID, counted, note, operation_tool, storage_of


@operation_tool(
    "x.member.list",
    "list_onto_members",
    "read",
    {"project_id": ID("project")},
    ["project_id"],
    category="work",
    examples=[{"project_id": "<project_id>"}],
)
async def list_onto_members(ctx: Context, project_id: str) -> dict[str, Any]:
    """List the members of a project with their roles."""
    members = await storage_of(ctx).read(lambda rows: rows.members(project_id))
    note(ctx, "x.member.list", project_id)
    shown = [{"principal": one.principal, "role": one.role} for one in members]
    return {"members": shown, "total": len(shown), "message": f"{counted(len(shown), 'member')}."}


def _set_member(rows: Rows, project_id: str, principal: str, role: Role | None) -> None:
    if project_id.startswith(PERSONAL):  # a person's own calendar is not shared
        raise ToolFailure("not_found", f"there is no project {project_id[:200]!r}")
    rows.set_member(project_id, principal, role)
    publish(rows, "x.member.set", project_id, "project", project_id, principal=principal, role=role)


@operation_tool(
    "x.member.set",
    "set_onto_member",
    "write",
    {
        "project_id": ID("project"),
        "principal": {"type": "string", "minLength": 1, "maxLength": 200, "description": "Name of the other user"},
        "role": {
            "anyOf": [{"type": "string", "enum": ["viewer", "editor", "owner"]}, {"type": "null"}],
            "description": "null removes",
        },
    },
    ["project_id", "principal", "role"],
    category="work",
    approval="always",
    check=rehearsal(SCHEMA, _set_member, {"project_id": "projects"}),
    explicit=["project_id"],  # a project is shared by its id, never because it is the current one
    idempotent=True,
    examples=[{"project_id": "<project_id>", "principal": "eve", "role": "editor"}],
)
async def set_onto_member(ctx: Context, project_id: str, principal: str, role: Role | None) -> dict[str, Any]:
    """Share a project with another user: viewers read, editors change, owners also set members; null removes one."""
    await storage_of(ctx).write(partial(_set_member, project_id=project_id, principal=principal, role=role))
    message = f"{principal} is {role} of the project." if role else f"{principal} is not a member of the project."
    return {"project_id": project_id, "principal": principal, "role": role, "message": message}
