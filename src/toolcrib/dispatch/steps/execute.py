"""The one place where a tool's body is entered.

A call without a grant that covers exactly this tool and these arguments does not run. A call with side effects is on
disk before it starts; if that cannot be written, it does not start. The grant is spent last, without a pause before the
body: where it is still open, nothing ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...core.call import Call
from ...core.context import Context
from ...core.result import ToolResult
from ...errors import ToolFailure
from ...policy.grant import spend
from ...sources.base import Source
from ...store.calls import Calls
from ..deadline import Deadlines
from ..locks import Locks, lock_keys

__all__ = ["Execute"]


class Execute:
    """Run the granted call at its source, inside its deadline. One for a crib."""

    def __init__(self, sources: Callable[[str], Source | None], journal: Calls) -> None:
        """`sources` finds a source by name; `journal` takes the intents of calls with side effects."""
        self._sources = sources
        self._journal = journal
        self._locks = Locks()
        self._deadlines = Deadlines()

    async def __call__(self, call: Call) -> ToolResult:
        """Return the tool's result; raises `ToolFailure` when it could not run or did not end in time."""
        tool = call.target
        source = self._sources(tool.source)
        if source is None:
            raise ToolFailure("unavailable", f"{tool.source}, where {tool.name} comes from, is not open")
        call.session.activated.setdefault(tool.name)
        call = call.evolve(deadline=time.monotonic() + _allowed_time(call))
        turns = lock_keys(tool, call.arguments)
        is_waiting = bool(turns)
        scope = self._deadlines.open(call.deadline)
        try:
            with scope:
                if not turns:
                    return await self._run(call, source)
                async with self._locks.hold(turns):
                    is_waiting = False
                    return await self._run(call, source)
        finally:
            self._deadlines.close(scope)
        raise _not_started(call) if is_waiting else _timed_out(call)

    async def _run(self, call: Call, source: Source) -> ToolResult:
        tool = call.target
        if not tool.annotations.read_only:
            await self._journal.intend(call)
        if call.grant is None or not spend(call.grant, tool, call.arguments, call.id):
            raise ToolFailure("denied", f"no grant covers this call of {tool.name}")
        return await source.call(tool, call.arguments, _context(call))


def _allowed_time(call: Call) -> float:
    """Return the seconds that the call may run, from now: waiting for an approval takes none of it."""
    limits = call.session.limits
    wanted = call.timeout or call.target.timeout or limits.timeout
    return min(wanted, limits.max_timeout)


def _context(call: Call) -> Context:
    session = call.session
    return Context(
        call_id=call.id,
        session_key=session.key,
        principal=session.principal,
        instance=session.instance,
        deadline=call.deadline,
        peer=call.peer,
        progress_token=call.progress_token,
        meta=call.meta or {},
        resume=call.resume,
    )


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
        hint="check what it did before calling it again",
        details={"outcome": "unknown"},
    )
