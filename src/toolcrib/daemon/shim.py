"""Shim: `toolcrib serve` over stdio, as a client starts it; joins or starts the local daemon, and relays bytes.

A client starts one shim for each of its sessions, so the shim loads the standard library only, holds no state, and does
not parse MCP. It lives as long as the client's pipe and the daemon do. POSIX only.

The daemon's death ends the session with a message, because pending answers are lost with it; a daemon that ends before
the client has sent anything is simply joined again.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from ..errors import CODES, UsageError
from ..server.pipes import relay
from .rendezvous import DaemonEndpoint, DaemonPlace, Hello, Order, Welcome, open_log, receive_line

__all__ = ["JOIN_SECONDS", "Shim", "start_unread"]

JOIN_SECONDS: Final = 20.0
"""Maximum seconds from a daemon's start to its first greeting; several on a busy machine."""

_CHUNK: Final = 64 * 1024
_RETRY_SECONDS: Final = 0.02
_LOST: Final = CODES["unavailable"].exit


class Shim(NamedTuple):
    """One client session. `order` starts a daemon if none runs; its descriptors are set here."""

    endpoint: DaemonEndpoint
    hello: Hello
    order: Order
    say: Callable[[str], None]
    """Writes one line for the person."""

    def run(self, source: int, sink: int) -> int:
        """Relay between the client's pipe and the daemon until either ends; return the exit status.

        `source` and `sink` are descriptors of the client's pipe. Raises `UsageError` when no daemon can be had.
        """
        while True:
            link, welcome = self.join()
            self.say(f"joined the local daemon (process {welcome.pid}): {welcome.serves}")
            with link:
                if _client_speaks(source, link):
                    return self._relay(source, sink, link)

    def join(self) -> tuple[socket.socket, Welcome]:
        """Return a connection on which greetings were exchanged. Raises `UsageError` when no daemon can be had."""
        deadline = time.monotonic() + JOIN_SECONDS
        while time.monotonic() < deadline:
            link = self.endpoint.connect()
            welcome = self._greet(link, deadline) if link else None
            if link and welcome:
                return link, welcome
            lock = self.endpoint.lock()
            if lock is None:
                time.sleep(_RETRY_SECONDS)
                continue
            try:
                self._start(lock)
            finally:
                os.close(lock)
        raise UsageError(
            f"the local daemon did not answer within {JOIN_SECONDS:.0f} s: look into {self.order.log}, "
            "end it (`toolcrib daemon stop`), or serve without it (--no-daemon)"
        )

    def _greet(self, link: socket.socket, deadline: float) -> Welcome | None:
        """Exchange greetings; None when the daemon was on its way out."""
        link.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            link.sendall(self.hello.encode())
            line = receive_line(link)
        except (TimeoutError, ConnectionError):
            line = b""
        if not line:
            link.close()
            return None
        link.settimeout(None)
        welcome = Welcome.decode(line)
        if welcome.error:
            link.close()
            raise UsageError(f"the local daemon (process {welcome.pid}) refused: {welcome.error}")
        return welcome

    def _start(self, lock: int) -> None:
        """Start a daemon that owns `lock`, and wait until it listens."""
        answer = _spawn(self.order._replace(lock=lock))
        if answer != b"ready":
            reason = answer.decode(errors="replace").strip() or f"it ended at once; look into {self.order.log}"
            raise UsageError(f"the local daemon cannot serve: {reason}")

    def _relay(self, source: int, sink: int, link: socket.socket) -> int:
        """Copy both ways until either side ends; return the exit status."""
        if relay(source, sink, link):
            return 0
        self.say(f"the local daemon has ended, and this session with it; start it again, or look into {self.order.log}")
        return _LOST


def start_unread(order: Order) -> DaemonPlace | None:
    """Start a daemon that reads the configuration itself; return what it found there.

    An `order` without a key. The daemon listens when this returns, or leaves its place to another one that does. None
    when it cannot serve: the configuration is broken, or there is no place for a daemon.
    """
    try:
        return DaemonPlace.decode(_spawn(order))
    except ValueError:
        return None


def _spawn(order: Order) -> bytes:
    """Start a daemon's process with its order; return its report."""
    report, reporter = os.pipe()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become_daemon(order, reader, (reporter, *([order.lock] if order.lock >= 0 else ())))
    os.close(reporter)
    os.close(reader)
    try:
        os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as pipe:
            pipe.write(order._replace(report=reporter).encode())
        return _read_all(report, JOIN_SECONDS)
    finally:
        os.close(report)


def _client_speaks(source: int, link: socket.socket) -> bool:
    """Wait for the client's first bytes, or its end; False when the daemon ended before.

    The daemon sends nothing unasked, so a readable daemon has ended.
    """
    ready, _, _ = select.select([source, link], [], [])
    return link not in ready


def _read_all(source: int, seconds: float) -> bytes:
    """Read until the writer closes or the time is over."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    while select.select([source], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(source, _CHUNK)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _become_daemon(order: Order, source: int, keep: tuple[int, ...]) -> NoReturn:
    """Run the daemon's program in this child, out of the client's session and its tree of processes.

    A client that ends kills the group or the tree of its children, and the daemon serves others too.
    """
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        output = open_log(order.log) if order.log else os.open(os.devnull, os.O_WRONLY)
        os.dup2(source, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in keep:
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, [sys.executable, "-P", "-m", order.module])
    finally:
        os._exit(70)
