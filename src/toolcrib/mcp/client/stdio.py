"""The stdio transport of the client: one server process (`server_process`), many calls at once on its pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from ...core.json import dumps
from ...errors import ToolFailure
from ...system.child_processes import PipeReader, PipeWriter, clean_environment, inherited_environment
from ...system.private_files import remove_old_tree
from ...system.tasks import Background
from ..jsonrpc import RpcError
from ..stdio import Flood, LineReader
from .launch.pins import changed_files, changed_sources, made_by_agents, pinned_state
from .server_process import Child, Stderr, printable
from .spec import McpLimits, ServerSpec
from .transport import Inbound, LinkLost, Mux, Outgoing, Reply

_LOST_GRACE: Final = 0.2
"""Seconds that a process gets to go after SIGTERM when its connection is already useless."""

_EXIT_WAIT: Final = 0.1
"""Seconds to learn how a process ended after it closed its output."""

_NEVER_CANCELLED: Final = ("initialize", "server/discover", "ping")


class StdioLink:
    """A server process. `open` starts it; it is lost when the process ends, closes its output or floods.

    Requests are written as they come and answers are matched by their ids (`Mux`): no call waits for another one
    here. A cancelled call leaves a server that may hang; it is asked for a sign of life, and ended if it gives none.
    """

    def __init__(
        self,
        spec: ServerSpec,
        environment: Mapping[str, str],
        limits: McpLimits,
        spool_dir: Path,
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
        self._lines = LineReader(limits, spool_dir)
        self._noise = 0
        self._heard_at = time.monotonic()
        """Time of its last output (`time.monotonic`)."""
        self._silent_since: float | None = None
        """Time at which it was sent a ping that is unanswered; None without one."""
        self._left = anyio.Event()
        self._verdict = ""
        """Reason why we ended it."""
        self._has_sent = False
        """Whether a message has come from the server."""
        self._before: Mapping[str, tuple[int, ...]] | None = None
        """State of the pinned files before they were checked, until the first answer."""
        self._path = ""
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
        """Reason for its end on its stderr; of a server that has sent no message also its other output on stdout."""
        line, noise = self.stderr.reason(), b"" if self._has_sent else self._lines.first_noise
        words = [f"stderr: {line}"] if line else []
        words += [f"its stdout is not JSON-RPC: {printable(noise.decode(errors='replace'))}"] if noise else []
        return "; ".join(words)

    @property
    def silent_for(self) -> float:
        """Seconds for which a server that left a call unanswered has been silent since; 0 for any other server."""
        since = self._silent_since
        return 0.0 if since is None or self.reason or self._heard_at > since else time.monotonic() - since

    async def open(self) -> None:
        """Start the process; raises `LinkLost` when it cannot be started.

        Raises `ToolFailure("definition_changed")` when a file behind it is not as the user confirmed it.
        """
        command = [self._spec.command, *self._spec.args]
        inherits = self._spec.inherit_env and self._spec.pinned is None
        made = inherited_environment if inherits else clean_environment
        environment = made(self._environment, self._spec.env)
        if self._spec.pinned is not None:
            environment["PYTHONPYCACHEPREFIX"] = _bytecode(self._environment)
            self._path = environment.get("PATH", os.defpath)
            self._before = await anyio.to_thread.run_sync(pinned_state, self._spec)
            if changed := await anyio.to_thread.run_sync(changed_files, self._spec, self._path):
                raise _held("not started", changed, made_by_agents(self._spec, changed))
        child = await Child.start(command, environment, self._spec.cwd)
        self._child = child
        self._writer = PipeWriter(child.stdin)
        self._readers = (
            PipeReader(child.stdout, self._on_output, self._on_output_end),
            PipeReader(child.stderr, self.stderr.feed, _nothing),
        )
        self._background.spawn(self._watch)
        if self._spec.pinned is not None:
            self._background.spawn(partial(_sweep_bytecode, environment["PYTHONPYCACHEPREFIX"]))

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
            # Alone, a call does not wait for the event loop; several share a write, and wake the server once.
            writer.write(dumps(message) + b"\n", at_once=len(self._mux.pending) == 1)
            reply = await request.wait()
            if self._before is not None:
                await self._check_again()
            return reply
        except TypeError as error:
            raise ToolFailure("invalid_arguments", f"the arguments cannot be written as JSON: {error}") from error
        except anyio.get_cancelled_exc_class():
            request.drop()
            if request.id in self._mux.pending and request.method not in _NEVER_CANCELLED:
                self.tell("notifications/cancelled", {"requestId": request.id, "reason": "no longer wanted"})
                if self._silent_since is None:
                    self._silent_since = time.monotonic()
                    self._background.spawn(partial(self._await_sign_of_life, self._mux.last))
            raise
        finally:
            self._mux.leave(request)
            self._left.set()

    async def _await_sign_of_life(self, newest: int) -> None:
        """Ask a server that left a call unanswered for anything at all, and end it where it stays silent.

        A program that does one thing at a time is silent while it works: no request up to `newest` is cut off.
        """
        with anyio.move_on_after(self._limits.silence):
            with contextlib.suppress(LinkLost, RpcError):
                await self._ask_or_wait(Outgoing("ping", {}))
        while self.silent_for and any(number <= newest for number in self.pending):
            self._left = anyio.Event()
            await self._left.wait()
        child = self._child
        if self.silent_for and child is not None:
            self._verdict = f"did not answer anything for {self.silent_for:.0f} s and was ended"
            child.signal(signal.SIGTERM)
            await child.end(self._limits.stop_grace)  # `_watch` sees its end: what it left unread has not run
        self._silent_since = None

    async def _ask_or_wait(self, request: Outgoing) -> None:
        try:
            await self.ask(request)
        except ToolFailure:  # too much waits for it already
            await self.lost.wait()

    async def _check_again(self) -> None:
        """Compare the pinned files once more when the server has loaded them: one may have changed after the check."""
        before, self._before = self._before, None
        if before == await anyio.to_thread.run_sync(pinned_state, self._spec):
            return
        if changed := await anyio.to_thread.run_sync(changed_sources, self._spec, self._path):
            self._lose("a file behind it changed while it started")
            raise _held("stopped", changed, made_by_agents(self._spec, changed))

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
        self._heard_at = time.monotonic()
        try:
            for line in self._lines.feed(data):
                self._has_sent = True
                self._count_noise()  # before the answer behind it, which ends the count
                self._mux.receive(line)
        except Flood as flood:
            self._lose(str(flood))
            return
        self._count_noise()

    def _count_noise(self) -> None:
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
            self._lose(self._verdict or child.ending)

    async def _learn_the_end(self) -> None:
        child = self._child
        if child is not None:
            with anyio.move_on_after(_EXIT_WAIT):
                await child.wait()
            self._lose(self._verdict or child.ending or "closed its output")

    def _taken(self) -> int:
        """Return the number of sent bytes that may have been read.

        What still lies in the pipe counts as read while a process of the group lives, since it may read on.
        """
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


def _bytecode(ours: Mapping[str, str]) -> str:
    """Return the folder for byte code of projects: what their own `__pycache__` has, pins cannot tell from forged."""
    cache = ours.get("XDG_CACHE_HOME", "")
    home = ours.get("HOME") or os.path.expanduser("~")
    return os.path.join(cache if os.path.isabs(cache) else os.path.join(home, ".cache"), "toolcrib", "bytecode")


async def _sweep_bytecode(folder: str) -> None:
    await anyio.to_thread.run_sync(remove_old_tree, Path(folder))


def _held(state: str, changed: list[str], by_agents: list[str]) -> ToolFailure:
    names = by_agents or changed
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    why = (
        "came while a command of an agent ran, after this project was confirmed"
        if by_agents
        else "is not as it was when this project was confirmed"
    )
    return ToolFailure(
        "definition_changed",
        f"{state}: {', '.join(names[:5])}{more} {why}",
        hint="look at it, then run `toolcrib trust` in this project",
    )


def _nothing() -> None:
    """The end of stderr says nothing: the end of the process does."""
