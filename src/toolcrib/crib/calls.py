"""The one door of a crib, `CallRunner.run`, and saved calls that are made through it again."""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ..config import Settings
from ..core.call import NESTED, Call, Client, trace_of
from ..core.context import Context, Listener
from ..core.events import CallFinished, Listeners
from ..core.result import ToolResult
from ..core.saved_call import SavedCall, SavedSession, path_of
from ..core.session import SessionState, SessionTable
from ..disclosure.base import VisibleCatalog
from ..dispatch.pipeline import Pipeline, definition_changed
from ..dispatch.steps.content import Enrich, Enricher
from ..errors import ToolFailure, UsageError
from ..jobs.job import Job, seconds_for
from ..jobs.settings import JobLimits
from ..policy.remembered_answers import touch_idle_answer
from ..sources.source import still_starting
from ..store.store import Store
from .conversations import Conversations
from .options import SessionOptions
from .plan_mode import end_planning
from .sessions import SessionFactory
from .views import Views
from .workspaces import Workspaces


class CallRunner:
    """Runs calls through the pipeline of a crib, from `open` to `close`.

    Every way in comes here, so that what surrounds a call stands in one place: what the store keeps of the conversation
    is read before it and written after it (where the session has a key of its own), and the session's worktree is made.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        sessions: SessionTable,
        views: Views,
        workspaces: Workspaces,
        conversations: Conversations | None,
    ) -> None:
        """`workspaces` prepare the files of a session before its call; refusals of theirs are recorded in `store`.

        `conversations` keep what a session has between its calls; None where the store is memory.
        """
        self._conversations = conversations
        self._idle = settings.approvals.idle
        self._store = store
        self._sessions = sessions
        self._views = views
        self._workspaces = workspaces
        self._runtimes = sessions.runtimes
        self._pipeline: Pipeline | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._prefix = f"call_{secrets.token_hex(5)}_"
        self._numbers = itertools.count(1)
        self.enrichment = Enrich()
        """Additions to successful results; see `enrich`."""
        self.finished = Listeners[CallFinished]()
        self.jobs = Listeners[Job]()

    def open(self, pipeline: Pipeline) -> None:
        """Run calls through `pipeline` from now on, in this event loop."""
        self._pipeline = pipeline
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Refuse calls from now on: one that comes later gets an error instead of waiting for closed threads."""
        self._pipeline = None

    @property
    def is_open(self) -> bool:
        """Whether calls run now."""
        return self._pipeline is not None

    def check_open(self) -> Pipeline:
        """Return the pipeline. Raises `UsageError` when the crib is not open."""
        if self._pipeline is None:
            raise UsageError("this Toolcrib is not open: use it inside `async with Toolcrib() as crib:`")
        return self._pipeline

    def check_loop(self) -> Pipeline:
        """Return the pipeline. Raises `UsageError` also in another event loop, where a server would never answer."""
        pipeline = self.check_open()
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "this Toolcrib belongs to the event loop that opened it, and this is another one: open it in the one "
                "`asyncio.run` of the program; a thread hands calls over by `asyncio.run_coroutine_threadsafe`"
            )
        return pipeline

    async def run(self, call: Call) -> ToolResult:
        """Run one call. Raises `UsageError` when the crib is not open, and in another event loop."""
        pipeline, session = self.check_loop(), call.session
        if self._runtimes.left:  # a finalizer cannot await: the next call closes what garbage collection has ended
            await self._runtimes.close_left()
        if session.approvals.blanket:
            touch_idle_answer(session, self._idle)
        conversations = self._conversations if session.keep_for else None
        if conversations is not None and not session.is_alone:
            await conversations.restore(session)
        if self._workspaces.has_promised:  # `session()` cannot wait for git: the first call makes the worktree
            try:
                await self._workspaces.ready(session)
            except ToolFailure as failure:
                refusal = ToolResult.of_failure(failure).with_meta(call_id=call.id)
                self._store.calls.note(call, refusal)
                return refusal
        try:
            result = await pipeline.run(call)
            if conversations is not None:
                await conversations.save(session)
            return result
        finally:
            if session.approvals.blanket:
                touch_idle_answer(session, math.inf)  # a long call is not idle time, however long it took

    async def restore(self, session: SessionState) -> None:
        """Take over what an earlier process has stored of a session."""
        if self._conversations is not None and session.keep_for:
            await self._conversations.restore(session)

    async def keep(self, session: SessionState) -> None:
        """Store what a session keeps between its calls, after a change that no call made."""
        if self._conversations is not None and session.keep_for:
            await self._conversations.save(session)

    def mark_tainted(self, principal: str, key: str, name: str) -> None:
        """Store that the tool `name` tainted a conversation: its session may be gone, and come back anywhere."""
        if self._conversations is not None:
            self._conversations.mark_tainted(principal, key, name)

    def next_id(self) -> str:
        """Return an id that no other call has."""
        return f"{self._prefix}{next(self._numbers):x}"

    def on_finished(self, callback: Callable[[CallFinished], None]) -> Callable[[], None]:
        """Call `callback` with every call that ended, refusals included; return what ends the subscription."""
        return self.finished.add(callback)

    def on_job(self, callback: Callable[[Job], None]) -> Callable[[], None]:
        """Call `callback` when a call goes on as a job and when the job ends; return what ends the subscription."""
        return self.jobs.add(callback)

    def enrich(self, enricher: Enricher, *, priority: int = 0) -> Callable[[], None]:
        """Let `enricher` add to every success from now on; a higher priority comes earlier. Return what ends that."""
        return self.enrichment.subscribe(enricher, priority=priority)

    def visible_of(self, context: Context) -> VisibleCatalog:
        """Return the tools that the session of a call can see."""
        return self._views.visible_of(context)

    def door_of(self, context: Context) -> Callable[..., Awaitable[ToolResult]]:
        """Return the function for calls of a tool's own session: `run(name, arguments, **fields of Call)`.

        Of the client's metadata they have the trace context: the rest is for the server of the client's own call.
        """
        blank = Call(
            id="",
            name="",
            arguments=None,
            session=self._sessions.get(context),
            origin=NESTED,
            parent=context.call_id,
            client=Client(peer=context.peer, meta=trace_of(context.meta) or None, client_name=context.client_name),
        )

        async def run(name: str, arguments: Any = None, **fields: Any) -> ToolResult:
            call = blank.evolve(id=self.next_id(), name=name, arguments=arguments, started=time.monotonic(), **fields)
            return await self.run(call)

        return run


