"""Playbooks: work in several steps as a file. Each node is a task for an agent, or a question to a person.

    name: Release
    triggers: [{event_type: task.completed, filter: {task_type: feature}}]
    nodes:
      review:
        prompt: Read the changes of {{event.title}}. Is it safe to publish them?
        transitions: [{when: safe, goto: publish}, {when: risky, goto: ask}]
      ask:
        prompt: "{{review}} Publish it all the same?"
        wait_for_human: true
        transitions: [{when: yes, goto: publish}, {when: no, goto: end}]
      publish: {prompt: Publish it., goto: end}
      end: {terminal: true}

A changed file is a new version; a run keeps to the one that it began with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from toolcrib.plugin import Context, FieldError, Row, Rows, ToolFailure, Validator, compile_schema, invalid_argument

from ..documents import check_source, read_mapping, read_source
from ..events import check_event
from ..operations import (
    INTEGER,
    NAME,
    OF_ANY_PROJECT,
    home_of,
    id_of,
    in_project,
    open_home,
    queue_tool,
    storage_of,
    transaction_tool,
)
from ..runs.evidence import ACCEPTANCE, check_declared
from .triggers import schedule_events

_NODE_NAME: Final = "^[a-z][a-z0-9_]{0,40}$"
_WORD: Final = {"type": "string", "minLength": 1, "maxLength": 60, "pattern": r"^\S(.*\S)?$"}
_GOTO: Final = {"type": "string", "pattern": _NODE_NAME}
_NODE: Final = {
    "type": "object",
    "properties": {
        "entry": {"type": "boolean"},
        "prompt": {"type": "string", "minLength": 1, "maxLength": 20_000},
        "transitions": {
            "type": "array",
            "minItems": 1,
            "maxItems": 20,
            "items": {
                "type": "object",
                "properties": {"when": _WORD, "goto": _GOTO},
                "required": ["when", "goto"],
                "additionalProperties": False,
            },
        },
        "goto": _GOTO,
        "terminal": {"type": "boolean"},
        "wait_for_human": {"type": "boolean"},
        "profile_id": id_of("agent profile"),
        "requires_approval": {"type": "boolean"},
        "acceptance": ACCEPTANCE,
    },
    "additionalProperties": False,
}
_EVENT: Final = {"type": "string", "minLength": 1, "maxLength": 200}
_PLAYBOOK: Final = {
    "type": "object",
    "properties": {
        "name": NAME,
        "description": {"type": "string", "maxLength": 2000},
        "enabled": {"type": "boolean", "default": True},
        "scope": {"type": "string", "pattern": r"^(system|project|agent-type:[a-z]+)$", "default": "project"},
        "triggers": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "anyOf": [
                    _EVENT,
                    {
                        "type": "object",
                        "properties": {"event_type": _EVENT, "filter": {"type": "object", "maxProperties": 20}},
                        "required": ["event_type"],
                        "additionalProperties": False,
                    },
                ]
            },
        },
        "cooldown_seconds": {**INTEGER, "default": 0},
        "max_tokens": {"type": "integer", "minimum": 1},
        "nodes": {
            "type": "object",
            "propertyNames": {"pattern": _NODE_NAME, "not": {"const": "event"}},
            "minProperties": 1,
            "maxProperties": 100,
            "additionalProperties": _NODE,
        },
    },
    "required": ["name", "nodes"],
    "additionalProperties": False,
}
_ID: Final = {"playbook_id": id_of("playbook")}
_SYSTEM: Final = "system"
"""Scope of a playbook that hears all projects of its owner. Other members of a shared project could change it there."""


@cache
def _validator() -> Validator:
    return compile_schema(_PLAYBOOK)


@queue_tool(
    "x.playbook.save",
    "playbooks",
    "write",
    {
        "project_id": id_of("project"),
        "source": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "YAML, or a file with it"},
    },
    ["project_id", "source"],
    traits=["file_reader"],
    examples=[{"project_id": "<project_id>", "source": "playbooks/release.yaml"}],
    policy={
        "do": ["nodes: {NAME: {prompt, transitions: [{when, goto}] or goto, wait_for_human, terminal}}."],
        "edge_cases": [
            "The first node, or that with entry: true, begins; each is a task whose agent names the outcome.",
            "{{event.field}} and {{NODE}}, what a node ended with, are filled in prompts.",
        ],
    },
)
async def save_playbook(ctx: Context, project_id: str, source: str) -> dict[str, Any]:
    """Save a playbook, by its name: nodes that agents and people go through, started by events or run_playbook."""
    text = await read_source(ctx, source)
    given = _checked(read_mapping(text))
    values: dict[str, Any] = {
        "source": text,
        "source_hash": hashlib.sha256(text.encode()).hexdigest(),
        "description": given.get("description", ""),
        "enabled": int(given["enabled"]),
        "scope": given["scope"],
        "triggers": given.get("triggers", []),
        "nodes": given["nodes"],
        "cooldown_seconds": given["cooldown_seconds"],
        "max_tokens": given.get("max_tokens"),
    }

    def work(rows: Rows) -> dict[str, Any]:
        rows.get("projects", project_id, "editor")
        if values["scope"] == _SYSTEM and project_id != open_home(rows):
            message = "a playbook of the system hears the projects of one person: its project is the inbox"
            raise invalid_argument("source.scope", message, hint=f"project_id: {home_of(rows)}")
        sql = "SELECT * FROM {playbooks} AS p WHERE project_id = ? AND name = ?"
        name = given["name"].strip()
        known = rows.select(sql, (project_id, name))
        if not known:
            row = rows.insert("playbooks", {"project_id": project_id, "name": name, "version": 1, **values})
        elif known[0]["source_hash"] == values["source_hash"]:
            row = known[0]
        else:
            row = rows.update("playbooks", known[0]["id"], {**values, "version": known[0]["version"] + 1})
        return {"saved": row["id"], "name": name, "version": row["version"], "source_hash": row["source_hash"]}

    saved = await storage_of(ctx).write(work)
    await schedule_events(ctx)
    return saved


def _checked(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a playbook with its defaults. Raises `ToolFailure` with the places of everything that is wrong."""
    validator = _validator()
    check_source(list(validator.check(data)) or _graph_errors(data["nodes"]))
    triggers: list[Any] = data.get("triggers", [])
    for number, trigger in enumerate(triggers):
        check_event(trigger if isinstance(trigger, str) else trigger["event_type"], f"source.triggers.{number}")
    for name, node in data["nodes"].items():
        try:
            check_declared(node.get("acceptance") or [])
        except ToolFailure as failure:
            raise invalid_argument(f"source.nodes.{name}", failure.message) from None
    return dict(validator.fill(data))


