"""Making a saved call again: from the top, through the one door, under its own id.

Rules are decided anew, so that a deny that was written meanwhile holds, and an approval must be redeemed by the step
that would have asked for it. What was saved of the session is used only where that session no longer lives.
"""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.call import Call
from ..core.context import Listener
from ..core.result import ToolResult
from ..core.saved_call import SavedCall, SavedSession
from ..core.session import SessionState
from ..dispatch.pipeline import definition_changed
from ..errors import UsageError
from ..jobs.job import JobLimits, seconds_for
from ..sources.startup import still_starting
from ..store.store import Store
from .calls import CallRunner
from .options import SessionOptions
from .plans import end_planning
from .sessions import SessionFactory
from .views import Views

__all__ = ["SavedCalls", "note_unmade"]


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
    ) -> ToolResult:
        """Make the call that was saved, under its own id; `approval` is what the approve step redeems.

        It has as much time as `job` allows, where it is made as one; `listener` gets its output and progress.

        Refused, and recorded as refused, when the definition of the tool is another one (`definition_changed`), and
        when the session cannot be rebuilt because its profile or mode is gone (`unavailable`). A tool that is gone is
        `not_found`; that of a source that is still starting is waited for, as long as a call of the session may take.
        Raises only when the caller is cancelled.
        """
        try:
            state = self._session(saved.session)
        except UsageError as error:
            state = SessionState(key=saved.session.key, principal=saved.session.principal)
            refusal = ToolResult.failed("unavailable", f"the session of {saved.name} cannot be had again: {error}")
            return self._refused(_call(saved, state), refusal)
        call = _call(saved, state).evolve(approval=approval, background=background, listener=listener)
        scene = self._views.scene(state, saved.name, saved.version)
        if saved.name not in scene.catalog.tools and (starting := scene.starting(saved.name)):
            await scene.sources.wait(state.limits.timeout, starting)
            scene = self._views.scene(state, saved.name, saved.version)
            if scene.starting(saved.name):
                return self._refused(call, ToolResult.of_failure(still_starting(starting[0])))
        tool = scene.catalog.tools.get(saved.name)
        if tool is not None and tool.digest.hex() != saved.definition:
            return self._refused(call.evolve(tool=tool), ToolResult.of_failure(definition_changed(saved.name)))
        call = call.evolve(tool=tool)
        if job is not None and tool is not None:
            call = call.evolve(job_seconds=seconds_for(call, job))
        return await self._calls.run(call)

    def _session(self, saved: SavedSession) -> SessionState:
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
            "cwd": Path(saved.cwd),
            "workspace": saved.roots or None,
            "task": saved.task,
            "for_client": saved.for_client,
            "shadow": False,  # its roots are the shadow's own
        }
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
    store.calls.note(_call(saved, state), refusal)


def _call(saved: SavedCall, state: SessionState) -> Call:
    apart = ("session", "definition")
    given: dict[str, Any] = {one.name: getattr(saved, one.name) for one in fields(saved) if one.name not in apart}
    start = time.monotonic()
    return Call(id=saved.id, name=saved.name, arguments=saved.arguments, session=state, started=start).evolve(**given)
