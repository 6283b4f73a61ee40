"""Where the tools of a crib come from: giving it sources, and taking them away."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from ..catalog.pins import Lock
from ..catalog.registry import Overlay, Registry
from ..catalog.resources import SHELF
from ..config import Settings, servers_in
from ..config.directories import Directories
from ..core.events import SourceState
from ..disclosure import meta_tools
from ..dispatch.pipeline import Pipeline
from ..errors import UsageError
from ..mcp.client.spec import ServerSpec
from ..sources.mcp.source import McpSource
from ..sources.python import PythonSource
from ..sources.source import Source
from .intake import Intake
from .locking import Locking, WithFiles
from .logins import ServerLogins

__all__ = ["FUNCTIONS", "Mountable"]

_logger: Final = logging.getLogger(__name__)

FUNCTIONS: Final = "python"
"""The source of everything that `add` is given."""
_QUIET: Final = (FUNCTIONS, "jobs", "plan", "claude@desk", SHELF)
"""Sources of ours that are told of only when they offer something."""

_OWN: Final = ("python", "verbs", "jobs", "workflows", "plugin", "rest", "shelf", "agent")
"""Kinds of sources that are code of this process, or reviewed one by one as they are registered."""


class Mountable:
    """What has sources: a crib."""

    settings: Settings
    _home: Directories | None
    _folders: Path
    _registry: Registry
    _overlays: dict[str, Overlay]
    _sources: dict[str, Source]
    _functions: PythonSource
    _instance_functions: dict[str, PythonSource]
    _intake: Intake
    _locking: Locking
    _logins: ServerLogins
    _pipeline: Pipeline | None

    def check_open(self) -> Pipeline:
        """Return what runs calls. Raises `UsageError` when the crib is not open."""
        if self._pipeline is None:
            raise UsageError("this Toolcrib is not open: use it inside `async with Toolcrib() as crib:`")
        return self._pipeline

    def add(self, *things: Any) -> None:
        """Add functions, modules or objects with `@tool` methods.

        Raises `UsageError` when a thing holds no tool, or when a name is taken; nothing is added then.
        """
        self._functions.add(*things)

    async def add_for(self, instance: str, *things: Any) -> None:
        """Add functions for one instance: sessions of it have them beside all others, nobody else knows of them.

        A name that every session has is not given away; it becomes a problem. Raises `UsageError` as `add` does.
        """
        functions = self._instance_functions.get(instance)
        if functions is None:
            functions = PythonSource(f"{FUNCTIONS}@{instance}")
            overlay = self._overlays.setdefault(instance, Overlay(self._registry))
            self._instance_functions[instance] = self._sources[functions.name] = functions
            await functions.open(lambda listing: overlay.put(functions.name, listing.tools))
        functions.add(*things)

    async def mount(self, config: Mapping[str, Any], *, accept: bool = True) -> None:
        """Mount MCP servers: `{"mcpServers": {...}}`. Returns at once; a dead server is a problem, not an error.

        `accept` takes definitions that were never seen before as reviewed; changed ones are withheld either way.
        Raises `UsageError` when the crib is not open.
        """
        self.check_open()
        specs, problems = servers_in(config)
        for problem in problems:
            self._intake.report(problem)
        await self._mount_servers(specs, accept=accept)

    async def mount_source(
        self, source: Source, *, prefix: bool = True, accept: bool = True, trusted: bool = False
    ) -> None:
        """Mount a source of any kind. `trusted` says that its definitions are our own code's and need no review.

        `accept` takes definitions that were never seen before as reviewed, whenever they come; one that changed is
        withheld all the same. Raises `UsageError` when its name is taken, and when the crib is not open.
        """
        self.check_open()
        if source.name in self._sources:
            raise UsageError(f"a source named {source.name} is mounted already; give this one another name")
        if (problem := await self._locking.refuses(source, source.name)) is not None:
            self._intake.report(problem)
            return
        own = trusted and not (self._locking.is_on and isinstance(source, WithFiles))
        self._sources[source.name] = source
        self._registry.declare(source.name, prefix=prefix)
        self._intake.shelf.declare(source.name, prefix=prefix)
        try:
            await source.open(lambda listing: self._intake.publish(source.name, listing, accept=accept, trusted=own))
        except BaseException:
            del self._sources[source.name]
            self._intake.forget(source.name)
            raise

    async def locked(self, file: Path, names: Iterable[str] | None = None, *, programs: bool = True) -> Lock:
        """Return what sources list now, and what runs behind them, as a lock for `file`; our own code needs none.

        `programs` includes the hashes of the programs that run servers. Raises `UsageError` for a name that is none.
        """
        there = {name: source for name, source in self._sources.items() if source.state.kind not in _OWN}
        wanted = tuple(there if names is None else names)
        if missing := [name for name in wanted if name not in there]:
            raise UsageError(f"there is no source {missing[0]!r} to lock; there are {', '.join(there) or 'none'}")
        making = self._locking.to_be_written(file)
        sources = {
            name: await making.locked(there[name], self._intake.listed(name), programs=programs)
            for name in sorted(wanted)
        }
        return Lock(sources=sources)

    async def unmount(self, name: str) -> None:
        """Close the source `name` and take its tools away. Raises `UsageError` when there is none."""
        source = self._sources.pop(name, None)
        if source is None:
            raise UsageError(f"no source named {name} is mounted; there are {', '.join(self._sources)}")
        await source.close()
        self._intake.forget(name)

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """How every source is doing; our own are left out while they offer nothing."""
        states = (source.state for source in self._sources.values() if source.name != meta_tools.SOURCE)
        return tuple(state for state in states if state.tools or state.source not in _QUIET)

    async def settled(self, timeout: float) -> None:
        """Return when every source has listed or failed once, at the latest after `timeout` seconds.

        A list from the cache counts: only servers that were never seen before are waited for.
        """
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as group:
                for source in self._sources.values():
                    if source.state.state == "connecting":
                        group.start_soon(source.ready)

    async def _mount_servers(self, specs: Iterable[ServerSpec], *, accept: bool) -> None:
        servers = tuple(specs)
        prefix = not (self.settings.no_prefix and len(servers) == 1)
        cache = self._home.cache if self._home else None
        for spec in servers:
            source = McpSource(
                spec,
                environment=self.settings.environment,
                cache_dir=cache,
                spill_dir=self._folders / "spill",
                access=self._logins.access(spec),
                reviewed=self.settings.guard or self._locking.is_on,
            )
            self._intake.identify(spec.name, spec.identity)
            await self.mount_source(source, prefix=prefix, accept=accept)

    async def _close_sources(self) -> None:
        async with anyio.create_task_group() as group:
            for source in self._sources.values():
                group.start_soon(_close, source)


async def _close(source: Source) -> None:
    """Close `source`; one that breaks must not keep the others from ending their processes."""
    try:
        await source.close()
    except Exception:
        _logger.exception("source %s could not be closed", source.name)
