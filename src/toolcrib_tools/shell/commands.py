"""`run_command`: commands in the foreground or the background, and processes that outlive a call."""

from __future__ import annotations

import dataclasses
import shlex
from functools import partial
from typing import Annotated, Final, Literal

import anyio
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import (
    SHELL_FOLDER,
    Command,
    Context,
    Finished,
    Running,
    ToolFailure,
    ToolResult,
    tool,
)

from .._workspace.place import workspace_of
from .kept_shell import KeptShell, shell_of
from .processes import (
    MOST_SECONDS,
    OutputBuffer,
    command_of,
    ending,
    follow,
    notes_of,
    plain,
    run,
    sandbox_of,
    seconds_of,
    status_of,
)

_MOST: Final = 8
"""At a time in one session."""
_REMEMBERED: Final = 32
"""Ended processes that are remembered."""
_KEPT: Final = 256 * 1024
"""Characters of unread output that are kept."""
_KEY: Final = "shell.processes"

SECONDS: Final = 120
"""Default time limit of a command."""
_FIRST: Final = 1.0
"""Seconds that a command in the background is watched: one that fails does so at once."""
_QUIET: Final = 0.2

command_tool = partial(
    tool,
    category="shell",
    kind="destructive",
    idempotent=False,
    needs=["shell", "workspace"],
    timeout=MOST_SECONDS,
    streaming=True,
    background_after=10,
    metadata={"result": "output"},
)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class BackgroundProcess:
    """One process, and its unread output."""

    id: str
    title: str
    command: Command
    seconds: float = float("inf")
    """Time limit."""
    started: float = 0.0
    finished: Finished | None = None
    """None while it runs, and when its time was up."""
    failure: ToolFailure | None = None
    """Reason why it could not be started."""
    notes: list[str] = dataclasses.field(default_factory=list[str])
    """Operations that the sandbox refused; set once it has ended."""
    was_stopped: bool = False
    _output: OutputBuffer = dataclasses.field(default_factory=lambda: OutputBuffer(_KEPT), repr=False)
    _running: Running | None = None
    _scope: anyio.CancelScope = dataclasses.field(default_factory=anyio.CancelScope, repr=False)
    _began: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _over: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _news: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)

    @property
    def is_over(self) -> bool:
        """True if it has ended, with all processes that it started."""
        return self._over.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return anyio.current_time() - self.started

    async def begin(self, ctx: Context) -> None:
        """Start it; return once it runs. Raises `ToolFailure` when it cannot."""
        self.started = anyio.current_time()
        sandbox = sandbox_of(ctx)

        async def live() -> None:
            running: Running | None = None
            try:
                with self._scope, anyio.move_on_after(self.seconds):
                    async with sandbox.open(self.command) as running:
                        self._running = running
                        if self.command.terminal is None:
                            await running.close_input()
                        self._began.set()
                        self.finished = await follow(running, self._take)
            except ToolFailure as failure:
                self.failure = failure
            finally:
                self._running = None
                self.notes = notes_of(running) if running is not None else []
                for event in (self._began, self._over, self._news):
                    event.set()

        await ctx.lent.spawn(live)
        try:
            await self._began.wait()
        except BaseException:
            self._scope.cancel()
            raise
        if self.failure is not None:
            raise self.failure

    async def write(self, data: bytes) -> None:
        """Send input. Raises `ToolFailure("tool_error")` when it has ended."""
        if self._running is None:
            raise ToolFailure("tool_error", f"{self.id} has ended and takes no input any more")
        await self._running.write(data)

    async def read(self, *, seconds: float, quiet: float) -> str:
        """Return new output after at most so many seconds; earlier once the process has been quiet for a while."""
        with anyio.move_on_after(seconds):
            while not self.is_over:
                self._news = anyio.Event()
                with anyio.move_on_after(quiet) as silence:
                    await self._news.wait()
                if silence.cancelled_caught and self._output.is_waiting:
                    break
        text = self._output.take()
        return plain(text) if self.command.terminal else text

    async def wait(self, seconds: float) -> None:
        """Return when it has ended, at the latest after so many seconds."""
        with anyio.move_on_after(seconds):
            await self._over.wait()

    async def aclose(self) -> None:
        """End it, with everything that it has started."""
        self.was_stopped = self.was_stopped or not self.is_over
        self._scope.cancel()
        await self._over.wait()

    async def _take(self, name: Literal["stdout", "stderr"], piece: bytes) -> None:
        self._output.add(piece)
        self._news.set()


