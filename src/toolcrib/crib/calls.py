"""The one door of a crib: every call of every way in runs through `CallRunner.run`."""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..config import Settings
from ..core.call import Call, Client
from ..core.context import Context
from ..core.events import CallFinished
from ..core.result import ToolResult
from ..disclosure.base import VisibleCatalog
from ..dispatch.pipeline import Pipeline
from ..dispatch.steps.content import Enrich, Enricher
from ..errors import ToolFailure, UsageError
from ..jobs.job import Job
from ..policy.asking.answers import rest
from ..store.store import Store
from .listeners import Listeners
from .session_table import Runtimes, SessionTable
from .views import Views
from .workspaces import Workspaces

__all__ = ["CallRunner"]


class CallRunner:
    """Runs calls through the pipeline of a crib, from `open` to `close`."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        sessions: SessionTable,
        views: Views,
        workspaces: Workspaces,
        runtimes: Runtimes,
    ) -> None:
        """`workspaces` prepare the files of a session before its call; refusals of theirs are recorded in `store`."""
        self._idle = settings.approvals.idle
        self._store = store
        self._sessions = sessions
        self._views = views
        self._workspaces = workspaces
        self._runtimes = runtimes
        self._pipeline: Pipeline | None = None
        self._prefix = f"call_{secrets.token_hex(5)}_"
        self._numbers = itertools.count(1)
        self.enrichment = Enrich()
        """What is added to successful results; see `enrich`."""
        self.finished = Listeners[CallFinished]()
        self.jobs = Listeners[Job]()

    def open(self, pipeline: Pipeline) -> None:
        """Run calls through `pipeline` from now on."""
        self._pipeline = pipeline

    def close(self) -> None:
        """Refuse calls from now on: one that comes later gets an error instead of waiting for closed threads."""
        self._pipeline = None

    @property
    def is_open(self) -> bool:
        """Whether calls run."""
        return self._pipeline is not None

    def check_open(self) -> Pipeline:
        """Return the pipeline. Raises `UsageError` when the crib is not open."""
        if self._pipeline is None:
            raise UsageError("this Toolcrib is not open: use it inside `async with Toolcrib() as crib:`")
        return self._pipeline

    async def run(self, call: Call) -> ToolResult:
        """Run one call. Raises `UsageError` when the crib is not open."""
        pipeline, session = self.check_open(), call.session
        if self._runtimes.has_left:
            await self._runtimes.close_left()
        if session.approvals.blanket:
            rest(session, self._idle)
        if self._workspaces.is_making(session):
            try:
                await self._workspaces.ready(session)
            except ToolFailure as failure:
                refusal = ToolResult.of_failure(failure).with_meta(call_id=call.id)
                self._store.calls.note(call, refusal)
                return refusal
        try:
            return await pipeline.run(call)
        finally:
            if session.approvals.blanket:
                rest(session, math.inf)

    def next_id(self) -> str:
        """Return an id that no other call has."""
        return f"{self._prefix}{next(self._numbers):x}"

    def on_finished(self, callback: Callable[[CallFinished], None]) -> Callable[[], None]:
        """Call `callback` with every call that ended, refusals included; return what ends the subscription."""
        return self.finished.add(callback)

    def on_job(self, callback: Callable[[Job], None]) -> Callable[[], None]:
        """Call `callback` when a call goes on as a job and when the job ends; return what ends the subscription."""
        return self.jobs.add(callback)

    def enrich(self, enricher: Enricher, *, priority: int = 0) -> None:
        """Let `enricher` add to every success from now on; a higher priority comes earlier."""
        self.enrichment.subscribe(enricher, priority=priority)

    def scene_of(self, context: Context) -> VisibleCatalog:
        """Return what the session of a call can see."""
        return self._views.scene_of(context)

    def door_of(self, context: Context) -> Callable[..., Awaitable[ToolResult]]:
        """Return how a tool makes calls of the session that called it: `run(name, arguments, **fields of Call)`."""
        blank = Call(
            id="",
            name="",
            arguments=None,
            session=self._sessions.get(context),
            origin="batch",
            parent=context.call_id,
            client=Client(peer=context.peer, meta=context.meta or None),
        )

        async def run(name: str, arguments: Any = None, **fields: Any) -> ToolResult:
            call = blank.evolve(id=self.next_id(), name=name, arguments=arguments, started=time.monotonic(), **fields)
            return await self.run(call)

        return run
