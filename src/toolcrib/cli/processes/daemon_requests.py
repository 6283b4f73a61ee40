"""Requests of short-lived processes to a running daemon, which has loaded the program: commands, and a client's place.

Most of a command is loading the program and the configuration, which a daemon has done. So `toolcrib tools` first asks
a daemon of the same program: it runs the command for this environment and folder, and sends what is to be printed as
JSON, part by part; this process prints it at the width of its terminal, and answers what the command asks. Its end
interrupts the command. Without a daemon, and for every command line that is not plainly one of these, the command runs
here.

    this process ── {words, environ, folder, umask, program} ──> daemon
                 <── ["taken"]                                    else: not for this daemon, the next is asked
                 <── parts to print, ["ask", NUMBER, …] ── answer ──>
                 <── ["end", STATUS]                              null: left to this process after all

A client's shim asks in the same way for the place of its daemon (`find_place`), which depends on the configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...daemon.caller import ASK, END_DAEMONS, WITHDRAW, terminals

if TYPE_CHECKING:  # POSIX only
    from ...daemon.control import CommandLink

TAKEN: Final = "taken"
"""First line of a daemon that carries the command out."""
END: Final = "end"
"""Last line, with the exit status; null for a command that the process is to carry out itself."""

_ANSWERED: Final = frozenset(
    (
        "accept add approvals call compare connect daemon disconnect doctor find guard import jobs lock log logout "
        "overview pending plugin plugins policy profile queue remove results schedule secret shadow show tools trust "
        "version why work"
    ).split()
)
"""Commands that a daemon carries out."""
_OWN_ACTIONS: Final[Mapping[str, frozenset[str]]] = {
    "approvals": frozenset({"watch"}),
    "daemon": frozenset({"stop"}),
    "queue": frozenset({"follow", "work"}),
}
"""Actions of them that go on for ever, or end the daemon."""
_NEEDED: Final[Mapping[str, str]] = {"uninstall": "--dry-run"}
"""Commands that are answered with an option: without it they end the daemon and remove its program."""
_HELP_ONLY: Final = frozenset({"demo", "hook", "login", "serve", "uninstall", "worker"})
"""Commands of which the help is answered."""
_HELP: Final = frozenset({"-h", "--help"})
_LEFT_OUT: Final = frozenset({"-f", "--follow", "--debug"})
"""Words of command lines that go on for ever, or show what happens in the process itself."""
_TAKE_SECONDS: Final = 5.0
"""For a daemon to take a command; one that takes longer is named."""
_NEXT_SECONDS: Final = 0.5
"""The same for the others, once one has hung."""
_PLACE_SECONDS: Final = 2.0
"""For a daemon to take a client's request: a client reads the configuration itself in less than this."""
OF_PROCESS: Final = ("DBUS_SESSION_BUS_ADDRESS", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Variables that the libraries of a process read themselves: the daemon's must be the same as those of the command."""


def is_answered(words: Sequence[str]) -> bool:
    """Return whether a command line is plainly one that a daemon may carry out."""
    name, *rest = words or ["overview"]
    given = frozenset(rest)
    if given & _LEFT_OUT:
        return False
    if given & _HELP:
        return name in _ANSWERED or name in _HELP_ONLY
    return _NEEDED.get(name) in given or (name in _ANSWERED and not given & _OWN_ACTIONS.get(name, frozenset()))


def program() -> list[Any]:
    """Return the identity of this process's program, which differs from that of another installation."""
    return [__file__, sys.prefix]


def run_answered(words: Sequence[str]) -> int | None:
    """Print what a daemon answers to the command line, and return its exit status.

    None where the command is left to this process.
    """
    from shutil import get_terminal_size  # not for `find_place`, which clients wait for

    process = {"words": words, "terminals": sorted(terminals()), "columns": get_terminal_size().columns}
    ended: list[int | None] = []
    is_last = False
    for link in _links(process, _TAKE_SECONDS):
        lines = iter(link)
        if next(lines, None) != [TAKEN]:
            continue
        # Every command line comes by, `--help` too: what printing needs is loaded for the ones that are answered.
        from ...errors import CODES
        from ..output import INPUTS, note, print_part

        for kind, *rest in lines:
            if kind == END:
                ended = rest
            elif kind == END_DAEMONS:
                is_last = True
            elif kind == ASK:
                number, what, *arguments = rest
                link.answer(number, INPUTS[what](*arguments) if what in INPUTS else _approval(link, *arguments))
            elif kind != WITHDRAW:
                print_part([kind, *rest])
        if not ended:
            note("toolcrib: the local daemon ended before the command: see what it has done, then run it again")
            return CODES["unavailable"].exit
        break
    if is_last:  # the daemon has carried out the command: its link is closed
        from ...config.directories import here
        from .daemon_start import end_unused_daemons

        end_unused_daemons(here().directories)
    return ended[0] if ended else None


def _approval(link: CommandLink, word: str) -> Any:
    from ..prompts import approval_for  # for the few commands that ask, and whose user thinks meanwhile

    return approval_for(link.socket, word)


def find_place(files: Sequence[str], overrides: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the fields of `daemon.rendezvous.DaemonPlace` for a configuration, as a daemon reads it for this process.

    Empty for a configuration that cannot have a daemon: this process shows its mistake. None where no daemon takes the
    request.
    """
    for link in _links({"place": {"files": files, "overrides": overrides}}, _PLACE_SECONDS):
        lines = iter(link)
        if next(lines, None) == [TAKEN]:
            answer: list[Any] = next(lines, [END, None])
            return answer[1]
    return None


def _links(request: Mapping[str, Any], seconds: float) -> Generator[CommandLink]:
    """Yield a link to each daemon of this user, open until the next one, to send the request of this process.

    The daemon has `seconds` to take it.
    """
    from ...config.directories import here
    from ...daemon.control import command_link, endpoints
    from ...daemon.rendezvous import write_line

    places = here()
    process = {"program": program(), "folder": str(places.project), "environ": dict(places.environ), "umask": umask()}
    try:
        whole = write_line({**request, **process}, is_utf8=True)
    except UnicodeEncodeError:  # bytes that are not UTF-8 in a word, a folder or a variable: no daemon can be sent them
        return
    for endpoint in endpoints(places.directories.sockets):
        if (link := command_link(endpoint, whole, seconds)) is not None:
            with link:
                yield link
            if link.hung is None:
                continue
            seconds = min(seconds, _NEXT_SECONDS)
            if "words" in request:  # a client looks into its log rarely
                sys.stderr.write(f"toolcrib: {link.hung}\n")


def umask() -> int:
    """Return the mode bits that new files of this process lack."""
    bits = os.umask(0o077)
    os.umask(bits)
    return bits
