"""Files below a folder with foreign content: the checked path is the opened one, and only regular files are read.

Linux since 5.6 opens in one call: `openat2` with RESOLVE_BENEATH, NO_SYMLINKS and NO_MAGICLINKS. Elsewhere every folder
on the way is opened relative to the one before and never through a link. Either way, swapping a folder for a link
meanwhile opens nothing else (security.md T16, T17).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

_OPENAT2: Final = 437
"""The number of the system call, the same on every architecture that Linux has had since 2019."""
_RESOLVE_FLAGS: Final = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS."""
_MAX_TRIES: Final = 16
"""EAGAIN means that a folder on the way was renamed; it passes."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_NOREPLACE: Final = 1
_EXCHANGE: Final = 2

MAX_FILES: Final = 1_000
"""Files that a folder is listed with (security.md T17)."""

MAX_DEPTH: Final = 6
"""Folders inside one another that are looked into."""

SKIPPED: Final = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
"""Folders whose content does not belong to the folder around them."""


def open_beneath(
    folder: int, steps: Sequence[str], flags: int, mode: int = 0o666, *, in_kernel: bool | None = None
) -> int:
    """Return a descriptor of the entry at `steps` below the open `folder`; without steps, the folder is opened again.

    `in_kernel`: the kernel resolves all steps at once; None does so if it can. Raises `OSError`: ELOOP or ENOTDIR for a
    link on the way, EXDEV for a path that leads outside.

    The caller closes the descriptor.
    """
    if any(step in ("", ".", "..") or "/" in step for step in steps):
        raise OSError(errno.EXDEV, "a step leads nowhere inside")
    flags |= _SAFE_FLAGS
    if _has_openat2() if in_kernel is None else in_kernel:
        return _openat2(folder, "/".join(steps) or ".", flags, mode if flags & os.O_CREAT else 0)
    with contextlib.ExitStack() as stack:
        for step in steps[:-1]:
            folder = os.open(step, _FOLDER_FLAGS, dir_fd=folder)
            stack.callback(os.close, folder)
        return os.open(steps[-1] if steps else ".", flags, mode, dir_fd=folder)


@contextlib.contextmanager
def opened(folder: int, steps: Sequence[str] = ()) -> Generator[int]:
    """Give a descriptor of the folder at `steps` below `folder`, for as long as the block runs. Raises `OSError`."""
    descriptor = open_beneath(folder, steps, _FOLDER_FLAGS)
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
    """Let two names change places in one step; return False where the system cannot. Raises `OSError`.

    The replaced file stays under the temporary name, so that it can be put back.
    """
    return _rename(one, one_folder, other, other_folder, _EXCHANGE)


def _rename(source: str, source_folder: int, target: str, target_folder: int, flags: int) -> bool:
    """Call `renameat2`; return False where the system or the file system does not have it (ENOSYS, EINVAL)."""
    function = _renameat2()
    if function is None:
        return False
    if function(source_folder, os.fsencode(source), target_folder, os.fsencode(target), flags) == 0:
        return True
    code = _last_error()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code), target)


def _openat2(folder: int, path: str, flags: int, mode: int) -> int:
    how = struct.pack("3Q", flags, mode, _RESOLVE_FLAGS)
    name = os.fsencode(path)
    for _ in range(_MAX_TRIES):
        descriptor = _libc().syscall(_OPENAT2, folder, name, how, len(how))
        if descriptor >= 0:
            return int(descriptor)
        code = _last_error()
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EAGAIN, "the folders on the way change all the time", path)


@cache
def _has_openat2() -> bool:
    """Whether the kernel knows the call and lets us make it: containers may forbid it.

    Asked once in a process.
    """
    if sys.platform != "linux":
        return False
    folder = os.open("/", _FOLDER_FLAGS)
    try:
        os.close(_openat2(folder, ".", _FOLDER_FLAGS, 0))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


@cache
def _libc() -> Any:
    import ctypes  # 2 ms at each opening of a crib, which calls nothing of it

    return ctypes.CDLL(None, use_errno=True)


def _last_error() -> int:
    import ctypes

    return ctypes.get_errno()


@cache
def _renameat2() -> Any:
    return getattr(_libc(), "renameat2", None)


def read_beneath(folder: Path, relative: str, limit: int) -> bytes:
    """Return the content of the file `relative` (with `/`) below `folder`, which itself is trusted.

    Raises `ValueError` with a reason that may be shown: not inside, not there, no regular file, larger than `limit`
    bytes.
    """
    steps = _steps(relative)
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = open_beneath(top, steps, os.O_RDONLY | os.O_NONBLOCK)
        finally:
            os.close(top)
        with open(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError(f"{relative!r} is not a regular file")
            content = opened.read(limit + 1)
    except OSError as error:
        raise ValueError(f"{relative!r} cannot be read: {_reason(error)}") from error
    if len(content) > limit:
        raise ValueError(f"{relative!r} is larger than {limit >> 10} KiB")
    return content


def files_beneath(folder: Path, *, limit: int = MAX_FILES) -> Iterator[str]:
    """Yield the regular files below `folder`, sorted, with `/`; at most `limit`.

    Left out are links, odd files, and names that are not UTF-8, which no caller could ask for.
    """
    count = 0
    for parent, folders, files in os.walk(folder, followlinks=False):
        inner = PurePosixPath(Path(parent).relative_to(folder).as_posix())
        is_deep = len(inner.parts) >= MAX_DEPTH
        folders[:] = sorted(name for name in folders if not is_deep and name not in SKIPPED and is_text(name))
        for name in sorted(filter(is_text, files)):
            if count == limit:
                return
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.lstat(os.path.join(parent, name)).st_mode):
                    count += 1
                    yield str(inner / name)


def is_text(name: str) -> bool:
    """Whether the name of a file is UTF-8.

    Linux permits any bytes, which Python represents in a form that JSON cannot hold.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _steps(relative: str) -> tuple[str, ...]:
    if not relative or "\0" in relative or "\\" in relative or relative.startswith("/"):
        raise ValueError(f"{relative[:200]!r} is not a path inside the folder")
    steps = tuple(step for step in relative.split("/") if step not in ("", "."))
    if not steps or ".." in steps:
        raise ValueError(f"{relative[:200]!r} leads outside of the folder")
    return steps


def _reason(error: OSError) -> str:
    """ELOOP and ENOTDIR are how a link shows itself here."""
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    if isinstance(error, NotADirectoryError) or os.strerror(error.errno or 0) == os.strerror(40):
        return "a link on the way is not followed"
    return error.strerror or type(error).__name__
