"""Egress of a sandbox without a network: a socket that is made inside and served outside.

A launcher of ours starts the command. It listens on a port of the sandbox's own 127.0.0.1, sends that socket to us and
becomes the command, which finds the address in the usual proxy variables.

    inside    listen.py binds 127.0.0.1:3128, sends the socket ──► control ──► becomes the command
    outside   SocketTransfer.serve receives it ──► Outlet.serve (`net.proxy`), for the hosts of `Reach` alone
    ssh       `connect.py`, by `TOOLCRIB_PROXY_COMMAND`, since it reads no proxy variable
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import SocketListener

from ..core.sandbox import Outlet, Reach

_PROXY_PORT: Final = 3128
"""Of the sandbox's own 127.0.0.1, unused before the command."""
INSIDE: Final = (Path(__file__).parent / "inside", Path("/run/toolcrib"))
"""Folder of the programs that run inside the sandbox."""
_MAX_REFUSALS: Final = 20
"""Different refusals that are reported."""


def environment(reach: Reach) -> dict[str, str]:
    """Return the variables by which programs find the proxy, which alone resolves names.

    A server of the command itself is reached without the proxy; a name of this machine is, when `reach` permits it,
    through it.
    """
    proxy = f"http://127.0.0.1:{_PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    outside = {text.rpartition(":")[0].strip("[]") for text in reach.private}
    own = ",".join(name for name in ("localhost", "127.0.0.1", "::1") if name not in outside)
    return {
        **dict.fromkeys(names, proxy),
        "NO_PROXY": own,
        "no_proxy": own,
        "NODE_USE_ENV_PROXY": "1",
        "TOOLCRIB_PROXY_COMMAND": f"{' '.join(python())} {INSIDE[1]}/connect.py {_PROXY_PORT}",
    }


def starter(control: int) -> tuple[str, ...]:
    """Return the launcher to put before a command: it sends the socket over the descriptor `control`."""
    return (*python(), f"{INSIDE[1]}/listen.py", str(control), str(_PROXY_PORT))


def python() -> tuple[str, ...]:
    """Return our Python with its path inside: without a virtual environment and site packages."""
    return getattr(sys, "_base_executable", sys.executable), "-I", "-S"


class SocketTransfer:
    """Waits for the socket of one command and has it served. Lives as long as the command.

    `control` is closed by `process.start`, once the command has it; `close` lets our end go.
    """

    def __init__(self, outlet: Outlet, reach: Reach) -> None:
        """Make the pair that it comes over; `control` is the end for inside."""
        self._outlet = outlet
        self._reach = reach
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.control = theirs.detach()
        self._refused: dict[str, None] = {}

    @property
    def refused(self) -> tuple[str, ...]:
        """Destinations that were refused."""
        return tuple(self._refused)

    async def serve(self) -> None:
        """Serve the command until this is cancelled."""
        listener = await self._receive_listener()
        if listener is not None:
            await self._outlet.serve(listener, self._reach, self._note_refusal)

    def close(self) -> None:
        """Let our end go."""
        self._ours.close()

    async def _receive_listener(self) -> SocketListener | None:
        """Return the socket; None when the launcher failed, which reports the reason itself."""
        await anyio.wait_readable(self._ours)
        _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        if not descriptors:
            return None
        made = socket.socket(fileno=descriptors[0])
        made.setblocking(False)
        return await SocketListener.from_socket(made)

    def _note_refusal(self, destination: str) -> None:
        """Note each destination once: the result of the command has them, and a program that retries would fill it."""
        if len(self._refused) < _MAX_REFUSALS:
            self._refused[destination] = None
