"""Bounds of a command's processes: a control group, and a monitor of ids, memory and disk that ends them.

The kernel's own limits are per process, and the one on their number does not apply to root. A control group does, and
where root runs us its first generation is often writable. Elsewhere the monitor alone counts processes, often enough to
stop a fork bomb before memory runs out.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from .bubblewrap import Bounds

__all__ = ["Group", "Watched"]

_PIDS: Final = Path("/sys/fs/cgroup/pids")
_NAME: Final = "toolcrib"
_OURS: Final = 2
"""bubblewrap, outside and inside."""
_PATIENCE: Final = 1.0
_AGAIN: Final = 0.005


class Group:
    """Control group of one command; without effect where cgroups are unavailable. Closed once the command has ended."""

    def __init__(self, processes: int, *, root: Path = _PIDS) -> None:
        """Make a group for so many processes at a time, threads included. Removes leftovers of killed processes."""
        self._path: Path | None = None
        if os.geteuid() != 0 or not (root / "cgroup.procs").exists():
            return
        path = root / f"{_NAME}-{os.getpid()}-{secrets.token_hex(4)}"
        with suppress(OSError):
            _clear(root)
            path.mkdir()
            (path / "pids.max").write_text(str(processes + _OURS), encoding="ascii")
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
        with anyio.move_on_after(_PATIENCE, shield=True):
            while self._path is not None:
                with suppress(OSError):
                    self._path.rmdir()
                    return
                await anyio.sleep(_AGAIN)


def _clear(root: Path) -> None:
    """Remove the groups of processes that ended before they could."""
    for left in root.glob(f"{_NAME}-*"):
        owner = left.name.split("-")[1]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            with suppress(OSError):
                left.rmdir()


_OFTEN: Final = 0.2
"""Seconds, where nothing else counts processes: a bomb makes some thousands meanwhile, and all end at once."""
_SELDOM: Final = 1.0
_ANSWER: Final = 4096
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Watched:
    """Monitor of the processes of one command, started from bubblewrap's status line. Lives as long as the command."""

    def __init__(self, status: int, bounds: Bounds, disk: Path, group: Group) -> None:
        """`status` is our end of the status pipe, which is closed with this; `disk` is where the command writes."""
        self._status = status
        self._bounds = bounds
        self._disk = disk
        self._group = group
        self._first = 0
        self.stopped = ""
        """The limit that ended the command, in words."""

    async def watch(self) -> None:
        """Look after the command until it is cancelled."""
        self._first = await self._child()
        while self._first:
            usage = await to_thread.run_sync(_usage, self._first, self._bounds.processes)
            self.stopped = self._too_much(*usage)
            if self.stopped:
                self.signal(signal.SIGKILL)
                return
            await anyio.sleep(_OFTEN if os.geteuid() == 0 else _SELDOM)

    def signal(self, number: int) -> bool:
        """Send a signal to all of them; return whether they are known."""
        if not self._first:
            return False
        inside = (self._first,) if number == signal.SIGKILL else _below(self._first)
        for pid in inside:  # the death of the first process ends all others; it ignores signals other than SIGKILL
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return True

    def close(self) -> None:
        """Let the pipe go."""
        os.close(self._status)

    async def _child(self) -> int:
        """Return the first process inside, as we see it; 0 before it starts."""
        status = b""
        while b"\n" not in status:
            await anyio.wait_readable(self._status)
            piece = os.read(self._status, _ANSWER)
            if not piece:
                return 0
            status += piece
        child = json.loads(status.partition(b"\n")[0]).get("child-pid")
        return child if isinstance(child, int) else 0

    def _too_much(self, processes: int, memory: int) -> str:
        if processes > self._bounds.processes or self._group.was_full:
            return f"more than {self._bounds.processes} processes at a time"
        if memory > self._bounds.memory:
            return f"more than {self._bounds.memory >> 20} MiB of memory"
        if self._bounds.free and _free(self._disk) < self._bounds.free:
            return f"less than {self._bounds.free >> 20} MiB are left on the disk"
        return ""


def _below(first: int) -> list[int]:
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
    pids = _below(first)
    if len(pids) > most:
        return len(pids), 0
    size = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            resident, shared = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1:3]
            size += (int(resident) - int(shared)) * _PAGE
    return len(pids), size


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name, which may hold anything: state, parent …"""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
