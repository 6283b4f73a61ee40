"""The local daemon: one set of servers for all stdio clients of a user who have the same configuration.

Started by a shim (`daemon.shim`), never by hand: its process reads its `Order` from standard input. Two minutes after
its last client, once its jobs have ended and no schedule is active, it ends every server that it started and rests: the
program stays loaded, so that the next client does not wait for it. It ends after `daemon.idle` of rest, during a rest
when its configuration, program or socket changes, or on SIGTERM after letting running calls finish for a moment. Its
log is its standard error. POSIX only.

Listener of the local daemon: admits clients of the same user, counts them, and rests or ends when idle. POSIX only.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from anyio.from_thread import BlockingPortal
from msgspec import Struct
from msgspec.structs import replace

from ..claude_code.approve_tool import WithApprove, asked_from
from ..claude_code.gate import gate_of
from ..claude_code.hook import serve_hook
from ..config import Settings
from ..config.directories import config_files
from ..config.loader import load_gateway
from ..core.json import loads
from ..crib import Toolcrib
from ..errors import CODES, ToolcribError, UsageError
from ..mcp.server.service import Service
from ..results.redact import Redactor
from ..server.backend import CribBackend, limits_of
from ..server.logs import DaemonLog, log_to
from ..server.stdio import Link, converse
from .caller import Caller
from .control import COMMAND, WAYS, DaemonClient, DaemonServer, DaemonStatus, Way
from .rendezvous import (
    GREETING_BYTES,
    DaemonPlace,
    Hello,
    Meeting,
    Order,
    Welcome,
    is_same_user,
    open_log,
    sweep,
)
from .running_servers import RunningServers

__all__ = ["GREETING_SECONDS", "LocalServer", "RunCommand", "Serve", "main", "summary"]

GREETING_SECONDS: Final = 5.0
"""A connection that has not sent its greeting by then is closed."""

_BACKLOG: Final = 128

_SERVERS_SECONDS: Final = 120.0
"""How long servers outlive the last client: one that restarts, or makes one call each time, finds them running."""
_LOOK_SECONDS: Final = 30.0
"""Seconds between two looks of a resting daemon at what would end it."""

_REQUEST_BYTES: Final = 4 * 1024 * 1024
_INPUT_BYTES: Final = 512 * 1024 * 1024
"""Largest answer of a process that asked for a command: its standard input, as JSON."""
_COMMANDS: Final = 16
"""Commands that run at once; the processes that ask for more carry theirs out themselves."""
_COMMAND_SECONDS: Final = 5.0
"""How long a command may go on once the daemon is to end; it is interrupted then."""

Serve = Callable[[Hello, Link, bytes], Awaitable[None]]
"""Serves one client to its end. The bytes are what came behind the greeting."""

RunCommand = Callable[[bytes, Caller], None]
"""Runs one command of the command line, in a thread of its own: takes the request, and the process that asked."""

_listener_log = logging.getLogger(__name__)


class LocalServer:
    """Listener at a rendezvous: passes every client to `serve`, until it has been idle for long enough.

    Used once: `run` returns when the last client has left and the idle time is over, and the time to rest behind it, or
    after `stop` when the present clients have ended.
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
        run_command: RunCommand | None = None,
        running: Callable[[], RunningServers | None] = lambda: None,
        command_seconds: float = _COMMAND_SECONDS,
        opened: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
        rest_seconds: float = 0.0,
        look_seconds: float = _LOOK_SECONDS,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        """`serves` returns a short summary for a greeting, or raises `UsageError` to refuse a client.

        `works` returns whether work continues for clients that have left. `control` answers a request for the status or
        the end, with the id of the process that asks, `run_command` one for a whole command, which may list the servers
        that are `running` and goes on for `command_seconds` once the server is to stop.

        What clients are served with is `opened` while they come, and closed in the `rest_seconds` that follow
        `idle_seconds` without one; the next client opens it again. Every `look_seconds` of such a rest `is_current`, in
        a thread, says whether clients would still find this server.
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
        """Serve; `listening` is called once clients can connect. The caller holds the meeting's lock."""
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
    def is_resting(self) -> bool:
        """Whether what clients are served with is closed."""
        return not self._awake.is_set()

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
            self._meeting.socket.unlink(missing_ok=True)

    def _is_there(self) -> bool:
        """Whether the socket is still the one that was made here."""
        try:
            return self._meeting.socket.stat().st_ino == self._socket_file
        except OSError:
            return False

    def _listen(self, listener: socket.socket) -> None:
        """Bind over the socket of a killed daemon; the directory keeps others out until the mode is set."""
        self._meeting.socket.unlink(missing_ok=True)
        listener.setblocking(False)
        with self._meeting.address() as address:
            listener.bind(address)
        self._meeting.socket.chmod(0o600)
        self._socket_file = self._meeting.socket.stat().st_ino
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
            _listener_log.info("a client went away")
        except Exception:  # noqa: BLE001 - one client's bad luck is not the others'
            _listener_log.exception("a client could not be served to its end")
        finally:
            self._connections -= 1
            self._note()

    async def _greet(self, link: Link) -> None:
        if not is_same_user(link.socket):
            _listener_log.warning("refused a process of another user")
            return
        try:
            with anyio.fail_after(GREETING_SECONDS):
                line, rest = await _first_line(link)
            hello = Hello.decode(line)
        except (TimeoutError, ValueError):
            _listener_log.warning("refused a process that does not greet")
            return
        if self._control is not None and hello.way in WAYS:
            await link.send(self._control(hello.way, hello.pid).encode())
            return
        if self.stopping.is_set():
            return
        if hello.way == COMMAND:
            _listener_log.info("process %d asks for a command", hello.pid)
            await self._answer_command(link, rest)
            return
        if self._rests and hello.key == self._meeting.key and not await self._is_wanted(hello):
            self.stop()  # the client starts its own, once this one has ended
            return
        if (hello.key, hello.version) == (self._meeting.key, self._version):
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
            with anyio.fail_after(GREETING_SECONDS):
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
    """Tell nothing: the starter of the daemon has heard that it listens."""


