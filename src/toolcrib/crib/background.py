"""The tools by which models look after jobs, mounted with every crib and offered once some tool may become a job."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..core.context import Context
from ..core.events import CatalogChanged
from ..core.result import Trust
from ..core.tool import Tool
from ..jobs.job import Job, Jobs
from ..jobs.tools import JobTools
from ..policy.decision import Policy
from .calls import CallRunner
from .sessions import SessionTable
from .tools import ToolRegistry
from .views import Views

__all__ = ["mount_jobs"]


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

    `at_once` offers them from the beginning, where there are tools that are worth to be run in the background.
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
        """Let the session that started a job have read what it gives, whichever process carried it."""
        state, (tool, is_its_own) = sessions.find(job.principal, job.session), tool_of(job)
        if state is None or tool is None or job.result is None or job.result.meta.get("trust") != "untrusted":
            return
        if is_its_own and tool.origin != "workflow":
            policy.taint.note(tool, "untrusted", state, job.result.text)
        else:
            policy.taint.stain(tool, state)

    calls.on_job(take_note)
    source = JobTools(jobs, calls.door_of, trust_of, partial(_offered, views))
    await tools.mount_source(source, prefix=False, trusted=True)

    def look_at(names: Iterable[str], *, at_once: bool = False) -> None:
        catalog = tools.catalog
        if at_once or any(catalog.tools[name].background_after is not None for name in names):
            source.offer()

    def follow(change: CatalogChanged) -> None:
        look_at((*change.added, *change.changed))

    tools.on_change(follow)
    look_at(tools.catalog.tools, at_once=at_once)


def _offered(views: Views, context: Context) -> Iterable[tuple[str, Tool]]:
    """Return the tools of the session that asks, under the names that it knows."""
    scene = views.scene_of(context)
    return ((scene.labels.name(tool), tool) for tool in scene.offered())
