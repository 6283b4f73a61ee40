"""Child processes: their environment, their pipes on the event loop, and the reaper that ends them with this process.

The reaper is a helper that reads process-group ids from a pipe. When the pipe ends, because we closed it or because we
were killed in any way, it ends every group that is still on its list: SIGTERM, half a second, SIGKILL. One helper
serves all servers of this process; it starts with the first and ends with the last.

`PipeReader` and `PipeWriter` use asyncio: `anyio.wait_readable` arms and disarms the loop for every read and wakes a
task, 45 microseconds of CPU a call more than a callback that stays armed (measured with asyncio and with uvloop).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import subprocess
import sys
import termios
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

_INHERITED_VARIABLES: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "NODE_EXTRA_CA_CERTS"}
    | {"SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
)
"""Variables of our environment that a child gets; all others, tokens above all, stay here."""

_logger = logging.getLogger(__name__)

_REAPER_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)
groups = set()
while True:
    line = sys.stdin.buffer.readline()
    if not line: break
    if line[:1] == b"+": groups.add(int(line[1:]))
    elif line[:1] == b"-": groups.discard(int(line[1:]))
def send(what):
    for group in list(groups):
        try: os.killpg(group, what)
        except OSError: groups.discard(group)
if groups:
    time.sleep(0.3); send(signal.SIGTERM)
    for _ in range(10):
        time.sleep(0.1); send(0)
        if not groups: break
    send(signal.SIGKILL)
"""

_MAX_BUFFERS_PER_WRITE: Final = 256
"""Buffers of one system call."""
_READ_BYTES: Final = 64 * 1024
"""One read a wake-up, so that a server that floods shares the loop with everybody else."""


def clean_environment(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: the harmless part of `ours`, and what its configuration says."""
    kept = {key: value for key, value in ours.items() if key in _INHERITED_VARIABLES or key.startswith("LC_")}
    kept.setdefault("PATH", os.defpath)
    return {**kept, **theirs}


def inherited_environment(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that sees all of `ours` but what is for Toolcrib itself."""
    return {**{key: value for key, value in ours.items() if not key.startswith("TOOLCRIB_")}, **theirs}


class Reaper:
    """The helper process, from the first group to the last."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._holders = 0
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self) -> None:
        """Keep the helper, once it runs, until `release`: a server that restarts does not restart it too."""
        self._holders += 1

    def release(self) -> None:
        """Undo one `hold`."""
        self._holders -= 1
        self._stop_when_idle()

    def watch(self, group: int) -> None:
        """Have `group` ended if we vanish. Starts the helper when it is not there."""
        self._groups.add(group)
        if self._process is None or self._process.poll() is not None:
            self._start()
        else:
            self._send_line(f"+{group}\n")

    def forget(self, group: int) -> None:
        """`group` is gone."""
        self._groups.discard(group)
        self._send_line(f"-{group}\n")
        self._stop_when_idle()

    @property
    def pid(self) -> int | None:
        """The helper's process id while it runs."""
        return None if self._process is None else self._process.pid

    def _start(self) -> None:
        if not sys.executable:
            _logger.warning("no Python executable is known: servers that ignore the end of their input may outlive us")
            return
        command = [sys.executable, "-I", "-S", "-c", _REAPER_PROGRAM]
        null = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=null, stderr=null, env={}, cwd="/", start_new_session=True
            )
        except OSError as error:
            _logger.warning("the helper that ends left-over servers cannot start: %s", error)
            return
        for group in self._groups:
            self._send_line(f"+{group}\n")

    def _send_line(self, line: str) -> None:
        pipe = self._process.stdin if self._process is not None else None
        if pipe is not None:
            with contextlib.suppress(OSError):
                os.write(pipe.fileno(), line.encode())

    def _stop_when_idle(self) -> None:
        if self._process is None or self._holders > 0 or self._groups:
            return
        process, self._process = self._process, None
        if process.stdin is not None:
            process.stdin.close()
        process.kill()
        process.wait()


_reaper = Reaper()


def shared_reaper() -> Reaper:
    """The one of this process."""
    return _reaper


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
                data = os.read(self._descriptor, _READ_BYTES)
            except OSError:
                break
            if not data:
                break
            self._on_data(data)
        self._finish()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
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

        Linux shows the writing end what is still in the pipe; elsewhere everything written counts as consumed.
        """
        if sys.platform != "linux":
            return self.written
        left = bytearray(4)
        try:
            fcntl.ioctl(self._descriptor, termios.FIONREAD, left)
        except OSError:
            return self.written
        return self.written - int.from_bytes(left, sys.byteorder)

    def write(self, data: bytes, *, at_once: bool = True) -> None:
        """Send `data`; silently nothing once the far end is gone, which its reader notices.

        Not `at_once`: together with all that is sent before the event loop turns. Each system call wakes the reader,
        which costs some 10 µs of CPU.
        """
        self.accepted += len(data)
        if self._broken:
            return
        if self._queue or not at_once:
            if not self._queue:
                self._loop.call_soon(self._flush)
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
            try:
                count = os.writev(self._descriptor, list(islice(self._queue, _MAX_BUFFERS_PER_WRITE)))
            except BlockingIOError:
                self._arm()
                return
            except OSError:
                self.stop()
                return
            self.written += count
            while self._queue and count >= len(self._queue[0]):
                count -= len(self._queue.popleft())
            if count:
                self._queue[0] = self._queue[0][count:]
        if self._waiting:
            self._waiting = False
            with contextlib.suppress(ValueError):
                self._loop.remove_writer(self._descriptor)

    def _arm(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._descriptor, self._flush)
