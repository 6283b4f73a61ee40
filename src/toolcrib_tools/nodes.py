"""`nodes`: this machine as a node: state, capabilities, one program, a notification, location of programs.

Programs run in the sandbox, as words and without a shell between. There is no list of programs that may run and that a
model could add to: rules for commands decide, the same ones as for every tool that runs some.
"""

from __future__ import annotations

import html
import os
import platform
import shutil
import subprocess
from typing import Annotated, Any, Final, Literal

import anyio
from pydantic import Field

from toolcrib.plugin import Command, Context, ToolFailure, tool

from ._workspace.place import folder_at, workspace_of
from .shell.processes import MOST_SECONDS, CommandResult, ending, reached_by, run, sandbox_of, seconds_of, status_of

__all__ = ["nodes"]

_NODE: Final = "local"
_SECONDS: Final = 120.0
"""Default time limit of a program."""
_WHICH_SECONDS: Final = 30.0
_EDGE: Final = 20
"""Lines of the beginning and of the end that a summary has."""
_NOTIFY_SECONDS: Final = 10
_WHICH: Final = 'for name in "$@"; do printf "%s\\t%s\\n" "$name" "$(command -v -- "$name")"; done'

_Words = Annotated[list[Annotated[str, Field(max_length=100_000)]], Field(max_length=1_000)]


@tool(
    op="x.node.use",
    category="shell",
    kind="destructive",
    idempotent=False,
    needs=["shell", "workspace"],
    timeout=MOST_SECONDS,
    tags=["run", "machine", "program", "notify", "which"],
    traits=["by_action"],
    metadata={
        "compression_hint": "skip",  # `output_handling` says how much
        "reads": {"action": ["status", "describe", "which"]},
    },
    examples=[
        {"action": "run", "command": ["python3", "--version"]},
        {"action": "which", "command": ["git", "node"]},
        {"action": "notify", "title": "Build", "message": "The build is done."},
        {"action": "status"},
    ],
    policy={
        "do": ["which before run, where it is not sure that the program is installed."],
        "dont": ["Give a whole shell line as one word: command is a list, the program first. run_command takes lines."],
        "edge_cases": ["Programs see the workspace and nothing else of the user's; the network only if it is allowed."],
    },
)
async def nodes(
    action: Literal["status", "describe", "run", "notify", "which"],
    ctx: Context,
    node: Annotated[str, Field(max_length=100)] = _NODE,
    command: _Words | None = None,
    output_handling: Literal["full", "summary"] = "full",
    cwd: str = "",
    env: dict[str, str] | None = None,
    timeout_ms: Annotated[int | None, Field(ge=100, le=MOST_SECONDS * 1000)] = None,
    title: Annotated[str, Field(max_length=200)] = "",
    message: Annotated[str, Field(max_length=2_000)] = "",
) -> dict[str, Any]:
    """Work with this machine: see how it is, run a program, find programs, show the user a notification.

    Args:
        action: status tells whether it can be used, describe what it is, run runs a program, which finds programs,
            notify shows a notification on the desktop.
        node: The machine; "local" is the only one.
        command: run: the program and its arguments, a word each; which: the names to look for.
        output_handling: run: the whole output, or the beginning and the end of it.
        cwd: run: the folder in the workspace; its root when not given.
        env: run: variables for the program.
        timeout_ms: run: milliseconds, 120000 when not given; then it is ended, with all that it has started.
        title: notify: the heading.
        message: notify: the text.
    """
    if node != _NODE:
        raise ToolFailure("not_found", f"there is no node {node!r}", hint=f"the only node is {_NODE!r}: this machine")
    match action:
        case "status":
            return _status(ctx)
        case "describe":
            return {**_status(ctx), **_describe_machine(ctx)}
        case "which":
            return {"node": node, "programs": await _find_programs(ctx, _words(command))}
        case "notify":
            return {"node": node, "shown_by": await _notify(ctx, title, message)}
        case "run":
            wanted = await _command(ctx, _words(command), cwd, env or {})
            ended = await run(ctx, wanted, seconds_of(ctx, timeout_ms / 1000 if timeout_ms else _SECONDS))
            return await _run_program(ctx, ended, output_handling)


def _status(ctx: Context) -> dict[str, Any]:
    sandbox = sandbox_of(ctx)
    return {"node": _NODE, "online": True, "platform": platform.system(), "sandbox": sandbox.kind}