async def _follow(caller: Caller, link: Link, received: bytes) -> None:
    """Give `caller` the answers that it sends, until it goes away or sends what is no answer."""
    try:
        while True:
            line, received = await _first_line(link, received, _INPUT_BYTES)
            caller.answer(*loads(line))
    except (ConnectionError, TypeError, ValueError):
        caller.leave()


async def _first_line(link: Link, received: bytes = b"", limit: int = GREETING_BYTES) -> tuple[bytes, bytes]:
    """Return the first line, which may have been `received`, and the bytes behind it.

    Raises `ConnectionError` when nothing comes (`control.is_any_running`), `ValueError` for a line without end.
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


_log = logging.getLogger("toolcrib.daemon.daemon")


def summary(crib: Toolcrib) -> str:
    """Return a short summary of the crib's contents."""
    waiting = [state.source for state in crib.tools.sources if state.state == "connecting"]
    failed = [state.source for state in crib.tools.sources if state.state in ("failed", "stale", "needs_login")]
    parts = [f"{len(crib.tools.sources)} sources, {len(crib.catalog.tools)} tools"]
    parts += [f"starting: {', '.join(waiting)}"] if waiting else []
    parts += [f"not reachable: {', '.join(failed)}"] if failed else []
    return "; ".join(parts)


class _Served(Struct, frozen=True, kw_only=True):
    """What clients are served with, from the first client to the rest."""

    crib: Toolcrib
    service: Service
    desk: Service


async def _serve(
    order: Order, settings: Settings, listening: Callable[[], None], run_command: RunCommand | None
) -> None:
    meeting, since = Meeting(directory=Path(order.directory), key=order.key), time.time()
    profile, mode, limits = settings.disclosure.profile, settings.policy.mode, limits_of(settings)
    served: list[_Served] = []  # none while the daemon rests

    @asynccontextmanager
    async def opened() -> AsyncGenerator[None]:
        async with (
            Toolcrib(settings.at_once()) as crib,
            Service(CribBackend(crib), profile=profile, mode=mode, limits=limits) as service,
            Service(WithApprove(crib), profile=profile, mode=mode, limits=limits) as desk,
        ):
            await crib.start_background_work()
            served.append(_Served(crib=crib, service=service, desk=desk))
            try:
                yield
            finally:
                served.clear()
        _log.info("closed %d servers", len(settings.sources.servers))

    async def serve(hello: Hello, link: Link, received: bytes) -> None:
        _log.info("process %d joined from %s", hello.pid, hello.cwd)
        (with_,) = served
        if hello.way == "hook":
            await serve_hook(gate_of(with_.crib), link, received)
            return
        serving = with_.desk if hello.way == "desk" else with_.service
        with asked_from(hello.cwd):
            await converse(serving, link, received=received, profile=hello.profile, mode=hello.mode)

    def serves(hello: Hello) -> str:
        crib, clients = served[0].crib, len(server.clients)
        crib.session(profile=hello.profile, mode=hello.mode)
        return summary(crib) + (f"; {clients} other client{'s' if clients > 1 else ''}" if clients else "")

    def running() -> RunningServers | None:
        return RunningServers(served[0].crib) if served else None

    def stop(reason: str) -> None:
        names = ", ".join(state.source for one in served for state in one.crib.tools.sources) or "none"
        _log.info("stopped by %s: %d clients; servers: %s", reason, len(server.clients), names)
        for one in served:
            one.service.stop()
            one.desk.stop()
        server.stop()

    def control(way: Way, pid: int) -> DaemonStatus:
        status = _status(order, settings, served[0].crib if served else None, server, since)
        if way == "stop":
            stop(f"process {pid} (toolcrib daemon stop)")
        return status

    server = LocalServer(
        meeting,
        serve=serve,
        serves=serves,
        version=version("toolcrib"),
        idle_seconds=_idle_seconds(order),
        works=lambda: any(_works(one.crib) for one in served),
        control=control,
        run_command=run_command,
        running=running,
        opened=opened,
        rest_seconds=_rest_seconds(order, settings),
        is_current=partial(_is_current, order, since),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, stop)
        await server.run(listening)
        tasks.cancel_scope.cancel()


