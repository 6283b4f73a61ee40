"""MCP tasks on the wire: what requests declare and ask for. `toolcrib.server.tasks` answers with background jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ...core.json import dumps, loads
from ...core.tool import Tool
from ..jsonrpc import INVALID_PARAMS, TASKS_EXTENSION, RpcError
from .client import supports

__all__ = ["CAPABILITY", "DECLARED", "mark_tools", "read_task_id", "takes_tasks", "wants_task"]

CAPABILITY: Final[Mapping[str, Any]] = {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}
"""Server capability of revision 2025-11-25."""
DECLARED: Final[Mapping[str, Any]] = {"extensions": {TASKS_EXTENSION: {}}}
"""Client capability of the extension, in the stateless era."""


def takes_tasks(declared: Mapping[str, Any]) -> bool:
    """Whether a client of the stateless era that declared `declared` accepts a task in place of a result."""
    return supports(declared, DECLARED)


def wants_task(params: Mapping[str, Any]) -> bool:
    """Whether a `tools/call` of revision 2025-11-25 asks for a task.

    Raises `RpcError` with INVALID_PARAMS if `task` is not an object. Its `ttl` is ignored: the answer has ours.
    """
    task = params.get("task")
    if task is not None and not isinstance(task, dict):
        raise RpcError(INVALID_PARAMS, 'Invalid params: "task" must be an object')
    return task is not None


def mark_tools(listing: bytes, tools: tuple[Tool, ...]) -> bytes:
    """Return the listing with `execution.taskSupport` on tools that move to the background by themselves.

    Clients gain by asking for those as tasks; any other tool can be called as a task as well.
    """
    names = {tool.name for tool in tools if tool.execution.background_after is not None}
    if not names:
        return listing
    definitions = cast("list[dict[str, Any]]", loads(listing))
    for definition in definitions:
        if definition["name"] in names:
            definition["execution"] = {"taskSupport": "optional"}
    return dumps(definitions)


def read_task_id(params: Mapping[str, Any]) -> str:
    """Return the task that the parameters name. Raises `RpcError` with INVALID_PARAMS."""
    task = params.get("taskId")
    if not isinstance(task, str):
        raise RpcError(INVALID_PARAMS, 'Invalid params: "taskId" must be a string')
    return task
