"""One process with its children, from its start to an end that is certain."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ..core.sandbox import Finished
from ..errors import ToolFailure
from .bubblewrap import Line
from .egress import Handing
from .process_monitor import Watched

__all__ = ["Held", "Output", "Process", "start"]

_PIECE: Final = 64 * 1024
_AHEAD: Final = 16
"""Unread pieces of output; the process blocks when there are more."""
_GRACE: Final = 1.0
"""Seconds between asking a command to end and killing it (security.md R9)."""
_TAKE: Final = 'exec 0<>"$1" 1>&0 2>&0; shift; exec "$@"'
"""Makes a terminal that of its session: a session leader gets the first one that it opens."""

_Work = Callable[[], Coroutine[Any, Any, None]]
Output = tuple[Literal["stdout", "stderr"], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Resources that a sandbox holds for one command."""

    descriptors: Sequence[int] = ()
    """Descriptors that it inherits, and that are closed here once it has them."""
    watched: Watched | None = None
    """Monitor of the processes that the command started."""
    handing: Handing | None = None
    """Its way out."""
    tidy: _Work | None = None
    """Renames files that the command may not create."""

    def work(self) -> list[_Work]:
        """Return the tasks to run beside the command."""
        jobs = (self.watched and self.watched.watch, self.handing and self.handing.serve, self.tidy)
        return [one for one in jobs if one]


class Process:
    """A running process. Made by `start`, which ends it."""

    def __init__(
        self,
        process: anyio.abc.Process,
        output: MemoryObjectReceiveStream[Output],
        terminal: int,
        held: Held,
    ) -> None:
        """`terminal` is our end of its terminal, -1 where it has pipes."""
        self._process = process
        self._output = output
        self._terminal = terminal
        self._watched = held.watched
        self._handing = held.handing
        self.aside: Sequence[str] = ()
        """Forbidden files that the command created, under their new names."""

    @property
    def refused(self) -> Sequence[str]:
        """Destinations that were refused, each with the reason."""
        return self._handing.refused if self._handing else ()

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._process.pid

    async def read(self) -> Output | None:
        """Return the next output; None when there will be none."""
        try:
            return await self._output.receive()
        except anyio.EndOfStream:
            return None

    async def write(self, data: bytes) -> None:
        """Send input. Raises `ToolFailure("tool_error")` when it takes none any more."""
        try:
            if self._terminal < 0:
                assert self._process.stdin is not None
                await self._process.stdin.send(data)
                return
            while data:
                await anyio.wait_writable(self._terminal)
                data = data[os.write(self._terminal, data) :]
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ToolFailure("tool_error", "the process takes no input any more") from error

    async def close_input(self) -> None:
        """Close the command's standard input."""
        if self._terminal >= 0:
            await self.write(b"\x04")
        elif self._process.stdin is not None:
            await self._process.stdin.aclose()

    async def wait(self) -> Finished:
        """Return once it ended."""
        status = await self._process.wait()
        return Finished(status=status, stopped=self._watched.stopped if self._watched else "")

    def signal(self, number: int) -> None:
        """Send a signal to it and to everything that it has started."""
        if self._process.returncode is None and self._watched is not None and self._watched.signal(number):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


@asynccontextmanager
async def start(
    line: Line,
    cwd: Path | None,
    *,
    terminal: tuple[int, int] | None,
    held: Held | None = None,
) -> AsyncGenerator[Process]:
    """Run a command in a group of its own until the context exits; processes left in the group are killed.

    Raises `ToolFailure("tool_error")` when the program does not exist.
    """
    held = held or Held()
    argv = line.argv
    ours, theirs = _terminal(*terminal) if terminal else (-1, -1)
    pipe = theirs if terminal else -1
    if terminal:
        argv = ("/bin/sh", "-c", _TAKE, "sh", os.ttyname(theirs), *argv)
    try:
        process = await anyio.open_process(
            argv,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=line.environment,
            cwd=cwd,
            start_new_session=True,
            pass_fds=held.descriptors,
        )
    except OSError as error:
        if ours >= 0:
            os.close(ours)
        raise ToolFailure("tool_error", f"cannot run {argv[0]}: {error.strerror or error}") from error
    finally:
        for descriptor in (*held.descriptors, *([theirs] if theirs >= 0 else [])):
            os.close(descriptor)
    send, receive = anyio.create_memory_object_stream[Output](_AHEAD)
    running = Process(process, receive, ours, held)
    copying = (
        [partial(_copy_terminal, ours, send)]
        if ours >= 0
        else [partial(_copy, process.stdout, "stdout", send.clone()), partial(_copy, process.stderr, "stderr", send)]
    )
    try:
        async with _beside(*copying, *held.work()):
            try:
                yield running
            finally:
                await _end(running, process)
    finally:
        receive.close()
        if ours >= 0:
            os.close(ours)
        with anyio.CancelScope(shield=True):
            await process.aclose()


@asynccontextmanager
async def _beside(*work: _Work) -> AsyncGenerator[None]:
    """Run tasks until the context exits. Exceptions of the body come out as they are, not wrapped in a group."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        for one in work:
            group.start_soon(one)
        try:
            yield
        except Exception as raised:  # noqa: BLE001 - it is raised again behind the group
            failure = raised
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _terminal(rows: int, columns: int) -> tuple[int, int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.set_blocking(ours, False)
    return ours, theirs


async def _copy(
    source: anyio.abc.ByteReceiveStream | None,
    name: Literal["stdout", "stderr"],
    target: MemoryObjectSendStream[Output],
) -> None:
    assert source is not None
    async with target:
        with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                await target.send((name, await source.receive(_PIECE)))


async def _copy_terminal(descriptor: int, target: MemoryObjectSendStream[Output]) -> None:
    async with target:
        while True:
            await anyio.wait_readable(descriptor)
            try:
                piece = os.read(descriptor, _PIECE)
            except BlockingIOError:
                continue
            except OSError:  # the last process with the terminal has ended
                return
            if not piece:
                return
            try:
                await target.send(("stdout", piece))
            except anyio.BrokenResourceError:
                return


async def _end(running: Process, process: anyio.abc.Process) -> None:
    """End the whole group, even if the caller is cancelled; a process that ended may have left children."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            running.signal(signal.SIGTERM)
            with anyio.move_on_after(_GRACE):
                await process.wait()
        running.signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
