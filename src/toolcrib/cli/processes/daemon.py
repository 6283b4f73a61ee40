"""The process of a local daemon: serves clients, and answers other processes of its program (`daemon_requests`)."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, TextIO

from ...config.directories import answering_for, here
from ...config.loader import load_gateway
from ...core.json import loads
from ...daemon.caller import Caller, LeftToCaller, calling, current_caller
from ...daemon.rendezvous import DaemonEndpoint, DaemonPlace
from ...errors import ToolcribError
from ...system.program_files import changed_since_start
from ..output import print_raw
from .daemon_requests import END, OF_PROCESS, TAKEN, is_answered, program, umask

_UMASK = umask()
_HELP_COLUMNS: Final = 80
"""Columns of a help or a usage error on a wide terminal, as typer has it."""


def run_command(request: bytes, caller: Caller) -> None:
    """Carry out the command of a request for its environment and folder; the `caller` prints each part.

    Or send the place of the daemon for its configuration. Sends nothing for a command that is not answered here, and
    for a request of another program or home, also where the files of this one have changed.
    """
    asked: dict[str, Any] = loads(request)
    words, environ = asked.get("words"), asked["environ"]
    own = here().environ
    # A place depends on files and on the asking process's own variables; many clients start a server with few of them.
    alike = ("HOME",) if words is None else OF_PROCESS
    is_alike = all(own.get(name) == environ.get(name) for name in alike) and (words is None or asked["umask"] == _UMASK)
    is_alike = is_alike and asked["program"] == program() and not changed_since_start()
    if not is_alike or not (words is None or is_answered(words)):
        return
    caller.terminals = frozenset(asked.get("terminals", ()))
    with suppress(ConnectionError):  # who asked has gone: an interrupted command, a closed pipe
        caller.put([TAKEN])
        with answering_for(environ, Path(asked["folder"])), calling(caller):
            result = _find_place(**asked["place"]) if words is None else _run(words, asked["columns"])
        caller.put([END, result])


def _find_place(files: list[str], overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `DaemonPlace`; empty for a configuration whose mistake the asking process shows itself."""
    try:
        settings = load_gateway(files, overrides)
        return DaemonPlace.of(settings, DaemonEndpoint.of(settings))._asdict()
    except ToolcribError:
        return {}


class CallerStream(io.TextIOBase):
    """Standard output or error of a daemon: what a command prints in any way goes to its caller, else to `original`."""

    encoding = "utf-8"  # the caller encodes as its terminal wants
    errors = "strict"

    def __init__(self, original: TextIO) -> None:
        super().__init__()
        self._original = original

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, text: str, /) -> int:
        """Print `text`; raises `ConnectionError` when the caller is gone."""
        if current_caller() is None:
            return self._original.write(text)
        print_raw(text, is_error=self._original is sys.__stderr__)
        return len(text)

    def flush(self) -> None:
        """Write out what the daemon itself printed."""
        self._original.flush()

    def fileno(self) -> int:
        """Return the descriptor of the daemon's own stream."""
        return self._original.fileno()


@contextmanager
def printing_to_callers() -> Generator[None]:
    """Let commands print to their callers, in any way that they print."""
    assert sys.__stdout__ is not None and sys.__stderr__ is not None
    with redirect_stdout(CallerStream(sys.__stdout__)), redirect_stderr(CallerStream(sys.__stderr__)):
        yield


def _run(words: list[str], columns: int) -> int | None:
    """Run a command line for a caller with a terminal of so many columns.

    Return its exit status; None for one that the caller is to run itself.
    """
    from typer.main import get_command  # a daemon that no command asks does not need it

    from ..main import app, is_of_another_package

    if is_of_another_package(words[0] if words else ""):
        return None

    command: Any = get_command(app)
    width = max(min(columns, _HELP_COLUMNS) - 2, _HELP_COLUMNS // 2)
    try:
        command.main(words, prog_name="toolcrib", terminal_width=width)
    except LeftToCaller:
        return None
    except SystemExit as end:  # of a command, which is not one of this process
        return end.code if isinstance(end.code, int) else 0
    return 0


if __name__ == "__main__":
    gc.disable()  # a client waits, and nothing of what is loaded here is garbage
    from ...daemon import daemon
    from ...system.memory import collect_seldom, keep_freed_memory

    keep_freed_memory()
    collect_seldom(is_clean=True)
    gc.enable()
    with printing_to_callers():
        daemon.main(run_command)
