"""Seccomp filter: kernel calls that a command may not make.

In every sandbox it refuses calls that reach past every namespace: keys of the session belong to every process in it;
sockets of a virtual machine lead to its host, and other socket families past the network namespace; the rest are kernel
interfaces that tools do not use and in which holes were found. Other calls are allowed. A program for another
architecture than the machine's meets the same list.

A command that shares the namespaces of the machine (`Shared`, under Landlock) meets a longer list: what changes or
watches files anywhere without opening them, memory and queues that processes of one user share by name or number, the
priority of other processes, namespaces, and sockets. Programs for another architecture do not run there.

    for each architecture   load it ──► not this one: next
                            denied: EPERM   absent: ENOSYS   asked: the supervisor   socket: by its family   else: allow
    no architecture fits    ENOSYS
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_HAS_BITS: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_MASK: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_ALLOW: Final = 0x7FFF0000
_ASK: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
_ERROR: Final = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `struct seccomp_data`; of arguments the lower half, the only part that counts here."""
_X32: Final = 0x40000000
_FAMILIES: Final = (0, 1, 2, 10, 16)
"""Unspecified, local, IPv4, IPv6, netlink: each belongs to a network namespace."""
_FAMILIES_OF_NETWORK: Final = (2, 10, 16)
_NEW_USER: Final = 0x10000000  # CLONE_NEWUSER
_LOCAL_FAMILY: Final = 1
_KIND_OF_SOCKET: Final = 0xF
_CONNECTED_TYPES: Final = (1, 5)
"""Stream and packets in order: a pair of datagram sockets could still send to any service of the machine."""
_PER_USER_CALLS: Final = {"setpriority": 2, "ioprio_set": 3}
"""PRIO_USER and IOPRIO_WHO_USER: every process of a user."""
_SET_LEASE: Final = 1024  # F_SETLEASE: others wait where they open the file
_ATTRIBUTES: Final = (
    *(0x40086602, 0x401C5820, 0x40087602, 0x40086604, 0x40806685, 0x800C6613),
    *(0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F),
    *(0x5412, 0x541C),
)
"""Requests that change a file or folder which is open for reading: flags, attributes, version, verity, encryption;
snapshots and parts of btrfs. And TIOCSTI and TIOCLINUX, which type into a terminal."""


class _SharedCalls(Struct, frozen=True, kw_only=True):
    """Further numbers, for a command that shares the namespaces of the machine."""

    denied: Sequence[int]
    """unshare, setns; shared memory, semaphores and queues; fanotify_init."""
    attributes: Sequence[int]
    """Setting and removing extended attributes, file_setattr: programs do without where a file system has none."""
    asked: Mapping[int, str]
    """Calls that name a file without opening it, which the supervisor makes (`inside/answer.py`), by number."""
    own: Sequence[int]
    """prlimit, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr: of the caller only."""
    priority: Mapping[int, str]
    """setpriority, ioprio_set: of the caller or its process group only."""
    clone: int
    socketpair: int
    ioctl: int
    fcntl: int
    absent: Sequence[int] = (435,)
    """clone3, whose flags no filter can read: programs take clone instead. And older calls that set times."""


class _Calls(Struct, frozen=True, kw_only=True):
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
        denied=(272, 308, 29, 30, 31, 64, 65, 66, 220, 68, 69, 70, 71, 240, 241, 300),
        attributes=(188, 189, 190, 197, 198, 199, 463, 466, 469),
        asked={
            90: "chmod",
            91: "fchmod",
            268: "fchmodat",
            452: "fchmodat2",
            92: "chown",
            93: "fchown",
            94: "lchown",
            260: "fchownat",
            280: "utimensat",
            254: "inotify_add_watch",
        },
        own=(302, 142, 144, 203, 314),
        priority={141: "setpriority", 251: "ioprio_set"},
        clone=56,
        socketpair=53,
        ioctl=16,
        fcntl=72,
        absent=(435, 132, 235, 261),
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
        denied=(97, 268, 194, 196, 195, 190, 193, 191, 192, 186, 189, 188, 187, 180, 181, 262),
        attributes=(5, 6, 7, 14, 15, 16, 463, 466, 469),
        asked={
            52: "fchmod",
            53: "fchmodat",
            452: "fchmodat2",
            54: "fchownat",
            55: "fchown",
            88: "utimensat",
            27: "inotify_add_watch",
        },
        own=(261, 118, 119, 122, 274),
        priority={140: "setpriority", 30: "ioprio_set"},
        clone=220,
        socketpair=199,
        ioctl=29,
        fcntl=25,
    ),
)
_ARM: Final = _Calls(
    audit=0x40000028, socket=281, denied=(309, 310, 311, 386, 364, 371, 347, 388), absent=(425, 426, 427, 102)
)
_MACHINES: Final[Mapping[str, Sequence[_Calls]]] = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64, _ARM)}


