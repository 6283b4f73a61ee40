"""`toolcrib serve` over stdio, as a client starts it: the shim in front of the local daemon. POSIX only.

A client waits for this at the start of each of its sessions, so nothing is loaded here but configuration and sockets.

    a daemon of this program runs   it says the place of the configuration (`find_place`) ──> join, relay
    none runs, or it is another     one is started, reads the configuration, and reports the place ──> join, relay
    there can be none               no private folder for its socket, say: this process serves

A daemon that ends in the middle of a session is looked for again in the same way (`find` of `relay_session`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from ...config.directories import here
from ...daemon.rendezvous import DaemonEndpoint, DaemonPlace, Hello, Order, check_places
from ...daemon.shim import Shim, relay_session, start_unread
from ...errors import UsageError
from ...server.pipes import take_stdio
from .daemon_requests import find_place
from .serve_options import desk_overrides

if TYPE_CHECKING:
    from ...config.settings import Settings

_AT_TERMINAL: Final = (
    "standard input is a terminal: a client starts this command and writes JSON-RPC to it (`toolcrib connect CLIENT`); "
    "`toolcrib serve --http` serves a URL, `toolcrib daemon` shows who is connected; Ctrl-D ends this session"
)


class JoinOptions(NamedTuple):
    """Options by which a daemon is joined, and those of one that has to be started."""

    idle_seconds: float | None = None
    """See `daemon.rendezvous.Order`."""
    log_level: str = "info"
    way: str = "mcp"
    """See `daemon.rendezvous.Hello`."""


class NoDaemon(NamedTuple):
    """A configuration that can have no daemon."""

    settings: Settings
    reason: str


def join(
    files: Sequence[str],
    overrides: Mapping[str, Any],
    *,
    idle_seconds: float | None = None,
    log_level: str = "info",
    desk: bool = False,
) -> int:
    """Relay between standard input and output and the daemon of this configuration; return the exit status.

    `overrides` are options that change what is served, by their names in the configuration file; `desk` also shows the
    tool by which Claude Code asks, and turns guard on regardless of the configuration. Starts the daemon when there is
    none, and serves in this process where there can be none. Raises `UsageError` when a daemon does not come up,
    `ConfigError` for a broken configuration.
    """
    overrides = desk_overrides(overrides) if desk else overrides
    options = JoinOptions(idle_seconds, log_level, "desk" if desk else "mcp")
    found = shim_of(files, overrides, options)
    if not isinstance(found, Shim):
        _say(f"there is no place for a local daemon ({found.reason}): serving in this process")
        _serve_here(found.settings, log_level, *take_stdio(), desk=desk)
        return 0
    if sys.stdin.isatty():
        _say(_AT_TERMINAL)

    def find() -> Shim:
        again = shim_of(files, overrides, options)
        if isinstance(again, Shim):
            return again
        raise UsageError(again.reason)

    signal.signal(signal.SIGTERM, _end)
    source, sink = take_stdio()
    try:
        return relay_session(found, find, source, sink)
    except UsageError as reason:
        settings = _load(files, overrides)  # a mistake of the configuration is the reason
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _say(f"{reason}: serving in this process")
        _serve_here(settings, log_level, source, sink, desk=desk)
        return 0


def shim_of(files: Sequence[str], overrides: Mapping[str, Any], options: JoinOptions) -> Shim | NoDaemon:
    """Return the shim that joins the daemon of this configuration, which is started if needed.

    Raises `ConfigError` for a broken configuration.
    """
    directories = here().directories
    try:
        check_places(directories)
    except UsageError as error:
        return NoDaemon(_load(files, overrides), str(error))
    order = _order(files, overrides, options)
    place = find_place(files, overrides)  # a daemon that runs may be of another version, and take no request
    found = start_unread(order) if place is None else DaemonPlace(**place) if place else None
    if found is None:  # the configuration is broken, or the daemon ended while it started
        settings = _load(files, overrides)
        found = DaemonPlace.of(settings, DaemonEndpoint.of(settings))
    return _placed(order, options, found)


def _load(files: Sequence[str], overrides: Mapping[str, Any]) -> Settings:
    from ...config.loader import load_gateway  # where a daemon can, it alone reads the configuration

    return load_gateway(files, overrides)


def _end(number: int, _: object) -> NoReturn:
    """Print what ends, then end by the signal."""
    _say(
        f"ended by {signal.Signals(number).name}: this session; the local daemon goes on for its other clients, and "
        "ends with its servers soon after the last (`toolcrib daemon stop` ends it at once)"
    )
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # the signal is on its way


def _order(files: Sequence[str], overrides: Mapping[str, Any], options: JoinOptions) -> Order:
    """Return an order without a place."""
    return Order(
        directory="",
        key="",
        files=tuple(files),
        overrides=overrides,
        project=str(here().project),
        idle_seconds=options.idle_seconds,
        log="",
        log_level=options.log_level,
        lock=-1,
        module="toolcrib.cli.processes.daemon",
        report=-1,
    )


def _placed(order: Order, options: JoinOptions, found: DaemonPlace) -> Shim:
    """Return the shim that joins the daemon at the place that was found, or starts it there."""
    endpoint = DaemonEndpoint(directory=Path(found.directory), key=found.key)
    order = order._replace(directory=found.directory, key=found.key, log=found.log)
    hello = Hello(
        key=found.key,
        version=found.version,
        profile=found.profile,
        mode=found.mode,
        cwd=order.project,
        pid=os.getpid(),
        way=options.way,
    )
    return Shim(endpoint=endpoint, hello=hello, order=order, say=_say)


def _serve_here(settings: Settings, log_level: str, source: int, sink: int, *, desk: bool) -> None:
    from .server import over_stdio  # loads the whole server: rarely needed, a client waits for the shim

    over_stdio(settings, log_level, source, sink, desk=desk)


def _say(text: str) -> None:
    line = f"toolcrib: {text}"
    if sys.stderr.isatty():
        from ..output import fitted, width_of  # a client's log needs no folding, and waits for the shim

        line = fitted(line, width_of(sys.stderr))
    with suppress(OSError):  # a client may read no log
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
