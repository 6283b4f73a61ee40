"""Source that serves the meta-tools (search, describe, call). It lists none: views declare them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from ..core.context import Context
from ..core.events import SourceState
from ..core.result import ToolResult
from ..core.tool import Tool
from ..errors import ToolFailure
from ..results.artifacts import Artifacts
from ..sources.source import Publish
from .base import VerbContext, VisibleCatalog
from .meta_tools import SOURCE
from .profiles import VERBS

__all__ = ["Host", "Memory", "MetaToolSource"]

_KEPT: Final = 512
"""Answers in memory; an older one is made again when it is asked for."""


class Host(Protocol):
    """Services that the composition root provides."""

    def scene_of(self, context: Context) -> VisibleCatalog:
        """Return the tools that the session of a call can see."""
        ...

    def door_of(self, context: Context) -> Callable[..., Awaitable[ToolResult]]:
        """Return the function by which a meta-tool makes calls of that session."""
        ...


class Memory(OrderedDict[tuple[object, ...], Any]):
    """A bounded cache: the oldest entry is dropped first."""

    def __setitem__(self, key: tuple[object, ...], value: Any) -> None:
        """Keep `value`, and forget the oldest beyond the bound."""
        super().__setitem__(key, value)
        while len(self) > _KEPT:
            self.popitem(last=False)


class MetaToolSource:
    """Source of the meta-tools that run. One for a crib."""

    def __init__(self, host: Host, artifacts: Artifacts) -> None:
        """`host` is asked at every call; `artifacts` holds the long results."""
        self._host = host
        self._artifacts = artifacts
        self._memory = Memory()

    @property
    def name(self) -> str:
        """Always `toolcrib`."""
        return SOURCE

    @property
    def state(self) -> SourceState:
        """Always ready."""
        return SourceState(source=SOURCE, kind="verbs", state="ready")

    async def open(self, publish: Publish) -> None:
        """Publish nothing: meta-tools are declared by views, not by the catalog."""

    async def ready(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        """Do nothing: nothing is held."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run the meta-tool that `tool` is in the session's profile."""
        scene = self._host.scene_of(context)
        for verb, shown in scene.profile.verbs.items():
            run = VERBS[verb].run
            if shown == tool.name and run is not None:
                door = self._host.door_of(context)
                return await run(
                    scene,
                    arguments,
                    VerbContext(context=context, artifacts=self._artifacts, run=door, memory=self._memory),
                )
        raise ToolFailure("not_found", f"{tool.name} is no longer a meta-tool of the profile {scene.profile.name}")