def _describe_machine(ctx: Context) -> dict[str, Any]:
    return {
        "release": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "folders": [str(folder) for folder in workspace_of(ctx).roots],
        "network": reached_by(sandbox_of(ctx)),
        "notifications": shutil.which("notify-send") is not None,
        "actions": ["status", "describe", "run", "notify", "which"],
    }


def _words(command: list[str] | None) -> list[str]:
    if not command or not command[0].strip():
        raise ToolFailure("invalid_arguments", 'command: a list of words is needed, such as ["git", "status"]')
    if any("\0" in word for word in command):
        raise ToolFailure("invalid_arguments", "command: a word has no NUL character")
    return command


async def _command(ctx: Context, words: list[str], folder: str, variables: dict[str, str]) -> Command:
    """Return the command to run. Raises `ToolFailure` for an invalid folder or variable."""
    wrong = [name for name, value in variables.items() if not name or "=" in name or "\0" in name + value]
    if wrong:
        raise ToolFailure("invalid_arguments", f"env: {wrong[0]!r} cannot be a variable with this value")
    workspace = workspace_of(ctx)
    await folder_at(workspace, folder or ".")
    return Command(
        argv=tuple(words),
        cwd=workspace.local(folder or "."),
        folders=workspace.roots,
        environment={"PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb", **variables},
        network=sandbox_of(ctx).network,
    )


async def _run_program(ctx: Context, ended: CommandResult, handling: str) -> dict[str, Any]:
    """Tell how it ended. Raises `ToolFailure` if a limit ended it, as `ending` says it."""
    if ended.finished is None or ended.finished.stopped:
        await ending(ended, workspace_of(ctx))
        raise AssertionError("a stopped program raises")
    cut = _summary if handling == "summary" else str
    report: dict[str, Any] = {
        "node": _NODE,
        "exit_code": ended.finished.status,
        "stdout": cut(ended.stdout),
        "stderr": cut(ended.stderr),
        "seconds": round(ended.seconds, 1),
    }
    if ended.finished.status < 0:
        report["ended"] = status_of(ended.finished)
    report |= {"put_aside": list(ended.aside)} if ended.aside else {}
    return report | ({"refused": list(ended.refused)} if ended.refused else {})


def _summary(text: str) -> str:
    lines = text.splitlines()
    left_out = len(lines) - 2 * _EDGE
    if left_out <= 0:
        return text
    return "\n".join([*lines[:_EDGE], f"[{left_out} lines left out]", *lines[-_EDGE:]])


async def _find_programs(ctx: Context, names: list[str]) -> dict[str, str | None]:
    """Look for programs where commands would: in the sandbox."""
    wanted = await _command(ctx, ["/bin/sh", "-c", _WHICH, "which", *names], "", {})
    ended = await run(ctx, wanted, seconds_of(ctx, _WHICH_SECONDS))
    if ended.finished is None or ended.finished.stopped:
        await ending(ended, workspace_of(ctx))
    found = dict(line.split("\t", 1) for line in ended.stdout.splitlines() if "\t" in line)
    return {name: found.get(name) or None for name in names}


async def _notify(ctx: Context, title: str, message: str) -> str:
    """Show it on the desktop, else in the client. Raises `ToolFailure("unavailable")` if there is neither."""
    if not message.strip():
        raise ToolFailure("invalid_arguments", "message: what is to be shown is missing")
    program, why = shutil.which("notify-send"), "there is no notify-send here"
    if program is not None:
        # What a desktop takes for markup is only text here.
        words = [program, "--app-name=Toolcrib", "--", title or "Toolcrib", html.escape(message, quote=False)]
        try:
            with anyio.fail_after(_NOTIFY_SECONDS):
                ended = await anyio.run_process(words, stderr=subprocess.STDOUT, check=False)
        except TimeoutError:
            why = "notify-send does not answer"
        except OSError as error:
            why = f"notify-send cannot be run: {error.strerror}"
        else:
            if not ended.returncode:
                return "desktop"
            why = f"notify-send failed: {ended.stdout.decode(errors='replace').strip()[:300]}"
    if ctx.peer is None:
        raise ToolFailure("unavailable", f"no one would see it: {why}, and no client is connected")
    await ctx.log("notice", f"{title}: {message}" if title else message, "nodes")
    return "client"
