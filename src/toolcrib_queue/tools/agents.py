"""Tools for agents, and for the profiles that say how an agent works.

An agent is IDLE, BUSY with one task from its claim to the end of it (`state.claim`), or PAUSED. Paused while BUSY, it
keeps its task and is PAUSED afterwards (`is_pausing`). Agents and profiles are rows of their owner's home project.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any, Final, cast

import yaml

from toolcrib.plugin import Context, Row, Rows, ToolFailure, compile_schema, invalid_argument

from ..documents import check_source, read_mapping, read_source
from ..events import publish_of
from ..model import AGENT_TYPES
from ..operations import (
    LONG,
    NAME,
    OF_AGENT,
    changes_of,
    home_of,
    id_of,
    named_row,
    one_of,
    open_home,
    queue_tool,
    storage_of,
    transaction_tool,
)

_PROFILE: Final = {"profile_id": id_of("profile")}
_MODES: Final = ("audit", "autonomous", "cautious", "manual", "plan", "review")
_DESCRIBED: Final = 100
"""Tools that are listed with descriptions: a list of hundreds would be cut."""
_FIELDS: Final[Mapping[str, Any]] = {
    "description": {**LONG, "maxLength": 2000},
    "model": {"type": "string", "maxLength": 200},
    "permission_mode": {"type": "string", "maxLength": 100, "description": "A mode of Toolcrib, such as cautious"},
    "allowed_tools": {
        "type": "array",
        "items": {"type": "string", "maxLength": 200},
        "maxItems": 500,
        "description": "Names, or patterns with *; empty is every tool",
    },
    "mcp_servers": {"type": "object", "maxProperties": 50, "description": "Name → command and args, or url"},
    "system_prompt_suffix": LONG,
}
_EMPTY: Final[Mapping[str, Any]] = {
    "description": "",
    "model": "",
    "permission_mode": "",
    "allowed_tools": [],
    "mcp_servers": {},
    "system_prompt_suffix": "",
}


@transaction_tool("x.agent.list", "agent", "read", {})
def list_agents(rows: Rows) -> dict[str, Any]:
    """List the agents of the caller with their state and their task."""
    sql = "SELECT * FROM {agents} AS a WHERE project_id = ? ORDER BY created_at, id"
    return {"agents": [agent_line(one) for one in rows.select(sql, (home_of(rows),))]}


def agent_line(agent: Row) -> dict[str, Any]:
    """Return an agent as a line of a list."""
    line = {"id": agent["id"], "name": agent["name"], "type": agent["agent_type"], "state": agent["state"]}
    return {**line, "current_task": agent["current_task_id"]}


@transaction_tool(
    "x.agent.create",
    "agent",
    "write",
    {"name": NAME, "agent_type": {**one_of(AGENT_TYPES), "default": "claude"}},
    idempotent=False,
    examples=[{"name": "Ann", "agent_type": "claude"}],
)
def create_agent(rows: Rows, agent_type: str, name: str = "") -> dict[str, Any]:
    """Register an agent: it takes tasks by claim_task while it is IDLE."""
    home = open_home(rows)
    sql = "SELECT count(*) AS n FROM {agents} AS a WHERE project_id = ?"
    shown = name.strip() or f"{agent_type}-{rows.select(sql, (home,))[0]['n'] + 1}"
    values: dict[str, Any] = {
        "project_id": home,
        "name": shown,
        "agent_type": agent_type,
        "state": "IDLE",
        "is_pausing": 0,
    }
    made = rows.insert("agents", {**values, "total_tokens_used": 0})
    publish_of(rows, "agent.created", "agent", made)
    return {"created": made["id"], "name": shown, "state": made["state"]}


@transaction_tool(
    "x.agent.edit",
    "agent",
    "write",
    {**OF_AGENT, "name": NAME, "agent_type": one_of(AGENT_TYPES)},
    ["agent_id"],
    examples=[{"agent_id": "<agent_id>", "name": "Ann"}],
)
def edit_agent(rows: Rows, agent_id: str, **given: Any) -> dict[str, Any]:
    """Change the name or the type of an agent."""
    changes = changes_of(given)
    changed = rows.update("agents", named_row(rows, "agents", agent_id, home_of(rows))["id"], changes)
    return {"updated": changed["id"], "fields": sorted(changes), "name": changed["name"]}


@transaction_tool("x.agent.pause", "agent", "write", OF_AGENT, ["agent_id"], idempotent=True)
def pause_agent(rows: Rows, agent_id: str) -> dict[str, Any]:
    """Pause an agent: it gets no further task; one at work pauses after its task."""
    agent = named_row(rows, "agents", agent_id, home_of(rows))
    if agent["state"] == "BUSY":
        rows.update("agents", agent["id"], {"is_pausing": 1})
        note = f"it pauses after task {agent['current_task_id']}"
        return {"agent_id": agent["id"], "state": "BUSY", "note": note}
    if agent["state"] != "PAUSED":
        publish_of(rows, "agent.paused", "agent", rows.update("agents", agent["id"], {"state": "PAUSED"}))
    return {"agent_id": agent["id"], "state": "PAUSED"}


@transaction_tool("x.agent.resume", "agent", "write", OF_AGENT, ["agent_id"], idempotent=True)
def resume_agent(rows: Rows, agent_id: str) -> dict[str, Any]:
    """Resume a paused agent."""
    agent = named_row(rows, "agents", agent_id, home_of(rows))
    state = "BUSY" if agent["state"] == "BUSY" else "IDLE"
    resumed = rows.update("agents", agent["id"], {"state": state, "is_pausing": 0})
    if agent["state"] == "PAUSED":
        publish_of(rows, "agent.resumed", "agent", resumed)
    return {"agent_id": agent["id"], "state": state}


@transaction_tool("x.agent.delete", "agent", "destructive", OF_AGENT, ["agent_id"])
def delete_agent(rows: Rows, agent_id: str) -> dict[str, Any]:
    """Delete an agent; refused while it is at work."""
    agent = named_row(rows, "agents", agent_id, home_of(rows))
    if agent["state"] == "BUSY":
        message = f"agent {agent['name']} is at work on task {agent['current_task_id']}"
        raise ToolFailure("conflict", message, hint="stop_task first, or pause_agent")
    publish_of(rows, "agent.deleted", "agent", agent)
    rows.delete("agents", agent["id"])
    return {"deleted": agent["id"], "name": agent["name"]}


def _find(rows: Rows, profile_id: str) -> Row:
    sql = "SELECT * FROM {profiles} AS p WHERE profile_id = ? AND project_id = ?"
    found = rows.select(sql, (profile_id, home_of(rows)))
    if not found:
        raise ToolFailure(
            "not_found", f"there is no profile {profile_id[:200]!r}", hint="list_profiles shows their ids"
        )
    return found[0]


def _view(profile: Row) -> dict[str, Any]:
    return {"id": profile["profile_id"], "name": profile["name"], **{name: profile[name] for name in _FIELDS}}


@transaction_tool("x.profile.list", "agent", "read", {})
def list_profiles(rows: Rows) -> dict[str, Any]:
    """List agent profiles."""
    sql = "SELECT * FROM {profiles} AS p WHERE project_id = ? ORDER BY profile_id"
    names = ("description", "model", "allowed_tools", "mcp_servers")
    shown = [
        {
            "id": one["profile_id"],
            "name": one["name"],
            **{name: one[name] for name in names},
            "has_system_prompt": bool(one["system_prompt_suffix"]),
        }
        for one in rows.select(sql, (home_of(rows),))
    ]
    return {"profiles": shown, "count": len(shown)}


@queue_tool(
    "x.profile.create",
    "agent",
    "write",
    {"id": id_of("profile", ", chosen by the caller"), "name": NAME, **_FIELDS},
    ["id", "name"],
    idempotent=False,
    examples=[{"id": "reviewer", "name": "Reviewer", "allowed_tools": ["read_file", "git_*"]}],
)
async def create_profile(ctx: Context, id: str, name: str, **given: Any) -> dict[str, Any]:
    """Create a profile: model, mode, tools and instructions of an agent."""
    issues = await _issues(ctx, {**_EMPTY, **given})

    def work(rows: Rows) -> dict[str, Any]:
        _insert(rows, id, name, given)
        return {"created": id, "name": name.strip(), **({"warnings": issues} if issues else {})}

    return await storage_of(ctx).write(work)


def _insert(rows: Rows, id: str, name: str, given: Mapping[str, Any]) -> None:
    values: dict[str, Any] = {"project_id": open_home(rows), "profile_id": id, "name": name.strip()}
    rows.insert("profiles", {**values, **_EMPTY, **{key: given[key] for key in _FIELDS if key in given}})


@queue_tool("x.profile.get", "agent", "read", _PROFILE, ["profile_id"])
async def get_profile(ctx: Context, profile_id: str) -> dict[str, Any]:
    """Get one agent profile."""
    return _view(await _read(ctx, profile_id))


async def _read(ctx: Context, profile_id: str) -> Row:
    return await storage_of(ctx).read(lambda rows: _find(rows, profile_id))


@queue_tool(
    "x.profile.edit",
    "agent",
    "write",
    {**_PROFILE, "name": NAME, **_FIELDS},
    ["profile_id"],
    examples=[{"profile_id": "reviewer", "permission_mode": "cautious"}],
)
async def edit_profile(ctx: Context, profile_id: str, **given: Any) -> dict[str, Any]:
    """Change an agent profile."""
    changes = changes_of(given)
    before = await _read(ctx, profile_id)
    issues = await _issues(ctx, {**before, **changes})

    def work(rows: Rows) -> dict[str, Any]:
        rows.update("profiles", _find(rows, profile_id)["id"], changes)
        return {"updated": profile_id, "fields": sorted(changes), **({"warnings": issues} if issues else {})}

    return await storage_of(ctx).write(work)


@transaction_tool("x.profile.delete", "agent", "destructive", _PROFILE, ["profile_id"])
def delete_profile(rows: Rows, profile_id: str) -> dict[str, Any]:
    """Delete an agent profile; tasks and projects that name it have none any more."""
    profile = _find(rows, profile_id)
    for table, column in (("tasks", "profile_id"), ("projects", "default_profile_id")):
        for row in rows.select(f"SELECT id, project_id FROM {{{table}}} AS t WHERE {column} = ?", (profile_id,)):
            if rows.role(row["project_id"]) != "viewer":
                rows.update(table, row["id"], {column: None})
    rows.delete("profiles", profile["id"])
    return {"deleted": profile_id, "name": profile["name"]}


@queue_tool("x.profile.tools", "agent", "read", {})
async def list_available_tools(ctx: Context) -> dict[str, Any]:
    """List the tools and servers that a profile may name; of more than 100 tools the names alone."""
    insight = ctx.lent.insight(ctx.principal, ctx.session_key)
    known = insight.tools()
    is_long = len(known) > _DESCRIBED
    tools = [{"name": name} if is_long else {"name": name, "description": text} for name, text in known.items()]
    sources = (await insight.status()).get("sources", [])
    servers = [
        {"name": name, "description": f"{source.get('state', '')}", "npm_package": None}
        for name, source in _servers(sources)
    ]
    return {"tools": tools, "mcp_servers": servers}


def _servers(sources: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the sources that are MCP servers."""
    listed = cast("list[Mapping[str, Any]]", sources)
    return [(str(one["name"]), one) for one in listed if one.get("kind") == "mcp"]


