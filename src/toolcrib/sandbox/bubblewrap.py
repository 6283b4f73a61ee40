"""Bubblewrap: its command line, with the programs and folders that a command sees, and the seccomp filter.

The filter refuses kernel calls that reach past every namespace: keys of the session belong to every process in it;
sockets of a virtual machine lead to its host, and other socket families past the network namespace; the rest are kernel
interfaces that tools do not use and in which holes were found. Other calls are allowed. A program for another
architecture than the machine's meets the same list.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from ..core.sandbox import Command, Reach
from . import egress
from .protected_paths import Guarded

__all__ = ["ETC", "LINKS", "SYSTEM", "Bounds", "Line", "Maker", "Wires", "clean", "line", "opened_filter", "toolchains"]

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16
"""Offsets in `struct seccomp_data`; of the first argument the lower half, the only part that counts here."""
_X32: Final = 0x40000000
_FAMILIES: Final = (0, 1, 2, 10, 16)
"""Unspecified, local, IPv4, IPv6, netlink: each belongs to a network namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """The numbers of one architecture (its `unistd.h`)."""

    audit: int
    """The kernel's name for the architecture (`linux/audit.h`)."""
    socket: int
    denied: Sequence[int]
    """add_key, request_key, keyctl, bpf, perf_event_open, open_by_handle_at, kexec_load, userfaultfd."""
    absent: Sequence[int] = (425, 426, 427)
    """io_uring_setup, _enter and _register: programs do without them where a kernel has none. And socketcall."""


_X86_64: Final = _Calls(audit=0xC000003E, socket=41, denied=(248, 249, 250, 321, 298, 304, 246, 323))
_I386: Final = _Calls(
    audit=0x40000003, socket=359, denied=(286, 287, 288, 357, 336, 342, 283, 374), absent=(425, 426, 427, 102)
)
_AARCH64: Final = _Calls(audit=0xC00000B7, socket=198, denied=(217, 218, 219, 280, 241, 265, 104, 282))
_ARM: Final = _Calls(
    audit=0x40000028, socket=281, denied=(309, 310, 311, 386, 364, 371, 347, 388), absent=(425, 426, 427, 102)
)
_MACHINES: Final[Mapping[str, Sequence[_Calls]]] = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64, _ARM)}


def opened_filter() -> int:
    """Return a descriptor with the filter for bubblewrap; -1 on an unknown architecture."""
    program = _program(platform.machine())
    if not program:
        return -1
    made = os.memfd_create("toolcrib-filter", 0)
    os.write(made, program)
    os.lseek(made, 0, os.SEEK_SET)
    return made


@cache
def _program(machine: str) -> bytes:
    """Return the filter of a machine, as the kernel takes it."""
    kinds = _MACHINES.get(machine, ())
    if not kinds:
        return b""
    steps: list[bytes] = []
    for calls in kinds:
        body = _body(calls)
        steps += [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, calls.audit, no=len(body)), *body]
    return b"".join([*steps, _step(_RETURN, _ERROR | errno.ENOSYS)])


