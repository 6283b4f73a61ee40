"""The tools by which models look after jobs, mounted with every crib and offered once some tool may become a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ..catalog.catalog import Catalog
from ..core.context import Context
from ..core.events import CatalogChanged
from ..core.result import Trust
from ..core.session import SessionState
from ..core.tool import Tool
from ..disclosure.base import Scene
from ..jobs.job import Job
from ..jobs.tools import JobHost, JobTools
from ..policy.decision import Policy
from ..sources.source import Source

__all__ = ["Yard", "mount_jobs"]


class Yard(JobHost, Protocol):
    """What mounting them needs of a crib."""

    @property
    def catalog(self) -> Catalog:
        """What exists now."""
        ...

    @property
    def policy(self) -> Policy:
        """What is allowed, and what is trusted."""
        ...

    def scene_of(self, context: Context) -> Scene:
        """Return what the session of a call can see."""
        ...

    def living(self, principal: str, key: str) -> SessionState | None:
        """Return a session that is there."""
        ...

    def on_job(self, callback: Callable[[Job], None]) -> Callable[[], None]:
        """Call `callback` with every job that began or ended."""
        ...

    async def mount_source(self, source: Source, *, prefix: bool, trusted: bool) -> None:
        """Mount a source."""
        ...

    def on_change(self, callback: Callable[[CatalogChanged], None]) -> Callable[[], None]:
        """Call `callback` with every change of the catalog."""
        ...


async def mount_jobs(crib: Yard, *, at_once: bool) -> None:
    """Mount them behind every source that is there: what is shown already keeps its place.

    `at_once` offers them from the beginning, where there are tools that are worth to be run in the background.
    """

    def tool_of(job: Job) -> tuple[Tool | None, bool]:
        """Return the tool of a job; where an op hides its name, another one of its source, and False."""
        tool = crib.catalog.find(job.tool)
        if tool is not None and tool.source == job.source:
            return tool, True
        return next((one for one in crib.catalog.tools.values() if one.source == job.source), None), False

    def trust_of(job: Job) -> Trust:
        """Trust what the tool says as its result is; of one that is not known here any more, nothing."""
        tool, _ = tool_of(job)
        return "untrusted" if tool is None else crib.policy.taint.trust_of(tool)

    def take_note(job: Job) -> None:
        """Let the session that started a job have read what it gives, whichever process carried it."""
        state, (tool, is_its_own) = crib.living(job.principal, job.session), tool_of(job)
        if state is None or tool is None or job.result is None or job.result.meta.get("trust") != "untrusted":
            return
        if is_its_own and tool.origin != "workflow":
            crib.policy.taint.note(tool, "untrusted", state, job.result.text)
        else:
            crib.policy.taint.stain(tool, state)

    crib.on_job(take_note)
    tools = JobTools(crib, trust_of, partial(_offered, crib))
    await crib.mount_source(tools, prefix=False, trusted=True)

    def look_at(names: Iterable[str], *, at_once: bool = False) -> None:
        catalog = crib.catalog
        if at_once or any(catalog.tools[name].execution.background_after is not None for name in names):
            tools.offer()

    def follow(change: CatalogChanged) -> None:
        look_at((*change.added, *change.changed))

    crib.on_change(follow)
    look_at(crib.catalog.tools, at_once=at_once)


def _offered(crib: Yard, context: Context) -> Iterable[tuple[str, Tool]]:
    """Return the tools of the session that asks, under the names that it knows."""
    scene = crib.scene_of(context)
    return ((scene.labels.name(tool), tool) for tool in scene.offered())
