"""One command from start to end: its process, and its decoded and bounded output."""

from __future__ import annotations

import codecs
import dataclasses
import re
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Literal

import anyio
from msgspec import Struct

from toolcrib.plugin import Command, Context, Finished, Running, Sandbox, ToolFailure, ToolResult, Workspace

from .._workspace.place import folder_at, workspace_of

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
"""Escape sequences of terminals (ECMA-48): colours, cursor, titles."""

MOST_SECONDS: Final = 600
_SHELL: Final = next((shell for shell in ("/bin/bash", "/usr/bin/bash") if Path(shell).exists()), "/bin/sh")
_KEPT: Final = 1024 * 1024
"""Characters of each stream; the result is cut to what the session takes, and the rest stays readable."""
_LAST_WORDS: Final = 1.0
"""Seconds for what is on its way when the command has ended: what it left behind may hold the pipe for ever."""
_LAST_CHARACTERS: Final = 4_000
"""Characters of the output that the message of a failure holds."""
_MARGIN: Final = 3.0
"""Seconds of the call's own time that are left to end the command and to say so."""

_ALLOWING: Final = (
    "which hosts commands may reach is the operator's to say: `shell: {network: [HOST]}` in the configuration,"
    " `private_hosts: [HOST:PORT]` beside it for what is not public"
)

_LIMITS: Final = {
    "shell.file_mb": re.compile(r"File size limit exceeded|File too large|\bEFBIG\b"),
    "shell.memory_mb": re.compile(r"\bMemoryError\b|heap out of memory|OutOfMemoryError|Cannot allocate memory"),
    "shell.processes": re.compile(r"can't start new thread|fork: retry|[Rr]esource temporarily unavailable|\bEAGAIN\b"),
}
"""Settings of the sandbox, with what programs print that reach their limits."""

Take = Callable[[Literal["stdout", "stderr"], bytes], Awaitable[None]]


@dataclasses.dataclass(slots=True)
class OutputBuffer:
    """One stream: its first half and its last half, and how much is missing between them."""

    most: int
    """Characters that are kept."""
    _decoder: codecs.IncrementalDecoder = dataclasses.field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), repr=False
    )
    _head: list[str] = dataclasses.field(default_factory=list[str])
    _tail: deque[str] = dataclasses.field(default_factory=deque[str])
    _held: int = 0
    _held_in_tail: int = 0
    _lost: int = 0

    def add(self, piece: bytes) -> str:
        """Keep a piece; return what is new as text. Half a character waits for the other half."""
        text = self._decoder.decode(piece)
        room = self.most // 2 - self._held
        if room > 0:
            self._head.append(text[:room])
            self._held += len(text[:room])
        if rest := text[max(room, 0) :]:
            self._tail.append(rest)
            self._held_in_tail += len(rest)
        while self._held_in_tail > self.most // 2:
            gone = self._held_in_tail - self.most // 2
            first = self._tail.popleft()
            if len(first) > gone:
                self._tail.appendleft(first[gone:])
            self._lost += min(gone, len(first))
            self._held_in_tail -= min(gone, len(first))
        return text

    @property
    def is_waiting(self) -> bool:
        """True if there is unread output."""
        return self._held > 0

    def take(self) -> str:
        """Return the output since the last time, and forget it."""
        missing = f"\n[… {self._lost} characters left out …]\n" if self._lost else ""
        text = "".join((*self._head, missing, *self._tail))
        self._head.clear()
        self._tail.clear()
        self._held = self._held_in_tail = self._lost = 0
        return text


