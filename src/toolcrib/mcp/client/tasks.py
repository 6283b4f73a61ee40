"""Tools that run only as tasks (revision 2025-11-25): start one, wait for its result, cancel it without a waiter.

The caller sees an ordinary call: it asked for a tool, not for a way to run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import anyio

from ...core.context import Context
from ...errors import ToolFailure
from ..jsonrpc import RpcError, mapping
from ..lines import Big
from .messages import LinkLost
from .transport import Link, Outgoing, Reply

__all__ = ["needing_tasks", "run_task"]

_LONGEST_TTL: Final = 3600.0
"""Seconds that a server is asked to keep a task whose call has no deadline."""
_CANCEL_SECONDS: Final = 1.0


def needing_tasks(tools: Iterable[Any]) -> frozenset[str]:
    """Return the names of the listed tools that refuse a plain call."""
    entries = (mapping(entry) for entry in tools)
    needing = (entry for entry in entries if mapping(entry.get("execution")).get("taskSupport") == "required")
    return frozenset(str(entry.get("name")) for entry in needing)


async def run_task(link: Link, params: Mapping[str, Any], context: Context, version: str) -> Reply:
    """Run `tools/call` with `params` as a task and return its result.

    Raises `RpcError`, `LinkLost`, or `ToolFailure` when the server starts no task.
    """
    ttl = round(min(context.remaining, _LONGEST_TTL) * 1000)
    started = await link.ask(Outgoing("tools/call", {**params, "task": {"ttl": ttl}}, version=version, context=context))
    task = _task_id(started)
    request = Outgoing("tasks/result", {"taskId": task}, version=version, context=context)
    try:
        return await link.ask(request)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
            await _cancel(link, task, version)
        raise


def _task_id(started: Reply) -> str:
    if isinstance(started, Big):
        started.discard()
        raise ToolFailure("tool_error", "the server answered a task with a message that is too large")
    task: Any = mapping(started.get("task")).get("taskId")
    if not isinstance(task, str):
        raise ToolFailure("tool_error", "the server runs this tool only as a task, and started none")
    return task


async def _cancel(link: Link, task: str, version: str) -> None:
    try:
        await link.ask(Outgoing("tasks/cancel", {"taskId": task}, version=version))
    except (LinkLost, RpcError, ToolFailure):
        return