def _body(calls: _Calls) -> list[bytes]:
    """Return the steps for one architecture; each way through them ends."""
    steps = [_step(_LOAD, _NUMBER)]
    if calls is _X86_64:
        steps += [_step(_AT_LEAST, _X32, no=1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    for numbers, error in ((calls.denied, errno.EPERM), (calls.absent, errno.ENOSYS)):
        for number in numbers:
            steps += [_step(_EQUAL, number, no=1), _step(_RETURN, _ERROR | error)]
    families = [_step(_EQUAL, family, yes=len(_FAMILIES) - place) for place, family in enumerate(_FAMILIES)]
    steps += [_step(_EQUAL, calls.socket, yes=1), _step(_RETURN, _ALLOW), _step(_LOAD, _FIRST), *families]
    return [*steps, _step(_RETURN, _ERROR | errno.EAFNOSUPPORT), _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction; `yes` and `no` are how many are left out then."""
    return struct.pack("=HBBI", code, yes, no, value)


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
_KEPT: Final = frozenset({"LANG", "LANGUAGE", "TERM", "TZ"})


def clean(environ: Mapping[str, str], home: Path, programs: Sequence[str]) -> dict[str, str]:
    """Return the environment of a command: the harmless part of `environ`, and `programs` as its path."""
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join(programs), "TMPDIR": "/tmp", "SHELL": "/bin/sh"}


def toolchains(home: Path) -> tuple[Path, ...]:
    """Return the folders below `home` with programs, and that of the Python that runs us."""
    found = [home / name for name in _TOOLCHAINS if (home / name).exists()]
    own = Path(sys.base_prefix)
    return (*found, *(() if own.is_relative_to("/usr") or own == Path("/usr") else (own,)))


_APART: Final = ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox")
_ALONE: Final = ("--unshare-user", "--disable-userns")
"""No user namespaces inside: in one of its own a command could mount, and reach more of the kernel."""
_CLOSED: Final = ("--remount-ro", "/dev", "--remount-ro", "/")
"""Directories of the mounts: in memory and of size zero, so nothing can be written there afterwards."""
_SHARED: Final = 4
"""The part of the memory that `/dev/shm` may have."""
_LIMITED: Final = (
    'if [ -n "$4" ]; then echo $$ >"$4"; fi 2>/dev/null;'
    ' ulimit -c 0 && ulimit -d "$1" && ulimit -f "$2" && ulimit -n "$3" || exit 125; shift 4; unset PWD OLDPWD;'
    ' exec "$@"'
)
"""Joins a control group and sets the limits: kibibytes of data, blocks of 512 bytes, open files."""
_COUNTED: Final = 'n=$1; shift; (ulimit -u "$n") 2>/dev/null && ulimit -u "$n" || ulimit -p "$n"; exec "$@"'
"""Sets how many processes there may be, inside: there only those of the command count, and not all of the user's.

The kernel counts no processes of root there; `cgroup` or `process_monitor` does.
bash and dash have two letters for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one command (security.md T15)."""

    memory: int = 2 << 30
    """Bytes: data of one process, everything in `/tmp`, and the memory of all processes together."""
    file: int = 1 << 30
    """Bytes of one file."""
    processes: int = 512
    """At a time, threads included where the kernel counts them."""
    open_files: int = 1024
    free: int = 512 << 20
    """Bytes that must stay free on the disk of the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Command line, environment and descriptors of the process to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Makes lines for one machine."""

    program: str
    """bubblewrap."""
    environ: Mapping[str, str]
    """Environment of this process."""
    bounds: Bounds
    alone: bool = True
    """Whether user namespaces can be switched off inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """Descriptors that a command is started with; -1 for those it has not."""

    status: int = -1
    """Descriptor on which bubblewrap reports the processes that it started."""
    filter: int = -1
    """The filter of its calls is read there."""
    control: int = -1
    """Descriptor over which it sends the socket of its egress."""

    def __iter__(self) -> Iterator[int]:
        """The open descriptors."""
        return (wire for wire in (self.status, self.filter, self.control) if wire >= 0)


def line(maker: Maker, command: Command, guarded: Guarded, wires: Wires, group: str = "") -> Line:
    """Return the line for a command; `group` is the entrance of its control group, empty for none."""
    home = Path(maker.environ.get("HOME") or "/nonexistent")
    chains = toolchains(home)
    programs = _programs(maker.environ, (*chains, *command.folders))
    way_out = egress.environment(command.network) if wires.control >= 0 and isinstance(command.network, Reach) else {}
    environment = {**clean(maker.environ, home, programs), **way_out, **command.environment}
    apart = [*_APART, *(_ALONE if maker.alone else ()), *(["--share-net"] if command.network is True else [])]
    if command.terminal is None:  # keeps it from our terminal; a terminal of its own would be lost
        apart.append("--new-session")
    for option, wire in (("--json-status-fd", wires.status), ("--seccomp", wires.filter)):
        apart += (option, str(wire)) if wire >= 0 else ()
    bounds = maker.bounds
    seen = (*_system(bounds), *_home(home, chains), *_workspace(command, guarded))
    limits = (str(bounds.memory >> 10), str(bounds.file >> 9), str(bounds.open_files), group)
    before = ("/bin/sh", "-c", _LIMITED, "sh", *limits)
    inside = ("/bin/sh", "-c", _COUNTED, "sh", str(bounds.processes), *command.argv)
    if wires.control >= 0:
        inside = (*egress.starter(wires.control), *inside)
        seen = (*seen, *_of_the_way_out())
    argv = (*before, maker.program, *apart, *seen, *_CLOSED, "--chdir", str(command.cwd), "--", *inside)
    return Line(argv=argv, environment=environment)


def _programs(environ: Mapping[str, str], seen: Iterable[Path]) -> list[str]:
    """The folders of the path that a command can see."""
    places = (*map(Path, (*SYSTEM, *LINKS)), *seen)
    given = [entry for entry in environ.get("PATH", os.defpath).split(os.pathsep) if entry.startswith("/")]
    kept = [entry for entry in given if any(Path(entry).is_relative_to(place) for place in places)]
    return list(dict.fromkeys((*kept, "/usr/local/bin", "/usr/bin", "/bin")))


def _system(bounds: Bounds) -> list[str]:
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
    return [*words, "--size", str(bounds.memory // _SHARED), "--tmpfs", "/dev/shm"]


def _home(home: Path, chains: Iterable[Path]) -> list[str]:
    """An empty home, with the programs in it that people have installed for themselves."""
    words = ["--size", str(64 << 20), "--tmpfs", str(home)] if home != Path("/nonexistent") else []
    for chain in chains:
        words += ("--ro-bind-try", str(chain), str(chain))
    return words


def _of_the_way_out() -> list[str]:
    """Programs inside the sandbox that forward connections, and the ssh configuration that points at them."""
    ours, there = egress.INSIDE
    config = "/etc/ssh/ssh_config"
    return ["--ro-bind", str(ours), str(there), "--ro-bind", str(ours / "ssh_config"), config]


def _workspace(command: Command, guarded: Guarded) -> list[str]:
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
