"""The local daemon: one set of servers for all stdio clients of a user who have the same configuration.

Started by a shim (`daemon.shim`), never by hand: its process reads its `Order` from standard input. Two minutes after
its last client, once its jobs have ended and no schedule is active, it ends every server that it started and rests: the
program stays loaded, so that the next client does not wait for it. It ends after `daemon.idle` of rest, during a rest
when its configuration, program or socket changes, or on SIGTERM after letting running calls finish for a moment. Its
log is its standard error. POSIX only.

    shim      takes the lock · forks twice · runs this module · writes the `Order` to its standard input
    `main`    reads the order and the configuration. Without a key in the order, the shim has not read the
              configuration: the daemon finds its place itself, and takes the lock, or reports a place that is taken
    `run`     binds the socket · opens the crib (`_opened`), without waiting for its sources · reports `ready`
    shim      connects: `Hello` → `Welcome`, then MCP
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from msgspec import Struct

from ..claude_code.approve_tool import WithApprove, asked_from
from ..claude_code.gate import gate_of
from ..claude_code.hook import serve_hook
from ..config import Settings
from ..config.directories import config_files
from ..config.loader import load_gateway
from ..core.exceptions import innermost
from ..core.own_commands import with_files
from ..crib import Toolcrib
from ..crib.problem_summaries import summaries
from ..crib.storage import place_of
from ..errors import CODES, ToolcribError, UsageError
from ..mcp.server.service import Service
from ..results.redaction.redactor import Redactor
from ..server.backend import CribBackend, limits_of
from ..server.logs import DaemonLog, log_to
from ..server.problem_log import log_new_problems
from ..server.stdio import Link, converse
from ..system.stop_signals import stop_signals
from .commands import Commands, RunCommand
from .control import DaemonServer, DaemonStatus, Way
from .listener import LocalServer, Rest
from .rendezvous import (
    DaemonEndpoint,
    DaemonPlace,
    Hello,
    Order,
    open_log,
    sweep,
)
from .running_servers import RunningServers
from .shim import start_unread

_SERVERS_SECONDS: Final = 120.0
"""Seconds that servers outlive the last client: one that restarts, or makes one call each time, finds them running."""

_logger = logging.getLogger("toolcrib.daemon.daemon")  # its own name also where it runs as `__main__`


def summary(crib: Toolcrib) -> str:
    """Return a short summary of the crib's contents."""
    waiting = [state.source for state in crib.tools.sources if state.state == "connecting"]
    failed = [state.source for state in crib.tools.sources if state.state in ("failed", "stale", "needs_login")]
    notices = [f"{one.message}; {one.hint}" for one in crib.problems if one.code == "notice"]
    sources = len(crib.tools.sources)
    problems = sum(1 for _ in summaries(one for one in crib.problems if one.code != "notice"))
    parts = [f"{sources} source{'s' * (sources != 1)}, {len(crib.catalog.tools)} tools"]
    parts += [f"starting: {', '.join(waiting)}"] if waiting else []
    parts += [f"not reachable: {', '.join(failed)}"] if failed else []
    parts += [f"problems: {problems} (`toolcrib doctor` names them)"] if problems else []
    parts += notices
    return with_files("; ".join(parts), crib.settings.file_options)


class _Services(Struct, frozen=True, kw_only=True):
    """Services for the clients, from the first client to the rest."""

    crib: Toolcrib
    service: Service
    desk: Service


