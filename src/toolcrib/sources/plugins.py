"""Plugins as sources: tools that come and go together, loaded and initialized in the background."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final, Literal, Protocol

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from ..catalog.catalog import Catalog
from ..core.context import Context
from ..core.entry_points import installed
from ..core.events import Problem, SourceState
from ..core.exceptions import reason_of
from ..core.files import make_private_folder
from ..core.result import ToolResult
from ..core.tool import Tool
from ..errors import ToolFailure, UsageError
from ..system.tasks import Background
from .source import Listing, Publish

GROUP: Final = "toolcrib.plugins"

_SECONDS: Final = 30.0
"""Time limit of `initialize` and of `shutdown`."""
_ENRICH_SECONDS: Final = 10.0

Enrichment = Callable[[Tool, Mapping[str, Any], ToolResult], Awaitable[ToolResult]]
"""Returns the result of a call, with additions."""
Subscribe = Callable[[Enrichment, int], Callable[[], None]]
"""Adds an enrichment with its priority, and returns what takes it away."""


class Services(Struct, frozen=True, kw_only=True):
    """Services for a plugin, from `initialize` to `shutdown`."""

    data: Path
    """A folder of its own, kept over restarts (0700); it is there already."""
    catalog: Callable[[], Catalog]
    """The current catalog."""
    log: logging.Logger
    changed: Callable[[], None]
    """Notifies the crib that `tools` changed."""


class Plugin:
    """Base class of plugins; every member but `name` is optional."""

    name: ClassVar[str] = ""
    """Its name in configurations, before its tools (`weather__forecast`): that of the entry point or the file."""
    instructions: str = ""
    """Advice for the model that is shown where its tools are."""
    enrich_priority: ClassVar[int] = 0
    """Place of its `enrich` among those of other plugins: the highest comes first."""

    def requirements(self, config: Mapping[str, Any]) -> Iterable[str]:
        """Return the missing requirements, in words for the person who installed it; with any, it is not exposed."""
        return ()

    def initialize(self, config: Mapping[str, Any], services: Services) -> Awaitable[None] | None:
        """Initialize; may be `async`. An exception is reported, and the plugin is not exposed."""
        return None

    def tools(self) -> Iterable[object]:
        """Return functions, or objects with `@tool` methods. By default: its own such methods."""
        return (self,)

    def enrich(
        self, tool: Tool, arguments: Mapping[str, Any], result: ToolResult
    ) -> Awaitable[ToolResult] | ToolResult:
        """Return the result of a call that succeeded, of any tool, with additions; may be `async`, for 10 s at most.

        The result is redacted, limited and recorded afterwards. After an exception it stays as it was.
        """
        return result

    def shutdown(self) -> Awaitable[None] | None:
        """End; may be `async`. Comes once for every `initialize`, also after one that failed."""
        return None


class FoundPlugin(Struct, frozen=True, kw_only=True):
    """One plugin, not loaded yet."""

    name: str
    origin: str
    """Distribution and version, or the file."""
    load: Callable[[], Plugin]
    """Runs its code and returns the plugin; raises the code's exceptions. Blocks: call it in a thread."""

    def is_below(self, folders: Iterable[Path]) -> bool:
        """Return whether it is a file of one of these folders."""
        return any(Path(self.origin).parent == folder for folder in folders)


def given(plugin: Plugin) -> FoundPlugin:
    """Return the entry of an existing plugin object. Raises `UsageError` when it has no name."""
    if not plugin.name:
        raise UsageError(f"{type(plugin).__name__} has no name: set `name` in the class")
    kind = type(plugin)
    return FoundPlugin(name=plugin.name, origin=f"{kind.__module__}.{kind.__qualname__}", load=lambda: plugin)


def discover(folders: Iterable[Path]) -> tuple[list[FoundPlugin], list[Problem]]:
    """Return every plugin by entry point, then those of `folders`; of one name the first counts, that is reported."""
    found: dict[str, FoundPlugin] = {}
    problems: list[Problem] = []
    for plugin in (*_installed(), *_in_folders(folders, problems)):
        if (earlier := found.setdefault(plugin.name, plugin)) is not plugin:
            message = f"{plugin.origin}: not used, {earlier.origin} also has a plugin of this name and counts"
            problems.append(Problem(source="plugins", code="duplicate", message=f"{plugin.name}: {message}"))
    return list(found.values()), problems