class SavedCalls:
    """Makes saved calls again. One for a crib."""

    def __init__(self, store: Store, sessions: SessionFactory, views: Views, calls: CallRunner) -> None:
        """`sessions` find or rebuild the session of a call, `calls` run it, `store` records what is never made."""
        self._store = store
        self._sessions = sessions
        self._views = views
        self._calls = calls

    async def make(
        self,
        saved: SavedCall,
        *,
        approval: str = "",
        background: bool = False,
        job: JobLimits | None = None,
        listener: Listener | None = None,
        reserved: bool = False,
    ) -> ToolResult:
        """Make the call that was saved, under its own id; `approval` is what the approve step redeems.

        It has as much time as `job` allows, where it is made as one; `listener` gets its output and progress.
        `reserved`: it holds the receipt of its idempotency key already.

        Refused, and recorded as refused, when the definition of the tool is another one (`definition_changed`), and
        when the session cannot be rebuilt because its profile or mode is gone (`unavailable`). A tool that is gone is
        `not_found`; that of a source that is still starting is waited for, as long as a call of the session may take.
        Raises only when the caller is cancelled.
        """
        try:
            state = self.session(saved.session)
        except UsageError as error:
            state = SessionState(key=saved.session.key, principal=saved.session.principal)
            refusal = ToolResult.failed("unavailable", f"the session of {saved.name} cannot be had again: {error}")
            return self._refused(_call_again(saved, state), refusal)
        call = _call_again(saved, state).evolve(
            approval=approval, background=background, listener=listener, reserved=reserved
        )
        visible = self._views.visible(state, saved.name, saved.version)
        if saved.name not in visible.catalog.tools and (starting := visible.starting(saved.name)):
            await visible.sources.wait(state.limits.timeout, starting)
            visible = self._views.visible(state, saved.name, saved.version)
            if visible.starting(saved.name):
                return self._refused(call, ToolResult.of_failure(still_starting(starting[0])))
        tool = visible.catalog.tools.get(saved.name)
        if tool is not None and tool.digest.hex() != saved.definition:
            return self._refused(call.evolve(tool=tool), ToolResult.of_failure(definition_changed(saved.name)))
        call = call.evolve(tool=tool)
        if job is not None and tool is not None:
            call = call.evolve(job_seconds=seconds_for(call, job), is_stored=True)
        return await self._calls.run(call)

    def session(self, saved: SavedSession) -> SessionState:
        """Return the session, living or rebuilt. Raises `UsageError` for a profile or mode that does not exist."""
        living = self._sessions.find(saved.principal, saved.key)
        if living is not None:
            return living
        options: SessionOptions = {
            "principal": saved.principal,
            "key": saved.key,
            "instance": saved.instance,
            "profile": saved.profile,
            "mode": saved.mode,
            "rules": dict(saved.rules),
            "allowed_tools": saved.allowed,
            "context": saved.defaults,
            "contexts": saved.contexts,
            "available": saved.available,
            "versions": saved.versions,
            "user": saved.user,
            "workspace": tuple(map(path_of, saved.roots)) or None,
            "task": saved.task,
            "for_client": saved.for_client,
            "shadow": False,  # its roots are the shadow's own
        }
        if path_of(saved.cwd) != Path():  # a session without a folder has none here either
            options["cwd"] = path_of(saved.cwd)
        state = self._sessions.open(options)
        state.scope.exact, state.taint.source, state.taint.private_read_by = saved.exact, saved.tainted, saved.confided
        if not saved.planning:
            end_planning(state)
        state.scope.disabled.update(dict.fromkeys(saved.disabled))
        return state

    def _refused(self, call: Call, refusal: ToolResult) -> ToolResult:
        self._store.calls.note(call, refusal)
        return refusal.with_meta(call_id=call.id)


def note_unmade(store: Store, saved: SavedCall, refusal: ToolResult) -> None:
    """Record a saved call that is never made."""
    state = SessionState(key=saved.session.key, principal=saved.session.principal)
    store.calls.note(_call_again(saved, state), refusal)


def _call_again(saved: SavedCall, state: SessionState) -> Call:
    apart = ("session", "definition")
    given: dict[str, Any] = {name: getattr(saved, name) for name in saved.__struct_fields__ if name not in apart}
    start = time.monotonic()
    return Call(id=saved.id, name=saved.name, arguments=saved.arguments, session=state, started=start).evolve(**given)
