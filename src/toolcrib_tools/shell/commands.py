"""`run_command`: one shell command, in the foreground or in the background."""

from __future__ import annotations

import shlex
from typing import Annotated, Final

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .._workspace.place import workspace_of
from .background import BackgroundProcess, processes_of
from .processes import MOST_SECONDS, command_of, ending, run, seconds_of, status_of

__all__ = ["describe_process", "run_command"]

_SECONDS: Final = 120
"""Default time limit of a command."""
_FIRST: Final = 1.0
"""Seconds that a command in the background is watched: one that fails does so at once."""
_QUIET: Final = 0.2


@tool(
    op="x.shell.run",
    category="shell",
    kind="destructive",
    idempotent=False,
    needs=["shell", "workspace"],
    timeout=MOST_SECONDS,
    tags=["run", "execute", "command", "bash", "terminal", "shell", "program", "script", "install", "pip", "npm"],
    metadata={"result": "output"},
    examples=[
        {"command": "ls -la src && git log --oneline -5"},
        {"command": "npm run dev", "background": True},
        {"command_id": "command_1"},
    ],
    policy={
        "do": ["Use run_tests for the tests of a project, and shell_spawn for a program that asks questions."],
        "dont": ["Use it to read, search or edit files: read_file, grep and edit_file show and undo what they do."],
        "edge_cases": [
            "Nothing carries over to the next command: no folder, no variables. Write cd sub && make.",
            "Only the workspace can be written; home is empty. Only hosts that the operator named are reached.",
            "When a command ends, everything that it has started ends too. Use background for a server.",
        ],
    },
)
async def run_command(
    ctx: Context,
    command: str = "",
    command_id: str = "",
    timeout: Annotated[float | None, Field(gt=0, le=MOST_SECONDS)] = None,
    background: bool = False,
    working_dir: str = "",
    args: list[str] | None = None,
) -> str:
    """Run a bash command in the workspace, in a sandbox. Returns what it prints, and how it ended if it failed.

    Args:
        command: What to run; pipes, && and redirections work.
        command_id: Instead of a command: one in the background, to see what it has printed since.
        timeout: Seconds, 120 when not given; then it is ended, with everything that it started. With background it may
            run that long, without one until it ends; with command_id its end is waited for that long.
        background: Return at once with a command_id, while the command goes on. It ends with the session.
        working_dir: The folder to run in; the workspace's root when not given.
        args: Words to put behind the command, each as it stands here: no quotes are needed.
    """
    if args:
        if not command.strip():
            raise ToolFailure("invalid_arguments", "args: they belong to a command, and there is none")
        command = f"{command} {shlex.join(args)}"
    if bool(command.strip()) == bool(command_id):
        raise ToolFailure("invalid_arguments", "give either a command to run, or the command_id of one that runs")
    if command_id:
        kept = processes_of(ctx).find(command_id)
        if timeout is not None:
            await kept.wait(seconds_of(ctx, timeout))
        return await describe_process(kept)
    wanted = await command_of(ctx, command, working_dir)
    if not background:
        ended = await run(ctx, wanted, seconds_of(ctx, timeout or _SECONDS))
        return await ending(ended, workspace_of(ctx))
    kept = await processes_of(ctx).start(ctx, wanted, command, seconds=timeout or float("inf"))
    await kept.wait(_FIRST)
    return await describe_process(kept)


async def describe_process(kept: BackgroundProcess) -> str:
    """Return the new output of a process, and its state."""
    output = (await kept.read(seconds=_QUIET, quiet=0)).rstrip("\n")
    return "\n".join(filter(None, (output, f"[{_state(kept)}]")))


def _state(kept: BackgroundProcess) -> str:
    if not kept.is_over:
        return f"{kept.id} is running, for {kept.age:.0f} s"
    if kept.finished is None:
        how = "was ended" if kept.was_stopped else "was ended: its time was up"
    elif kept.finished.stopped:
        how = f"was ended: {kept.finished.stopped}"
    else:
        how = f"has ended: {status_of(kept.finished)}"
    return "; ".join([f"{kept.id} {how}", *kept.notes])