class ProcessRegistry(Struct, eq=False):
    """The processes of one session, by their ids."""

    _processes: dict[str, BackgroundProcess] = field(default_factory=dict[str, BackgroundProcess])
    _count: int = 0

    async def start(
        self, ctx: Context, command: Command, title: str, *, seconds: float = float("inf")
    ) -> BackgroundProcess:
        """Start a process. Raises `ToolFailure("overloaded")` when the session has too many."""
        alive = [kept.id for kept in self._processes.values() if not kept.is_over]
        if len(alive) >= _MOST:
            raise ToolFailure(
                "overloaded",
                f"this session runs {_MOST} processes already: {', '.join(alive)}",
                hint="shell_close ends one",
            )
        self._count += 1
        kind = "command" if command.terminal is None else "shell"
        kept = BackgroundProcess(id=f"{kind}_{self._count}", title=title, command=command, seconds=seconds)
        self._processes[kept.id] = kept
        try:
            await kept.begin(ctx)
        except BaseException:
            del self._processes[kept.id]
            raise
        for old in [one.id for one in self._processes.values() if one.is_over][:-_REMEMBERED]:
            del self._processes[old]
        return kept

    def find(self, id: str) -> BackgroundProcess:
        """Return the process of that id. Raises `ToolFailure("not_found")` naming those that there are."""
        if id not in self._processes:
            there = ", ".join(self._processes) or "there is none"
            raise ToolFailure("not_found", f"this session has no process {id!r}", hint=f"those it has: {there}")
        return self._processes[id]

    def all(self) -> list[BackgroundProcess]:
        """Return all that are known, in the order of their start."""
        return list(self._processes.values())

    def forget(self, kept: BackgroundProcess) -> None:
        """Know one no more."""
        self._processes.pop(kept.id, None)

    async def aclose(self) -> None:
        """End all of them: the session is over."""
        async with anyio.create_task_group() as group:
            for kept in self.all():
                group.start_soon(kept.aclose)


def processes_of(ctx: Context) -> ProcessRegistry:
    """Return the processes of the session that makes this call."""
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, ProcessRegistry):
        found = ctx.runtime[_KEY] = ProcessRegistry()
    return found


@command_tool(
    op="x.shell.run",
    tags=["run", "execute", "command", "bash", "terminal", "shell", "program", "script", "install", "pip", "npm"],
    examples=[
        {"command": "ls -la src && git log --oneline -5"},
        {"command": "npm run dev", "background": True},
        {"command_id": "command_1"},
    ],
    policy={
        "do": ["Use run_tests for the tests of a project, and shell_spawn for a program that asks questions."],
        "dont": ["Use it to read, search or edit files: read_file, grep and edit_file show and undo what they do."],
        "edge_cases": [
            "Nothing carries over to the next command, unless the session keeps its shell. Write cd sub && make.",
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
) -> ToolResult:
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
        return ToolResult.of_text(await describe_process(kept))
    wanted = await command_of(ctx, command, working_dir)
    shell = shell_of(ctx)
    if not background and shell is not None:
        return await _run_kept(ctx, shell, wanted, seconds_of(ctx, timeout or SECONDS), moves=bool(working_dir))
    if not background:
        ended = await run(ctx, wanted, seconds_of(ctx, timeout or SECONDS))
        return await ending(ended, workspace_of(ctx))
    kept = await processes_of(ctx).start(ctx, wanted, command, seconds=timeout or float("inf"))
    await kept.wait(_FIRST)
    return ToolResult.of_text(await describe_process(kept))


async def _run_kept(ctx: Context, shell: KeptShell, wanted: Command, seconds: float, *, moves: bool) -> ToolResult:
    """Run a command in the shell of its session: one at a time, as a person would."""
    workspace = workspace_of(ctx)
    async with shell.turn:
        prepared, fresh = await shell.prepare(wanted, moves=moves)
        try:
            ended = await run(ctx, prepared, seconds)
        except BaseException:
            shell.take(None, workspace)
            raise
        else:
            shell.take(ended, workspace)
        finally:
            ctx.runtime[SHELL_FOLDER] = shell.cwd  # rules read the files that the next command finds there
    try:
        return await ending(ended, workspace, fresh)
    except ToolFailure as failure:
        message = "\n".join(filter(None, (failure.message, fresh)))
        raise ToolFailure(failure.code, message, hint=failure.hint) from None


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
