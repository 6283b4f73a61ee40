"""Start a real server as a process of its own, wait until it answers, and leave nothing behind."""

from __future__ import annotations

import contextlib
import random
import re
import resource
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.abc
from anyio.streams.text import TextReceiveStream

from .wait import PATIENCE

_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0


@contextmanager
def full_disk() -> Generator[None]:
    """Let no file of this process grow beyond one page, as on a disk without room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody uses now and that is nobody's by chance a moment later.

    Port 0 would give one of those that the system hands to any outgoing connection (from 32768 on Linux). A server that
    can listen on port 0 itself and says where it is needs none of this.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def serving(
    command: Sequence[str | Path],
    *,
    port: int,
    log: Path,
    env: Mapping[str, str] | None = None,
    start_seconds: float = 60.0,
) -> Generator[subprocess.Popen[bytes]]:
    """Run `command` until the block ends; enter the block once it accepts connections on 127.0.0.1:`port`.

    What it prints goes to the file `log`. It is asked to end with SIGTERM and killed after ten seconds.

    Raises RuntimeError with the last lines of the log when it ends, or is not there, within `start_seconds`.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env and dict(env)
        )
    try:
        _wait_for_port(process, port, log, start_seconds)
        yield process
    finally:
        _stop(process)


async def announced(process: anyio.abc.Process) -> str:
    """Return where a server says that it serves, once it does."""
    assert process.stderr
    said = ""
    with anyio.fail_after(PATIENCE):
        async for text in TextReceiveStream(process.stderr):
            said += text
            if found := re.search(r'serves MCP at ([^\s"]+)["\n]', said):
                return found[1]
    raise AssertionError(f"the server ended: {said}")


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not _accepts(port):
        status = process.poll()
        if status is not None or time.monotonic() > deadline:
            state = f"ended with status {status}" if status is not None else f"was not there after {seconds:g} s"
            tail = log.read_text(encoding="utf-8", errors="replace")[-4000:]
            raise RuntimeError(f"the server on port {port} {state}:\n{tail}")
        time.sleep(_POLL_SECONDS)


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
