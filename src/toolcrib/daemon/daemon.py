"""The local daemon: one set of servers for all stdio clients of a user who have the same configuration.

Started by a shim (`daemon.shim`), never by hand: `python -m toolcrib.daemon.daemon` reads its `Order` from standard
input. It ends half a minute after its last client, on SIGTERM after letting running calls finish for a moment, and with
it every server that it started. Its log is its standard error. POSIX only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import anyio

from ..claude_code.approve_tool import WithApprove, asked_from
from ..claude_code.gate import gate_of
from ..claude_code.hook import serve_hook
from ..config import Settings, load
from ..config.loading import config_files
from ..crib import Toolcrib
from ..errors import CODES, ToolcribError, UsageError
from ..mcp.server.service import Service
from ..results.redact import Redactor
from ..server.backend import CribBackend, limits_of
from ..server.logs import DaemonLog, log_to
from ..server.stdio import Link, converse
from .control import DaemonServer, DaemonStatus, Way
from .listener import LocalServer
from .rendezvous import Hello, Meeting, Order

__all__ = ["main", "summary"]

_log = logging.getLogger("toolcrib.daemon.daemon")


def summary(crib: Toolcrib) -> str:
    """Return a short summary of the crib's contents."""
    waiting = [state.source for state in crib.tools.sources if state.state == "connecting"]
    failed = [state.source for state in crib.tools.sources if state.state in ("failed", "stale", "needs_login")]
    parts = [f"{len(crib.tools.sources)} sources, {len(crib.catalog.tools)} tools"]
    parts += [f"starting: {', '.join(waiting)}"] if waiting else []
    parts += [f"not reachable: {', '.join(failed)}"] if failed else []
    return "; ".join(parts)


async def _serve(order: Order, settings: Settings, listening: Callable[[], None]) -> None:
    meeting, since = Meeting(directory=Path(order.directory), key=order.key), time.time()
    profile, mode, limits = settings.disclosure.profile, settings.policy.mode, limits_of(settings)
    async with (
        Toolcrib(settings.at_once()) as crib,
        Service(CribBackend(crib), profile=profile, mode=mode, limits=limits) as service,
        Service(WithApprove(crib), profile=profile, mode=mode, limits=limits) as desk,
        anyio.create_task_group() as tasks,
    ):

        async def serve(hello: Hello, link: Link, received: bytes) -> None:
            _log.info("process %d joined from %s", hello.pid, hello.cwd)
            if hello.way == "hook":
                await serve_hook(gate_of(crib), link, received)
                return
            serving = desk if hello.way == "desk" else service
            with asked_from(hello.cwd):
                await converse(serving, link, received=received, profile=hello.profile, mode=hello.mode)

        def serves(hello: Hello) -> str:
            crib.session(profile=hello.profile, mode=hello.mode)
            clients = len(server.clients)
            return summary(crib) + (f"; {clients} other client{'s' if clients > 1 else ''}" if clients else "")

        def stop(reason: str) -> None:
            names = ", ".join(state.source for state in crib.tools.sources) or "none"
            _log.info("stopped by %s: %d clients; servers: %s", reason, len(server.clients), names)
            for each in (service, desk):
                each.stop()
            server.stop()

        def control(way: Way, pid: int) -> DaemonStatus:
            status = _status(order, crib, server, since)
            if way == "stop":
                stop(f"process {pid} (toolcrib daemon stop)")
            return status

        server = LocalServer(
            meeting,
            serve=serve,
            serves=serves,
            version=version("toolcrib"),
            idle_seconds=order.idle_seconds,
            works=lambda: crib.jobs.works,
            control=control,
        )
        tasks.start_soon(_stop_on_signal, stop)
        await server.run(listening)
        tasks.cancel_scope.cancel()


def _status(order: Order, crib: Toolcrib, server: LocalServer, since: float) -> DaemonStatus:
    found = order.files or config_files(crib.settings.directories, Path(order.project))
    return DaemonStatus(
        pid=os.getpid(),
        since=since,
        version=version("toolcrib"),
        key=order.key,
        configuration=tuple(str(file) for file in found if Path(order.project, file).exists()),
        options=order.overrides,
        project=order.project,
        log=order.log,
        idle_seconds=order.idle_seconds,
        works=crib.jobs.works,
        clients=tuple(server.clients),
        servers=tuple(
            DaemonServer(name=one.source, kind=one.kind, state=one.state, tools=one.tools, detail=one.detail)
            for one in crib.tools.sources
        ),
    )


async def _stop_on_signal(stop: Callable[[str], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            stop(signal.Signals(number).name)


def _run(order: Order, say: Callable[[bytes], None]) -> None:
    settings = load(order.files, order.overrides, cwd=order.project)
    log_to(DaemonLog(order.log), order.log_level, Redactor(settings.secrets).text)
    os.chdir(settings.directories.home)
    if Meeting.of(settings).key != order.key:
        raise UsageError("the configuration changed while the daemon was starting: start again")
    _log.info("serving %d servers", len(settings.sources.servers))
    anyio.run(_serve, order, settings, lambda: say(b"ready"), backend_options={"use_uvloop": True})
    _log.info("ended")


def main() -> None:
    """Serve the order on standard input; the exit status is unused, the report is for the shim."""
    order = Order.decode(sys.stdin.buffer.readline())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_inheritable(order.lock, False)
    os.set_inheritable(order.report, False)

    reporting = os.fdopen(order.report, "wb", buffering=0)

    def say(report: bytes) -> None:
        with contextlib.suppress(OSError, ValueError), reporting:
            reporting.write(report)

    try:
        _run(order, say)
    except ToolcribError as error:
        _log.error("cannot serve: %s", error)
        say(str(error).encode())
        sys.exit(2)
    except Exception as error:  # noqa: BLE001 - the outermost edge: no caller will see it
        _log.exception("the daemon failed")
        say(f"{type(error).__name__}: {error}; look into {order.log}".encode())
        sys.exit(CODES["internal"].exit)


if __name__ == "__main__":
    main()
