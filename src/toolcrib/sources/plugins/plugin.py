"""What a plugin is: tools that come and go together, with a configuration, a beginning and an end.

    class Weather(Plugin):
        name = "weather"

        def requirements(self, config):
            return [] if "key" in config else ["config.key: the API key"]

        async def initialize(self, config, services):
            self.client = Client(config["key"], cache=services.data)

        @tool(kind="read")
        async def forecast(self, city: str) -> str: ...

        async def shutdown(self):
            await self.client.aclose()

Functions that need none of this are no plugin: `Toolcrib.add`, or an entry point under `toolcrib.tools`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...catalog.catalog import Catalog

__all__ = ["Plugin", "Services"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
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

    def requirements(self, config: Mapping[str, Any]) -> Iterable[str]:
        """Return the missing requirements, in words for the person who installed it; with any, it is not exposed."""
        return ()

    def initialize(self, config: Mapping[str, Any], services: Services) -> Awaitable[None] | None:
        """Initialize; may be `async`. An exception is reported, and the plugin is not exposed."""
        return None

    def tools(self) -> Iterable[object]:
        """Return functions, or objects with `@tool` methods. By default: its own such methods."""
        return (self,)

    def shutdown(self) -> Awaitable[None] | None:
        """End; may be `async`. Comes once for every `initialize`, also after one that failed."""
        return None
