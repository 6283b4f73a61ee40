"""The only place where a tool's body is entered.

A call without a grant that covers exactly this tool and these arguments does not run. The intent of a call with side
effects is on disk before it starts; if it cannot be written, the call does not start. The grant is spent last, without
a pause before the body: while it is unspent, nothing ran.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from ...core.call import Call, Client
from ...core.context import Context, Signal
from ...core.elicitation import Elicitor
from ...core.host import Host
from ...core.permission import Effect
from ...core.result import ToolResult
from ...core.session import SessionState
from ...core.tool import Tool
from ...errors import ToolFailure
from ...policy.grant import spend
from ...sources.source import Source, still_starting
from ...store.calls import Calls
from ..client_output import RedactedPeers
from ..plan import Execute as Run
from ..plan import Subject
from ..running_calls import Deadlines, Lag, Locks, allowed_time, lock_keys

__all__ = ["Execute"]

_logger: Final = logging.getLogger(__name__)
_CHECK: Final = 10.0
"""Seconds for a check before a question."""
_LAST_WORDS: Final = 1.0
"""Seconds for a client to take the rest of the output of an ended call."""


class Execute:
    """Run the granted call at its source, inside its deadline. One for a crib."""

    def __init__(
        self,
        sources: Callable[[str], Source | None],
        journal: Calls,
        permissions: Callable[[SessionState], Mapping[str, Effect]],
        peers: RedactedPeers,
        host: Host | None = None,
    ) -> None:
        """`sources` finds a source by name; `journal` records the intents of calls with side effects.

        `permissions` returns the permissions of single tools in a session's mode; `peers` redacts the tools' output to
        clients; `host` provides their services.
        """
        self._sources = sources
        self._journal = journal
        self._permissions = permissions
        self._peers = peers
        self._host = host
        self._locks = Locks()
        self._deadlines = Deadlines()
        self._lag = Lag()

    def __call__(self, call: Call) -> Awaitable[ToolResult]:
        """Return the tool's result; raises `ToolFailure` when it could not run or did not end in time."""
        tool = call.target
        turns = lock_keys(tool, call.arguments, call.session.files.cwd)
        return self._timed(call, tool, turns, self._permissions(call.session))

    async def check(self, call: Call) -> None:
        """Raise the `ToolFailure` of a call that would fail whatever a person answers; nothing of the tool runs.

        A check that fails itself, or takes too long, stops nothing: the call is asked about, and fails when it runs.
        """
        check = getattr(self._sources(call.target.source), "check", None)
        if check is None:
            return
        signal = Signal(time.monotonic() + _CHECK)
        silent = call.evolve(client=Client())
        context = _context(silent, signal, self._permissions(call.session), self._peers, self._host)
        try:
            with anyio.move_on_after(_CHECK):
                await check(call.target, call.arguments, context)
        except ToolFailure:
            raise
        except Exception:
            _logger.exception("the check of %s failed", call.target.name)

    def bind(self, subject: Subject) -> Run:
        """Return the execution for one tool and one mode; calls that take no turns need not look for theirs."""
        tool = subject.tool
        if tool is None or tool.execution.serial or not tool.annotations.read_only:
            return self
        permissions: Mapping[str, Effect] | None = None

        def execute(call: Call) -> Awaitable[ToolResult]:
            nonlocal permissions
            if permissions is None:
                permissions = self._permissions(call.session)
            return self._timed(call, tool, (), permissions)

        return execute

    async def _timed(
        self, call: Call, tool: Tool, turns: tuple[str, ...], permissions: Mapping[str, Effect]
    ) -> ToolResult:
        source = self._sources(tool.source)
        if source is None:
            raise ToolFailure("unavailable", f"{tool.source}, where {tool.name} comes from, is not open")
        call.session.history.activated.setdefault(tool.name)
        signal = Signal(time.monotonic() + allowed_time(call))  # waiting for an approval takes none of it
        is_waiting = bool(turns)
        scope = self._deadlines.open(signal.deadline, signal)
        self._lag.enter(tool)
        try:
            with scope:
                if not turns:
                    return await self._run(call, source, signal, permissions)
                async with self._locks.hold(turns, signal):
                    is_waiting = False
                    return await self._run(call, source, signal, permissions)
        finally:
            self._deadlines.close(scope)
            self._lag.leave(tool)
        if signal.is_starting:
            raise still_starting(tool.source)
        raise _not_started(call) if is_waiting else _timed_out(call)

    async def _run(self, call: Call, source: Source, signal: Signal, permissions: Mapping[str, Effect]) -> ToolResult:
        tool = call.target
        if not tool.annotations.read_only:
            await self._journal.intend(call)
        context = _context(call, signal, permissions, self._peers, self._host)
        if call.grant is None or not spend(call.grant, tool, call.arguments, call.id):
            raise ToolFailure("denied", f"no grant covers this call of {tool.name}")
        try:
            return await source.call(tool, call.arguments, context)
        except anyio.get_cancelled_exc_class():
            signal.abort("timeout" if time.monotonic() >= signal.deadline else "cancelled")
            raise
        finally:
            if context.is_waiting:
                with anyio.move_on_after(_LAST_WORDS, shield=True):
                    await context.settle()


def _context(
    call: Call, signal: Signal, permissions: Mapping[str, Effect], peers: RedactedPeers, host: Host | None
) -> Context:
    """Return the surroundings of this call, made anew for each."""
    session = call.session
    fields: dict[str, Any] = {
        "call_id": call.id,
        "session_key": session.key,
        "principal": session.principal,
        "first_call": call.first or call.id,
        "instance": session.instance,
        "defaults": session.defaults,
        "user": session.user,
        "deadline": signal.deadline,
        "peer": call.client.peer and peers.to(call.client.peer),
        "progress_token": call.client.progress_token,
        "meta": call.client.meta or {},
        "resume": call.client.resume,
        "cwd": session.files.cwd,
        "workspace": session.files.workspace,
        "host": host,
        "result_bytes": session.result_tokens * 4,
        "permissions": permissions,
        "runtime": session.runtime,
        "signal": signal,
        "listener": call.client.listener,
        "elicitor": _elicitor(session),
        "cleaner": peers.cleaner,
    }
    return Context.of(fields)


def _elicitor(session: SessionState) -> Elicitor | None:
    """Return the session's elicitor, else its approver if it can answer questions."""
    if session.elicitor is not None or session.approvals.approver is None:
        return session.elicitor
    return getattr(session.approvals.approver, "clarify", None)


def _not_started(call: Call) -> ToolFailure:
    took = f"{time.monotonic() - call.started:.1f} s"
    return ToolFailure(
        "overloaded",
        f"{call.name} did not get its turn within its time ({took}), and did not run",
        hint="another call works on the same thing; send this one again",
    )


def _timed_out(call: Call) -> ToolFailure:
    took = f"{time.monotonic() - call.started:.1f} s"
    if call.target.annotations.read_only:
        return ToolFailure("timeout", f"{call.name} did not end within its time ({took})")
    return ToolFailure(
        "timeout",
        f"{call.name} did not end within its time ({took}); it was cancelled and may have run in part",
        hint="check its effects before calling it again",
        details={"outcome": "unknown"},
    )
