"""Reading of files that others made: neither a pipe in the place of a file nor its size can hold the reader up."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["read_strange"]


def read_strange(path: Path | str, most: int) -> bytes:
    """Return at most `most` bytes of a regular file; links are followed. Raises `OSError`, for pipes as well."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a file")
        return file.read(most)