class Shared(Struct, frozen=True, kw_only=True):
    """A command that shares the namespaces of the machine."""

    network: bool
    """Whether it may open sockets; local ones lead to services of this machine and are refused in any case."""


def is_known() -> bool:
    """Whether the numbers of this machine's calls are known."""
    return platform.machine() in _MACHINES


def asked_calls() -> Mapping[int, str]:
    """Return the calls that the supervisor makes on this machine, by number."""
    shared = _MACHINES[platform.machine()][0].shared
    return shared.asked if shared else {}


def opened_filter(shared: Shared | None = None) -> int:
    """Return a descriptor with the filter; -1 on an unknown architecture.

    The caller closes it.
    """
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
    """Return the steps for one architecture; each way through them ends.

    Jumps count instructions that are left out: a step that is added between two others changes the counts before it.
    """
    steps = [_step(_LOAD, _NUMBER)]
    if calls is _X86_64:
        steps += [_step(_AT_LEAST, _X32, no=1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    also = calls.shared if shared is not None else None
    denied, absent = (*calls.denied, *(also.denied if also else ())), (*calls.absent, *(also.absent if also else ()))
    for numbers, error in ((denied, errno.EPERM), (absent, errno.ENOSYS)):
        for number in numbers:
            steps += [_step(_EQUAL, number, no=1), _step(_RETURN, _ERROR | error)]
    if also is not None:
        steps += _limits(also)
    families = _FAMILIES if shared is None else _FAMILIES_OF_NETWORK if shared.network else ()
    jumps = [_step(_EQUAL, family, yes=len(families) - place) for place, family in enumerate(families)]
    steps += [_step(_EQUAL, calls.socket, yes=1), _step(_RETURN, _ALLOW), _step(_LOAD, _FIRST), *jumps]
    return [*steps, _step(_RETURN, _ERROR | errno.EAFNOSUPPORT), _step(_RETURN, _ALLOW)]


def _limits(calls: _SharedCalls) -> Iterator[bytes]:
    """Yield the steps for calls whose arguments count; those for one call end by returning."""
    refused, allowed = _step(_RETURN, _ERROR | errno.EPERM), _step(_RETURN, _ALLOW)
    for number in calls.attributes:
        yield from (_step(_EQUAL, number, no=1), _step(_RETURN, _ERROR | errno.EOPNOTSUPP))
    for number in calls.asked:
        yield from (_step(_EQUAL, number, no=1), _step(_RETURN, _ASK))
    yield from _of(calls.clone, _step(_LOAD, _FIRST), _step(_HAS_BITS, _NEW_USER, no=1), refused, allowed)
    for number in calls.own:
        yield from _of(number, _step(_LOAD, _FIRST), _step(_EQUAL, 0, yes=1), refused, allowed)
    for number, name in calls.priority.items():
        which = (_step(_LOAD, _FIRST), _step(_EQUAL, _PER_USER_CALLS[name], yes=1))
        yield from _of(number, _step(_LOAD, _SECOND), _step(_EQUAL, 0, no=3), *which, allowed, refused)
    kinds = (_step(_EQUAL, kind, yes=len(_CONNECTED_TYPES) - place) for place, kind in enumerate(_CONNECTED_TYPES))
    kind = (_step(_LOAD, _SECOND), _step(_MASK, _KIND_OF_SOCKET), *kinds)
    family = (_step(_LOAD, _FIRST), _step(_EQUAL, _LOCAL_FAMILY, no=len(kind)))
    yield from _of(calls.socketpair, *family, *kind, refused, allowed)
    for number, requests in ((calls.ioctl, _ATTRIBUTES), (calls.fcntl, (_SET_LEASE,))):
        each = (_step(_EQUAL, request, yes=len(requests) - place) for place, request in enumerate(requests))
        yield from _of(number, _step(_LOAD, _SECOND), *each, allowed, refused)


def _of(number: int, *steps: bytes) -> tuple[bytes, ...]:
    """Return steps that only one call takes."""
    return (_step(_EQUAL, number, no=len(steps)), *steps)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction; `yes` and `no` are how many are left out then."""
    return struct.pack("=HBBI", code, yes, no, value)
