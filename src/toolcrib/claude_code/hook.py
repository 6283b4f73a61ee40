"""Answer to one event of a Claude Code hook.

`PreToolUse` comes before every use of a tool, `PermissionRequest` where Claude Code would show its own dialog. Events
outside of the gate's scope get no answer, and Claude Code continues as without a hook: its own dialogs, and the tools
of Toolcrib, which are decided on when they are called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import anyio

from ..mcp.stdio import read_messages
from ..server.stdio import Link
from .approve_tool import APPROVE, NOT_FOR_MODELS, is_ours
from .gate import PLAN, ClaudeCodeGate, ClaudeUse
from .hook_messages import EVENTS, HookRequest, hook_answer

_DIALOGS: Final = ("AskUserQuestion", PLAN)
"""Tools that are dialogs of Claude Code: allowing them would answer in the user's place.

A plan concerns the gate where nothing runs without one (mode `plan`).
"""


async def answer_hook(gate: ClaudeCodeGate, request: HookRequest) -> str:
    """Return the answer for Claude Code, empty for events left to it.

    Raises `ValueError` for an event without a tool, `UsageError` for an unknown mode.
    """
    name, use = _use(request)
    if name not in EVENTS:
        return ""
    if use.tool in _DIALOGS and not (use.tool == PLAN and gate.is_planning(use)):
        return ""
    if is_ours(use.tool) and not gate.has_namesake(use.cwd):
        if use.tool.endswith(f"__{APPROVE}"):
            return hook_answer(name, "deny", NOT_FOR_MODELS)
        return ""
    if name == "PermissionRequest" and gate.was_handed_back(use):
        return ""
    ruling = await gate.decide(use)
    if ruling.unanswered and request.unanswered == "ask":
        if name == "PermissionRequest":
            return ""
        gate.hand_back(use)
        return hook_answer(name, "ask", ruling.message)
    if not ruling.is_allowed:
        return hook_answer(name, "deny", ruling.message)
    changed = ruling.arguments if ruling.arguments != use.arguments else None
    return hook_answer(name, "allow", f"Toolcrib: {ruling.rule}", changed)


async def serve_hook(gate: ClaudeCodeGate, link: Link, received: bytes) -> None:
    """Answer the one request of a hook process; when that goes away first, the question is withdrawn.

    Raises `ValueError` or `TypeError` for an invalid request: the hook then finds the connection closed, and denies.
    """
    async for line in read_messages(link.receive, received):
        request = HookRequest.decode(line if isinstance(line, bytes) else b"")
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                await link.hung_up()
                tasks.cancel_scope.cancel()

            tasks.start_soon(leave)
            answer = await answer_hook(gate, request)
            await link.send(answer.encode() + b"\n")
            tasks.cancel_scope.cancel()
        return


def _use(request: HookRequest) -> tuple[str, ClaudeUse]:
    event = request.event
    name, tool, given = event.get("hook_event_name"), event.get("tool_name"), event.get("tool_input")
    session = event.get("session_id")
    if not isinstance(name, str) or not isinstance(tool, str) or not tool or not isinstance(given, dict):
        raise ValueError("no event of Claude Code: hook_event_name, tool_name and tool_input were expected")
    use = ClaudeUse(
        tool=tool,
        arguments=cast("dict[str, object]", given),
        conversation=session if isinstance(session, str) else "",
        cwd=Path(request.project),
        mode=request.mode,
    )
    return name, use
