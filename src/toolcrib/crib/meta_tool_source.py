"""Source that serves the meta-tools (search, describe, call). It lists none: views declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..core.bounded_mapping import BoundedMapping
from ..core.context import Context
from ..core.events import SourceState
from ..core.result import ToolResult
from ..core.tool import Tool
from ..disclosure.base import VerbContext
from ..disclosure.meta_tools import SOURCE
from ..disclosure.profiles import VERBS
from ..errors import ToolFailure
from ..results.artifacts import Artifacts
from ..sources.source import Publish
from .calls import CallRunner

_ANSWERS_KEPT: Final = 512
"""Answers in memory; an older one is made again when it is asked for."""


class MetaToolSource:
    """Source of the meta-tools that run. One for a crib."""

    def __init__(self, calls: CallRunner, artifacts: Artifacts) -> None:
        """`calls` has the tools and the door of a session; `artifacts` holds the long results."""
        self._calls = calls
        self._artifacts = artifacts
        self._memory = BoundedMapping[tuple[object, ...], Any](_ANSWERS_KEPT)

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
        visible = self._calls.visible_of(context)
        for verb, shown in visible.profile.verbs.items():
            run = VERBS[verb].run
            if shown == tool.name and run is not None:
                door = self._calls.door_of(context)
                return await run(
                    visible,
                    arguments,
                    VerbContext(context=context, artifacts=self._artifacts, run=door, memory=self._memory),
                )
        raise ToolFailure("not_found", f"{tool.name} is no longer a meta-tool of the profile {visible.profile.name}")
