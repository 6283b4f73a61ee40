"""spawn_agent and delegate_task: the work is done by whoever runs agents, whom the session's runtime names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from toolcrib import ToolFailure
from toolcrib.core.context import Context
from toolcrib.sources.yaml.run_code import ToolContext

__all__ = ["MAX_DEPTH", "READ_ONLY", "Brief", "delegate_task", "spawn_agent"]

MAX_DEPTH = 3
READ_ONLY = (
    "read_file search_files grep list_directory get_diagnostics find_references git_diff git_status git_log git_branch"
    " display_diagram"
).split()
"""What a local worker may call."""


@dataclass(frozen=True, kw_only=True)
class Brief:
    """What an agent is given."""

    task: str
    context: str
    depth: int
    rounds: int
    tools: tuple[str, ...] | None = None
    """None: the same as its parent."""


Runner = Callable[[Brief], Awaitable[str]]
"""Runs an agent to its end; in the runtime of a session as `run_agent`."""


async def spawn_agent(task: str, ctx: ToolContext, context: str = "") -> str:
    return await _run(ctx.call, Brief(task=task, context=context, depth=_depth(ctx), rounds=15))


async def delegate_task(task: str, ctx: ToolContext, context: str = "") -> str:
    brief = Brief(task=task, context=context, depth=_depth(ctx), rounds=10, tools=tuple(READ_ONLY))
    return await _run(ctx.call, brief)


def _depth(context: ToolContext) -> int:
    depth = context.call.runtime.get("depth", 0) + 1
    if depth > MAX_DEPTH:
        raise ToolFailure("tool_error", f"maximum nesting depth ({MAX_DEPTH}) reached")
    return depth


async def _run(call: Context, brief: Brief) -> str:
    runner: Runner | None = call.runtime.get("run_agent")
    if runner is None:
        raise ToolFailure("unavailable", "nobody runs agents here")
    return await runner(brief)
