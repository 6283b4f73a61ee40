"""Seccomp filter: kernel calls that a command may not make.

In every sandbox it refuses calls that reach past every namespace: keys of the session belong to every process in it;
sockets of a virtual machine lead to its host, and other socket families past the network namespace; the rest are kernel
interfaces that tools do not use and in which holes were found. Other calls are allowed. A program for another
architecture than the machine's meets the same list.

A command that shares the namespaces of the machine (`Shared`, under Landlock) meets a longer list: what changes files
anywhere without opening them, memory and queues that processes of one user share by name, namespaces, and sockets.
Programs for another architecture do not run there.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

__all__ = ["Shared", "is_known", "modes_of", "opened_filter"]

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_HAS_BITS: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_ALLOW: Final = 0x7FFF0000
_ASK: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
_ERROR: Final = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16
"""Offsets in `struct seccomp_data`; of the first argument the lower half, the only part that counts here."""
_X32: Final = 0x40000000
_FAMILIES: Final = (0, 1, 2, 10, 16)
"""Unspecified, local, IPv4, IPv6, netlink: each belongs to a network namespace."""
_FAMILIES_OF_NETWORK: Final = (2, 10, 16)
_NEW_USER: Final = 0x10000000  # CLONE_NEWUSER


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedCalls:
    """Further numbers, for a command that shares the namespaces of the machine."""

    denied: Sequence[int]
    """chown; setting and removing extended attributes; unshare, setns; shmget, shmat, semget, msgget, mq_open."""
    modes: Mapping[int, str]
    """Calls that change modes, with the kind of their arguments: the supervisor makes them (`inside/confine.py`)."""
    clone: int
    prlimit: int
    """Of itself only: the limit of another process would end it."""
    absent: Sequence[int] = (435,)
    """clone3, whose flags no filter can read: programs take clone instead."""


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
    shared: _SharedCalls | None = None


_X86_64: Final = _Calls(
    audit=0xC000003E,
    socket=41,
    denied=(248, 249, 250, 321, 298, 304, 246, 323),
    shared=_SharedCalls(
        denied=(92, 93, 94, 260, 188, 189, 190, 197, 198, 199, 463, 466, 272, 308, 29, 30, 64, 68, 240),
        modes={90: "path", 91: "descriptor", 268: "at", 452: "at_flags"},
        clone=56,
        prlimit=302,
    ),
)
_I386: Final = _Calls(
    audit=0x40000003, socket=359, denied=(286, 287, 288, 357, 336, 342, 283, 374), absent=(425, 426, 427, 102)
)
_AARCH64: Final = _Calls(
    audit=0xC00000B7,
    socket=198,
    denied=(217, 218, 219, 280, 241, 265, 104, 282),
    shared=_SharedCalls(
        denied=(54, 55, 5, 6, 7, 14, 15, 16, 463, 466, 97, 268, 194, 196, 190, 186, 180),
        modes={52: "descriptor", 53: "at", 452: "at_flags"},
        clone=220,
        prlimit=261,
    ),
)
_ARM: Final = _Calls(
    audit=0x40000028, socket=281, denied=(309, 310, 311, 386, 364, 371, 347, 388), absent=(425, 426, 427, 102)
)
_MACHINES: Final[Mapping[str, Sequence[_Calls]]] = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64, _ARM)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A command that shares the namespaces of the machine."""

    network: bool
    """Whether it may open sockets; local ones lead to services of this machine and are refused in any case."""


def is_known(machine: str = "") -> bool:
    """Whether the numbers of a machine's calls are known; of this one without a name."""
    return (machine or platform.machine()) in _MACHINES


def modes_of(machine: str = "") -> Mapping[int, str]:
    """Return the calls that change modes on a machine, this one without a name, with the kind of their arguments."""
    shared = _MACHINES[machine or platform.machine()][0].shared
    return shared.modes if shared else {}


def opened_filter(shared: Shared | None = None) -> int:
    """Return a descriptor with the filter; -1 on an unknown architecture."""
    program = _program(platform.machine(), shared)
    if not program:
        return -1
    made = os.memfd_create("toolcrib-filter", 0)
    os.write(made, program)
    os.lseek(made, 0, os.SEEK_SET)
    return made


@cache
def _program(machine: str, shared: Shared | None) -> bytes:
    """Return the filter of a machine, as the kernel takes it."""
    kinds = _MACHINES.get(machine, ())
    if not kinds:
        return b""
    steps: list[bytes] = []
    for calls in kinds if shared is None else kinds[:1]:
        body = _body(calls, shared)
        steps += [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, calls.audit, no=len(body)), *body]
    return b"".join([*steps, _step(_RETURN, _ERROR | errno.ENOSYS)])


def _body(calls: _Calls, shared: Shared | None) -> list[bytes]:
    """Return the steps for one architecture; each way through them ends."""
    steps = [_step(_LOAD, _NUMBER)]
    if calls is _X86_64:
        steps += [_step(_AT_LEAST, _X32, no=1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    also = calls.shared if shared is not None else None
    denied, absent = (*calls.denied, *(also.denied if also else ())), (*calls.absent, *(also.absent if also else ()))
    for numbers, error in ((denied, errno.EPERM), (absent, errno.ENOSYS)):
        for number in numbers:
            steps += [_step(_EQUAL, number, no=1), _step(_RETURN, _ERROR | error)]
    if also is not None:
        for number in also.modes:
            steps += [_step(_EQUAL, number, no=1), _step(_RETURN, _ASK)]
        refused, allowed = _step(_RETURN, _ERROR | errno.EPERM), _step(_RETURN, _ALLOW)
        steps += [_step(_EQUAL, also.clone, no=4), _step(_LOAD, _FIRST), _step(_HAS_BITS, _NEW_USER, no=1)]
        steps += [refused, allowed, _step(_EQUAL, also.prlimit, no=4), _step(_LOAD, _FIRST), _step(_EQUAL, 0, yes=1)]
        steps += [refused, allowed]
    families = _FAMILIES if shared is None else _FAMILIES_OF_NETWORK if shared.network else ()
    jumps = [_step(_EQUAL, family, yes=len(families) - place) for place, family in enumerate(families)]
    steps += [_step(_EQUAL, calls.socket, yes=1), _step(_RETURN, _ALLOW), _step(_LOAD, _FIRST), *jumps]
    return [*steps, _step(_RETURN, _ERROR | errno.EAFNOSUPPORT), _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction; `yes` and `no` are how many are left out then."""
    return struct.pack("=HBBI", code, yes, no, value)
