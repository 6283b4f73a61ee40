"""Pipes of a child process, read and written from the event loop, without a task a message.

`anyio.wait_readable` arms and disarms the loop for every read and wakes a task: 45 microseconds of CPU a call more
than a callback that stays armed (measured here, with asyncio and with uvloop). So this one module speaks asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import termios
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["PipeReader", "PipeWriter"]

_READ: Final = 64 * 1024
"""One read a wake-up, so that a server that floods shares the loop with everybody else."""


class PipeReader:
    """Calls `on_data` with what arrives, and `on_end` once when nothing more can come."""

    def __init__(self, descriptor: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)
        self._armed = True

    def stop(self) -> None:
        """Listen no more; must come before the descriptor is closed. Safe to call twice."""
        if self._armed:
            self._armed = False
            self._loop.remove_reader(self._descriptor)

    def drain(self) -> None:
        """Take what the pipe still holds, up to its capacity, and end."""
        for _ in range(64):
            if not self._armed:
                return
            try:
                data = os.read(self._descriptor, _READ)
            except OSError:
                break
            if not data:
                break
            self._on_data(data)
        self._finish()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self._finish()

    def _finish(self) -> None:
        if self._armed:
            self.stop()
            self._on_end()


class PipeWriter:
    """Writes at once what the pipe takes and keeps the rest in order. Counts bytes, so that one knows what left us."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self._waiting = False
        self._broken = False
        self.accepted = 0
        """Bytes that were handed in."""
        self.written = 0
        """Bytes that the pipe took."""

    @property
    def queued(self) -> int:
        """Bytes that wait for the child to read."""
        return self.accepted - self.written

    @property
    def consumed(self) -> int:
        """Bytes that the far end took out of the pipe; only meaningful once it has no reader left.

        Linux tells the writing end what is still in the pipe; elsewhere everything written counts as consumed.
        """
        if sys.platform != "linux":
            return self.written
        left = bytearray(4)
        try:
            fcntl.ioctl(self._descriptor, termios.FIONREAD, left)
        except OSError:
            return self.written
        return self.written - int.from_bytes(left, sys.byteorder)

    def write(self, data: bytes) -> None:
        """Send `data`; silently nothing once the far end is gone, which its reader notices."""
        self.accepted += len(data)
        if self._waiting or self._broken:
            self._queue.append(memoryview(data))
            return
        try:
            count = os.write(self._descriptor, data)
        except BlockingIOError:
            count = 0
        except OSError:
            self.stop()
            return
        self.written += count
        if count < len(data):
            self._queue.append(memoryview(data)[count:])
            self._arm()

    def stop(self) -> None:
        """Write no more; must come before the descriptor is closed. Safe to call twice."""
        self._broken = True
        self._queue.clear()
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._descriptor)

    def _flush(self) -> None:
        while self._queue and not self._broken:
            head = self._queue[0]
            try:
                count = os.write(self._descriptor, head)
            except BlockingIOError:
                self._arm()
                return
            except OSError:
                self.stop()
                return
            self.written += count
            if count == len(head):
                self._queue.popleft()
            else:
                self._queue[0] = head[count:]
        if self._waiting:
            self._waiting = False
            with contextlib.suppress(ValueError):
                self._loop.remove_writer(self._descriptor)

    def _arm(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._descriptor, self._flush)
