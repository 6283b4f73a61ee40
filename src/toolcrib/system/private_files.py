"""Private files, readable by their user only and replaced as a whole: a reader sees the old content or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Final

from ..core.files import make_private_folder

CACHE_SECONDS: Final = 90 * 24 * 3600.0
"""Time after which a file of a cache that was not written again is removed: its server or API is not used any more."""

_SWEEP_MARKER: Final = ".swept"
_SWEEP_INTERVAL_SECONDS: Final = 24 * 3600.0


def replace_private(path: Path, data: bytes) -> None:
    """Write `data` to `path`, with folders that are missing; raises `OSError`, and then `path` is as it was."""
    make_private_folder(path.parent)
    fresh = path.with_suffix(f".{secrets.token_hex(8)}.new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()


def remove_old(folder: Path, pattern: str) -> None:
    """Remove the files in `folder` whose names match `pattern` and that were not written for `CACHE_SECONDS`.

    The beginnings of such files that a crash left behind go after the same time. What cannot be removed stays.
    """
    limit = time.time() - CACHE_SECONDS
    for path in (*folder.glob(f"{pattern}.json"), *folder.glob(f"{pattern}.*.new")):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime <= limit:
                path.unlink()


def remove_old_tree(folder: Path) -> None:
    """Remove the files below `folder` that were not written for `CACHE_SECONDS`, and the folders left empty.

    At most once a day, for it looks at all of them; what cannot be removed stays.
    """
    now, swept = time.time(), folder / _SWEEP_MARKER
    with contextlib.suppress(OSError):
        if swept.lstat().st_mtime > now - _SWEEP_INTERVAL_SECONDS:
            return
    try:
        swept.touch(mode=0o600)
    except OSError:
        return  # there is no such folder yet
    for top, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(top, name)
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime <= now - CACHE_SECONDS:
                    path.unlink()
        with contextlib.suppress(OSError):
            os.rmdir(top)  # unless something is left in it
