"""Files and folders of others and of our own: neither holds up who reads it, nor lets anyone else in."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_strange(path: Path | str, most: int) -> bytes:
    """Return at most `most` bytes of a regular file; links are followed. Raises `OSError`, for pipes as well."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a file")
        return file.read(most)


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, each with mode 0700; what exists stays as it is. Raises `OSError`.

    `Path.mkdir` gives its mode to the last folder alone: with a umask of 0 anyone could write to the parents.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
