"""Tools that manage sub-agents: spawn in the background, send, cancel, close, list, profiles, share with the parent.

They answer at once. What a sub-agent has to say comes as an event into its parent's next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from toolcrib import Annotations, Availability, Context, Execution, Guidance, Tool, ToolResult
from toolcrib.errors import ToolFailure

from ..tools import (
    REQUIREMENTS,
    SHARE,
    SPAWNING,
    SUB_AGENT_SOURCE,
    TASK_SCHEMA,
    ListedSource,
    RunnerFactory,
    ToolFunction,
    runner_of,
)
from .profiles import list_profiles, validate_file
from .registry import PARENT, REGISTRY, SubAgents

CATEGORY: Final = "agents"
START: Final = "spawn_subagent"
_EXECUTION: Final = Execution(timeout=60.0)
_ID_SCHEMA: Final = {"type": "string", "minLength": 1, "description": "As spawn_subagent returned it."}
_CONTEXT_SCHEMAS: Final[Mapping[str, Any]] = {
    "files": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "Content by path.",
    },
    "findings": {"type": "array", "items": {"type": "string"}},
    "notes": {"type": "string"},
}
_READ_ANNOTATIONS: Final = Annotations(read_only=True, destructive=False, open_world=False)
_WRITE_ANNOTATIONS: Final = Annotations(read_only=False, destructive=False, open_world=False)


def _tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    *required: str,
    annotations: Annotations = _WRITE_ANNOTATIONS,
    example: Mapping[str, Any] | None = None,
    needs: str = SPAWNING,
    tags: tuple[str, ...] = (),
) -> Tool:
    return Tool(
        name=name,
        source=SUB_AGENT_SOURCE,
        local_name=name,
        op=f"agent.{name}",
        description=description,
        input_schema={
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
        annotations=annotations,
        approval="never",  # what a sub-agent calls is decided call by call
        category=CATEGORY,
        tags=tags,
        execution=_EXECUTION,
        availability=Availability(needs=(needs,)),
        guidance=Guidance(examples=(example,) if example is not None else ()),
    )


TOOLS: Final = (
    _tool(
        START,
        "Start an agent that works in the background with your tools and rights, or fewer; returns its id at once. What"
        " it answers comes by itself into your next turn: go on, do not wait by calling list_active_subagents. Give"
        " either a name or a profile.",
        {
            "task": TASK_SCHEMA,
            "name": {"type": "string", "maxLength": 64, "description": "What to call it."},
            "profile": {"type": "string", "description": "One of list_subagent_profiles."},
            "context": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "object", "properties": _CONTEXT_SCHEMAS, "additionalProperties": False},
                ],
                "description": "What it has to know.",
            },
            "inline_config": {
                "type": "object",
                "description": "Without a profile.",
                "properties": {
                    "plugins": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Categories or names of the tools that it has; all of yours by default.",
                    },
                    "system_instructions": {"type": "string"},
                    "max_turns": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Its task and each message to it are a turn.",
                    },
                    "gc": {
                        "type": "object",
                        "properties": {
                            "threshold_percent": {
                                "type": "number",
                                "exclusiveMinimum": 25,
                                "maximum": 100,
                                "description": "How full its context may be before older messages are summarised.",
                            }
                        },
                        "additionalProperties": False,
                    },
                },
                "additionalProperties": False,
            },
        },
        "task",
        example={"task": "Find every caller of parse_config and say what each expects", "name": "callers"},
    ),
    _tool(
        "send_to_subagent",
        "Send a message to a sub-agent. One that works reads it before its next step (queued); an idle one begins a"
        " turn with it and what it knows already (dispatched).",
        {"subagent_id": _ID_SCHEMA, "message": {"type": "string", "minLength": 1, "pattern": r"\S"}},
        "subagent_id",
        "message",
        example={"subagent_id": "callers-1f3a", "message": "Look at the tests too"},
    ),
    _tool(
        "cancel_subagent",
        "Stop what a sub-agent does now; it stays, and a message begins a new turn.",
        {"subagent_id": _ID_SCHEMA},
        "subagent_id",
        example={"subagent_id": "callers-1f3a"},
    ),
    _tool(
        "close_subagent",
        "End a sub-agent that you need no more: its work is cancelled, its conversation is forgotten.",
        {"subagent_id": _ID_SCHEMA},
        "subagent_id",
        example={"subagent_id": "callers-1f3a"},
    ),
    _tool(
        "list_active_subagents",
        "List your sub-agents: what each does now, its turns, and those lost by a restart.",
        {},
        annotations=_READ_ANNOTATIONS,
        example={},
    ),
    _tool(
        "list_subagent_profiles",
        "List the profiles by which a sub-agent can be spawned: role, tools, and what is wrong with one.",
        {},
        annotations=_READ_ANNOTATIONS,
        example={},
    ),
    _tool(
        "validate_subagent_profile",
        "Check the file of a sub-agent profile (YAML or JSON) before it is used.",
        {"path": {"type": "string", "minLength": 1}},
        "path",
        annotations=_READ_ANNOTATIONS,
        example={"path": ".toolcrib/agents/reviewer.yaml"},
        tags=("files",),  # rules for files, `Read(…)`, look at its path
    ),
    _tool(
        SHARE,
        "Give the agent that you work for something before your answer: files, findings, notes. It reads them in its"
        " next turn.",
        _CONTEXT_SCHEMAS,
        example={"findings": ["parse_config has 4 callers"]},
        needs=REQUIREMENTS[SHARE],
    ),
)
"""All of them, by their own names; the profile `introspection` has seed 003's."""


