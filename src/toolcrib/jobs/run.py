"""Run of one job in its process: its output so far, the connection to its client, cancellation."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

import anyio
from msgspec.structs import replace

from ..core.call import Call
from ..core.context import Listener, Output, Peer, Progress
from ..core.result import ToolResult
from ..errors import ToolFailure
from ..store.jobs import JobRow
from .job import Job, requested_name, status_of


class JobPeer:
    """A peer that can be silenced. Lives as long as the job's call."""

    def __init__(self, peer: Peer) -> None:
        """Pass everything on to `peer`, until `cut`."""
        self._peer: Peer | None = peer

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities that the client declared; empty once the connection is cut."""
        return self._peer.capabilities if self._peer is not None else {}

    @property
    def takes_requests(self) -> bool:
        """Whether requests reach the client while its call runs; not once the line is cut."""
        return self._peer is not None and self._peer.takes_requests

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on; drop it once the line is cut."""
        if self._peer is not None:
            await self._peer.notify(method, params)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client; raises `ToolFailure("unavailable")` once the line is cut."""
        if self._peer is None:
            raise ToolFailure("unavailable", f"the client cannot be asked for {method}: the call goes on without it")
        return await self._peer.request(method, params)

    def cut(self) -> None:
        """Pass nothing on any more."""
        self._peer = None


class Run:
    """A job and the task that carries it out. Lives in one event loop.

    `ended` comes before `left`: at first the result is there, for those who wait for it, then its record. Closing waits
    for `left`.
    """

    def __init__(self, job: Job, kept: int, line: JobPeer | None = None) -> None:
        """`kept` is the number of stored output characters; `line` connects to the waiting client."""
        self.job = job
        self.line = line
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.changed = anyio.Event()
        """Set at the next change, and then replaced."""
        self.left = anyio.Event()
        """Set when no task works on the run any more, and its records are written."""
        self.is_job = False
        """False while its caller waits for it."""
        self.is_called_off = False
        """True once its principal wants it cancelled."""
        self.call: Call | None = None
        """The call itself, if its caller waited for it here."""
        self.row: JobRow | None = None
        """Its stored row, while this process holds the claim."""
        self.key = ""
        """The idempotency key that the end of the job gives back, if its call left no outcome."""
        self._kept = kept

    def hear(self, update: Progress | Output) -> None:
        """Record a report of the tool."""
        if isinstance(update, Progress):
            self.job = replace(self.job, progress=update)
        elif isinstance(update.chunk, str):
            self.job = replace(self.job, output=(self.job.output + update.chunk)[-self._kept :])
        self._notify()

    def ending(self, result: ToolResult) -> Job:
        """Return the job as `result` ends it now."""
        return replace(self.job, result=result, status=status_of(result), ended=time.time())

    def settle(self, result: ToolResult) -> None:
        """Take the first result, and finish the job with it."""
        if self.job.result is None:
            self.end(self.ending(result))

    def end(self, job: Job) -> None:
        """Let it be known how the job ended."""
        self.job = job
        self.ended.set()
        self._notify()

    def leave(self) -> None:
        """Mark the run as left by this process."""
        self.left.set()
        self._notify()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


def working(runs: Iterable[Run], principal: str) -> int:
    """Return how many of these jobs work for a principal."""
    return sum(run.job.status == "working" and run.job.principal == principal for run in runs)


def new_job(call: Call) -> Job:
    """Return the job that carries out `call` from now on."""
    tool = call.target
    return Job(
        id=f"task_{secrets.token_hex(16)}",
        call_id=call.id,
        principal=call.session.principal,
        session=call.session.key,
        tool=requested_name(call),
        source=tool.source,
        status="working",
        started=time.time(),
    )


def both(first: Listener, second: Listener | None) -> Listener:
    """Return a listener that forwards to two others."""
    if second is None:
        return first

    def hear(update: Progress | Output) -> None:
        first(update)
        second(update)

    return hear
