"""One exposed plugin as a source: loaded and initialized in the background, with failures reported."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import anyio
import anyio.to_thread

from ...catalog.catalog import Catalog
from ...core.context import Context
from ...core.events import Problem, SourceState
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...system.tasks import Background
from ..source import Listing, Publish
from .plugin import FoundPlugin, Plugin, Services

__all__ = ["Functions", "PluginSource"]

_SECONDS: Final = 30.0
"""Time limit of `initialize` and of `shutdown`."""


class Functions(Protocol):
    """Converter and runner of functions as tools."""

    def offer(self, thing: object, origin: str) -> tuple[str, ...]:
        """Add a plugin's tools; unusable ones become problems."""
        ...

    async def open(self, publish: Publish) -> None:
        """Publish the listing, now and at every change."""
        ...

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run a function."""
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
        data: Path,
    ) -> None:
        """`functions` makes what runs functions, under the plugin's name; `data` is the folder of all plugins."""
        self.found = found
        self._config = config
        self._make = functions
        self._catalog = catalog
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
            self._fail(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
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
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
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
        await self._offer(plugin)

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
