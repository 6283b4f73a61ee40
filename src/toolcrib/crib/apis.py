"""The HTTP APIs that the settings name, mounted; reviewed like any other stranger's definitions."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from ..config import Settings
from ..core.events import Problem
from ..sources.source import Source
from .tools import ToolRegistry

__all__ = ["mount_apis"]


async def mount_apis(settings: Settings, tools: ToolRegistry, cache: Path | None) -> None:
    """Mount every API. Waits for none: what cannot be mounted or read is a problem.

    `cache` is the folder for what was converted; None keeps nothing.
    """
    for spec in settings.openapi:
        if spec.name in {state.source for state in tools.sources}:
            message = f"it is not mounted: something else is named {spec.name}; give one of the two another name"
            tools.report(Problem(source=f"sources.openapi.{spec.name}", code="bad_config", message=message))
            continue
        # Loaded now, for it brings the HTTP client: who has no API does not wait for that.
        made = import_module("..sources.openapi.source", __package__).OpenApiSource.of(spec, cache_dir=cache)
        tools.identify(spec.name, spec.identity)
        await tools.mount_source(cast("Source", made), accept=settings.accept)
