"""The HTTP APIs that the settings name, mounted; reviewed like any other stranger's definitions."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from ..config import Settings
from ..core.events import Problem, SourceState
from ..sources.source import Source
from .intake import Intake

__all__ = ["Host", "mount_apis"]


class Host(Protocol):
    """What is needed of a crib."""

    settings: Settings

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """What is mounted."""
        ...

    async def mount_source(self, source: Source, *, accept: bool = True) -> None:
        """Mount a source of any kind."""
        ...


async def mount_apis(host: Host, intake: Intake, cache: Path | None) -> None:
    """Mount every API. Waits for none: what cannot be mounted or read is a problem.

    `cache` is the folder for what was converted; None keeps nothing.
    """
    for spec in host.settings.openapi:
        if spec.name in {state.source for state in host.sources}:
            message = f"it is not mounted: something else is named {spec.name}; give one of the two another name"
            intake.report(Problem(source=f"sources.openapi.{spec.name}", code="bad_config", message=message))
            continue
        # Loaded now, for it brings the HTTP client: who has no API does not wait for that.
        made = import_module("..sources.openapi.source", __package__).OpenApiSource.of(spec, cache_dir=cache)
        intake.identify(spec.name, spec.identity)
        await host.mount_source(cast("Source", made), accept=host.settings.accept)