def _installed() -> Iterator[FoundPlugin]:
    for point in installed(GROUP):
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "unknown package"
        yield FoundPlugin(name=point.name, origin=f"{package} ({point.value})", load=_loader(point))


def _loader(point: EntryPoint) -> Callable[[], Plugin]:
    return lambda: _plugin_of(point.load(), point.value)


def _in_folders(folders: Iterable[Path], problems: list[Problem]) -> Iterator[FoundPlugin]:
    for folder in folders:
        try:
            entries = sorted(folder.iterdir()) if folder.exists() else []
        except OSError as error:
            problems.append(Problem(source="plugins", code="unavailable", message=f"{folder}: {error}"))
            continue
        for entry in entries:
            file = entry / "__init__.py" if entry.is_dir() else entry
            if file.suffix == ".py" and file.is_file() and not entry.name.startswith(("_", ".")):
                yield FoundPlugin(name=entry.stem, origin=str(entry), load=_file_loader(entry.stem, file))


def _file_loader(name: str, file: Path) -> Callable[[], Plugin]:
    return lambda: _plugin_of(_module(name, file), str(file))


def _module(name: str, file: Path) -> ModuleType:
    """Run the file as a module of its own name, anew each time: a plugin that is exposed again may have changed."""
    known_as = f"toolcrib_plugin_{name}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:8]}"
    places = [str(file.parent)] if file.name == "__init__.py" else None
    spec = spec_from_file_location(known_as, file, submodule_search_locations=places)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} cannot be loaded as Python")
    earlier = [*sys.modules]  # in one step: other plugins are imported in other threads
    for loaded in [one for one in earlier if one == known_as or one.startswith(f"{known_as}.")]:
        del sys.modules[loaded]
    module = sys.modules[known_as] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known_as]
        raise
    return module


def _plugin_of(thing: Any, where: str) -> Plugin:
    """Return the plugin that `thing` is, makes, or holds. Raises `UsageError`."""
    if isinstance(thing, Plugin):
        return thing
    if inspect.isclass(thing) and issubclass(thing, Plugin):
        return thing()
    if isinstance(thing, ModuleType):
        held = [value for value in vars(thing).values() if isinstance(value, Plugin)]
        classes = [
            value
            for value in vars(thing).values()
            if inspect.isclass(value) and issubclass(value, Plugin) and value.__module__ == thing.__name__
        ]
        if len(held or classes) == 1:
            return _plugin_of((held or classes)[0], where)
        raise UsageError(f"{where} holds {len(held or classes)} plugins, and one was expected: derive from Plugin once")
    raise UsageError(f"{where} is a {type(thing).__name__}, and no plugin: derive it from toolcrib.plugin.Plugin")


class Functions(Protocol):
    """Converter and runner of functions as tools."""

    def offer(self, thing: object, origin: str) -> Mapping[str, str]:
        """Add a plugin's tools; unusable ones become problems."""
        ...

    async def open(self, publish: Publish) -> None:
        """Publish the listing, now and at every change."""
        ...

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run a function."""
        ...

    async def check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the failure of a call that would fail after any answer of a person."""
        ...

    async def close(self) -> None:
        """Let everything go."""
        ...


