"""Which jobs a crib has: such that end with the process, or durable ones, whose calls are made again from the top."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, Unpack

from anyio import to_thread

from ..catalog.catalog import Catalog
from ..config import Settings
from ..core.approval import Approval
from ..core.call import Call
from ..core.context import Listener
from ..core.events import CatalogChanged
from ..core.result import ToolResult
from ..core.saved_call import SavedCall
from ..core.session import Scope, SessionState
from ..core.tool import Tool
from ..disclosure.base import Scene
from ..errors import UsageError
from ..jobs.durable import DurableJobs
from ..jobs.inprocess import InProcessJobs
from ..jobs.job import Job, JobLimits, Jobs
from ..jobs.queue import Queue
from ..policy.asking.questions import binding
from ..store.store import Store
from .options import SessionOptions
from .resuming import note_unmade, resume
from .session import Session
from .storing import place_of

__all__ = ["follow_catalog", "jobs_at", "jobs_of"]

_PATIENCE: Final = 10.0
"""Seconds that a job waits for servers that were never seen before: one of them may have its tool."""
_ANSWERED: Final = "the answer '"
"""Begins the rule of a call that is allowed because somebody said so before, in this session alone."""


class _Crib(Protocol):
    settings: Settings

    @property
    def store(self) -> Store: ...

    @property
    def catalog(self) -> Catalog: ...

    def living(self, principal: str, key: str) -> SessionState | None: ...

    def session(self, **options: Unpack[SessionOptions]) -> Session: ...

    def scene(self, state: SessionState, name: str = "", version: str = "") -> Scene: ...

    def on_change(self, callback: Callable[[CatalogChanged], None]) -> Callable[[], None]: ...

    async def settled(self, timeout: float) -> None: ...

    async def call(self, call: Call) -> ToolResult: ...


def jobs_of(crib: _Crib, *, memory: bool, tell: Callable[[Job], None]) -> Jobs:
    """Return the jobs that the settings of `crib` ask for; `memory` says that its store is kept in no place.

    Raises `UsageError` where durable ones were asked for and cannot be had.
    """
    store, limits = crib.store, crib.settings.jobs
    place = None if memory else place_of(crib.settings)
    is_installed = find_spec("dbos") is not None
    if limits.engine == "process" or (limits.engine == "auto" and (place is None or not is_installed)):
        return InProcessJobs(tell, limits)
    if place is None:
        raise UsageError("jobs.engine: durable jobs need a store on disk or in PostgreSQL, and this one is in memory")
    if not is_installed:
        raise UsageError("jobs.engine: durable jobs need the extra: pip install 'toolcrib[durable]'")

    async def queue() -> Queue:
        where = place.with_name("jobs.db") if isinstance(place, Path) else place
        module: Any = await to_thread.run_sync(import_module, "toolcrib.jobs.dbos_queue")  # takes a second
        return module.DbosQueue(where, await store.jobs.queue(), limits.working)

    return DurableJobs(tell, limits, rows=store.jobs, vault=store.vault, door=_Door(crib, limits), queue=queue)


def jobs_at(store: Store, limits: JobLimits) -> DurableJobs:
    """Return the jobs of a store, for a process that looks at them and cancels some, and has no tools."""

    async def no_queue() -> Queue:
        raise UsageError("this process carries no jobs")

    return DurableJobs(_nobody, limits, rows=store.jobs, vault=store.vault, door=_Desk(store), queue=no_queue)


def _nobody(job: Job) -> None:
    """Tell nobody of a job."""


def follow_catalog(crib: _Crib, jobs: Jobs) -> None:
    """Let jobs whose tools were not there be looked at again when tools come."""
    if isinstance(jobs, DurableJobs):
        crib.on_change(lambda change: jobs.look_again())


class _Desk:
    """Stands where calls are made again, in a process that makes none."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def knows(self, saved: SavedCall) -> bool:
        """Whether the tool is here: none is."""
        return False

    async def make(self, saved: SavedCall, *, approval: str, listener: Listener) -> ToolResult:
        """Refuse."""
        raise UsageError("this process makes no calls")

    async def note(self, saved: SavedCall, result: ToolResult) -> None:
        """Record a call that is never made."""
        note_unmade(self.store, saved, result)

    async def vouch(self, call: Call, job: str) -> str:
        """Have nothing to vouch for."""
        return ""


class _Door(_Desk):
    """How a crib makes the calls of jobs again."""

    def __init__(self, crib: _Crib, limits: JobLimits) -> None:
        super().__init__(crib.store)
        self._crib = crib
        self._limits = limits

    async def knows(self, saved: SavedCall) -> bool:
        """Whether the tool is there, or is once every server has listed that was never seen before.

        Until then one of another definition may become what it was: a workflow's is made of those of its steps.
        """
        found = self._found(saved)
        if found is None or found.digest.hex() != saved.definition:
            await self._crib.settled(_PATIENCE)
        return self._found(saved) is not None

    async def make(self, saved: SavedCall, *, approval: str, listener: Listener) -> ToolResult:
        """Make the call, under its id."""
        return await resume(self._crib, saved, approval=approval, job=self._limits, listener=listener)

    async def vouch(self, call: Call, job: str) -> str:
        """Write an answer of this session down, which a session that is made again does not know."""
        decision = call.decision
        if decision is None or decision.effect != "allow" or not decision.rule.startswith(_ANSWERED):
            return ""
        tool, session, now = call.target, call.session, time.time()
        approval = Approval(
            id=f"approval_{secrets.token_hex(16)}",
            call_id=call.id,
            principal=session.principal,
            session=session.key,
            tool=tool.name,
            kind=tool.kind,
            source=tool.source,
            definition=tool.digest.hex(),
            hash=binding(tool.digest.hex(), call.arguments, session.principal),
            arguments="",
            rule=decision.rule,
            created=now,
            expires=now + self._limits.age,
            state="approved",
            verdict="yes",
            by=decision.rule,
            decided=now,
            job=job,
        )
        await self.store.approvals.put(approval, SavedCall.of(call), limit=self._limits.waiting)
        return approval.id

    def _found(self, saved: SavedCall) -> Tool | None:
        state = SessionState(key="", instance=saved.session.instance, scope=Scope(versions=saved.session.versions))
        return self._crib.scene(state).catalog.tools.get(saved.name)
