"""The stdio transport: one long-lived process, many calls at once on its pipes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from ...core.json import dumps
from ...errors import ToolFailure
from ...system.child_env import clean_environment
from ...system.pipes import PipeReader, PipeWriter
from ...system.tasks import Background
from ..lines import Flood, LineReader
from .limits import McpLimits
from .messages import LinkLost
from .process import Child
from .spec import ServerSpec
from .stderr import Stderr
from .transport import Inbound, Mux, Outgoing, Reply

__all__ = ["StdioLink"]

_LOST_GRACE: Final = 0.2
"""Seconds that a process gets to go after SIGTERM when its connection is already useless."""

_EXIT_WAIT: Final = 0.1
"""Seconds to learn how a process ended after it closed its output."""

_NEVER_CANCELLED: Final = ("initialize", "server/discover")


class StdioLink:
    """A server process. `open` starts it; it is lost when the process ends, closes its output or floods."""

    def __init__(
        self,
        spec: ServerSpec,
        environment: Mapping[str, str],
        limits: McpLimits,
        spill_dir: Path,
        inbound: Inbound,
        background: Background,
    ) -> None:
        """`environment` is ours, of which the child gets the harmless part."""
        self.lost = anyio.Event()
        self.reason = ""
        self.stderr = Stderr(spec.name, limits.stderr_bytes)
        self._spec = spec
        self._environment = environment
        self._limits = limits
        self._background = background
        self._mux = Mux(self, inbound, limits, self._lose)
        self._lines = LineReader(limits, spill_dir)
        self._noise = 0
        self._child: Child | None = None
        self._readers: tuple[PipeReader, ...] = ()
        self._writer: PipeWriter | None = None

    @property
    def pending(self) -> Mapping[int, Outgoing]:
        """The requests in flight."""
        return self._mux.pending

    @property
    def pid(self) -> int | None:
        """The process id of the server, once it was started."""
        return self._child.pid if self._child is not None else None

    @property
    def last_words(self) -> str:
        """The last line of its stderr."""
        return self.stderr.last_line()

    async def open(self) -> None:
        """Start the process; raises `LinkLost` when it cannot be started."""
        command = [self._spec.command, *self._spec.args]
        environment = clean_environment(self._environment, self._spec.env)
        child = await Child.start(command, environment, self._spec.cwd)
        self._child = child
        self._writer = PipeWriter(child.stdin)
        self._readers = (
            PipeReader(child.stdout, self._on_output, self._on_output_end),
            PipeReader(child.stderr, self.stderr.feed, _nothing),
        )
        self._background.spawn(self._watch)

    async def ask(self, request: Outgoing) -> Reply:
        """Send `request` and wait for its answer; a cancellation is sent to the server at once."""
        writer = self._writer
        if self.reason or writer is None:
            raise LinkLost(self.reason or "the server is not started", written=False)
        if writer.queued > self._limits.queue_bytes:
            raise ToolFailure("overloaded", "the server does not read its input; too much waits for it already")
        message = self._mux.enter(request)
        try:
            request.start = writer.accepted
            writer.write(dumps(message) + b"\n")
            return await request.wait()
        except TypeError as error:
            raise ToolFailure("invalid_arguments", f"the arguments cannot be written as JSON: {error}") from error
        except anyio.get_cancelled_exc_class():
            request.drop()
            if request.id in self._mux.pending and request.method not in _NEVER_CANCELLED:
                self.tell("notifications/cancelled", {"requestId": request.id, "reason": "no longer wanted"})
            raise
        finally:
            self._mux.leave(request)

    def agree(self, version: str) -> None:
        """Nothing on stdio depends on the revision."""

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, reply: Mapping[str, Any]) -> None:
        """Answer a request of the server."""
        self._send({"jsonrpc": "2.0", **reply})

    async def close(self) -> None:
        """Close its input, let it go, and make sure that it went. At most three seconds."""
        grace = _LOST_GRACE if self.reason else self._limits.stop_grace
        self._lose("the connection was closed")
        child, self._child = self._child, None
        if child is None:
            return
        child.close_pipe(child.stdin)
        if grace == _LOST_GRACE:
            child.signal(15)
        await child.end(grace)
        for reader in self._readers:
            reader.stop()
        child.close_pipes()
        self._lines.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer is not None and not self.reason and self._writer.queued <= self._limits.queue_bytes:
            self._writer.write(dumps(message) + b"\n")

    def _on_output(self, data: bytes) -> None:
        if self.reason:
            return
        try:
            for line in self._lines.feed(data):
                self._mux.receive(line)
        except Flood as flood:
            self._lose(str(flood))
            return
        if self._lines.noise != self._noise:
            self._mux.count_bad(self._lines.noise - self._noise)
            self._noise = self._lines.noise

    def _on_output_end(self) -> None:
        self._background.spawn(self._learn_the_end)

    async def _watch(self) -> None:
        if self._child is not None:
            child = self._child
            await child.wait()
            self._readers[0].drain()
            self._lose(child.ending)

    async def _learn_the_end(self) -> None:
        child = self._child
        if child is not None:
            with anyio.move_on_after(_EXIT_WAIT):
                await child.wait()
            self._lose(child.ending or "closed its output")

    def _taken(self) -> int:
        """Return how many bytes of what was sent may have been read."""
        writer, child = self._writer, self._child
        if writer is None:
            return 0
        return writer.consumed if child is not None and child.group_gone else writer.written

    def _lose(self, reason: str) -> None:
        if self.reason:
            return
        self.reason = reason
        taken = self._taken()
        self._mux.fail(reason, lambda request: taken > request.start)
        if self._writer is not None:
            self._writer.stop()
        self.lost.set()


def _nothing() -> None:
    """The end of stderr says nothing: the end of the process does."""