class PluginSource:
    """A plugin from its exposure to its end. To expose it again with another configuration is another source."""

    def __init__(
        self,
        found: FoundPlugin,
        config: Mapping[str, Any],
        *,
        functions: Callable[[str], Functions],
        catalog: Callable[[], Catalog],
        subscribe: Subscribe,
        data: Path,
    ) -> None:
        """`functions` makes what runs functions, under the plugin's name; `data` is the folder of all plugins.

        `subscribe` is called for a plugin with an `enrich` of its own.
        """
        self.found = found
        self._config = config
        self._make = functions
        self._catalog = catalog
        self._subscribe = subscribe
        self._unsubscribe: Callable[[], None] | None = None
        self._data = data
        self._functions = functions(found.name)
        self._plugin: Plugin | None = None
        self._publish: Publish | None = None
        self._tasks = Background()
        self._settled = anyio.Event()
        self._state: Literal["connecting", "ready", "failed", "closed"] = "closed"
        self._error = ""
        self._count = 0

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.found.name

    @property
    def state(self) -> SourceState:
        """Present state; `detail` has the reason if the plugin is not exposed."""
        outage = f"{self.name} is not available: {self._error}" if self._state == "failed" else ""
        return SourceState(
            source=self.name,
            kind="plugin",
            state=self._state,
            tools=self._count,
            detail=self._error,
            outage=outage,
            hint="`toolcrib plugins` shows it." if outage else "",
        )

    async def open(self, publish: Publish) -> None:
        """Begin; returns at once."""
        self._publish = publish
        self._state = "connecting"
        await self._tasks.start()
        self._tasks.spawn(self._expose)

    async def ready(self) -> None:
        """Return when it is exposed, or is known not to be."""
        await self._settled.wait()

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run one of its tools."""
        if self._state != "ready":
            raise ToolFailure("unavailable", f"the plugin {self.name} is not exposed")
        return await self._functions.call(tool, arguments, context)

    async def check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the failure of a call that would fail after any answer of a person."""
        if self._state == "ready":
            await self._functions.check(tool, arguments, context)

    async def close(self) -> None:
        """Shut the plugin down, within its time."""
        self._publish = None
        await self._tasks.stop()
        await self._functions.close()
        await self._end()
        self._state = "closed"
        self._settled.set()

    async def _expose(self) -> None:
        try:
            await self._begin()
        except (Exception, SystemExit) as error:
            logging.getLogger(__name__).warning("plugin %s is not exposed", self.name, exc_info=error)
            await self._end()
            self._fail(reason_of(error))
        finally:
            self._settled.set()

    async def _begin(self) -> None:
        plugin = await anyio.to_thread.run_sync(self.found.load)
        if plugin.name and plugin.name != self.name:
            raise ValueError(f"it calls itself {plugin.name!r}, and was found as {self.name!r}")
        if missing := list(plugin.requirements(self._config)):
            self._fail(f"it needs {'; '.join(missing)}")
            return
        folder = self._data / self.name
        make_private_folder(folder)
        services = Services(
            data=folder,
            catalog=self._catalog,
            log=logging.getLogger(f"toolcrib.plugins.{self.name}"),
            changed=self._changed,
        )
        self._plugin = plugin
        with anyio.fail_after(_SECONDS):
            await _maybe(plugin.initialize(self._config, services))
        self._state = "ready"
        if type(plugin).enrich is not Plugin.enrich:
            self._unsubscribe = self._subscribe(self._enriched, plugin.enrich_priority)
        await self._offer(plugin)

    async def _enriched(self, tool: Tool, arguments: Mapping[str, Any], result: ToolResult) -> ToolResult:
        if self._plugin is None:
            return result
        with anyio.fail_after(_ENRICH_SECONDS):
            enriched = self._plugin.enrich(tool, arguments, result)
            return await enriched if inspect.isawaitable(enriched) else enriched

    async def _offer(self, plugin: Plugin) -> None:
        for thing in plugin.tools():
            self._functions.offer(thing, self.found.origin)
        await self._functions.open(self._tell)

    def _changed(self) -> None:
        self._settled = anyio.Event()
        self._tasks.spawn(self._offer_again)

    async def _offer_again(self) -> None:
        """Publish the plugin's present tools. Running calls end with the old ones."""
        try:
            if self._plugin is not None and self._state == "ready":
                await self._functions.close()
                self._functions = self._make(self.name)
                await self._offer(self._plugin)
        finally:
            self._settled.set()

    def _tell(self, listing: Listing) -> None:
        self._count = len(listing.tools)
        if self._publish is not None and self._plugin is not None:
            self._publish(replace(listing, instructions=self._plugin.instructions))

    def _fail(self, why: str) -> None:
        self._state, self._error = "failed", why
        if self._publish is not None:
            message = f"{self.found.origin}: not exposed: {why}"
            self._publish(Listing(tools=(), problems=(Problem(source=self.name, code="unavailable", message=message),)))

    async def _end(self) -> None:
        plugin, self._plugin = self._plugin, None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if plugin is None:
            return
        with anyio.move_on_after(_SECONDS, shield=True):
            try:
                await _maybe(plugin.shutdown())
            except Exception:
                logging.getLogger(__name__).exception("plugin %s did not shut down well", self.name)


async def _maybe(value: Awaitable[None] | None) -> None:
    if inspect.isawaitable(value):
        await value