class SubAgentTools(ListedSource):
    """Source of these tools. One for a crib, shared by all of its agents."""

    def __init__(self, *, only: frozenset[str] | None, runner_factory: RunnerFactory | None = None) -> None:
        """`only` are the names or categories that the configuration chose; `runner_factory` as in `AgentTools`."""
        tools = [tool for tool in TOOLS if only is None or not only.isdisjoint({tool.name, CATEGORY})]
        run: dict[str, ToolFunction] = {
            START: self._spawn,
            "send_to_subagent": self._send,
            "cancel_subagent": self._cancel,
            "close_subagent": self._close,
            "list_active_subagents": self._list,
            "list_subagent_profiles": self._profiles,
            "validate_subagent_profile": self._validate,
            SHARE: _share,
        }
        super().__init__(SUB_AGENT_SOURCE, tools, run)
        self._served = runner_factory

    async def _spawn(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        runner = await runner_of(context, self._served)
        return _result(await runner.start(arguments, context))

    async def _send(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        runner = await runner_of(context, self._served)
        id = arguments["subagent_id"]
        status = await runner.send(id, arguments["message"])
        return _result({"success": True, "subagent_id": id, "status": status})

    async def _cancel(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        id = arguments["subagent_id"]
        was_running = (await self._registry(context)).stop(id)
        message = "its work is cancelled" if was_running else "it was idle: there was nothing to cancel"
        return _result({"success": True, "subagent_id": id, "cancelled": was_running, "message": message})

    async def _close(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        id = arguments["subagent_id"]
        await (await self._registry(context)).close(id)
        return _result({"success": True, "subagent_id": id, "message": f"{id} is closed"})

    async def _list(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return _result((await self._registry(context)).describe())

    async def _profiles(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        profiles = await list_profiles((await self._registry(context)).parent)
        return _result({"profiles": profiles, "count": len(profiles)})

    async def _validate(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        report = await validate_file((await self._registry(context)).parent, arguments["path"])
        return _result(
            {
                "valid": not report.errors,
                "path": report.path,
                "errors": list(report.errors),
                "warnings": list(report.warnings),
            }
        )

    async def _registry(self, context: Context) -> SubAgents:
        """Return the session's registry. Raises `ToolFailure("unavailable")` where no agent works."""
        await runner_of(context, self._served)
        return cast("SubAgents", context.runtime[REGISTRY])


async def _share(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    share: Callable[[str], None] | None = context.runtime.get(PARENT)
    if share is None:
        raise ToolFailure("unavailable", "this session works for no other agent", hint="put it into your answer")
    text = render_context(arguments)
    if not text:
        raise ToolFailure("invalid_arguments", "there is nothing to share", hint="give files, findings or notes")
    share(text)
    return _result({"success": True, "message": "The agent that you work for reads it in its next turn."})


def render_context(context: str | Mapping[str, Any]) -> str:
    """Return a text, or files, findings and notes, as one text for a prompt; empty if there is nothing in it."""
    if isinstance(context, str):
        return context.strip()
    parts = [f"File {path}:\n{content}" for path, content in context.get("files", {}).items()]
    if findings := context.get("findings"):
        parts.append("\n".join(("Findings:", *(f"- {finding}" for finding in findings))))
    if notes := context.get("notes", "").strip():
        parts.append(f"Notes: {notes}")
    return "\n\n".join(parts)


def _result(value: Mapping[str, Any]) -> ToolResult:
    return ToolResult.of_json(dict(value))
