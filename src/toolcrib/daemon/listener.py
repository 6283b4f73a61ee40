"""Listener of the local daemon: admits clients of the same user, counts them, and ends when idle. POSIX only."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..errors import UsageError
from ..server.stdio import Link
from .control import WAYS, DaemonClient, DaemonStatus, Way
from .rendezvous import GREETING_BYTES, Hello, Meeting, Welcome, is_same_user

__all__ = ["GREETING_SECONDS", "LocalServer", "Serve"]

GREETING_SECONDS: Final = 5.0
"""A connection that has not sent its greeting by then is closed."""

_BACKLOG: Final = 128

Serve = Callable[[Hello, Link, bytes], Awaitable[None]]
"""Serves one client to its end. The bytes are what came behind the greeting."""

_log = logging.getLogger(__name__)


class LocalServer:
    """Listener at a rendezvous: passes every client to `serve`, until it has been idle for long enough.

    Used once: `run` returns when the last client has left and the idle time is over, or after `stop` when the present
    clients have ended.
    """

    def __init__(
        self,
        meeting: Meeting,
        *,
        serve: Serve,
        serves: Callable[[Hello], str],
        version: str,
        idle_seconds: float,
        works: Callable[[], bool] = lambda: False,
        control: Callable[[Way, int], DaemonStatus] | None = None,
    ) -> None:
        """`serves` returns a short summary for a greeting, or raises `UsageError` to refuse a client.

        `works` returns whether work continues for clients that have left. `control` answers a request for the status or
        the end, with the id of the process that asks.
        """
        self.stopping = anyio.Event()
        """Set once the server takes no more clients: every connection finishes its running calls and ends."""
        self._meeting = meeting
        self._serve = serve
        self._serves = serves
        self._version = version
        self._idle_seconds = idle_seconds
        self._works = works
        self._control = control
        self._connections = 0
        self._clients: dict[object, DaemonClient] = {}
        self._idle_since = 0.0
        self._changed = anyio.Event()

    async def run(self, listening: Callable[[], None]) -> None:
        """Serve; `listening` is called once clients can connect. The caller holds the meeting's lock."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            self._listen(listener)
            try:
                async with anyio.create_task_group() as clients:
                    accepting = await clients.start(self._accept, listener, clients)
                    listening()
                    await self._until_idle()
                    self.stop()
                    accepting.cancel()
                    self._meeting.socket.unlink(missing_ok=True)
            finally:
                self._meeting.socket.unlink(missing_ok=True)

    @property
    def clients(self) -> Sequence[DaemonClient]:
        """The clients that are served now, oldest first."""
        return tuple(self._clients.values())

    def stop(self) -> None:
        """Take no more clients and let those there are end."""
        self.stopping.set()
        self._note()

    def _listen(self, listener: socket.socket) -> None:
        """Bind over the socket of a killed daemon; the directory keeps others out until the mode is set."""
        self._meeting.socket.unlink(missing_ok=True)
        listener.setblocking(False)
        with self._meeting.address() as address:
            listener.bind(address)
        self._meeting.socket.chmod(0o600)
        listener.listen(_BACKLOG)

    async def _accept(
        self,
        listener: socket.socket,
        clients: TaskGroup,
        *,
        task_status: TaskStatus[anyio.CancelScope] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.CancelScope() as accepting:
            task_status.started(accepting)
            while True:
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    await anyio.wait_readable(listener)
                except ConnectionError:
                    continue
                else:
                    clients.start_soon(self._meet, Link(connection))

    async def _meet(self, link: Link) -> None:
        self._connections += 1
        self._note()
        try:
            async with link:
                await self._greet(link)
        except ConnectionError:
            _log.info("a client went away")
        except Exception:  # noqa: BLE001 - one client's bad luck is not the others'
            _log.exception("a client could not be served to its end")
        finally:
            self._connections -= 1
            self._note()

    async def _greet(self, link: Link) -> None:
        if not is_same_user(link.socket):
            _log.warning("refused a process of another user")
            return
        try:
            with anyio.fail_after(GREETING_SECONDS):
                line, rest = await _first_line(link)
            hello = Hello.decode(line)
        except (TimeoutError, ValueError):
            _log.warning("refused a process that does not greet")
            return
        if self._control is not None and hello.way in WAYS:
            await link.send(self._control(hello.way, hello.pid).encode())
            return
        if self.stopping.is_set():
            return
        welcome = self._answer(hello)
        await link.send(welcome.encode())
        if not welcome.error:
            await self._serve_client(hello, link, rest)

    async def _serve_client(self, hello: Hello, link: Link, received: bytes) -> None:
        token = object()
        self._clients[token] = DaemonClient(
            pid=hello.pid, since=time.time(), cwd=hello.cwd, profile=hello.profile, mode=hello.mode, way=hello.way
        )
        try:
            await self._serve(hello, link, received)
        finally:
            del self._clients[token]
            self._idle_since = time.monotonic()

    def _answer(self, hello: Hello) -> Welcome:
        if (hello.key, hello.version) != (self._meeting.key, self._version):
            return Welcome(pid=os.getpid(), error="it was started for another configuration or version")
        try:
            return Welcome(pid=os.getpid(), serves=self._serves(hello))
        except UsageError as error:
            return Welcome(pid=os.getpid(), error=str(error))

    async def _until_idle(self) -> None:
        """Return when there was no client for the whole of the idle time and nothing works, or on `stop`.

        A request for the status is no client: asking does not keep the server alive.
        """
        self._idle_since = time.monotonic()
        while not self.stopping.is_set():
            self._changed = anyio.Event()
            rest = self._idle_since + self._idle_seconds - time.monotonic()
            with anyio.move_on_after(float("inf") if self._connections else max(rest, 0.0)) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught:
                if not self._works():
                    return
                self._idle_since = time.monotonic()

    def _note(self) -> None:
        self._changed.set()


async def _first_line(link: Link) -> tuple[bytes, bytes]:
    """Return the first line and the bytes behind it; raises `ValueError` for an invalid greeting."""
    received = b""
    while b"\n" not in received:
        chunk = await link.receive()
        received += chunk
        if not chunk or len(received) > GREETING_BYTES:
            raise ValueError("the greeting has no end")
    line, _, rest = received.partition(b"\n")
    return line, rest
