"""Start of the local daemon by `toolcrib connect`, and its end by `toolcrib disconnect`.

A daemon needs about a second to load. Started with the connection, it is there when the client comes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ...config.directories import Directories
from ...daemon.caller import END_DAEMONS, current_caller
from ...errors import ToolcribError, UsageError
from ..output import note, out

_START_SECONDS: Final = 10.0
"""Seconds that `connect` waits for a daemon; one that needs longer goes on in the background."""
_END_SECONDS: Final = 15.0


def start_daemons(entries: Iterable[Sequence[str]], folder: Path, environ: Mapping[str, str]) -> None:
    """Start the daemons that these command lines of `toolcrib serve` join. A failure is a note.

    Each command is a client that leaves at once; its daemon belongs to a session of its own and stays.
    """
    if sys.platform == "win32":
        return  # each client has servers of its own there
    quiet = subprocess.DEVNULL
    for entry in entries:
        try:
            process = subprocess.Popen(
                entry, cwd=folder, env=dict(environ), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
            )
            status = process.wait(_START_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            status = None
        if status != 0:
            note("the local daemon has not started yet: the first client starts it (`toolcrib daemon logs`)")


def end_unused_daemons(directories: Directories) -> None:
    """End the daemons of this user's `directories` that have no client. One that does not end is a note.

    A daemon that carries out the command leaves that to the process that asked.
    """
    if (caller := current_caller()) is not None:
        caller.put([END_DAEMONS])
        return
    if sys.platform == "win32":
        return
    from ...daemon.control import HungDaemon, end, statuses  # POSIX only: it needs `fcntl`

    for endpoint, status in statuses(directories.sockets):
        try:
            if isinstance(status, UsageError):
                raise status
            is_ours = Path(status.log).parent == directories.state  # others may share `runtime`
            if is_ours and not (status.clients or status.works) and end(endpoint, _END_SECONDS):
                out(f"ended the daemon (process {status.pid})")
        except HungDaemon as error:
            if not error.is_known:
                note(str(error))
        except ToolcribError as error:
            note(str(error))
