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
from anyio.from_thread import BlockingPortal

from ..core.json import loads
from ..errors import UsageError
from ..server.stdio import Link
from .caller import Caller
from .control import COMMAND, WAYS, DaemonClient, DaemonStatus, Way
from .rendezvous import GREETING_BYTES, DaemonEndpoint, Hello, Welcome, is_same_user
from .running_servers import RunningServers

__all__ = ["LocalServer", "RunCommand", "Serve"]

_GREETING_SECONDS: Final = 5.0
"""A connection that has not sent its greeting by then is closed."""
_BACKLOG: Final = 128
_LOOK_SECONDS: Final = 30.0
"""Seconds between two looks of a resting daemon at what would end it."""
_SOCKET_SECONDS: Final = 2.0
"""Seconds between two looks whether the socket is still there: programs that clean up remove old files."""
_REQUEST_BYTES: Final = 4 * 1024 * 1024
_INPUT_BYTES: Final = 512 * 1024 * 1024
"""Largest answer of a process that asked for a command: its standard input, as JSON."""
_COMMANDS: Final = 16
"""Commands that run at once; the processes that ask for more carry theirs out themselves."""
_COMMAND_SECONDS: Final = 5.0
"""Seconds that a command has left when the daemon ends; it is interrupted then."""

Serve = Callable[[Hello, Link, bytes], Awaitable[None]]
"""Serves one client to its end. The bytes are what came behind the greeting."""

RunCommand = Callable[[bytes, Caller], None]
"""Runs one command of the command line, in a thread of its own: takes the request, and the process that asked."""

_logger = logging.getLogger(__name__)


class LocalServer:
    """Listener at a rendezvous: passes every client to `serve`, until it has been idle for long enough.

    Used once: `run` returns when the last client has left and the idle time is over, and the time to rest behind it, or
    after `stop` when the present clients have ended.
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
        run_command: RunCommand | None = None,
        running: Callable[[], RunningServers | None] = lambda: None,
        command_seconds: float = _COMMAND_SECONDS,
        opened: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
        rest_seconds: float = 0.0,
        look_seconds: float = _LOOK_SECONDS,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        """`greeting` returns a short summary of what is served, or raises `UsageError` to refuse a client.

        `store` is that of `Welcome`. `works` returns whether work continues for clients that have left. `control`
        answers a request for the status or the end, with the id of the process that asks, `run_command` one for a whole
        command, which may list the servers that are `running` and goes on for `command_seconds` once the server is to
        stop.

        What clients are served with is `opened` while they come, and closed in the `rest_seconds` that follow
        `idle_seconds` without one; the next client opens it again. Every `look_seconds` of such a rest `is_current`, in
        a thread, says whether clients would still find this server.
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
        self._run_command = run_command
        self._running = running
        self._command_seconds = command_seconds
        self._commands = anyio.CapacityLimiter(_COMMANDS)
        self._connections = 0
        self._clients: dict[object, DaemonClient] = {}
        self._idle_since = 0.0
        self._changed = anyio.Event()
        self._opened = opened
        self._rest_seconds = rest_seconds
        self._look_seconds = look_seconds
        self._is_current = is_current
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
            async with self._opened():
                self._awake.set()
                listening()
                listening = _nothing
                await self._until_idle()
                if self.stopping.is_set() or not self._rest_seconds:
                    self.stop()
                    self._leave()
                    while self._connections:
                        await self._change()
                    return
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
                        if not self._endpoint.socket.exists():
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
            with anyio.fail_after(_GREETING_SECONDS):
                line, rest = await _first_line(link)
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
            _logger.info("process %d asks for a command", hello.pid)
            await self._answer_command(link, rest)
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

    async def _answer_command(self, link: Link, received: bytes) -> None:
        """Run the command of the request; a thread sends its lines, so that clients are served meanwhile."""
        if self._run_command is None or not self._commands.available_tokens:
            return
        try:
            with anyio.fail_after(_GREETING_SECONDS):
                request, rest = await _first_line(link, received, _REQUEST_BYTES)
        except (TimeoutError, ValueError):
            return
        async with BlockingPortal() as portal, anyio.create_task_group() as watching:

            def send(line: bytes) -> None:
                portal.call(link.send, line + b"\n")

            caller = Caller(send, self._running())
            watching.start_soon(_follow, caller, link, rest)
            watching.start_soon(self._interrupt_in_time, caller)
            await anyio.to_thread.run_sync(self._run_command, request, caller, limiter=self._commands)
            watching.cancel_scope.cancel()

    async def _interrupt_in_time(self, caller: Caller) -> None:
        await self.stopping.wait()
        await anyio.sleep(self._command_seconds)
        caller.leave()

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
                self._idle_since = time.monotonic()

    async def _until_wanted(self) -> None:
        """Return when a client greets; stop at the end of the rest, and when no client would come here any more."""
        end = time.monotonic() + self._rest_seconds
        while not (self._wanted or self.stopping.is_set()):
            if time.monotonic() >= end or not await anyio.to_thread.run_sync(self._is_found):
                if not self._wanted:
                    self.stop()
                return
            with anyio.move_on_after(min(self._look_seconds, max(end - time.monotonic(), 0.0))):
                while not (self._wanted or self.stopping.is_set()):
                    await self._change()

    def _is_found(self) -> bool:
        return self._is_there() and self._is_current()

    async def _change(self) -> None:
        self._changed = anyio.Event()
        await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()


def _nothing() -> None:
    """Do nothing: the starter of the daemon knows already that it listens."""


async def _follow(caller: Caller, link: Link, received: bytes) -> None:
    """Give `caller` the answers that it sends, until it goes away or sends anything but an answer."""
    try:
        while True:
            line, received = await _first_line(link, received, _INPUT_BYTES)
            caller.answer(*loads(line))
    except (ConnectionError, TypeError, ValueError):
        caller.leave()


async def _first_line(link: Link, received: bytes = b"", limit: int = GREETING_BYTES) -> tuple[bytes, bytes]:
    """Return the first line, which may have been `received`, and the bytes behind it.

    Raises `ConnectionError` when nothing comes, `ValueError` for a line without end.
    """
    while b"\n" not in received:
        chunk = await link.receive()
        received += chunk
        if not received:
            raise ConnectionError
        if not chunk or len(received) > limit:
            raise ValueError("the line has no end")
    line, _, rest = received.partition(b"\n")
    return line, rest
