"""`toolcrib daemon`: the local daemons that stdio clients share; status, end and log. POSIX only."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from ...config.directories import here
from ...errors import UsageError
from ..actions import action_group
from ..options import AsJson
from ..output import Column, emit_json, escape, local_time, note, out, table

if TYPE_CHECKING:  # `fcntl`, which these modules need, is POSIX only
    from ...daemon.control import DaemonStatus, SilentDaemon
    from ...daemon.rendezvous import DaemonEndpoint

_CLIENTS: Final[tuple[Column, ...]] = (
    ("CLIENT", ">"),
    ("SINCE", "<"),
    ("WAY", "<"),
    ("PROFILE", "<"),
    ("MODE", "<"),
    ("FOLDER", "<"),
)
_SERVERS: Final[tuple[Column, ...]] = (
    ("SERVER", "<"),
    ("KIND", "<"),
    ("STATE", "<"),
    ("TOOLS", ">"),
    ("DETAIL", "<"),
)
_FOLLOW_SECONDS: Final = 0.2
"""Seconds between two looks at a file that is followed."""

daemon = action_group(
    "Show the local daemons that stdio clients share, end them, or print their logs.\n\n"
    "A client of `toolcrib serve` starts the daemon of its configuration. Its servers end two minutes after its last "
    "client; the daemon itself stays loaded for `daemon.idle`, 2 hours.",
    default="status",
)

_Pids = Annotated[list[int] | None, typer.Argument(metavar="PID …", help="Process ids; all daemons without any.")]


@daemon.command("status")
def show_status(pids: _Pids = None, as_json: AsJson = False) -> None:
    """Show each daemon: process, version, configuration, clients, and servers with their states."""
    chosen, silent = _chosen(pids)
    from ...daemon.control import HungDaemon  # POSIX only, as `_chosen` checks

    found = [status for _, status in chosen]
    for _, error in silent:
        if not (isinstance(error, HungDaemon) and error.is_known):
            note(str(error))
    if as_json:
        emit_json([status.fields() for status in found])
        return
    for place, status in enumerate(found):
        if place:
            out("")
        _print(status)
    if not found and not silent:
        note("no daemon runs; a stdio client starts one")


@daemon.command("stop")
def stop_daemons(
    pids: _Pids = None,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the end.", min=0.1)] = 15.0,
    as_json: AsJson = False,
) -> None:
    """End daemons with the servers that they started, after running calls had a moment to end.

    Sessions of connected clients go on: the next request of a client starts a daemon of the present configuration and
    version.
    """
    chosen, silent = _chosen(pids)
    from ...daemon.control import HungDaemon, end, kill  # POSIX only, as `_chosen` checks

    for endpoint, error in silent:
        kill(endpoint, error, wait)
        is_hung = isinstance(error, HungDaemon)
        done, why = ("killed", "which did not answer") if is_hung else ("ended", "of another version")
        note(f"{done} the daemon (process {error.pid}), {why}")
    ended = [status for endpoint, _ in chosen if (status := end(endpoint, wait)) is not None]
    if as_json:
        emit_json([status.fields() for status in ended])
        return
    for status in ended:
        clients = ", ".join(f"process {client.pid} ({client.cwd})" for client in status.clients) or "none"
        servers = ", ".join(server.name for server in status.servers) or "none"
        out(escape(f"ended daemon {status.pid}; clients: {clients}; servers: {servers}"))
    if not ended and not silent:
        note("no daemon runs")


@daemon.command("logs")
def print_logs(
    pid: Annotated[int | None, typer.Argument(metavar="PID", help="A daemon; the newest log without it.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Number of lines from the end.", min=1)] = 100,
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines, until interrupted.")] = False,
) -> None:
    """Print the end of a daemon's log: one JSON object a line."""
    chosen = _chosen([pid])[0] if pid is not None else []
    path = Path(chosen[0][1].log) if chosen else _newest_log()
    for line in follow(path, lines, once=not follow_it):
        out(escape(line), verbatim=True)
        sys.stdout.flush()


