"""Workflows: several tool calls as one tool, outputs feeding arguments. `crib.slice(Workflows)` adds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.events import CatalogChanged
from ..core.extras import install_extra
from ..crib.assembly import Parts, Slice
from ..errors import UsageError
from ..sources.settings import GivenWorkflow
from .host import WorkflowHost
from .pipelines import Pipelines
from .programs import Programs

__all__ = ["Workflows"]

if TYPE_CHECKING:
    from .source import WorkflowSource  # needs the extra `workflows`


class Workflows(Slice):
    """The workflows of a crib. Their source is mounted with the first of them."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.host = WorkflowHost(parts)
        self._source: WorkflowSource | None = None

    @property
    def tools(self) -> tuple[Pipelines, Programs]:
        """The built-in tools `pipeline` and `run_code`."""
        return Pipelines(self.host), Programs(self.host)

    def defects(self) -> dict[str, list[str]]:
        """Return the defects of workflows that cannot run, by name: unknown tools, arguments that cannot fit."""
        return self._source.defects() if self._source is not None else {}

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
            try:
                from .source import WorkflowSource  # needs the extra: who adds no workflow needs none
            except ImportError as error:
                raise UsageError(f"workflows are not installed ({error}); {install_extra('workflows')}") from error
            source = WorkflowSource(self.host)
            await self.parts.tools.mount_source(source, prefix=False, trusted=True)

            def follow(change: CatalogChanged) -> None:
                if source.uses((*change.added, *change.changed, *change.removed)):
                    source.refresh()

            self.parts.tools.on_change(follow)
            self._source = source
        for workflow in workflows:
            self._source.put(workflow.name, workflow.values, file=workflow.file, strict=strict)
