"""The process of a local daemon: serves clients, and answers other processes of its program (`cli.answered`)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config.directories import answering_for, here
from ..config.loader import load_gateway
from ..core.json import dumps, loads
from ..daemon.rendezvous import Found, Meeting
from ..errors import ToolcribError
from .answered import END, OF_PROCESS, TAKEN, is_answered, program
from .output import recorded

__all__ = ["run_command"]

_PROGRAM = program()
"""As it was when this process began: an upgrade since then is another program."""


def run_command(request: bytes, send: Callable[[bytes], None]) -> None:
    """Carry out the command of a request for its environment and folder, and send each part of what it prints.

    Or send the place of the daemon for its configuration. Sends nothing for a command that is not answered here, and
    for a request of another program or home.
    """
    asked: dict[str, Any] = loads(request)
    words, environ = asked.get("words"), asked["environ"]
    own = here().environ
    # A place depends on files and on the asking process's own variables; many clients start a server with few of them.
    alike = ("HOME",) if words is None else OF_PROCESS
    is_alike = all(own.get(name) == environ.get(name) for name in alike)
    if asked["program"] != _PROGRAM or not is_alike or not (words is None or is_answered(words)):
        return

    def put(part: list[Any]) -> None:
        send(dumps(part))

    with suppress(ConnectionError):  # who asked has gone: an interrupted command, a closed pipe
        put([TAKEN])
        with answering_for(environ, Path(asked["folder"])), recorded(put):
            result = _find_place(**asked["place"]) if words is None else _run(words)
        put([END, result])


def _find_place(files: list[str], overrides: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of `Found` for a configuration; None for one whose mistake the asking process shows itself."""
    try:
        settings = load_gateway(files, overrides)
        return asdict(Found.of(settings, Meeting.of(settings)))
    except ToolcribError:
        return None


def _run(words: list[str]) -> int | None:
    """Run a command line; return its exit status, None for one whose mistake the asking process shows itself."""
    from typer import Abort, TyperException  # a daemon that no command asks does not need them
    from typer.main import get_command

    from .main import app

    try:
        status: Any = get_command(app).main(words, prog_name="toolcrib", standalone_mode=False)
    except (Abort, TyperException):
        return None
    except SystemExit as end:  # an exit of a command, which is not one of this process
        status = end.code
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    gc.disable()  # a client waits, and nothing of what is loaded here is garbage
    from ..daemon import daemon
    from ..system.memory import keep_freed_memory

    keep_freed_memory()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)  # calls leave hardly any cycles
    gc.enable()
    daemon.main(run_command)