async def _issues(ctx: Context, profile: Mapping[str, Any]) -> list[str]:
    """Return the missing objects that a profile names."""
    insight = ctx.lent.insight(ctx.principal, ctx.session_key)
    lost = [one for one in profile["allowed_tools"] if not insight.has_tool(one)]
    issues = [f"allowed_tools: there is no tool {one!r}" for one in lost]
    mode = profile["permission_mode"]
    if mode and mode not in _MODES:
        issues.append(f"permission_mode: {mode!r} is not one of {', '.join(_MODES)}")
    for name, command in _commands(profile).items():
        if command and shutil.which(command) is None:
            issues.append(f"mcp_servers.{name}: the program {command!r} is not installed")
        elif not command:
            issues.append(f"mcp_servers.{name}: it has neither command nor url")
    return issues


def _commands(profile: Mapping[str, Any]) -> dict[str, str]:
    """Return the programs of the servers of a profile that are not reached by a URL."""
    servers = cast("Mapping[str, Any]", profile["mcp_servers"])
    entries = {name: cast("Mapping[str, Any]", one) for name, one in servers.items() if isinstance(one, Mapping)}
    return {name: str(one.get("command") or "") for name, one in entries.items() if not one.get("url")}


@queue_tool("x.profile.check", "agent", "read", _PROFILE, ["profile_id"])
async def check_profile(ctx: Context, profile_id: str) -> dict[str, Any]:
    """Check that the tools, the mode and the programs that a profile names are there."""
    profile = await _read(ctx, profile_id)
    issues = await _issues(ctx, profile)
    manifest = {"commands": sorted({one for one in _commands(profile).values() if one})}
    return {"profile_id": profile_id, "valid": not issues, "issues": issues, "manifest": manifest}


