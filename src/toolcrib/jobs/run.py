"""One job in the process that carries it out: what it told so far, how it is stopped, how it ended."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

import anyio

from ..core.call import Call
from ..core.context import Listener, Output, Progress
from ..core.result import ToolResult
from ..store.jobs import JobRow
from .job import Job, said_as, status_of
from .line import Line

__all__ = ["Run", "both", "new_job"]


class Run:
    """A job and the task that carries it out. Lives in one event loop."""

    def __init__(self, job: Job, kept: int, line: Line | None = None) -> None:
        """`kept` is how many characters of its output are kept; `line` leads to the client that waits for it."""
        self.job = job
        self.line = line
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.changed = anyio.Event()
        """Set at the next change; there is another one then."""
        self.left = anyio.Event()
        """Set when nothing works on it any more, and what was to be written down is."""
        self.is_job = False
        """False while its caller waits for it."""
        self.is_called_off = False
        """True once its principal wants it cancelled."""
        self.call: Call | None = None
        """The call itself where it began in front of its caller."""
        self.row: JobRow | None = None
        """What is written down of it, where it is ours by that row."""
        self._kept = kept

    def hear(self, update: Progress | Output) -> None:
        """Keep what the tool tells."""
        if isinstance(update, Progress):
            self.job = replace(self.job, progress=update)
        elif isinstance(update.chunk, str):
            self.job = replace(self.job, output=(self.job.output + update.chunk)[-self._kept :])
        self._tell()

    def ending(self, result: ToolResult) -> Job:
        """Return the job as `result` ends it now."""
        return replace(self.job, result=result, status=status_of(result), ended=time.time())

    def settle(self, result: ToolResult) -> None:
        """Take the first result; the job is as it is then."""
        if self.job.result is None:
            self.end(self.ending(result))

    def end(self, job: Job) -> None:
        """Let it be known how the job ended."""
        self.job = job
        self.ended.set()
        self._tell()

    def leave(self) -> None:
        """Say that nothing works on it here any more."""
        self.left.set()
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


def new_job(call: Call) -> Job:
    """Return the job that carries out `call` from now on."""
    tool = call.target
    return Job(
        id=f"task_{secrets.token_hex(16)}",
        call_id=call.id,
        principal=call.session.principal,
        session=call.session.key,
        tool=said_as(call),
        source=tool.source,
        status="working",
        started=time.time(),
    )


def both(first: Listener, second: Listener | None) -> Listener:
    """Return a listener that tells two."""
    if second is None:
        return first

    def hear(update: Progress | Output) -> None:
        first(update)
        second(update)

    return hear
