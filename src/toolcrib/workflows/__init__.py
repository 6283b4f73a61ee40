"""Workflows: several tool calls as one tool, outputs feeding arguments. `crib.slice(Workflows)` adds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..catalog.catalog import Catalog
from ..core.context import Context
from ..core.events import CatalogChanged
from ..core.result import ToolResult, Trust
from ..core.tool import Tool
from ..crib.assembly import Parts, Slice
from ..errors import UsageError
from ..jobs.job import Jobs
from ..sources.settings import GivenWorkflow
from .pipelines import Pipelines

__all__ = ["Workflows"]

if TYPE_CHECKING:
    from .source import WorkflowRunner, WorkflowSource  # need the extra `workflows`


class Workflows(Slice):
    """The workflows of a crib, and the host of their source, which is mounted with the first of them."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._policy = parts.policy
        self._store = parts.storage.store
        self._tools = parts.tools
        self._calls = parts.calls
        self._sessions = parts.session_table
        self._views = parts.views
        self._jobs = parts.jobs
        self._source: WorkflowSource | None = None

    @property
    def catalog(self) -> Catalog:
        """What exists now."""
        return self._tools.catalog

    def door_of(self, context: Context) -> Callable[..., Awaitable[ToolResult]]:
        """Return how a call of the same session is made."""
        return self._calls.door_of(context)

    def recall(self, context: Context, tool: str, trust: Trust) -> None:
        """Take note that what `tool` gave an earlier session goes on in this one: private, or written by strangers."""
        state, found = self._sessions.find(context.principal, context.session_key), self.catalog.find(tool)
        if state is not None and found is not None:
            self._policy.taint.note(found, trust, state, "", is_strict=self._policy.is_strict())

    @property
    def jobs(self) -> Jobs:
        """The jobs of the crib."""
        return self._jobs

    @property
    def tools(self) -> Pipelines:
        """The built-in tool `pipeline`."""
        return Pipelines(self)

    def find(self, context: Context, name: str) -> Tool | None:
        """Return the tool that the session of a call means by `name`: the profile's name for it, or its own."""
        return self.catalog.find(name) or self._views.scene_of(context).find(name)

    def runner(self) -> WorkflowRunner:
        """Return what runs workflows."""
        from .source import WorkflowRunner  # needs the extra: who runs no workflow needs none

        return WorkflowRunner(self, self._store.workflows)

    async def load(self, id: str, principal: str) -> Mapping[str, Any] | None:
        """Return the state of a run that broke off."""
        return await self._store.workflows.load(id, principal)

    async def add(self, name: str, definition: Mapping[str, Any]) -> None:
        """Offer several calls as the tool `name`; `definition` has the keys of `workflows.NAME` in a file.

        It replaces a workflow of that name. Raises `ConfigError` naming the key, and then changes nothing.
        """
        await self.add_all([GivenWorkflow(name=name, values=definition)], strict=True)

    async def add_all(self, given: Iterable[GivenWorkflow], *, strict: bool = False) -> None:
        """Take workflows; one of a name that is there replaces it, one that cannot be read is a problem.

        `strict` raises its `ConfigError` instead. Raises `UsageError` where what they need is not installed.
        """
        workflows = tuple(given)
        if not workflows:
            return
        if self._source is None:
            self._source = await self._mounted()
        for workflow in workflows:
            self._source.put(workflow.name, workflow.values, file=workflow.file, strict=strict)

    async def _mounted(self) -> WorkflowSource:
        try:
            from .source import WorkflowSource  # needs the extra: who adds no workflow needs none
        except ImportError as error:
            raise UsageError(f"workflows need more: install the extra `workflows` ({error})") from error
        source = WorkflowSource(self, self._store.workflows)
        await self._tools.mount_source(source, prefix=False, trusted=True)

        def follow(change: CatalogChanged) -> None:
            if source.uses((*change.added, *change.changed, *change.removed)):
                source.refresh()

        self._tools.on_change(follow)
        return source