@queue_tool("x.profile.install", "agent", "read", _PROFILE, ["profile_id"])
async def install_profile(ctx: Context, profile_id: str) -> dict[str, Any]:
    """Tell which programs of a profile are there and which a person has to install: nothing is installed unasked."""
    return {"profile_id": profile_id, **_report(await _read(ctx, profile_id))}


def _report(profile: Mapping[str, Any]) -> dict[str, Any]:
    commands = sorted({one for one in _commands(profile).values() if one})
    present = [one for one in commands if shutil.which(one)]
    missing = [one for one in commands if one not in present]
    return {"installed": [], "already_present": present, "manual": missing, "ready": not missing}


@queue_tool(
    "x.profile.export",
    "agent",
    "read",
    {**_PROFILE, "create_gist": {"type": "boolean", "default": False}},
    ["profile_id"],
)
async def export_profile(ctx: Context, profile_id: str, create_gist: bool) -> dict[str, Any]:
    """Return a profile as YAML, for import_profile elsewhere."""
    text = yaml.safe_dump(_view(await _read(ctx, profile_id)), sort_keys=False, allow_unicode=True)
    answer = {"yaml": text}
    return {**answer, "gist_error": "gists are not created here: publish the yaml yourself"} if create_gist else answer


@queue_tool(
    "x.profile.import",
    "agent",
    "write",
    {
        "source": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "YAML, or a file with it"},
        "id": id_of("profile; that of the YAML when not given"),
        "name": NAME,
        "overwrite": {"type": "boolean", "default": False},
    },
    ["source"],
    idempotent=False,
    traits=["file_reader"],
    examples=[{"source": "profiles/reviewer.yaml"}],
)
async def import_profile(ctx: Context, source: str, overwrite: bool, id: str = "", name: str = "") -> dict[str, Any]:
    """Create a profile from YAML that export_profile wrote."""
    data = read_mapping(await read_source(ctx, source))
    properties = {"id": id_of("profile"), "name": NAME, **_FIELDS}
    schema = compile_schema({"type": "object", "properties": properties, "additionalProperties": False})
    check_source(list(schema.check(data)))  # a limit under a wrong name would hold nowhere
    given = {key: data[key] for key in _FIELDS if key in data}
    chosen, shown = id or data.get("id"), name or data.get("name")
    if not chosen or not shown:
        raise invalid_argument("source", "it has no id and name", keyword="required")

    def work(rows: Rows) -> dict[str, Any]:
        sql = "SELECT id FROM {profiles} AS p WHERE profile_id = ? AND project_id = ?"
        if known := rows.select(sql, (chosen, open_home(rows))):
            if not overwrite:
                raise ToolFailure("conflict", f"there is a profile {chosen!r} already", hint="overwrite: true")
            rows.delete("profiles", known[0]["id"])
        _insert(rows, chosen, shown, given)
        return {"imported": chosen, "name": shown, "id": chosen, **_report({**_EMPTY, **given})}

    return await storage_of(ctx).write(work)
