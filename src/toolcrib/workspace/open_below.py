"""Opening of paths below a folder, so that the checked path is the opened one (security.md T16).

Linux since 5.6 does it in one call: `openat2` with RESOLVE_BENEATH, NO_SYMLINKS and NO_MAGICLINKS. Elsewhere every
folder on the way is opened relative to the one before and never through a link. Either way, swapping a folder for a
link meanwhile opens nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, Final

__all__ = ["exchange", "open_beneath", "opened", "rename_new"]

_OPENAT2: Final = 437
"""The number of the system call, the same on every architecture that Linux has had since 2019."""
_RESOLVE: Final = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS."""
_TRIES: Final = 16
"""EAGAIN means that a folder on the way was renamed; it passes."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_NOREPLACE: Final = 1
_EXCHANGE: Final = 2


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(
    folder: int, steps: Sequence[str], flags: int, mode: int = 0o666, *, in_kernel: bool | None = None
) -> int:
    """Return a descriptor of the entry at `steps` below the open `folder`; without steps, the folder is opened again.

    `in_kernel`: the kernel resolves all steps at once; None does so if it can. Raises `OSError`: ELOOP or ENOTDIR for a
    link on the way, EXDEV for a path that leads outside.
    """
    if any(step in ("", ".", "..") or "/" in step for step in steps):
        raise OSError(errno.EXDEV, "a step leads nowhere inside")
    flags |= _SAFE
    if _has_openat2() if in_kernel is None else in_kernel:
        return _openat2(folder, "/".join(steps) or ".", flags, mode if flags & os.O_CREAT else 0)
    with contextlib.ExitStack() as stack:
        for step in steps[:-1]:
            folder = os.open(step, _FOLDER, dir_fd=folder)
            stack.callback(os.close, folder)
        return os.open(steps[-1] if steps else ".", flags, mode, dir_fd=folder)


@contextlib.contextmanager
def opened(folder: int, steps: Sequence[str] = ()) -> Generator[int]:
    """Give a descriptor of the folder at `steps` below `folder`, for as long as the block runs. Raises `OSError`."""
    descriptor = open_beneath(folder, steps, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def rename_new(source: str, source_folder: int, target: str, target_folder: int) -> None:
    """Rename, and raise `FileExistsError` where something is at the target already.

    One step where the system has `renameat2`; else a fast concurrent writer could be overwritten.
    """
    if _rename(source, source_folder, target, target_folder, _NOREPLACE):
        return
    with contextlib.suppress(FileNotFoundError):
        os.stat(target, dir_fd=target_folder, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(source, target, src_dir_fd=source_folder, dst_dir_fd=target_folder)


def exchange(one: str, one_folder: int, other: str, other_folder: int) -> bool:
    """Let two names change places in one step; return False where the system cannot. Raises `OSError`."""
    return _rename(one, one_folder, other, other_folder, _EXCHANGE)


def _rename(source: str, source_folder: int, target: str, target_folder: int, flags: int) -> bool:
    """Call `renameat2`; return False where the system or the file system does not have it (ENOSYS, EINVAL)."""
    function = _renameat2()
    if function is None:
        return False
    if function(source_folder, os.fsencode(source), target_folder, os.fsencode(target), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code), target)


def _openat2(folder: int, path: str, flags: int, mode: int) -> int:
    how = _How(flags, mode, _RESOLVE)
    name = os.fsencode(path)
    for _ in range(_TRIES):
        descriptor = _libc().syscall(_OPENAT2, folder, name, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EAGAIN, "the folders on the way change all the time", path)


@cache
def _has_openat2() -> bool:
    """Whether the kernel knows the call and lets us make it: containers may forbid it."""
    if sys.platform != "linux":
        return False
    folder = os.open("/", _FOLDER)
    try:
        os.close(_openat2(folder, ".", _FOLDER, 0))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _renameat2() -> Any:
    return getattr(_libc(), "renameat2", None)