def follow(path: Path, lines: int, *, once: bool, wait: Callable[[float], None] = time.sleep) -> Generator[str]:
    """Yield the last `lines` of a log, then new ones as they come; a file that was renamed is read to its end first."""
    file = path.open("rb")
    try:
        yield from deque(_whole_lines(file), lines)
        while not once:
            wait(_FOLLOW_SECONDS)
            yield from _whole_lines(file)
            with suppress(FileNotFoundError):
                if path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                    yield from _whole_lines(file)
                    file.close()
                    file = path.open("rb")
                    yield from _whole_lines(file)
    finally:
        file.close()


def _whole_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines from the place in `file`; leave one without an end for the next time."""
    while (line := file.readline()).endswith(b"\n"):
        yield line.decode(errors="replace").rstrip("\n")
    file.seek(-len(line), os.SEEK_CUR)


def _chosen(
    pids: list[int] | None,
) -> tuple[list[tuple[DaemonEndpoint, DaemonStatus]], list[tuple[DaemonEndpoint, SilentDaemon]]]:
    """Return the daemons of these process ids, all for none, and those that give no status.

    Raises `UsageError` for an id of no daemon.
    """
    if sys.platform == "win32":
        raise UsageError("there is no local daemon on Windows: each client has servers of its own")
    from ...daemon.control import SilentDaemon, statuses  # POSIX only: it needs `fcntl`

    found: list[tuple[DaemonEndpoint, DaemonStatus]] = []
    silent: list[tuple[DaemonEndpoint, SilentDaemon]] = []
    for endpoint, status in statuses(here().directories.sockets):
        if isinstance(status, SilentDaemon):
            silent.append((endpoint, status))
        elif isinstance(status, UsageError):  # one that cannot be asked hides no others
            note(str(status))
        else:
            found.append((endpoint, status))
    there = [status.pid for _, status in (*found, *silent)]
    if unknown := [pid for pid in pids or () if pid not in there]:
        named = ", ".join(map(str, there)) or "none"
        raise UsageError(f"process {unknown[0]} is not a daemon of yours; daemons: {named}")
    wanted = pids or there
    return [one for one in found if one[1].pid in wanted], [one for one in silent if one[1].pid in wanted]


def _newest_log() -> Path:
    folder = here().directories.state
    logs = sorted(folder.glob("daemon-*.log"), key=lambda path: path.stat().st_mtime)
    if not logs:
        raise UsageError(f"{folder} has no log of a daemon: no daemon has run yet")
    if len(logs) > 1:
        note(f"{logs[-1]} is the newest of {len(logs)} logs in its folder")
    return logs[-1]


def _print(status: DaemonStatus) -> None:
    options = ", ".join(f"{name}: {value}" for name, value in status.options.items() if value is not None)
    facts = {
        "daemon": f"process {status.pid}, version {status.version}, since {local_time(status.since)}",
        "configuration": ", ".join(status.configuration) or "none",
        "options": options,
        "project": status.project,
        "key": status.key,
        "log": status.log,
        "idle end": f"{status.idle_seconds:g} s after its last client"
        + (", once its jobs and schedules have ended" if status.works else "")
        + (f"; stays loaded without servers for {status.rest_seconds:g} s more" if status.rest_seconds else "")
        + ("; rests now" if status.rests else ""),
        "outdated": "" if status.is_current else "its configuration or program has changed; stop it to renew it",
    }
    for name, value in facts.items():
        if value:
            out(f"{name + ':':<15}{escape(value)}")
    out("")
    table(
        _CLIENTS,
        ((str(one.pid), local_time(one.since), one.way, one.profile, one.mode, one.cwd) for one in status.clients),
    )
    out("")
    table(_SERVERS, ((one.name, one.kind, one.state, str(one.tools), one.detail) for one in status.servers))
