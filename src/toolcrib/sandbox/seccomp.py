"""Seccomp filter: kernel calls that a command may not make, because they reach past every namespace.

Keys of the session belong to every process in it; sockets of a virtual machine lead to its host, and other socket
families past the network namespace; the rest are kernel interfaces that tools do not use and in which holes were found.
Calls outside the list are allowed. A program for another architecture than the machine's meets the same list.
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

__all__ = ["opened_filter"]

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
    """Return a descriptor that bubblewrap reads the filter from; -1 on a machine whose numbers are not known here."""
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
