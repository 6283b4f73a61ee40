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
    """What a plugin is given to work with, from `initialize` to `shutdown`."""

    data: Path
    """A folder of its own, kept over restarts (0700); it is there already."""
    catalog: Callable[[], Catalog]
    """What exists now."""
    log: logging.Logger
    changed: Callable[[], None]
    """Says that `tools` has another answer now."""


class Plugin:
    """Derive from it, and give it what it needs; every member but `name` may be left as it is."""

    name: ClassVar[str] = ""
    """Its name in configurations, before its tools (`weather__forecast`): that of the entry point or the file."""
    instructions: str = ""
    """Advice for the model that is shown where its tools are."""

    def requirements(self, config: Mapping[str, Any]) -> Iterable[str]:
        """Return what is missing, in words for whoever installed it; it is not exposed then."""
        return ()

    def initialize(self, config: Mapping[str, Any], services: Services) -> Awaitable[None] | None:
        """Begin; may be `async`. What it raises is told, and the plugin is not exposed."""
        return None

    def tools(self) -> Iterable[object]:
        """Return functions, or objects with `@tool` methods. By default: its own such methods."""
        return (self,)

    def shutdown(self) -> Awaitable[None] | None:
        """End; may be `async`. Comes once for every `initialize`, also after one that failed."""
        return None
