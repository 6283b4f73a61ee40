"""Requests of short-lived processes to a running daemon, which has loaded the program: commands, and a client's place.

Commands are the ones that read, and whose user only waits for what they print.

Most of such a command is loading the program and the configuration, which a daemon has done. So `toolcrib tools` first
asks a daemon of the same program: it runs the command for this environment and folder, and sends what is to be printed
as JSON, part by part; this process prints it at the width of its terminal. Without a daemon, and for every command
line that is not plainly one of these, the command runs here.

A client's shim asks in the same way for the place of its daemon (`find_place`), which depends on the configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

__all__ = ["END", "OF_PROCESS", "TAKEN", "find_place", "is_answered", "program", "run_answered"]

TAKEN: Final = "taken"
"""First line of a daemon that carries the command out."""
END: Final = "end"
"""Last line, with the exit status; null for a command line that is wrong."""

_ACTIONS: Final[Mapping[str, frozenset[str]]] = {
    "approvals": frozenset({"list", "show"}),
    "daemon": frozenset({"status"}),
    "guard": frozenset({"status"}),
    "jobs": frozenset({"list", "show"}),
    "pending": frozenset({"list"}),
    "policy": frozenset({"list", "test"}),
    "profile": frozenset({"list", "show", "check"}),
    "results": frozenset({"list", "show", "search"}),
    "schedule": frozenset({"list", "show"}),
    "secret": frozenset({"list"}),
    "shadow": frozenset({"list"}),
}
"""Actions that read, by command; without an action a command lists."""
_PLAIN: Final = frozenset({"find", "log", "plugins", "show", "tools", "version", "why"})
"""Commands that read, whatever follows."""
_NEEDED: Final[Mapping[str, str]] = {
    "connect": "--dry-run",
    "lock": "--check",
    "overview": "--json",
    "uninstall": "--dry-run",
}
"""Commands that only read with an option."""
_LEFT_OUT: Final = ("-", "-f", "--follow", "-h", "--help", "--debug", "export", "verify")
"""Words of command lines that read standard input, go on for ever, print a help, or name a file as they like."""
OF_PROCESS: Final = ("DBUS_SESSION_BUS_ADDRESS", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Variables that the libraries of a process read themselves: the daemon's must be the same as those of the command."""


def is_answered(words: Sequence[str]) -> bool:
    """Return whether a command line is plainly one of a command that reads."""
    name, *rest = words or [""]
    if any(word in _LEFT_OUT for word in rest):
        return False
    if name in _ACTIONS:
        return rest[:1] == [] or rest[0] in _ACTIONS[name] or set(rest) == {"--json"}
    return name in _PLAIN or (name in _NEEDED and _NEEDED[name] in rest)


def program() -> list[Any]:
    """Return what tells the program of this process from another one, or from another version of it."""
    code = Path(__file__).with_name("main.py")
    return [str(code), code.stat().st_mtime_ns, sys.prefix]


def run_answered(words: Sequence[str]) -> int | None:
    """Print what a daemon answers to the command line, and return its exit status; None where no daemon takes it."""
    with closing(_ask({"words": words})) as lines:
        if next(lines, None) != [TAKEN]:
            return None
        # Every command line comes by, `--help` too: what printing needs is loaded for the ones that are answered.
        from ..errors import CODES
        from .output import note, print_part

        for kind, *rest in lines:
            if kind == END:
                return rest[0]
            print_part([kind, *rest])
        note("toolcrib: the local daemon ended meanwhile: run the command again")
        return CODES["unavailable"].exit


def find_place(files: Sequence[str], overrides: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the fields of `daemon.rendezvous.Found` for a configuration, as a daemon reads it for this process.

    None where no daemon takes the request, or the configuration is broken.
    """
    with closing(_ask({"place": {"files": files, "overrides": overrides}})) as lines:
        answer: list[Any] = next(lines, [TAKEN]) and next(lines, [END, None])
        return answer[1]


def _ask(request: Mapping[str, Any]) -> Generator[Any]:
    """Yield the lines of the first daemon that takes the request of this process, `TAKEN` first; none without one."""
    from ..config.directories import here
    from ..core.json import dumps
    from ..daemon.control import meetings, run_there

    places = here()
    whole = {**request, "program": program(), "folder": str(places.project), "environ": dict(places.environ)}
    for meeting in meetings(places.directories.runtime):
        with closing(run_there(meeting, dumps(whole))) as lines:
            if next(lines, None) == [TAKEN]:
                yield [TAKEN]
                yield from lines
                return
