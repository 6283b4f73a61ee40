"""Files below a folder with foreign content: nothing outside of it is reached, only regular files are opened.

Symbolic links are never followed (`workspace.open_below`), so the checked file is the file that is read, even if paths
are swapped meanwhile (security.md T16, T17).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from .open_below import open_beneath

__all__ = ["MAX_DEPTH", "MAX_FILES", "SKIPPED", "files_beneath", "is_text", "read_beneath"]

MAX_FILES: Final = 1_000
"""Files that a folder is listed with (security.md T17)."""

MAX_DEPTH: Final = 6
"""Folders inside one another that are looked into."""

SKIPPED: Final = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
"""Folders whose content does not belong to the folder around them."""


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


def files_beneath(folder: Path, *, limit: int = MAX_FILES, depth: int = MAX_DEPTH) -> Iterator[str]:
    """Yield the regular files below `folder`, sorted, with `/`; at most `limit`.

    Left out are links, odd files, and names that are not UTF-8, which no caller could ask for.
    """
    count = 0
    for parent, folders, files in os.walk(folder, followlinks=False):
        inner = PurePosixPath(Path(parent).relative_to(folder).as_posix())
        is_deep = len(inner.parts) >= depth
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