def _graph_errors(nodes: Mapping[str, Mapping[str, Any]]) -> list[FieldError]:
    """Return the errors of the edges between nodes."""
    found = {name: why for name, node in nodes.items() if (why := _node_error(nodes, node))}
    entries = [name for name, node in nodes.items() if node.get("entry")]
    found |= dict.fromkeys(entries[1:], "another node is the entry already")
    return [FieldError(path=f"nodes.{name}", keyword="invalid", message=why) for name, why in found.items()]


def _node_error(nodes: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    targets = [one["goto"] for one in node.get("transitions", ())] + ([node["goto"]] if "goto" in node else [])
    words = [one["when"].casefold() for one in node.get("transitions", ())]
    if unknown := [name for name in targets if name not in nodes]:
        return f"there is no node {', '.join(unknown)}"
    if node.get("terminal"):
        return "a terminal node leads nowhere" if targets else ""
    if not targets:
        return "it needs goto or transitions, or terminal: true"
    if "goto" in node and words:
        return "it has goto and transitions: name each outcome by a transition"
    if "prompt" not in node:
        return "it needs a prompt"
    return "two transitions have the same outcome" if len(set(words)) < len(words) else ""


def entry_of(nodes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the node that a run begins at."""
    return next((name for name, node in nodes.items() if node.get("entry")), next(iter(nodes)))


@transaction_tool(
    "x.playbook.list",
    "playbooks",
    "read",
    OF_ANY_PROJECT,
    explicit=["project_id"],
)
def list_playbooks(rows: Rows, project_id: str = "") -> dict[str, Any]:
    """List playbooks with their versions, what starts them, and their nodes."""
    chosen, given = in_project(rows, project_id, "WHERE")
    found = rows.select(f"SELECT * FROM {{playbooks}} AS p{chosen} ORDER BY name, id", given)
    return {"playbooks": [{**_line(one), "nodes": [*one["nodes"]]} for one in found], "count": len(found)}


def _line(row: Row) -> dict[str, Any]:
    names: Sequence[str] = ("id", "project_id", "name", "version", "description", "scope", "triggers")
    return {**{name: row[name] for name in names}, "enabled": bool(row["enabled"])}


@transaction_tool("x.playbook.get", "playbooks", "read", _ID, ["playbook_id"])
def get_playbook(rows: Rows, playbook_id: str) -> dict[str, Any]:
    """Get a playbook with its source, which save_playbook takes back."""
    row = rows.get("playbooks", playbook_id)
    more = ("cooldown_seconds", "max_tokens", "nodes", "source", "source_hash")
    return {**_line(row), **{name: row[name] for name in more}}


@queue_tool("x.playbook.delete", "playbooks", "destructive", _ID, ["playbook_id"])
async def delete_playbook(ctx: Context, playbook_id: str) -> dict[str, Any]:
    """Delete a playbook. A run that has begun goes on to its end."""
    gone = await storage_of(ctx).write(lambda rows: rows.delete("playbooks", playbook_id))
    return {"deleted": playbook_id, "name": gone["name"]}