def plain(text: str) -> str:
    """Return a text as a terminal would show it, line by line: no colours, and only the last of overwritten lines."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


class CommandResult(Struct, frozen=True, kw_only=True):
    """Result of a command."""

    stdout: str
    stderr: str
    finished: Finished | None
    """None when its time was up."""
    seconds: float
    aside: tuple[str, ...] = ()
    """Files that commands may not create, moved aside under new names."""
    programs: tuple[str, ...] = ()
    """Folders of programs that it changed and that run only when called."""
    unseen: tuple[str, ...] = ()
    """Folders with more in them than is compared for what it left."""
    refused: tuple[str, ...] = ()
    """Connections that were refused, each with the reason."""
    is_limited: bool = True
    """Whether the sandbox bounded what it took."""


def sandbox_of(ctx: Context) -> Sandbox:
    """Return the sandbox of commands. Raises `ToolFailure("unavailable")` if they may not run."""
    if ctx.sandbox is None:
        raise ToolFailure(
            "unavailable",
            "commands run in a sandbox, and this machine has none",
            hint="install bubblewrap (`apt install bubblewrap`); `toolcrib doctor` says more",
        )
    return ctx.sandbox


async def command_of(ctx: Context, text: str, folder: str, terminal: tuple[int, int] | None = None) -> Command:
    """Return the command for a shell text in a folder of the workspace. Raises `ToolFailure` for an invalid folder."""
    workspace = workspace_of(ctx)
    if "\0" in text:
        raise ToolFailure("invalid_arguments", "command: a command has no NUL character")
    await folder_at(workspace, folder or ".")
    return Command(
        argv=(_SHELL, "-c", text),
        cwd=workspace.local(folder or "."),
        folders=workspace.roots,
        environment={"PAGER": "cat", "GIT_PAGER": "cat", "TERM": "xterm-256color" if terminal else "dumb"},
        network=sandbox_of(ctx).network,
        terminal=terminal,
    )


def seconds_of(ctx: Context, wanted: float) -> float:
    """Return the time limit of a command in this call."""
    return max(0.1, min(wanted, MOST_SECONDS, ctx.remaining - _MARGIN))


async def follow(running: Running, take: Take) -> Finished:
    """Hand on what a process says until it has ended."""
    over = anyio.Event()

    async def pump() -> None:
        while piece := await running.read():
            await take(*piece)
        over.set()

    async with anyio.create_task_group() as group:
        group.start_soon(pump)
        await running.wait()
        with anyio.move_on_after(_LAST_WORDS):
            await over.wait()
        group.cancel_scope.cancel()
    return await running.wait()


async def run(ctx: Context, command: Command, seconds: float) -> CommandResult:
    """Run a command to its end, or for that long; then everything it has started is ended."""
    streams = {"stdout": OutputBuffer(_KEPT), "stderr": OutputBuffer(_KEPT)}

    async def take(name: Literal["stdout", "stderr"], piece: bytes) -> None:
        if text := streams[name].add(piece):
            await ctx.output(text)

    finished: Finished | None = None
    started = anyio.current_time()
    async with sandbox_of(ctx).open(command) as running:
        await running.close_input()
        with anyio.move_on_after(seconds):
            finished = await follow(running, take)
    return CommandResult(
        stdout=streams["stdout"].take(),
        stderr=streams["stderr"].take(),
        finished=finished,
        seconds=anyio.current_time() - started,
        aside=tuple(running.aside),
        programs=tuple(running.programs),
        unseen=tuple(running.unseen),
        refused=tuple(running.refused),
        is_limited=sandbox_of(ctx).kind != "none",
    )


def notes_of(ended: CommandResult | Running) -> list[str]:
    """Say what a command may not do and tried, and which key of the configuration lets it; once it has ended."""
    aside = [f"put aside, for commands may not make it: {path}" for path in ended.aside]
    if ended.aside:
        aside.append("a person gives a file back by renaming it, a file tool writes it anew")
    aside += [f"programs changed that run when they are called: {path}" for path in ended.programs]
    aside += [
        f"{path} has too many folders: the deepest were not searched for files that other programs start"
        for path in ended.unseen
    ]
    refused = [f"refused: {reason}" for reason in ended.refused]
    return [*aside, *refused, *([_ALLOWING] if refused else ())]


def reached_by(sandbox: Sandbox) -> bool | list[str]:
    """Return the network reach of commands, as JSON: all, none, or hosts."""
    network = sandbox.network
    return network if isinstance(network, bool) else [*network.hosts, *network.private]


async def ending(ended: CommandResult, workspace: Workspace, before: str = "") -> ToolResult:
    """Return output and end of a command as text, behind a line `before`.

    The metadata have what the command cannot write itself: `exit_status`, and `note_lines`, the numbers of lines that
    are ours at the beginning and at the end. Raises `ToolFailure` when it was stopped, with its last words.
    """
    notes = notes_of(ended)
    if workspace.diverts and await workspace.overlay():
        notes.append("changes that wait for review are not on the disk: the command did not see them")
    out, err = ended.stdout.rstrip("\n"), ended.stderr.rstrip("\n")
    output = f"{out}\n[stderr]\n{err}".lstrip("\n") if err else out
    finished = ended.finished
    if finished is None or finished.stopped:
        why = (
            f"it was ended: {finished.stopped}" if finished else f"it did not end within {round(ended.seconds, 1):g} s"
        )
        last = f"; its last output:\n{output[-_LAST_CHARACTERS:]}" if output else "; it printed no output"
        last += "".join(f"\n[{note}]" for note in notes_of(ended))
        hint = "" if finished else "give it a longer timeout, or run it in the background"
        raise ToolFailure("tool_error" if finished else "timeout", "".join((why, last)), hint=hint)
    if finished.status:
        notes[:0] = [f"{status_of(finished)} after {ended.seconds:.1f} s", *_limits_in(ended, finished)]
    elif not output:
        notes.insert(0, "no output, exit status 0")
    text = "\n".join([*filter(None, (before, output)), *(f"[{note}]" for note in notes)])
    return ToolResult.of_text(text).with_meta(exit_status=finished.status, note_lines=[int(bool(before)), len(notes)])


def _limits_in(ended: CommandResult, finished: Finished) -> list[str]:
    """Name the settings whose limits a failed command seems to have reached."""
    if not ended.is_limited:
        return []
    last = f"{ended.stdout[-_LAST_CHARACTERS:]}\n{ended.stderr[-_LAST_CHARACTERS:]}"
    names = [name for name, pattern in _LIMITS.items() if pattern.search(last)]
    if status_of(finished) == "ended by SIGXFSZ":
        names = ["shell.file_mb"]
    return [f"it may have reached a limit of the sandbox, which the operator sets: {', '.join(names)}"] if names else []


def status_of(finished: Finished) -> str:
    """Say how a process ended; shells report a signal as 128 and its number."""
    status = finished.status
    number = -status if status < 0 else status - 128
    name = signal.Signals(number).name if number in list(signal.Signals) else ""
    return f"ended by {name}" if name and status != 128 else f"exit status {status}"
