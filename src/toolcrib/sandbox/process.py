"""One process with its children, from its start to an end that is certain, within bounds.

The kernel's own limits are per process, and the one on their number does not apply to root. A control group does, and
where root runs us its first generation is often writable. Elsewhere the monitor alone counts processes, often enough to
stop a fork bomb before memory runs out.

    start ──► a session of its own ──► yield Process
                 beside it: output is copied to `read`, at most 16 pieces ahead; `HeldResources.work`
              end of the context: SIGTERM to all, up to a second, SIGKILL to the rest; the tasks are cancelled
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.abc
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Struct

from ..core.sandbox import Finished
from ..errors import ToolFailure
from .bubblewrap import CommandLimits, CommandLine
from .egress import SocketTransfer

_PIDS_CGROUP: Final = Path("/sys/fs/cgroup/pids")
_GROUP_PREFIX: Final = "toolcrib"
_BUBBLEWRAP_PROCESSES: Final = 2
"""bubblewrap, outside and inside."""
_CLOSE_SECONDS: Final = 1.0
_CLOSE_POLL_SECONDS: Final = 0.005

_UNCOUNTED_POLL_SECONDS: Final = 0.2
"""Seconds, where nothing else counts processes: a bomb makes some thousands meanwhile, and all end at once."""
_COUNTED_POLL_SECONDS: Final = 1.0
_STATUS_BYTES: Final = 4096
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

_PIECE_BYTES: Final = 64 * 1024
_MAX_UNREAD_PIECES: Final = 16
"""Unread pieces of output; the process blocks when there are more."""
_GRACE_SECONDS: Final = 1.0
"""Seconds between asking a command to end and killing it (security.md R9)."""
_TAKE_TERMINAL: Final = 'exec 0<>"$1" 1>&0 2>&0; shift; exec "$@"'
"""Makes a terminal that of its session: a session leader gets the first one that it opens."""

_Work = Callable[[], Coroutine[Any, Any, None]]
Output = tuple[Literal["stdout", "stderr"], bytes]


class ControlGroup:
    """Control group of one command; without effect where cgroups are unavailable. Closed once the command has ended.

    Only where root runs us, with the first generation of control groups (`/sys/fs/cgroup/pids`).
    """

    def __init__(self, processes: int, *, root: Path = _PIDS_CGROUP) -> None:
        """Make a group for so many processes at a time, threads included. Removes leftovers of killed processes."""
        self._path: Path | None = None
        if os.geteuid() != 0 or not (root / "cgroup.procs").exists():
            return
        path = root / f"{_GROUP_PREFIX}-{os.getpid()}-{secrets.token_hex(4)}"
        with suppress(OSError):
            _clear(root)
            path.mkdir()
            (path / "pids.max").write_text(str(processes + _BUBBLEWRAP_PROCESSES), encoding="ascii")
            self._path = path

    @property
    def entrance(self) -> str:
        """The file that a process joins by writing its id; empty without a group."""
        return str(self._path / "cgroup.procs") if self._path else ""

    @property
    def was_full(self) -> bool:
        """Whether a process was refused because the group was full."""
        if self._path is None:
            return False
        with suppress(OSError, ValueError, IndexError):
            return int((self._path / "pids.events").read_text(encoding="ascii").split()[1]) > 0
        return False

    async def close(self) -> None:
        """Remove the group once its last process has gone. One still busy after a second is left to a later sweep."""
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            while self._path is not None:
                with suppress(OSError):
                    self._path.rmdir()
                    return
                await anyio.sleep(_CLOSE_POLL_SECONDS)


def _clear(root: Path) -> None:
    """Remove the groups of processes that ended before they could."""
    for left in root.glob(f"{_GROUP_PREFIX}-*"):
        owner = left.name.split("-")[1]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            with suppress(OSError):
                left.rmdir()


class ProcessMonitor:
    """Monitor of the processes of one command, started from bubblewrap's status line. Lives as long as the command.

    Under bubblewrap the first process is the first of a process namespace, under Landlock the one that the supervisor
    watches: with either all others end.
    """

    def __init__(self, status: int, bounds: CommandLimits, disks: Sequence[Path], group: ControlGroup) -> None:
        """`status` is our end of the status pipe, which is closed with this; `disks` is where the command writes."""
        self._status = status
        self._bounds = bounds
        self._disks = disks
        self._group = group
        self._first = 0
        self.stopped = ""
        """The limit that ended the command, in words."""

    async def watch(self) -> None:
        """Look after the command until it is cancelled."""
        self._first = await self._child()
        while self._first:
            usage = await to_thread.run_sync(_usage, self._first, self._bounds.processes)
            self.stopped = self._exceeded_limit(*usage)
            if self.stopped:
                self.signal(signal.SIGKILL)
                return
            await anyio.sleep(_UNCOUNTED_POLL_SECONDS if os.geteuid() == 0 else _COUNTED_POLL_SECONDS)

    def signal(self, number: int) -> bool:
        """Send a signal to all of them; return whether they are known."""
        if not self._first:
            return False
        inside = (self._first,) if number == signal.SIGKILL else _descendants_of(self._first)
        for pid in inside:  # the death of the first process ends all others; it ignores signals other than SIGKILL
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return True

    def close(self) -> None:
        """Let the pipe go."""
        os.close(self._status)

    async def _child(self) -> int:
        """Return the first process inside, as we see it; 0 before it starts.

        bubblewrap writes it as a line of JSON, and the launcher of Landlock does the same.
        """
        status = b""
        while b"\n" not in status:
            await anyio.wait_readable(self._status)
            piece = os.read(self._status, _STATUS_BYTES)
            if not piece:
                return 0
            status += piece
        child = json.loads(status.partition(b"\n")[0]).get("child-pid")
        return child if isinstance(child, int) else 0

    def _exceeded_limit(self, processes: int, memory: int) -> str:
        if processes > self._bounds.processes or self._group.was_full:
            return f"more than {self._bounds.processes} processes at a time (setting `shell.processes`)"
        if memory > self._bounds.memory:
            return f"more than {self._bounds.memory >> 20} MiB of memory (setting `shell.memory_mb`)"
        if self._bounds.free and min(map(_free_bytes, self._disks)) < self._bounds.free:
            return f"less than {self._bounds.free >> 20} MiB are left on the disk"
        return ""


def _descendants_of(first: int) -> list[int]:
    """Return the processes that descend from one: inside, an orphan is given to the first."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                parents[int(name)] = int(_stat(int(name))[1])
    known = {first: True}
    for pid in parents:
        seen: list[int] = []
        at = pid
        while at not in known and at in parents:
            seen.append(at)
            at = parents[at]
        known |= dict.fromkeys(seen, known.get(at, False))
    return [pid for pid, is_below in known.items() if is_below and pid != first]