def _idle_seconds(order: Order) -> float:
    return _SERVERS_SECONDS if order.idle_seconds is None else order.idle_seconds


def _rest_seconds(order: Order, settings: Settings) -> float:
    return settings.daemon.idle if order.idle_seconds is None else 0.0


def _is_current(order: Order, since: float) -> bool:
    """Whether a client of this configuration would come to this daemon, and be served by the program as it is now."""
    try:
        settings, meeting = _read(order)
        return meeting.key == order.key and settings.directories.home.is_dir() and not _is_outdated(since)
    except (ToolcribError, OSError):
        return False


def _is_outdated(since: float) -> bool:
    """Whether the file of a loaded module, of ours or of the user's, has changed since then.

    Raises `OSError` for one that is gone. The time of the inode tells of a file that was put in the place of another.
    """
    files = [file for module in tuple(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    return any(max(found.st_mtime, found.st_ctime) > since for found in map(os.stat, files))


def _works(crib: Toolcrib) -> bool:
    """Whether jobs run or schedules wait that no client is there for."""
    return crib.jobs.works or crib.schedules.works


def _status(order: Order, settings: Settings, crib: Toolcrib | None, server: LocalServer, since: float) -> DaemonStatus:
    found = order.files or config_files(settings.directories, Path(order.project))
    return DaemonStatus(
        pid=os.getpid(),
        since=since,
        version=version("toolcrib"),
        key=order.key,
        configuration=tuple(str(file) for file in found if Path(order.project, file).exists()),
        options=order.overrides,
        project=order.project,
        log=order.log,
        idle_seconds=_idle_seconds(order),
        rest_seconds=_rest_seconds(order, settings),
        rests=crib is None,
        works=crib is not None and _works(crib),
        clients=tuple(server.clients),
        servers=tuple(
            DaemonServer(name=one.source, kind=one.kind, state=one.state, tools=one.tools, detail=one.detail)
            for one in (crib.tools.sources if crib else ())
        ),
    )


async def _stop_on_signal(stop: Callable[[str], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            stop(signal.Signals(number).name)


def _run(order: Order, say: Callable[[bytes], None], run_command: RunCommand | None) -> None:
    settings, meeting = _read(order)
    ready = b"ready"
    if not order.key:
        order, ready = _found(order, settings, meeting)
        if order.lock < 0:  # another daemon lives, or starts
            say(ready)
            return
    log_to(DaemonLog(order.log), order.log_level, Redactor(settings.secrets).text)
    os.chdir(settings.directories.home)
    if meeting.key != order.key:
        raise UsageError("the configuration changed while the daemon was starting: start again")
    _log.info("serving %d servers", len(settings.sources.servers))
    sweep(meeting.directory)
    try:
        anyio.run(_serve, order, settings, lambda: say(ready), run_command, backend_options={"use_uvloop": True})
    finally:
        meeting.release(order.lock)
    _log.info("ended")


def _read(order: Order) -> tuple[Settings, Meeting]:
    settings = load_gateway(order.files, order.overrides, cwd=order.project)
    return settings, Meeting.of(settings)


def _found(order: Order, settings: Settings, meeting: Meeting) -> tuple[Order, bytes]:
    """Return the order with its place, log and lock, negative where another daemon has it, and the shim's report."""
    found = DaemonPlace.of(settings, meeting)
    lock = meeting.lock()
    if lock is not None:
        output = open_log(found.log)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
    place = replace(order, directory=found.directory, key=found.key, log=found.log, lock=-1 if lock is None else lock)
    return place, found.encode()


def main(run_command: RunCommand | None = None) -> None:
    """Serve the order on standard input, and commands with `run_command`.

    The exit status is unused, the report is for the shim.
    """
    order = Order.decode(sys.stdin.buffer.readline())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if order.lock >= 0:
        os.set_inheritable(order.lock, False)
    os.set_inheritable(order.report, False)

    reporting = os.fdopen(order.report, "wb", buffering=0)

    def say(report: bytes) -> None:
        with contextlib.suppress(OSError, ValueError), reporting:
            reporting.write(report)

    try:
        _run(order, say, run_command)
    except Exception as raised:  # noqa: BLE001 - the outermost edge: no caller will see it
        error = _innermost(raised)
        if isinstance(error, ToolcribError):
            _log.error("cannot serve: %s", error)
            say(str(error).encode() if order.key else b"")
            sys.exit(2)
        _log.exception("the daemon failed")
        say(f"{type(error).__name__}: {error}; look into {order.log}".encode() if order.key else b"")
        sys.exit(CODES["internal"].exit)


def _innermost(error: Exception) -> Exception:
    """Return what was raised inside task groups, which wrap it, if it is one error."""
    inside = cast("tuple[Exception, ...]", getattr(error, "exceptions", ()))
    return _innermost(inside[0]) if len(inside) == 1 else error


if __name__ == "__main__":
    main()
