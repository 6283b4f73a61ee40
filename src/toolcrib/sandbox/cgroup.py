"""Control group of one command: a bound on processes that holds for root too.

The kernel's limit on the processes of a user does not count those of root. Its control groups do, and where root runs
us their first generation is often there to be written: a bomb has no room, and is found out before it has taken the
machine. Elsewhere `watching` counts alone.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

__all__ = ["Group"]

_PIDS: Final = Path("/sys/fs/cgroup/pids")
_NAME: Final = "toolcrib"
_OURS: Final = 2
"""bubblewrap, outside and inside."""
_PATIENCE: Final = 1.0
_AGAIN: Final = 0.005


class Group:
    """Control group of one command; without effect where cgroups are unavailable. Closed once the command has ended."""

    def __init__(self, processes: int, *, root: Path = _PIDS) -> None:
        """Make a group for so many processes at a time, threads included. Clears what killed processes have left."""
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