def _usage(first: int, most: int) -> tuple[int, int]:
    """Return the number of processes, and their bytes of unshared memory."""
    pids = _descendants_of(first)
    if len(pids) > most:
        return len(pids), 0
    size = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            resident, shared = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1:3]
            size += (int(resident) - int(shared)) * _PAGE_BYTES
    return len(pids), size


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name, which may hold anything: state, parent …"""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _free_bytes(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:  # the command has removed it
        return sys.maxsize
    return found.f_bavail * found.f_frsize


class HeldResources(Struct, frozen=True, kw_only=True):
    """Resources that a sandbox holds for one command."""

    descriptors: Sequence[int] = ()
    """Descriptors that it inherits, and that are closed here once it has them."""
    watched: ProcessMonitor | None = None
    """Monitor of the processes that the command started."""
    handing: SocketTransfer | None = None
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
        held: HeldResources,
    ) -> None:
        """`terminal` is our end of its terminal, -1 where it has pipes."""
        self._process = process
        self._output = output
        self._terminal = terminal
        self._watched = held.watched
        self._handing = held.handing
        self.comparison: Callable[[], Awaitable[Sequence[str]]] | None = None
        """Compares the folders of the command with what they were; None where they are not compared."""
        self.aside: Sequence[str] = ()
        """Forbidden files that the command created, under their new names."""
        self.programs: Sequence[str] = ()
        """Folders of programs that it changed."""
        self.unseen: Sequence[str] = ()
        """Folders of the workspace whose deepest parts were not compared."""

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

    async def compare(self) -> Sequence[str]:
        """Put aside what it has left behind so far; return the new names."""
        return await self.comparison() if self.comparison is not None else ()

    def signal(self, number: int) -> None:
        """Send a signal to it and to everything that it has started."""
        if self._process.returncode is None and self._watched is not None and self._watched.signal(number):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


@contextmanager
def unsent() -> Generator[Callable[[int], int]]:
    """Collect descriptors for `start`, which closes them; they are closed here if the block fails. -1 is none."""
    with ExitStack() as stack:

        def send(descriptor: int) -> int:
            if descriptor >= 0:
                stack.callback(os.close, descriptor)
            return descriptor

        yield send
        stack.pop_all()


@asynccontextmanager
async def start(
    line: CommandLine,
    cwd: Path | None,
    *,
    terminal: tuple[int, int] | None,
    held: HeldResources | None = None,
) -> AsyncGenerator[Process]:
    """Run a command in a group of its own until the context exits; processes left in the group are killed.

    Raises `ToolFailure("tool_error")` when the program does not exist.

    The descriptors of `held` are closed here in any case. What else a sandbox holds (`ProcessMonitor`,
    `SocketTransfer`, `ControlGroup`) it closes itself, behind this context.
    """
    held = held or HeldResources()
    argv = line.argv
    ours, theirs = -1, -1
    try:
        if terminal:
            ours, theirs = _terminal(*terminal)
            argv = ("/bin/sh", "-c", _TAKE_TERMINAL, "sh", os.ttyname(theirs), *argv)
        pipe = theirs if terminal else -1
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
    send, receive = anyio.create_memory_object_stream[Output](_MAX_UNREAD_PIECES)
    running = Process(process, receive, ours, held)
    copying = (
        [partial(_copy_terminal, ours, send)]
        if ours >= 0
        else [partial(_copy, process.stdout, "stdout", send.clone()), partial(_copy, process.stderr, "stderr", send)]
    )
    try:
        async with _run_beside(*copying, *held.work()):
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
async def _run_beside(*work: _Work) -> AsyncGenerator[None]:
    """Run tasks until the context exits. Exceptions of the body come out as they are, not wrapped in a group.

    They are cancelled when the body ends: output that was not read by then is lost.
    """
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
    ours, theirs = os.openpty()
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
                await target.send((name, await source.receive(_PIECE_BYTES)))


async def _copy_terminal(descriptor: int, target: MemoryObjectSendStream[Output]) -> None:
    async with target:
        while True:
            await anyio.wait_readable(descriptor)
            try:
                piece = os.read(descriptor, _PIECE_BYTES)
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
            with anyio.move_on_after(_GRACE_SECONDS):
                await process.wait()
        running.signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
