"""The tools of a crib: their sources, what is off for all sessions, and the review of their definitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from ..catalog.catalog import Catalog
from ..catalog.overlay import Overlay
from ..catalog.pins import Lock
from ..catalog.resources import RESOURCES
from ..config import Settings
from ..core.events import CatalogChanged, Problem, SourceState
from ..core.own_commands import notice_with_files
from ..core.similar import nearest
from ..core.tool import Tool
from ..disclosure import meta_tools
from ..errors import UsageError
from ..mcp.client.spec import ServerSpec
from ..sources.python import PythonSource
from ..sources.source import Delegating, Source
from .calls import CallRunner
from .catalog_ingest import CatalogIngest
from .enforced_lock import WithFiles
from .inventory import Inventory
from .named_servers import servers_of
from .storage import Folders, ServerLogins
from .views import Views

_logger = logging.getLogger(__name__)

FUNCTIONS: Final = "python"
"""The source of everything that `add` is given."""
_QUIET: Final = (FUNCTIONS, "jobs", "plan", "schedules", "claude@desk", RESOURCES)
"""Built-in sources that are reported only if they have tools."""

_OWN: Final = ("python", "verbs", "jobs", "plan", "schedules", "workflows", "plugin", "rest", "resources", "agent")
"""Kinds of sources that are code of this process, or reviewed one by one as they are registered."""


class Switches:
    """One table of what is off. Names are catalog names; any spelling that can only mean one tool is taken."""

    def __init__(
        self,
        table: MutableMapping[str, None],
        *,
        find: Callable[[str], Tool | None],
        tools: Callable[[], Iterable[Tool]],
        changed: Callable[[tuple[str, ...]], None] = lambda names: None,
    ) -> None:
        """`find` and `tools` say what there is, `changed` is called with names whose state has changed."""
        self._table = table
        self._find = find
        self._tools = tools
        self._changed = changed

    def off(self, names: Iterable[str]) -> None:
        """Switch off; raises `UsageError` with the nearest names for one that no tool has, and changes nothing then."""
        self._add(self._named(names))

    def on(self, names: Iterable[str]) -> None:
        """Switch on again what this table switched off; raises `UsageError` as `off` does."""
        self._remove(self._named(names))

    def all_off(self) -> None:
        """Switch off every tool that there is now."""
        self._add(tool.name for tool in self._tools())

    def all_on(self) -> None:
        """Switch everything on again."""
        self._remove(tuple(self._table))

    def _add(self, names: Iterable[str]) -> None:
        added = tuple(name for name in dict.fromkeys(names) if name not in self._table)
        self._table.update(dict.fromkeys(added))
        if added:
            self._changed(added)

    def _remove(self, names: Iterable[str]) -> None:
        removed = tuple(name for name in dict.fromkeys(names) if name in self._table)
        for name in removed:
            del self._table[name]
        if removed:
            self._changed(removed)

    def _named(self, names: Iterable[str]) -> list[str]:
        return [self._name(name) for name in names]

    def _name(self, name: str) -> str:
        tool = self._find(name)
        if tool is not None:
            return tool.name
        if name in self._table:
            return name
        close = nearest(name, (tool.name for tool in self._tools()))
        meant = f"; did you mean {', '.join(close)}?" if close else ""
        raise UsageError(f"there is no tool {name!r} to switch{meant}")


class ToolRegistry:
    """The sources of a crib and the tools that they list.

    It owns the mounted sources: `mount_source` opens one, `unmount` or `close` closes it, and a source whose opening
    fails leaves nothing behind. The registry (`catalog.registry`) makes names and catalogs, the ingest reviews.
    """

    def __init__(
        self,
        settings: Settings,
        inventory: Inventory,
        ingest: CatalogIngest,
        logins: ServerLogins,
        folders: Folders,
        calls: CallRunner,
        views: Views,
    ) -> None:
        """Mount nothing yet. `ingest` takes the listings of the sources."""
        self._settings = settings
        self._registry = inventory.registry
        self._overlays = inventory.overlays
        self._sources = inventory.sources
        self._mounted = inventory.mounted
        self._mounted.file_options = settings.file_options
        for problem in settings.problems:
            self._mounted.leave_out(problem)
        self._disabled = inventory.disabled
        self._ingest = ingest
        self._locking = ingest.locking
        self._logins = logins
        self._folders = folders
        self._calls = calls
        self._views = views
        self.functions = PythonSource(FUNCTIONS, settings.tools.get)
        self.functions.amend = partial(ingest.amend, FUNCTIONS)
        """The source of everything that `add` gets."""
        self._instance_functions: dict[str, PythonSource] = {}
        self._switches = Switches(inventory.disabled, find=self.find, tools=self._all, changed=ingest.announce)

    @property
    def catalog(self) -> Catalog:
        """The current catalog, without the tools of instances."""
        return self._registry.catalog

    def find(self, name: str) -> Tool | None:
        """Return the tool that a name, in any spelling that can mean only one tool, belongs to."""
        return self._registry.catalog.find(name)

    def get(self, name: str) -> Tool | None:
        """Return the tool of that catalog name."""
        return self._registry.catalog.get(name)

    def source_of(self, tool: Tool) -> Source | None:
        """Return the source that runs a tool; None once it is unmounted."""
        return self._sources.get(tool.source)

    @property
    def status(self) -> Mapping[str, bool]:
        """Whether each tool is switched on, by name."""
        return {name: name not in self._disabled for name in self.catalog.tools}

    def disable(self, *names: str) -> None:
        """Switch tools off for all sessions: they are not listed, and calls of them fail. Raises `UsageError`."""
        self._switches.off(names)

    def enable(self, *names: str) -> None:
        """Switch tools on again that were switched off for all sessions."""
        self._switches.on(names)

    def disable_all(self) -> None:
        """Switch off every tool that exists now; later ones are on."""
        self._switches.all_off()

    def enable_all(self) -> None:
        """Switch on every tool that was switched off for all sessions."""
        self._switches.all_on()

    async def accept(self, source: str, tools: Iterable[str] | None = None) -> list[str]:
        """Mark the current definitions of `source` as reviewed; return the names that were withheld before.

        `tools` names those that are taken, as the source calls them; None is all, flagged ones too.
        Raises `UsageError` for a source that has listed nothing.
        """
        return await self._ingest.accept(source, tools)

    async def changes(self, source: str) -> dict[str, str]:
        """Return by local name how the definitions that `source` lists differ from the reviewed ones: unified diffs.

        Tools that are as they were reviewed, or never were reviewed, are left out. The text is safe to display.
        """
        return await self._ingest.changes(source)

    def listed(self, source: str) -> tuple[Tool, ...]:
        """Return the tools that `source` lists, withheld ones included; for display, never for calling."""
        return self._ingest.listed(source)

    def on_change(self, callback: Callable[[CatalogChanged], None]) -> Callable[[], None]:
        """Call `callback` with every change of the catalog; return what ends the subscription."""
        return self._ingest.on_change(callback)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every entry, definition and profile that could not be used, with its reason; and names that look alike."""
        return self._problems(self._registry.problems)

    @property
    def failures(self) -> tuple[Problem, ...]:
        """The problems without names that look alike: those take 2 us a tool and more, after each change."""
        return self._problems(self._registry.failures)

    async def find_look_alikes(self) -> tuple[Problem, ...]:
        """Return the problems of names that look alike, found while the event loop goes on."""
        return await self._registry.find_look_alikes()

    def _problems(self, of_tools: tuple[Problem, ...]) -> tuple[Problem, ...]:
        of_instances = (problem for overlay in self._overlays.values() for problem in overlay.problems)
        found = (
            *self._settings.problems,
            *of_tools,
            *self._ingest.features.problems,
            *of_instances,
            *self._views.problems,
        )
        return tuple(notice_with_files(problem, self._mounted.file_options) for problem in found)

    def report(self, problem: Problem) -> None:
        """Keep a problem of a source that could not be made."""
        self._mounted.leave_out(problem)
        self._ingest.report(problem)

    def identify(self, source: str, identity: str) -> None:
        """Register what `source` is besides its name, so that its reviews do not apply to another server."""
        self._ingest.identify(source, identity)

    def mount_layer(self, instance: str, source: Source, layer: Overlay) -> None:
        """Give the sessions of `instance` the catalog `layer`, whose calls `source` carries out.

        Raises `UsageError` when the name of the source is taken.
        """
        if source.name in self._sources:
            raise UsageError(f"a source named {source.name} is mounted already; rename it")
        self._sources[source.name] = source
        self._overlays[instance] = layer

    def add(self, *things: Any) -> None:
        """Add functions, modules or objects with `@tool` methods.

        Raises `UsageError` when a thing holds no tool, or when a name is taken; nothing is added then.
        """
        self.functions.add(*things)

    async def add_for(self, instance: str, *things: Any) -> None:
        """Add functions for one instance: sessions of it have them beside all others, no other session sees them.

        A name that every session has is not given away; it becomes a problem. Raises `UsageError` as `add` does.
        """
        functions = self._instance_functions.get(instance)
        if functions is None:
            functions = PythonSource(f"{FUNCTIONS}@{instance}", self._settings.tools.get)
            overlay = self._overlays.setdefault(instance, Overlay(self._registry))
            self._instance_functions[instance] = self._sources[functions.name] = functions
            await functions.open(lambda listing: overlay.put(functions.name, listing.tools))
        functions.add(*things)

    async def mount(
        self,
        servers: Any,
        *,
        name: str | None = None,
        accept: bool = True,
        through: Callable[[Source], Source] = lambda one: one,
    ) -> None:
        """Mount MCP servers: `{"mcpServers": {...}}`, the URL of one, or the object of one in this process.

        Returns when each of them has listed, is in the cache or has failed, at the latest after `ready_timeout`.
        `accept` takes definitions that were never seen before as reviewed; changed ones are withheld either way.
        `through` gets each server's source and returns what is mounted in its place (`sources.combinators`). `name` is
        for one server. Raises `UsageError` when the crib is not open, and for anything else.
        """
        self._calls.check_loop()
        specs, problems = servers_of(servers, name)
        for problem in problems:
            self.report(problem)
        mounted = await self.mount_servers(specs, accept=accept, through=through)
        await self.wait_ready(self._settings.sources.ready_timeout, mounted)

    async def mount_source(
        self, source: Source, *, prefix: bool = True, accept: bool = True, trusted: bool = False
    ) -> None:
        """Mount a source of any kind. `trusted` says that its definitions are our own code's and need no review.

        `accept` takes definitions that were never seen before as reviewed, whenever they come; one that changed is
        withheld all the same. Raises `UsageError` when its name is taken, and when the crib is not open.
        """
        self._calls.check_loop()
        if source.name in self._sources:
            raise UsageError(f"a source named {source.name} is mounted already; give this one another name")
        if (problem := await self._locking.refuses(source, source.name)) is not None:
            self._ingest.report(problem)
            return
        # Under a lock a source that runs files, such as a catalog, is reviewed by it, although our user named it.
        own = trusted and not (self._locking.is_on and isinstance(source, WithFiles))
        self._sources[source.name] = source
        self._registry.declare(source.name, prefix=prefix)
        self._ingest.features.declare(source.name, prefix=prefix)
        try:
            await source.open(lambda listing: self._ingest.publish(source.name, listing, accept=accept, trusted=own))
        except BaseException:
            del self._sources[source.name]
            self._ingest.forget(source.name)
            raise
        self._mounted.add(source, prefix=prefix)
        # A long listing is taken in slices beside everything else; one that cannot be taken fails this mount.
        if (error := await self._ingest.waiting.wait(source.name)) is not None:
            await self.unmount(source.name)
            raise error

    async def build_lock(self, file: Path, names: Iterable[str] | None = None, *, programs: bool = True) -> Lock:
        """Return the lists of sources, and the files behind them, as a lock for `file`; our own code needs none.

        `programs` includes the hashes of the programs that run servers. Raises `UsageError` for a name that is none.
        """
        there = {name: source for name, source in self._sources.items() if source.state.kind not in _OWN}
        wanted = tuple(there if names is None else names)
        if missing := [name for name in wanted if name not in there]:
            raise UsageError(f"there is no source {missing[0]!r} to lock; there are {', '.join(there) or 'none'}")
        making = self._locking.to_be_written(file)
        sources = {
            name: await making.locked(there[name], self._ingest.listed(name), programs=programs)
            for name in sorted(wanted)
        }
        return Lock(sources=sources)

    async def unmount(self, name: str) -> None:
        """Close the source `name` and take its tools away. Raises `UsageError` when there is none."""
        source = self._sources.pop(name, None)
        if source is None:
            raise UsageError(f"no source named {name} is mounted; there are {', '.join(self._sources)}")
        self._mounted.remove(name)
        await source.close()
        self._ingest.forget(name)

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """State of every source; our own are left out while they offer nothing."""
        states = (source.state for source in tuple(self._sources.values()) if source.name != meta_tools.SOURCE)
        files = self._mounted.file_options
        return tuple(notice_with_files(one, files) for one in states if one.tools or one.source not in _QUIET)

    def state_of(self, tool: Tool) -> SourceState:
        """Return the state of the source of `tool`; of a tool that calls one of an MCP server, that of the server."""
        source = self._sources.get(tool.source)
        if source is None:
            return SourceState(source=tool.source, kind="none", state="closed", detail="it is not mounted")
        target = source.target_of(tool) if isinstance(source, Delegating) else None
        if target is None or source.state.state not in ("ready", "stale"):
            return notice_with_files(source.state, self._mounted.file_options)
        server = self._sources.get(target[0])
        if server is None:
            return SourceState(source=target[0], kind="none", state="failed", detail="there is no server of this name")
        state = server.state
        if self.of_server(*target) is None and state.state in ("ready", "cached"):
            detail = f"it has no tool {target[1]} that is in use"
            state = SourceState(source=server.name, kind=state.kind, state="failed", detail=detail)
        return notice_with_files(state, self._mounted.file_options)

    def of_server(self, server: str, name: str) -> Tool | None:
        """Return the tool that the MCP server calls `name`; None where the catalog has none."""
        tools = self.catalog.tools.values()
        return next((one for one in tools if (one.source, one.local_name, one.origin) == (server, name, "mcp")), None)

    async def wait_ready(self, timeout: float, names: Collection[str] | None = None, *, fresh: bool = False) -> None:
        """Return when every source, or each of `names`, has listed or failed once, at the latest after `timeout` s.

        A list from the cache counts unless `fresh`: only servers that were never seen before are waited for.
        """
        await self._mounted.wait(timeout, names, fresh=fresh)

    async def mount_servers(
        self, specs: Iterable[ServerSpec], *, accept: bool, through: Callable[[Source], Source] = lambda one: one
    ) -> list[str]:
        """Mount MCP servers and return their sources' names. Waits for none; one out of reach is a problem."""
        mounted: list[str] = []
        servers = tuple(specs)
        if not servers:
            return mounted
        from ..sources.mcp.source import McpSource  # it brings the MCP client: only for cribs with servers

        prefix = not (self._settings.sources.no_prefix and len(servers) == 1)
        cache = self._folders.cache
        for spec in servers:
            source = McpSource(
                spec,
                environment=self._settings.environment,
                cache_dir=cache,
                spool_dir=self._folders.spool,
                access=self._logins.access(spec),
                reviewed=self._settings.policy.guard or self._locking.is_on,
                starts_on_use=self._settings.sources.starts_on_use,
            )
            self._ingest.identify(spec.name, spec.identity)
            outer = through(source)
            await self.mount_source(outer, prefix=prefix, accept=accept, trusted=spec.server is not None)
            mounted.append(outer.name)
        return mounted

    def _all(self) -> Iterable[Tool]:
        return self._registry.catalog.tools.values()

    async def close(self) -> None:
        """Close every source."""
        async with anyio.create_task_group() as group:
            for source in self._sources.values():
                group.start_soon(_close, source)


async def _close(source: Source) -> None:
    """Close `source`; one that breaks must not keep the others from ending their processes."""
    try:
        await source.close()
    except Exception:
        _logger.exception("source %s could not be closed", source.name)
