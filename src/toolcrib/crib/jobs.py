"""Jobs of a crib: in process or durable, and the tools by which models look after them.

In process (`InProcessJobs`): the call itself goes on in this process, and ends with it. Durable (`DurableJobs`): the
call is stored, and made again from the top by the process of the store that claims it; `_JobRunner` is how that
process makes it. `jobs.engine: auto` takes durable ones unless the store is in memory.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ..config import Settings
from ..core.call import Call
from ..core.context import Context, Listener
from ..core.events import CatalogChanged
from ..core.permission import Approval
from ..core.result import ToolResult, Trust
from ..core.saved_call import SavedCall
from ..core.session import Scope, SessionState, SessionTable
from ..core.tool import Tool
from ..errors import UsageError
from ..jobs.durable import DurableJobs
from ..jobs.inprocess import InProcessJobs
from ..jobs.job import Job, Jobs
from ..jobs.settings import JobLimits
from ..jobs.tools import JobTools
from ..policy.decision import Policy
from ..policy.questions import binding_of
from ..store.store import Store
from .calls import CallRunner, SavedCalls, note_unmade
from .tools import ToolRegistry
from .views import Views

_PATIENCE: Final = 10.0
"""Seconds that a job waits for servers that were never seen before: one of them may have its tool."""
_ANSWERED: Final = "the answer '"
"""Prefix of the rule of a call that an earlier answer allows, in this session only."""


async def mount_jobs(
    jobs: Jobs,
    tools: ToolRegistry,
    calls: CallRunner,
    views: Views,
    sessions: SessionTable,
    policy: Policy,
    *,
    at_once: bool,
) -> None:
    """Mount them behind every source that is there: what is shown already keeps its place.

    `at_once` offers them from the beginning, if there are tools that are worth to be run in the background.
    """

    def tool_of(job: Job) -> tuple[Tool | None, bool]:
        """Return the tool of a job; where an op hides its name, another one of its source, and False."""
        tool = tools.catalog.find(job.tool)
        if tool is not None and tool.source == job.source:
            return tool, True
        return next((one for one in tools.catalog.tools.values() if one.source == job.source), None), False

    def trust_of(job: Job) -> Trust:
        """Trust what the tool says as its result is; of one that is not known here any more, nothing."""
        tool, _ = tool_of(job)
        return "untrusted" if tool is None else policy.taint.trust_of(tool)

    def take_note(job: Job) -> None:
        tool, is_its_own = tool_of(job)
        if tool is not None and job.result is not None and job.result.meta.get("trust") == "untrusted":
            _taint(job, tool, sessions, policy, calls, is_own=is_its_own and tool.origin != "workflow")

    calls.on_job(take_note)
    source = JobTools(jobs, calls.door_of, trust_of, partial(_offered, views))
    await tools.mount_source(source, prefix=False, trusted=True)

    def look_at(names: Iterable[str], *, at_once: bool = False) -> None:
        catalog = tools.catalog
        if at_once or any(catalog.tools[name].execution.background_after is not None for name in names):
            source.offer_all()

    def follow(change: CatalogChanged) -> None:
        look_at((*change.added, *change.changed))

    tools.on_change(follow)
    look_at(tools.catalog.tools, at_once=at_once)


def _taint(job: Job, tool: Tool, sessions: SessionTable, policy: Policy, calls: CallRunner, *, is_own: bool) -> None:
    """Let the session that started a job have read its untrusted result, whichever process carried it.

    The session may be gone, as that of a client without a connection is, or end before its next call: its conversation
    is stored as tainted. A receipt of one that is gone is left out, for a client may have started it. `is_own`: the
    result is that of `tool` itself.
    """
    state = sessions.find(job.principal, job.session)
    if state is None:
        if not is_own or tool.kind == "read" or policy.is_strict():
            calls.mark_tainted(job.principal, job.session, tool.name)
        return
    if is_own and job.result is not None:
        policy.taint.note(tool, "untrusted", state, job.result.text, is_strict=policy.is_strict())
    else:
        policy.taint.mark_tainted(tool, state)
    if state.taint.source and state.keep_for:
        calls.mark_tainted(job.principal, job.session, state.taint.source)


def _offered(views: Views, context: Context) -> Iterable[tuple[str, Tool]]:
    """Return the tools of the session that asks, under the names that it knows."""
    visible = views.visible_of(context)
    return ((visible.aliases.name(tool), tool) for tool in visible.offered())


def jobs_of(
    settings: Settings,
    store: Store,
    tools: ToolRegistry,
    views: Views,
    saved_calls: SavedCalls,
    *,
    memory: bool,
    tell: Callable[[Job], None],
) -> Jobs:
    """Return the jobs that `settings` ask for, not opened yet; with `memory` the store is kept in no place.

    Raises `UsageError` where durable ones were asked for and cannot be had.
    """
    limits = settings.jobs
    if limits.engine == "process" or (limits.engine == "auto" and memory):
        return InProcessJobs(tell, limits)
    if memory:
        raise UsageError("jobs.engine: durable jobs need a store on disk or in PostgreSQL, and this one is in memory")
    runner = _JobRunner(store, tools, views, saved_calls, limits)
    return DurableJobs(tell, limits, rows=store.jobs, vault=store.vault, runner=runner)


def jobs_at(store: Store, limits: JobLimits) -> DurableJobs:
    """Return the jobs of a store, for a process that looks at them and cancels some, and has no tools."""
    return DurableJobs(_nobody, limits, rows=store.jobs, vault=store.vault, runner=_NoCalls(store))


def _nobody(job: Job) -> None:
    """Ignore a job event."""


def follow_catalog(tools: ToolRegistry, jobs: Jobs) -> None:
    """Let jobs whose tools were not there be looked at again when tools come."""
    if isinstance(jobs, DurableJobs):
        tools.on_change(lambda change: jobs.look_again())


class _NoCalls:
    """Stands where calls are made again, in a process that makes none."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def knows(self, saved: SavedCall) -> bool:
        """Whether the tool is here: none is."""
        return False

    async def make(self, saved: SavedCall, *, approval: str, listener: Listener, reserved: bool = False) -> ToolResult:
        """Refuse."""
        raise UsageError("this process makes no calls")

    async def note(self, saved: SavedCall, result: ToolResult) -> None:
        """Record a call that is never made."""
        note_unmade(self.store, saved, result)

    async def vouch(self, call: Call, job: str) -> str:
        """Have nothing to vouch for."""
        return ""


class _JobRunner(_NoCalls):
    """Runner of the calls of jobs."""

    def __init__(
        self, store: Store, tools: ToolRegistry, views: Views, saved_calls: SavedCalls, limits: JobLimits
    ) -> None:
        super().__init__(store)
        self._tools = tools
        self._views = views
        self._saved_calls = saved_calls
        self._limits = limits

    async def knows(self, saved: SavedCall) -> bool:
        """Whether the tool is there, or is once every server has listed that was never seen before.

        Until then one of another definition may become what it was: a workflow's is made of those of its steps.
        """
        found = self._found(saved)
        if found is None or found.digest.hex() != saved.definition:
            await self._tools.wait_ready(_PATIENCE)
        return self._found(saved) is not None

    async def make(self, saved: SavedCall, *, approval: str, listener: Listener, reserved: bool = False) -> ToolResult:
        """Make the call, under its id."""
        return await self._saved_calls.make(
            saved, approval=approval, job=self._limits, listener=listener, reserved=reserved
        )

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
            hash=binding_of(call),
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
        return self._views.visible(state).catalog.tools.get(saved.name)
