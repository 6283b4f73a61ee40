"""What a server in another process tells a test: lines in a pipe with a name, so that one waits instead of polling."""

import json
import os
from pathlib import Path
from typing import Any

import anyio

from rig import PATIENCE


class Journal:
    """A named pipe that servers write JSON lines to. Open from the first server to the end of the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return every entry of a kind that was written so far."""
        self._read()
        return [entry for entry in self.entries if entry["kind"] == kind]

    async def until(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for that many entries of a kind; raises `TimeoutError` when they do not come."""
        with anyio.fail_after(PATIENCE):
            while len(found := self.of(kind)) < count:
                await anyio.wait_readable(self._descriptor)
        return found

    def close(self) -> None:
        """Let the pipe go."""
        os.close(self._descriptor)

    def _read(self) -> None:
        while True:
            try:
                self._rest += os.read(self._descriptor, 65536)
            except BlockingIOError:
                break
        *lines, self._rest = self._rest.split(b"\n")
        self.entries += map(json.loads, lines)


async def gone(*pids: int) -> None:
    """Wait until every process has ended; raises `TimeoutError` when one does not."""
    with anyio.fail_after(PATIENCE):
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)
