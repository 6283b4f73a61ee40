"""Workflows of a crib: several calls as one tool, from the settings or from the library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from ..catalog.catalog import Catalog
from ..config import Settings
from ..config.workflows import GivenWorkflow
from ..core.context import Context
from ..core.events import CatalogChanged
from ..core.result import ToolResult, Trust
from ..core.session import SessionState
from ..errors import UsageError
from ..sources.source import Source
from ..store.store import Store

__all__ = ["Hall", "WorkflowTaker", "Workflows"]


class Hall(Protocol):
    """What is needed of a crib."""

    @property
    def catalog(self) -> Catalog:
        """What exists now."""
        ...

    @property
    def store(self) -> Store:
        """What is remembered."""
        ...

    settings: Settings

    def living(self, principal: str, key: str) -> SessionState | None:
        """Return a session that is there."""
        ...

    def door_of(self, context: Context) -> Callable[..., Awaitable[ToolResult]]:
        """Return how a call of the same session is made."""
        ...

    async def mount_source(self, source: Source, *, prefix: bool, trusted: bool) -> None:
        """Mount a source."""
        ...

    def on_change(self, callback: Callable[[CatalogChanged], None]) -> Callable[[], None]:
        """Call `callback` with every change of the catalog."""
        ...


class Workflows:
    """Mounts the source when there is a workflow: whoever has none loads nothing of it. Its host."""

    def __init__(self, hall: Hall) -> None:
        self._hall = hall
        self._source: Any = None

    @property
    def catalog(self) -> Catalog:
        """What exists now."""
        return self._hall.catalog

    def door_of(self, context: Context) -> Callable[..., Awaitable[ToolResult]]:
        """Return how a call of the same session is made."""
        return self._hall.door_of(context)

    def recall(self, context: Context, tool: str, trust: Trust) -> None:
        """Take note that what `tool` gave an earlier session goes on in this one: private, or written by strangers."""
        state, found = self._hall.living(context.principal, context.session_key), self.catalog.find(tool)
        if state is not None and found is not None:
            self._hall.settings.untrusted.note(found, trust, state, "")

    async def add(self, given: Iterable[GivenWorkflow], *, strict: bool = False) -> None:
        """Take workflows; one of a name that is there replaces it, one that cannot be read is a problem.

        `strict` raises its `ConfigError` instead. Raises `UsageError` where what they need is not installed.
        """
        workflows = tuple(given)
        if workflows and self._source is None:
            self._source = await self._mounted()
        for workflow in workflows:
            self._source.put(workflow.name, workflow.values, file=workflow.file, strict=strict)

    async def _mounted(self) -> Any:
        try:
            module = import_module("..sources.workflows.source", __package__)
        except ImportError as error:
            raise UsageError(f"workflows need more: pip install 'toolcrib[workflows]' ({error})") from error
        source = module.WorkflowSource(self, self._hall.store.workflows)
        await self._hall.mount_source(cast("Source", source), prefix=False, trusted=True)

        def follow(change: CatalogChanged) -> None:
            if source.uses((*change.added, *change.changed, *change.removed)):
                source.refresh()

        self._hall.on_change(follow)
        return source


class WorkflowTaker:
    """What takes workflows: a crib."""

    _workflows: Workflows

    async def add_workflow(self, name: str, definition: Mapping[str, Any]) -> None:
        """Offer several calls as the tool `name`; `definition` is what stands below `workflows.NAME` in a file.

        One of that name is replaced. Raises `ConfigError` naming the key, and then nothing is changed.
        """
        await self._workflows.add([GivenWorkflow(name=name, values=definition)], strict=True)
