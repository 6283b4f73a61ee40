"""Persistent terminals: a shell, an interpreter, an interactive program."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .commands import BackgroundProcess, describe_process, processes_of
from .processes import command_of

_QUIET: Final = 0.3
"""Seconds without output after which a program counts as waiting for input."""
_ANSWER: Final = 5.0
"""Default seconds to wait for an answer."""
_MOST: Final = 55
_terminal_tool = partial(
    tool,
    category="shell",
    needs=["shell", "workspace"],
    tags=["terminal", "interactive", "session", "repl", "pty"],
)

_Key = Literal[
    "ctrl-c", "ctrl-d", "ctrl-z", "ctrl-l", "ctrl-\\", "enter", "escape", "tab", "backspace",
    "up", "down", "right", "left",
]  # fmt: skip
_KEYS: Final[dict[str, bytes]] = {
    "ctrl-c": b"\x03",
    "ctrl-d": b"\x04",
    "ctrl-z": b"\x1a",
    "ctrl-l": b"\x0c",
    "ctrl-\\": b"\x1c",
    "enter": b"\r",
    "escape": b"\x1b",
    "tab": b"\t",
    "backspace": b"\x7f",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
}


@_terminal_tool(
    op="x.shell.session.spawn",
    kind="destructive",
    idempotent=False,
    examples=[{"command": "bash"}, {"command": "python3 -q", "session_name": "calculations"}],
    policy={
        "do": ["Use run_command for what needs no answers."],
        "edge_cases": ["It ends with the conversation; at most 8 run at a time."],
    },
)
async def shell_spawn(
    ctx: Context,
    command: str = "bash --norc --noprofile",
    session_name: str = "",
    working_dir: str = "",
    rows: Annotated[int, Field(ge=2, le=500)] = 50,
    cols: Annotated[int, Field(ge=20, le=1000)] = 200,
) -> str:
    """Start a program in a terminal that stays, in the sandbox: a shell that keeps its folder and variables, a REPL.

    Returns its session_id, and what it says at first.

    Args:
        command: What to run; a shell when not given.
        session_name: What you want to call it.
        working_dir: The folder to start in; the workspace's root when not given.
        rows: Lines of the terminal.
        cols: Characters of a line.
    """
    if not command.strip():
        raise ToolFailure("invalid_arguments", "command: say what is to run")
    wanted = await command_of(ctx, command, working_dir, (rows, cols))
    kept = await processes_of(ctx).start(ctx, wanted, session_name or command)
    output = await kept.read(seconds=_ANSWER, quiet=_QUIET)
    return f"{output}\n{await describe_process(kept)}".lstrip("\n")


@_terminal_tool(
    op="x.shell.session.input",
    explicit=["session_id"],
    kind="destructive",
    idempotent=False,
    examples=[{"session_id": "shell_1", "input": "export NAME=value"}],
    policy={"do": ["Read with a longer timeout when a command takes its time."]},
)
async def shell_input(
    ctx: Context,
    session_id: str,
    input: str,
    enter: bool = True,
    timeout: Annotated[float, Field(ge=0, le=_MOST)] = _ANSWER,
) -> str:
    """Type into a terminal. Returns what it says, once it says nothing more.

    Args:
        session_id: Which terminal.
        input: The text to type.
        enter: Press Enter behind it.
        timeout: Seconds to wait for what it says.
    """
    kept = _terminal(ctx, session_id)
    await kept.write(input.encode() + (b"\r" if enter else b""))
    return await _answer(kept, timeout)


@_terminal_tool(
    op="x.shell.session.read",
    explicit=["session_id"],
    kind="read",
    idempotent=False,
    open_world=False,
    metadata={"result": "output"},
    examples=[{"session_id": "shell_1", "timeout": 30}],
    policy={"edge_cases": ["Output that was read once is not returned again."]},
)
async def shell_read(ctx: Context, session_id: str, timeout: Annotated[float, Field(ge=0, le=_MOST)] = _ANSWER) -> str:
    """Read the output of a terminal, or of a command in the background, since it was last read.

    Args:
        session_id: Which terminal or command.
        timeout: Seconds to wait for something to read.
    """
    return await _answer(processes_of(ctx).find(session_id), timeout)


@_terminal_tool(
    op="x.shell.session.control",
    explicit=["session_id"],
    kind="destructive",
    idempotent=False,
    examples=[{"session_id": "shell_1", "key": "ctrl-c"}],
    policy={"edge_cases": ["ctrl-c interrupts what runs in the foreground, ctrl-d ends the input."]},
)
async def shell_control(ctx: Context, session_id: str, key: _Key) -> str:
    """Press a key in a terminal. Returns what it says to that.

    Args:
        session_id: Which terminal.
        key: Which key.
    """
    kept = _terminal(ctx, session_id)
    await kept.write(_KEYS[key])
    return await _answer(kept, _ANSWER)


@_terminal_tool(
    op="x.shell.session.close",
    explicit=["session_id"],
    kind="write",
    idempotent=True,
    open_world=False,
    approval="never",
    examples=[{"session_id": "shell_1"}],
    policy={"edge_cases": ["It gets a second to end by itself, then it is killed with everything that it started."]},
)
async def shell_close(ctx: Context, session_id: str) -> str:
    """End a terminal, or a command in the background. Returns the rest of its output.

    Args:
        session_id: Which terminal or command.
    """
    shelf = processes_of(ctx)
    kept = shelf.find(session_id)
    await kept.aclose()
    shelf.forget(kept)
    return await describe_process(kept)


@_terminal_tool(op="x.shell.session.list", kind="read", open_world=False, examples=[{}])
async def shell_list(ctx: Context) -> list[dict[str, str | int]]:
    """List the terminals and the commands in the background of this conversation, and whether they still run."""
    return [
        {"session_id": kept.id, "name": kept.title, "running": not kept.is_over, "seconds": int(kept.age)}
        for kept in processes_of(ctx).all()
    ]


def _terminal(ctx: Context, id: str) -> BackgroundProcess:
    kept = processes_of(ctx).find(id)
    if kept.command.terminal is None:
        raise ToolFailure(
            "tool_error", f"{id} runs in the background and takes no input", hint="shell_spawn gives it a terminal"
        )
    return kept


async def _answer(kept: BackgroundProcess, seconds: float) -> str:
    output = (await kept.read(seconds=seconds, quiet=_QUIET)).rstrip("\n")
    return output if output and not kept.is_over else "\n".join(filter(None, (output, await describe_process(kept))))