class _Daemon:
    """Serves the clients of one configuration; used once, in one event loop.

    `_services` are there while clients come and None during a rest. Each time they are opened anew, with the settings
    that were read at the start of the process: a changed configuration has another key, and so another daemon.
    """

    def __init__(self, order: Order, settings: Settings, run_command: RunCommand | None) -> None:
        self._order = order
        self._settings = settings
        self._since = time.time()
        self._version = version("toolcrib")  # read once: an update replaces the installed one under this process
        self._services: _Services | None = None  # while the daemon rests
        self._idle_seconds = _SERVERS_SECONDS if order.idle_seconds is None else order.idle_seconds
        self._rest_seconds = settings.daemon.idle if order.idle_seconds is None else 0.0
        self._server = LocalServer(
            DaemonEndpoint(directory=Path(order.directory), key=order.key),
            serve=self._serve,
            greeting=self._greeting,
            store=hashlib.sha256(os.fsencode(place_of(settings))).hexdigest(),  # a URL may hold a password
            version=self._version,
            idle_seconds=self._idle_seconds,
            works=lambda: self._works,
            control=self._control,
            commands=Commands(run_command, self._running) if run_command is not None else None,
            rest=Rest(
                opened=self._opened,
                seconds=self._rest_seconds,
                is_current=lambda: not _outdated(order, self._since),
                hand_over=self._hand_over,
            ),
        )

    async def run(self, listening: Callable[[], None]) -> None:
        """Serve until the rest is over, or a signal; `listening` is called once clients can connect."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, self._stop)
            await self._server.run(listening)
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        """Keep the crib open, and what serves it, while clients come."""
        profile, mode = self._settings.disclosure.profile, self._settings.policy.mode
        limits = limits_of(self._settings)
        async with (
            Toolcrib(self._settings.at_once()) as crib,
            Service(CribBackend(crib), profile=profile, mode=mode, limits=limits) as service,
            Service(WithApprove(crib), profile=profile, mode=mode, limits=limits) as desk,
        ):
            await crib.start_background_work()
            log_new_problems(crib)
            self._services = _Services(crib=crib, service=service, desk=desk)
            try:
                yield
            finally:
                self._services = None
        _logger.info("closed %d servers", len(self._settings.sources.servers))

    async def _serve(self, hello: Hello, link: Link, received: bytes) -> None:
        _logger.info("process %d joined from %s", hello.pid, hello.cwd)
        services = self._present()
        if hello.way == "hook":
            await serve_hook(gate_of(services.crib), link, received)
            return
        with asked_from(hello.cwd):
            await converse(
                services.desk if hello.way == "desk" else services.service,
                link,
                received=received,
                profile=hello.profile,
                mode=hello.mode,
                conversation=hello.session,
            )

    def _greeting(self, hello: Hello) -> str:
        """Return what a client reads as it joins. Raises `UsageError` for a profile or mode that there is not."""
        crib, clients = self._present().crib, len(self._server.clients)
        crib.session(profile=hello.profile, mode=hello.mode)
        return summary(crib) + (f"; {clients} other client{'s' if clients > 1 else ''}" if clients else "")

    def _present(self) -> _Services:
        """Return the services, which are open whenever a client has been taken."""
        assert self._services is not None
        return self._services

    def _running(self) -> RunningServers | None:
        return RunningServers(self._services.crib) if self._services is not None else None

    @property
    def _works(self) -> bool:
        """Whether jobs run or schedules wait that no client is there for."""
        crib = self._services.crib if self._services is not None else None
        return crib is not None and (crib.jobs.works or crib.schedules.works)

    def _hand_over(self) -> bool:
        """Leave the schedules to a daemon of the present configuration: each that stays keeps servers of its own."""
        crib = self._services.crib if self._services is not None else None
        if crib is None or crib.jobs.works or not _outdated(self._order, self._since):
            return False
        other = start_unread(self._order._replace(directory="", key="", log="", lock=-1, report=-1))
        return other is not None and other.key != self._order.key

    async def _control(self, way: Way, pid: int) -> DaemonStatus:
        outdated = await anyio.to_thread.run_sync(_outdated, self._order, self._since)  # reads the configuration
        status = self._status(outdated)
        if way == "stop":
            self._stop(f"process {pid} (toolcrib daemon stop)")
        return status

    def _stop(self, reason: str) -> None:
        services = self._services
        names = ", ".join(state.source for state in services.crib.tools.sources) if services is not None else ""
        _logger.info("stopped by %s: %d clients; servers: %s", reason, len(self._server.clients), names or "none")
        if services is not None:
            services.service.stop()
            services.desk.stop()
        self._server.stop()

    def _status(self, outdated: str) -> DaemonStatus:
        order, crib = self._order, self._services.crib if self._services is not None else None
        found = order.files or config_files(self._settings.directories, Path(order.project))
        return DaemonStatus(
            pid=os.getpid(),
            since=self._since,
            version=self._version,
            key=order.key,
            configuration=tuple(str(file) for file in found if Path(order.project, file).exists()),
            options=order.overrides,
            project=order.project,
            log=order.log,
            idle_seconds=self._idle_seconds,
            rest_seconds=self._rest_seconds,
            rests=crib is None,
            works=self._works,
            clients=tuple(self._server.clients),
            servers=tuple(
                DaemonServer(name=one.source, kind=one.kind, state=one.state, tools=one.tools, detail=one.detail)
                for one in (crib.tools.sources if crib else ())
            ),
            is_current=not outdated,
            problems=(*([outdated] if outdated else ()), *(_problems(crib) if crib else ())),
            store=crib.store.failure if crib else "",
        )


def _outdated(order: Order, since: float) -> str:
    """Return why no client of this configuration comes to this daemon any more; empty while they do."""
    try:
        settings, endpoint = _read(order)
        if endpoint.key == order.key and settings.directories.home.is_dir() and not _is_changed(since):
            return ""
    except ToolcribError as error:
        return f"no client can join any more: {error}"
    except OSError:
        pass
    return (
        f"its configuration or program has changed: `toolcrib daemon stop {os.getpid()}` moves its clients to a new one"
    )


def _is_changed(since: float) -> bool:
    """Whether the file of a loaded module, of ours or of the user's, has changed since then.

    Raises `OSError` for one that is gone. The time of the inode reveals a file that was put in the place of another.
    """
    files = [file for module in tuple(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    return any(max(found.st_mtime, found.st_ctime) > since for found in map(os.stat, files))


def _problems(crib: Toolcrib) -> list[str]:
    found = (problem for problem in crib.problems if problem.code != "notice" and not problem.outage)
    return [line for _, line in summaries(found, crib.settings.file_options)]


async def _stop_on_signal(stop: Callable[[str], None]) -> None:
    with stop_signals() as signals:
        async for number in signals:
            stop(signal.Signals(number).name)


def _run(order: Order, say: Callable[[bytes], None], run_command: RunCommand | None) -> None:
    settings, endpoint = _read(order)
    ready = b"ready"
    if not order.key:
        order, ready = _found(order, settings, endpoint)
        if order.lock < 0:  # another daemon lives, or starts
            say(ready)
            return
    log_to(DaemonLog(order.log), order.log_level, Redactor(settings.secrets).text)
    os.chdir(settings.directories.home)
    if endpoint.key != order.key:
        raise UsageError("the configuration changed while the daemon was starting: start again")
    _logger.info("serving %d servers", len(settings.sources.servers))
    sweep(endpoint.directory)
    try:
        daemon = _Daemon(order, settings, run_command)
        anyio.run(daemon.run, lambda: say(ready), backend_options={"use_uvloop": True})
    finally:
        endpoint.release(order.lock)
    _logger.info("ended")


def _read(order: Order) -> tuple[Settings, DaemonEndpoint]:
    settings = load_gateway(order.files, order.overrides, cwd=order.project)
    return settings, DaemonEndpoint.of(settings)


def _found(order: Order, settings: Settings, endpoint: DaemonEndpoint) -> tuple[Order, bytes]:
    """Return the order with its place, log and lock, negative where another daemon has it, and the shim's report."""
    found = DaemonPlace.of(settings, endpoint)
    lock = endpoint.lock()
    if lock is not None:
        output = open_log(found.log)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
    place = order._replace(directory=found.directory, key=found.key, log=found.log, lock=-1 if lock is None else lock)
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
    except Exception as raised:  # the outermost edge: no caller will see it
        error = innermost(raised)
        if isinstance(error, ToolcribError):
            _logger.error("cannot serve: %s", error)
            say(str(error).encode() if order.key else b"")
            sys.exit(2)
        _logger.exception("the daemon failed")
        say(f"{type(error).__name__}: {error}; look into {order.log}".encode() if order.key else b"")
        sys.exit(CODES["internal"].exit)


if __name__ == "__main__":
    main()
