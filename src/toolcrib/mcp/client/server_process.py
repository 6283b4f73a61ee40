"""Process of a stdio server: its start, its end with all that it started, and the last lines of its standard error."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.abc

from ...system.child_processes import shared_reaper
from .crash_reports import crash_reason
from .transport import LinkLost

_LINES_PER_SECOND: Final = 20
_LINE_CHARACTERS: Final = 500

_PIPE_BYTES: Final = 1024 * 1024
"""Asked of the kernel for the child's stdout: fewer wake-ups when it sends much. Linux only, and only a wish."""

_F_SETPIPE_SZ: Final = 1031


class Stderr:
    """The end of one stream, in memory. Lives as long as its link, which gives the last words of a dead server."""

    def __init__(self, server: str, limit: int) -> None:
        """`limit` is in bytes."""
        self._log = logging.getLogger(f"toolcrib.server.{server}")
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._second = 0
        self._shown_in_second = 0

    def feed(self, data: bytes) -> None:
        """Take a chunk in."""
        self._chunks.append(data)
        self._size += len(data)
        while self._size > self._limit and len(self._chunks) > 1:
            self._size -= len(self._chunks.popleft())
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._shown_in_second = second, 0
        room = _LINES_PER_SECOND - self._shown_in_second
        if room <= 0 or not self._log.isEnabledFor(logging.DEBUG):
            return
        *lines, _ = data.split(b"\n", room)
        self._shown_in_second += len(lines)
        for line in lines:
            self._log.debug("%s", printable(line[: _LINE_CHARACTERS * 4].decode("utf-8", "replace")))

    def tail(self) -> str:
        """The last of it, at most the limit."""
        return b"".join(self._chunks)[-self._limit :].decode("utf-8", "replace")

    def reason(self) -> str:
        """The line that says why its writer ended, cut to a readable length."""
        return printable(crash_reason(self.tail()))


def printable(line: str) -> str:
    """Make an untrusted line safe for a log and a terminal."""
    cut = line if len(line) <= _LINE_CHARACTERS else line[:_LINE_CHARACTERS] + "…"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in cut)


class Child:
    """A running process. Its descriptors are non-blocking and belong to its starter until `close_pipes`."""

    def __init__(self, process: anyio.abc.Process, stdin: int, stdout: int, stderr: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._process = process
        self._open = {stdin, stdout, stderr}

    @classmethod
    async def start(cls, command: list[str], environment: Mapping[str, str], folder: str) -> Child:
        """Start `command`; raises `LinkLost` with a reason that an operator can act on.

        Not interrupted by cancellation: that would end the server and neither its children nor our ends of the pipes.
        """
        started: list[Child] = []
        with anyio.CancelScope(shield=True):
            started.append(await cls._start(command, environment, folder))
        return started[0]

    @classmethod
    async def _start(cls, command: list[str], environment: Mapping[str, str], folder: str) -> Child:
        pipes = [os.pipe() for _ in range(3)]
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = pipes
        try:
            process = await anyio.open_process(
                command,
                stdin=their_in,
                stdout=their_out,
                stderr=their_err,
                env=environment,
                cwd=folder or None,
                start_new_session=True,
            )
        except BaseException as error:  # also a task that is cancelled past every shield, as a loop that ends does it
            for one in (our_in, our_out, our_err):
                os.close(one)
            if isinstance(error, OSError | ValueError):
                raise LinkLost(f"cannot run: {_why_not(command[0], folder, error)}", written=False) from error
            raise
        finally:
            for one in (their_in, their_out, their_err):
                os.close(one)
        shared_reaper().watch(process.pid)
        for one in (our_in, our_out, our_err):
            os.set_blocking(one, False)
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                fcntl.fcntl(our_out, _F_SETPIPE_SZ, _PIPE_BYTES)
        return cls(process, our_in, our_out, our_err)

    @property
    def pid(self) -> int:
        """The process id, and the id of its group."""
        return self._process.pid

    @property
    def ending(self) -> str:
        """Description of its end; empty while it runs."""
        status = self._process.returncode
        if status is None:
            return ""
        if status >= 0:
            return f"exited with status {status}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"

    @property
    def group_gone(self) -> bool:
        """Whether neither the process nor anything it started in its group is left to read what was sent."""
        if self._process.returncode is None:
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    async def wait(self) -> None:
        """Return when the process itself has ended, even if other processes hold its pipes."""
        await self._process.wait()

    def close_pipe(self, descriptor: int) -> None:
        """Close one of the three; safe to call twice."""
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)

    def close_pipes(self) -> None:
        """Close all that are still open."""
        for descriptor in list(self._open):
            self.close_pipe(descriptor)

    async def end(self, grace: float) -> None:
        """End the whole group: wait `grace` for it to go by itself, SIGTERM, wait again, SIGKILL.

        Its stdin must have been closed. Returns when the process is gone; not interrupted by cancellation.
        """
        with anyio.CancelScope(shield=True):
            if grace > 0 and not await self._gone(grace):
                self.signal(signal.SIGTERM)
                await self._gone(grace)
            self.signal(signal.SIGKILL)
            await self._process.wait()
        shared_reaper().forget(self.pid)

    def signal(self, number: int) -> None:
        """Send a signal to every process of the group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _gone(self, limit: float) -> bool:
        with anyio.move_on_after(limit):
            await self._process.wait()
            return True
        return False


def _why_not(command: str, folder: str, error: OSError | ValueError) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOENT and folder and not os.path.isdir(folder):
        return f"the working directory {folder} does not exist"
    if number == errno.ENOENT:
        words = "; what follows the program goes into `args`" if len(command.split()) > 1 else ""
        return f"the command {command!r} was not found{words}"
    if number in (errno.EACCES, errno.EPERM, errno.ENOEXEC):
        return f"the command {command!r} cannot be executed: {os.strerror(number or 0)}"
    return f"the command {command!r} cannot be started: {error}"
