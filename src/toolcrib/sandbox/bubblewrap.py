"""The line that starts a command in bubblewrap.

It begins with a clean environment: bubblewrap is process 1 inside, and its environment can be read there whatever
`--clearenv` says (security.md, section 6). Limits are set by a shell in front of it, for they are inherited.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..core.sandbox import Command
from . import visible

__all__ = ["Bounds", "Line", "line"]

_APART: Final = ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox")
_LIMITED: Final = (
    'set -e; ulimit -c 0; ulimit -d "$1"; ulimit -f "$2"; ulimit -n "$3"; ulimit -u "$4" 2>/dev/null || ulimit -p "$4";'
    ' shift 4; unset PWD OLDPWD; exec "$@"'
)
"""Sets the limits of what it then becomes: kibibytes of data, blocks of 512 bytes, open files, processes.

The kernel counts no processes of root. Of `ulimit`, bash and dash call that option by different letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much one command may take (security.md T15)."""

    memory: int = 2 << 30
    """Bytes of data of one process, and of everything in `/tmp` together."""
    file: int = 1 << 30
    """Bytes of one file."""
    processes: int = 512
    open_files: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is started."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def line(program: str, command: Command, environ: Mapping[str, str], bounds: Bounds) -> Line:
    """Return the line for a command; `program` is bubblewrap, `environ` our environment."""
    home = Path(environ.get("HOME") or "/nonexistent")
    chains = visible.toolchains(home)
    environment = {
        **visible.clean(environ, home, _programs(environ, (*chains, *command.folders))),
        **command.environment,
    }
    apart = [*_APART, *(["--share-net"] if command.network else [])]
    if not command.terminal:  # one of ours would be lost with it, and nobody else's is there to be typed into
        apart.append("--new-session")
    inside = (*apart, *_system(bounds), *_home(home, chains), *_workspace(command), "--chdir", str(command.cwd))
    limits = (bounds.memory >> 10, bounds.file >> 9, bounds.open_files, bounds.processes)
    shell = ("/bin/sh", "-c", _LIMITED, "sh", *map(str, limits))
    return Line(argv=(*shell, program, *inside, "--", *command.argv), environment=environment)


def _programs(environ: Mapping[str, str], seen: Iterable[Path]) -> list[str]:
    """The folders of the path that a command can see."""
    places = (*map(Path, (*visible.SYSTEM, *visible.LINKS)), *seen)
    given = [entry for entry in environ.get("PATH", os.defpath).split(os.pathsep) if entry.startswith("/")]
    kept = [entry for entry in given if any(Path(entry).is_relative_to(place) for place in places)]
    return list(dict.fromkeys((*kept, "/usr/local/bin", "/usr/bin", "/bin")))


def _system(bounds: Bounds) -> list[str]:
    words: list[str] = []
    for place in visible.SYSTEM:
        words += ("--ro-bind-try", place, place)
    for place in visible.LINKS:
        link = Path(place)
        words += ("--symlink", os.readlink(place), place) if link.is_symlink() else ("--ro-bind-try", place, place)
    for name in visible.ETC:
        path = f"/etc/{name}"
        words += ("--ro-bind-try", os.path.realpath(path), path)
    room = str(bounds.memory)
    return [*words, "--proc", "/proc", "--dev", "/dev", "--size", room, "--tmpfs", "/tmp"]


def _home(home: Path, chains: Iterable[Path]) -> list[str]:
    """An empty home, with the programs in it that people have installed for themselves."""
    words = ["--size", str(64 << 20), "--tmpfs", str(home)] if home != Path("/nonexistent") else []
    for chain in chains:
        words += ("--ro-bind-try", str(chain), str(chain))
    return words


def _workspace(command: Command) -> list[str]:
    words: list[str] = []
    for path in command.readable:
        words += ("--ro-bind-try", str(path), str(path))
    for folder in command.folders:
        words += ("--bind", str(folder), str(folder))
    for path in visible.guarded(command.folders):
        words += ("--ro-bind-try", str(path), str(path))
    for path in visible.hidden(command.folders):
        words += ("--ro-bind", os.devnull, str(path))
    return words
