"""Commands of the command line that the daemon carries out for processes that ask for them. POSIX only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

from ..core.json import loads
from ..server.stdio import Link
from .caller import Caller
from .rendezvous import GREETING_BYTES
from .running_servers import RunningServers

GREETING_SECONDS: Final = 5.0
"""A connection that has not sent its greeting, or its command, by then is closed."""
_REQUEST_BYTES: Final = 4 * 1024 * 1024
_INPUT_BYTES: Final = 512 * 1024 * 1024
"""Largest answer of a process that asked for a command: its standard input, as JSON."""
_COMMANDS: Final = 16
"""Commands that run at once; the processes that ask for more carry theirs out themselves."""
_COMMAND_SECONDS: Final = 5.0
"""Seconds that a command has left when the daemon ends; it is interrupted then."""

RunCommand = Callable[[bytes, Caller], None]
"""Runs one command of the command line, in a thread of its own: takes the request, and the process that asked."""


class Commands:
    """Runs whole commands, each in a thread of its own. Used from one event loop."""

    def __init__(
        self, run: RunCommand, running: Callable[[], RunningServers | None], seconds: float = _COMMAND_SECONDS
    ) -> None:
        """`running` are the servers that a command may list; it goes on for `seconds` once the daemon is to end."""
        self._run = run
        self._running = running
        self._seconds = seconds
        self._threads = anyio.CapacityLimiter(_COMMANDS)

    async def answer(self, link: Link, received: bytes, stopping: anyio.Event) -> None:
        """Run the command of the request; a thread sends its lines, so that clients are served meanwhile."""
        if not self._threads.available_tokens:
            return
        try:
            with anyio.fail_after(GREETING_SECONDS):
                request, rest = await first_line(link, received, _REQUEST_BYTES)
        except (TimeoutError, ValueError):
            return
        async with BlockingPortal() as portal, anyio.create_task_group() as watching:

            def send(line: bytes) -> None:
                portal.call(link.send, line + b"\n")

            caller = Caller(send, self._running())
            watching.start_soon(_follow, caller, link, rest)
            watching.start_soon(self._interrupt_in_time, caller, stopping)
            await anyio.to_thread.run_sync(self._run, request, caller, limiter=self._threads)
            watching.cancel_scope.cancel()

    async def _interrupt_in_time(self, caller: Caller, stopping: anyio.Event) -> None:
        await stopping.wait()
        await anyio.sleep(self._seconds)
        caller.leave()


async def _follow(caller: Caller, link: Link, received: bytes) -> None:
    """Give `caller` the answers that it sends, until it goes away or sends anything but an answer."""
    try:
        while True:
            line, received = await first_line(link, received, _INPUT_BYTES)
            caller.answer(*loads(line))
    except (ConnectionError, TypeError, ValueError):
        caller.leave()


async def first_line(link: Link, received: bytes = b"", limit: int = GREETING_BYTES) -> tuple[bytes, bytes]:
    """Return the first line, which may have been `received`, and the bytes behind it.

    Raises `ConnectionError` when nothing comes, `ValueError` for a line without end.
    """
    while b"\n" not in received:
        chunk = await link.receive()
        received += chunk
        if not received:
            raise ConnectionError
        if not chunk or len(received) > limit:
            raise ValueError("the line has no end")
    line, _, rest = received.partition(b"\n")
    return line, rest
