"""Listener of the local daemon: admits clients of its user, counts them, and rests or ends when idle. POSIX only."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from ..errors import UsageError
from ..server.stdio import Link
from .commands import GREETING_SECONDS, Commands, first_line
from .control import COMMAND, WAYS, DaemonClient, DaemonStatus, Way
from .rendezvous import DaemonEndpoint, Hello, Welcome, is_same_user

_BACKLOG: Final = 128
_SOCKET_SECONDS: Final = 2.0
"""Seconds between two looks whether the socket is still there: programs that clean up remove old files."""
Serve = Callable[[Hello, Link, bytes], Awaitable[None]]
"""Serves one client to its end. The bytes are what came behind the greeting."""

_logger = logging.getLogger(__name__)


class Rest(Struct, frozen=True, kw_only=True):
    """A rest of the daemon: what clients are served with is closed, and the next client opens it again."""

    opened: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext
    """Keeps it open while clients come."""
    seconds: float = 0.0
    """Length of a rest, behind the idle time; 0 is none: the daemon ends then."""
    is_current: Callable[[], bool] = lambda: True
    """Whether clients would still find this daemon; called in a thread."""
    hand_over: Callable[[], bool] = lambda: False
    """Leave work that goes on without clients to a daemon that they would find, if this is not it; return whether that
    was done. Called in a thread."""
    look_seconds: float = 30.0
    """Seconds between two looks of a resting daemon at what would end it."""


class LocalServer:
    """Listener at a rendezvous: passes every client to `serve`, until it has been idle for long enough.

    Used once: `run` returns when the last client has left and the idle time is over, and the time to rest behind it, or
    after `stop` when the present clients have ended.

        serving ── no client for `idle_seconds`, no work ──► resting ── `Rest.seconds`, or not current ──► end
           ▲                                                    │
           └─────────────── a client greets ────────────────────┘

    It accepts connections in both states. A client that greets during a rest, or while the services are being closed,
    waits in `_wake` until they are open again.
    """

    def __init__(
        self,
        endpoint: DaemonEndpoint,
        *,
        serve: Serve,
        greeting: Callable[[Hello], str],
        store: str = "",
        version: str,
        idle_seconds: float,
        works: Callable[[], bool] = lambda: False,
        control: Callable[[Way, int], Awaitable[DaemonStatus]] | None = None,
        commands: Commands | None = None,
        rest: Rest | None = None,
    ) -> None:
        """`greeting` returns a short summary of what is served, or raises `UsageError` to refuse a client.

        `store` is that of `Welcome`. `works` returns whether work continues for clients that have left. `control`
        answers a request for the status or the end, with the id of the process that asks, `commands` one for a whole
        command.
        """
        self.stopping = anyio.Event()
        """Set once the server takes no more clients: every connection finishes its running calls and ends."""
        self._endpoint = endpoint
        self._serve = serve
        self._greeting = greeting
        self._store = store
        self._version = version
        self._idle_seconds = idle_seconds
        self._works = works
        self._control = control
        self._commands = commands
        self._rest = rest or Rest()
        self._connections = 0
        self._clients: dict[object, DaemonClient] = {}
        self._idle_since = 0.0
        self._changed = anyio.Event()
        self._awake = anyio.Event()
        self._wanted = False
        self._rests = False
        self._socket_file = 0

    async def run(self, listening: Callable[[], None]) -> None:
        """Serve; `listening` is called once clients can connect. The caller holds its lock."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            self._listen(listener)
            try:
                async with anyio.create_task_group() as clients:
                    accepting = await clients.start(self._accept, listener, clients)
                    try:
                        await self._alternate(listening)
                    finally:
                        accepting.cancel()
                        self._leave()
            finally:
                self._leave()

    async def _alternate(self, listening: Callable[[], None]) -> None:
        """Serve and rest in turn, to the end of both."""
        while not self.stopping.is_set():
            async with self._rest.opened():
                self._awake.set()
                listening()
                listening = _nothing
                await self._until_idle()
                if self.stopping.is_set() or not self._rest.seconds:
                    self.stop()
                    self._leave()
                    while self._connections:
                        await self._change()
                    return
                # Before the services close: a client that greets meanwhile waits for the next ones, not for these.
                self._awake, self._wanted = anyio.Event(), False
            gc.collect()  # of what was served with, which refers to itself
            self._rests = True
            await self._until_wanted()
            self._rests = False

    @property
    def clients(self) -> Sequence[DaemonClient]:
        """The clients that are served now, oldest first."""
        return tuple(self._clients.values())

    def stop(self) -> None:
        """Take no more clients and let those there are end."""
        self.stopping.set()
        self._awake.set()
        self._note()

    def _leave(self) -> None:
        """Remove the socket, unless it is another daemon's by now."""
        if self._is_there():
            self._endpoint.socket.unlink(missing_ok=True)

    def _is_there(self) -> bool:
        """Whether the socket is still the one that was made here."""
        try:
            return self._endpoint.socket.stat().st_ino == self._socket_file
        except OSError:
            return False

    def _listen(self, listener: socket.socket) -> None:
        """Bind over the socket of a killed daemon; the directory keeps others out until the mode is set."""
        self._endpoint.socket.unlink(missing_ok=True)
        listener.setblocking(False)
        with self._endpoint.address() as address:
            listener.bind(address)
        self._endpoint.socket.chmod(0o600)
        self._socket_file = self._endpoint.socket.stat().st_ino
        listener.listen(_BACKLOG)

    def _listen_again(self, listener: socket.socket) -> socket.socket:
        """Return a listener in the place of one whose file is gone: no client finds that one."""
        again = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listen(again)
        except OSError:  # its directory is gone, too
            again.close()
            return listener
        _logger.warning("listening again: %s was removed", self._endpoint.socket)
        listener.close()
        return again

    async def _accept(
        self,
        listener: socket.socket,
        clients: TaskGroup,
        *,
        task_status: TaskStatus[anyio.CancelScope] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            with anyio.CancelScope() as accepting:
                task_status.started(accepting)
                while True:
                    try:
                        connection, _ = listener.accept()
                    except BlockingIOError:
                        with anyio.move_on_after(_SOCKET_SECONDS):
                            await anyio.wait_readable(listener)
                        if not self.stopping.is_set() and not self._endpoint.socket.exists():
                            listener = self._listen_again(listener)
                    except ConnectionError:
                        continue
                    else:
                        clients.start_soon(self._meet, Link(connection))
        finally:
            listener.close()

    async def _meet(self, link: Link) -> None:
        self._connections += 1
        self._note()
        try:
            async with link:
                await self._greet(link)
        except ConnectionError:
            _logger.info("a client went away")
        except Exception:  # one client's bad luck is not the others'
            _logger.exception("a client could not be served to its end")
        finally:
            self._connections -= 1
            self._note()

    async def _greet(self, link: Link) -> None:
        if not is_same_user(link.socket):
            _logger.warning("refused a process of another user")
            return
        try:
            with anyio.fail_after(GREETING_SECONDS):
                line, rest = await first_line(link)
            hello = Hello.decode(line)
        except (TimeoutError, ValueError):
            _logger.warning("refused a process that does not greet")
            return
        if self._control is not None and hello.way in WAYS:
            status = await self._control(hello.way, hello.pid)
            await link.send(status.encode())
            return
        if self.stopping.is_set():
            return
        if hello.way == COMMAND:
            await self._answer_command(hello, link, rest)
            return
        if self._rests and hello.key == self._endpoint.key and not await self._is_wanted(hello):
            self.stop()  # the client starts its own, once this one has ended
            return
        if (hello.key, hello.version) == (self._endpoint.key, self._version):
            await self._wake()
        if self.stopping.is_set():
            return
        welcome = self._answer(hello)
        await link.send(welcome.encode())
        if not welcome.error:
            await self._serve_client(hello, link, rest)

    async def _answer_command(self, hello: Hello, link: Link, received: bytes) -> None:
        _logger.info("process %d asks for a command", hello.pid)
        if self._commands is not None:
            await self._commands.answer(link, received, self.stopping)

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

    async def _is_wanted(self, hello: Hello) -> bool:
        """Whether this server, which rests, is what a client looks for."""
        return hello.version == self._version and await anyio.to_thread.run_sync(self._is_found)

    async def _wake(self) -> None:
        """Wait until clients can be served."""
        self._wanted = True
        self._note()
        await self._awake.wait()

    def _answer(self, hello: Hello) -> Welcome:
        if (hello.key, hello.version) != (self._endpoint.key, self._version):
            return Welcome(pid=os.getpid(), error="it was started for another configuration or version")
        try:
            return Welcome(pid=os.getpid(), serves=self._greeting(hello), store=self._store)
        except UsageError as error:
            return Welcome(pid=os.getpid(), error=str(error))

    async def _until_idle(self) -> None:
        """Return when there was no client for the whole of the idle time and nothing works, or on `stop`.

        A request for the status is not a client: asking does not keep the server alive.
        """
        self._idle_since = time.monotonic()
        while not self.stopping.is_set():
            self._changed = anyio.Event()
            rest = self._idle_since + self._idle_seconds - time.monotonic()
            with anyio.move_on_after(float("inf") if self._connections else max(rest, 0.0)) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught and not self._connections:
                if not self._works() or not self._is_there():  # without its socket, nothing can ask what it does
                    return
                if await anyio.to_thread.run_sync(self._rest.hand_over) and not self._connections:
                    return
                self._idle_since = time.monotonic()

    async def _until_wanted(self) -> None:
        """Return when a client greets; stop at the end of the rest, and when no client would come here any more."""
        end = time.monotonic() + self._rest.seconds
        while not (self._wanted or self.stopping.is_set()):
            if time.monotonic() >= end or not await anyio.to_thread.run_sync(self._is_found):
                if not self._wanted:
                    self.stop()
                return
            with anyio.move_on_after(min(self._rest.look_seconds, max(end - time.monotonic(), 0.0))):
                while not (self._wanted or self.stopping.is_set()):
                    await self._change()

    def _is_found(self) -> bool:
        return self._is_there() and self._rest.is_current()

    async def _change(self) -> None:
        self._changed = anyio.Event()
        await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()


def _nothing() -> None:
    """Do nothing: the starter of the daemon knows already that it listens."""
