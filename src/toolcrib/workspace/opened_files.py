"""Files that programs open, as inotify reports them: which programs open them is not known."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_IN_OPEN: Final = 0x20
_IN_Q_OVERFLOW: Final = 0x4000
_IN_ISDIR: Final = 0x40000000
_EVENT_HEADER: Final = struct.Struct("iIII")
_BUFFER_BYTES: Final = 64 * 1024


class OpenedFiles:
    """Reports which files were opened since it was made. Without inotify, as on macOS, it reports none.

    Non-blocking: `read` returns what the kernel has reported so far.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        """Watch files, and the files directly in folders.

        One that cannot be watched counts as opened: a command could use up the watches that its user may have.
        """
        self._places: dict[int, Path] = {}
        self._unwatched = set[Path]()
        self._fd = -1
        if sys.platform != "linux":
            return
        import ctypes  # 2 ms at each opening of a crib, which watches nothing yet

        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in paths:
            watch = libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_OPEN)
            if watch >= 0:
                self._places[watch] = path
            elif self._fd < 0 or ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR):
                self._unwatched.add(path)

    def read(self) -> set[Path]:
        """Return the files that were opened since the last time; all of them if the kernel has lost reports."""
        found = set(self._unwatched)
        with suppress(BlockingIOError):
            while self._fd >= 0:
                data = os.read(self._fd, _BUFFER_BYTES)
                offset = 0
                while offset < len(data):
                    watch, mask, _, length = _EVENT_HEADER.unpack_from(data, offset)
                    offset += _EVENT_HEADER.size
                    name = data[offset : offset + length].rstrip(b"\0")
                    offset += length
                    if mask & _IN_Q_OVERFLOW:
                        found.update(self._places.values())
                    elif watch in self._places and not mask & _IN_ISDIR:
                        found.add(self._places[watch] / os.fsdecode(name))
        return found

    def close(self) -> None:
        """End the watches. The kernel may take 20 ms for it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
